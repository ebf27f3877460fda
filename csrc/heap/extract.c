/* Extracts a window as a trace of its own. Its prologue contains what a reader must know: threads,
 * objects, the live blocks and their origins, the autograd nodes that a later backward may run.
 * These records have CM_EVF_BEFORE_START, driver events CM_EVF_ALREADY, and seeds stay seeds: none
 * counts as an event of the window, and their replay gives every block its old origin. A tick of
 * the new trace is a nanosecond. */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "../base/grow.h"
#include "../trace/encode.h"
#include "../trace/writer.h"
#include "driver_prologue.h"
#include "engine.h"
#include "../trace/defs_copy.h"

enum { BATCH_EVENTS = 1 << 15 };

/* The prologue's own thread: no capture and no autograd thread has this number. */
enum { PROLOGUE_THREAD = UINT32_MAX };
#define PROLOGUE_AUTOGRAD ((int64_t)-2)

typedef struct extractor {
    cm_engine *engine;
    const cm_reader *reader;
    const cm_plan *plan;
    cm_replay *replay;
    cm_defs_copy *definitions;
    cm_writer *writer;
    cm_batch *batch;
    cm_record *pending;
    size_t pending_count;
    uint64_t realtime, newest_ns, events, lost;
    uint64_t sequence;      /* of the prologue's nodes */
    uint32_t operator_name; /* the last one in the prologue */
    uint64_t window;
    const char *target;
    const char *code, *title;
    char *error;
    size_t error_size;
} extractor;

static bool fail(extractor *x, const char *message)
{
    snprintf(x->error, x->error_size, "%s", message);
    return false;
}

static bool no_memory(extractor *x)
{
    return fail(x, "out of memory");
}

static bool wrote(extractor *x, int status)
{
    if (status == 0)
        return true;
    snprintf(x->error, x->error_size, "cannot write %s: %s", x->target, strerror(-status));
    return false;
}

static bool flush(extractor *x)
{
    const void *bytes;
    size_t length;
    if (x->pending_count == 0)
        return true;
    uint64_t now = x->newest_ns;
    cm_batch_begin(x->batch, (cm_clock_anchor){now, now, x->realtime + now});
    bytes = cm_defs_copy_take(x->definitions, &length);
    if (length > 0 && !cm_batch_add_definitions(x->batch, bytes, length))
        return no_memory(x);
    for (size_t i = 0; i < x->pending_count; i++)
        if (!cm_batch_add_event(x->batch, x->pending[i].thread, &x->pending[i].event))
            return no_memory(x);
    if (!cm_batch_finish(x->batch, &bytes, &length))
        return no_memory(x);
    x->pending_count = 0;
    if (!wrote(x, cm_writer_chunk(x->writer, bytes, length)))
        return false;
    return !cm_defs_copy_take_lines(x->definitions, &bytes, &length) ||
           wrote(x, cm_writer_chunk(x->writer, bytes, length));
}

static bool emit(extractor *x, uint32_t thread, uint64_t time_ns, cm_event event)
{
    event.time = time_ns;
    if (time_ns > x->newest_ns)
        x->newest_ns = time_ns;
    x->pending[x->pending_count++] = (cm_record){event, thread, time_ns};
    x->events++;
    return x->pending_count < BATCH_EVENTS || flush(x);
}

/* An event of the source under the new trace's ids. */
static bool copy(extractor *x, const cm_record *record)
{
    cm_event e = record->event;
    bool fine = true;
    if (cm_event_names_stack(e.kind))
        fine = cm_defs_copy_stack(x->definitions, e.stack, &e.stack);
    else if (cm_event_names_name(e.kind))
        fine = cm_defs_copy_name(x->definitions, e.stack, &e.stack);
    else if (e.kind == CM_EV_LOST)
        x->lost += (uint64_t)e.size;
    if (!fine)
        return no_memory(x);
    return emit(x, record->thread, record->time_ns, e);
}

/* --- the prologue -------------------------------------------------------------------------- */

static bool emit_before(extractor *x, uint32_t thread, cm_event event)
{
    cm_record record = {event, thread, x->plan->begin_ns};
    record.event.flags |= CM_EVF_BEFORE_START;
    return copy(x, &record);
}

static bool emit_thread(void *context, uint32_t thread, uint64_t kernel_id, uint64_t autograd_id)
{
    extractor *x = context;
    cm_event e = {.kind = CM_EV_THREAD, .address = kernel_id, .size = (int64_t)autograd_id};
    return emit(x, thread, x->plan->begin_ns, e);
}

static bool no_node(void *context, uint32_t thread, uint64_t sequence, uint32_t stack)
{
    return true;
}

static bool not_running(void *context, uint32_t thread, uint32_t stack, uint32_t name)
{
    return true;
}

static bool no_thread(void *context, uint32_t thread, uint64_t kernel_id, uint64_t autograd_id)
{
    return true;
}

static bool emit_node(void *context, uint32_t thread, uint64_t sequence, uint32_t stack)
{
    /* A missing node is as unknown as one without a line. */
    if (stack == CM_NODE_UNRESOLVED || stack == CM_NODE_ACCUMULATION)
        return true;
    return emit_before(context, thread,
                       (cm_event){.kind = CM_EV_NODE_NEW, .address = sequence, .stack = stack});
}

/* Emits a node running on `thread` with the line `stack`, or one of the two without a line. */
static bool emit_running(void *context, uint32_t thread, uint32_t stack, uint32_t name)
{
    extractor *x = context;
    uint64_t sequence = x->sequence++;
    cm_event made = {.kind = CM_EV_NODE_NEW, .address = sequence, .stack = stack};
    cm_event run = {.kind = CM_EV_NODE_RUN,
                    .address = stack == CM_NODE_ACCUMULATION ? CM_NODE_NO_SEQUENCE : sequence,
                    .size = PROLOGUE_AUTOGRAD,
                    .stack = name == CM_NAME_ACCUMULATION ? 0 : name};
    if (stack < CM_NODE_ACCUMULATION && !emit_before(x, PROLOGUE_THREAD, made))
        return false;
    return emit_before(x, thread, run);
}

static bool emit_operator(void *context, uint32_t thread, uint32_t name)
{
    return emit_before(context, thread, (cm_event){.kind = CM_EV_OPERATOR, .stack = name});
}

/* No node may have run on this thread before a leaf's gradient: forward clears that. */
static bool emit_forward(extractor *x, uint32_t stack)
{
    cm_event made = {.kind = CM_EV_NODE_NEW, .address = x->sequence, .stack = stack};
    cm_event gone = {.kind = CM_EV_NODE_FREE, .address = x->sequence++, .size = PROLOGUE_AUTOGRAD};
    return emit_before(x, PROLOGUE_THREAD, made) && emit_before(x, PROLOGUE_THREAD, gone);
}

/* After the block's own record. */
static bool emit_requested(extractor *x, const cm_block *block)
{
    const cm_device *d = &x->replay->device[block->device];
    cm_event e = {.kind = CM_EV_REQUESTED,
                  .address = block->address,
                  .size = block->size - cm_block_slack(block),
                  .device_type = d->type,
                  .device_index = d->index};
    return cm_block_slack(block) == 0 || emit_before(x, PROLOGUE_THREAD, e);
}

static bool emit_driver(void *context, cm_event event)
{
    extractor *x = context;
    cm_record record = {event, PROLOGUE_THREAD, x->plan->begin_ns};
    return copy(x, &record);
}

static bool emit_segment(extractor *x, const cm_segment *segment)
{
    const cm_device *d = &x->replay->device[segment->device];
    cm_event e = {.kind = CM_EV_SEGMENT_NEW,
                  .address = segment->address,
                  .size = segment->size,
                  .stack = segment->stack,
                  .device_type = d->type,
                  .device_index = d->index};
    return emit_before(x, PROLOGUE_THREAD, e);
}

static bool emit_block(extractor *x, const cm_block *block, bool first, bool last)
{
    const cm_origin *o = &x->replay->origin[cm_replay_origin(x->replay, block)];
    const cm_device *d = &x->replay->device[block->device];
    cm_event e = {.kind = CM_EV_ALLOC,
                  .address = block->address,
                  .size = block->size,
                  .stack = o->own,
                  .flags = block->direct ? CM_EVF_DIRECT : 0,
                  .device_type = d->type,
                  .device_index = d->index};
    if (o->phase == CM_PHASE_BEFORE_START) {
        e.kind = CM_EV_SEED;
        e.stack = 0;
        return emit(x, PROLOGUE_THREAD, x->plan->begin_ns, e) && emit_requested(x, block);
    }
    if (o->phase == CM_PHASE_FORWARD && first && !emit_forward(x, o->own))
        return false;
    uint32_t operator_name = o->phase == CM_PHASE_BACKWARD ? 0 : o->name;
    if (x->operator_name != operator_name && !emit_operator(x, PROLOGUE_THREAD, operator_name))
        return false;
    x->operator_name = operator_name;
    if (o->phase != CM_PHASE_BACKWARD)
        return emit_before(x, PROLOGUE_THREAD, e) && emit_requested(x, block);

    /* One running node stands for all blocks of an origin. */
    uint32_t stack = o->stack;
    if (o->charge == CM_CHARGE_ACCUMULATION)
        stack = CM_NODE_ACCUMULATION;
    else if (o->charge == CM_CHARGE_UNRESOLVED)
        stack = CM_NODE_UNRESOLVED;
    if (first && ((o->charge == CM_CHARGE_ACCUMULATION && !emit_forward(x, CM_STACK_NONE)) ||
                  !emit_running(x, PROLOGUE_THREAD, stack, o->name)))
        return false;
    e.flags |= CM_EVF_IN_NODE | CM_EVF_NODE_STACK;
    cm_event done = {.kind = CM_EV_NODE_DONE};
    return emit_before(x, PROLOGUE_THREAD, e) && emit_requested(x, block) &&
           (!last || emit_before(x, PROLOGUE_THREAD, done));
}

/* Forward origins mark their stacks as forward, so they follow origins of the same stack from
 * before its first node. */
static int phase_rank(uint8_t phase)
{
    switch (phase) {
    case CM_PHASE_BEFORE_START:
        return 0;
    case CM_PHASE_FORWARD:
        return 2;
    case CM_PHASE_BACKWARD:
        return 3;
    default:
        return 1;
    }
}

/* The part of an origin that a block's events carry. Without category and number, which depend on
 * the order of windows, the file is always the same. */
typedef struct entry {
    int rank;
    uint32_t own, stack, name;
    uint8_t charge;
    uint16_t device;
    uint64_t address;
    const cm_block *block;
} entry;

#define COMPARE(field)                                                                             \
    if (a->field != b->field)                                                                      \
    return a->field < b->field ? -1 : 1

static int by_group(const entry *a, const entry *b)
{
    COMPARE(rank);
    COMPARE(own);
    COMPARE(stack);
    COMPARE(name);
    COMPARE(charge);
    COMPARE(device);
    return 0;
}

static int by_origin(const void *left, const void *right)
{
    const entry *a = left, *b = right;
    int order = by_group(a, b);
    if (order != 0)
        return order;
    COMPARE(address);
    return 0;
}

static bool emit_blocks(extractor *x)
{
    const cm_blocks *blocks = &x->replay->blocks;
    size_t count = 0, at = 0;
    entry *order = malloc((blocks->count + 1) * sizeof *order);
    if (order == NULL)
        return no_memory(x);
    for (const cm_block *block; (block = cm_blocks_next(blocks, &at)) != NULL;) {
        const cm_origin *o = &x->replay->origin[cm_replay_origin(x->replay, block)];
        order[count++] = (entry){phase_rank(o->phase), o->own,         o->stack, o->name, o->charge,
                                 block->device,        block->address, block};
    }
    cm_sort(order, count, sizeof *order, by_origin);
    bool fine = true, seeding = true;
    for (size_t i = 0; fine && i <= count; i++) {
        if (seeding && (i == count || order[i].rank != 0)) {
            cm_event seeded = {
                .kind = CM_EV_MARK, .size = CM_MARK_SEEDED, .address = x->plan->seeds_skipped};
            seeding = false;
            fine = emit(x, PROLOGUE_THREAD, x->plan->begin_ns, seeded);
        }
        if (fine && i < count)
            fine = emit_block(x, order[i].block, i == 0 || by_group(&order[i - 1], &order[i]) != 0,
                              i + 1 == count || by_group(&order[i + 1], &order[i]) != 0);
    }
    free(order);
    return fine;
}

/* Labels of modules and of live blocks. */
static bool emit_module(void *context, uint64_t address, uint32_t name)
{
    cm_event e = {.kind = CM_EV_LABEL,
                  .flags = CM_LABEL_MODULE,
                  .address = address,
                  .stack = name,
                  .device_index = -1};
    extractor *x = context;
    return copy(x, &(cm_record){e, PROLOGUE_THREAD, x->plan->begin_ns});
}

static bool emit_labels(extractor *x)
{
    const cm_replay *replay = x->replay;
    if (!cm_modules_each(replay->modules, replay->position, emit_module, x))
        return false;
    size_t at = 0;
    for (const cm_block *block; (block = cm_blocks_next(&replay->blocks, &at)) != NULL;) {
        const cm_label *label = cm_replay_label(replay, block);
        if (label == NULL)
            continue;
        cm_event e = {.kind = CM_EV_LABEL,
                      .flags = label->kind,
                      .address = block->address,
                      .size = (int64_t)label->owner,
                      .stack = label->text,
                      .device_type = replay->device[block->device].type,
                      .device_index = replay->device[block->device].index};
        if (!copy(x, &(cm_record){e, PROLOGUE_THREAD, x->plan->begin_ns}))
            return false;
    }
    return true;
}

static bool write_prologue(extractor *x)
{
    const cm_nodes_state threads = {emit_thread, no_node, not_running};
    const cm_nodes_state nodes = {no_thread, emit_node, emit_running};
    if (!emit_thread(x, PROLOGUE_THREAD, 0, (uint64_t)PROLOGUE_AUTOGRAD) ||
        !cm_nodes_visit(x->replay->nodes, &threads, x))
        return false;
    size_t objects;
    const cm_event *object = cm_engine_objects(x->engine, &objects);
    for (size_t i = 0; i < objects; i++)
        if (!emit_before(x, PROLOGUE_THREAD, object[i]))
            return false;
    for (size_t i = 0; i < x->replay->device_count; i++) {
        const cm_device *d = &x->replay->device[i];
        cm_event e = {.kind = CM_EV_RESERVED,
                      .size = d->reserved,
                      .address = (uint64_t)(d->live - d->direct),
                      .device_type = d->type,
                      .device_index = d->index};
        if (d->reserved >= 0 && !emit(x, PROLOGUE_THREAD, x->plan->begin_ns, e))
            return false;
    }
    if (!cm_driver_prologue(x->replay->driver, emit_driver, x))
        return false;
    for (size_t i = 0; i < x->replay->segments.count; i++)
        if (!emit_segment(x, &x->replay->segments.segment[i]))
            return false;
    cm_event open = {.kind = CM_EV_MARK, .size = CM_MARK_WINDOW_OPEN, .address = x->window};
    return emit_blocks(x) && emit_labels(x) && cm_nodes_visit(x->replay->nodes, &nodes, x) &&
           cm_operators_visit(&x->replay->operators, emit_operator, x) &&
           (x->window == 0 || emit(x, PROLOGUE_THREAD, x->plan->begin_ns, open));
}

/* --- the window ---------------------------------------------------------------------------- */

static bool belongs(const extractor *x, const cm_event *e, uint64_t position)
{
    if (e->kind == CM_EV_SEED) /* of the walk at the start: already in the prologue */
        return position >= x->replay->seeded;
    if (e->kind != CM_EV_MARK)
        return true;
    /* Another window may be half outside; the walk at the start is in the prologue. */
    bool window = e->size == CM_MARK_WINDOW_OPEN || e->size == CM_MARK_WINDOW_CLOSE;
    return window ? x->window == 0 : e->size != CM_MARK_SEEDED;
}

static bool copy_window(extractor *x)
{
    const cm_record *record;
    cm_change change[2];
    for (uint64_t position = x->replay->position; position < x->plan->end; position++) {
        if (position == x->plan->begin && !write_prologue(x))
            return false;
        record = cm_engine_next(x->engine, x->error, x->error_size);
        if (record == NULL)
            return false;
        if (position < x->plan->begin) {
            if (cm_engine_apply(x->engine, x->replay, record, change, x->error, x->error_size) < 0)
                return false;
        } else if (belongs(x, &record->event, position) && !copy(x, record)) {
            return false;
        }
    }
    if (x->plan->begin == x->plan->end && !write_prologue(x))
        return false;
    cm_event close = {.kind = CM_EV_MARK, .size = CM_MARK_WINDOW_CLOSE, .address = x->window};
    if (x->plan->closed && !emit(x, PROLOGUE_THREAD, x->plan->end_ns, close))
        return false;
    return flush(x);
}

static bool write_meta(extractor *x)
{
    size_t count = cm_reader_meta_count(x->reader), n = 0;
    const char **pairs = calloc(2 * count + 7, sizeof *pairs);
    char number[24];
    if (pairs == NULL)
        return no_memory(x);
    for (size_t i = 0; i < count; i++) {
        const char *key, *value;
        cm_reader_meta_at(x->reader, i, &key, &value);
        /* The ring belongs to the source. */
        if (strncmp(key, "ring.", 5) == 0 || strcmp(key, "window") == 0 ||
            strcmp(key, "code") == 0 || strcmp(key, "title") == 0)
            continue;
        pairs[n++] = key;
        pairs[n++] = value;
    }
    snprintf(number, sizeof number, "%" PRIu64, x->window);
    pairs[n++] = "window";
    pairs[n++] = number;
    if (*x->code != '\0') {
        pairs[n++] = "code";
        pairs[n++] = x->code;
    }
    if (*x->title != '\0') {
        pairs[n++] = "title";
        pairs[n++] = x->title;
    }
    bool fine = wrote(x, cm_writer_meta(x->writer, pairs));
    free(pairs);
    return fine;
}

static bool write_end(extractor *x)
{
    if (x->plan->state != CM_TRACE_COMPLETE)
        return true;
    return wrote(
        x, cm_writer_end(x->writer, x->events, x->lost, x->plan->lost_stacks, x->plan->reason));
}

static bool extract(extractor *x)
{
    x->definitions = cm_defs_copy_new(x->reader);
    x->batch = cm_batch_new();
    x->pending = malloc(BATCH_EVENTS * sizeof *x->pending);
    if (x->definitions == NULL || x->batch == NULL || x->pending == NULL)
        return no_memory(x);
    x->realtime = cm_reader_start_realtime_ns(x->reader);
    if (!wrote(x, cm_writer_create(x->target, false, CM_WRITER_NAMED, &x->writer)))
        return false;
    bool fine = write_meta(x) && copy_window(x) && write_end(x);
    int closed = cm_writer_close(x->writer);
    fine = fine && wrote(x, closed);
    if (!fine)
        unlink(x->target);
    return fine;
}

bool cm_engine_extract(cm_engine *engine, const char *target, uint64_t number, const char *code,
                       const char *title, char *error, size_t error_size)
{
    const cm_window_options options = {.window = number};
    cm_window window;
    if (!cm_engine_open(engine, &options, code, 1, &window, error, error_size))
        return false;
    extractor x = {.engine = engine,
                   .reader = cm_engine_reader(engine),
                   .plan = window.plan,
                   .replay = window.replay,
                   .window = number,
                   .target = target,
                   .code = code,
                   .title = title,
                   .error = error,
                   .error_size = error_size};
    bool at_begin = window.plan->begin == window.replay->position;
    bool fine = extract(&x);
    free(x.pending);
    cm_batch_free(x.batch);
    cm_defs_copy_free(x.definitions);
    cm_engine_close(engine, at_begin ? CM_ENGINE_STAYED : CM_ENGINE_BROKEN);
    return fine;
}
