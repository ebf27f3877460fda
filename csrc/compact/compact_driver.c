/* Compaction of the driver level: totals of devices, pools, the driver's allocations that come and
 * go, CUPTI's records of them, and sums of what is left out. */
#include <stdlib.h>

#include "../base/grow.h"
#include "compact_parts.h"

enum { RECORDS = 1 << 16 };

/* --- totals and pools ----------------------------------------------------------------------- */

/* What belongs to one item goes where it goes. */
static void chain(cm_compaction *f, compact_thread *t, uint32_t at)
{
    if (at == 0 || t->chain == 0) {
        t->chain = 0;
        return;
    }
    f->items[t->chain].link = at;
    f->items[at].nothing = true;
    t->chain = at;
}

/* The first of a moment's events keeps the others; the last one decides. */
void cm_compact_see_totals(cm_compaction *f, compact_thread *t, const cm_event *e, uint32_t at)
{
    compact_totals *d = &f->device_totals[(uint8_t)(e->device_index + 128)];
    bool quiet = (e->flags & CM_EVF_QUIET) != 0;
    if (at != 0) {
        f->items[at].nothing = true;
        if (t->chain != 0 && f->items[t->chain].event.kind == CM_EV_DEVICE)
            f->items[at].link = t->chain;
    }
    t->chain = e->address == CM_DEVICE_BYTES_USED ? 0 : at;
    if (e->address != CM_DEVICE_BYTES_USED) {
        t->split = t->split || at == 0;
        return;
    }
    if (t->split)
        cm_compact_must_stay(f, at);
    t->split = false;
    d->at[USED_LAST - USED_MOST] = at;
    for (size_t i = 0; i < POOLS; i++)
        f->pool[i].at = 0; /* this moment's ledger needs what was recorded of pools before it */
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
    size_t number = cm_compact_find_device(f, e, false);
    for (size_t i = 0; number != DEVICES && i < TOTALS; i++)
        f->device[number].at[USED_MOST + i] = d->at[i];
}

/* Of one that is seen again and again the newest stays. */
void cm_compact_see_pool(cm_compaction *f, compact_thread *t, const cm_event *e, uint32_t at)
{
    size_t slot = (e->address >> 6) % POOLS;
    t->chain = at;
    if (at == 0 || e->flags != CM_POOL_SEEN)
        return;
    if (f->pool[slot].at != 0 && f->pool[slot].address == e->address)
        f->items[f->pool[slot].at].nothing = true;
    f->pool[slot].address = e->address;
    f->pool[slot].at = at;
}

/* --- allocations that come and go ----------------------------------------------------------- */

/* Of these, one can come and go without anybody having to know. */
static bool comes_and_goes(uint8_t kind)
{
    return kind == CM_DRIVER_DEVICE || kind == CM_DRIVER_MANAGED || kind == CM_DRIVER_HOST ||
           kind == CM_DRIVER_ASYNC;
}

static uint64_t address_key(uint64_t address)
{
    return address & (UINT64_MAX >> 1);
}

static void see_highest(cm_compaction *f, size_t place, uint32_t at)
{
    int64_t bytes = f->driver.map->accounts.device[place].bytes;
    if (bytes <= f->driver.place[place].most)
        return;
    f->driver.place[place].most = bytes;
    f->driver.place[place].at = at;
}

/* The bytes that are given out: libraries and records change nothing about them. */
static bool follow(cm_compaction *f, const cm_record *record)
{
    if (f->driver.map == NULL && (f->driver.map = cm_driver_map_new(NULL)) == NULL)
        return false;
    return cm_driver_map_apply(f->driver.map, record);
}

static size_t place_of(const cm_event *e)
{
    return cm_totals_is_host(e->flags & CM_DRIVER_KIND) ? CM_TOTALS_HOST
                                                        : cm_driver_map_place(e->device_index);
}

static bool give_out(cm_compaction *f, const cm_event *e, uint32_t at)
{
    uint32_t old;
    see_highest(f, place_of(e), at);
    if (!comes_and_goes(e->flags & CM_DRIVER_KIND) || e->address == 0)
        return true;
    if (cm_idmap_get(&f->driver.given, address_key(e->address), &old)) {
        cm_compact_must_stay(f, at); /* the free of the older one was lost */
        cm_compact_must_stay(f, old);
    }
    return cm_idmap_put(&f->driver.given, address_key(e->address), at);
}

static void take_back(cm_compaction *f, const cm_event *e, uint32_t at)
{
    uint8_t kind = e->flags & CM_DRIVER_KIND;
    uint32_t given;
    if (kind == CM_DRIVER_CONTEXT)
        cm_idmap_clear(&f->driver.given); /* no free of what was in it will come */
    if ((kind != 0 && !comes_and_goes(kind)) ||
        !cm_idmap_get(&f->driver.given, address_key(e->address), &given))
        return;
    cm_idmap_remove(&f->driver.given, address_key(e->address));
    cm_compact_tie(f, given, at);
}

void cm_compact_keep_given(cm_compaction *f, uint64_t address)
{
    uint32_t given;
    if (cm_idmap_get(&f->driver.given, address_key(address), &given))
        cm_compact_must_stay(f, given);
}

bool cm_compact_see_driver(cm_compaction *f, compact_thread *t, const cm_record *record,
                           uint32_t at)
{
    const cm_event *e = &record->event;
    t->chain = 0;
    t->driver = at;
    if (e->kind == CM_EV_DRIVER_RECORD)
        return true;
    if (!follow(f, record))
        return false;
    if (e->kind == CM_EV_DRIVER_FREE) {
        take_back(f, e, at);
        return true;
    }
    if (at != 0)
        f->items[at].frame = cm_compact_find_innermost(t)->run; /* it may be charged to it */
    return give_out(f, e, at);
}

/* As a block at a peak; and a block that stays needs the memory that it lies in. */
bool cm_compact_was_given_then(const cm_compaction *f, uint32_t at)
{
    const compact_item *it = &f->items[at];
    if (it->partner == 0)
        return false;
    size_t place = place_of(&it->event);
    uint32_t highest = f->driver.place[place].at;
    if (at <= highest && it->partner > highest)
        return true;
    if (place == CM_TOTALS_HOST)
        return false;
    size_t number = DEVICES;
    for (size_t i = 0; i < f->devices; i++)
        if (f->device[i].type == CM_DEVICE_CUDA && f->device[i].index == it->event.device_index)
            number = i;
    for (size_t i = 0; i < POINTS; i++) {
        uint32_t point = number != DEVICES ? f->device[number].at[i] : 0;
        uint32_t told = i < TOTALS ? f->device_totals[place].at[i] : 0;
        if ((at <= point && it->partner > point) || (at <= told && it->partner > told))
            return true;
    }
    return false;
}

/* --- what is said of them, and their records ------------------------------------------------ */

static uint64_t key_of(uint64_t correlation, bool release)
{
    return (uint64_t)(uint32_t)correlation << 1 | release;
}

/* What is said of one event is one chain, and goes where that goes. */
static void append(cm_compaction *f, uint32_t head, uint32_t at)
{
    uint32_t last = head;
    while (f->items[last].link != 0)
        last = f->items[last].link;
    f->items[last].link = at;
    f->items[at].nothing = true;
}

/* As driver_join.c judges. */
static bool agree(const cm_event *record, uint64_t address, int64_t size, int8_t device)
{
    return record->address == address && (record->size == 0 || size == 0 || record->size == size) &&
           (record->device_index < 0 || device < 0 || record->device_index == device);
}

static void join_record(cm_compaction *f, uint32_t event, uint32_t record)
{
    const compact_item *it = &f->items[event];
    const cm_event *e = &it->event, *what = e;
    if (e->kind == CM_EV_DRIVER_FREE && it->partner != 0)
        what = &f->items[it->partner].event;
    int8_t device = place_of(what) == CM_TOTALS_HOST ? -1 : what->device_index;
    if (!agree(&f->items[record].event, e->address, what->size, device))
        cm_compact_must_stay(f, event);
    append(f, event, record);
}

static void drop_record(cm_compaction *f, struct compact_gone *g, uint32_t record)
{
    bool same = agree(&f->items[record].event, g->address, g->size, g->device);
    g->waits = false;
    cm_idmap_remove(&f->driver.gone_at, g->key);
    f->items[record].nothing = true;
    f->driver.sum[CM_DRIVER_SUM_MISSING]--;
    f->driver.sum[CM_DRIVER_SUM_MATCHED] -= !same; /* where it will be counted */
    f->driver.sum[CM_DRIVER_SUM_DIFFER] += !same;
}

static bool correlate(cm_compaction *f, uint32_t head, uint64_t correlation)
{
    compact_drivers *d = &f->driver;
    const cm_event *e = &f->items[head].event;
    uint32_t other;
    if (e->kind == CM_EV_DRIVER_RECORD) {
        uint64_t key = key_of(correlation, (e->flags & CM_EVF_RELEASE) != 0);
        if (cm_idmap_get(&d->events, key, &other)) {
            cm_idmap_remove(&d->events, key);
            join_record(f, other, head);
            return true;
        }
        if (cm_idmap_get(&d->gone_at, key, &other)) {
            drop_record(f, &d->gone[other], head);
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
            cm_compact_must_stay(f, head);
        else
            join_record(f, head, other);
        return true;
    }
    if (cm_idmap_get(&d->events, key, &other)) { /* of which a record is, the analysis decides */
        cm_compact_must_stay(f, other);
        cm_compact_must_stay(f, head);
    }
    return cm_idmap_put(&d->events, key, head);
}

bool cm_compact_driver_more(cm_compaction *f, compact_thread *t, const cm_record *record,
                            uint32_t at)
{
    const cm_event *e = &record->event;
    uint32_t head = t->driver;
    if ((e->size == CM_DRIVER_MORE_HANDLE || e->size == CM_DRIVER_MORE_FAILED) &&
        !follow(f, record))
        return false;
    if (e->size == CM_DRIVER_MORE_FAILED) {
        for (size_t i = 0; i < CM_TOTALS_DEVICES; i++)
            see_highest(f, i, at);
        cm_compact_must_stay(f, head);
    }
    if (head == 0 || at == 0) {
        chain(f, t, at);
        return true;
    }
    append(f, head, at);
    if (e->size != CM_DRIVER_MORE_CORRELATION)
        return true;
    if (f->items[head].event.kind == CM_EV_DRIVER_RECORD)
        t->driver = 0; /* that is all that is said of a record */
    return correlate(f, head, e->address);
}

/* --- what is left out ----------------------------------------------------------------------- */

/* Its record may come in a later stretch. */
static bool let_go(cm_compaction *f, uint64_t key, uint32_t at)
{
    compact_drivers *d = &f->driver;
    const compact_item *it = &f->items[at];
    const cm_event *what =
        it->event.kind == CM_EV_DRIVER_FREE ? &f->items[it->partner].event : &it->event;
    if (d->gone == NULL && (d->gone = calloc(GONE, sizeof *d->gone)) == NULL)
        return false;
    uint32_t number = d->next_gone++ % GONE;
    struct compact_gone *g = &d->gone[number];
    if (g->waits)
        cm_idmap_remove(&d->gone_at, g->key);
    *g = (struct compact_gone){key, it->event.address, what->size,
                               place_of(what) == CM_TOTALS_HOST ? -1 : what->device_index, true};
    d->sum[CM_DRIVER_SUM_MISSING]++;
    return cm_idmap_put(&d->gone_at, key, number);
}

bool cm_compact_leave_out_drivers(cm_compaction *f)
{
    compact_drivers *d = &f->driver;
    for (size_t i = 0; i < d->events.slots; i++) {
        const struct cm_idmap_slot *s = &d->events.slot[i];
        if (s->key != 0 && !f->items[s->value].keep && !let_go(f, s->key - 1, s->value))
            return false;
    }
    cm_idmap_clear(&d->events);
    for (size_t i = 0; i < d->given.slots; i++)
        d->given.slot[i].value = 0;
    for (size_t i = 0; i < d->records.slots; i++)
        d->records.slot[i].value = 0;
    return true;
}

bool cm_compact_put_drivers(cm_compaction *f, uint64_t time)
{
    for (uint64_t i = 0; i < CM_DRIVER_SUMS; i++) {
        cm_event e = {.kind = CM_EV_COMPACTED_DRIVER,
                      .time = time,
                      .address = i,
                      .size = f->driver.sum[i],
                      .device_index = -1};
        if (e.size != 0 && !f->put(f->context, 0, &e))
            return false;
        f->driver.sum[i] = 0;
    }
    return true;
}

bool cm_compact_add_work(cm_compaction *f, const compact_item *it)
{
    uint32_t at;
    if (it->event.kind == CM_EV_LAUNCH) {
        f->launches++;
        f->launch = it->event;
        f->launch_thread = it->thread;
        return true;
    }
    if (!cm_idmap_get(&f->work_of, it->event.stack, &at)) {
        at = (uint32_t)f->works;
        if (!cm_grow((void **)&f->work, &f->work_capacity, f->works + 1, sizeof *f->work) ||
            !cm_idmap_put(&f->work_of, it->event.stack, at))
            return false;
        f->work[f->works++] =
            (compact_work){.name = it->event.stack, .like = it->event, .thread = it->thread};
    }
    f->work[at].count++;
    if (__builtin_add_overflow(f->work[at].ns, it->event.size, &f->work[at].ns))
        f->work[at].ns = INT64_MAX; /* a trace does not last that long */
    return true;
}

bool cm_compact_put_work(cm_compaction *f, uint64_t time)
{
    cm_event e = f->launch;
    e.time = time;
    e.flags |= CM_EVF_SUMMED;
    e.size = (int64_t)f->launches;
    e.address = 0;
    e.stack = 0;
    if (f->launches > 0 && !f->put(f->context, f->launch_thread, &e))
        return false;
    for (size_t i = 0; i < f->works; i++) {
        const compact_work *w = &f->work[i];
        e = w->like;
        e.time = time;
        e.flags |= CM_EVF_SUMMED;
        e.address = w->count;
        e.size = w->ns;
        if (!f->put(f->context, w->thread, &e))
            return false;
    }
    f->launches = 0;
    f->works = 0;
    cm_idmap_clear(&f->work_of);
    return true;
}
