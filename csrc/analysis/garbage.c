/* What Python's collections freed on each device: bytes that only reference cycles held until then.
 */
#include <stdlib.h>

#include "parts.h"

typedef struct device {
    cm_garbage sum;
    int64_t now; /* freed by the running collection */
    bool refused;
} device;

typedef struct garbage {
    const cm_run *run;
    device device[CM_DEVICES_MAX];
    unsigned depth; /* of collections: that at the end has automatic ones inside */
    uint32_t collector;
} garbage;

static void *create(const cm_run *run)
{
    garbage *g = calloc(1, sizeof *g);
    if (g != NULL)
        g->run = run;
    return g;
}

static bool change(void *part, const cm_change *c)
{
    garbage *g = part;
    if (g->depth > 0 && c->bytes < 0 && c->event && c->thread == g->collector)
        g->device[c->block.device].now -= c->bytes;
    return true;
}

/* final: the collection at the recording's end, which also frees what the program was done with. */
static void end_collection(garbage *g, bool final)
{
    for (size_t i = 0; i < g->run->replay->device_count; i++) {
        device *d = &g->device[i];
        if (d->refused)
            d->sum.after_oom += d->now;
        if (!final && d->now > 0) {
            d->sum.collections++;
            d->sum.freed += d->now;
            if (d->now > d->sum.most)
                d->sum.most = d->now;
        }
        d->now = 0;
    }
}

static void see_oom(garbage *g, const cm_event *e)
{
    int number = cm_replay_find_device(g->run->replay, e->device_type, e->device_index);
    if (number < 0)
        return;
    g->device[number].sum.after_oom = 0;
    g->device[number].refused = true;
}

static bool event(void *part, const cm_record *record)
{
    garbage *g = part;
    const cm_event *e = &record->event;
    if (e->kind == CM_EV_OOM) {
        see_oom(g, e);
    } else if (e->size == CM_MARK_COLLECT_BEGIN || e->size == CM_MARK_FINAL_COLLECT_BEGIN) {
        g->depth++;
        g->collector = record->thread;
    } else if ((e->size == CM_MARK_COLLECT_END || e->size == CM_MARK_FINAL_COLLECT_END) &&
               g->depth > 0 && --g->depth == 0) {
        end_collection(g, e->size == CM_MARK_FINAL_COLLECT_END);
    }
    return true;
}

static bool finish(void *part, cm_analysis *out)
{
    garbage *g = part;
    for (size_t i = 0; i < out->device_count; i++)
        out->device[i].garbage = g->device[i].sum;
    return true;
}

static void destroy(void *part)
{
    free(part);
}

const cm_part_kind cm_part_garbage = {.name = "garbage",
                                      .create = create,
                                      .change = change,
                                      .event = event,
                                      .events =
                                          CM_PART_EVENT(CM_EV_OOM) | CM_PART_EVENT(CM_EV_MARK),
                                      .finish = finish,
                                      .destroy = destroy};
