/* Rule 5 of step_clock.h: silences of the clock, and the steps in them. Uses counts only: the same
 * ticks are the same steps, whatever their duration. */
#include "step_clock_parts.h"
#include "../base/grow.h"

enum {
    OTHER_SITE_MIN = 2, /* calls with a gradient at sites of no usual step: one may be a detail */
    IDLE_MIN = 3,       /* steps at its own sites: two in a row may be skipped by chance */
    USUAL_MIN = 4,      /* steps that a usual site is in, unless it is in all */
    SKIPPED_FACTOR = 3  /* times as many backward passes as usual: the optimizer was skipped */
};

/* Where a site ticks. */
typedef struct presence {
    uint32_t steps, first, last; /* steps of the clock that have it, counted from 1 */
    uint32_t ended;              /* those among them that end */
    uint32_t groups;
    uint32_t evaluated; /* of a loader: groups before calls that evaluate */
    bool evaluates;     /* without gradient, in evaluation mode, what is trained elsewhere */
    bool trails;        /* behind the clock's tick, a part of the step that ends there */
} presence;

struct cm_clock_silences {
    const cm_clock_view *view;
    presence *at[CM_CLOCK_KINDS]; /* by site; NULL for kinds that do not fill by site */
};

static uint64_t begin_of(const cm_clock_view *v, size_t i)
{
    return i ? cm_clock_bound(v->leads, &v->group[i - 1], v->kind).position : v->begin.position;
}

/* The position up to which another clock may tick: a group is not interrupted. */
static uint64_t end_of(const cm_clock_view *v, size_t i)
{
    return i < v->count ? v->group[i].first.position : v->end.position;
}

static size_t first_group_at(const cm_clock_stream *s, uint64_t position)
{
    size_t low = 0, high = s->count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (s->group[middle].first.position < position)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

/* The tick that begins the group's step. An exhausted iterator and the next one share a group, and
 * so do calls that end an iteration and the next call. */
static const cm_clock_lead *lead_of(const cm_clock_silences *silences, const cm_clock_group *g,
                                    uint32_t kind)
{
    bool last = kind == CM_TICK_DATA || silences->at[kind][g->first_lead.site].trails;
    return last ? &g->last_lead : &g->first_lead;
}

/* --- which sites usual steps have ---------------------------------------------------------------
 */

static void note_presence(presence *site, uint32_t step, bool ends)
{
    if (site->last == step)
        return;
    site->last = step;
    site->ended += ends;
    if (site->steps++ == 0)
        site->first = step;
}

static bool find_presence(cm_clock_silences *silences, uint32_t kind)
{
    const cm_clock_view *v = silences->view;
    const cm_clock_stream *s = &v->stream[kind];
    presence *of = calloc(cm_clock_leads_sites(v->leads) + 1, sizeof *of);
    silences->at[kind] = of;
    size_t i = 0;
    for (size_t g = 0; of != NULL && g < s->count; g++) {
        const cm_clock_group *group = &s->group[g];
        while (i < v->count &&
               cm_clock_bound(v->leads, &v->group[i], v->kind).position <= group->first.position)
            i++;
        note_presence(&of[group->first_lead.site], (uint32_t)i + 1, i < v->count);
        note_presence(&of[group->last_lead.site], (uint32_t)i + 1, i < v->count);
        of[lead_of(silences, group, kind)->site].groups++;
        of[group->first_lead.site].evaluates |= group->no_grad && group->eval_mode &&
                                                cm_clock_objects_trained(v->objects, group->leader);
    }
    return of != NULL;
}

static const presence *presence_of(const cm_clock_silences *silences, uint32_t kind,
                                   const cm_clock_lead *lead)
{
    return &silences->at[kind][lead->site];
}

static bool is_usual_site(const cm_clock_silences *silences, const presence *site)
{
    uint64_t span = (uint64_t)site->last - site->first + 1;
    if (site->evaluates)
        return false;
    return (site->steps >= USUAL_MIN || site->ended >= silences->view->count) &&
           (uint64_t)site->steps * 3 > span * 2;
}

static bool is_usual(const cm_clock_silences *silences, uint32_t kind, const cm_clock_lead *lead)
{
    return is_usual_site(silences, presence_of(silences, kind, lead));
}

/* Whether a backward pass follows the group before the next one of its kind. */
static bool is_trained_on(const cm_clock_view *v, uint32_t kind, size_t g)
{
    const cm_clock_stream *s = &v->stream[kind], *passes = &v->stream[CM_TICK_BACKWARD];
    size_t pass = first_group_at(passes, s->group[g].last.position);
    return pass < passes->count && (g + 1 == s->count || passes->group[pass].first.position <
                                                             s->group[g + 1].first.position);
}

/* A loader evaluates if most of its batches come before calls that do, and before no backward
 * pass: those that a model labels for itself are of training. */
static void find_evaluation_loaders(cm_clock_silences *silences)
{
    const cm_clock_view *v = silences->view;
    const cm_clock_stream *data = &v->stream[CM_TICK_DATA], *calls = &v->stream[CM_TICK_MODULE];
    presence *of = silences->at[CM_TICK_DATA];
    for (size_t g = 0; g < data->count; g++) {
        const cm_clock_lead *lead = &data->group[g].last_lead;
        size_t call = first_group_at(calls, data->group[g].last.position);
        if (call < calls->count &&
            presence_of(silences, CM_TICK_MODULE, &calls->group[call].first_lead)->evaluates &&
            !is_trained_on(v, CM_TICK_DATA, g))
            of[lead->site].evaluated++;
    }
    for (size_t i = 0; i < cm_clock_leads_sites(v->leads); i++)
        of[i].evaluates = of[i].evaluated * 2 > of[i].groups;
}

/* Calls that come in each iteration behind the clock's tick are first and last seen one tick later
 * than those before it. */
static bool find_trailing(const cm_clock_silences *silences)
{
    enum { FIRST = 1, LAST = 2 };
    size_t sites = cm_clock_leads_sites(silences->view->leads);
    presence *of = silences->at[CM_TICK_MODULE];
    uint8_t *usual = calloc(silences->view->count + 2, sizeof *usual); /* by step */
    if (usual == NULL)
        return false;
    for (size_t i = 0; i < sites; i++)
        if (of[i].steps > 0 && is_usual_site(silences, &of[i])) {
            usual[of[i].first] |= FIRST;
            usual[of[i].last] |= LAST;
        }
    for (size_t i = 0; i < sites; i++)
        of[i].trails = of[i].steps > 0 && is_usual_site(silences, &of[i]) &&
                       usual[of[i].first - 1] & FIRST && usual[of[i].last - 1] & LAST;
    free(usual);
    return true;
}

cm_clock_silences *cm_clock_silences_new(const cm_clock_view *view)
{
    cm_clock_silences *silences = calloc(1, sizeof *silences);
    if (silences == NULL)
        return NULL;
    silences->view = view;
    bool fine = find_presence(silences, CM_TICK_DATA) && find_presence(silences, CM_TICK_MODULE);
    if (fine)
        find_evaluation_loaders(silences);
    if (!fine || (cm_clock_ends_a_step(view->kind) && !find_trailing(silences))) {
        cm_clock_silences_free(silences);
        return NULL;
    }
    return silences;
}

void cm_clock_silences_free(cm_clock_silences *silences)
{
    if (silences == NULL)
        return;
    for (int kind = 0; kind < CM_CLOCK_KINDS; kind++)
        free(silences->at[kind]);
    free(silences);
}

/* --- counting in one silence --------------------------------------------------------------------
 */

/* Lower median: if every other silence is long (evaluation every second step), the short one is
 * usual. */
static uint64_t median(uint64_t *value, size_t n)
{
    for (size_t i = 1; i < n; i++) {
        uint64_t v = value[i];
        size_t j = i;
        for (; j > 0 && value[j - 1] > v; j--)
            value[j] = value[j - 1];
        value[j] = v;
    }
    return n ? value[(n - 1) / 2] : 0;
}

typedef uint64_t (*count_fn)(const cm_clock_silences *silences, size_t i, uint32_t kind);

/* The usual number in the ended steps around i, without i itself. */
static uint64_t usually(const cm_clock_silences *silences, size_t i, uint32_t kind, count_fn in)
{
    const cm_clock_view *v = silences->view;
    uint64_t value[2 * CM_CLOCK_NEIGHBOURS];
    size_t n = 0, first = cm_clock_ends_a_step(v->kind) ? 0 : 1;
    size_t from = i > first + CM_CLOCK_NEIGHBOURS ? i - CM_CLOCK_NEIGHBOURS : first;
    for (size_t j = from;
         j < v->count && j <= i + CM_CLOCK_NEIGHBOURS && n < 2 * CM_CLOCK_NEIGHBOURS; j++)
        if (j != i)
            value[n++] = in(silences, j, kind);
    return median(value, n);
}

/* Where the first pass or optimizer's step from `position` on begins, if that is known from what
 * leads to it. */
static bool first_pass(const cm_clock_view *v, size_t i, uint64_t position, cm_moment *at)
{
    static const uint32_t kinds[] = {CM_TICK_BACKWARD, CM_TICK_OPTIMIZER};
    bool found = false;
    for (size_t k = 0; k < sizeof kinds / sizeof kinds[0]; k++) {
        const cm_clock_stream *s = &v->stream[kinds[k]];
        size_t g = first_group_at(s, position);
        if (g == s->count || s->group[g].first.position > end_of(v, i))
            continue;
        cm_moment lead = cm_clock_leads_begin(v->leads, &s->group[g].first_lead);
        if (lead.position < position || lead.position >= s->group[g].first.position ||
            (found && lead.position >= at->position))
            continue;
        *at = lead;
        found = true;
    }
    return found;
}

/* Whether the last group of its kind is more than a loader's word that it is exhausted. */
static bool is_used(const cm_clock_view *v, uint32_t kind, const cm_clock_group *g)
{
    return kind == CM_TICK_MODULE || v->calls > g->calls;
}

/* Whether no backward pass follows group g within the silence. */
static bool lacks_pass(const cm_clock_view *v, size_t i, uint32_t kind, size_t g)
{
    const cm_clock_stream *s = &v->stream[kind], *passes = &v->stream[CM_TICK_BACKWARD];
    const cm_clock_group *group = &s->group[g];
    cm_moment at;
    if (g + 1 < s->count && s->group[g + 1].first.position <= end_of(v, i))
        return s->group[g + 1].backward == group->backward;
    if (i < v->count) /* what follows does not tick in this way */
        return first_pass(v, i, group->last.position, &at);
    return g + 1 == s->count && is_used(v, kind, group) &&
           first_group_at(passes, group->first.position) == passes->count;
}

/* Whether group g is only calls that end the clock's last step. */
static bool is_trailing(const cm_clock_silences *silences, size_t i, uint32_t kind, size_t g)
{
    const cm_clock_group *group = &silences->view->stream[kind].group[g];
    return presence_of(silences, kind, &group->first_lead)->trails &&
           is_usual(silences, kind, &group->last_lead) && lacks_pass(silences->view, i, kind, g);
}

/* Whether the step that group g begins is within the silence, without a backward pass. */
static bool is_idle(const cm_clock_silences *silences, size_t i, uint32_t kind, size_t g)
{
    return lacks_pass(silences->view, i, kind, g) && !is_trailing(silences, i, kind, g);
}

static uint64_t count_idle(const cm_clock_silences *silences, size_t i, uint32_t kind)
{
    const cm_clock_view *v = silences->view;
    const cm_clock_stream *s = &v->stream[kind];
    uint64_t n = 0;
    for (size_t g = first_group_at(s, begin_of(v, i));
         g < s->count && s->group[g].first.position < end_of(v, i); g++)
        n += is_idle(silences, i, kind, g);
    return n;
}

static uint64_t count_passes(const cm_clock_silences *silences, size_t i, uint32_t kind)
{
    const cm_clock_view *v = silences->view;
    const cm_clock_stream *s = &v->stream[kind];
    uint64_t n = 0, end = end_of(v, i) < v->unfinished ? end_of(v, i) : v->unfinished;
    for (size_t g = first_group_at(s, begin_of(v, i));
         g < s->count && s->group[g].last.position < end; g++)
        n += !s->group[g].inside;
    return n;
}

/* --- where the clock's own step begins ----------------------------------------------------------
 */

/* Whether group g is of the clock's own step. In the first one any site that ticks again is. */
static bool is_own(const cm_clock_silences *silences, size_t i, uint32_t kind, size_t g, bool setup)
{
    const cm_clock_view *v = silences->view;
    const cm_clock_lead *lead = lead_of(silences, &v->stream[kind].group[g], kind);
    if (is_trailing(silences, i, kind, g))
        return false;
    return is_usual(silences, kind, lead) || !is_idle(silences, i, kind, g) ||
           (setup && (v->count == 1 || presence_of(silences, kind, lead)->steps > 1));
}

bool cm_clock_resumes(const cm_clock_silences *silences, size_t i, uint64_t position, cm_moment *at)
{
    static const uint32_t kinds[] = {CM_TICK_DATA, CM_TICK_MODULE};
    const cm_clock_view *v = silences->view;
    bool found = first_pass(v, i, position, at), setup = i == 0 && position == 0;
    for (size_t k = 0; k < sizeof kinds / sizeof kinds[0]; k++) {
        const cm_clock_stream *s = &v->stream[kinds[k]];
        size_t g = first_group_at(s, position);
        while (g < s->count && s->group[g].first.position < end_of(v, i) &&
               !is_own(silences, i, kinds[k], g, setup))
            g++;
        if (g == s->count || s->group[g].first.position >= end_of(v, i))
            continue;
        const cm_clock_group *own = &s->group[g];
        bool whole = kinds[k] == CM_TICK_DATA && /* loaders side by side */
                     is_usual(silences, kinds[k], &own->first_lead);
        cm_moment lead = cm_clock_leads_begin(v->leads, whole ? &own->first_lead
                                                              : lead_of(silences, own, kinds[k]));
        if (!found || lead.position < at->position)
            *at = lead;
        found = true;
    }
    return found;
}

/* The next batch or call behind `position` that ends no iteration; NULL: none. */
static const cm_clock_lead *next_begin(const cm_clock_silences *silences, uint64_t position)
{
    const cm_clock_view *v = silences->view;
    const cm_clock_stream *data = &v->stream[CM_TICK_DATA], *calls = &v->stream[CM_TICK_MODULE];
    size_t d = first_group_at(data, position);
    for (size_t c = first_group_at(calls, position); c < calls->count; c++) {
        const cm_clock_group *call = &calls->group[c];
        if (d < data->count && data->group[d].first.position < call->first.position)
            break;
        if (!presence_of(silences, CM_TICK_MODULE, &call->first_lead)->trails)
            return &call->first_lead;
        if (!presence_of(silences, CM_TICK_MODULE, &call->last_lead)->trails)
            return &call->last_lead;
    }
    return d < data->count ? &data->group[d].first_lead : NULL;
}

cm_moment cm_clock_end(const cm_clock_silences *silences, const cm_clock_group *g)
{
    const cm_clock_view *v = silences->view;
    cm_moment bound = cm_clock_bound(v->leads, g, v->kind), end = v->end, begin;
    if (v->kind != CM_TICK_OPTIMIZER && v->kind != CM_TICK_BACKWARD)
        return bound;
    const cm_clock_lead *next = next_begin(silences, bound.position);
    if (next == NULL)
        return g == &v->group[v->count - 1] && cm_clock_leads_last(v->leads, &end) ? end : bound;
    if (!cm_clock_leads_behind(v->leads, next, &end))
        return bound;
    begin = cm_clock_leads_begin(v->leads, next);
    return begin.position < end.position ? begin : end;
}

bool cm_clock_begins(const cm_clock_silences *silences, uint64_t position)
{
    const cm_clock_stream *s = &silences->view->stream[CM_TICK_MODULE];
    for (size_t g = first_group_at(s, position); g < s->count; g++)
        if (is_usual(silences, CM_TICK_MODULE, &s->group[g].first_lead))
            return true;
    return false;
}

bool cm_clock_last_step(const cm_clock_view *v, uint32_t kind, cm_moment *end)
{
    const cm_clock_stream *s = &v->stream[kind];
    const cm_clock_group *last = &s->group[s->count - 1];
    if (!cm_clock_leads_trail(v->leads, end))
        *end = v->end;
    return is_used(v, kind, last) && end->position > last->last.position;
}

/* --- filling ------------------------------------------------------------------------------------
 */

bool cm_clock_add_draft(cm_clock_drafts *d, const cm_clock_draft *draft)
{
    if (!cm_grow((void **)&d->step, &d->capacity, d->count + 1, sizeof *d->step))
        return false;
    d->step[d->count++] = *draft;
    return true;
}

/* A skipped optimizer. The last passes belong to its next step. */
static bool fill_with_passes(const cm_clock_silences *silences, size_t i, cm_clock_drafts *out,
                             bool *filled)
{
    const cm_clock_view *v = silences->view;
    const cm_clock_stream *s = &v->stream[CM_TICK_BACKWARD];
    uint64_t passes = count_passes(silences, i, CM_TICK_BACKWARD);
    *filled = false;
    if (passes < SKIPPED_FACTOR)
        return true;
    uint64_t usual = usually(silences, i, CM_TICK_BACKWARD, count_passes);
    if (passes < SKIPPED_FACTOR * usual)
        return true;
    *filled = true;
    if (i < v->count)
        passes -= usual;
    for (size_t g = first_group_at(s, begin_of(v, i)); passes > 0; g++) {
        const cm_clock_group *pass = &s->group[g];
        if (pass->inside)
            continue;
        passes--;
        cm_clock_draft step = {.end = cm_clock_bound(v->leads, pass, CM_TICK_BACKWARD),
                               .backward = pass->backward,
                               .kind = CM_TICK_BACKWARD,
                               .line = pass->first_line};
        if (!cm_clock_add_draft(out, &step))
            return false;
    }
    return true;
}

/* The idle steps of a silence. */
typedef struct idle {
    size_t from, to; /* groups */
    bool any;        /* they count at any site */
} idle;

/* Whether group g is a step at a site that usual steps lack. A single call before the first step is
 * setup. */
static bool is_other(const cm_clock_silences *silences, size_t i, uint32_t kind, size_t g)
{
    const cm_clock_group *group = &silences->view->stream[kind].group[g];
    const cm_clock_lead *lead = lead_of(silences, group, kind);
    return is_idle(silences, i, kind, g) && !is_usual(silences, kind, lead) &&
           (i > 0 || group->sanity || presence_of(silences, kind, lead)->groups > 1);
}

/* Whether the clock's own step has begun before group g, which is then a part of it: a usual site
 * ticks before it and not again behind it. */
static bool is_within_step(const cm_clock_silences *silences, size_t i, uint32_t kind, size_t g)
{
    const cm_clock_view *v = silences->view;
    uint64_t position = v->stream[kind].group[g].first.position;
    for (uint32_t k = CM_TICK_DATA; k <= CM_TICK_MODULE; k++) {
        const cm_clock_stream *s = &v->stream[k];
        size_t at = first_group_at(s, begin_of(v, i));
        const cm_clock_lead *begun = NULL;
        bool again = false;
        for (; at < s->count && s->group[at].first.position < end_of(v, i); at++) {
            const cm_clock_lead *lead = lead_of(silences, &s->group[at], k);
            if (s->group[at].first.position >= position)
                again |= begun != NULL && lead->site == begun->site;
            else if (is_usual(silences, k, lead) && !is_trailing(silences, i, k, at))
                begun = lead;
        }
        if (begun != NULL && !again)
            return true;
    }
    return false;
}

/* Finds evaluation, sampling, roll-outs: steps without a node, at sites that usual steps lack, or
 * at any site if usual steps have no idle step. */
static bool find_idle(const cm_clock_silences *silences, size_t i, uint32_t kind, idle *found)
{
    const cm_clock_view *v = silences->view;
    const cm_clock_stream *s = &v->stream[kind];
    size_t count = 0, unusual = 0, other = 0, sure = 0, first = 0, g;
    for (g = found->from = first_group_at(s, begin_of(v, i));
         g < s->count && s->group[g].first.position < end_of(v, i); g++) {
        const cm_clock_group *group = &s->group[g];
        if (!is_idle(silences, i, kind, g))
            continue;
        count++;
        unusual += !is_usual(silences, kind, lead_of(silences, group, kind));
        if (!is_other(silences, i, kind, g))
            continue;
        if (other++ == 0)
            first = g;
        sure += group->no_grad || group->sanity || kind == CM_TICK_DATA;
    }
    found->to = g;
    found->any =
        count >= IDLE_MIN && (unusual == count || usually(silences, i, kind, count_idle) == 0);
    if (found->any || other >= IDLE_MIN)
        return true;
    return (sure > 0 || other >= OTHER_SITE_MIN) &&
           (s->group[first].sanity || !is_within_step(silences, i, kind, first));
}

/* The end of the last idle step of a silence. false: it cannot be told from the clock's. */
static bool end_of_last(const cm_clock_silences *silences, size_t i, uint32_t kind, size_t g,
                        cm_moment *end)
{
    const cm_clock_view *v = silences->view;
    const cm_clock_stream *s = &v->stream[kind];
    if (cm_clock_resumes(silences, i, s->group[g].last.position + 1, end))
        return true;
    if (i < v->count)
        return false;
    if (g + 1 < s->count) /* the loader was empty */
        *end = s->group[g + 1].first;
    else if (!cm_clock_leads_trail(v->leads, end))
        *end = v->end;
    return true;
}

static bool add_idle(const cm_clock_silences *silences, uint32_t kind, size_t g, cm_moment end,
                     cm_clock_drafts *out)
{
    const cm_clock_group *group = &silences->view->stream[kind].group[g];
    bool last = lead_of(silences, group, kind) == &group->last_lead;
    cm_clock_draft step = {.end = end,
                           .backward = group->newest,
                           .kind = kind,
                           .line = last ? group->last_line : group->first_line,
                           .sanity = group->sanity};
    return cm_clock_add_draft(out, &step);
}

/* What ends an iteration belongs to it: evaluation begins with what leads to its first batch. That
 * is known where another batch follows. */
static void extend_last(const cm_clock_silences *silences, size_t i, const cm_clock_lead *first,
                        cm_clock_drafts *out)
{
    if (i > 0 && cm_clock_ends_a_step(silences->view->kind))
        out->step[out->count - 1].end = cm_clock_leads_begin(silences->view->leads, first);
}

static bool fill_with_idle(const cm_clock_silences *silences, size_t i, uint32_t kind,
                           cm_clock_drafts *out, bool *filled)
{
    const cm_clock_view *v = silences->view;
    const cm_clock_stream *s = &v->stream[kind];
    idle found;
    size_t last = SIZE_MAX, steps = 0;
    cm_moment end;
    *filled = find_idle(silences, i, kind, &found);
    for (size_t g = found.from; *filled && g < found.to; g++) {
        if (!(found.any ? is_idle(silences, i, kind, g) : is_other(silences, i, kind, g)))
            continue;
        if (i == 0 && last == SIZE_MAX)
            out->begin = cm_clock_leads_begin(v->leads, lead_of(silences, &s->group[g], kind));
        if (last != SIZE_MAX && ++steps == 1)
            extend_last(silences, i, lead_of(silences, &s->group[last], kind), out);
        if (last != SIZE_MAX && !add_idle(silences, kind, last,
                                          cm_clock_bound(v->leads, &s->group[last + 1], kind), out))
            return false;
        last = g;
    }
    return last == SIZE_MAX || !end_of_last(silences, i, kind, last, &end) ||
           add_idle(silences, kind, last, end, out);
}

bool cm_clock_fill(const cm_clock_silences *silences, size_t i, cm_clock_drafts *out)
{
    uint32_t kind = silences->view->kind;
    bool filled = false, fine = true;
    if (kind == CM_TICK_OPTIMIZER)
        fine = fill_with_passes(silences, i, out, &filled);
    if (fine && !filled && kind != CM_TICK_DATA && kind != CM_TICK_MODULE)
        fine = fill_with_idle(silences, i, CM_TICK_DATA, out, &filled);
    if (fine && !filled && kind != CM_TICK_MODULE)
        fine = fill_with_idle(silences, i, CM_TICK_MODULE, out, &filled);
    return fine;
}
