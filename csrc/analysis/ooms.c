/* The requests that could not be met. */
#include "grow.h"
#include "parts.h"

typedef struct device_ooms {
    cm_oom *oom;
    size_t count, capacity;
    uint64_t total;
} device_ooms;

typedef struct ooms {
    const cm_run *run;
    device_ooms device[CM_DEVICES_MAX];
} ooms;

static void *create(const cm_run *run)
{
    ooms *o = calloc(1, sizeof *o);
    if (o != NULL)
        o->run = run;
    return o;
}

static bool event(void *part, const cm_record *record)
{
    ooms *o = part;
    const cm_event *e = &record->event;
    const cm_replay *replay = o->run->replay;
    int number = cm_replay_find_device(replay, e->device_type, e->device_index);
    if (number < 0)
        return true;
    device_ooms *d = &o->device[number];
    d->total++;
    if (d->count >= CM_OOMS_KEPT)
        return true;
    if (!cm_grow((void **)&d->oom, &d->capacity, d->count + 1, sizeof *d->oom))
        return false;
    int64_t step = replay->step < (int64_t)o->run->steps->count ? replay->step : -1;
    int64_t allocated =
        cm_oom_is_told(e->address) ? (int64_t)e->address : replay->device[number].live;
    d->oom[d->count++] = (cm_oom){record->time_ns, e->size, allocated, e->stack, step};
    return true;
}

static bool finish(void *part, cm_analysis *out)
{
    ooms *o = part;
    for (size_t i = 0; i < out->device_count; i++) {
        out->device[i].ooms = o->device[i].oom;
        out->device[i].oom_count = o->device[i].count;
        out->device[i].oom_total = o->device[i].total;
        o->device[i].oom = NULL;
    }
    return true;
}

static void destroy(void *part)
{
    ooms *o = part;
    for (size_t i = 0; i < CM_DEVICES_MAX; i++)
        free(o->device[i].oom);
    free(o);
}

const cm_part_kind cm_part_ooms = {.name = "ooms",
                                   .create = create,
                                   .event = event,
                                   .events = CM_PART_EVENT(CM_EV_OOM),
                                   .finish = finish,
                                   .destroy = destroy};
