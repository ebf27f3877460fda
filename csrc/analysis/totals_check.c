/* The allocator's own total against the recorded heap: a difference means missing events. A
 * deferred free counts as a free in both. */
#include <stdlib.h>

#include "parts.h"

typedef struct device {
    cm_totals_check sure;    /* of finished stretches */
    cm_totals_check pending; /* since the last bound: perhaps compacted */
} device;

typedef struct check {
    const cm_run *run;
    device device[CM_DEVICES_MAX];
} check;

static void *create(const cm_run *run)
{
    check *c = calloc(1, sizeof *c);
    if (c != NULL)
        c->run = run;
    return c;
}

static void compare(device *d, int64_t reported, int64_t live)
{
    cm_totals_check *p = &d->pending;
    bool differs = reported != live;
    p->checked++;
    p->differ += differs;
    if (differs || p->differ == 0) {
        p->reported = reported;
        p->live = live;
    }
}

static void confirm(check *c)
{
    for (size_t i = 0; i < c->run->replay->device_count; i++) {
        cm_totals_check *sure = &c->device[i].sure, *p = &c->device[i].pending;
        if (p->checked > 0 && (p->differ > 0 || sure->differ == 0)) {
            sure->reported = p->reported;
            sure->live = p->live;
        }
        sure->checked += p->checked;
        sure->differ += p->differ;
        *p = (cm_totals_check){0};
    }
}

static void forget(check *c)
{
    for (size_t i = 0; i < c->run->replay->device_count; i++)
        c->device[i].pending = (cm_totals_check){0};
}

static bool event(void *part, const cm_record *record)
{
    check *c = part;
    const cm_event *e = &record->event;
    switch (e->kind) {
    case CM_EV_RESERVED: {
        int number = cm_replay_find_device(c->run->replay, e->device_type, e->device_index);
        const cm_device *d = number >= 0 ? &c->run->replay->device[number] : NULL;
        if (d != NULL)
            compare(&c->device[number], (int64_t)e->address, d->live - d->direct);
        return true;
    }
    case CM_EV_COMPACTED: /* it is about what came before it */
        forget(c);
        return true;
    case CM_EV_MARK:
        if (cm_mark_is_inside_step(e->size))
            return true;
        confirm(c);
        return true;
    case CM_EV_TICK: /* where a compacted stretch begins (compact.h) */
    case CM_EV_SEED:
        confirm(c);
        return true;
    default:
        return true;
    }
}

static bool finish(void *part, cm_analysis *out)
{
    check *c = part;
    confirm(c);
    for (size_t i = 0; i < out->device_count; i++)
        out->device[i].check = c->device[i].sure;
    return true;
}

static void destroy(void *part)
{
    free(part);
}

const cm_part_kind cm_part_check = {
    .name = "check",
    .create = create,
    .event = event,
    .events = CM_PART_EVENT(CM_EV_RESERVED) | CM_PART_EVENT(CM_EV_COMPACTED) |
              CM_PART_EVENT(CM_EV_MARK) | CM_PART_EVENT(CM_EV_TICK) | CM_PART_EVENT(CM_EV_SEED),
    .finish = finish,
    .destroy = destroy};
