#include "step_clock.h"

#include <stdio.h>
#include <string.h>

#include "step_clock_parts.h"
#include "../base/grow.h"

const uint32_t cm_clock_order[CM_CLOCK_KINDS - 1] = {
    CM_TICK_STEP, CM_TICK_OPTIMIZER, CM_TICK_BACKWARD, CM_TICK_DATA, CM_TICK_MODULE};

enum {
    RUN_SHORT = 3, /* steps in a row of a line that alternates */
    RUNS_AHEAD = 8 /* lines that may follow until one returns */
};

struct cm_clock {
    cm_clock_stream stream[CM_CLOCK_KINDS];
    cm_clock_objects *objects;
    cm_clock_leads *leads;
    uint64_t calls; /* of modules */
    bool seen_node, found_alive, created;
    cm_moment node, first_created;
    uint32_t lines; /* highest line number + 1 */
};

cm_clock *cm_clock_new(void)
{
    cm_clock *clock = calloc(1, sizeof *clock);
    if (clock == NULL)
        return NULL;
    clock->objects = cm_clock_objects_new();
    clock->leads = cm_clock_leads_new();
    if (clock->objects != NULL && clock->leads != NULL)
        return clock;
    cm_clock_free(clock);
    return NULL;
}

void cm_clock_free(cm_clock *clock)
{
    if (clock == NULL)
        return;
    for (int kind = 0; kind < CM_CLOCK_KINDS; kind++) {
        free(clock->stream[kind].group);
        free(clock->stream[kind].tick);
    }
    cm_clock_objects_free(clock->objects);
    cm_clock_leads_free(clock->leads);
    free(clock);
}

bool cm_clock_object(cm_clock *clock, uint64_t address, cm_moment at, bool before_start)
{
    if (before_start) {
        clock->found_alive = true;
        return true;
    }
    if (!cm_clock_objects_made(clock->objects, address, at.position))
        return false;
    if (!clock->created)
        clock->first_created = at;
    clock->created = true;
    return true;
}

bool cm_clock_renew(cm_clock *clock, uint64_t address)
{
    return cm_clock_objects_renew(clock->objects, address);
}

bool cm_clock_block(cm_clock *clock, uint32_t stack, uint32_t thread, cm_moment at)
{
    return cm_clock_leads_block(clock->leads, stack, thread, at);
}

void cm_clock_compacted(cm_clock *clock)
{
    cm_clock_leads_compacted(clock->leads);
}

void cm_clock_close(cm_clock *clock, cm_moment at)
{
    cm_clock_leads_close(clock->leads, at);
}

void cm_clock_node(cm_clock *clock, cm_moment at)
{
    if (clock->seen_node)
        return;
    clock->seen_node = true;
    clock->node = at;
}

bool cm_clock_tick(cm_clock *clock, const cm_tick *tick)
{
    if (tick->kind == 0 || tick->kind >= CM_CLOCK_KINDS)
        return true; /* a newer minor version's candidate */
    cm_clock_lead lead;
    if (!cm_clock_leads_tick(clock->leads, tick, &lead) ||
        !cm_clock_add_tick(clock->objects, &clock->stream[tick->kind], tick, &lead, clock->calls))
        return false;
    clock->calls += tick->kind == CM_TICK_MODULE;
    if (tick->line >= clock->lines)
        clock->lines = tick->line + 1;
    return true;
}

/* --- the clock (rules 2 to 4) ------------------------------------------------------------------
 */

/* The groups that end or begin steps, and their kind. */
typedef struct primary {
    uint32_t kind;
    const cm_clock_group *group;
    size_t count;
    cm_clock_group *joined; /* joined to iterations (rule 3); else NULL */
    uint64_t unfinished;    /* position of an unfinished iteration at the end */
} primary;

/* Whether most steps of a better clock have two batches: else the loader is not its loop's. */
static bool has_batches(const cm_clock_stream *better, const cm_clock_stream *data)
{
    size_t with = 0, d = 0;
    for (size_t i = 0; i < better->count; i++) {
        size_t batches = 0;
        for (; d < data->count && data->group[d].first.position < better->group[i].first.position;)
            d++, batches++;
        with += batches >= 2;
    }
    return with * 2 >= better->count;
}

/* Rule 2; 0: nothing ticked. */
static uint32_t choose_kind(const cm_clock *clock, cm_steps *out)
{
    uint32_t any = 0;
    for (size_t i = 0; i < CM_CLOCK_KINDS - 1; i++) {
        uint32_t kind = cm_clock_order[i];
        const cm_clock_stream *s = &clock->stream[kind];
        if (s->count == 0)
            continue;
        bool enough = s->count >= CM_CLOCK_ENOUGH && kind != CM_TICK_MODULE;
        if (kind == CM_TICK_DATA && any != 0)
            enough = enough && has_batches(&clock->stream[any], s);
        if (enough && any != 0) {
            out->passed_kind = any;
            out->passed_line = clock->stream[any].group[0].first_line;
            out->passed_steps = (uint32_t)clock->stream[any].count;
        }
        if (enough || kind == CM_TICK_STEP)
            return kind;
        if (any == 0)
            any = kind;
    }
    return any;
}

static bool choose_primary(const cm_clock *clock, primary *p, cm_steps *out)
{
    p->unfinished = UINT64_MAX;
    p->kind = out->kind = choose_kind(clock, out);
    const cm_clock_stream *s = &clock->stream[p->kind];
    p->group = s->group;
    p->count = s->count;
    if (p->kind != CM_TICK_OPTIMIZER && p->kind != CM_TICK_BACKWARD)
        return true;
    cm_clock_rate rate;
    if (!cm_clock_find_rate(s, CM_CLOCK_JOINED, &rate))
        return false;
    if (rate.updates != 0) {
        size_t left;
        p->group = p->joined = cm_clock_join(s, &rate, &p->count, &left);
        if (left > 0)
            p->unfinished = s->group[s->count - left].first.position;
        out->joined = true;
    } else if (!cm_clock_find_rate(s, 3, &rate)) {
        return false;
    }
    out->updates = rate.updates;
    out->updates_line = rate.line;
    return p->group != NULL;
}

/* Where the first step begins (the last paragraph of step_clock.h). */
static cm_moment first_begin(const cm_clock *clock, const primary *p, const cm_clock_view *view,
                             const cm_clock_silences *silences)
{
    if (!cm_clock_ends_a_step(p->kind))
        return cm_clock_bound(clock->leads, &p->group[0], p->kind);
    uint64_t first_end = p->group[0].first.position;
    const cm_clock_stream *data = &clock->stream[CM_TICK_DATA];
    bool nothing_set_up =
        clock->found_alive && !(clock->created && clock->first_created.position < first_end);
    bool asks = data->count > 0 && data->group[0].first.position < first_end;
    cm_moment at;
    if (nothing_set_up && !asks)
        return view->begin;
    if (cm_clock_resumes(silences, 0, 0, &at))
        return at;
    if (asks)
        return data->group[0].first;
    return clock->seen_node && clock->node.position < first_end ? clock->node : view->begin;
}

static bool add_step(const primary *p, const cm_clock_group *g, cm_moment end, uint64_t backward,
                     cm_clock_drafts *out)
{
    bool data = p->kind == CM_TICK_DATA;
    cm_clock_draft step = {.end = end,
                           .backward = backward,
                           .kind = p->kind,
                           .line = data ? g->last_line : g->first_line,
                           .sanity = g->sanity,
                           .trailed = cm_clock_ends_a_step(p->kind) &&
                                      end.position > g->last.position + 1};
    return cm_clock_add_draft(out, &step);
}

static bool draft_steps(const cm_clock *clock, const primary *p, cm_moment begin, cm_moment end,
                        cm_clock_drafts *out, bool *begun)
{
    bool ends = cm_clock_ends_a_step(p->kind), fine = true;
    cm_clock_view view = {clock->stream, clock->leads, clock->objects, p->kind,
                          p->group,      p->count,     begin,          end,
                          p->unfinished, clock->calls};
    cm_clock_silences *silences = cm_clock_silences_new(&view);
    if (silences == NULL)
        return false;
    out->begin = first_begin(clock, p, &view, silences);
    if (!ends)
        out->backward = p->group[0].backward;
    for (size_t i = ends ? 0 : 1; fine && i <= p->count; i++) {
        size_t before = out->count;
        cm_moment last;
        fine = p->kind == CM_TICK_STEP || cm_clock_fill(silences, i, out);
        const cm_clock_group *g = &p->group[i];
        if (fine && i < p->count)
            fine = add_step(p, ends ? g : g - 1, cm_clock_end(silences, g), g->backward, out);
        else if (fine && !ends && out->count == before && cm_clock_last_step(&view, p->kind, &last))
            fine = add_step(p, g - 1, last, g[-1].newest, out);
    }
    *begun = fine && ends && cm_clock_begins(silences, out->step[out->count - 1].end.position);
    cm_clock_silences_free(silences);
    return fine;
}

/* --- stretches (rule 6) ------------------------------------------------------------------------
 */

/* Steps in a row that one line ticked. A sanity check's line is another one. */
typedef struct run {
    size_t first, count;
    size_t slot; /* line and kind */
} run;

/* The lines of all steps. */
typedef struct lines {
    const cm_clock_drafts *d;
    run *run;
    size_t runs;
    uint32_t *runs_of, *short_of; /* by slot: runs, and short ones among them */
    uint32_t *root;               /* by slot: the slot that represents its loop */
    uint32_t *member;             /* by slot: its last stretch (from 1) */
} lines;

static size_t slot_of(const cm_clock_draft *step)
{
    return ((size_t)step->line * 2 + step->sanity) * CM_CLOCK_KINDS + step->kind;
}

static void free_lines(lines *l)
{
    free(l->run);
    free(l->runs_of);
    free(l->short_of);
    free(l->root);
    free(l->member);
}

static bool find_lines(const cm_clock *clock, const cm_clock_drafts *d, lines *l)
{
    size_t slots = (size_t)clock->lines * 2 * CM_CLOCK_KINDS;
    *l = (lines){.d = d,
                 .run = malloc((d->count + 1) * sizeof *l->run),
                 .runs_of = calloc(slots + 1, sizeof *l->runs_of),
                 .short_of = calloc(slots + 1, sizeof *l->short_of),
                 .root = malloc((slots + 1) * sizeof *l->root),
                 .member = calloc(slots + 1, sizeof *l->member)};
    if (l->run == NULL || l->runs_of == NULL || l->short_of == NULL || l->root == NULL ||
        l->member == NULL)
        return false;
    for (size_t slot = 0; slot < slots; slot++)
        l->root[slot] = (uint32_t)slot;
    for (size_t i = 0, end; i < d->count; i = end) {
        size_t slot = slot_of(&d->step[i]);
        for (end = i + 1; end < d->count && slot_of(&d->step[end]) == slot;)
            end++;
        l->run[l->runs++] = (run){i, end - i, slot};
        l->runs_of[slot]++;
        l->short_of[slot] += end - i <= RUN_SHORT;
    }
    return true;
}

static bool is_short(const lines *l, size_t slot)
{
    return l->short_of[slot] * 2 > l->runs_of[slot];
}

/* Whether the line of run r alternates with those of the stretch. One of them must return soon, and
 * one of the two must tick only a few times in a row: otherwise they are phases that take turns. */
static bool alternates(const lines *l, uint32_t stretch, size_t r)
{
    for (size_t next = r + 1; next < l->runs && next <= r + RUNS_AHEAD; next++) {
        size_t slot = l->run[next].slot;
        if (slot % CM_CLOCK_KINDS != l->run[r].slot % CM_CLOCK_KINDS)
            return false;
        if (l->member[slot] == stretch)
            return is_short(l, slot) || is_short(l, l->run[r].slot);
    }
    return false;
}

/* The run after the stretch that begins with run `first`. */
static size_t stretch_end(const lines *l, uint32_t stretch, size_t first)
{
    size_t slot = l->run[first].slot, r = first + 1;
    l->member[slot] = stretch;
    for (; r < l->runs && l->run[r].slot % CM_CLOCK_KINDS == slot % CM_CLOCK_KINDS; r++) {
        size_t other = l->run[r].slot;
        if (l->member[other] == stretch)
            continue;
        if (!alternates(l, stretch, r))
            break;
        l->member[other] = stretch;
        l->root[other] = l->root[slot];
    }
    return r;
}

static bool backward_in(const cm_clock_drafts *d, size_t i)
{
    return d->step[i].backward > (i ? d->step[i - 1].backward : d->backward);
}

/* The loop of a stretch, by its line and activity. -1: out of memory. */
static int64_t find_loop(cm_steps *out, size_t *capacity, uint32_t kind, uint32_t line,
                         const char *role)
{
    size_t same = 1, length = strlen(role);
    for (size_t i = 0; i < out->loop_count; i++) {
        cm_clock_loop *loop = &out->loop[i];
        if (strncmp(loop->name, role, length) != 0)
            continue;
        if (loop->kind == kind && loop->line == line)
            return (int64_t)i;
        same++;
    }
    if (!cm_grow((void **)&out->loop, capacity, out->loop_count + 1, sizeof *out->loop))
        return -1;
    cm_clock_loop *loop = &out->loop[out->loop_count];
    *loop = (cm_clock_loop){.kind = kind, .line = line};
    if (same == 1)
        snprintf(loop->name, sizeof loop->name, "%s", role);
    else
        snprintf(loop->name, sizeof loop->name, "%s %zu", role, same);
    return (int64_t)out->loop_count++;
}

static bool trains(uint32_t kind)
{
    return kind == CM_TICK_OPTIMIZER || kind == CM_TICK_BACKWARD;
}

/* The loop of the stretch that begins with run `first`, before the one that begins with `behind`.
 * -1: out of memory. */
static int64_t loop_of_stretch(const lines *l, size_t first, size_t behind, int64_t *training,
                               size_t *loops, cm_steps *out)
{
    const cm_clock_drafts *d = l->d;
    size_t begin = l->run[first].first, backward = 0;
    size_t end = behind < l->runs ? l->run[behind].first : d->count;
    uint32_t root = l->root[l->run[first].slot];
    uint32_t kind = root % CM_CLOCK_KINDS, line = root / CM_CLOCK_KINDS / 2;
    for (size_t i = begin; i < end; i++)
        backward += backward_in(d, i);
    if (root / CM_CLOCK_KINDS % 2)
        return find_loop(out, loops, kind, line, "sanity check");
    if (!trains(kind) && 2 * backward < end - begin)
        return find_loop(out, loops, kind, line, "evaluation");
    /* Iterations with a skipped optimizer belong to the loop around them. */
    if (kind != out->kind) {
        for (size_t r = behind; *training < 0 && r < l->runs; r++) {
            uint32_t other = l->root[l->run[r].slot];
            if (other % CM_CLOCK_KINDS == out->kind)
                *training =
                    find_loop(out, loops, out->kind, other / CM_CLOCK_KINDS / 2, "training");
        }
        return *training >= 0 ? *training : find_loop(out, loops, kind, line, "training");
    }
    return *training = find_loop(out, loops, kind, line, "training");
}

static bool name_stretches(const cm_clock *clock, const cm_clock_drafts *d, cm_steps *out)
{
    size_t loops = 0, changes = 0;
    int64_t training = -1; /* the clock's newest training loop */
    uint32_t stretch = 0;
    lines l;
    bool fine = find_lines(clock, d, &l);

    for (size_t first = 0, behind; fine && first < l.runs; first = behind) {
        behind = stretch_end(&l, ++stretch, first);
        size_t begin = l.run[first].first;
        size_t end = behind < l.runs ? l.run[behind].first : d->count;
        int64_t loop = loop_of_stretch(&l, first, behind, &training, &loops, out);
        fine = loop >= 0 && (first == 0 || cm_grow((void **)&out->change, &changes,
                                                   out->change_count + 1, sizeof *out->change));
        if (!fine)
            break;
        if (first > 0)
            out->change[out->change_count++] = (cm_clock_change){
                (uint32_t)begin, (uint32_t)loop, d->step[begin].kind, d->step[begin].line};
        out->loop[loop].steps += end - begin;
        for (size_t i = begin; i < end; i++) {
            out->step[i] = (cm_clock_step){d->step[i].end, (uint32_t)loop};
            out->loop[loop].trailed |= d->step[i].trailed;
        }
    }
    free_lines(&l);
    return fine;
}

/* The clock's most frequent line, the earliest of equals. */
static bool find_main_line(const cm_clock *clock, const cm_clock_drafts *d, cm_steps *out)
{
    uint64_t *steps = calloc((size_t)clock->lines + 1, sizeof *steps);
    if (steps == NULL)
        return false;
    out->line = clock->stream[out->kind].group[0].first_line;
    for (size_t i = 0; i < d->count; i++)
        if (d->step[i].kind == out->kind)
            steps[d->step[i].line]++;
    for (size_t i = 0; i < d->count; i++)
        if (d->step[i].kind == out->kind && steps[d->step[i].line] > steps[out->line])
            out->line = d->step[i].line;
    free(steps);
    return true;
}

bool cm_clock_choose(const cm_clock *clock, cm_moment begin, cm_moment end, cm_steps *out)
{
    *out = (cm_steps){.begin = begin};
    primary p = {0};
    cm_clock_drafts d = {.begin = begin};
    bool fine = choose_primary(clock, &p, out);
    if (fine && p.kind == 0) {
        out->begin = end; /* no steps: all is before the first */
        return true;
    }
    fine = fine && draft_steps(clock, &p, begin, end, &d, &out->begun) && d.count < UINT32_MAX;
    if (fine) {
        out->begin = d.begin;
        out->count = d.count;
        out->step = malloc((d.count + 1) * sizeof *out->step);
        fine =
            out->step != NULL && find_main_line(clock, &d, out) && name_stretches(clock, &d, out);
        for (size_t i = d.count; fine && out->begun && i-- > 0;)
            if (d.step[i].kind == out->kind) {
                out->begun_loop = out->step[i].loop;
                break;
            }
    }
    free(d.step);
    free(p.joined);
    if (!fine)
        cm_steps_free(out);
    return fine;
}

void cm_steps_free(cm_steps *steps)
{
    free(steps->step);
    free(steps->loop);
    free(steps->change);
    *steps = (cm_steps){0};
}
