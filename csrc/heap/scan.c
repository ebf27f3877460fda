#include "scan.h"

#include <stdio.h>
#include <string.h>

#include "../base/grow.h"
#include "../base/idmap.h"
#include "../base/own_frame.h"
#include "stack_class.h"

static bool fail(char *error, size_t error_size, const char *message)
{
    snprintf(error, error_size, "%s", message);
    return false;
}

/* --- what was alive before ------------------------------------------------------------------ */

typedef struct walk {
    cm_reader *reader;
    cm_seeds *seeds;
    const cm_window_options *options;
    char *error;
    size_t error_size;
} walk;

void cm_seeds_free(cm_seeds *seeds)
{
    free(seeds->seed);
    *seeds = (cm_seeds){0};
}

/* The next record, if any. */
static bool read_on(walk *w, uint64_t position, cm_record *record, bool *more)
{
    int got = cm_reader_next(w->reader, record);
    if (got < 0)
        return fail(w->error, w->error_size, cm_reader_error(w->reader));
    *more = got > 0;
    return !cm_scan_asks(w->options, position + 1) ||
           w->options->progress(0, w->options->progress_context) ||
           fail(w->error, w->error_size, "");
}

/* A seed's requested size follows it in the same walk; other threads may record in between. */
static bool is_of_seed(const cm_event *seed, const cm_event *e)
{
    return seed->kind == CM_EV_SEED && seed->address == e->address &&
           seed->device_type == e->device_type && seed->device_index == e->device_index;
}

static bool add_seed(cm_seeds *seeds, const cm_event *e, uint64_t position)
{
    if (!cm_grow((void **)&seeds->seed, &seeds->capacity, seeds->count + 1, sizeof *seeds->seed))
        return false;
    seeds->seed[seeds->count++] = (cm_seed){.address = e->address,
                                            .size = e->size,
                                            .position = position,
                                            .device_type = e->device_type,
                                            .device_index = e->device_index,
                                            .direct = (e->flags & CM_EVF_DIRECT) != 0};
    return true;
}

static bool gather_seeds(walk *w)
{
    cm_event last = {0};
    cm_record record;
    bool more;
    for (uint64_t position = 0; !w->seeds->whole; position++) {
        if (!read_on(w, position, &record, &more))
            return false;
        if (!more)
            return true;
        const cm_event *e = &record.event;
        bool inherited = e->flags & CM_EVF_BEFORE_START;
        if (e->kind == CM_EV_SEED && !inherited) {
            last = *e;
            if (!add_seed(w->seeds, e, position))
                return fail(w->error, w->error_size, "out of memory");
        } else if (e->kind == CM_EV_REQUESTED && inherited) {
            if (is_of_seed(&last, e) && e->size >= 0 && e->size <= last.size)
                w->seeds->seed[w->seeds->count - 1].slack = last.size - e->size;
        } else if (e->kind == CM_EV_MARK && e->size == CM_MARK_SEEDED && !inherited) {
            w->seeds->whole = true; /* the replay applies later walks itself */
        }
    }
    return true;
}

static uint64_t seed_key(const cm_event *e)
{
    uint64_t index = e->device_type == CM_DEVICE_CPU ? 0 : (uint8_t)e->device_index;
    return (e->address ^ (uint64_t)e->device_type << 56 ^ index << 48) & ~((uint64_t)1 << 63);
}

/* The open seed of this event, if any. */
static bool find_seed(const cm_seeds *seeds, const cm_idmap *open, const cm_event *e,
                      uint32_t *number)
{
    if (e->kind == CM_EV_ALLOC ||
        (e->kind == CM_EV_FREE && (e->device_type != CM_DEVICE_CUDA || e->device_index >= 0)))
        return cm_idmap_get(open, seed_key(e), number);
    if (e->kind != CM_EV_FREE && e->kind != CM_EV_SEGMENT_FREE)
        return false;
    cm_event on = *e; /* without a device */
    for (int index = -1; index < 64; index++) {
        on.device_index = (int8_t)index;
        if (cm_idmap_get(open, seed_key(&on), number))
            return e->kind == CM_EV_FREE || seeds->seed[*number].direct;
    }
    return false;
}

static cm_event event_of(const cm_seed *seed)
{
    return (cm_event){.address = seed->address,
                      .device_type = seed->device_type,
                      .device_index = seed->device_index};
}

/* The walk runs beside hooks and other threads. The first event of a seed's address decides. An
 * allocation: no seed, the block is known. A free: it was alive from the start until then. No event
 * before the walk found it: a seed. */
static bool decide_seeds(walk *w)
{
    cm_seeds *seeds = w->seeds;
    cm_idmap open = {0}; /* address -> seed */
    cm_record record;
    bool fine = true, more = true;
    uint32_t number;
    for (size_t i = 0; fine && i < seeds->count; i++) {
        cm_event e = event_of(&seeds->seed[i]);
        if (cm_idmap_get(&open, seed_key(&e), &number))
            seeds->seed[i].dropped = true; /* found twice */
        else if (i >= UINT32_MAX || !cm_idmap_put(&open, seed_key(&e), (uint32_t)i))
            fine = fail(w->error, w->error_size, "out of memory");
    }
    cm_reader_rewind(w->reader);
    uint64_t last = seeds->seed[seeds->count - 1].position;
    for (uint64_t position = 0; fine && more && position < last; position++) {
        fine = read_on(w, position, &record, &more);
        const cm_event *e = &record.event;
        if (!fine || !more || !find_seed(seeds, &open, e, &number))
            continue;
        cm_seed *seed = &seeds->seed[number];
        cm_event found = event_of(seed);
        if (seed->position < position)
            continue;
        seed->dropped = e->kind == CM_EV_ALLOC;
        cm_idmap_remove(&open, seed_key(&found));
    }
    cm_idmap_clear(&open);
    return fine;
}

bool cm_scan_seeds(cm_reader *reader, const cm_window_options *options, cm_seeds *seeds,
                   char *error, size_t error_size)
{
    walk w = {reader, seeds, options, error, error_size};
    cm_seeds_free(seeds);
    cm_reader_rewind(reader);
    bool fine = gather_seeds(&w) && (seeds->count == 0 || decide_seeds(&w));
    cm_reader_rewind(reader);
    if (!fine)
        cm_seeds_free(seeds);
    return fine;
}

/* --- records -------------------------------------------------------------------------------- */

/* Whether the window restarts after this record, which belongs to its prologue. */
static bool is_inherited(const cm_scanned *s, const cm_event *e)
{
    if (e->kind >= CM_EV_DRIVER_NEW) /* other flags; contexts are found at any time */
        return e->kind <= CM_EV_DRIVER_MORE && e->flags & CM_EVF_ALREADY &&
               (e->flags & CM_DRIVER_KIND) != CM_DRIVER_CONTEXT;
    if (!(e->flags & CM_EVF_BEFORE_START) || e->kind == CM_EV_OBJECT_NEW ||
        e->kind == CM_EV_SEGMENT_NEW)
        return false;
    return e->kind != CM_EV_REQUESTED || !is_of_seed(&s->last_seed, e);
}

static bool ticks(const cm_event *e)
{
    return e->size == CM_OBJECT_MODULE || e->size == CM_OBJECT_OPTIMIZER;
}

/* Whether the window restarts after it. */
static inline bool pass(cm_scanned *s, const cm_record *record)
{
    const cm_event *e = &record->event;
    s->position++;
    if (record->time_ns > s->newest_ns)
        s->newest_ns = record->time_ns;
    if (is_inherited(s, e)) {
        s->after_inherited = s->position;
        return true;
    }
    switch (e->kind) {
    case CM_EV_NODE_RUN:
        s->node_runs++;
        return false;
    case CM_EV_COMPACTED: /* written before the preceding tick */
        s->node_runs += (uint64_t)e->size;
        return false;
    case CM_EV_OBJECT_NEW:
        s->found_alive |= ticks(e);
        return false;
    case CM_EV_SEED:
        s->last_seed = *e;
        return false;
    case CM_EV_MARK:
        if (e->size == CM_MARK_SEEDED) {
            s->seeded = true;
            s->seeds_skipped += e->address;
        }
        return false;
    default:
        return false;
    }
}

void cm_scan_pass(cm_scanned *s, const cm_record *record)
{
    pass(s, record);
}

/* --- a window ------------------------------------------------------------------------------- */

struct cm_scan {
    cm_scanned passed;
    const cm_reader *reader;
    const cm_window_options *options;
    cm_attribution *attribution;
    cm_stack_classes *classes;
    cm_idmap sanity; /* class of a tick's stack -> whether it is in a sanity check */
    cm_clock *clock;
    uint32_t *noted; /* by stack: ticks + 1 when the clock learnt of its last block */
    size_t noted_capacity;
    uint32_t ticks;    /* that the clock has */
    uint64_t window;   /* options->window; of a whole trace its first window, else 0 */
    uint64_t last_oom; /* records up to it, with it; 0: none yet */
    cm_plan plan;
};

cm_scan *cm_scan_begin(const cm_reader *reader, const cm_scanned *scanned, uint64_t begin_ns,
                       const cm_replay *replay, const cm_window_options *options)
{
    cm_scan *s = calloc(1, sizeof *s);
    if (s == NULL)
        return NULL;
    s->clock = cm_clock_new();
    s->classes = cm_stack_classes_new(reader, replay->library);
    if (s->clock == NULL || s->classes == NULL ||
        (scanned->found_alive && !cm_clock_object(s->clock, 0, (cm_moment){0}, true))) {
        cm_scan_free(s);
        return NULL;
    }
    s->reader = reader;
    s->passed = *scanned;
    s->options = options;
    s->window = options->window;
    s->attribution = replay->attribution;
    s->plan.begin = scanned->position;
    s->plan.begin_ns = begin_ns;
    return s;
}

void cm_scan_free(cm_scan *s)
{
    if (s == NULL)
        return;
    cm_clock_free(s->clock);
    cm_stack_classes_free(s->classes);
    cm_idmap_clear(&s->sanity);
    free(s->noted);
    cm_plan_free(&s->plan);
    free(s);
}

void cm_plan_free(cm_plan *plan)
{
    cm_steps_free(&plan->steps);
    *plan = (cm_plan){0};
}

const cm_plan *cm_scan_plan(const cm_scan *s)
{
    return &s->plan;
}

cm_scanned cm_scan_passed(const cm_scan *s)
{
    return s->passed;
}

uint64_t cm_scan_position(const cm_scan *s)
{
    return s->passed.position;
}

/* Whether a trainer tries its evaluation there: Lightning does, with two batches. */
static bool is_sanity_check(const cm_scan *s, uint32_t stack)
{
    static const char *const runs = "_run_sanity_check";
    cm_frame frame;
    for (uint32_t parent; cm_reader_stack_frame(s->reader, stack, &frame); stack = parent) {
        size_t length = frame.function != NULL ? strlen(frame.function) : 0;
        if (length >= strlen(runs) && strcmp(frame.function + length - strlen(runs), runs) == 0)
            return true;
        parent = cm_reader_stack_parent(s->reader, stack);
        if (parent >= stack)
            break;
    }
    return false;
}

static bool see_sanity(cm_scan *s, const cm_event *e, cm_tick *tick)
{
    uint32_t known;
    if (!cm_idmap_get(&s->sanity, tick->stack, &known)) {
        known = is_sanity_check(s, e->stack);
        if (!cm_idmap_put(&s->sanity, tick->stack, known))
            return false;
    }
    tick->sanity = known;
    return true;
}

static CM_OWN_FRAME bool see_first_block(cm_scan *s, const cm_record *record, cm_moment at)
{
    uint32_t own = record->event.stack, stack;
    size_t count = (size_t)CM_STACK_FIRST + cm_reader_stack_count(s->reader);
    if (own >= count)
        return true; /* never defined */
    if (!cm_grow_zeroed((void **)&s->noted, &s->noted_capacity, count, sizeof *s->noted))
        return false;
    s->noted[own] = s->ticks + 1;
    return cm_stack_class_of(s->classes, own, &stack) &&
           cm_clock_block(s->clock, stack, record->thread, at);
}

/* Of a stack's blocks between two ticks the clock needs the first. */
static inline bool see_block(cm_scan *s, const cm_record *record, cm_moment at)
{
    uint32_t own = record->event.stack;
    return (own < s->noted_capacity && s->noted[own] == s->ticks + 1) ||
           see_first_block(s, record, at);
}

static CM_OWN_FRAME bool see_tick(cm_scan *s, const cm_record *record, cm_moment at)
{
    const cm_event *e = &record->event;
    cm_tick tick = {.at = at,
                    .object = e->address,
                    .backward = s->passed.node_runs,
                    .thread = record->thread,
                    .no_grad = e->flags & CM_EVF_NO_GRAD,
                    .eval_mode = e->flags & CM_EVF_EVAL_MODE};
    if (e->size < 0 || e->size > UINT32_MAX)
        return true;
    tick.kind = (uint32_t)e->size;
    cm_phase phase = cm_attribution_phase(s->attribution, e->stack);
    if (tick.kind == CM_TICK_MODULE && phase == CM_PHASE_DATA)
        return true; /* a data set's own modules: transforms */
    s->ticks++;
    tick.inside = cm_attribution_in_optimizer(s->attribution, e->stack);
    return cm_stack_class_of(s->classes, e->stack, &tick.stack) && see_sanity(s, e, &tick) &&
           cm_attribution_line(s->attribution, e->stack, &tick.line) &&
           cm_clock_tick(s->clock, &tick);
}

static CM_OWN_FRAME void see_reserved(cm_scan *s, const cm_event *e, uint64_t position)
{
    struct cm_plan_reserved *most = &s->plan.reserved[(uint8_t)(e->device_index + 128)];
    if (e->device_type == CM_DEVICE_CUDA && e->size >= 0 && (!most->known || e->size > most->most))
        *most = (struct cm_plan_reserved){true, e->size, position};
}

static CM_OWN_FRAME void see_mark(cm_scan *s, const cm_event *e, cm_moment at)
{
    if (e->size == CM_MARK_WINDOW_OPEN && s->window == 0) {
        s->window = e->address;
    } else if (e->size == CM_MARK_OOM_LEFT && e->address == s->window) {
        s->plan.oom_left = s->last_oom;
    } else if (e->size == CM_MARK_FINAL_COLLECT_BEGIN) {
        cm_clock_close(s->clock, at);
    } else if (e->size == CM_MARK_WINDOW_CLOSE && s->options->window != 0 &&
               e->address == s->options->window) {
        s->plan.closed = true;
        s->plan.end = at.position;
        s->plan.end_ns = at.time_ns;
    }
}

bool cm_scan_apply(cm_scan *s, const cm_record *record)
{
    const cm_event *e = &record->event;
    cm_moment at = {s->passed.position, record->time_ns};
    if (pass(&s->passed, record))
        return true;
    switch (e->kind) {
    case CM_EV_ALLOC:
        return see_block(s, record, at);
    case CM_EV_COMPACTED:
        if (!(e->flags & CM_EVF_LEADS))
            cm_clock_compacted(s->clock);
        return true;
    case CM_EV_NODE_NEW:
        cm_clock_node(s->clock, at);
        return true;
    case CM_EV_TICK:
        return see_tick(s, record, at);
    case CM_EV_OBJECT_NEW:
        if (!ticks(e))
            return cm_clock_renew(s->clock, e->address);
        return cm_clock_object(s->clock, e->address, at, e->flags & CM_EVF_BEFORE_START);
    case CM_EV_RESERVED:
        see_reserved(s, e, at.position);
        return true;
    case CM_EV_OOM:
        s->last_oom = s->passed.position;
        return true;
    case CM_EV_MARK:
        see_mark(s, e, at);
        return true;
    default:
        return true;
    }
}

/* Notes the reader's state up to here. */
static void note_state(cm_plan *plan, cm_reader *reader)
{
    plan->lost_events = cm_reader_lost_events(reader);
    plan->lost_stacks = cm_reader_lost_stacks(reader);
    if (plan->closed) { /* whatever follows */
        cm_reader_read_ahead(reader);
        plan->state = CM_TRACE_COMPLETE;
        return;
    }
    plan->state = cm_reader_get_state(reader);
    const char *reason = cm_reader_end_reason(reader);
    if (*reason == '\0' && plan->state != CM_TRACE_COMPLETE)
        reason = cm_reader_error(reader);
    snprintf(plan->reason, sizeof plan->reason, "%s", reason);
}

/* Whether an exception cut a step short: the tail, or the last one, whose end nothing marks. */
static void find_cut(const cm_plan *plan, const cm_reader *reader, cm_steps *steps)
{
    steps->begun &= plan->oom_left != 0 || cm_reader_meta(reader, "exception") != NULL;
    if (steps->begun || steps->count == 0 || plan->oom_left == 0)
        return;
    size_t last = steps->count - 1;
    uint64_t begin = last ? steps->step[last - 1].end.position : steps->begin.position;
    uint32_t kind = steps->loop[steps->step[last].loop].kind;
    steps->cut = (kind == CM_TICK_MODULE || kind == CM_TICK_DATA) && plan->oom_left > begin &&
                 plan->oom_left <= steps->step[last].end.position;
}

/* Where the window began and how far it was read. */
static bool choose_steps(const cm_scan *s, uint64_t end, uint64_t end_ns, cm_plan *plan)
{
    if (plan->begin < s->passed.after_inherited)
        plan->begin = s->passed.after_inherited < end ? s->passed.after_inherited : end;
    const cm_moment from = {plan->begin, plan->begin_ns};
    const cm_moment to = {end, end_ns < plan->begin_ns ? plan->begin_ns : end_ns};
    return cm_clock_choose(s->clock, from, to, &plan->steps);
}

bool cm_scan_steps(const cm_scan *s, cm_steps *out)
{
    cm_plan plan = {.begin = s->plan.begin, .begin_ns = s->plan.begin_ns};
    bool fine = cm_attribution_ok(s->attribution) &&
                choose_steps(s, s->passed.position, s->passed.newest_ns, &plan);
    *out = plan.steps;
    return fine;
}

bool cm_scan_finish(cm_scan *s, cm_reader *reader, cm_plan *out)
{
    cm_plan *plan = &s->plan;
    note_state(plan, reader);
    plan->seeds_skipped = s->passed.seeds_skipped;
    if (!plan->closed) {
        plan->end = s->passed.position;
        plan->end_ns = s->passed.newest_ns;
    }
    if (plan->end_ns < plan->begin_ns)
        plan->end_ns = plan->begin_ns;
    if (!cm_attribution_ok(s->attribution) || !choose_steps(s, plan->end, plan->end_ns, plan))
        return false;
    find_cut(plan, reader, &plan->steps);
    *out = *plan;
    *plan = (cm_plan){0};
    return true;
}
