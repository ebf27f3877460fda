/* The holders of growing memory that the process itself found, while recording and at its end
 * (CM_EV_HOLDER). */
#include "../base/grow.h"
#include "parts.h"

typedef struct holders {
    const cm_run *run;
    cm_holder *holder;
    size_t count, capacity;
    cm_holder last; /* the HOLDER event of the next path, and its thread */
    uint32_t thread;
    bool valid;
} holders;

static void *create(const cm_run *run)
{
    holders *h = calloc(1, sizeof *h);
    if (h != NULL)
        h->run = run;
    return h;
}

static bool event(void *part, const cm_record *record)
{
    holders *h = part;
    const cm_event *e = &record->event;
    if (e->kind == CM_EV_HOLDER) {
        int64_t step = h->run->replay->step;
        int device = cm_replay_find_device(h->run->replay, e->device_type, e->device_index);
        h->last = (cm_holder){.kind = e->flags & CM_HOLDER_NODES ? CM_LEAK_NODES : CM_LEAK_BYTES,
                              .first = (e->flags & CM_HOLDER_FIRST) != 0,
                              .device = device < 0 ? CM_LEAK_NO_DEVICE : (uint32_t)device,
                              .stack = e->stack,
                              .step = step < (int64_t)h->run->steps->count ? step : -1};
        h->thread = record->thread;
        h->valid = true;
        return true;
    }
    if (!h->valid || h->thread != record->thread || e->size < 0 || h->count >= CM_HOLDERS_KEPT)
        return true;
    if (!cm_grow((void **)&h->holder, &h->capacity, h->count + 1, sizeof *h->holder))
        return false;
    cm_holder *now = &h->holder[h->count++];
    *now = h->last;
    now->path = e->stack;
    now->count = e->address;
    now->bytes = e->size;
    h->last.first = false;
    return true;
}

static bool finish(void *part, cm_analysis *out)
{
    holders *h = part;
    out->holders = h->holder;
    out->holder_count = h->count;
    h->holder = NULL;
    return true;
}

static void destroy(void *part)
{
    holders *h = part;
    free(h->holder);
    free(h);
}

const cm_part_kind cm_part_holders = {.name = "holders",
                                      .create = create,
                                      .event = event,
                                      .events = CM_PART_EVENT(CM_EV_HOLDER) |
                                                CM_PART_EVENT(CM_EV_HOLDER_PATH),
                                      .finish = finish,
                                      .destroy = destroy};
