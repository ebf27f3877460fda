#include "clock.h"

#include <stdio.h>
#include <string.h>

#include "../capture/event.h"
#include "grow.h"

enum { KINDS = CM_TICK_MODULE + 1, NEIGHBOURS = 16 };

/* The ticks of one step, of one kind (rule 1). */
typedef struct group {
    cm_moment first, last;
    uint64_t leader;   /* the object that ticked first */
    uint64_t backward; /* nodes started up to the moment that bounds the step */
    uint32_t first_line, last_line;
    uint64_t ticked[KINDS]; /* ticks of every kind up to its bound */
} group;

typedef struct stream {
    group *group;
    size_t count, capacity;
    uint64_t *position; /* of every tick: data and module only, they can fill a silence */
    size_t tick_capacity;
    uint64_t ticks;
} stream;

/* What is known about one object that may tick. */
typedef struct object {
    uint64_t key;       /* its address, mixed with its kind; 0 = empty */
    uint64_t created;   /* position, 0 = before the recording or unknown */
    int64_t in, before; /* the last two groups that it ticked in, -1 = none */
    cm_moment tick;     /* its first tick in `in` */
    cm_moment previous; /* the tick of that group before it */
    uint32_t line, previous_line;
} object;

struct cm_clock {
    stream stream[KINDS];
    object *object;
    size_t objects, slots;
    bool seen_node, found_alive, created;
    cm_moment node, first_created;
    uint32_t lines; /* highest line number + 1 */
};

cm_clock *cm_clock_new(void)
{
    return calloc(1, sizeof(cm_clock));
}

void cm_clock_free(cm_clock *clock)
{
    if (clock == NULL)
        return;
    for (int kind = 0; kind < KINDS; kind++) {
        free(clock->stream[kind].group);
        free(clock->stream[kind].position);
    }
    free(clock->object);
    free(clock);
}

static object *find_object(object *table, size_t slots, uint64_t key)
{
    size_t i = cm_mix(key) & (slots - 1);
    while (table[i].key != 0 && table[i].key != key)
        i = (i + 1) & (slots - 1);
    return &table[i];
}

/* Its entry, made if need be; NULL: out of memory. Creations are recorded before it is known which
 * kind of tick the object will give, so kinds share one table: an address is one object. */
static object *get_object(cm_clock *clock, uint64_t address)
{
    uint64_t key = address + 1;
    if (key == 0)
        key = 1;
    if (clock->objects * 4 >= clock->slots * 3) {
        size_t slots = clock->slots ? clock->slots * 2 : 64;
        object *table = calloc(slots, sizeof *table);
        if (table == NULL)
            return NULL;
        for (size_t i = 0; i < clock->slots; i++)
            if (clock->object[i].key != 0)
                *find_object(table, slots, clock->object[i].key) = clock->object[i];
        free(clock->object);
        clock->object = table;
        clock->slots = slots;
    }
    object *found = find_object(clock->object, clock->slots, key);
    if (found->key == 0) {
        *found = (object){.key = key, .in = -1, .before = -1};
        clock->objects++;
    }
    return found;
}

bool cm_clock_object(cm_clock *clock, uint64_t address, cm_moment at, bool before_start)
{
    object *made = get_object(clock, address);
    if (made == NULL)
        return false;
    if (before_start) {
        clock->found_alive = true;
        return true;
    }
    if (!clock->created)
        clock->first_created = at;
    clock->created = true;
    made->created = at.position + 1; /* 0 is taken */
    return true;
}

bool cm_clock_renew(cm_clock *clock, uint64_t address)
{
    object *renewed = get_object(clock, address);
    if (renewed == NULL)
        return false;
    renewed->in = renewed->before = -1;
    return true;
}

void cm_clock_node(cm_clock *clock, cm_moment at)
{
    if (clock->seen_node)
        return;
    clock->seen_node = true;
    clock->node = at;
}

static bool ends_a_step(uint32_t kind)
{
    return kind == CM_TICK_STEP || kind == CM_TICK_OPTIMIZER;
}

static void count_ticks(const cm_clock *clock, group *into)
{
    for (int kind = 1; kind < KINDS; kind++)
        into->ticked[kind] = clock->stream[kind].ticks;
}

/* Rule 1, last sentence: `ticking` begins the next group, it took over in the last one, and it did
 * not tick in the one before that. The cut group's counts stay with its second half. */
static bool cut_last_group(stream *s, const object *ticking)
{
    if (s->count < 2 || ticking->in != (int64_t)s->count - 1)
        return true;
    group *last = &s->group[s->count - 1], *before = &s->group[s->count - 2];
    if (last->leader + 1 == ticking->key || ticking->before == (int64_t)s->count - 2 ||
        ticking->created > before->first.position + 1)
        return true;
    if (!cm_grow((void **)&s->group, &s->capacity, s->count + 2, sizeof *s->group))
        return false;
    last = &s->group[s->count - 1];
    group second = *last;
    second.first = ticking->tick;
    second.first_line = ticking->line;
    second.leader = ticking->key - 1;
    last->last = ticking->previous;
    last->last_line = ticking->previous_line;
    s->group[s->count++] = second;
    return true;
}

bool cm_clock_tick(cm_clock *clock, const cm_tick *tick)
{
    if (tick->kind == 0 || tick->kind >= KINDS)
        return true; /* a newer minor version's candidate */
    stream *s = &clock->stream[tick->kind];
    object *o = get_object(clock, tick->object);
    if (o == NULL || !cm_grow((void **)&s->group, &s->capacity, s->count + 1, sizeof *s->group))
        return false;
    if (!ends_a_step(tick->kind)) {
        if (!cm_grow((void **)&s->position, &s->tick_capacity, s->ticks + 1, sizeof *s->position))
            return false;
        s->position[s->ticks] = tick->at.position;
    }
    if (tick->line >= clock->lines)
        clock->lines = tick->line + 1;

    group *last = s->count ? &s->group[s->count - 1] : NULL;
    bool ticked = o->in == (int64_t)s->count - 1;
    bool young = last != NULL && o->created > last->first.position + 1;
    if (tick->kind == CM_TICK_DATA) {
        /* A new iterator goes on where an exhausted one stopped, often at its very address. */
        ticked = ticked && o->line == tick->line;
        young = false;
    }
    bool next = last == NULL || tick->kind == CM_TICK_STEP || ticked || young;
    if (next) {
        /* An exhausted iterator shares its last tick's group with the next one: never cut. */
        if (tick->kind != CM_TICK_DATA && last != NULL && !cut_last_group(s, o))
            return false;
        if (!cm_grow((void **)&s->group, &s->capacity, s->count + 1, sizeof *s->group))
            return false;
        s->group[s->count++] = (group){.first = tick->at,
                                       .leader = tick->object,
                                       .backward = tick->backward,
                                       .first_line = tick->line};
        last = &s->group[s->count - 1];
        o->previous = tick->at;
        o->previous_line = tick->line;
    } else {
        o->previous = last->last;
        o->previous_line = last->last_line;
    }
    s->ticks++;
    if (next || ends_a_step(tick->kind)) {
        last->backward = tick->backward;
        count_ticks(clock, last);
    }
    last->last = tick->at;
    last->last_line = tick->line;
    o->before = o->in;
    o->in = (int64_t)s->count - 1;
    o->tick = tick->at;
    o->line = tick->line;
    return true;
}

/* --- choosing ------------------------------------------------------------------------------ */

/* A step before its loop is known. */
typedef struct draft {
    cm_moment end;
    uint64_t backward; /* nodes started by its end */
    uint32_t kind, line;
} draft;

typedef struct drafts {
    draft *step;
    size_t count, capacity;
    cm_moment begin;
    uint64_t backward; /* nodes started by begin */
} drafts;

static bool add_draft(drafts *d, cm_moment end, uint64_t backward, uint32_t kind, uint32_t line)
{
    if (!cm_grow((void **)&d->step, &d->capacity, d->count + 1, sizeof *d->step))
        return false;
    d->step[d->count++] = (draft){end, backward, kind, line};
    return true;
}

static cm_moment bound_of(const group *g, uint32_t kind)
{
    if (!ends_a_step(kind))
        return g->first;
    return (cm_moment){g->last.position + 1, g->last.time_ns};
}

static uint64_t since(uint64_t from, uint64_t to)
{
    return to > from ? to - from : 0; /* times may step back a little */
}

/* Lower median: where every other interval is long (evaluation every second step), the usual one is
 * the short one. */
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

/* The intervals of the primary clock: interval i ends at bound i; for a clock that ends steps,
 * interval 0 starts at the first step's begin. The last one, open, ends with the recording; how
 * long it was silent is counted to the last tick in it. */
typedef struct intervals {
    const cm_clock *clock;
    const stream *s;
    uint32_t kind;
    cm_moment begin, end;
    uint64_t begin_ticked[KINDS];
} intervals;

static cm_moment interval_end(const intervals *v, size_t i)
{
    return i < v->s->count ? bound_of(&v->s->group[i], v->kind) : v->end;
}

static cm_moment interval_begin(const intervals *v, size_t i)
{
    return i ? bound_of(&v->s->group[i - 1], v->kind) : v->begin;
}

static uint64_t ticks_in(const intervals *v, size_t i, uint32_t kind)
{
    uint64_t to = i < v->s->count ? v->s->group[i].ticked[kind] : v->clock->stream[kind].ticks;
    uint64_t from = i ? v->s->group[i - 1].ticked[kind] : v->begin_ticked[kind];
    return to > from ? to - from : 0;
}

/* Medians over the closed intervals around i, without i itself. false: there are none. */
static bool usual(const intervals *v, size_t i, uint32_t kind, uint64_t *period, uint64_t *ticks)
{
    uint64_t length[2 * NEIGHBOURS], count[2 * NEIGHBOURS];
    size_t n = 0, first = ends_a_step(v->kind) ? 0 : 1;
    size_t from = i > first + NEIGHBOURS ? i - NEIGHBOURS : first;
    for (size_t j = from; j < v->s->count && j <= i + NEIGHBOURS && n < 2 * NEIGHBOURS; j++) {
        if (j == i)
            continue;
        length[n] = since(interval_begin(v, j).time_ns, interval_end(v, j).time_ns);
        count[n++] = ticks_in(v, j, kind);
    }
    *period = median(length, n);
    *ticks = median(count, n);
    return n > 0;
}

static size_t first_tick_at(const stream *s, uint64_t position)
{
    size_t low = 0, high = s->ticks;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (s->position[middle] < position)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

static size_t first_group_at(const stream *s, uint64_t position)
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

/* Rule 4 for interval i: the steps of the lower clock inside it. */
static bool fill_silence(const intervals *v, size_t i, drafts *out)
{
    cm_moment begin = interval_begin(v, i), end = interval_end(v, i);
    for (uint32_t kind = v->kind < CM_TICK_DATA ? CM_TICK_DATA : v->kind + 1; kind < KINDS;
         kind++) {
        const stream *s = &v->clock->stream[kind];
        uint64_t ticks = ticks_in(v, i, kind), period, each;
        if (ticks < 2 || !usual(v, i, kind, &period, &each) || ticks < 3 * each)
            continue;
        /* What the program does behind its last tick (saving, ending) makes no silence longer:
         * an evaluation counts the same wherever it stands. */
        bool open = i == v->s->count;
        uint64_t until = open ? s->group[s->count - 1].last.time_ns : end.time_ns;
        if (since(begin.time_ns, until) <= 3 * period)
            continue;
        size_t first = first_tick_at(s, begin.position), behind = first_tick_at(s, end.position);
        if (behind - first < 2)
            continue;
        uint64_t limit = end.position; /* bounds behind it belong to the step that ends at `end` */
        if (i < v->s->count && each > 0 && each <= behind - first)
            limit = s->position[behind - each];
        for (size_t g = first_group_at(s, begin.position); g < s->count; g++) {
            const group *bound = &s->group[g];
            if (bound->first.position > limit || bound->first.position >= end.position)
                break;
            /* What lies before the first tick of the silence is no step of its own. */
            if (bound->first.position == s->position[first])
                continue;
            uint32_t line = g ? s->group[g - 1].last_line : bound->first_line;
            if (!add_draft(out, bound->first, bound->backward, kind, line))
                return false;
        }
        break;
    }
    return true;
}

static bool draft_steps(const cm_clock *clock, uint32_t kind, cm_moment begin, cm_moment end,
                        drafts *out)
{
    const stream *s = &clock->stream[kind];
    intervals v = {.clock = clock, .s = s, .kind = kind, .begin = begin, .end = end};
    if (ends_a_step(kind)) {
        uint64_t first_end = s->group[0].first.position;
        const stream *data = &clock->stream[CM_TICK_DATA];
        bool nothing_set_up =
            clock->found_alive && !(clock->created && clock->first_created.position < first_end);
        if (data->count > 0 && data->group[0].first.position < first_end)
            v.begin = data->group[0].first;
        else if (!nothing_set_up && clock->seen_node && clock->node.position < first_end)
            v.begin = clock->node;
    } else {
        v.begin = s->group[0].first;
        out->backward = s->group[0].backward;
    }
    out->begin = v.begin;
    for (size_t i = ends_a_step(kind) ? 0 : 1; i <= s->count; i++) {
        if (kind != CM_TICK_STEP && !fill_silence(&v, i, out))
            return false;
        if (i == s->count)
            break;
        const group *g = &s->group[i];
        uint32_t line = ends_a_step(kind) ? g->first_line : s->group[i - 1].last_line;
        if (!add_draft(out, bound_of(g, kind), g->backward, kind, line))
            return false;
    }
    return true;
}

static cm_moment draft_begin(const drafts *d, size_t i)
{
    return i ? d->step[i - 1].end : d->begin;
}

static bool same_clock(const draft *a, const draft *b)
{
    return a->kind == b->kind && a->line == b->line;
}

/* Rule 5: does the line of step `last`, the newest of its line, stay the clock although the next
 * step has another? Its usual step is the median of those before and after, as long as each is. */
static bool line_returns(const drafts *d, const uint32_t *next_same, size_t stretch, size_t last)
{
    uint64_t length[2 * NEIGHBOURS];
    size_t n = 0, next = next_same[last];
    for (size_t j = last + 1; j-- > stretch && n < NEIGHBOURS;)
        if (same_clock(&d->step[j], &d->step[last]))
            length[n++] = since(draft_begin(d, j).time_ns, d->step[j].end.time_ns);
    for (size_t j = next; j < d->count && n < 2 * NEIGHBOURS; j = next_same[j])
        length[n++] = since(draft_begin(d, j).time_ns, d->step[j].end.time_ns);
    cm_moment until = next < d->count ? draft_begin(d, next) : d->step[d->count - 1].end;
    return since(d->step[last].end.time_ns, until.time_ns) <= 3 * median(length, n);
}

/* The end of the stretch of one clock that begins at step `first`. */
static size_t stretch_end(const drafts *d, const uint32_t *next_same, size_t first)
{
    size_t last = first; /* the newest step of the stretch's own line */
    for (size_t i = first + 1; i < d->count; i++) {
        if (d->step[i].kind != d->step[first].kind)
            return i;
        if (same_clock(&d->step[i], &d->step[first]))
            last = i;
        else if (i == last + 1 && !line_returns(d, next_same, first, last))
            return i;
    }
    return d->count;
}

static uint32_t *next_of_same_line(const cm_clock *clock, const drafts *d)
{
    size_t lines = (size_t)clock->lines * KINDS;
    uint32_t *next = malloc((d->count + 1) * sizeof *next);
    uint32_t *newest = malloc((lines + 1) * sizeof *newest);
    if (next != NULL && newest != NULL) {
        for (size_t i = 0; i < lines; i++)
            newest[i] = (uint32_t)d->count;
        for (size_t i = d->count; i-- > 0;) {
            size_t slot = (size_t)d->step[i].line * KINDS + d->step[i].kind;
            next[i] = newest[slot];
            newest[slot] = (uint32_t)i;
        }
    } else {
        free(next);
        next = NULL;
    }
    free(newest);
    return next;
}

static bool backward_in(const drafts *d, size_t i)
{
    return d->step[i].backward > (i ? d->step[i - 1].backward : d->backward);
}

/* The loop of a stretch: by its line and by what it does. -1: out of memory. */
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

static bool name_stretches(const cm_clock *clock, const drafts *d, cm_steps *out)
{
    size_t loops = 0, changes = 0;
    bool trains = clock->stream[CM_TICK_OPTIMIZER].count > 0;
    for (size_t i = 0; i < d->count && !trains; i++)
        trains = backward_in(d, i);
    uint32_t *next_same = next_of_same_line(clock, d);
    int64_t training = -1; /* the primary clock's newest training loop */
    bool fine = next_same != NULL;

    for (size_t first = 0, end; fine && first < d->count; first = end) {
        end = stretch_end(d, next_same, first);
        const draft *step = &d->step[first];
        size_t backward = 0;
        for (size_t i = first; i < end; i++)
            backward += backward_in(d, i);
        bool training_now = step->kind == CM_TICK_OPTIMIZER || 2 * backward >= end - first;
        const char *role = training_now ? "training" : trains ? "evaluation" : "inference";
        int64_t loop;
        uint32_t kind = step->kind, line = step->line;
        /* Iterations whose optimizer was skipped go on with the loop that they are part of. */
        if (training_now && kind != out->kind) {
            for (size_t i = end; training < 0 && i < d->count; i++)
                if (d->step[i].kind == out->kind)
                    training = find_loop(out, &loops, out->kind, d->step[i].line, role);
            loop = training >= 0 ? training : find_loop(out, &loops, kind, line, role);
        } else {
            loop = find_loop(out, &loops, kind, line, role);
            if (training_now)
                training = loop;
        }
        fine = loop >= 0 && (first == 0 || cm_grow((void **)&out->change, &changes,
                                                   out->change_count + 1, sizeof *out->change));
        if (!fine)
            break;
        if (first > 0)
            out->change[out->change_count++] =
                (cm_clock_change){(uint32_t)first, (uint32_t)loop, kind, line};
        out->loop[loop].steps += end - first;
        for (size_t i = first; i < end; i++)
            out->step[i] = (cm_clock_step){d->step[i].end, (uint32_t)loop};
    }
    free(next_same);
    return fine;
}

/* The line that the primary clock ticked on most often, the earliest of equals. */
static bool find_main_line(const cm_clock *clock, const drafts *d, cm_steps *out)
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
    for (uint32_t kind = 1; kind < KINDS && out->kind == 0; kind++)
        if (clock->stream[kind].count > 0)
            out->kind = kind;
    if (out->kind == 0) {
        out->begin = end; /* no steps: all of it is before the first */
        return true;
    }
    drafts d = {.begin = begin};
    bool fine = draft_steps(clock, out->kind, begin, end, &d) && d.count < UINT32_MAX;
    if (fine) {
        out->begin = d.begin;
        out->count = d.count;
        out->step = malloc((d.count + 1) * sizeof *out->step);
        fine =
            out->step != NULL && find_main_line(clock, &d, out) && name_stretches(clock, &d, out);
    }
    free(d.step);
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
