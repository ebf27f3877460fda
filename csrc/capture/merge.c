#include "merge.h"

static inline uint64_t time_of(const cm_merge_source *source)
{
    return source->at->time;
}

static void sift_down(cm_merge *merge)
{
    cm_merge_source **heap = merge->heap;
    cm_merge_source *moving = heap[0];
    uint32_t at = 0;

    for (;;) {
        uint32_t child = 2 * at + 1;
        if (child >= merge->count)
            break;
        if (child + 1 < merge->count && time_of(heap[child + 1]) < time_of(heap[child]))
            child++;
        if (time_of(moving) <= time_of(heap[child]))
            break;
        heap[at] = heap[child];
        at = child;
    }
    heap[at] = moving;
}

void cm_merge_add(cm_merge *merge, cm_merge_source *source)
{
    if (time_of(source) >= merge->watermark)
        return;
    uint32_t at = merge->count++;
    while (at > 0 && time_of(merge->heap[(at - 1) / 2]) > time_of(source)) {
        merge->heap[at] = merge->heap[(at - 1) / 2];
        at = (at - 1) / 2;
    }
    merge->heap[at] = source;
}

static void drop_first(cm_merge *merge)
{
    merge->heap[0] = merge->heap[--merge->count];
    if (merge->count > 1)
        sift_down(merge);
}

/* The oldest event of all other sources: the first source may go on until there. */
static uint64_t time_of_others(const cm_merge *merge)
{
    uint64_t bound = UINT64_MAX;

    for (uint32_t i = 1; i <= 2 && i < merge->count; i++)
        if (time_of(merge->heap[i]) < bound)
            bound = time_of(merge->heap[i]);
    return bound;
}

/* Only a damaged ring file holds other kinds. */
static inline bool is_from_ring(const cm_event *event)
{
    return event->kind != CM_EV_NONE && event->kind < CM_EVENT_KINDS &&
           event->kind != CM_EV_COMPACTED_BLOCKS && event->kind != CM_EV_COMPACTED &&
           event->kind != CM_EV_COMPACTED_DRIVER;
}

/* A dead node leaves malloc some ten pieces, a block two. */
static const int8_t pieces[CM_EVENT_KINDS] = {
    [CM_EV_ALLOC] = 2, [CM_EV_NODE_NEW] = 10, [CM_EV_FREE] = -2, [CM_EV_NODE_FREE] = -10};

/* How many events from source->at on, up to `most` and to the run's end, precede those of all other
 * sources. The first one always does. */
static size_t measure_run(const cm_merge *merge, const cm_merge_source *source, uint64_t bound,
                          size_t most, uint64_t *lost_stacks, int64_t *in_use)
{
    const cm_event *at = source->at;
    const cm_event *stop = (size_t)(source->stop - at) > most ? at + most : source->stop;
    uint64_t last = merge->watermark - 1; /* the first event is older, so that this is >= 0 */

    if (bound < last)
        last = bound;
    while (is_from_ring(at)) {
        *lost_stacks += at->stack == CM_STACK_LOST && cm_event_names_stack(at->kind);
        *in_use += pieces[at->kind];
        if (++at == stop || at->time > last)
            break;
    }
    return (size_t)(at - source->at);
}

/* Moves the next run. The number of events, or -1: refused. */
static int64_t move_run(cm_merge *merge, cm_merge_source *source, cm_batch *batch, uint64_t bound,
                        int64_t most)
{
    uint64_t lost_stacks = 0;
    int64_t in_use = 0;
    size_t count = measure_run(merge, source, bound, (size_t)most, &lost_stacks, &in_use);

    if (!cm_batch_add_events(batch, source->thread, source->at, count) ||
        (merge->see != NULL && !merge->see(source->thread, source->at, count)))
        return -1;
    merge->lost_stacks += lost_stacks;
    merge->pieces += in_use;
    bool damaged = count == 0; /* the first event is damaged */
    merge->damaged += damaged;
    source->at += count + damaged;
    source->position += count + damaged;
    return (int64_t)count;
}

int64_t cm_merge_run(cm_merge *merge, cm_batch *batch, int64_t most)
{
    int64_t moved = 0;

    while (merge->count > 0 && moved < most) {
        cm_merge_source *source = merge->heap[0];
        uint64_t bound = time_of_others(merge);
        bool more = true;
        do {
            int64_t count = move_run(merge, source, batch, bound, most - moved);
            if (count < 0)
                return -1;
            moved += count;
            if (source->at == source->stop)
                more = source->position < source->end && merge->refill(merge, source);
            if (more && time_of(source) >= merge->watermark)
                more = false;
        } while (more && time_of(source) <= bound && moved < most);
        if (more)
            sift_down(merge);
        else
            drop_first(merge);
    }
    return moved;
}
