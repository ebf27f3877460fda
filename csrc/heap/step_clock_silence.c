/* Rule 5 of step_clock.h: silences of the clock, and the steps in them. Uses counts only: the same
 * ticks are the same steps, whatever their duration. */
#include "step_clock_parts.h"
#include "../base/grow.h"

enum {
    OTHER_LINE_MIN = 2, /* steps on lines of no usual step: fewer are part of a long step */
    IDLE_MIN = 3,       /* ... and on its own lines: two in a row may be skipped by chance */
    USUAL_MIN = 4,      /* steps that a usual line is in, at least */
    SKIPPED_FACTOR = 3  /* times as many backward passes as usual: the optimizer was skipped */
};

struct cm_clock_silences {
    const cm_clock_stream *stream; /* by kind */
    uint32_t kind;                 /* the clock's */
    const cm_clock_group *group;   /* and its groups */
    size_t count;
    cm_moment begin, end;
    uint64_t unfinished;
    uint32_t lines;
    bool *usual[CM_CLOCK_KINDS]; /* by line; NULL for kinds that do not fill by line */
};

static uint64_t begin_of(const cm_clock_silences *v, size_t i)
{
    return i ? cm_clock_bound(&v->group[i - 1], v->kind).position : v->begin.position;
}

/* The position up to which another clock may tick: a group is not interrupted. */
static uint64_t end_of(const cm_clock_silences *v, size_t i)
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

/* Of the step that this group begins: an exhausted iterator and the next one share a group. */
static uint32_t line_of(const cm_clock_group *g, uint32_t kind)
{
    return kind == CM_TICK_DATA ? g->last_line : g->first_line;
}

/* --- which lines usual steps have ---------------------------------------------------------------
 */

typedef struct presence {
    uint32_t steps, first, last; /* steps of the clock that have the line, counted from 1 */
} presence;

static bool find_usual(cm_clock_silences *v, uint32_t kind)
{
    const cm_clock_stream *s = &v->stream[kind];
    presence *of = calloc((size_t)v->lines + 1, sizeof *of);
    v->usual[kind] = calloc((size_t)v->lines + 1, sizeof *v->usual[kind]);
    if (of == NULL || v->usual[kind] == NULL) {
        free(of);
        return false;
    }
    size_t i = 0;
    for (size_t g = 0; g < s->count; g++) {
        uint64_t at = s->group[g].first.position;
        while (i < v->count && cm_clock_bound(&v->group[i], v->kind).position <= at)
            i++;
        presence *line = &of[line_of(&s->group[g], kind)];
        if (line->last == (uint32_t)i + 1)
            continue;
        line->last = (uint32_t)i + 1;
        if (line->steps++ == 0)
            line->first = line->last;
    }
    for (uint32_t line = 0; line < v->lines; line++) {
        uint64_t span = (uint64_t)of[line].last - of[line].first + 1;
        v->usual[kind][line] =
            of[line].steps >= USUAL_MIN && (uint64_t)of[line].steps * 3 > span * 2;
    }
    free(of);
    return true;
}

cm_clock_silences *cm_clock_silences_new(const cm_clock_stream *stream, uint32_t lines,
                                         uint32_t kind, const cm_clock_group *group, size_t count,
                                         cm_moment begin, cm_moment end, uint64_t unfinished)
{
    cm_clock_silences *v = malloc(sizeof *v);
    if (v == NULL)
        return NULL;
    *v = (cm_clock_silences){.stream = stream,
                             .kind = kind,
                             .group = group,
                             .count = count,
                             .begin = begin,
                             .end = end,
                             .unfinished = unfinished,
                             .lines = lines};
    if (!find_usual(v, CM_TICK_DATA) || !find_usual(v, CM_TICK_MODULE)) {
        cm_clock_silences_free(v);
        return NULL;
    }
    return v;
}

void cm_clock_silences_free(cm_clock_silences *v)
{
    if (v == NULL)
        return;
    for (int kind = 0; kind < CM_CLOCK_KINDS; kind++)
        free(v->usual[kind]);
    free(v);
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

typedef uint64_t (*count_fn)(const cm_clock_silences *v, size_t i, uint32_t kind);

/* The usual number in the ended steps around i, without i itself. */
static uint64_t usually(const cm_clock_silences *v, size_t i, uint32_t kind, count_fn in)
{
    uint64_t value[2 * CM_CLOCK_NEIGHBOURS];
    size_t n = 0, first = cm_clock_ends_a_step(v->kind) ? 0 : 1;
    size_t from = i > first + CM_CLOCK_NEIGHBOURS ? i - CM_CLOCK_NEIGHBOURS : first;
    for (size_t j = from;
         j < v->count && j <= i + CM_CLOCK_NEIGHBOURS && n < 2 * CM_CLOCK_NEIGHBOURS; j++)
        if (j != i)
            value[n++] = in(v, j, kind);
    return median(value, n);
}

/* Whether the step that group g begins is within the silence, without a backward pass. */
static bool is_idle(const cm_clock_silences *v, size_t i, uint32_t kind, size_t g)
{
    const cm_clock_stream *s = &v->stream[kind];
    return g + 1 < s->count && s->group[g + 1].first.position <= end_of(v, i) &&
           s->group[g + 1].backward == s->group[g].backward;
}

static uint64_t count_idle(const cm_clock_silences *v, size_t i, uint32_t kind)
{
    const cm_clock_stream *s = &v->stream[kind];
    uint64_t n = 0;
    for (size_t g = first_group_at(s, begin_of(v, i));
         g < s->count && s->group[g].first.position < end_of(v, i); g++)
        n += is_idle(v, i, kind, g);
    return n;
}

static uint64_t count_passes(const cm_clock_silences *v, size_t i, uint32_t kind)
{
    const cm_clock_stream *s = &v->stream[kind];
    uint64_t n = 0, end = end_of(v, i) < v->unfinished ? end_of(v, i) : v->unfinished;
    for (size_t g = first_group_at(s, begin_of(v, i));
         g < s->count && s->group[g].last.position < end; g++)
        n += !s->group[g].inside;
    return n;
}

/* --- filling ------------------------------------------------------------------------------------
 */

bool cm_clock_add_draft(cm_clock_drafts *d, cm_moment end, uint64_t backward, uint32_t kind,
                        uint32_t line)
{
    if (!cm_grow((void **)&d->step, &d->capacity, d->count + 1, sizeof *d->step))
        return false;
    d->step[d->count++] = (cm_clock_draft){end, backward, kind, line};
    return true;
}

/* A skipped optimizer. The last passes belong to its next step. */
static bool fill_with_passes(const cm_clock_silences *v, size_t i, cm_clock_drafts *out,
                             bool *filled)
{
    const cm_clock_stream *s = &v->stream[CM_TICK_BACKWARD];
    uint64_t passes = count_passes(v, i, CM_TICK_BACKWARD);
    *filled = false;
    if (passes < SKIPPED_FACTOR)
        return true;
    uint64_t usual = usually(v, i, CM_TICK_BACKWARD, count_passes);
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
        if (!cm_clock_add_draft(out, cm_clock_bound(pass, CM_TICK_BACKWARD), pass->backward,
                                CM_TICK_BACKWARD, pass->first_line))
            return false;
    }
    return true;
}

/* Evaluation, sampling, roll-outs: steps without a node, on lines that usual steps lack, or on any
 * line if usual steps have no idle step. */
static bool fill_with_idle(const cm_clock_silences *v, size_t i, uint32_t kind,
                           cm_clock_drafts *out, bool *filled)
{
    const cm_clock_stream *s = &v->stream[kind];
    const bool *usual = v->usual[kind];
    size_t from = first_group_at(s, begin_of(v, i)), idle = 0, other = 0, to = from;
    for (; to < s->count && s->group[to].first.position < end_of(v, i); to++) {
        if (!is_idle(v, i, kind, to))
            continue;
        idle++;
        other += !usual[line_of(&s->group[to], kind)];
    }
    bool any = idle >= IDLE_MIN && (other == idle || usually(v, i, kind, count_idle) == 0);
    *filled = any || other >= OTHER_LINE_MIN;
    for (size_t g = from; *filled && g < to; g++) {
        uint32_t line = line_of(&s->group[g], kind);
        if (!is_idle(v, i, kind, g) || (!any && usual[line]))
            continue;
        if (!cm_clock_add_draft(out, s->group[g + 1].first, s->group[g + 1].backward, kind, line))
            return false;
    }
    return true;
}

bool cm_clock_fill(const cm_clock_silences *v, size_t i, cm_clock_drafts *out)
{
    bool filled = false, fine = true;
    if (v->kind == CM_TICK_OPTIMIZER)
        fine = fill_with_passes(v, i, out, &filled);
    if (fine && !filled && v->kind != CM_TICK_DATA && v->kind != CM_TICK_MODULE)
        fine = fill_with_idle(v, i, CM_TICK_DATA, out, &filled);
    if (fine && !filled && v->kind != CM_TICK_MODULE)
        fine = fill_with_idle(v, i, CM_TICK_MODULE, out, &filled);
    return fine;
}
