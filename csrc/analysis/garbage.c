/* What Python's collections freed on each device: bytes that only reference cycles held until then.
 *
 * What the highest moment had of it are blocks that were alive there and that collections behind it
 * freed, up to the first full one: that one frees all garbage, so what a later one frees was still
 * in use. So may be, of a stack, what its last step before that moment made: it does not count. A
 * collection behind the last step also frees what the program was done with: it counts for stacks
 * of which one in the loop freed some.
 *
 * The same holds for the last refused request. While its exception is on its way the traceback
 * holds what was in use, so that no stack is left out until a step has begun behind it.
 *
 * Of the blocks born behind a moment those of its step are noted; the step tells the others. */
#include <stdlib.h>

#include "../base/idmap.h"
#include "../base/own_frame.h"
#include "contributors.h"
#include "parts.h"

enum { FULL = 2 }; /* generation */

enum { PEAK, REFUSAL, MOMENTS };

typedef struct births { /* of one stack on one device */
    int32_t now;        /* step of the last ... */
    struct {
        uint32_t moment;
        int32_t step;
    } before[MOMENTS]; /* ... and of the last before that moment */
    bool collected;    /* some by a collection in the loop */
} births;

typedef struct moment {
    uint32_t number; /* 0 = not yet */
    int32_t step;
    bool after_full; /* a full collection has run since */
} moment;

typedef struct device {
    cm_garbage sum;
    int64_t now, refused; /* freed by the running collection; of it alive at the refusal */
    uint32_t moments;
    moment moment[MOMENTS];
} device;

typedef struct origin {
    uint32_t births; /* number + 1, 0 = not known yet */
    uint32_t moment; /* of at_peak: an older one has none */
    cm_amount at_peak, freed;
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
    int32_t later_from, later_to; /* their steps */
    origin *origin;
    size_t origin_capacity;
    births *births;
    size_t births_count, births_capacity;
    cm_idmap births_of; /* stack and device -> number + 1 */
} garbage;

static void begin_moment(device *d, int moment, int32_t step)
{
    d->moment[moment] = (struct moment){.number = ++d->moments, .step = step};
}

static void *create(const cm_run *run)
{
    garbage *g = calloc(1, sizeof *g);
    if (g == NULL)
        return NULL;
    g->run = run;
    for (size_t i = 0; i < run->replay->device_count; i++)
        begin_moment(&g->device[i], PEAK, -1);
    return g;
}

static uint64_t key_of(const cm_block *block)
{
    return (block->address ^ (uint64_t)block->device << 48) & (UINT64_MAX >> 1);
}

static CM_OWN_FRAME bool know_origin(garbage *g, const cm_block *block)
{
    if (!cm_grow_zeroed((void **)&g->origin, &g->origin_capacity, (size_t)block->origin + 1,
                        sizeof *g->origin))
        return false;
    uint32_t *number = &g->origin[block->origin].births;
    uint64_t key = (uint64_t)block->device << 32 | g->run->replay->origin[block->origin].own;
    if (cm_idmap_get(&g->births_of, key, number))
        return true;
    if (!cm_grow((void **)&g->births, &g->births_capacity, g->births_count + 1, sizeof *g->births))
        return false;
    g->births[g->births_count++] = (births){.now = -1, .before = {{.step = -1}, {.step = -1}}};
    *number = (uint32_t)g->births_count;
    return cm_idmap_put(&g->births_of, key, *number);
}

/* Of the block's stack; NULL: out of memory. */
static births *births_of(garbage *g, const cm_block *block)
{
    bool known = block->origin < g->origin_capacity && g->origin[block->origin].births != 0;
    return known || know_origin(g, block) ? &g->births[g->origin[block->origin].births - 1] : NULL;
}

/* Whether its step does not tell whether the block is older than the moment. */
static bool is_of_a_moment(const device *d, int32_t step)
{
    return step == d->moment[PEAK].step ||
           (d->moment[REFUSAL].number != 0 && step == d->moment[REFUSAL].step);
}

static CM_OWN_FRAME bool note_later(garbage *g, const cm_block *block, uint32_t moment)
{
    if (g->later.count == 0)
        g->later_from = g->later_to = block->step;
    else if (block->step < g->later_from)
        g->later_from = block->step;
    else if (block->step > g->later_to)
        g->later_to = block->step;
    return cm_idmap_put(&g->later, key_of(block), moment);
}

static bool see_birth(garbage *g, device *d, const cm_change *c)
{
    bool highest = c->highest;
    if (highest) {
        begin_moment(d, PEAK, c->block.step);
    } else if (!c->event) { /* it has another origin now */
        return true;
    }
    if ((!highest || d->moment[REFUSAL].number != 0) && is_of_a_moment(d, c->block.step) &&
        !note_later(g, &c->block, highest ? d->moments - 1 : d->moments))
        return false;
    births *b = births_of(g, &c->block);
    if (b == NULL)
        return false;
    for (int i = 0; i < MOMENTS; i++)
        if (b->before[i].moment != d->moment[i].number && !(highest && i == PEAK)) {
            b->before[i].moment = d->moment[i].number;
            b->before[i].step = b->now;
        }
    b->now = c->block.step;
    return true;
}

/* Whether a block was alive at the moment. born: the last moment before its birth, if that is
 * noted. */
static bool was_at(const moment *m, const cm_block *block, const uint32_t *born)
{
    bool older = born == NULL || *born < m->number;
    return m->number != 0 && older && (!block->made || block->step <= m->step);
}

static bool in_loop(const garbage *g)
{
    const cm_steps *steps = g->run->steps;
    return !g->final && (steps->count == 0 || g->run->replay->step < (int64_t)steps->count);
}

/* Whether nothing shows that the block was garbage at the moment, not only when it was freed. */
static bool may_be_in_use(const garbage *g, const device *d, const births *b, int32_t step,
                          int moment)
{
    int32_t last =
        b->before[moment].moment == d->moment[moment].number ? b->before[moment].step : b->now;
    return d->moment[moment].after_full || (g->run->steps->count > 0 && step == last);
}

static void collect_of_peak(const device *d, origin *o, int64_t bytes)
{
    if (o->moment != d->moment[PEAK].number) {
        o->moment = d->moment[PEAK].number;
        o->at_peak = (cm_amount){0};
    }
    o->at_peak.bytes += bytes;
    o->at_peak.count++;
}

static bool collect(garbage *g, device *d, const cm_change *c, const bool was[MOMENTS])
{
    births *b = births_of(g, &c->block);
    if (b == NULL)
        return false;
    d->now -= c->bytes;
    b->collected |= in_loop(g);
    if (was[PEAK] && b->collected && !may_be_in_use(g, d, b, c->block.step, PEAK))
        collect_of_peak(d, &g->origin[c->block.origin], -c->bytes);
    const moment *refusal = &d->moment[REFUSAL];
    bool on_its_way = g->run->replay->step == refusal->step && !refusal->after_full;
    if (was[REFUSAL] && (on_its_way || !may_be_in_use(g, d, b, c->block.step, REFUSAL)))
        d->refused -= c->bytes;
    else if (g->final)
        return true;
    origin *o = &g->origin[c->block.origin];
    o->freed.bytes -= c->bytes;
    o->freed.count++;
    return true;
}

static CM_OWN_FRAME bool see_death(garbage *g, device *d, const cm_change *c)
{
    uint32_t born;
    bool noted = g->later.count > 0 && cm_idmap_get(&g->later, key_of(&c->block), &born);
    if (noted)
        cm_idmap_remove(&g->later, key_of(&c->block));
    if (g->depth == 0 || c->thread != g->collector)
        return true;
    bool was[MOMENTS];
    for (int i = 0; i < MOMENTS; i++)
        was[i] = was_at(&d->moment[i], &c->block, noted ? &born : NULL);
    return collect(g, d, c, was);
}

static bool change(void *part, const cm_change *c)
{
    garbage *g = part;
    device *d = &g->device[c->block.device];
    if (c->bytes > 0)
        return see_birth(g, d, c);
    bool may_be_noted =
        g->later.count > 0 && c->block.step >= g->later_from && c->block.step <= g->later_to;
    return !c->event || (!may_be_noted && g->depth == 0) || see_death(g, d, c);
}

/* Refused memory ends the program: what was garbage then is in after_oom alone. */
static bool is_over(const garbage *g)
{
    return g->left && g->run->replay->step == g->left_step;
}

static void end_collection(garbage *g, bool full)
{
    for (size_t i = 0; i < g->run->replay->device_count; i++) {
        device *d = &g->device[i];
        d->sum.after_oom += d->refused;
        int64_t freed = d->now - (is_over(g) ? d->refused : 0);
        if (!g->final && freed > 0) {
            d->sum.collections++;
            d->sum.freed += freed;
            if (in_loop(g) && freed > d->sum.most)
                d->sum.most = freed;
        }
        d->now = d->refused = 0;
        for (int j = 0; j < MOMENTS; j++)
            d->moment[j].after_full |= full;
    }
}

static void see_oom(garbage *g, const cm_event *e)
{
    int number = cm_replay_find_device(g->run->replay, e->device_type, e->device_index);
    if (number < 0)
        return;
    const cm_replay *replay = g->run->replay;
    g->device[number].sum.after_oom = 0;
    begin_moment(&g->device[number], REFUSAL, replay->step);
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
    cm_contributors at_peak = {0}, freed = {0};
    bool fine = true;
    for (uint32_t i = 0; fine && i < g->origin_capacity && i < replay->origin_count; i++) {
        const origin *o = &g->origin[i];
        if (replay->origin[i].device != number)
            continue;
        if (o->freed.count > 0)
            fine = cm_contributors_add(&freed, replay, i, o->freed);
        if (o->moment != g->device[number].moment[PEAK].number || o->at_peak.count == 0)
            continue;
        sum->at_peak += o->at_peak.bytes;
        fine &= cm_contributors_add(&at_peak, replay, i, o->at_peak);
    }
    cm_contributors_sort(at_peak.contributor, at_peak.count);
    cm_contributors_sort(freed.contributor, freed.count);
    sum->contributors = at_peak.contributor;
    sum->contributor_count = at_peak.count;
    sum->freed_contributors = freed.contributor;
    sum->freed_count = freed.count;
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
