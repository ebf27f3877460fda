/* Compacts one stretch after the other, in memory. Pairs of events are tied: allocation and free, a
 * node's creation and end, a run's start and end. A run is tied to what decides its blocks'
 * attribution (nodes.h). Events without a partner stay; the peak decides which pairs stay; and each
 * that stays keeps what it depends on. */
#include <stdlib.h>
#include <string.h>

#include "../base/grow.h"
#include "compact_parts.h"

cm_compaction *cm_compact_new(cm_compact_put put, void *context)
{
    cm_compaction *c = calloc(1, sizeof *c);
    if (c == NULL)
        return NULL;
    c->put = put;
    c->context = context;
    c->want_node = true;
    c->nodes = cm_nodes_new();
    c->leads = cm_clock_leads_new();
    if (c->nodes != NULL && c->leads != NULL)
        return c;
    cm_compact_free(c);
    return NULL;
}

void cm_compact_free(cm_compaction *c)
{
    if (c == NULL)
        return;
    for (size_t i = 0; i < c->thread_count; i++)
        free(c->threads[i].frame);
    free(c->threads);
    free(c->items);
    free(c->stack_seen);
    free(c->todo);
    free(c->touched);
    free(c->total);
    free(c->work);
    cm_idmap_clear(&c->work_of);
    cm_driver_map_free(c->driver.map);
    cm_idmap_clear(&c->driver.given);
    cm_idmap_clear(&c->driver.events);
    cm_idmap_clear(&c->driver.records);
    cm_idmap_clear(&c->driver.gone_at);
    free(c->driver.gone);
    cm_blocks_clear(&c->blocks);
    cm_idmap_clear(&c->by_number);
    cm_idmap_clear(&c->by_autograd);
    cm_idmap_clear(&c->made);
    cm_nodes_free(c->nodes);
    cm_clock_leads_free(c->leads);
    free(c);
}

uint64_t cm_compact_bytes(const cm_compaction *c)
{
    return sizeof *c + c->capacity * sizeof *c->items + cm_blocks_bytes(&c->blocks) +
           c->made.slots * sizeof *c->made.slot + c->todo_capacity * sizeof *c->todo +
           c->thread_capacity * sizeof *c->threads + c->stack_seen_bytes +
           (c->driver.given.slots + c->driver.events.slots + c->driver.records.slots +
            c->driver.gone_at.slots) *
               sizeof *c->driver.given.slot +
           cm_clock_leads_bytes(c->leads) +
           (c->driver.gone != NULL ? GONE * sizeof *c->driver.gone : 0) +
           (c->driver.map != NULL ? sizeof *c->driver.map +
                                        c->driver.map->capacity * sizeof *c->driver.map->allocation
                                  : 0);
}

/* --- threads -------------------------------------------------------------------------------- */

static compact_thread *find_or_add_thread(cm_compaction *c, uint32_t number)
{
    uint32_t at;
    if (cm_idmap_get(&c->by_number, number, &at)) {
        c->last_thread = at;
        return &c->threads[at];
    }
    compact_thread fresh = {.number = number};
    if (!cm_grow((void **)&fresh.frame, &fresh.capacity, 1, sizeof *fresh.frame))
        return NULL;
    fresh.frame[fresh.frames++] = (compact_frame){0};
    if (!cm_grow((void **)&c->threads, &c->thread_capacity, c->thread_count + 1,
                 sizeof *c->threads) ||
        !cm_idmap_put(&c->by_number, number, (uint32_t)c->thread_count)) {
        free(fresh.frame);
        return NULL;
    }
    c->threads[c->thread_count] = fresh;
    return &c->threads[c->thread_count++];
}

static inline compact_thread *find_thread(cm_compaction *c, uint32_t number)
{
    if (c->thread_count > 0 && c->threads[c->last_thread].number == number)
        return &c->threads[c->last_thread];
    return find_or_add_thread(c, number);
}

static bool touch(cm_compaction *c, compact_thread *t)
{
    if (t->touched)
        return true;
    if (!cm_grow((void **)&c->touched, &c->touched_capacity, c->touched_count + 1,
                 sizeof *c->touched))
        return false;
    c->touched[c->touched_count++] = (uint32_t)(t - c->threads);
    return t->touched = true;
}

/* --- one event ------------------------------------------------------------------------------ */

static cm_tick tick_of(const cm_event *e, uint32_t thread)
{
    return (cm_tick){.stack = e->stack,
                     .thread = thread,
                     .kind = (uint32_t)e->size,
                     .no_grad = e->flags & CM_EVF_NO_GRAD};
}

/* A window is read by itself, so that highest values and first events begin again. */
static void begin_window(cm_compaction *c)
{
    cm_clock_leads_relearn(c->leads);
    c->want_node = true;
    for (size_t i = 0; i < c->devices; i++) {
        c->device[i].oom = false;
        c->device[i].most_reserved = -1;
    }
    for (size_t i = 0; i < 256; i++)
        c->device_totals[i].known = c->device_totals[i].quiet_known = false;
}

static bool note(cm_compaction *c, uint32_t number, const cm_event *e, uint32_t at)
{
    if (!cm_nodes_apply(c->nodes, number, e))
        return false;
    compact_thread *t = find_thread(c, number);
    if (t == NULL || (at != 0 && !touch(c, t)))
        return false;
    switch (e->kind) {
    case CM_EV_ALLOC:
        return cm_compact_allocate(c, t, &(cm_record){.event = *e, .thread = number}, at);
    case CM_EV_FREE:
    case CM_EV_SEGMENT_FREE:
        cm_compact_release(c, t, e, at);
        return true;
    case CM_EV_OPERATOR: /* stays if an allocation after it does */
        t->named = at;
        if (at != 0)
            c->items[at].nothing = true;
        return true;
    case CM_EV_DEFERRED_FREE:
        t->deferral = at;
        return true;
    case CM_EV_LAUNCH:
    case CM_EV_WORK:
        if (at != 0)
            c->items[at].nothing = !(e->flags & CM_EVF_SUMMED);
        return true;
    case CM_EV_DEVICE:
        t->driver = 0;
        cm_compact_see_totals(c, t, e, at);
        return true;
    case CM_EV_POOL:
        t->driver = 0;
        cm_compact_see_pool(c, t, e, at);
        return true;
    case CM_EV_DRIVER_NEW:
    case CM_EV_DRIVER_FREE:
    case CM_EV_DRIVER_RECORD:
        return cm_compact_see_driver(c, t, &(cm_record){.event = *e, .thread = number}, at);
    case CM_EV_DRIVER_MORE:
        return cm_compact_driver_more(c, t, &(cm_record){.event = *e, .thread = number}, at);
    case CM_EV_REQUESTED:
        cm_compact_tie_request(c, e, at);
        return true;
    case CM_EV_NODE_NEW:
        return cm_compact_make_node(c, t, e, at);
    case CM_EV_NODE_FREE:
        cm_compact_free_node(c, e, at);
        return true;
    case CM_EV_NODE_RUN:
        return cm_compact_run_node(c, t, e, at);
    case CM_EV_NODE_DONE:
        cm_compact_end_node(c, t, at);
        return true;
    case CM_EV_LOST: /* it stays; what was running is unknown from here on */
        t->frames = 1;
        t->unseen = 0;
        t->frame[0] = (compact_frame){0};
        return true;
    case CM_EV_THREAD: {
        uint64_t id = (uint64_t)e->size;
        return id == 0 || id == UINT64_MAX || cm_idmap_put(&c->by_autograd, id, number);
    }
    case CM_EV_SEED:
        return cm_compact_find_alive(c, e);
    case CM_EV_OOM:
        cm_compact_see_oom(c, e, at);
        return true;
    case CM_EV_SEGMENT_NEW:
        cm_compact_keep_given(c, e->address); /* segments stay */
        cm_compact_find_device(c, e, true);
        return true;
    case CM_EV_HOST_READ:
        cm_compact_find_device(c, e, true);
        return true;
    case CM_EV_RESERVED:
        cm_compact_see_reserved(c, e, at);
        return true;
    case CM_EV_MARK:
        if (e->size == CM_MARK_WINDOW_OPEN)
            begin_window(c);
        return true;
    case CM_EV_TICK: {
        cm_tick tick = tick_of(e, number);
        cm_clock_lead lead;
        return cm_clock_leads_tick(c->leads, &tick, &lead);
    }
    default:
        return true;
    }
}

static bool is_bound(const cm_compaction *c, const cm_event *e)
{
    switch (e->kind) {
    case CM_EV_TICK:
    case CM_EV_SEED:
        return true;
    case CM_EV_NODE_NEW:
        return c->want_node;
    case CM_EV_MARK:
        return !cm_mark_is_inside_step(e->size);
    default:
        return false;
    }
}

bool cm_compact_see(cm_compaction *c, uint32_t thread, const cm_event *events, size_t count)
{
    for (size_t i = 0; i < count;) {
        if (!cm_compact_is_of_blocks(&events[i])) {
            if (!note(c, thread, &events[i++], 0))
                return false;
            continue;
        }
        const compact_thread *t = find_thread(c, thread);
        size_t blocks = t == NULL ? SIZE_MAX : cm_compact_see_blocks(c, t, events + i, count - i);
        if (blocks == SIZE_MAX || (blocks == 0 && !note(c, thread, &events[i++], 0)))
            return false;
        i += blocks;
    }
    return true;
}

static void keep_lead(void *context, cm_moment at)
{
    cm_compaction *c = context;
    if (at.position > c->passed)
        cm_compact_must_stay(c, (uint32_t)(at.position - c->passed));
}

static bool end_stretch(cm_compaction *c, const cm_tick *next);

bool cm_compact_add(cm_compaction *c, uint32_t thread, const cm_event *event)
{
    bool bound = is_bound(c, event);
    bool begins =
        event->kind == CM_EV_ALLOC && cm_clock_leads_may_begin(c->leads, event->stack, thread);
    /* An event's details stay with it. */
    bool full = c->count >= CM_COMPACT_STRETCH && event->kind != CM_EV_DRIVER_MORE;
    cm_tick tick = tick_of(event, thread);
    if ((bound || begins || full) && !end_stretch(c, event->kind == CM_EV_TICK ? &tick : NULL))
        return false;
    if (bound)
        return note(c, thread, event, 0) && c->put(c->context, thread, event);
    if (c->count == 0) { /* a new stretch: peaks begin again */
        for (size_t i = 0; c->driver.map != NULL && i < CM_TOTALS_DEVICES; i++) {
            c->driver.place[i].most = c->driver.map->totals.device[i].bytes;
            c->driver.place[i].at = 0;
        }
        for (size_t i = 0; i < c->devices; i++) {
            c->device[i].live = c->device[i].most = 0;
            memset(c->device[i].at, 0, sizeof c->device[i].at);
        }
    }
    if (!cm_grow((void **)&c->items, &c->capacity, c->count + 2, sizeof *c->items))
        return false;
    c->items[++c->count] = (compact_item){.event = *event, .thread = thread, .must = begins};
    return note(c, thread, event, (uint32_t)c->count);
}

/* --- a stretch's end ------------------------------------------------------------------------ */

static bool was_at_peak(const cm_compaction *c, uint32_t at)
{
    const compact_item *it = &c->items[at];
    if (it->event.kind != CM_EV_ALLOC)
        return false;
    const uint32_t *point = c->device[it->device].at;
    for (size_t i = 0; i < POINTS; i++)
        if (at <= point[i] && it->partner > point[i])
            return true;
    return false;
}

static bool choose(cm_compaction *c)
{
    for (uint32_t i = 1; i <= c->count; i++) {
        const compact_item *it = &c->items[i];
        bool halved = it->partner == 0 && !it->nothing;
        bool driver = it->event.kind == CM_EV_DRIVER_NEW;
        if ((halved || it->must || was_at_peak(c, i) ||
             (driver && cm_compact_was_given_then(c, i))) &&
            !cm_compact_keep(c, i))
            return false;
    }
    for (size_t i = 0; i < 256; i++)
        for (size_t j = 0; j < TOTALS; j++)
            if (!cm_compact_keep(c, c->device_totals[i].at[j]))
                return false;
    /* Running nodes, their operators, and the line that the next leaf inherits. */
    while (c->touched_count > 0) {
        compact_thread *t = &c->threads[c->touched[--c->touched_count]];
        t->touched = false;
        /* The rest of a chain comes in the next stretch. */
        if (!cm_compact_keep(c, t->chain) || !cm_compact_keep(c, t->driver) ||
            !cm_compact_keep(c, t->named))
            return false;
        t->driver = 0;
        t->split = t->split || (t->chain != 0 && c->items[t->chain].event.kind == CM_EV_DEVICE);
        t->chain = t->deferral = t->named = 0;
        for (size_t j = 0; j < t->frames; j++) {
            if (!cm_compact_keep(c, t->frame[j].setter))
                return false;
            t->frame[j].run = t->frame[j].setter = 0;
        }
    }
    return true;
}

/* A block's category depends on whether nodes run while it is alive (heap/fates.h). So the first
 * run after an allocation outside of nodes stays, without what its own blocks need. */
static void keep_backwards(cm_compaction *c)
{
    bool running = false;
    for (uint32_t i = 1; i <= c->count; i++) {
        compact_item *it = &c->items[i];
        if (it->event.kind == CM_EV_ALLOC && !(it->event.flags & CM_EVF_IN_NODE))
            running = false;
        if (it->event.kind != CM_EV_NODE_RUN || running)
            continue;
        running = it->keep = true;
        if (it->partner != 0)
            c->items[it->partner].keep = true;
    }
}

static bool new_total(cm_compaction *c, compact_thread *t, compact_total fresh)
{
    if (!cm_grow((void **)&c->total, &c->total_capacity, c->totals + 1, sizeof *c->total))
        return false;
    fresh.before = t->total;
    c->total[c->totals++] = fresh;
    t->total = (uint32_t)c->totals;
    return true;
}

/* Adds a pair left out. */
static bool add_total(cm_compaction *c, const compact_item *it)
{
    compact_thread *of = find_thread(c, it->thread);
    if (of == NULL)
        return false;
    for (uint32_t i = of->total; i != 0; i = c->total[i - 1].before) {
        compact_total *t = &c->total[i - 1];
        if (t->device == it->device && t->charge == it->charge) {
            t->blocks++;
            t->bytes += it->event.size;
            return true;
        }
    }
    return new_total(c, of,
                     (compact_total){it->thread, it->device, it->charge, 1, it->event.size, 0});
}

/* A thread that only freed others' blocks has a total too, of no blocks. */
static bool add_thread(cm_compaction *c, const compact_item *it)
{
    compact_thread *of = find_thread(c, it->thread);
    if (of == NULL || of->total != 0)
        return of != NULL;
    uint8_t device = it->partner != 0 ? c->items[it->partner].device : it->device;
    return new_total(c, of, (compact_total){.thread = it->thread, .device = device});
}

static bool put_sums(cm_compaction *c, uint64_t left_out, uint64_t runs, uint32_t nodes)
{
    uint64_t time = c->items[c->count].event.time;
    if (!cm_compact_put_work(c, time) || !cm_compact_put_drivers(c, time))
        return false;
    for (size_t i = 0; i < c->totals; i++) {
        const compact_total *t = &c->total[i];
        cm_event e = {.kind = CM_EV_COMPACTED_BLOCKS,
                      .time = time,
                      .address = t->blocks,
                      .size = t->bytes,
                      .flags = t->charge,
                      .device_type = c->device[t->device].type,
                      .device_index = c->device[t->device].index};
        if (!c->put(c->context, t->thread, &e))
            return false;
        compact_thread *of = find_thread(c, t->thread);
        if (of == NULL)
            return false;
        of->total = 0;
    }
    cm_event e = {.kind = CM_EV_COMPACTED,
                  .time = time,
                  .flags = CM_EVF_LEADS,
                  .address = left_out,
                  .size = (int64_t)runs,
                  .stack = nodes,
                  .device_index = -1};
    return left_out == 0 || c->put(c->context, 0, &e);
}

static bool put_stretch(cm_compaction *c)
{
    uint64_t left_out = 0, runs = 0;
    uint32_t nodes = 0;
    c->totals = 0;
    for (uint32_t i = 1; i <= c->count; i++) {
        const compact_item *it = &c->items[i];
        if (it->keep) {
            if (!c->put(c->context, it->thread, &it->event))
                return false;
            continue;
        }
        left_out++;
        c->driver.sum[CM_DRIVER_SUM_ALLOCATIONS] += it->event.kind == CM_EV_DRIVER_NEW;
        c->driver.sum[CM_DRIVER_SUM_FREES] += it->event.kind == CM_EV_DRIVER_FREE;
        c->driver.sum[CM_DRIVER_SUM_MATCHED] += it->event.kind == CM_EV_DRIVER_RECORD;
        runs += it->event.kind == CM_EV_NODE_RUN;
        nodes += it->event.kind == CM_EV_NODE_NEW;
        bool heap = it->event.kind == CM_EV_ALLOC || it->event.kind == CM_EV_FREE ||
                    it->event.kind == CM_EV_SEGMENT_FREE;
        bool block = it->event.kind == CM_EV_ALLOC && !it->nothing;
        bool of_work = it->event.kind == CM_EV_LAUNCH || it->event.kind == CM_EV_WORK;
        if ((block && !add_total(c, it)) || (heap && !add_thread(c, it)) ||
            (of_work && !cm_compact_add_work(c, it)))
            return false;
    }
    return cm_compact_leave_out_drivers(c) && put_sums(c, left_out, runs, nodes);
}

/* Drops indices: the next stretch reuses them. */
static bool reset_stretch(cm_compaction *c)
{
    for (uint32_t i = 1; i <= c->count; i++) {
        const compact_item *it = &c->items[i];
        cm_block block;
        if (it->event.kind != CM_EV_ALLOC || it->partner != 0 || !cm_compact_is_block(&it->event))
            continue;
        if (!cm_blocks_take(&c->blocks, it->device, it->event.address, &block, NULL))
            continue; /* replaced, and its successor freed */
        block.origin = 0;
        if (cm_blocks_put(&c->blocks, &block) == NULL)
            return false;
    }
    cm_idmap_clear(&c->made);
    for (size_t i = 0; i < 256; i++)
        memset(c->device_totals[i].at, 0, sizeof c->device_totals[i].at);
    for (size_t i = 0; i < POOLS; i++)
        c->pool[i].at = 0;
    c->passed += c->count;
    c->count = 0;
    return true;
}

static bool end_stretch(cm_compaction *c, const cm_tick *next)
{
    if (c->count == 0)
        return true;
    cm_clock_leads_needed(c->leads, next, keep_lead, c);
    if (!choose(c))
        return false;
    keep_backwards(c);
    return put_stretch(c) && reset_stretch(c);
}

bool cm_compact_flush(cm_compaction *c)
{
    return end_stretch(c, NULL);
}
