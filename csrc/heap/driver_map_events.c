/* Applies driver events, and events that add to them, to the driver map. */
#include "driver_map_parts.h"

#include <stdlib.h>

#include "../base/grow.h"

/* --- a thread's last event ----------------------------------------------------------------- */

static bool keep(cm_driver_map *m, cm_driver_thread *t, cm_driver_undo undo)
{
    if (!cm_grow((void **)&t->undo, &t->undo_capacity, t->undo_count + 1, sizeof *t->undo))
        return cm_driver_map_fail(m, cm_driver_map_no_memory);
    m->allocation[undo.slot].keepers++;
    t->undo[t->undo_count++] = undo;
    return true;
}

/* The thread's last event is complete. */
static void finish_last(cm_driver_map *m, cm_driver_thread *t)
{
    for (size_t i = 0; i < t->undo_count; i++)
        m->allocation[t->undo[i].slot].keepers--;
    for (size_t i = t->undo_count; i-- > 0;)
        cm_driver_map_release_slot(m, t->undo[i].slot);
    if (t->undo_capacity > 64) {
        free(t->undo);
        t->undo = NULL;
        t->undo_capacity = 0;
    }
    if (t->event.kind == CM_EV_DRIVER_RECORD)
        m->join.expired_records++; /* without an id */
    t->undo_count = 0;
    t->event.kind = 0;
    t->subject = 0;
    t->join = 0;
    t->counted = t->unknown = false;
}

static cm_driver_thread *thread_of(cm_driver_map *m, uint32_t number)
{
    cm_driver_thread *t = &m->thread[number % CM_DRIVER_THREADS];
    if (!t->known || t->number != number) {
        finish_last(m, t);
        t->known = true;
        t->number = number;
    }
    return t;
}

/* --- events -------------------------------------------------------------------------------- */

static bool take_reference(cm_driver_map *m, const cm_event *e)
{
    uint32_t slot;
    if (!cm_driver_map_lookup(m, CM_DRIVER_SPACE_HANDLE, e->address, &slot)) {
        /* A handle older than the recording has an unknown size. */
        cm_driver_allocation fresh = {.address = e->address,
                                      .kind = CM_DRIVER_PHYSICAL,
                                      .device = e->device_index,
                                      .references = 1};
        return cm_driver_map_make(m, fresh, 0, e->stack, &slot);
    }
    if (m->allocation[slot].references < UINT32_MAX)
        m->allocation[slot].references++;
    return true;
}

/* Finds the reservation of a mapping. One older than the recording is implied, and grows while
 * mappings are adjacent. */
static bool find_reservation(cm_driver_map *m, const cm_event *e, uint32_t *slot)
{
    uint64_t key;
    if (cm_ranges_below(&m->enclosers, e->address, &key, slot)) {
        cm_driver_allocation *a = &m->allocation[*slot];
        if (cm_driver_map_lies_in(a, e->address, e->size))
            return true;
        if (a->implied && a->kind == CM_DRIVER_RESERVED &&
            a->address + (uint64_t)a->size == e->address &&
            a->size <= CM_DRIVER_SIZE_MOST - e->size) {
            a->size += e->size;
            return true;
        }
    }
    cm_driver_allocation fresh = {.address = e->address,
                                  .size = e->size,
                                  .kind = CM_DRIVER_RESERVED,
                                  .device = e->device_index,
                                  .implied = true};
    return cm_driver_map_make(m, fresh, 0, 0, slot);
}

static bool replace(cm_driver_map *m, uint8_t kind, uint64_t address)
{
    uint32_t old;
    if (!cm_driver_map_lookup(m, cm_driver_map_space(kind), address, &old))
        return true;
    cm_driver_allocation *a = &m->allocation[old];
    if (cm_driver_map_space(kind) == CM_DRIVER_SPACE_HANDLE && a->shown > 0) {
        a->references = 0; /* another handle has its value now; it lives while a mapping shows it */
        cm_idmap_remove(&m->space[CM_DRIVER_SPACE_HANDLE], cm_driver_map_key(address));
        return true;
    }
    m->replaced += !a->implied;
    return cm_driver_map_end_for_good(m, old);
}

static bool unmap(cm_driver_map *m, uint64_t address, int64_t size, cm_driver_thread *undo,
                  bool *any);

static bool is_mapped(const cm_driver_map *m, uint64_t address)
{
    uint64_t key;
    uint32_t slot;
    return cm_ranges_below(&m->mapped, address, &key, &slot) &&
           cm_driver_map_lies_in(&m->allocation[slot], address, 1);
}

static bool apply_new(cm_driver_map *m, const cm_event *e, cm_driver_thread *t)
{
    uint8_t kind = e->flags & CM_DRIVER_KIND;
    bool any, before = (e->flags & CM_EVF_ALREADY) != 0;
    uint32_t slot, reservation = 0;
    if (e->size < 0 || e->size > CM_DRIVER_SIZE_MOST)
        return cm_driver_map_fail(m, cm_driver_map_bad_size);
    if (kind == 0 || kind > CM_DRIVER_CONTEXT)
        return true; /* of a version to come */
    if (kind != CM_DRIVER_CONTEXT)
        m->allocations += !before;
    if (kind == CM_DRIVER_REFERENCE)
        return take_reference(m, e);
    cm_driver_state *d = &m->device[cm_driver_map_place(e->device_index)];
    if (kind == CM_DRIVER_CONTEXT) {
        d->context_made |= !before && d->moments == 0;
        if (cm_driver_map_lookup(m, CM_DRIVER_SPACE_CONTEXT, e->address, &slot))
            return true; /* recorded again: one more user */
    } else if (kind == CM_DRIVER_MAPPED) {
        if (before && is_mapped(m, e->address))
            return true; /* a walk found what was recorded while it ran */
        if (!unmap(m, e->address, e->size, NULL, &any))
            return false;
        if (e->size == 0)
            return true;
        if (!find_reservation(m, e, &reservation))
            return false;
    } else if (!replace(m, kind, e->address)) {
        return false;
    }
    cm_driver_allocation fresh = {.address = e->address,
                                  .size = e->size,
                                  .kind = kind,
                                  .device = e->device_index,
                                  .backward = (e->flags & CM_EVF_OF_NODE) != 0,
                                  .references =
                                      cm_driver_map_space(kind) == CM_DRIVER_SPACE_HANDLE};
    if (!cm_driver_map_make(m, fresh, 0, e->stack, &slot))
        return false;
    t->subject = slot + 1;
    return kind != CM_DRIVER_MAPPED || !m->allocation[reservation].torch ||
           cm_driver_map_make_torch(m, slot);
}

static bool end_one(cm_driver_map *m, uint32_t slot, cm_driver_thread *t)
{
    uint32_t shows = m->allocation[slot].shows;
    bool ended;
    if (!keep(m, t, (cm_driver_undo){.slot = slot}) || !cm_driver_map_end(m, slot))
        return false;
    if (shows == 0)
        return true;
    /* Its handle may end, too. */
    return keep(m, t, (cm_driver_undo){.slot = shows - 1}) &&
           cm_driver_map_end_handle(m, shows - 1, &ended);
}

/* Cuts [address, address + size) out of a mapping: one or two shorter ones remain, and `middle`
 * becomes a mapping of its own, which then ends. */
static bool cut(cm_driver_map *m, uint32_t slot, uint64_t address, uint64_t last, uint32_t *middle)
{
    cm_driver_allocation a = m->allocation[slot];
    uint64_t begin = a.address, end_at = a.address + (uint64_t)(a.size - 1);
    if (address <= begin && last >= end_at) {
        *middle = slot;
        return true;
    }
    cm_total_key key = cm_totals_key(&m->totals, a.total);
    uint64_t from = address > begin ? address : begin, to = last < end_at ? last : end_at;
    struct {
        uint64_t first, last;
        bool is;
    } piece[3] = {{begin, from - 1, from > begin}, {from, to, true}, {to + 1, end_at, to < end_at}};
    uint32_t shows = a.shows;
    if (shows != 0)
        m->allocation[shows - 1].shown++; /* it must not end meanwhile */
    if (!cm_driver_map_end(m, slot))
        return false;
    m->allocation[slot].shows = 0;
    cm_driver_map_release_slot(m, slot);
    for (int i = 0; i < 3; i++) {
        cm_driver_allocation part = {.address = piece[i].first,
                                     .size = (int64_t)(piece[i].last - piece[i].first) + 1,
                                     .kind = CM_DRIVER_MAPPED,
                                     .device = a.device,
                                     .torch = a.torch,
                                     .backward = a.backward,
                                     .shows = shows};
        uint32_t made;
        if (!piece[i].is)
            continue;
        if (!cm_driver_map_make(m, part, key.library, key.stack, &made))
            return false;
        if (i == 1)
            *middle = made;
    }
    if (shows != 0)
        m->allocation[shows - 1].shown--;
    return true;
}

/* Ends the mappings in these addresses; undo: thread that may undo it, NULL: for good. */
static bool unmap(cm_driver_map *m, uint64_t address, int64_t size, cm_driver_thread *undo,
                  bool *any)
{
    uint64_t last = address + (uint64_t)size - 1, key;
    uint32_t slot, middle = 0;
    *any = false;
    if (size == 0 || last < address)
        return true;
    uint64_t from = address;
    if (is_mapped(m, address) && cm_ranges_below(&m->mapped, address, &key, &slot))
        from = key;
    while (cm_ranges_above(&m->mapped, from, &key, &slot) && key <= last) {
        if (!cut(m, slot, address, last, &middle) ||
            !(undo != NULL ? end_one(m, middle, undo) : cm_driver_map_end_for_good(m, middle)))
            return false;
        *any = true;
        from = key < address ? address : key + 1;
        if (from == 0)
            break;
    }
    /* An implied reservation ends with its last mapping. */
    if (*any && cm_ranges_below(&m->enclosers, address, &key, &slot) &&
        m->allocation[slot].implied && m->allocation[slot].kind == CM_DRIVER_RESERVED) {
        uint64_t end_at = m->allocation[slot].address + (uint64_t)m->allocation[slot].size, next;
        uint32_t piece;
        if (!cm_ranges_above(&m->mapped, m->allocation[slot].address, &next, &piece) ||
            next >= end_at)
            return undo != NULL ? end_one(m, slot, undo) : cm_driver_map_end_for_good(m, slot);
    }
    return true;
}

static bool release(cm_driver_map *m, const cm_event *e, cm_driver_thread *t, bool *known)
{
    uint32_t slot;
    bool ended;
    *known = cm_driver_map_lookup(m, CM_DRIVER_SPACE_HANDLE, e->address, &slot) &&
             m->allocation[slot].references > 0;
    if (!*known)
        return true;
    m->allocation[slot].references--;
    return keep(m, t, (cm_driver_undo){.slot = slot, .reference = true}) &&
           cm_driver_map_end_handle(m, slot, &ended);
}

static bool end_context(cm_driver_map *m, const cm_event *e, cm_driver_thread *t, bool *known)
{
    cm_driver_state *d = &m->device[cm_driver_map_place(e->device_index)];
    uint32_t slot;
    *known = cm_driver_map_lookup(m, CM_DRIVER_SPACE_CONTEXT, e->address, &slot);
    if (*known) {
        d = &m->device[cm_driver_map_place(m->allocation[slot].device)];
        if (!end_one(m, slot, t))
            return false;
    }
    if (d->contexts > 0)
        return true;
    while (d->first != 0)
        if (!end_one(m, d->first - 1, t))
            return false;
    return true;
}

static bool apply_free(cm_driver_map *m, const cm_event *e, cm_driver_thread *t)
{
    uint8_t kind = e->flags & CM_DRIVER_KIND;
    bool known = false, before = (e->flags & CM_EVF_ALREADY) != 0;
    uint32_t slot;
    if (e->size < 0 || e->size > CM_DRIVER_SIZE_MOST)
        return cm_driver_map_fail(m, cm_driver_map_bad_size);
    if (kind > CM_DRIVER_CONTEXT || (kind == 0 && e->address == 0))
        return true; /* freeing nothing is allowed */
    if (kind == CM_DRIVER_CONTEXT)
        return end_context(m, e, t, &known);
    if (kind == CM_DRIVER_MAPPED) {
        if (!unmap(m, e->address, e->size, t, &known))
            return false;
    } else if (cm_driver_map_space(kind) == CM_DRIVER_SPACE_HANDLE) {
        if (!release(m, e, t, &known))
            return false;
    } else {
        int space = cm_driver_map_space(kind);
        known = cm_driver_map_lookup(m, space, e->address, &slot);
        /* Memory of a graph's node may be freed outside of it. */
        if (!known && space == CM_DRIVER_SPACE_ADDRESS)
            known = cm_driver_map_lookup(m, CM_DRIVER_SPACE_GRAPH, e->address, &slot);
        if (known) {
            t->subject = slot + 1; /* lives at least until this event is finished */
            if (!end_one(m, slot, t))
                return false;
        }
    }
    t->unknown = !known && !before;
    t->counted = !before;
    m->frees += t->counted;
    m->unknown_frees += t->unknown;
    return true;
}

/* Undoes the last free, which failed. */
static bool take_back(cm_driver_map *m, cm_driver_thread *t)
{
    if (t->event.kind != CM_EV_DRIVER_FREE)
        return true;
    m->failed_frees++;
    m->frees -= t->counted;
    m->unknown_frees -= t->unknown;
    if (t->join != 0)
        cm_driver_join_forget(&m->join, t->join - 1);
    for (size_t i = t->undo_count; i-- > 0;) {
        cm_driver_undo u = t->undo[i];
        cm_driver_allocation *a = &m->allocation[u.slot];
        if (u.reference && a->references < UINT32_MAX)
            a->references++;
        bool handle = cm_driver_map_space(a->kind) == CM_DRIVER_SPACE_HANDLE;
        /* A handle that only lost a mapping never ended. */
        if (!(handle && a->alive) && !cm_driver_map_revive(m, u.slot))
            return false;
    }
    t->event.kind = 0;
    finish_last(m, t);
    return true;
}

/* --- joining with records ------------------------------------------------------------------ */

/* Whether MEMORY2 has records of this kind; of a free, if its allocation is known. */
static bool has_records(uint8_t kind)
{
    return kind == 0 || kind == CM_DRIVER_DEVICE || kind == CM_DRIVER_MANAGED ||
           kind == CM_DRIVER_HOST || kind == CM_DRIVER_ASYNC;
}

static bool give_library(cm_driver_map *m, const cm_join_side *event, uint32_t library)
{
    if (event->release || library == 0)
        return true;
    if (event->allocation != 0)
        return cm_driver_map_set_library(m, event->allocation - 1, library);
    if (event->total == CM_TOTALS_NONE)
        return true;
    /* Ended since then: it may be in a snapshot. */
    cm_total_key key = cm_totals_key(&m->totals, event->total);
    key.library = library;
    key.torch |= cm_driver_map_is_torch(m, library);
    uint32_t now = cm_totals_find(&m->totals, &key);
    if (now == CM_TOTALS_NONE)
        return cm_driver_map_fail(m, cm_driver_map_no_memory);
    cm_totals_move(&m->totals, event->total, now, event->counted, event->birth, event->death);
    return true;
}

static bool join_event(cm_driver_map *m, cm_driver_thread *t, uint32_t correlation)
{
    const cm_event *e = &t->event;
    uint8_t kind = e->flags & CM_DRIVER_KIND;
    cm_join_side other, side = {.address = e->address,
                                .size = e->size,
                                .device = e->device_index,
                                .release = e->kind == CM_EV_DRIVER_FREE,
                                .total = CM_TOTALS_NONE};
    cm_driver_allocation *a = t->subject != 0 ? &m->allocation[t->subject - 1] : NULL;
    if (a != NULL && side.release) {
        kind = a->kind;
        side.size = a->size;
        side.device = a->device;
    } else if (a != NULL) {
        side.allocation = t->subject;
        side.total = a->total;
        side.counted = a->size;
        side.birth = a->birth;
        side.death = a->death; /* another thread may have freed it meanwhile */
    }
    if (!has_records(kind) || t->join != 0 || (side.release && e->address == 0))
        return true;
    if (kind == CM_DRIVER_HOST)
        side.device = -1; /* of none */
    uint64_t number;
    int joined = cm_driver_join_event(&m->join, correlation, &side, &other, &number);
    if (joined < 0)
        return cm_driver_map_fail(m, cm_driver_map_no_memory);
    if (joined == 1)
        return give_library(m, &side, other.library);
    t->join = number + 1;
    if (side.allocation != 0)
        a->join = number + 1;
    return true;
}

static bool join_record(cm_driver_map *m, cm_driver_thread *t, uint32_t correlation)
{
    const cm_event *e = &t->event;
    cm_join_side other, side = {.address = e->address,
                                .size = e->size,
                                .device = e->device_index,
                                .library = e->stack,
                                .release = (e->flags & CM_EVF_RELEASE) != 0};
    t->event.kind = 0;
    int joined = cm_driver_join_record(&m->join, correlation, &side, &other);
    if (joined < 0)
        return cm_driver_map_fail(m, cm_driver_map_no_memory);
    if (joined == 0)
        return true;
    if (other.allocation != 0)
        m->allocation[other.allocation - 1].join = 0;
    return give_library(m, &other, side.library);
}

/* --- more about an event ------------------------------------------------------------------- */

static bool set_handle(cm_driver_map *m, cm_driver_thread *t, uint64_t value)
{
    uint32_t handle;
    cm_driver_allocation *a = &m->allocation[t->subject - 1];
    if (!a->alive)
        return true;
    if (a->kind == CM_DRIVER_ASYNC && a->pool == 0 && value != 0) {
        cm_driver_state *d = &m->device[cm_driver_map_place(a->device)];
        d->async_own -= a->size;
        d->async_other += a->size;
        a->pool = value;
    }
    if (a->kind != CM_DRIVER_MAPPED || a->shows != 0 ||
        !cm_driver_map_lookup(m, CM_DRIVER_SPACE_HANDLE, value, &handle) ||
        m->allocation[handle].shown == UINT32_MAX)
        return true;
    a->shows = handle + 1;
    m->allocation[handle].shown++;
    return !a->torch || cm_driver_map_make_torch(m, handle);
}

static bool apply_more(cm_driver_map *m, const cm_event *e, cm_driver_thread *t)
{
    const cm_driver_allocation *a = t->subject != 0 ? &m->allocation[t->subject - 1] : NULL;
    if (a != NULL && a->address != t->event.address)
        t->subject = 0; /* gone meanwhile, and its slot is reused */
    bool of_new = t->event.kind == CM_EV_DRIVER_NEW && t->subject != 0;
    switch (e->size) {
    case CM_DRIVER_MORE_LIBRARY:
        return !of_new || cm_driver_map_set_library(m, t->subject - 1, e->stack);
    case CM_DRIVER_MORE_CORRELATION:
        if (t->event.kind == CM_EV_DRIVER_NEW || t->event.kind == CM_EV_DRIVER_FREE)
            return join_event(m, t, (uint32_t)e->address);
        return t->event.kind != CM_EV_DRIVER_RECORD || join_record(m, t, (uint32_t)e->address);
    case CM_DRIVER_MORE_HANDLE:
        return !of_new || set_handle(m, t, e->address);
    case CM_DRIVER_MORE_TORCH:
        return !of_new || cm_driver_map_make_torch(m, t->subject - 1);
    case CM_DRIVER_MORE_AT_LEAST:
        if (of_new)
            m->allocation[t->subject - 1].at_least = true;
        return true;
    case CM_DRIVER_MORE_FAILED:
        return take_back(m, t);
    default:
        return true;
    }
}

/* --- compacted events ---------------------------------------------------------------------- */

static bool add_compacted(cm_driver_map *m, const cm_event *e)
{
    uint64_t *const sums[CM_DRIVER_SUMS] = {
        [CM_DRIVER_SUM_ALLOCATIONS] = &m->allocations,
        [CM_DRIVER_SUM_FREES] = &m->frees,
        [CM_DRIVER_SUM_MATCHED] = &m->join.matched,
        [CM_DRIVER_SUM_DIFFER] = &m->join.differ,
    };
    if (e->address == CM_DRIVER_SUM_NEWEST) {
        m->join.knows_compacted_id = true;
        m->join.compacted_id = (uint32_t)(e->size - 1);
        return true;
    }
    int64_t *missing = &m->join.compacted_events;
    uint64_t *sum = e->address < CM_DRIVER_SUMS ? sums[e->address] : NULL;
    bool falls = e->address == CM_DRIVER_SUM_MISSING; /* of events before a window, too */
    if (sum == NULL && !falls)
        return true; /* of a version to come */
    if (e->size > CM_DRIVER_SIZE_MOST || e->size < (falls ? -CM_DRIVER_SIZE_MOST : 0) ||
        (falls && __builtin_add_overflow(*missing, e->size, missing)))
        return cm_driver_map_fail(m, cm_driver_map_bad_size);
    if (falls)
        return true;
    *sum += (uint64_t)e->size;
    if (e->address == CM_DRIVER_SUM_MATCHED || e->address == CM_DRIVER_SUM_DIFFER)
        m->join.record_count += (uint64_t)e->size;
    return true;
}

/* --- all of it ----------------------------------------------------------------------------- */

bool cm_driver_map_apply(cm_driver_map *m, const cm_record *record)
{
    const cm_event *e = &record->event;
    if (e->kind == CM_EV_DEVICE) {
        cm_driver_map_apply_device(m, e);
        return true;
    }
    if (e->kind == CM_EV_COMPACTED_DRIVER)
        return add_compacted(m, e);
    cm_driver_thread *t = thread_of(m, record->thread);
    if (e->kind == CM_EV_DRIVER_MORE)
        return t->event.kind == 0 || apply_more(m, e, t);
    finish_last(m, t);
    m->totals.clock++;
    t->event = *e;
    switch (e->kind) {
    case CM_EV_DRIVER_NEW:
        return apply_new(m, e, t);
    case CM_EV_DRIVER_FREE:
        return apply_free(m, e, t);
    case CM_EV_DRIVER_RECORD:
        m->join.record_count++;
        return true;
    case CM_EV_POOL:
        cm_driver_map_apply_pool(m, e);
        return true;
    default:
        t->event.kind = 0;
        return true;
    }
}
