/* The curve of live bytes per device, and of the process's resident memory, in a bounded number of
 * points. A point is a span of 2^shift ns; when there are too many, spans double and neighbours
 * join. Every span has its minimum and maximum, so the curve contains the true peak. */
#include <string.h>

#include "../base/grow.h"
#include "../base/own_frame.h"
#include "parts.h"

enum { POINTS = 2048, FIRST_SHIFT = 12 };

typedef struct curve {
    cm_timeline_point *point;
    size_t count, capacity;
    unsigned shift;
    uint64_t last_ns; /* of the last point's span */
} curve;

typedef struct timeline {
    const cm_run *run;
    curve *device;
    size_t devices, device_capacity;
    curve rss, rest;
    size_t limit; /* of points of a curve */
} timeline;

static void join(cm_timeline_point *into, const cm_timeline_point *next)
{
    if (next->min < into->min)
        into->min = next->min;
    if (next->max > into->max)
        into->max = next->max;
    if (next->reserved > into->reserved)
        into->reserved = next->reserved;
    into->last = next->last;
}

static void halve(curve *c)
{
    size_t kept = 0;
    uint64_t span = UINT64_MAX;
    c->shift++;
    for (size_t i = 0; i < c->count; i++) {
        uint64_t now = c->point[i].time_ns >> c->shift;
        if (kept > 0 && now == span) {
            join(&c->point[kept - 1], &c->point[i]);
        } else {
            c->point[kept++] = c->point[i];
            span = now;
        }
    }
    c->count = kept;
    c->last_ns |= ((uint64_t)1 << c->shift) - 1;
}

static bool add_point(curve *c, size_t limit, uint64_t time_ns, int64_t value, int64_t reserved);

/* reserved: the allocator's bytes now, -1 unknown. */
static inline bool add(curve *c, size_t limit, uint64_t time_ns, int64_t value, int64_t reserved)
{
    if (time_ns <= c->last_ns && c->count > 0) { /* a time may step back a little */
        cm_timeline_point *p = &c->point[c->count - 1];
        if (value < p->min)
            p->min = value;
        if (value > p->max)
            p->max = value;
        if (reserved > p->reserved)
            p->reserved = reserved;
        p->last = value;
        return true;
    }
    return add_point(c, limit, time_ns, value, reserved);
}

static CM_OWN_FRAME bool add_point(curve *c, size_t limit, uint64_t time_ns, int64_t value,
                                   int64_t reserved)
{
    while (c->count >= limit && c->shift < 63)
        halve(c);
    if (time_ns <= c->last_ns && c->count > 0)
        return add(c, limit, time_ns, value, reserved);
    if (!cm_grow((void **)&c->point, &c->capacity, c->count + 1, sizeof *c->point))
        return false;
    c->point[c->count++] = (cm_timeline_point){time_ns, value, value, value, reserved};
    c->last_ns = time_ns | (((uint64_t)1 << c->shift) - 1);
    return true;
}

static bool know_devices(timeline *t)
{
    const cm_replay *replay = t->run->replay;
    if (!cm_grow((void **)&t->device, &t->device_capacity, replay->device_count, sizeof *t->device))
        return false;
    for (; t->devices < replay->device_count; t->devices++)
        t->device[t->devices] = (curve){.shift = FIRST_SHIFT};
    return true;
}

static void *create(const cm_run *run)
{
    timeline *t = calloc(1, sizeof *t);
    if (t == NULL)
        return NULL;
    t->run = run;
    t->limit = run->options->timeline_points ? run->options->timeline_points : POINTS;
    if (t->limit < 2)
        t->limit = 2;
    t->rss.shift = t->rest.shift = FIRST_SHIFT;
    bool fine = know_devices(t);
    for (size_t i = 0; fine && i < t->devices; i++) {
        const cm_device *d = &run->replay->device[i];
        fine = add(&t->device[i], t->limit, run->begin_ns, d->live, d->reserved);
    }
    if (!fine) {
        cm_part_timeline.destroy(t);
        return NULL;
    }
    return t;
}

static bool change(void *part, const cm_change *c)
{
    timeline *t = part;
    uint16_t number = c->block.device;
    if (number >= t->devices && !know_devices(t))
        return false;
    return add(&t->device[number], t->limit, c->time_ns, c->live,
               t->run->replay->device[number].reserved);
}

static bool see_sample(timeline *t, const cm_record *record)
{
    const cm_event *e = &record->event;
    if (e->size < 0)
        return true;
    if (e->address == CM_SAMPLE_RSS)
        return add(&t->rss, t->limit, record->time_ns, e->size, -1);
    return e->address != CM_SAMPLE_USED || add(&t->rest, t->limit, record->time_ns,
                                               e->size - cm_replay_host_live(t->run->replay), -1);
}

static bool event(void *part, const cm_record *record)
{
    timeline *t = part;
    const cm_event *e = &record->event;
    if (e->kind == CM_EV_SAMPLE)
        return see_sample(t, record);
    const cm_replay *replay = t->run->replay;
    int number = cm_replay_find_device(replay, e->device_type, e->device_index);
    if (number < 0)
        return true;
    if (!know_devices(t))
        return false;
    const cm_device *d = &replay->device[number];
    return add(&t->device[number], t->limit, record->time_ns, d->live, d->reserved);
}

/* The highest or the lowest of each span. */
static bool copy(const curve *c, cm_rss_point **out, size_t *count, bool highest)
{
    if (c->count == 0)
        return true;
    *out = malloc(c->count * sizeof **out);
    if (*out == NULL)
        return false;
    for (size_t i = 0; i < c->count; i++) {
        const cm_timeline_point *p = &c->point[i];
        (*out)[(*count)++] = (cm_rss_point){p->time_ns, highest ? p->max : p->min};
    }
    return true;
}

static bool finish(void *part, cm_analysis *out)
{
    timeline *t = part;
    if (!know_devices(t))
        return false;
    for (size_t i = 0; i < t->devices; i++) {
        curve *c = &t->device[i];
        /* It never had a block: a failed request made it known. */
        if (c->count == 0 &&
            !add(c, t->limit, t->run->begin_ns, 0, t->run->replay->device[i].reserved))
            return false;
        cm_device_report *r = &out->device[i];
        r->timeline = c->point;
        r->timeline_count = c->count;
        r->reserved_peak = -1;
        for (size_t j = 0; j < c->count; j++)
            if (c->point[j].reserved > r->reserved_peak)
                r->reserved_peak = c->point[j].reserved;
        c->point = NULL;
    }
    return copy(&t->rss, &out->rss, &out->rss_count, true) &&
           copy(&t->rest, &out->rest, &out->rest_count, false);
}

static void destroy(void *part)
{
    timeline *t = part;
    for (size_t i = 0; i < t->devices; i++)
        free(t->device[i].point);
    free(t->device);
    free(t->rss.point);
    free(t->rest.point);
    free(t);
}

const cm_part_kind cm_part_timeline = {.name = "timeline",
                                       .create = create,
                                       .change = change,
                                       .event = event,
                                       .events = CM_PART_EVENT(CM_EV_SAMPLE) |
                                                 CM_PART_EVENT(CM_EV_RESERVED),
                                       .finish = finish,
                                       .destroy = destroy};
