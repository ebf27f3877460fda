/* Compaction of the driver level: totals of devices, pools, the driver's allocations, CUPTI's
 * records of them, and sums of what is left out. */
#include <stdlib.h>

#include "../base/grow.h"
#include "compact_parts.h"

enum { RECORDS = 1 << 16 };

/* --- totals and pools ----------------------------------------------------------------------- */

/* Events of one item stay or go together. */
static void chain(cm_compaction *c, compact_thread *t, uint32_t at)
{
    if (at == 0 || t->chain == 0) {
        t->chain = 0;
        return;
    }
    c->items[t->chain].link = at;
    c->items[at].nothing = true;
    t->chain = at;
}

/* The first of a moment's events keeps the others; the last one decides. */
void cm_compact_see_totals(cm_compaction *c, compact_thread *t, const cm_event *e, uint32_t at)
{
    compact_totals *d = &c->device_totals[(uint8_t)(e->device_index + 128)];
    bool quiet = (e->flags & CM_EVF_QUIET) != 0;
    if (at != 0) {
        c->items[at].nothing = true;
        if (t->chain != 0 && c->items[t->chain].event.kind == CM_EV_DEVICE)
            c->items[at].link = t->chain;
    }
    t->chain = e->address == CM_DEVICE_BYTES_USED ? 0 : at;
    if (e->address != CM_DEVICE_BYTES_USED) {
        t->split = t->split || at == 0;
        return;
    }
    if (t->split)
        cm_compact_must_stay(c, at);
    t->split = false;
    d->at[USED_LAST - USED_MOST] = at;
    for (size_t i = 0; i < POOLS; i++)
        c->pool[i].at = 0; /* this moment's ledger needs what was recorded of pools before it */
    if (!d->known || e->size > d->used) {
        d->known = true;
        d->used = e->size;
        d->at[0] = at;
    }
    if (quiet && (!d->quiet_known || e->size > d->quiet)) {
        if (!d->measured) /* a context is measured there */
            d->at[QUIET_FIRST - USED_MOST] = at;
        d->measured = d->quiet_known = true;
        d->quiet = e->size;
        d->at[QUIET_MOST - USED_MOST] = at;
    }
    size_t number = cm_compact_find_device(c, e, false);
    for (size_t i = 0; number != DEVICES && i < TOTALS; i++)
        c->device[number].at[USED_MOST + i] = d->at[i];
}

/* Of a pool's repeated records the newest stays. */
void cm_compact_see_pool(cm_compaction *c, compact_thread *t, const cm_event *e, uint32_t at)
{
    size_t slot = (e->address >> 6) % POOLS;
    t->chain = at;
    if (at == 0 || e->flags != CM_POOL_SEEN)
        return;
    if (c->pool[slot].at != 0 && c->pool[slot].address == e->address)
        c->items[c->pool[slot].at].nothing = true;
    c->pool[slot].address = e->address;
    c->pool[slot].at = at;
}

/* --- allocations ---------------------------------------------------------------------------- */

/* Allocations of these kinds may be left out. */
static bool comes_and_goes(uint8_t kind)
{
    return kind == CM_DRIVER_DEVICE || kind == CM_DRIVER_MANAGED || kind == CM_DRIVER_HOST ||
           kind == CM_DRIVER_ASYNC;
}

static uint64_t address_key(uint64_t address)
{
    return address & (UINT64_MAX >> 1);
}

static void see_highest(cm_compaction *c, size_t place, uint32_t at)
{
    int64_t bytes = c->driver.map->totals.device[place].bytes;
    if (bytes <= c->driver.place[place].most)
        return;
    c->driver.place[place].most = bytes;
    c->driver.place[place].at = at;
}

/* Follows the bytes given out, which libraries and records do not change. */
static bool follow(cm_compaction *c, const cm_record *record)
{
    if (c->driver.map == NULL && (c->driver.map = cm_driver_map_new(NULL)) == NULL)
        return false;
    return cm_driver_map_apply(c->driver.map, record);
}

static size_t place_of(const cm_event *e)
{
    return cm_totals_is_host(e->flags & CM_DRIVER_KIND) ? CM_TOTALS_HOST
                                                        : cm_driver_map_place(e->device_index);
}

static bool give_out(cm_compaction *c, const cm_event *e, uint32_t at)
{
    uint32_t old;
    see_highest(c, place_of(e), at);
    if (!comes_and_goes(e->flags & CM_DRIVER_KIND) || e->address == 0)
        return true;
    if (cm_idmap_get(&c->driver.given, address_key(e->address), &old)) {
        cm_compact_must_stay(c, at); /* the free of the older one was lost */
        cm_compact_must_stay(c, old);
    }
    return cm_idmap_put(&c->driver.given, address_key(e->address), at);
}

static void take_back(cm_compaction *c, const cm_event *e, uint32_t at)
{
    uint8_t kind = e->flags & CM_DRIVER_KIND;
    uint32_t given;
    if (kind == CM_DRIVER_CONTEXT)
        cm_idmap_clear(&c->driver.given); /* its memory gets no frees */
    if ((kind != 0 && !comes_and_goes(kind)) ||
        !cm_idmap_get(&c->driver.given, address_key(e->address), &given))
        return;
    cm_idmap_remove(&c->driver.given, address_key(e->address));
    cm_compact_tie(c, given, at);
}

void cm_compact_keep_given(cm_compaction *c, uint64_t address)
{
    uint32_t given;
    if (cm_idmap_get(&c->driver.given, address_key(address), &given))
        cm_compact_must_stay(c, given);
}

bool cm_compact_see_driver(cm_compaction *c, compact_thread *t, const cm_record *record,
                           uint32_t at)
{
    const cm_event *e = &record->event;
    t->chain = 0;
    t->driver = at;
    if (e->kind == CM_EV_DRIVER_RECORD)
        return true;
    if (!follow(c, record))
        return false;
    if (e->kind == CM_EV_DRIVER_FREE) {
        take_back(c, e, at);
        return true;
    }
    if (at != 0)
        c->items[at].frame = cm_compact_find_innermost(t)->run; /* it may be charged to it */
    return give_out(c, e, at);
}

/* As for blocks at a peak; and a block that stays needs the memory under it. */
bool cm_compact_was_given_then(const cm_compaction *c, uint32_t at)
{
    const compact_item *it = &c->items[at];
    if (it->partner == 0)
        return false;
    size_t place = place_of(&it->event);
    uint32_t highest = c->driver.place[place].at;
    if (at <= highest && it->partner > highest)
        return true;
    if (place == CM_TOTALS_HOST)
        return false;
    size_t number = DEVICES;
    for (size_t i = 0; i < c->devices; i++)
        if (c->device[i].type == CM_DEVICE_CUDA && c->device[i].index == it->event.device_index)
            number = i;
    for (size_t i = 0; i < POINTS; i++) {
        uint32_t point = number != DEVICES ? c->device[number].at[i] : 0;
        uint32_t kept = i < TOTALS ? c->device_totals[place].at[i] : 0;
        if ((at <= point && it->partner > point) || (at <= kept && it->partner > kept))
            return true;
    }
    return false;
}

/* --- details and records -------------------------------------------------------------------- */

static uint64_t key_of(uint64_t correlation, bool release)
{
    return (uint64_t)(uint32_t)correlation << 1 | release;
}

/* An event's details are one chain, and go with it. */
static void append(cm_compaction *c, uint32_t head, uint32_t at)
{
    uint32_t last = head;
    while (c->items[last].link != 0)
        last = c->items[last].link;
    c->items[last].link = at;
    c->items[at].nothing = true;
}

/* As driver_join.c judges. */
static bool agree(const cm_event *record, uint64_t address, int64_t size, int8_t device)
{
    return record->address == address && (record->size == 0 || size == 0 || record->size == size) &&
           (record->device_index < 0 || device < 0 || record->device_index == device);
}

static void join_record(cm_compaction *c, uint32_t event, uint32_t record)
{
    const compact_item *it = &c->items[event];
    const cm_event *e = &it->event, *what = e;
    if (e->kind == CM_EV_DRIVER_FREE && it->partner != 0)
        what = &c->items[it->partner].event;
    int8_t device = place_of(what) == CM_TOTALS_HOST ? -1 : what->device_index;
    if (!agree(&c->items[record].event, e->address, what->size, device))
        cm_compact_must_stay(c, event);
    append(c, event, record);
}

static void drop_record(cm_compaction *c, struct compact_gone *g, uint32_t record)
{
    bool same = agree(&c->items[record].event, g->address, g->size, g->device);
    g->waits = false;
    cm_idmap_remove(&c->driver.gone_at, g->key);
    c->items[record].nothing = true;
    c->driver.sum[CM_DRIVER_SUM_MISSING]--;
    c->driver.sum[CM_DRIVER_SUM_MATCHED] -= !same; /* put_stretch counts it */
    c->driver.sum[CM_DRIVER_SUM_DIFFER] += !same;
}

static bool correlate(cm_compaction *c, uint32_t head, uint64_t correlation)
{
    compact_drivers *d = &c->driver;
    const cm_event *e = &c->items[head].event;
    uint32_t other;
    if (e->kind == CM_EV_DRIVER_RECORD) {
        uint64_t key = key_of(correlation, (e->flags & CM_EVF_RELEASE) != 0);
        if (cm_idmap_get(&d->events, key, &other)) {
            cm_idmap_remove(&d->events, key);
            join_record(c, other, head);
            return true;
        }
        if (cm_idmap_get(&d->gone_at, key, &other)) {
            drop_record(c, &d->gone[other], head);
            return true;
        }
        if (d->records.count >= RECORDS)
            cm_idmap_clear(&d->records);
        return cm_idmap_put(&d->records, key, head);
    }
    uint64_t key = key_of(correlation, e->kind == CM_EV_DRIVER_FREE);
    if (cm_idmap_get(&d->records, key, &other)) {
        cm_idmap_remove(&d->records, key);
        if (other == 0)
            cm_compact_must_stay(c, head);
        else
            join_record(c, head, other);
        return true;
    }
    if (cm_idmap_get(&d->events, key, &other)) { /* the analysis decides which has a record */
        cm_compact_must_stay(c, other);
        cm_compact_must_stay(c, head);
    }
    return cm_idmap_put(&d->events, key, head);
}

bool cm_compact_driver_more(cm_compaction *c, compact_thread *t, const cm_record *record,
                            uint32_t at)
{
    const cm_event *e = &record->event;
    uint32_t head = t->driver;
    if ((e->size == CM_DRIVER_MORE_HANDLE || e->size == CM_DRIVER_MORE_FAILED) &&
        !follow(c, record))
        return false;
    if (e->size == CM_DRIVER_MORE_FAILED) {
        for (size_t i = 0; i < CM_TOTALS_DEVICES; i++)
            see_highest(c, i, at);
        cm_compact_must_stay(c, head);
    }
    if (head == 0 || at == 0) {
        chain(c, t, at);
        return true;
    }
    append(c, head, at);
    if (e->size != CM_DRIVER_MORE_CORRELATION)
        return true;
    if (c->items[head].event.kind == CM_EV_DRIVER_RECORD)
        t->driver = 0; /* a record has no more details */
    return correlate(c, head, e->address);
}

/* --- what is left out ----------------------------------------------------------------------- */

/* Its record may come in a later stretch. */
static bool remember_gone(cm_compaction *c, uint64_t key, uint32_t at)
{
    compact_drivers *d = &c->driver;
    const compact_item *it = &c->items[at];
    const cm_event *what =
        it->event.kind == CM_EV_DRIVER_FREE ? &c->items[it->partner].event : &it->event;
    if (d->gone == NULL && (d->gone = calloc(GONE, sizeof *d->gone)) == NULL)
        return false;
    uint32_t number = d->next_gone++ % GONE;
    struct compact_gone *g = &d->gone[number];
    if (g->waits)
        cm_idmap_remove(&d->gone_at, g->key);
    *g = (struct compact_gone){key, it->event.address, what->size,
                               place_of(what) == CM_TOTALS_HOST ? -1 : what->device_index, true};
    d->sum[CM_DRIVER_SUM_MISSING]++;
    uint32_t id = (uint32_t)(key >> 1);
    int64_t *newest = &d->sum[CM_DRIVER_SUM_NEWEST];
    if (*newest == 0 || !cm_correlation_is_older(id, (uint32_t)(*newest - 1)))
        *newest = (int64_t)id + 1;
    return cm_idmap_put(&d->gone_at, key, number);
}

bool cm_compact_leave_out_drivers(cm_compaction *c)
{
    compact_drivers *d = &c->driver;
    for (size_t i = 0; i < d->events.slots; i++) {
        const struct cm_idmap_slot *s = &d->events.slot[i];
        if (s->key != 0 && !c->items[s->value].keep && !remember_gone(c, s->key - 1, s->value))
            return false;
    }
    cm_idmap_clear(&d->events);
    for (size_t i = 0; i < d->given.slots; i++)
        d->given.slot[i].value = 0;
    for (size_t i = 0; i < d->records.slots; i++)
        d->records.slot[i].value = 0;
    return true;
}

bool cm_compact_put_drivers(cm_compaction *c, uint64_t time)
{
    for (uint64_t i = 0; i < CM_DRIVER_SUMS; i++) {
        cm_event e = {.kind = CM_EV_COMPACTED_DRIVER,
                      .time = time,
                      .address = i,
                      .size = c->driver.sum[i],
                      .device_index = -1};
        if (e.size != 0 && !c->put(c->context, 0, &e))
            return false;
        c->driver.sum[i] = 0;
    }
    return true;
}

bool cm_compact_add_work(cm_compaction *c, const compact_item *it)
{
    uint32_t at;
    if (it->event.kind == CM_EV_LAUNCH) {
        c->launches++;
        c->launch = it->event;
        c->launch_thread = it->thread;
        return true;
    }
    if (!cm_idmap_get(&c->work_of, it->event.stack, &at)) {
        at = (uint32_t)c->works;
        if (!cm_grow((void **)&c->work, &c->work_capacity, c->works + 1, sizeof *c->work) ||
            !cm_idmap_put(&c->work_of, it->event.stack, at))
            return false;
        c->work[c->works++] =
            (compact_work){.name = it->event.stack, .like = it->event, .thread = it->thread};
    }
    c->work[at].count++;
    if (__builtin_add_overflow(c->work[at].ns, it->event.size, &c->work[at].ns))
        c->work[at].ns = INT64_MAX; /* a trace does not last that long */
    return true;
}

bool cm_compact_put_work(cm_compaction *c, uint64_t time)
{
    cm_event e = c->launch;
    e.time = time;
    e.flags |= CM_EVF_SUMMED;
    e.size = (int64_t)c->launches;
    e.address = 0;
    e.stack = 0;
    if (c->launches > 0 && !c->put(c->context, c->launch_thread, &e))
        return false;
    for (size_t i = 0; i < c->works; i++) {
        const compact_work *w = &c->work[i];
        e = w->like;
        e.time = time;
        e.flags |= CM_EVF_SUMMED;
        e.address = w->count;
        e.size = w->ns;
        if (!c->put(c->context, w->thread, &e))
            return false;
    }
    c->launches = 0;
    c->works = 0;
    cm_idmap_clear(&c->work_of);
    return true;
}
