/* The segments that PyTorch's allocator took from CUDA, expandable ones too: their number, bytes
 * and peak. */
#include <stdlib.h>

#include "parts.h"

typedef struct totals {
    const cm_run *run;
    cm_segment_totals device[CM_DEVICES_MAX];
} totals;

static void update(totals *t, size_t number)
{
    const cm_device *d = &t->run->replay->device[number];
    cm_segment_totals *now = &t->device[number];
    const cm_driver_map *map = d->type == CM_DEVICE_CUDA ? t->run->replay->driver : NULL;
    now->count = d->segments;
    now->bytes = d->segmented;
    if (map != NULL)
        now->bytes += map->device[cm_driver_map_place(d->index)].mapped;
    now->seen = now->seen || now->bytes > 0;
    if (now->bytes > now->peak)
        now->peak = now->bytes;
}

static void update_all(totals *t)
{
    for (size_t i = 0; i < t->run->replay->device_count; i++)
        update(t, i);
}

static void *create(const cm_run *run)
{
    totals *t = calloc(1, sizeof *t);
    if (t == NULL)
        return NULL;
    t->run = run;
    update_all(t);
    return t;
}

static bool event(void *part, const cm_record *record)
{
    update_all(part);
    return true;
}

/* Mappings into one reservation lie side by side in the order of addresses. */
static void count_expandable(totals *t)
{
    const cm_replay *r = t->run->replay;
    uint64_t at = 0;
    uint32_t slot, last = 0;
    while (cm_ranges_above(&r->driver->mapped, at, &at, &slot)) {
        const cm_driver_allocation *a = &r->driver->allocation[slot];
        uint32_t reservation = cm_driver_map_reservation(r->driver, a->address);
        int number = cm_replay_find_device(r, CM_DEVICE_CUDA, a->device);
        if (a->torch && number >= 0 && (reservation == 0 || reservation != last))
            t->device[number].count++;
        if (a->torch)
            last = reservation;
        if (at++ == UINT64_MAX)
            break;
    }
}

static bool finish(void *part, cm_analysis *out)
{
    totals *t = part;
    update_all(t);
    if (t->run->replay->driver != NULL)
        count_expandable(t);
    for (size_t i = 0; i < out->device_count; i++)
        out->device[i].segments = t->device[i];
    return true;
}

static void destroy(void *part)
{
    free(part);
}

const cm_part_kind cm_part_segments = {
    .name = "segments",
    .create = create,
    .event = event,
    .events = CM_PART_EVENT(CM_EV_SEGMENT_NEW) | CM_PART_EVENT(CM_EV_SEGMENT_FREE) |
              CM_PART_EVENT(CM_EV_DRIVER_NEW) | CM_PART_EVENT(CM_EV_DRIVER_FREE) |
              CM_PART_EVENT(CM_EV_DRIVER_MORE),
    .finish = finish,
    .destroy = destroy};
