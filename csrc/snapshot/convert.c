#include "convert.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "../base/event.h"
#include "../base/grow.h"
#include "../base/mapped.h"
#include "../trace/encode.h"
#include "../trace/writer.h"
#include "definitions.h"
#include "devices.h"
#include "handle.h"
#include "history.h"
#include "nodes.h"
#include "sizes.h"
#include "steps.h"

enum { BATCH_EVENTS = 1 << 15 };
enum { HANDLES = 1 << 18 }; /* that are told apart within ranges: of 512 GiB, at their smallest */
#define CM_SNAP_BACKWARD_THREAD ((int64_t)-3) /* no autograd thread has this number */

/* A device while its events are written. */
typedef struct device {
    cm_snap_device is;
    cm_snap_history before;
    uint32_t next;
    uint64_t time_us; /* no event is earlier than the one before */
    int64_t live, reserved;
    bool grew; /* its total is not yet said: it follows the block that is made in it */
} device;

typedef struct converter {
    cm_snap *snapshot;
    cm_snap_defs defs;
    cm_writer *writer;
    cm_batch *batch;
    device device[CM_SNAP_DEVICES_MAX];
    size_t devices;
    cm_event *pending;
    size_t count;
    uint64_t start_us, now_us, events;
    cm_snap_tick *tick; /* that were noted */
    size_t ticks, next_tick;
    cm_snap_nodes nodes;
    cm_snap_node *node; /* of a stack */
    bool *node_known;
    uint64_t sequence;  /* of nodes */
    uint32_t *site;     /* of a stack: where it calls an optimizer's step, as a stack of the trace
                           + 1; 1 is none, 0 not yet known */
    uint32_t in_step;   /* the newest event's */
    uint32_t last_site; /* the last that is known */
    uint32_t operator_name;
    bool refused;    /* a request, in the newest event's step */
    int64_t handles; /* behind the first of a range */
    const char *path;
    char *error;
    size_t error_size;
} converter;

static bool fail(converter *c, const char *message)
{
    snprintf(c->error, c->error_size, "%s", message);
    return false;
}

static bool no_memory(converter *c)
{
    return fail(c, "out of memory");
}

static bool wrote(converter *c, int status)
{
    if (status == 0)
        return true;
    snprintf(c->error, c->error_size, "cannot write %s: %s", c->path, strerror(-status));
    return false;
}

/* --- batches -------------------------------------------------------------------------------- */

static bool flush(converter *c)
{
    const void *bytes;
    size_t length;
    uint64_t now_ns = (c->now_us - c->start_us) * 1000;
    cm_batch_begin(c->batch, (cm_clock_anchor){now_ns, now_ns, c->start_us * 1000 + now_ns});
    bytes = cm_snap_defs_take(&c->defs, &length);
    if ((length > 0 && !cm_batch_add_definitions(c->batch, bytes, length)) ||
        !cm_batch_add_events(c->batch, 0, c->pending, c->count) ||
        !cm_batch_finish(c->batch, &bytes, &length))
        return no_memory(c);
    c->events += c->count;
    c->count = 0;
    return wrote(c, cm_writer_chunk(c->writer, bytes, length));
}

/* Definitions may be of thousands of deep stacks: a chunk holds 64 MiB. */
static bool emit(converter *c, cm_event event)
{
    enum { DEFINITIONS = 1 << 24 };
    event.time = (c->now_us - c->start_us) * 1000;
    c->pending[c->count++] = event;
    return (c->count < BATCH_EVENTS && c->defs.length < DEFINITIONS) || flush(c);
}

static cm_event event_of(const device *d, uint8_t kind, uint64_t address, int64_t size)
{
    return (cm_event){.kind = kind,
                      .address = address,
                      .size = size,
                      .device_type = d->is.type,
                      .device_index = d->is.index};
}

/* --- blocks --------------------------------------------------------------------------------- */

static bool emit_requested(converter *c, const device *d, uint64_t address, int64_t size,
                           int64_t requested, uint8_t flags)
{
    cm_event e = event_of(d, CM_EV_REQUESTED, address, requested);
    e.flags = flags;
    return requested < 0 || requested >= size || emit(c, e);
}

static const cm_snap_node *node_of(converter *c, uint32_t stack)
{
    if (!c->node_known[stack]) {
        c->node_known[stack] = true;
        c->node[stack] = cm_snap_node_of(&c->nodes, stack);
    }
    return &c->node[stack];
}

/* A node of which nothing but its name is known, and of cuptimem's own its forward line. */
static bool emit_node_run(converter *c, const cm_snap_node *node, uint32_t stack, uint8_t flags)
{
    const cm_event made = {.kind = CM_EV_NODE_NEW,
                           .address = c->sequence + 1,
                           .stack = stack,
                           .flags = flags,
                           .device_index = CM_DEVICE_UNKNOWN};
    cm_event e = {.kind = CM_EV_NODE_RUN,
                  .address =
                      node->accumulates && !node->charged ? CM_NODE_NO_SEQUENCE : ++c->sequence,
                  .size = CM_SNAP_BACKWARD_THREAD,
                  .flags = flags,
                  .device_index = CM_DEVICE_UNKNOWN};
    if (node->name != 0 && !cm_snap_defs_name(&c->defs, node->name, &e.stack))
        return no_memory(c);
    bool charged = node->charged && stack != CM_STACK_NONE;
    return (!charged || emit(c, made)) && emit(c, e);
}

static bool emit_label(converter *c, const device *d, uint64_t address, uint8_t label)
{
    cm_event e = event_of(d, CM_EV_LABEL, address, 0);
    e.flags = label;
    return emit(c, e);
}

typedef struct block {
    uint64_t address;
    int64_t size, requested; /* requested: -1 unknown */
    uint32_t stack;
    uint8_t flags; /* of its events */
} block;

/* An allocation, inside the node that its stack shows. */
static bool emit_block(converter *c, const device *d, const block *b)
{
    const cm_snap_node *node = node_of(c, b->stack);
    const cm_event done = {
        .kind = CM_EV_NODE_DONE, .flags = b->flags, .device_index = CM_DEVICE_UNKNOWN};
    cm_event e = event_of(d, CM_EV_ALLOC, b->address, b->size);
    e.flags = b->flags;
    if (node->ran)
        e.flags |= CM_EVF_IN_NODE | (node->in_python ? 0 : CM_EVF_NODE_STACK);
    if (!cm_snap_defs_stack(&c->defs, b->stack, &e.stack))
        return no_memory(c);
    uint32_t stack = e.stack;
    if (node->charged)
        e.stack = CM_STACK_NONE;
    return (!node->ran || emit_node_run(c, node, stack, b->flags)) && emit(c, e) &&
           emit_requested(c, d, b->address, b->size, b->requested, b->flags) &&
           (node->label == 0 || emit_label(c, d, b->address, node->label)) &&
           (!node->ran || emit(c, done));
}

/* --- before the first event ----------------------------------------------------------------- */

static bool emit_reserved(converter *c, const device *d)
{
    return d->is.unreported || emit(c, event_of(d, CM_EV_RESERVED, (uint64_t)d->live, d->reserved));
}

static bool emit_seed(converter *c, device *d, const cm_snap_before *b)
{
    d->live += b->size;
    return emit(c, event_of(d, CM_EV_SEED, b->address, b->size)) &&
           emit_requested(c, d, b->address, b->size, b->requested, CM_EVF_BEFORE_START);
}

static bool emit_old_block(converter *c, device *d, const cm_snap_before *b)
{
    const block from = {b->address, b->size, b->requested, b->stack, CM_EVF_BEFORE_START};
    d->live += b->size;
    return emit_block(c, d, &from);
}

static bool emit_piece(converter *c, const device *d, uint64_t address, int64_t size,
                       uint32_t stack, uint8_t flags)
{
    cm_event e = event_of(d, CM_EV_DRIVER_NEW, address, size);
    cm_event more = {.kind = CM_EV_DRIVER_MORE, .size = CM_DRIVER_MORE_TORCH, .flags = flags};
    e.stack = stack;
    e.flags = CM_DRIVER_MAPPED | flags;
    return emit(c, e) && emit(c, more);
}

/* As the calls of the driver: a handle after the other. */
static bool emit_mapped(converter *c, device *d, const cm_snap_before *b, uint8_t flags)
{
    uint32_t stack;
    if (!cm_mapped_is_range(b->address, (uint64_t)b->size))
        return true;
    if (!cm_snap_defs_stack(&c->defs, b->stack, &stack))
        return no_memory(c);
    int64_t handle = cm_handle_size(c->snapshot, b->size);
    c->handles += (b->size - 1) / handle;
    if (c->handles > HANDLES)
        handle = b->size; /* a file must not become thousands of times larger */
    d->reserved += b->size;
    for (int64_t at = 0; at < b->size; at += handle)
        if (!emit_piece(c, d, b->address + (uint64_t)at,
                        b->size - at < handle ? b->size - at : handle, stack, flags))
            return false;
    return true;
}

/* Addresses that were ever mapped: a reservation is mapped from its begin on, without gaps that
 * were never closed. */
static bool emit_reservations(converter *c, device *d)
{
    cm_mapped all = {0};
    cm_mapped_run run = {0};
    bool fine = true;
    for (size_t i = 0; fine && i < d->before.segments; i++) {
        const cm_snap_before *b = &d->before.segment[i];
        fine = !b->expandable || cm_mapped_add(&all, b->address, (uint64_t)b->size, 0);
    }
    for (uint32_t i = d->is.events.first; fine && i < d->is.events.end; i++) {
        const cm_snap_event *e = &c->snapshot->event[i];
        fine = (e->action != CM_SAYS_SEGMENT_MAP && e->action != CM_SAYS_SEGMENT_UNMAP) ||
               cm_mapped_add(&all, e->address, (uint64_t)e->size, 0);
    }
    if (!fine)
        no_memory(c);
    while (fine && cm_mapped_next(&all, run.end, &run)) {
        cm_event e = event_of(d, CM_EV_DRIVER_NEW, run.start, (int64_t)(run.end - run.start));
        cm_event more = {
            .kind = CM_EV_DRIVER_MORE, .size = CM_DRIVER_MORE_AT_LEAST, .flags = CM_EVF_ALREADY};
        e.flags = CM_DRIVER_RESERVED | CM_EVF_ALREADY;
        fine = emit(c, e) && emit(c, more);
    }
    cm_mapped_clear(&all);
    return fine;
}

static bool emit_old_segments(converter *c, device *d)
{
    if (!emit_reservations(c, d))
        return false;
    for (size_t i = 0; i < d->before.segments; i++) {
        const cm_snap_before *b = &d->before.segment[i];
        if (b->expandable) {
            if (!emit_mapped(c, d, b, CM_EVF_ALREADY))
                return false;
            continue;
        }
        cm_event e = event_of(d, CM_EV_SEGMENT_NEW, b->address, b->size);
        e.flags = CM_EVF_BEFORE_START;
        if (!cm_snap_defs_stack(&c->defs, b->stack, &e.stack))
            return no_memory(c);
        d->reserved += b->size;
        if (!emit(c, e))
            return false;
    }
    return true;
}

/* Seeds come first: their blocks have no line (heap/extract.c writes the same order). */
static bool emit_before(converter *c)
{
    const cm_event seeded = {
        .kind = CM_EV_MARK, .size = CM_MARK_SEEDED, .device_index = CM_DEVICE_UNKNOWN};
    const cm_event thread = {
        .kind = CM_EV_THREAD, .size = CM_SNAP_BACKWARD_THREAD, .device_index = CM_DEVICE_UNKNOWN};
    if (c->snapshot->exporter != 0 && !emit(c, thread)) /* whose nodes have lines */
        return false;
    for (int seed = 1; seed >= 0; seed--) {
        for (size_t i = 0; i < c->devices; i++) {
            device *d = &c->device[i];
            if (seed && !emit_old_segments(c, d))
                return false;
            for (size_t j = 0; j < d->before.blocks; j++)
                if (seed == (d->before.block[j].stack == 0) &&
                    !(seed ? emit_seed(c, d, &d->before.block[j])
                           : emit_old_block(c, d, &d->before.block[j])))
                    return false;
        }
        if (seed && !emit(c, seeded))
            return false;
    }
    for (size_t i = 0; i < c->devices; i++)
        if (c->device[i].reserved > 0 && !emit_reserved(c, &c->device[i]))
            return false;
    return true;
}

/* --- steps ---------------------------------------------------------------------------------- */

/* Where this stack calls an optimizer's step: an id in the trace + 1; 1: nowhere. */
static bool site_of(converter *c, uint32_t stack, uint32_t *site)
{
    *site = c->site[stack];
    if (*site != 0)
        return true;
    size_t depth = cm_snap_step_depth(c->snapshot, stack);
    uint32_t id = 0;
    if (depth > 0 && !cm_snap_defs_outer(&c->defs, stack, depth, &id))
        return no_memory(c);
    *site = c->site[stack] = id + 1;
    return true;
}

static bool emit_tick(converter *c, uint64_t optimizer, uint32_t site)
{
    const cm_event e = {.kind = CM_EV_TICK,
                        .address = optimizer,
                        .size = CM_TICK_OPTIMIZER,
                        .stack = site - 1,
                        .device_index = CM_DEVICE_UNKNOWN};
    return emit(c, e);
}

/* The steps that ended before this moment. */
static bool emit_noted(converter *c, uint64_t before_us)
{
    for (; c->next_tick < c->ticks && c->tick[c->next_tick].time_us < before_us; c->next_tick++) {
        const cm_snap_tick *tick = &c->tick[c->next_tick];
        if (tick->time_us > c->now_us)
            c->now_us = tick->time_us;
        if (!emit_tick(c, tick->optimizer, c->last_site))
            return false;
    }
    return true;
}

/* A step is over when the next stack does not lie in it. */
static bool follow_steps(converter *c, uint32_t stack)
{
    uint32_t site;
    if (!site_of(c, stack, &site))
        return false;
    if (site > 1)
        c->last_site = site;
    if (c->ticks > 0 || stack == 0) /* without frames: another thread's, or not recorded */
        return true;
    bool ended = c->in_step > 1 && site != c->in_step;
    if (ended && !emit_tick(c, c->in_step, c->in_step))
        return false;
    c->refused &= site == c->in_step;
    c->in_step = site;
    return true;
}

/* --- events --------------------------------------------------------------------------------- */

static bool emit_operator(converter *c, uint32_t metadata)
{
    cm_event e = {.kind = CM_EV_OPERATOR, .device_index = CM_DEVICE_UNKNOWN};
    if (metadata == c->operator_name)
        return true;
    size_t length;
    cm_snap_text(c->snapshot, metadata, &length);
    if (metadata != 0 && length > 0 && !cm_snap_defs_name(&c->defs, metadata, &e.stack))
        return no_memory(c);
    c->operator_name = metadata;
    return emit(c, e);
}

static bool emit_allocation(converter *c, device *d, const cm_snap_event *from)
{
    int64_t asked = from->requested >= 0 ? from->requested : from->size;
    const block made = {from->address, from->block_size, asked, from->stack, 0};
    bool exported = c->snapshot->exporter != 0;
    uint32_t about = exported ? node_of(c, from->stack)->operator: from->metadata;
    d->live += made.size;
    return follow_steps(c, from->stack) && emit_operator(c, about) && emit_block(c, d, &made);
}

static bool emit_segment(converter *c, device *d, const cm_snap_event *from, uint32_t stack,
                         bool taken)
{
    uint8_t kind = taken ? CM_EV_SEGMENT_NEW : CM_EV_SEGMENT_FREE;
    cm_event e = event_of(d, kind, from->address, taken ? from->size : 0);
    e.stack = taken ? stack : 0;
    d->reserved += taken ? from->size : -from->size;
    d->grew = taken;
    return emit(c, e) && (taken || emit_reserved(c, d));
}

static bool emit_mapping(converter *c, device *d, const cm_snap_event *from)
{
    const cm_snap_before range = {
        .address = from->address, .size = from->size, .stack = from->stack};
    d->grew = from->action == CM_SAYS_SEGMENT_MAP;
    if (d->grew)
        return emit_mapped(c, d, &range, 0);
    if (!cm_mapped_is_range(from->address, (uint64_t)from->size))
        return true;
    cm_event e = event_of(d, CM_EV_DRIVER_FREE, from->address, from->size);
    e.flags = CM_DRIVER_MAPPED;
    d->reserved -= from->size;
    return emit(c, e) && emit_reserved(c, d);
}

static bool convert_event(converter *c, device *d, const cm_snap_event *from)
{
    cm_event e;
    uint32_t stack;
    if (!cm_snap_defs_stack(&c->defs, from->stack, &stack))
        return no_memory(c);
    switch (from->action) {
    case CM_SAYS_ALLOC:
        return emit_allocation(c, d, from);
    case CM_SAYS_FREE_REQUESTED:
    case CM_SAYS_FREE:
        d->live -= from->block_size;
        return emit(c, event_of(d, CM_EV_FREE, from->address, 0));
    case CM_SAYS_SEGMENT_MAP:
    case CM_SAYS_SEGMENT_UNMAP:
        return emit_mapping(c, d, from);
    case CM_SAYS_SEGMENT_ALLOC:
        return emit_segment(c, d, from, stack, true);
    case CM_SAYS_SEGMENT_FREE:
        return emit_segment(c, d, from, stack, false);
    case CM_SAYS_OOM:
        e = event_of(d, CM_EV_OOM, CM_OOM_UNKNOWN, from->size);
        e.stack = stack;
        if (!follow_steps(c, from->stack))
            return false;
        c->refused = true;
        return emit(c, e);
    case CM_SAYS_MOMENT: /* PyTorch's own adds up, and so may lack its beginning */
        if (c->snapshot->exporter == 0)
            return true;
        d->reserved = from->size;
        return emit_reserved(c, d);
    default:
        return true;
    }
}

/* The device whose next event is the earliest; NULL: there is none. */
static device *next_device(converter *c)
{
    device *found = NULL;
    uint64_t earliest = 0;
    for (size_t i = 0; i < c->devices; i++) {
        device *d = &c->device[i];
        if (d->next >= d->is.events.end)
            continue;
        uint64_t time = c->snapshot->event[d->next].time_us;
        if (time < d->time_us)
            time = d->time_us;
        if (found == NULL || time < earliest) {
            found = d;
            earliest = time;
        }
    }
    if (found != NULL)
        found->time_us = earliest;
    return found;
}

static bool convert_events(converter *c)
{
    device *d;
    while ((d = next_device(c)) != NULL) {
        const cm_snap_event *event = &c->snapshot->event[d->next++];
        if (!emit_noted(c, d->time_us))
            return false;
        if (d->time_us > c->now_us)
            c->now_us = d->time_us;
        bool grew = d->grew;
        d->grew = false;
        if (!convert_event(c, d, event))
            return false;
        if (grew && !d->grew && !emit_reserved(c, d))
            return false;
    }
    for (size_t i = 0; i < c->devices; i++)
        if (c->device[i].grew && !emit_reserved(c, &c->device[i]))
            return false;
    /* Nothing but a refused request ends a recording in the middle of a step. */
    bool ends = c->ticks == 0 && c->in_step > 1 && !c->refused;
    return emit_noted(c, UINT64_MAX) && (!ends || emit_tick(c, c->in_step, c->in_step));
}

/* --- all of it ------------------------------------------------------------------------------ */

/* Time 0 is the first event. */
static void find_start(converter *c)
{
    uint64_t start = UINT64_MAX;
    for (size_t i = 0; i < c->devices; i++) {
        cm_snap_range events = c->device[i].is.events;
        if (events.first < events.end && c->snapshot->event[events.first].time_us < start)
            start = c->snapshot->event[events.first].time_us;
    }
    c->start_us = c->now_us = start == UINT64_MAX ? 0 : start;
    /* Steps without an allocation to say what they are of: all before the history begins. */
    while (c->next_tick < c->ticks && c->tick[c->next_tick].time_us < start)
        c->next_tick++;
}

static bool find_devices(converter *c)
{
    cm_snap_device found[CM_SNAP_DEVICES_MAX];
    size_t count = cm_snap_devices(c->snapshot, found);
    if (count == SIZE_MAX)
        return fail(c, "the snapshot is damaged: it has more devices than a machine can have");
    for (; c->devices < count; c->devices++) {
        device *d = &c->device[c->devices];
        d->is = found[c->devices];
        d->next = d->is.events.first;
        if (!cm_snap_history_of(c->snapshot, d->is.segments, d->is.number, d->is.events,
                                &d->before) ||
            !cm_snap_sizes(c->snapshot, &d->is, &d->before))
            return no_memory(c);
    }
    return true;
}

static bool convert(converter *c, mode_t mode, const char *const *meta)
{
    c->batch = cm_batch_new();
    c->pending = malloc(BATCH_EVENTS * sizeof *c->pending);
    c->site = calloc(c->snapshot->stacks.count, sizeof *c->site);
    c->node = calloc(c->snapshot->stacks.count, sizeof *c->node);
    c->node_known = calloc(c->snapshot->stacks.count, sizeof *c->node_known);
    c->in_step = c->last_site = 1;
    if (c->batch == NULL || c->pending == NULL || c->site == NULL || c->node == NULL ||
        c->node_known == NULL || !cm_snap_nodes_init(&c->nodes, c->snapshot) ||
        !cm_snap_defs_init(&c->defs, c->snapshot) ||
        !cm_snap_steps_noted(c->snapshot, &c->tick, &c->ticks))
        return no_memory(c);
    if (!find_devices(c))
        return false;
    find_start(c);
    if (!wrote(c, cm_writer_create(c->path, false, mode, &c->writer)))
        return false;
    bool fine = wrote(c, cm_writer_meta(c->writer, meta)) && emit_before(c) && convert_events(c) &&
                flush(c) && wrote(c, cm_writer_end(c->writer, c->events, 0, 0, ""));
    int closed = cm_writer_close(c->writer);
    fine = fine && wrote(c, closed);
    if (!fine)
        unlink(c->path);
    return fine;
}

bool cm_snap_convert(cm_snap *snapshot, const char *path, mode_t mode, const char *const *meta,
                     char *error, size_t error_size)
{
    converter *c = calloc(1, sizeof *c);
    if (c == NULL) {
        snprintf(error, error_size, "out of memory");
        return false;
    }
    c->snapshot = snapshot;
    c->path = path;
    c->error = error;
    c->error_size = error_size;
    bool fine = convert(c, mode, meta);
    for (size_t i = 0; i < CM_SNAP_DEVICES_MAX; i++)
        cm_snap_history_clear(&c->device[i].before);
    cm_snap_defs_clear(&c->defs);
    cm_batch_free(c->batch);
    free(c->pending);
    free(c->tick);
    free(c->site);
    free(c->node);
    free(c->node_known);
    cm_snap_nodes_clear(&c->nodes);
    free(c);
    return fine;
}
