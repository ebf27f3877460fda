/* The requested bytes of each device's peak: the rest is the allocator's rounding.
 *
 * The requested size is recorded after the block. The device's mutex serializes its events, so a
 * block that made the peak is still the newest one then. */
#include <stdlib.h>

#include "parts.h"

typedef struct device {
    int64_t peak, slack; /* slack: at the peak */
    uint64_t top, at;    /* the block that reached it, and the position of its record; 0: none */
} device;

typedef struct requested {
    const cm_run *run;
    device device[CM_DEVICES_MAX];
} requested;

static void *create(const cm_run *run)
{
    requested *r = calloc(1, sizeof *r);
    if (r == NULL)
        return NULL;
    r->run = run;
    for (size_t i = 0; i < run->replay->device_count; i++)
        r->device[i] =
            (device){.peak = run->replay->device[i].live, .slack = run->replay->device[i].slack};
    return r;
}

static bool change(void *part, const cm_change *c)
{
    requested *r = part;
    const cm_device *d = &r->run->replay->device[c->block.device];
    if (c->highest)
        r->device[c->block.device] = (device){c->live, d->slack, c->block.address, d->changed};
    return true;
}

static bool event(void *part, const cm_record *record)
{
    requested *r = part;
    const cm_event *e = &record->event;
    int number = cm_replay_find_device(r->run->replay, e->device_type, e->device_index);
    if (number < 0)
        return true;
    const cm_device *now = &r->run->replay->device[number];
    device *d = &r->device[number];
    if (d->top == e->address && d->top != 0 && d->at == now->changed)
        d->slack = now->slack;
    return true;
}

static bool finish(void *part, cm_analysis *out)
{
    requested *r = part;
    for (size_t i = 0; i < out->device_count; i++) {
        bool known = r->run->replay->device[i].slack_known;
        out->device[i].requested_peak = known ? r->device[i].peak - r->device[i].slack : -1;
    }
    return true;
}

static void destroy(void *part)
{
    free(part);
}

const cm_part_kind cm_part_requested = {.name = "requested",
                                        .create = create,
                                        .change = change,
                                        .only_marked = true,
                                        .event = event,
                                        .events = CM_PART_EVENT(CM_EV_REQUESTED),
                                        .finish = finish,
                                        .destroy = destroy};
