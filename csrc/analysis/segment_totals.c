/* The segments that PyTorch's allocator took from CUDA: their number, bytes and peak. */
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
    now->seen = now->seen || d->segments > 0;
    now->count = d->segments;
    now->bytes = d->segmented;
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

static bool finish(void *part, cm_analysis *out)
{
    totals *t = part;
    for (size_t i = 0; i < out->device_count; i++)
        out->device[i].segments = t->device[i];
    return true;
}

static void destroy(void *part)
{
    free(part);
}

const cm_part_kind cm_part_segments = {.name = "segments",
                                       .create = create,
                                       .event = event,
                                       .events = CM_PART_EVENT(CM_EV_SEGMENT_NEW) |
                                                 CM_PART_EVENT(CM_EV_SEGMENT_FREE),
                                       .finish = finish,
                                       .destroy = destroy};
