/* Each device's totals over time, in a bounded number of points. A point is the moment that used
 * the most in a span of 2^shift ns; spans double when there are too many. */
#include <stdlib.h>

#include "../base/grow.h"
#include "parts.h"

enum { POINTS = 2048, FIRST_SHIFT = 12 };

typedef struct curve {
    cm_device_point *point;
    size_t count, capacity;
    unsigned shift;
} curve;

typedef struct curves {
    const cm_run *run;
    curve device[CM_TOTALS_HOST];
    size_t limit;
} curves;

static void *create(const cm_run *run)
{
    curves *c = calloc(1, sizeof *c);
    if (c == NULL)
        return NULL;
    c->run = run;
    c->limit = run->options->timeline_points ? run->options->timeline_points : POINTS;
    if (c->limit < 2)
        c->limit = 2;
    return c;
}

static void add(curve *c, cm_device_point now)
{
    cm_device_point *last = c->count > 0 ? &c->point[c->count - 1] : NULL;
    if (last == NULL || now.time_ns >> c->shift > last->time_ns >> c->shift)
        c->point[c->count++] = now;
    else if (now.used > last->used)
        *last = (cm_device_point){last->time_ns, now.used, now.driver, now.reserved, now.allocated};
}

static void halve(curve *c)
{
    size_t count = c->count;
    c->shift++;
    c->count = 0;
    for (size_t i = 0; i < count; i++)
        add(c, c->point[i]);
}

static bool event(void *part, const cm_record *record)
{
    curves *all = part;
    const cm_event *e = &record->event;
    const cm_replay *replay = all->run->replay;
    if (e->address != CM_DEVICE_BYTES_USED)
        return true;
    uint16_t place = cm_driver_map_place(e->device_index);
    const cm_driver_state *state = &replay->driver->device[place];
    if (state->last.used < 0 || e->size < 0)
        return true;
    int number = cm_replay_find_device(replay, CM_DEVICE_CUDA, e->device_index);
    cm_device_point now = {.time_ns = record->time_ns,
                           .used = state->last.used,
                           .driver = replay->driver->totals.device[place].bytes,
                           .reserved = number < 0 ? -1 : replay->device[number].reserved,
                           .allocated = number < 0 ? 0 : replay->device[number].live};
    curve *c = &all->device[place];
    if (c->count == 0)
        c->shift = FIRST_SHIFT;
    while (c->count >= all->limit && c->shift < 63)
        halve(c);
    if (!cm_grow((void **)&c->point, &c->capacity, c->count + 1, sizeof *c->point))
        return false;
    add(c, now);
    return true;
}

static bool finish(void *part, cm_analysis *out)
{
    curves *all = part;
    size_t capacity = 0;
    for (uint16_t place = 0; place < CM_TOTALS_HOST; place++) {
        curve *c = &all->device[place];
        if (c->count == 0)
            continue;
        if (!cm_grow((void **)&out->curves, &capacity, out->curve_count + 1, sizeof *out->curves))
            return false;
        out->curves[out->curve_count++] = (cm_device_curve){place - 128, c->point, c->count};
        c->point = NULL;
    }
    return true;
}

static void destroy(void *part)
{
    curves *all = part;
    for (size_t i = 0; i < CM_TOTALS_HOST; i++)
        free(all->device[i].point);
    free(all);
}

const cm_part_kind cm_part_device_curve = {.name = "devicecurve",
                                           .create = create,
                                           .event = event,
                                           .events = CM_PART_EVENT(CM_EV_DEVICE),
                                           .finish = finish,
                                           .destroy = destroy};
