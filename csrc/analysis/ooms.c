/* The failed requests. */
#include "ooms.h"

#include <stdlib.h>

#include "contributors.h"
#include "fragmentation.h"
#include "../base/grow.h"
#include "live_tensors.h"
#include "parts.h"
#include "../heap/scan.h"

typedef struct device_ooms {
    cm_oom *oom;
    size_t count, capacity;
    uint64_t total;
} device_ooms;

typedef struct ooms {
    const cm_run *run;
    device_ooms device[CM_DEVICES_MAX];
} ooms;

void cm_ooms_free(cm_oom *ooms, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        free(ooms[i].contributors);
        free(ooms[i].tensors);
        cm_fragmentation_clear(&ooms[i].memory);
    }
    free(ooms);
}

static void *create(const cm_run *run)
{
    ooms *o = calloc(1, sizeof *o);
    if (o != NULL)
        o->run = run;
    return o;
}

/* The live blocks of the device, by origin. */
static bool take_contributors(const cm_replay *replay, uint16_t device, cm_oom *to)
{
    cm_amounts alive = {0};
    cm_contributors list = {0};
    bool fine = cm_amounts_add_live(&alive, replay, device);
    for (uint32_t i = 0; fine && i < alive.capacity && i < replay->origin_count; i++)
        fine = alive.of[i].count == 0 || cm_contributors_add(&list, replay, i, alive.of[i]);
    free(alive.of);
    cm_contributors_sort(list.contributor, list.count);
    to->contributors = list.contributor;
    to->contributor_count = list.count;
    return fine;
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
    /* The replay has applied this record. */
    bool escaped = o->run->plan->oom_left != 0 && o->run->plan->oom_left == replay->position;
    d->total++;
    if (d->count >= CM_OOMS_KEPT && !escaped)
        return true;
    if (!cm_grow((void **)&d->oom, &d->capacity, d->count + 1, sizeof *d->oom))
        return false;
    const cm_device *device = &replay->device[number];
    cm_charge charge = cm_nodes_charge(replay->nodes, record);
    cm_oom *oom = &d->oom[d->count++];
    *oom = (cm_oom){.time_ns = record->time_ns,
                    .requested = e->size,
                    .allocated = cm_oom_is_known(e->address) ? (int64_t)e->address : device->live,
                    .reserved = device->reserved,
                    .stack = charge.stack,
                    .origin_stack = e->stack,
                    .name = charge.name,
                    .step = cm_steps_number(o->run->steps, replay->step),
                    .escaped = escaped};
    if (d->count > CM_OOMS_WHOLE && !escaped)
        return true;
    if (!take_contributors(replay, (uint16_t)number, oom) ||
        !cm_live_tensors_take(replay, (uint16_t)number, &oom->tensors, &oom->tensor_count))
        return false;
    if (device->type != CM_DEVICE_CUDA)
        return true;
    if (!cm_fragmentation_take(replay, (uint16_t)number, CM_FRAGMENT_OOM, record->time_ns, e->size,
                               &oom->memory))
        return false;
    /* Reserved bytes without a segment: segments were not recorded. */
    if (oom->memory.segment_total == 0 && device->reserved > 0)
        oom->memory = (cm_fragmentation){.asked = 0};
    return true;
}

static bool finish(void *part, cm_analysis *out)
{
    ooms *o = part;
    for (size_t i = 0; i < out->device_count; i++) {
        for (size_t j = 0; j < o->device[i].count; j++)
            cm_fragmentation_finish(o->run->replay, &o->device[i].oom[j].memory);
        out->device[i].ooms = o->device[i].oom;
        out->device[i].oom_count = o->device[i].count;
        out->device[i].oom_total = o->device[i].total;
        o->device[i].oom = NULL;
        o->device[i].count = 0;
    }
    return true;
}

static void destroy(void *part)
{
    ooms *o = part;
    for (size_t i = 0; i < CM_DEVICES_MAX; i++)
        cm_ooms_free(o->device[i].oom, o->device[i].count);
    free(o);
}

const cm_part_kind cm_part_ooms = {.name = "ooms",
                                   .create = create,
                                   .event = event,
                                   .events = CM_PART_EVENT(CM_EV_OOM),
                                   .finish = finish,
                                   .destroy = destroy};
