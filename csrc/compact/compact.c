/* A stretch is kept in memory. On the way through it, what belongs together is tied: allocation and
 * free, a node's creation and end, a run's start and end, and a run to what decides whom its blocks
 * are charged to (nodes.h has the rules). Whatever has no other half stays; then the peak says
 * which pairs stay; and each that stays holds what it depends on. */
#include <stdlib.h>
#include <string.h>

#include "../base/grow.h"
#include "compact_parts.h"

cm_compaction *cm_compact_new(cm_compact_put put, void *context)
{
    cm_compaction *f = calloc(1, sizeof *f);
    if (f == NULL)
        return NULL;
    f->put = put;
    f->context = context;
    f->want_node = true;
    f->nodes = cm_nodes_new();
    if (f->nodes == NULL) {
        free(f);
        return NULL;
    }
    return f;
}

void cm_compact_free(cm_compaction *f)
{
    if (f == NULL)
        return;
    for (size_t i = 0; i < f->thread_count; i++)
        free(f->threads[i].frame);
    free(f->threads);
    free(f->items);
    free(f->told);
    free(f->todo);
    free(f->touched);
    free(f->total);
    free(f->work);
    cm_idmap_clear(&f->work_of);
    cm_driver_map_free(f->driver.map);
    cm_idmap_clear(&f->driver.given);
    cm_idmap_clear(&f->driver.events);
    cm_idmap_clear(&f->driver.records);
    cm_idmap_clear(&f->driver.gone_at);
    free(f->driver.gone);
    cm_blocks_clear(&f->blocks);
    cm_idmap_clear(&f->by_number);
    cm_idmap_clear(&f->by_autograd);
    cm_idmap_clear(&f->made);
    cm_nodes_free(f->nodes);
    free(f);
}

uint64_t cm_compact_bytes(const cm_compaction *f)
{
    return sizeof *f + f->capacity * sizeof *f->items + f->blocks.slots * sizeof *f->blocks.slot +
           f->made.slots * sizeof *f->made.slot + f->todo_capacity * sizeof *f->todo +
           f->thread_capacity * sizeof *f->threads + f->told_bytes +
           (f->driver.given.slots + f->driver.events.slots + f->driver.records.slots +
            f->driver.gone_at.slots) *
               sizeof *f->driver.given.slot +
           (f->driver.gone != NULL ? GONE * sizeof *f->driver.gone : 0) +
           (f->driver.map != NULL ? sizeof *f->driver.map +
                                        f->driver.map->capacity * sizeof *f->driver.map->allocation
                                  : 0);
}

/* --- threads -------------------------------------------------------------------------------- */

static compact_thread *look_thread_up(cm_compaction *f, uint32_t number)
{
    uint32_t at;
    if (cm_idmap_get(&f->by_number, number, &at)) {
        f->last_thread = at;
        return &f->threads[at];
    }
    compact_thread fresh = {.number = number};
    if (!cm_grow((void **)&fresh.frame, &fresh.capacity, 1, sizeof *fresh.frame))
        return NULL;
    fresh.frame[fresh.frames++] = (compact_frame){0};
    if (!cm_grow((void **)&f->threads, &f->thread_capacity, f->thread_count + 1,
                 sizeof *f->threads) ||
        !cm_idmap_put(&f->by_number, number, (uint32_t)f->thread_count)) {
        free(fresh.frame);
        return NULL;
    }
    f->threads[f->thread_count] = fresh;
    return &f->threads[f->thread_count++];
}

static inline compact_thread *find_thread(cm_compaction *f, uint32_t number)
{
    compact_thread *last = f->threads + f->last_thread;
    return f->thread_count > 0 && last->number == number ? last : look_thread_up(f, number);
}

static bool touch(cm_compaction *f, compact_thread *t)
{
    if (t->touched)
        return true;
    if (!cm_grow((void **)&f->touched, &f->touched_capacity, f->touched_count + 1,
                 sizeof *f->touched))
        return false;
    f->touched[f->touched_count++] = (uint32_t)(t - f->threads);
    return t->touched = true;
}

/* --- one event ------------------------------------------------------------------------------ */

/* A window is read by itself: the highest of everything, and what comes first, are its own. */
static void begin_window(cm_compaction *f)
{
    f->want_node = true;
    for (size_t i = 0; i < f->devices; i++) {
        f->device[i].oom = false;
        f->device[i].most_reserved = -1;
    }
    for (size_t i = 0; i < 256; i++)
        f->device_totals[i].known = f->device_totals[i].quiet_known = false;
}

static bool note(cm_compaction *f, uint32_t number, const cm_event *e, uint32_t at)
{
    if (!cm_nodes_apply(f->nodes, number, e))
        return false;
    compact_thread *t = find_thread(f, number);
    if (t == NULL || (at != 0 && !touch(f, t)))
        return false;
    switch (e->kind) {
    case CM_EV_ALLOC:
        return cm_compact_allocate(f, t, &(cm_record){.event = *e, .thread = number}, at);
    case CM_EV_FREE:
    case CM_EV_SEGMENT_FREE:
        cm_compact_release(f, t, e, at);
        return true;
    case CM_EV_OPERATOR: /* stays where an allocation behind it does */
        t->named = at;
        if (at != 0)
            f->items[at].nothing = true;
        return true;
    case CM_EV_DEFERRED_FREE:
        t->held = at;
        return true;
    case CM_EV_LAUNCH:
    case CM_EV_WORK:
        if (at != 0)
            f->items[at].nothing = !(e->flags & CM_EVF_SUMMED);
        return true;
    case CM_EV_DEVICE:
        t->driver = 0;
        cm_compact_see_totals(f, t, e, at);
        return true;
    case CM_EV_POOL:
        t->driver = 0;
        cm_compact_see_pool(f, t, e, at);
        return true;
    case CM_EV_DRIVER_NEW:
    case CM_EV_DRIVER_FREE:
    case CM_EV_DRIVER_RECORD:
        return cm_compact_see_driver(f, t, &(cm_record){.event = *e, .thread = number}, at);
    case CM_EV_DRIVER_MORE:
        return cm_compact_driver_more(f, t, &(cm_record){.event = *e, .thread = number}, at);
    case CM_EV_REQUESTED:
        cm_compact_tie_request(f, e, at);
        return true;
    case CM_EV_NODE_NEW:
        return cm_compact_make_node(f, t, e, at);
    case CM_EV_NODE_FREE:
        cm_compact_free_node(f, e, at);
        return true;
    case CM_EV_NODE_RUN:
        return cm_compact_run_node(f, t, e, at);
    case CM_EV_NODE_DONE:
        cm_compact_end_node(f, t, at);
        return true;
    case CM_EV_LOST: /* it stays; what was running is unknown from here on */
        t->frames = 1;
        t->unseen = 0;
        t->frame[0] = (compact_frame){0};
        return true;
    case CM_EV_THREAD: {
        uint64_t id = (uint64_t)e->size;
        return id == 0 || id == UINT64_MAX || cm_idmap_put(&f->by_autograd, id, number);
    }
    case CM_EV_SEED:
        return cm_compact_find_alive(f, e);
    case CM_EV_OOM:
        cm_compact_see_oom(f, e, at);
        return true;
    case CM_EV_SEGMENT_NEW:
        cm_compact_keep_given(f, e->address); /* segments stay */
        cm_compact_find_device(f, e, true);
        return true;
    case CM_EV_HOST_READ:
        cm_compact_find_device(f, e, true);
        return true;
    case CM_EV_RESERVED:
        cm_compact_see_reserved(f, e, at);
        return true;
    case CM_EV_MARK:
        if (e->size == CM_MARK_WINDOW_OPEN)
            begin_window(f);
        return true;
    default:
        return true;
    }
}

static bool is_bound(const cm_compaction *f, const cm_event *e)
{
    switch (e->kind) {
    case CM_EV_TICK:
    case CM_EV_SEED:
        return true;
    case CM_EV_NODE_NEW:
        return f->want_node;
    case CM_EV_MARK:
        return !cm_mark_is_inside_step(e->size);
    default:
        return false;
    }
}

bool cm_compact_see(cm_compaction *f, uint32_t thread, const cm_event *events, size_t count)
{
    for (size_t i = 0; i < count;) {
        if (!cm_compact_is_of_blocks(&events[i])) {
            if (!note(f, thread, &events[i++], 0))
                return false;
            continue;
        }
        const compact_thread *t = find_thread(f, thread);
        size_t blocks = t == NULL ? SIZE_MAX : cm_compact_see_blocks(f, t, events + i, count - i);
        if (blocks == SIZE_MAX || (blocks == 0 && !note(f, thread, &events[i++], 0)))
            return false;
        i += blocks;
    }
    return true;
}

bool cm_compact_add(cm_compaction *f, uint32_t thread, const cm_event *event)
{
    bool bound = is_bound(f, event);
    /* What is said of an event stays with it. */
    bool full = f->count >= CM_COMPACT_STRETCH && event->kind != CM_EV_DRIVER_MORE;
    if ((bound || full) && !cm_compact_flush(f))
        return false;
    if (bound)
        return note(f, thread, event, 0) && f->put(f->context, thread, event);
    if (f->count == 0) { /* older events rose and fell before */
        for (size_t i = 0; f->driver.map != NULL && i < CM_TOTALS_DEVICES; i++) {
            f->driver.place[i].most = f->driver.map->accounts.device[i].bytes;
            f->driver.place[i].at = 0;
        }
        for (size_t i = 0; i < f->devices; i++) {
            f->device[i].live = f->device[i].most = 0;
            memset(f->device[i].at, 0, sizeof f->device[i].at);
        }
    }
    if (!cm_grow((void **)&f->items, &f->capacity, f->count + 2, sizeof *f->items))
        return false;
    f->items[++f->count] = (compact_item){.event = *event, .thread = thread};
    return note(f, thread, event, (uint32_t)f->count);
}

/* --- a stretch's end ------------------------------------------------------------------------ */

static bool was_at_peak(const cm_compaction *f, uint32_t at)
{
    const compact_item *it = &f->items[at];
    if (it->event.kind != CM_EV_ALLOC)
        return false;
    const uint32_t *point = f->device[it->device].at;
    for (size_t i = 0; i < POINTS; i++)
        if (at <= point[i] && it->partner > point[i])
            return true;
    return false;
}

static bool choose(cm_compaction *f)
{
    for (uint32_t i = 1; i <= f->count; i++) {
        const compact_item *it = &f->items[i];
        bool halved = it->partner == 0 && !it->nothing;
        bool driver = it->event.kind == CM_EV_DRIVER_NEW;
        if ((halved || it->must || was_at_peak(f, i) ||
             (driver && cm_compact_was_given_then(f, i))) &&
            !cm_compact_keep(f, i))
            return false;
    }
    for (size_t i = 0; i < 256; i++)
        for (size_t j = 0; j < TOTALS; j++)
            if (!cm_compact_keep(f, f->device_totals[i].at[j]))
                return false;
    /* What runs on, its operator, and the line that is handed on to the next leaf. */
    while (f->touched_count > 0) {
        compact_thread *t = &f->threads[f->touched[--f->touched_count]];
        t->touched = false;
        /* The rest of a chain comes in the next stretch. */
        if (!cm_compact_keep(f, t->chain) || !cm_compact_keep(f, t->driver) ||
            !cm_compact_keep(f, t->named))
            return false;
        t->driver = 0;
        t->split = t->split || (t->chain != 0 && f->items[t->chain].event.kind == CM_EV_DEVICE);
        t->chain = t->held = t->named = 0;
        for (size_t j = 0; j < t->frames; j++) {
            if (!cm_compact_keep(f, t->frame[j].setter))
                return false;
            t->frame[j].run = t->frame[j].setter = 0;
        }
    }
    return true;
}

/* What a block is for is judged by whether nodes run while it is alive (heap/fates.h), so the
 * first run behind anything made outside of nodes stays, without what its own blocks would need. */
static void keep_backwards(cm_compaction *f)
{
    bool running = false;
    for (uint32_t i = 1; i <= f->count; i++) {
        compact_item *it = &f->items[i];
        if (it->event.kind == CM_EV_ALLOC && !(it->event.flags & CM_EVF_IN_NODE))
            running = false;
        if (it->event.kind != CM_EV_NODE_RUN || running)
            continue;
        running = it->keep = true;
        if (it->partner != 0)
            f->items[it->partner].keep = true;
    }
}

static bool new_total(cm_compaction *f, compact_thread *t, compact_total fresh)
{
    if (!cm_grow((void **)&f->total, &f->total_capacity, f->totals + 1, sizeof *f->total))
        return false;
    fresh.before = t->total;
    f->total[f->totals++] = fresh;
    t->total = (uint32_t)f->totals;
    return true;
}

/* A block that came and went. */
static bool add_total(cm_compaction *f, const compact_item *it)
{
    compact_thread *of = find_thread(f, it->thread);
    if (of == NULL)
        return false;
    for (uint32_t i = of->total; i != 0; i = f->total[i - 1].before) {
        compact_total *t = &f->total[i - 1];
        if (t->device == it->device && t->charge == it->charge) {
            t->blocks++;
            t->bytes += it->event.size;
            return true;
        }
    }
    return new_total(f, of,
                     (compact_total){it->thread, it->device, it->charge, 1, it->event.size, 0});
}

/* A thread that only freed what others allocated counts as one that did something, too. */
static bool add_thread(cm_compaction *f, const compact_item *it)
{
    compact_thread *of = find_thread(f, it->thread);
    if (of == NULL || of->total != 0)
        return of != NULL;
    uint8_t device = it->partner != 0 ? f->items[it->partner].device : it->device;
    return new_total(f, of, (compact_total){.thread = it->thread, .device = device});
}

static bool put_sums(cm_compaction *f, uint64_t left_out, uint64_t runs, uint32_t nodes)
{
    uint64_t time = f->items[f->count].event.time;
    if (!cm_compact_put_work(f, time) || !cm_compact_put_drivers(f, time))
        return false;
    for (size_t i = 0; i < f->totals; i++) {
        const compact_total *t = &f->total[i];
        cm_event e = {.kind = CM_EV_COMPACTED_BLOCKS,
                      .time = time,
                      .address = t->blocks,
                      .size = t->bytes,
                      .flags = t->charge,
                      .device_type = f->device[t->device].type,
                      .device_index = f->device[t->device].index};
        if (!f->put(f->context, t->thread, &e))
            return false;
        compact_thread *of = find_thread(f, t->thread);
        if (of == NULL)
            return false;
        of->total = 0;
    }
    cm_event e = {.kind = CM_EV_COMPACTED,
                  .time = time,
                  .address = left_out,
                  .size = (int64_t)runs,
                  .stack = nodes,
                  .device_index = -1};
    return left_out == 0 || f->put(f->context, 0, &e);
}

static bool put_stretch(cm_compaction *f)
{
    uint64_t left_out = 0, runs = 0;
    uint32_t nodes = 0;
    f->totals = 0;
    for (uint32_t i = 1; i <= f->count; i++) {
        const compact_item *it = &f->items[i];
        if (it->keep) {
            if (!f->put(f->context, it->thread, &it->event))
                return false;
            continue;
        }
        left_out++;
        f->driver.sum[CM_DRIVER_SUM_ALLOCATIONS] += it->event.kind == CM_EV_DRIVER_NEW;
        f->driver.sum[CM_DRIVER_SUM_FREES] += it->event.kind == CM_EV_DRIVER_FREE;
        f->driver.sum[CM_DRIVER_SUM_MATCHED] += it->event.kind == CM_EV_DRIVER_RECORD;
        runs += it->event.kind == CM_EV_NODE_RUN;
        nodes += it->event.kind == CM_EV_NODE_NEW;
        bool heap = it->event.kind == CM_EV_ALLOC || it->event.kind == CM_EV_FREE ||
                    it->event.kind == CM_EV_SEGMENT_FREE;
        bool block = it->event.kind == CM_EV_ALLOC && !it->nothing;
        bool of_work = it->event.kind == CM_EV_LAUNCH || it->event.kind == CM_EV_WORK;
        if ((block && !add_total(f, it)) || (heap && !add_thread(f, it)) ||
            (of_work && !cm_compact_add_work(f, it)))
            return false;
    }
    return cm_compact_leave_out_drivers(f) && put_sums(f, left_out, runs, nodes);
}

/* The next stretch's indices mean other items. */
static bool age(cm_compaction *f)
{
    for (uint32_t i = 1; i <= f->count; i++) {
        const compact_item *it = &f->items[i];
        cm_block block;
        if (it->event.kind != CM_EV_ALLOC || it->partner != 0 || !cm_compact_is_block(&it->event))
            continue;
        if (!cm_blocks_take(&f->blocks, it->device, it->event.address, &block, NULL))
            continue; /* replaced, and its successor freed */
        block.origin = 0;
        if (cm_blocks_put(&f->blocks, &block) == NULL)
            return false;
    }
    cm_idmap_clear(&f->made);
    for (size_t i = 0; i < 256; i++)
        memset(f->device_totals[i].at, 0, sizeof f->device_totals[i].at);
    for (size_t i = 0; i < POOLS; i++)
        f->pool[i].at = 0;
    f->count = 0;
    return true;
}

bool cm_compact_flush(cm_compaction *f)
{
    if (f->count == 0)
        return true;
    if (!choose(f))
        return false;
    keep_backwards(f);
    return put_stretch(f) && age(f);
}
