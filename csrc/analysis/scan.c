#include "scan.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "grow.h"
#include "map.h"

typedef struct scan {
    cm_reader *reader;
    cm_places *places;
    const cm_analysis_options *options;
    cm_clock *clock;
    cm_plan *plan;
    uint64_t position, newest_ns, node_runs;
    uint64_t after_inherited; /* behind the last record of what was there before (extract.c) */
    cm_event last_seed;
    bool seeded, opened;
    double share;
    char *error;
    size_t error_size;
} scan;

static bool fail(scan *s, const char *message)
{
    snprintf(s->error, s->error_size, "%s", message);
    return false;
}

void cm_plan_free(cm_plan *plan)
{
    free(plan->seed);
    cm_steps_free(&plan->steps);
    *plan = (cm_plan){0};
}

static bool in_window(const scan *s)
{
    return s->opened && !s->plan->closed;
}

static bool see_mark(scan *s, const cm_record *record)
{
    const cm_event *e = &record->event;
    uint64_t window = s->options->window;
    switch (e->size) {
    case CM_MARK_SEEDED:
        s->seeded = true;
        s->plan->seeds_skipped += e->address;
        return true;
    case CM_MARK_WINDOW_OPEN:
        if (window != 0 && e->address == window && !s->opened) {
            s->opened = true;
            s->plan->begin = s->position + 1;
            s->plan->begin_ns = record->time_ns;
        }
        return true;
    case CM_MARK_WINDOW_CLOSE:
        if (window != 0 && e->address == window && in_window(s)) {
            s->plan->closed = true;
            s->plan->end = s->position;
            s->plan->end_ns = record->time_ns;
        }
        return true;
    default:
        return true;
    }
}

static bool see_seed(scan *s, const cm_event *e)
{
    cm_plan *plan = s->plan;
    s->last_seed = *e;
    if (s->seeded)
        return true; /* a later walk: the replay takes them as they come */
    if (!cm_grow((void **)&plan->seed, &plan->seed_capacity, plan->seeds + 1, sizeof *plan->seed))
        return false;
    plan->seed[plan->seeds++] = (cm_seed){.address = e->address,
                                          .size = e->size,
                                          .position = s->position,
                                          .device_type = e->device_type,
                                          .device_index = e->device_index,
                                          .direct = (e->flags & CM_EVF_DIRECT) != 0};
    return true;
}

/* Behind its seed, of the same walk; others may have recorded in between. false: it is of no seed
 * but of an inherited block. */
static bool see_requested(scan *s, const cm_event *e)
{
    const cm_event *seed = &s->last_seed;
    if (seed->kind != CM_EV_SEED || seed->address != e->address ||
        seed->device_type != e->device_type || seed->device_index != e->device_index)
        return false;
    if (!s->seeded && e->size >= 0 && e->size <= seed->size)
        s->plan->seed[s->plan->seeds - 1].slack = seed->size - e->size;
    return true;
}

/* Whether this begins the window anew: it tells what the window inherited. */
static bool is_inherited(scan *s, const cm_event *e)
{
    if (e->kind >= CM_EV_DRIVER_NEW) /* their flags are others; contexts are found at any time */
        return e->kind <= CM_EV_DRIVER_MORE && e->flags & CM_EVF_ALREADY &&
               (e->flags & CM_DRIVER_KIND) != CM_DRIVER_CONTEXT;
    if (!(e->flags & CM_EVF_BEFORE_START) || e->kind == CM_EV_OBJECT_NEW ||
        e->kind == CM_EV_SEGMENT_NEW)
        return false;
    return e->kind != CM_EV_REQUESTED || !see_requested(s, e);
}

static bool see_tick(scan *s, const cm_record *record, cm_moment at)
{
    const cm_event *e = &record->event;
    cm_tick tick = {.at = at, .object = e->address, .backward = s->node_runs};
    if (!in_window(s) || e->size < 0 || e->size > UINT32_MAX)
        return true;
    tick.kind = (uint32_t)e->size;
    cm_phase phase = cm_places_phase(s->places, e->stack);
    if (tick.kind == CM_TICK_MODULE && phase == CM_PHASE_DATA)
        return true; /* a data set's own modules: transforms */
    tick.inside = phase == CM_PHASE_OPTIMIZER;
    return cm_places_line(s->places, e->stack, &tick.line) && cm_clock_tick(s->clock, &tick);
}

static void see_reserved(scan *s, const cm_event *e)
{
    struct cm_plan_reserved *most = &s->plan->reserved[(uint8_t)(e->device_index + 128)];
    if (e->device_type != CM_DEVICE_CUDA || !in_window(s) || e->size < 0 ||
        (most->known && e->size <= most->most))
        return;
    *most = (struct cm_plan_reserved){true, e->size, s->position};
}

static bool see(scan *s, const cm_record *record)
{
    const cm_event *e = &record->event;
    cm_moment at = {s->position, record->time_ns};
    if (record->time_ns > s->newest_ns)
        s->newest_ns = record->time_ns;
    if (is_inherited(s, e)) {
        s->after_inherited = s->position + 1;
        return true;
    }
    switch (e->kind) {
    case CM_EV_NODE_NEW:
        if (in_window(s))
            cm_clock_node(s->clock, at);
        return true;
    case CM_EV_NODE_RUN:
        s->node_runs++;
        return true;
    case CM_EV_FOLD: /* told before the tick that they came before */
        s->node_runs += (uint64_t)e->size;
        return true;
    case CM_EV_TICK:
        return see_tick(s, record, at);
    case CM_EV_OBJECT_NEW:
        if (s->plan->closed)
            return true;
        if (e->size != CM_OBJECT_MODULE && e->size != CM_OBJECT_OPTIMIZER)
            return cm_clock_renew(s->clock, e->address);
        return cm_clock_object(s->clock, e->address, at,
                               e->flags & CM_EVF_BEFORE_START || !in_window(s));
    case CM_EV_SEED:
        return see_seed(s, e);
    case CM_EV_RESERVED:
        see_reserved(s, e);
        return true;
    case CM_EV_MARK:
        return see_mark(s, record);
    default:
        return true;
    }
}

static bool read_on(scan *s, cm_record *record, bool *more)
{
    int got = cm_reader_next(s->reader, record);
    if (got < 0)
        return fail(s, cm_reader_error(s->reader));
    *more = got > 0;
    return true;
}

static bool read_all(scan *s)
{
    cm_record record;
    bool more;
    while (true) {
        if (!read_on(s, &record, &more))
            return false;
        if (!more)
            return true;
        if (!see(s, &record))
            return fail(s, "out of memory");
        s->position++;
        if (!cm_scan_goes_on(s->options, s->position, s->reader, 0, s->share))
            return fail(s, "");
    }
}

static uint64_t seed_key(const cm_event *e)
{
    uint64_t index = e->device_type == CM_DEVICE_CPU ? 0 : (uint8_t)e->device_index;
    return (e->address ^ (uint64_t)e->device_type << 56 ^ index << 48) & ~((uint64_t)1 << 63);
}

/* The seed that this event is about, if any is open there. */
static bool find_seed(const cm_plan *plan, const cm_idmap *open, const cm_event *e,
                      uint32_t *number)
{
    if (e->kind == CM_EV_ALLOC ||
        (e->kind == CM_EV_FREE && (e->device_type != CM_DEVICE_CUDA || e->device_index >= 0)))
        return cm_idmap_get(open, seed_key(e), number);
    if (e->kind != CM_EV_FREE && e->kind != CM_EV_SEGMENT_FREE)
        return false;
    cm_event on = *e; /* which does not tell its device */
    for (int index = -1; index < 64; index++) {
        on.device_index = (int8_t)index;
        if (cm_idmap_get(open, seed_key(&on), number))
            return e->kind == CM_EV_FREE || plan->seed[*number].direct;
    }
    return false;
}

static cm_event event_of(const cm_seed *seed)
{
    return (cm_event){.address = seed->address,
                      .device_type = seed->device_type,
                      .device_index = seed->device_index};
}

/* The walk runs while hooks are on, and other threads with it. The first event of a seed's address
 * decides: it was allocated under our eyes (no seed: the block is known already), or it was freed
 * (alive from the start until then), or nothing happened to it before the walk found it. */
static bool decide_seeds(scan *s)
{
    cm_plan *plan = s->plan;
    cm_idmap open = {0}; /* address -> seed */
    cm_record record;
    bool fine = true, more = true;
    uint32_t number;
    for (size_t i = 0; fine && i < plan->seeds; i++) {
        cm_event e = event_of(&plan->seed[i]);
        if (cm_idmap_get(&open, seed_key(&e), &number))
            plan->seed[i].dropped = true; /* found twice */
        else if (i >= UINT32_MAX || !cm_idmap_put(&open, seed_key(&e), (uint32_t)i))
            fine = fail(s, "out of memory");
    }
    cm_reader_rewind(s->reader);
    uint64_t last = plan->seed[plan->seeds - 1].position;
    for (uint64_t position = 0; fine && position < last; position++) {
        fine = read_on(s, &record, &more);
        if (!fine || !more)
            break;
        const cm_event *e = &record.event;
        if (!find_seed(plan, &open, e, &number))
            continue;
        cm_seed *seed = &plan->seed[number];
        cm_event found = event_of(seed);
        if (seed->position < position)
            continue;
        seed->dropped = e->kind == CM_EV_ALLOC;
        cm_idmap_remove(&open, seed_key(&found));
    }
    cm_idmap_clear(&open);
    return fine;
}

static bool choose_steps(scan *s)
{
    cm_plan *plan = s->plan;
    cm_moment begin = {plan->begin, plan->begin_ns}, end = {plan->end, plan->end_ns};
    return cm_clock_choose(s->clock, begin, end, &plan->steps) || fail(s, "out of memory");
}

/* What the reader knows once it has been through; a rewind forgets it. */
static void note_state(scan *s)
{
    cm_plan *plan = s->plan;
    plan->lost_events = cm_reader_lost_events(s->reader);
    plan->lost_stacks = cm_reader_lost_stacks(s->reader);
    if (plan->closed) { /* whatever becomes of the rest */
        plan->state = CM_TRACE_COMPLETE;
        return;
    }
    plan->state = cm_reader_get_state(s->reader);
    const char *reason = cm_reader_end_reason(s->reader);
    if (*reason == '\0' && plan->state != CM_TRACE_COMPLETE)
        reason = cm_reader_error(s->reader);
    snprintf(plan->reason, sizeof plan->reason, "%s", reason);
}

static bool make_plan(scan *s)
{
    cm_plan *plan = s->plan;
    if (!read_all(s))
        return false;
    note_state(s);
    if (!s->opened) {
        snprintf(s->error, s->error_size, "the trace has no window %" PRIu64, s->options->window);
        return false;
    }
    if (!plan->closed) {
        plan->end = s->position;
        plan->end_ns = s->newest_ns;
    }
    if (plan->begin < s->after_inherited)
        plan->begin = s->after_inherited < plan->end ? s->after_inherited : plan->end;
    if (plan->end_ns < plan->begin_ns)
        plan->end_ns = plan->begin_ns;
    if (!cm_places_ok(s->places))
        return fail(s, "out of memory");
    if (plan->seeds > 0 && !decide_seeds(s))
        return false;
    return choose_steps(s);
}

bool cm_scan(cm_reader *reader, cm_places *places, const cm_analysis_options *options, double share,
             cm_plan *plan, char *error, size_t error_size)
{
    *plan = (cm_plan){0};
    scan s = {.reader = reader,
              .places = places,
              .options = options,
              .clock = cm_clock_new(),
              .plan = plan,
              .opened = options->window == 0,
              .share = share,
              .error = error,
              .error_size = error_size};
    cm_reader_rewind(reader);
    bool fine = s.clock != NULL ? make_plan(&s) : fail(&s, "out of memory");
    cm_clock_free(s.clock);
    cm_reader_rewind(reader);
    if (!fine)
        cm_plan_free(plan);
    return fine;
}
