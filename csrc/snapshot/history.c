#include "history.h"

#include "../base/grow.h"
#include "../base/mapped.h"
#include "../base/idmap.h"

/* A thing that is alive, in the map: a number in the arrays of the snapshot, and which of them. */
enum { OF_STATE = 0, OF_EVENT = 1 };

typedef struct undoing {
    cm_snap *snapshot;
    cm_idmap blocks, segments; /* by address: number << 1 | OF_... */
    cm_mapped mapped;          /* of expandable segments */
} undoing;

static bool put(cm_idmap *map, uint64_t address, uint32_t number, int of)
{
    return !cm_snap_is_address(address) || number > UINT32_MAX / 2 - 1 ||
           cm_idmap_put(map, address, number << 1 | (uint32_t)of);
}

static bool begin_at_the_end(undoing *u, cm_snap_range segments, int32_t device)
{
    const cm_snap *s = u->snapshot;
    for (uint32_t i = segments.first; i < segments.end; i++) {
        const cm_snap_segment *segment = &s->segment[i];
        if (device != CM_SNAP_ANY_DEVICE && segment->device != device)
            continue;
        if (!segment->alone &&
            !(segment->expandable ? cm_mapped_add(&u->mapped, segment->address,
                                                  (uint64_t)segment->size, segment->stack)
                                  : put(&u->segments, segment->address, i, OF_STATE)))
            return false;
        for (uint32_t j = segment->first_block; j < segment->end_block; j++)
            if (s->block[j].state == CM_SAYS_ALLOCATED &&
                !put(&u->blocks, s->block[j].address, j, OF_STATE))
                return false;
    }
    return true;
}

/* Gives the allocation what is known of its block from the state. */
static void undo_allocation(undoing *u, cm_snap_event *event)
{
    uint32_t value;
    if (!cm_snap_is_address(event->address) || !cm_idmap_get(&u->blocks, event->address, &value))
        return;
    if ((value & 1) == OF_STATE) {
        event->block_size = u->snapshot->block[value >> 1].size;
        event->requested = u->snapshot->block[value >> 1].requested;
    } else {
        event->requested = u->snapshot->event[value >> 1].requested;
    }
    cm_idmap_remove(&u->blocks, event->address);
}

/* It stays alive, and its event has its line. */
static bool undo_alive(undoing *u, uint32_t number)
{
    cm_snap_event *event = &u->snapshot->event[number];
    uint32_t value;
    if (!cm_snap_is_address(event->address) || !cm_idmap_get(&u->blocks, event->address, &value))
        return true;
    event->requested = (value & 1) == OF_STATE ? u->snapshot->block[value >> 1].requested
                                               : u->snapshot->event[value >> 1].requested;
    return put(&u->blocks, event->address, number, OF_EVENT);
}

static bool undo(undoing *u, uint32_t number)
{
    cm_snap_event *event = &u->snapshot->event[number];
    switch (event->action) {
    case CM_SAYS_ALLOC:
        undo_allocation(u, event);
        return true;
    case CM_SAYS_ALIVE:
        return undo_alive(u, number);
    case CM_SAYS_FREE_REQUESTED:
    case CM_SAYS_FREE:
        return put(&u->blocks, event->address, number, OF_EVENT);
    case CM_SAYS_SEGMENT_MAP:
        return cm_mapped_remove(&u->mapped, event->address, (uint64_t)event->size);
    case CM_SAYS_SEGMENT_UNMAP:
        return cm_mapped_add(&u->mapped, event->address, (uint64_t)event->size, event->stack);
    case CM_SAYS_SEGMENT_ALLOC:
        if (cm_snap_is_address(event->address))
            cm_idmap_remove(&u->segments, event->address);
        return true;
    case CM_SAYS_SEGMENT_FREE:
        return put(&u->segments, event->address, number, OF_EVENT);
    default:
        return true;
    }
}

static bool add_before(cm_snap_before **array, size_t *count, size_t *capacity, cm_snap_before one)
{
    if (!cm_grow((void **)array, capacity, *count + 1, sizeof **array))
        return false;
    (*array)[(*count)++] = one;
    return true;
}

static cm_snap_before before_of_event(const cm_snap_event *e)
{
    int64_t requested = e->requested >= 0 ? e->requested : e->size;
    return (cm_snap_before){.address = e->address,
                            .size = e->size,
                            .requested = requested,
                            .stack = e->action == CM_SAYS_ALIVE ? e->stack : 0};
}

static bool collect_blocks(const undoing *u, cm_snap_history *out)
{
    const cm_snap *s = u->snapshot;
    for (size_t i = 0; i < u->blocks.slots; i++) {
        uint32_t value = u->blocks.slot[i].value, number = value >> 1;
        if (u->blocks.slot[i].key == 0)
            continue;
        cm_snap_before one;
        if ((value & 1) == OF_EVENT) {
            one = before_of_event(&s->event[number]);
            if (s->exporter == 0)
                one.size = 0; /* unknown: what was asked for is known */
        } else {
            const cm_snap_block *b = &s->block[number];
            one = (cm_snap_before){b->address, b->size, b->requested, b->stack, false};
        }
        if (!add_before(&out->block, &out->blocks, &out->block_capacity, one))
            return false;
    }
    return true;
}

static bool collect_segments(const undoing *u, cm_snap_history *out)
{
    const cm_snap *s = u->snapshot;
    for (size_t i = 0; i < u->segments.slots; i++) {
        uint32_t value = u->segments.slot[i].value, number = value >> 1;
        if (u->segments.slot[i].key == 0)
            continue;
        cm_snap_before one;
        if ((value & 1) == OF_EVENT) {
            one = before_of_event(&s->event[number]);
        } else {
            const cm_snap_segment *g = &s->segment[number];
            one = (cm_snap_before){g->address, g->size, g->size, g->stack, false};
        }
        if (!add_before(&out->segment, &out->segments, &out->segment_capacity, one))
            return false;
    }
    cm_mapped_run run = {0};
    while (cm_mapped_next(&u->mapped, run.end, &run)) {
        int64_t size = (int64_t)(run.end - run.start);
        if (!add_before(&out->segment, &out->segments, &out->segment_capacity,
                        (cm_snap_before){run.start, size, size, run.stack, true}))
            return false;
    }
    return true;
}

static int by_address(const void *a, const void *b)
{
    const cm_snap_before *one = a, *other = b;
    return (one->address > other->address) - (one->address < other->address);
}

/* Where one half of the frees was not recorded (skip_actions), the other is the whole free. */
static void complete_frees(cm_snap *s, cm_snap_range events)
{
    size_t requested = 0, completed = 0;
    for (uint32_t i = events.first; i < events.end; i++) {
        requested += s->event[i].action == CM_SAYS_FREE_REQUESTED;
        completed += s->event[i].action == CM_SAYS_FREE_COMPLETED;
    }
    if ((requested == 0) == (completed == 0))
        return;
    for (uint32_t i = events.first; i < events.end; i++)
        if (s->event[i].action == CM_SAYS_FREE_REQUESTED ||
            s->event[i].action == CM_SAYS_FREE_COMPLETED)
            s->event[i].action = CM_SAYS_FREE;
}

bool cm_snap_history_of(cm_snap *s, cm_snap_range segments, int32_t device, cm_snap_range events,
                        cm_snap_history *out)
{
    undoing u = {.snapshot = s};
    *out = (cm_snap_history){0};
    complete_frees(s, events);
    bool fine = begin_at_the_end(&u, segments, device);
    for (uint32_t i = events.end; fine && i > events.first; i--)
        fine = undo(&u, i - 1);
    fine = fine && collect_blocks(&u, out) && collect_segments(&u, out);
    cm_idmap_clear(&u.blocks);
    cm_idmap_clear(&u.segments);
    cm_mapped_clear(&u.mapped);
    /* The map's order changes from process to process. */
    cm_sort(out->block, out->blocks, sizeof *out->block, by_address);
    cm_sort(out->segment, out->segments, sizeof *out->segment, by_address);
    return fine;
}

void cm_snap_history_clear(cm_snap_history *h)
{
    free(h->block);
    free(h->segment);
    *h = (cm_snap_history){0};
}
