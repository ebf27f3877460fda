/* What Python's collections freed on each device: bytes that only reference cycles held until then.
 *
 * What the highest moment had of it are blocks that were alive there and that collections behind it
 * freed, up to the first full one: that one frees all garbage, so what a later one frees was still
 * in use. So may be, of a stack, what its last step before that moment made: it does not count. A
 * collection behind the last step also frees what the program was done with: it counts for stacks
 * of which one in the loop freed some.
 *
 * Of the blocks born behind the highest moment those of its step are noted; the step tells the
 * others. */
#include <stdlib.h>

#include "../base/idmap.h"
#include "contributors.h"
#include "parts.h"

enum { FULL = 2 }; /* generation */

typedef struct births {  /* of one stack on one device */
    uint32_t moment;     /* of `before` */
    int32_t now, before; /* step of the last: now, and at the highest moment */
    bool collected;      /* some by a collection in the loop */
} births;

typedef struct device {
    cm_garbage sum;
    int64_t now; /* freed by the running collection */
    bool refused;
    int64_t most; /* live bytes */
    int32_t step; /* of that moment */
    uint32_t moment;
    bool after_full; /* a full collection has run since */
} device;

typedef struct origin {
    uint32_t births; /* number + 1, 0 = not known yet */
    uint32_t moment; /* of at_peak: an older one has none */
    cm_amount at_peak;
} origin;

typedef struct garbage {
    const cm_run *run;
    device device[CM_DEVICES_MAX];
    unsigned depth; /* of collections: that at the end has automatic ones inside */
    bool final;
    bool left;         /* a request was refused whose exception will leave the window ... */
    int64_t left_step; /* ... in this step */
    uint32_t collector;
    cm_idmap later; /* device and address of blocks born behind a moment -> its number */
    origin *origin;
    size_t origin_capacity;
    births *births;
    size_t births_count, births_capacity;
    cm_idmap births_of; /* stack and device -> number + 1 */
} garbage;

static void *create(const cm_run *run)
{
    garbage *g = calloc(1, sizeof *g);
    if (g == NULL)
        return NULL;
    g->run = run;
    for (size_t i = 0; i < run->replay->device_count; i++)
        g->device[i] = (device){.most = run->replay->device[i].live, .step = -1};
    return g;
}

static uint64_t key_of(const cm_block *block)
{
    return (block->address ^ (uint64_t)block->device << 48) & (UINT64_MAX >> 1);
}

static bool know_origin(garbage *g, const cm_block *block)
{
    if (!cm_grow_zeroed((void **)&g->origin, &g->origin_capacity, (size_t)block->origin + 1,
                        sizeof *g->origin))
        return false;
    uint32_t *number = &g->origin[block->origin].births;
    if (*number != 0)
        return true;
    uint64_t key = (uint64_t)block->device << 32 | g->run->replay->origin[block->origin].own;
    if (cm_idmap_get(&g->births_of, key, number))
        return true;
    if (!cm_grow((void **)&g->births, &g->births_capacity, g->births_count + 1, sizeof *g->births))
        return false;
    g->births[g->births_count++] = (births){.now = -1, .before = -1};
    *number = (uint32_t)g->births_count;
    return cm_idmap_put(&g->births_of, key, *number);
}

/* Of the block's stack; NULL: out of memory. */
static births *births_of(garbage *g, const cm_block *block)
{
    return know_origin(g, block) ? &g->births[g->origin[block->origin].births - 1] : NULL;
}

static bool see_birth(garbage *g, device *d, const cm_change *c)
{
    if (c->live > d->most) {
        d->most = c->live;
        d->step = c->block.step;
        d->moment++;
        d->after_full = false;
    } else if (!c->event) { /* it has another origin now */
        return true;
    } else if (c->block.step == d->step && !cm_idmap_put(&g->later, key_of(&c->block), d->moment)) {
        return false;
    }
    births *b = births_of(g, &c->block);
    if (b == NULL)
        return false;
    if (c->live != d->most && b->moment != d->moment) {
        b->moment = d->moment;
        b->before = b->now;
    }
    b->now = c->block.step;
    return true;
}

/* Whether a block that dies was alive at the device's highest moment. */
static bool was_at_peak(garbage *g, const device *d, const cm_block *block)
{
    uint32_t moment;
    bool noted = g->later.count > 0 && cm_idmap_get(&g->later, key_of(block), &moment);
    if (noted)
        cm_idmap_remove(&g->later, key_of(block));
    return (!noted || moment != d->moment) && (!block->made || block->step <= d->step);
}

static bool in_loop(const garbage *g)
{
    const cm_steps *steps = g->run->steps;
    return !g->final && (steps->count == 0 || g->run->replay->step < (int64_t)steps->count);
}

static bool may_be_in_use(const garbage *g, const device *d, const births *b, int32_t step)
{
    return g->run->steps->count > 0 && step == (b->moment == d->moment ? b->before : b->now);
}

static bool collect(garbage *g, device *d, const cm_change *c, bool at_peak)
{
    births *b = births_of(g, &c->block);
    if (b == NULL)
        return false;
    d->now -= c->bytes;
    b->collected |= in_loop(g);
    if (!at_peak || d->after_full || !b->collected || may_be_in_use(g, d, b, c->block.step))
        return true;
    origin *o = &g->origin[c->block.origin];
    if (o->moment != d->moment) {
        o->moment = d->moment;
        o->at_peak = (cm_amount){0};
    }
    o->at_peak.bytes -= c->bytes;
    o->at_peak.count++;
    return true;
}

static bool change(void *part, const cm_change *c)
{
    garbage *g = part;
    device *d = &g->device[c->block.device];
    if (c->bytes > 0)
        return see_birth(g, d, c);
    if (!c->event)
        return true;
    bool at_peak = was_at_peak(g, d, &c->block);
    return g->depth == 0 || c->thread != g->collector || collect(g, d, c, at_peak);
}

/* Refused memory ends the program: what is freed now is in after_oom alone. */
static bool is_over(const garbage *g)
{
    return g->left && g->run->replay->step == g->left_step;
}

static void end_collection(garbage *g, bool full)
{
    for (size_t i = 0; i < g->run->replay->device_count; i++) {
        device *d = &g->device[i];
        if (d->refused)
            d->sum.after_oom += d->now;
        if (!g->final && !is_over(g) && d->now > 0) {
            d->sum.collections++;
            d->sum.freed += d->now;
            if (in_loop(g) && d->now > d->sum.most)
                d->sum.most = d->now;
        }
        d->now = 0;
        d->after_full |= full;
    }
}

static void see_oom(garbage *g, const cm_event *e)
{
    int number = cm_replay_find_device(g->run->replay, e->device_type, e->device_index);
    if (number < 0)
        return;
    g->device[number].sum.after_oom = 0;
    g->device[number].refused = true;
    const cm_replay *replay = g->run->replay;
    if (g->run->plan->oom_left != 0 && g->run->plan->oom_left == replay->position) {
        g->left = true;
        g->left_step = replay->step;
    }
}

static bool event(void *part, const cm_record *record)
{
    garbage *g = part;
    const cm_event *e = &record->event;
    if (e->kind == CM_EV_OOM) {
        see_oom(g, e);
    } else if (e->size == CM_MARK_COLLECT_BEGIN || e->size == CM_MARK_FINAL_COLLECT_BEGIN) {
        if (g->depth++ == 0)
            g->final = e->size == CM_MARK_FINAL_COLLECT_BEGIN;
        g->collector = record->thread;
    } else if ((e->size == CM_MARK_COLLECT_END || e->size == CM_MARK_FINAL_COLLECT_END) &&
               g->depth > 0 && --g->depth == 0) {
        end_collection(g, g->final || e->address == FULL);
    }
    return true;
}

static bool gather(const garbage *g, size_t number, cm_garbage *sum)
{
    const cm_replay *replay = g->run->replay;
    cm_contributors list = {0};
    bool fine = true;
    for (uint32_t i = 0; fine && i < g->origin_capacity && i < replay->origin_count; i++) {
        const origin *o = &g->origin[i];
        if (replay->origin[i].device != number || o->moment != g->device[number].moment ||
            o->at_peak.count == 0)
            continue;
        sum->at_peak += o->at_peak.bytes;
        fine = cm_contributors_add(&list, replay, i, o->at_peak);
    }
    cm_contributors_sort(list.contributor, list.count);
    sum->contributors = list.contributor;
    sum->contributor_count = list.count;
    return fine;
}

static bool finish(void *part, cm_analysis *out)
{
    garbage *g = part;
    for (size_t i = 0; i < out->device_count; i++)
        out->device[i].garbage = g->device[i].sum;
    for (size_t i = 0; i < out->device_count; i++)
        if (!gather(g, i, &out->device[i].garbage))
            return false;
    return true;
}

static void destroy(void *part)
{
    garbage *g = part;
    cm_idmap_clear(&g->later);
    cm_idmap_clear(&g->births_of);
    free(g->births);
    free(g->origin);
    free(g);
}

const cm_part_kind cm_part_garbage = {.name = "garbage",
                                      .create = create,
                                      .change = change,
                                      .event = event,
                                      .events =
                                          CM_PART_EVENT(CM_EV_OOM) | CM_PART_EVENT(CM_EV_MARK),
                                      .finish = finish,
                                      .destroy = destroy};
