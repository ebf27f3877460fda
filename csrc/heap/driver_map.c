#include "driver_map_parts.h"

#include <stdlib.h>
#include <string.h>

#include "../base/grow.h"

const char cm_driver_map_no_memory[] = "out of memory";
const char cm_driver_map_bad_size[] =
    "the trace is damaged: it has a driver allocation of an impossible size";

const char *cm_driver_kind_name(uint8_t kind)
{
    static const char *const names[] = {
        [0] = "unknown",
        [CM_DRIVER_DEVICE] = "device",
        [CM_DRIVER_MANAGED] = "managed",
        [CM_DRIVER_HOST] = "host",
        [CM_DRIVER_REGISTERED] = "registered",
        [CM_DRIVER_ASYNC] = "async",
        [CM_DRIVER_PHYSICAL] = "physical",
        [CM_DRIVER_REFERENCE] = "reference",
        [CM_DRIVER_IMPORTED] = "imported",
        [CM_DRIVER_RESERVED] = "reserved",
        [CM_DRIVER_MAPPED] = "mapped",
        [CM_DRIVER_ARRAY] = "array",
        [CM_DRIVER_IPC] = "ipc",
        [CM_DRIVER_EXTERNAL] = "external",
        [CM_DRIVER_POOL] = "pool",
        [CM_DRIVER_GRAPH] = "graph",
        [CM_DRIVER_MULTICAST] = "multicast",
        [CM_DRIVER_CONTEXT] = "context",
    };
    return names[kind < sizeof names / sizeof names[0] ? kind : 0];
}

bool cm_driver_map_fail(cm_driver_map *m, const char *why)
{
    m->error = why;
    return false;
}

cm_driver_map *cm_driver_map_new(const cm_reader *reader)
{
    cm_driver_map *m = calloc(1, sizeof *m);
    if (m == NULL)
        return NULL;
    m->reader = reader;
    const cm_driver_moment nothing = CM_DRIVER_MOMENT_UNKNOWN;
    for (size_t i = 0; i < CM_TOTALS_HOST; i++) {
        m->device[i].reading = m->device[i].last = nothing;
        m->device[i].first_quiet = m->device[i].last_quiet = nothing;
        m->device[i].context = -1;
    }
    return m;
}

void cm_driver_map_free(cm_driver_map *m)
{
    if (m == NULL)
        return;
    cm_totals_clear(&m->totals);
    cm_driver_join_clear(&m->join);
    cm_ranges_clear(&m->enclosers);
    cm_ranges_clear(&m->mapped);
    cm_idmap_clear(&m->shared);
    free(m->mapping);
    for (size_t i = 0; i < CM_DRIVER_SPACES; i++)
        cm_idmap_clear(&m->space[i]);
    for (size_t i = 0; i < CM_DRIVER_THREADS; i++)
        free(m->thread[i].undo);
    free(m->allocation);
    free(m);
}

static bool copy_parts(cm_driver_map *copy, const cm_driver_map *m)
{
    bool fine =
        cm_totals_copy(&copy->totals, &m->totals) && cm_driver_join_copy(&copy->join, &m->join) &&
        cm_ranges_copy(&copy->enclosers, &m->enclosers) &&
        cm_ranges_copy(&copy->mapped, &m->mapped) && cm_idmap_copy(&copy->shared, &m->shared) &&
        cm_copy((void **)&copy->allocation, m->allocation, m->slots, sizeof *m->allocation);
    for (size_t i = 0; fine && i < CM_DRIVER_SPACES; i++)
        fine = cm_idmap_copy(&copy->space[i], &m->space[i]);
    for (size_t i = 0; fine && i < CM_DRIVER_THREADS; i++) {
        const cm_driver_thread *t = &m->thread[i];
        copy->thread[i] = *t;
        copy->thread[i].undo_capacity = t->undo_count;
        fine = cm_copy((void **)&copy->thread[i].undo, t->undo, t->undo_count, sizeof *t->undo);
    }
    return fine;
}

cm_driver_map *cm_driver_map_copy(const cm_driver_map *m)
{
    cm_driver_map *copy = calloc(1, sizeof *copy);
    if (copy == NULL)
        return NULL;
    copy->reader = m->reader;
    copy->slots = copy->capacity = m->slots;
    copy->vacant = m->vacant;
    copy->last_enclosing = m->last_enclosing;
    memcpy(copy->device, m->device, sizeof copy->device);
    memcpy(copy->pool, m->pool, sizeof copy->pool);
    copy->allocations = m->allocations;
    copy->frees = m->frees;
    copy->unknown_frees = m->unknown_frees;
    copy->failed_frees = m->failed_frees;
    copy->replaced = m->replaced;
    if (copy_parts(copy, m))
        return copy;
    cm_driver_map_free(copy);
    return NULL;
}

/* --- spaces -------------------------------------------------------------------------------- */

int cm_driver_map_space(uint8_t kind)
{
    switch (kind) {
    case 0:
    case CM_DRIVER_DEVICE:
    case CM_DRIVER_MANAGED:
    case CM_DRIVER_HOST:
    case CM_DRIVER_ASYNC:
    case CM_DRIVER_IPC:
        return CM_DRIVER_SPACE_ADDRESS;
    case CM_DRIVER_REGISTERED:
        return CM_DRIVER_SPACE_REGISTERED;
    case CM_DRIVER_RESERVED:
        return CM_DRIVER_SPACE_RESERVED;
    case CM_DRIVER_PHYSICAL:
    case CM_DRIVER_REFERENCE:
    case CM_DRIVER_IMPORTED:
    case CM_DRIVER_MULTICAST:
        return CM_DRIVER_SPACE_HANDLE;
    case CM_DRIVER_ARRAY:
        return CM_DRIVER_SPACE_ARRAY;
    case CM_DRIVER_EXTERNAL:
        return CM_DRIVER_SPACE_EXTERNAL;
    case CM_DRIVER_POOL:
        return CM_DRIVER_SPACE_POOL;
    case CM_DRIVER_CONTEXT:
        return CM_DRIVER_SPACE_CONTEXT;
    case CM_DRIVER_GRAPH:
        return CM_DRIVER_SPACE_GRAPH;
    default:
        return CM_DRIVER_SPACES;
    }
}

uint64_t cm_driver_map_key(uint64_t address)
{
    return address & (UINT64_MAX >> 1);
}

bool cm_driver_map_lookup(const cm_driver_map *m, int space, uint64_t address, uint32_t *slot)
{
    return space < CM_DRIVER_SPACES &&
           cm_idmap_get(&m->space[space], cm_driver_map_key(address), slot);
}

/* Whether blocks of PyTorch may be in it. */
static bool encloses(uint8_t kind)
{
    return kind == CM_DRIVER_DEVICE || kind == CM_DRIVER_MANAGED || kind == CM_DRIVER_ASYNC ||
           kind == CM_DRIVER_IPC || kind == CM_DRIVER_GRAPH || kind == CM_DRIVER_RESERVED;
}

static bool ends_with_context(uint8_t kind)
{
    return kind == CM_DRIVER_DEVICE || kind == CM_DRIVER_MANAGED || kind == CM_DRIVER_HOST ||
           kind == CM_DRIVER_REGISTERED || kind == CM_DRIVER_ASYNC || kind == CM_DRIVER_ARRAY ||
           kind == CM_DRIVER_IPC || kind == CM_DRIVER_EXTERNAL || kind == CM_DRIVER_GRAPH;
}

/* --- one allocation ------------------------------------------------------------------------ */

static bool new_slot(cm_driver_map *m, uint32_t *slot)
{
    if (m->vacant != 0) {
        *slot = m->vacant - 1;
        m->vacant = m->allocation[*slot].after;
        return true;
    }
    if (m->slots >= UINT32_MAX - 1 ||
        !cm_grow((void **)&m->allocation, &m->capacity, m->slots + 1, sizeof *m->allocation))
        return cm_driver_map_fail(m, cm_driver_map_no_memory);
    *slot = (uint32_t)m->slots++;
    return true;
}

/* Once it has ended and nothing refers to it. */
static void free_slot(cm_driver_map *m, uint32_t slot)
{
    cm_driver_allocation *a = &m->allocation[slot];
    if (a->alive || a->blocks > 0 || a->keepers > 0 || a->shown > 0 || a->size < 0)
        return;
    if (m->last_enclosing == slot + 1)
        m->last_enclosing = 0;
    *a = (cm_driver_allocation){
        .address = UINT64_MAX, .size = -1, .total = CM_TOTALS_NONE, .after = m->vacant};
    m->vacant = slot + 1;
}

static void list(cm_driver_map *m, uint32_t slot)
{
    cm_driver_allocation *a = &m->allocation[slot];
    uint32_t *first = &m->device[cm_driver_map_place(a->device)].first;
    a->before = 0;
    a->after = *first;
    if (*first != 0)
        m->allocation[*first - 1].before = slot + 1;
    *first = slot + 1;
    a->listed = true;
}

static void unlist(cm_driver_map *m, uint32_t slot)
{
    cm_driver_allocation *a = &m->allocation[slot];
    if (!a->listed)
        return;
    if (a->before != 0)
        m->allocation[a->before - 1].after = a->after;
    else
        m->device[cm_driver_map_place(a->device)].first = a->after;
    if (a->after != 0)
        m->allocation[a->after - 1].before = a->before;
    a->before = a->after = 0;
    a->listed = false;
}

/* One allocation more or less shares this page. */
static bool share_page(cm_driver_map *m, cm_driver_state *d, uint64_t page, int sign)
{
    uint32_t parts = 0;
    cm_idmap_get(&m->shared, page, &parts);
    d->pages += (parts == 0 && sign > 0) - (parts == 1 && sign < 0);
    if (sign < 0 && parts <= 1)
        cm_idmap_remove(&m->shared, page);
    else if (!cm_idmap_put(&m->shared, page, sign > 0 ? parts + 1 : parts - 1))
        return cm_driver_map_fail(m, cm_driver_map_no_memory);
    return true;
}

/* Only the first and the last page can be shared. */
static bool count_pages(cm_driver_map *m, cm_driver_state *d, const cm_driver_allocation *a,
                        int sign)
{
    if ((a->kind != CM_DRIVER_DEVICE && a->kind != CM_DRIVER_MANAGED) || a->size == 0 ||
        a->address > UINT64_MAX - CM_DRIVER_SIZE_MOST - CM_GRANULE)
        return true;
    uint64_t end = a->address + (uint64_t)a->size;
    uint64_t first = a->address / CM_GRANULE, last = (end - 1) / CM_GRANULE;
    bool head = a->address % CM_GRANULE != 0, tail = end % CM_GRANULE != 0;
    bool alone = first == last;
    d->paged += sign * a->size;
    d->pages += sign * ((int64_t)(last - first) + 1 - (alone ? head || tail : head + tail));
    return (!(alone ? head || tail : head) || share_page(m, d, first, sign)) &&
           (alone || !tail || share_page(m, d, last, sign));
}

static cm_driver_mapping mapping_of(const cm_driver_map *m, const cm_driver_allocation *a)
{
    bool counted = a->total != CM_TOTALS_NONE;
    return (cm_driver_mapping){.address = a->address,
                               .size = a->size,
                               .stack = counted ? cm_totals_key(&m->totals, a->total).stack : 0,
                               .device =
                                   a->shows != 0 ? m->allocation[a->shows - 1].device : a->device};
}

static bool add_mapped(cm_driver_map *m, const cm_driver_allocation *a, int sign)
{
    cm_driver_state *d = &m->device[cm_driver_map_place(a->device)];
    if (__builtin_add_overflow(d->mapped, sign * a->size, &d->mapped))
        return cm_driver_map_fail(m, cm_driver_map_bad_size);
    if (!cm_grow((void **)&m->mapping, &m->mapping_capacity, m->mappings + 1, sizeof *m->mapping))
        return cm_driver_map_fail(m, cm_driver_map_no_memory);
    m->mapping[m->mappings] = mapping_of(m, a);
    m->mapping[m->mappings++].gone = sign < 0;
    return true;
}

bool cm_driver_map_next_mapping(const cm_driver_map *m, uint64_t from, cm_driver_mapping *found)
{
    uint32_t slot;
    while (cm_ranges_above(&m->mapped, from, &from, &slot)) {
        if (m->allocation[slot].torch) {
            *found = mapping_of(m, &m->allocation[slot]);
            return true;
        }
        if (from++ == UINT64_MAX)
            break;
    }
    return false;
}

static bool count(cm_driver_map *m, const cm_driver_allocation *a, int sign)
{
    cm_driver_state *own = &m->device[cm_driver_map_place(a->device)];
    cm_driver_state *blocks = &m->device[cm_driver_map_place(a->block_device)];
    blocks->block_bytes += sign * a->block_bytes;
    blocks->block_slack += sign * a->block_slack;
    if (a->kind == CM_DRIVER_ASYNC)
        *(a->pool != 0 ? &own->async_other : &own->async_own) += sign * a->size;
    if (a->kind == CM_DRIVER_MAPPED && a->torch && !add_mapped(m, a, sign))
        return false;
    if (a->kind == CM_DRIVER_CONTEXT)
        own->contexts += (uint32_t)sign;
    if (!count_pages(m, own, a, sign))
        return false;
    return a->total == CM_TOTALS_NONE || cm_totals_add(&m->totals, a->total, a->size, sign) ||
           cm_driver_map_fail(m, cm_driver_map_bad_size);
}

/* Whether a released handle's value now belongs to another one. */
static bool lost_its_value(const cm_driver_map *m, const cm_driver_allocation *a, int space)
{
    uint32_t found;
    return space == CM_DRIVER_SPACE_HANDLE && a->references == 0 &&
           cm_driver_map_lookup(m, space, a->address, &found);
}

bool cm_driver_map_revive(cm_driver_map *m, uint32_t slot)
{
    cm_driver_allocation *a = &m->allocation[slot];
    if (a->alive)
        return true;
    int space = cm_driver_map_space(a->kind);
    if (a->kind == CM_DRIVER_MAPPED
            ? !cm_ranges_put(&m->mapped, a->address, slot)
            : space < CM_DRIVER_SPACES && !a->implied && !lost_its_value(m, a, space) &&
                  !cm_idmap_put(&m->space[space], cm_driver_map_key(a->address), slot))
        return cm_driver_map_fail(m, cm_driver_map_no_memory);
    if (a->implied && space == CM_DRIVER_SPACE_ADDRESS &&
        !cm_idmap_put(&m->space[space], cm_driver_map_key(a->address), slot))
        return cm_driver_map_fail(m, cm_driver_map_no_memory);
    if (encloses(a->kind) && !cm_ranges_put(&m->enclosers, a->address, slot))
        return cm_driver_map_fail(m, cm_driver_map_no_memory);
    a->alive = true;
    /* As if it had never ended, unless a snapshot was taken without it. */
    if (a->birth == 0 || cm_totals_latest(&m->totals, a->total) > a->death)
        a->birth = ++m->totals.clock;
    a->death = 0;
    if (ends_with_context(a->kind))
        list(m, slot);
    if (a->shows != 0)
        m->allocation[a->shows - 1].shown++;
    if (a->join != 0) {
        cm_join_side *waits = cm_driver_join_waiting(&m->join, a->join - 1);
        if (waits != NULL) {
            waits->birth = a->birth;
            waits->death = 0;
        }
    }
    return count(m, a, 1);
}

bool cm_driver_map_end(cm_driver_map *m, uint32_t slot)
{
    cm_driver_allocation *a = &m->allocation[slot];
    int space = cm_driver_map_space(a->kind);
    uint32_t found;
    if (!a->alive)
        return true;
    a->alive = false;
    a->death = m->totals.clock;
    if (a->kind == CM_DRIVER_MAPPED)
        cm_ranges_remove(&m->mapped, a->address, slot);
    else if (cm_driver_map_lookup(m, space, a->address, &found) && found == slot)
        cm_idmap_remove(&m->space[space], cm_driver_map_key(a->address));
    if (encloses(a->kind))
        cm_ranges_remove(&m->enclosers, a->address, slot);
    if (m->last_enclosing == slot + 1)
        m->last_enclosing = 0;
    unlist(m, slot);
    if (a->shows != 0)
        m->allocation[a->shows - 1].shown--;
    if (a->join != 0) {
        cm_join_side *waits = cm_driver_join_waiting(&m->join, a->join - 1);
        if (waits != NULL) {
            waits->death = a->death;
            waits->total = a->total;
        }
    }
    return count(m, a, -1);
}

static void forget_join(cm_driver_map *m, cm_driver_allocation *a)
{
    cm_join_side *waits = a->join != 0 ? cm_driver_join_waiting(&m->join, a->join - 1) : NULL;
    if (waits != NULL)
        waits->allocation = 0; /* its slot is reused */
    a->join = 0;
}

void cm_driver_map_release_slot(cm_driver_map *m, uint32_t slot)
{
    cm_driver_allocation *a = &m->allocation[slot];
    if (!a->alive && a->keepers == 0)
        forget_join(m, a);
    free_slot(m, slot);
}

bool cm_driver_map_end_handle(cm_driver_map *m, uint32_t slot, bool *ended)
{
    cm_driver_allocation *a = &m->allocation[slot];
    *ended = a->alive && a->references == 0 && a->shown == 0;
    return !*ended || cm_driver_map_end(m, slot);
}

bool cm_driver_map_end_for_good(cm_driver_map *m, uint32_t slot)
{
    uint32_t shows = m->allocation[slot].shows;
    bool ended;
    if (!cm_driver_map_end(m, slot))
        return false;
    m->allocation[slot].shows = 0;
    cm_driver_map_release_slot(m, slot);
    if (shows == 0)
        return true;
    if (!cm_driver_map_end_handle(m, shows - 1, &ended))
        return false;
    cm_driver_map_release_slot(m, shows - 1);
    return true;
}

/* --- totals -------------------------------------------------------------------------------- */

static bool assign_total(cm_driver_map *m, uint32_t slot, uint32_t library, uint32_t stack)
{
    cm_driver_allocation *a = &m->allocation[slot];
    cm_total_key key = {
        library,
        stack,
        cm_totals_is_host(a->kind) ? CM_TOTALS_HOST : cm_driver_map_place(a->device),
        a->kind,
        a->torch,
        a->backward};
    a->total = cm_totals_find(&m->totals, &key);
    return a->total != CM_TOTALS_NONE || cm_driver_map_fail(m, cm_driver_map_no_memory);
}

static bool move_total(cm_driver_map *m, cm_driver_allocation *a, cm_total_key key)
{
    uint32_t now = cm_totals_find(&m->totals, &key);
    if (now == CM_TOTALS_NONE)
        return cm_driver_map_fail(m, cm_driver_map_no_memory);
    /* The bytes of an ended one are already subtracted: only snapshots change. */
    cm_totals_move(&m->totals, a->total, now, a->size, a->birth, a->death);
    a->total = now;
    return true;
}

bool cm_driver_map_is_torch(const cm_driver_map *m, uint32_t library)
{
    const char *path = library != 0 ? cm_reader_name(m->reader, library) : NULL;
    if (path == NULL)
        return false;
    const char *slash = strrchr(path, '/');
    const char *name = slash != NULL ? slash + 1 : path;
    return strncmp(name, "libc10_cuda", 11) == 0 || strncmp(name, "libtorch", 8) == 0;
}

bool cm_driver_map_make_torch(cm_driver_map *m, uint32_t slot)
{
    cm_driver_allocation *a = &m->allocation[slot];
    if (a->torch)
        return true;
    a->torch = true;
    if (a->total != CM_TOTALS_NONE) {
        cm_total_key key = cm_totals_key(&m->totals, a->total);
        key.torch = true;
        if (!move_total(m, a, key))
            return false;
    }
    if (a->kind == CM_DRIVER_MAPPED && a->alive && !add_mapped(m, a, 1))
        return false;
    if (a->kind == CM_DRIVER_MAPPED)
        return a->shows == 0 || cm_driver_map_make_torch(m, a->shows - 1);
    if (a->kind != CM_DRIVER_RESERVED || a->size == 0)
        return true;
    uint64_t key = a->address, last = a->address + (uint64_t)(a->size - 1);
    uint32_t piece;
    /* PyTorch's mappings are older: they were here when an older reservation became PyTorch's. */
    while (cm_ranges_above(&m->mapped, key, &key, &piece) && key <= last &&
           !m->allocation[piece].torch) {
        if (!cm_driver_map_make_torch(m, piece))
            return false;
        if (key++ == UINT64_MAX)
            break;
    }
    return true;
}

bool cm_driver_map_set_library(cm_driver_map *m, uint32_t slot, uint32_t library)
{
    cm_driver_allocation *a = &m->allocation[slot];
    if (library == 0 || a->total == CM_TOTALS_NONE)
        return true;
    cm_total_key key = cm_totals_key(&m->totals, a->total);
    key.library = library;
    if (!move_total(m, a, key))
        return false;
    return !cm_driver_map_is_torch(m, library) || cm_driver_map_make_torch(m, slot);
}

/* --- where a block lies -------------------------------------------------------------------- */

bool cm_driver_map_lies_in(const cm_driver_allocation *a, uint64_t address, int64_t size)
{
    return a->alive && address >= a->address && size <= a->size &&
           address - a->address <= (uint64_t)(a->size - size);
}

uint32_t cm_driver_map_reservation(const cm_driver_map *m, uint64_t address)
{
    uint64_t key;
    uint32_t slot;
    if (!cm_ranges_below(&m->enclosers, address, &key, &slot))
        return 0;
    const cm_driver_allocation *a = &m->allocation[slot];
    return a->kind == CM_DRIVER_RESERVED && cm_driver_map_lies_in(a, address, 1) ? slot + 1 : 0;
}

/* Slot + 1; 0: unknown. */
static uint32_t enclosing_of(cm_driver_map *m, uint64_t address, int64_t size)
{
    uint64_t key;
    uint32_t slot;
    if (m->last_enclosing != 0 &&
        cm_driver_map_lies_in(&m->allocation[m->last_enclosing - 1], address, size))
        return m->last_enclosing;
    if (!cm_ranges_below(&m->enclosers, address, &key, &slot) ||
        !cm_driver_map_lies_in(&m->allocation[slot], address, size))
        return 0;
    return m->last_enclosing = slot + 1;
}

bool cm_driver_map_make(cm_driver_map *m, cm_driver_allocation fresh, uint32_t library,
                        uint32_t stack, uint32_t *slot)
{
    if (!new_slot(m, slot))
        return false;
    fresh.total = CM_TOTALS_NONE;
    fresh.block_device = fresh.device;
    m->allocation[*slot] = fresh;
    bool no_total =
        fresh.kind == CM_DRIVER_CONTEXT || (fresh.implied && fresh.kind == CM_DRIVER_RESERVED);
    if (!no_total && !assign_total(m, *slot, library, stack))
        return false;
    return cm_driver_map_revive(m, *slot);
}

static bool imply(cm_driver_map *m, int8_t device, uint64_t address, int64_t size, uint32_t stack,
                  bool direct, uint32_t *slot)
{
    cm_driver_allocation fresh = {.address = address,
                                  .size = size,
                                  .kind = CM_DRIVER_DEVICE,
                                  .device = device,
                                  .torch = true,
                                  .implied = true,
                                  .direct = direct};
    uint32_t old;
    if (cm_driver_map_lookup(m, CM_DRIVER_SPACE_ADDRESS, address, &old) &&
        !cm_driver_map_end_for_good(m, old))
        return false;
    return cm_driver_map_make(m, fresh, 0, stack, slot);
}

bool cm_driver_map_add_segment(cm_driver_map *m, int8_t device, uint64_t address, int64_t size,
                               uint32_t stack)
{
    uint32_t slot, enclosing = enclosing_of(m, address, size);
    if (enclosing != 0)
        return cm_driver_map_make_torch(m, enclosing - 1);
    return imply(m, device, address, size, stack, false, &slot);
}

bool cm_driver_map_remove_segment(cm_driver_map *m, uint64_t address)
{
    uint32_t slot;
    if (!cm_driver_map_lookup(m, CM_DRIVER_SPACE_ADDRESS, address, &slot) ||
        !m->allocation[slot].implied || m->allocation[slot].direct)
        return true;
    return cm_driver_map_end_for_good(m, slot);
}

enum { ADDRESS_BITS = 55 }; /* no device has more */

static bool add_block(cm_driver_map *m, cm_driver_allocation *a, int64_t bytes, int64_t slack)
{
    a->block_bytes += bytes;
    a->block_slack += slack;
    if (!a->alive)
        return true;
    cm_driver_state *d = &m->device[cm_driver_map_place(a->block_device)];
    d->block_bytes += bytes;
    d->block_slack += slack;
    return d->block_bytes < CM_TOTALS_MOST || cm_driver_map_fail(m, cm_driver_map_bad_size);
}

bool cm_driver_map_add_block(cm_driver_map *m, int8_t index, const cm_block *block,
                             uint32_t *enclosing)
{
    if (*enclosing != 0 || block->address >> ADDRESS_BITS != 0)
        return true; /* already known: its memory's event came late */
    uint32_t found = enclosing_of(m, block->address, block->size), slot;
    if (found == 0 && !block->direct)
        return true;
    if (found == 0) {
        if (!imply(m, index, block->address, block->size, 0, true, &slot))
            return false;
        found = slot + 1;
    }
    slot = found - 1;
    if (!m->allocation[slot].torch && !cm_driver_map_make_torch(m, slot))
        return false;
    cm_driver_allocation *a = &m->allocation[slot];
    if (a->blocks == 0)
        a->block_device = index;
    if (a->blocks == UINT32_MAX || a->block_device != index)
        return true; /* two devices at one address: damage */
    a->blocks++;
    *enclosing = found;
    return add_block(m, a, block->size, cm_block_slack(block));
}

bool cm_driver_map_remove_block(cm_driver_map *m, const cm_block *block, uint32_t enclosing)
{
    uint32_t slot = enclosing - 1;
    cm_driver_allocation *a = &m->allocation[slot];
    a->blocks--;
    if (!add_block(m, a, -block->size, -cm_block_slack(block)))
        return false;
    if (a->alive && a->implied && a->direct && a->blocks == 0)
        return cm_driver_map_end_for_good(m, slot);
    if (!a->alive)
        cm_driver_map_release_slot(m, slot);
    return true;
}

void cm_driver_map_add_slack(cm_driver_map *m, uint32_t enclosing, int64_t more)
{
    add_block(m, &m->allocation[enclosing - 1], 0, more);
}
