#include "merge.h"

static inline uint64_t time_of(const cm_lane *lane)
{
    return lane->at->time;
}

static void sift_down(cm_merge *merge)
{
    cm_lane **heap = merge->heap;
    cm_lane *moving = heap[0];
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

void cm_merge_add(cm_merge *merge, cm_lane *lane)
{
    if (time_of(lane) >= merge->watermark)
        return;
    uint32_t at = merge->count++;
    while (at > 0 && time_of(merge->heap[(at - 1) / 2]) > time_of(lane)) {
        merge->heap[at] = merge->heap[(at - 1) / 2];
        at = (at - 1) / 2;
    }
    merge->heap[at] = lane;
}

static void drop_first(cm_merge *merge)
{
    merge->heap[0] = merge->heap[--merge->count];
    if (merge->count > 1)
        sift_down(merge);
}

/* The oldest event of all other lanes: the first lane may go on until there. */
static uint64_t time_of_others(const cm_merge *merge)
{
    uint64_t bound = UINT64_MAX;

    for (uint32_t i = 1; i <= 2 && i < merge->count; i++)
        if (time_of(merge->heap[i]) < bound)
            bound = time_of(merge->heap[i]);
    return bound;
}

static inline bool is_from_ring(const cm_event *event)
{
    return event->kind != CM_EV_NONE && event->kind <= CM_EV_HELD && event->kind != CM_EV_FOLDED &&
           event->kind != CM_EV_FOLD;
}

int64_t cm_merge_run(cm_merge *merge, cm_batch *batch, int64_t most)
{
    int64_t moved = 0;

    while (merge->count > 0 && moved < most) {
        cm_lane *lane = merge->heap[0];
        uint64_t bound = time_of_others(merge);
        bool more = true;
        do {
            const cm_event *event = lane->at;
            /* Only a ring file that somebody damaged holds other kinds. */
            if (!is_from_ring(event)) {
                merge->damaged++;
            } else {
                if (!cm_batch_add_event(batch, lane->thread, event) ||
                    (merge->see != NULL && !merge->see(lane->thread, event)))
                    return -1;
                if (event->stack == CM_STACK_LOST && cm_event_names_stack(event->kind))
                    merge->lost_stacks++;
                moved++;
            }
            lane->at++;
            lane->position++;
            if (lane->at == lane->stop)
                more = lane->position < lane->end && merge->refill(merge, lane);
            if (more && time_of(lane) >= merge->watermark)
                more = false;
        } while (more && time_of(lane) <= bound && moved < most);
        if (more)
            sift_down(merge);
        else
            drop_first(merge);
    }
    return moved;
}
