#include "drivermap.h"

#include <stdlib.h>
#include <string.h>

#include "grow.h"

#define SIZE_MOST ((int64_t)1 << 48) /* as for blocks: more is damage */

static const char out_of_memory[] = "out of memory";
static const char bad_size[] =
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

static bool fail(cm_drivermap *m, const char *why)
{
    m->error = why;
    return false;
}

cm_drivermap *cm_drivermap_new(const cm_reader *reader)
{
    cm_drivermap *m = calloc(1, sizeof *m);
    if (m == NULL)
        return NULL;
    m->reader = reader;
    const cm_driver_moment nothing = {-1, -1, -1, -1, -1, -1, .context = -1};
    for (size_t i = 0; i < CM_ACCOUNT_HOST; i++) {
        m->device[i].told = m->device[i].last = nothing;
        m->device[i].context = -1;
    }
    return m;
}

void cm_drivermap_free(cm_drivermap *m)
{
    if (m == NULL)
        return;
    cm_accounts_clear(&m->accounts);
    cm_driverjoin_clear(&m->join);
    cm_ranges_clear(&m->homes);
    cm_ranges_clear(&m->mapped);
    cm_idmap_clear(&m->owner);
    for (size_t i = 0; i < CM_DRIVER_SPACES; i++)
        cm_idmap_clear(&m->space[i]);
    for (size_t i = 0; i < CM_DRIVER_THREADS; i++)
        free(m->thread[i].undo);
    free(m->allocation);
    free(m);
}

/* --- spaces -------------------------------------------------------------------------------- */

/* Where an address or handle of this kind is looked up; CM_DRIVER_SPACES: nowhere. */
static int space_of(uint8_t kind)
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

static uint64_t key_of(uint64_t address)
{
    return address & (UINT64_MAX >> 1);
}

static bool lookup(const cm_drivermap *m, int space, uint64_t address, uint32_t *slot)
{
    return space < CM_DRIVER_SPACES && cm_idmap_get(&m->space[space], key_of(address), slot);
}

/* Blocks of PyTorch may lie in it. */
static bool is_home(uint8_t kind)
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

static bool new_slot(cm_drivermap *m, uint32_t *slot)
{
    if (m->vacant != 0) {
        *slot = m->vacant - 1;
        m->vacant = m->allocation[*slot].after;
        return true;
    }
    if (m->slots >= UINT32_MAX - 1 ||
        !cm_grow((void **)&m->allocation, &m->capacity, m->slots + 1, sizeof *m->allocation))
        return fail(m, out_of_memory);
    *slot = (uint32_t)m->slots++;
    return true;
}

/* Once it is over and nobody may come back to it. */
static void let_go(cm_drivermap *m, uint32_t slot)
{
    cm_driver_allocation *a = &m->allocation[slot];
    if (a->alive || a->blocks > 0 || a->keepers > 0 || a->shown > 0 || a->size < 0)
        return;
    if (m->last_home == slot + 1)
        m->last_home = 0;
    *a = (cm_driver_allocation){
        .address = UINT64_MAX, .size = -1, .account = CM_ACCOUNT_NONE, .after = m->vacant};
    m->vacant = slot + 1;
}

static void list(cm_drivermap *m, uint32_t slot)
{
    cm_driver_allocation *a = &m->allocation[slot];
    uint32_t *first = &m->device[cm_drivermap_place(a->device)].first;
    a->before = 0;
    a->after = *first;
    if (*first != 0)
        m->allocation[*first - 1].before = slot + 1;
    *first = slot + 1;
    a->listed = true;
}

static void unlist(cm_drivermap *m, uint32_t slot)
{
    cm_driver_allocation *a = &m->allocation[slot];
    if (!a->listed)
        return;
    if (a->before != 0)
        m->allocation[a->before - 1].after = a->after;
    else
        m->device[cm_drivermap_place(a->device)].first = a->after;
    if (a->after != 0)
        m->allocation[a->after - 1].before = a->before;
    a->before = a->after = 0;
    a->listed = false;
}

static bool count(cm_drivermap *m, const cm_driver_allocation *a, int sign)
{
    cm_driver_state *own = &m->device[cm_drivermap_place(a->device)];
    cm_driver_state *blocks = &m->device[cm_drivermap_place(a->block_device)];
    blocks->block_bytes += sign * a->block_bytes;
    blocks->block_slack += sign * a->block_slack;
    if (a->kind == CM_DRIVER_ASYNC)
        *(a->pool != 0 ? &own->async_other : &own->async_own) += sign * a->size;
    if (a->kind == CM_DRIVER_CONTEXT)
        own->contexts += (uint32_t)sign;
    return a->account == CM_ACCOUNT_NONE ||
           cm_accounts_add(&m->accounts, a->account, a->size, sign) || fail(m, bad_size);
}

/* It lives, again or for the first time. */
static bool revive(cm_drivermap *m, uint32_t slot)
{
    cm_driver_allocation *a = &m->allocation[slot];
    if (a->alive)
        return true;
    int space = space_of(a->kind);
    if (a->kind == CM_DRIVER_MAPPED ? !cm_ranges_put(&m->mapped, a->address, slot)
                                    : space < CM_DRIVER_SPACES && !a->implied &&
                                          !cm_idmap_put(&m->space[space], key_of(a->address), slot))
        return fail(m, out_of_memory);
    if (a->implied && space == CM_DRIVER_SPACE_ADDRESS &&
        !cm_idmap_put(&m->space[space], key_of(a->address), slot))
        return fail(m, out_of_memory);
    if (is_home(a->kind) && !cm_ranges_put(&m->homes, a->address, slot))
        return fail(m, out_of_memory);
    a->alive = true;
    /* It is as if it had been there all the time, unless a picture was taken without it. */
    if (a->birth == 0 || cm_accounts_latest(&m->accounts, a->account) > a->death)
        a->birth = ++m->accounts.clock;
    a->death = 0;
    if (ends_with_context(a->kind))
        list(m, slot);
    if (a->shows != 0)
        m->allocation[a->shows - 1].shown++;
    if (a->join != 0) {
        cm_join_side *waits = cm_driverjoin_waiting(&m->join, a->join - 1);
        if (waits != NULL) {
            waits->birth = a->birth;
            waits->death = 0;
        }
    }
    return count(m, a, 1);
}

/* Its end, for now: its thread may tell that it failed. */
static bool end(cm_drivermap *m, uint32_t slot)
{
    cm_driver_allocation *a = &m->allocation[slot];
    int space = space_of(a->kind);
    uint32_t found;
    if (!a->alive)
        return true;
    a->alive = false;
    a->death = m->accounts.clock;
    if (a->kind == CM_DRIVER_MAPPED)
        cm_ranges_remove(&m->mapped, a->address, slot);
    else if (lookup(m, space, a->address, &found) && found == slot)
        cm_idmap_remove(&m->space[space], key_of(a->address));
    if (is_home(a->kind))
        cm_ranges_remove(&m->homes, a->address, slot);
    if (m->last_home == slot + 1)
        m->last_home = 0;
    unlist(m, slot);
    if (a->shows != 0)
        m->allocation[a->shows - 1].shown--;
    if (a->join != 0) {
        cm_join_side *waits = cm_driverjoin_waiting(&m->join, a->join - 1);
        if (waits != NULL) {
            waits->death = a->death;
            waits->account = a->account;
        }
    }
    return count(m, a, -1);
}

static void forget_join(cm_drivermap *m, cm_driver_allocation *a)
{
    cm_join_side *waits = a->join != 0 ? cm_driverjoin_waiting(&m->join, a->join - 1) : NULL;
    if (waits != NULL)
        waits->allocation = 0; /* its slot becomes somebody else's */
    a->join = 0;
}

static void finish(cm_drivermap *m, uint32_t slot)
{
    cm_driver_allocation *a = &m->allocation[slot];
    if (!a->alive && a->keepers == 0)
        forget_join(m, a);
    let_go(m, slot);
}

static bool end_handle_if_done(cm_drivermap *m, uint32_t slot, bool *ended)
{
    cm_driver_allocation *a = &m->allocation[slot];
    *ended = a->alive && a->references == 0 && a->shown == 0;
    return !*ended || end(m, slot);
}

/* At once and for good: nobody will tell that it failed. */
static bool end_for_good(cm_drivermap *m, uint32_t slot)
{
    uint32_t shows = m->allocation[slot].shows;
    bool ended;
    if (!end(m, slot))
        return false;
    m->allocation[slot].shows = 0;
    finish(m, slot);
    if (shows == 0)
        return true;
    if (!end_handle_if_done(m, shows - 1, &ended))
        return false;
    finish(m, shows - 1);
    return true;
}

/* --- whose it is --------------------------------------------------------------------------- */

static bool account_for(cm_drivermap *m, uint32_t slot, uint32_t library, uint32_t stack)
{
    cm_driver_allocation *a = &m->allocation[slot];
    cm_account_key key = {library, stack,
                          cm_accounts_is_host(a->kind) ? CM_ACCOUNT_HOST
                                                       : cm_drivermap_place(a->device),
                          a->kind, a->torch};
    a->account = cm_accounts_find(&m->accounts, &key);
    return a->account != CM_ACCOUNT_NONE || fail(m, out_of_memory);
}

static bool reaccount(cm_drivermap *m, cm_driver_allocation *a, cm_account_key key)
{
    uint32_t now = cm_accounts_find(&m->accounts, &key);
    if (now == CM_ACCOUNT_NONE)
        return fail(m, out_of_memory);
    /* What is over for now had its bytes taken out: only pictures change. */
    cm_accounts_move(&m->accounts, a->account, now, a->size, a->birth, a->death);
    a->account = now;
    return true;
}

static bool is_torch_library(const cm_drivermap *m, uint32_t library)
{
    const char *path = library != 0 ? cm_reader_name(m->reader, library) : NULL;
    if (path == NULL)
        return false;
    const char *slash = strrchr(path, '/');
    const char *name = slash != NULL ? slash + 1 : path;
    return strncmp(name, "libc10_cuda", 11) == 0 || strncmp(name, "libtorch", 8) == 0;
}

static bool make_torch(cm_drivermap *m, uint32_t slot)
{
    cm_driver_allocation *a = &m->allocation[slot];
    if (a->torch)
        return true;
    a->torch = true;
    if (a->account != CM_ACCOUNT_NONE) {
        cm_account_key key = cm_accounts_key(&m->accounts, a->account);
        key.torch = true;
        if (!reaccount(m, a, key))
            return false;
    }
    if (a->kind == CM_DRIVER_MAPPED)
        return a->shows == 0 || make_torch(m, a->shows - 1);
    if (a->kind != CM_DRIVER_RESERVED || a->size == 0)
        return true;
    uint64_t key = a->address, last = a->address + (uint64_t)(a->size - 1);
    uint32_t piece;
    /* What is PyTorch's already was here when an older reservation became so. */
    while (cm_ranges_above(&m->mapped, key, &key, &piece) && key <= last &&
           !m->allocation[piece].torch) {
        if (!make_torch(m, piece))
            return false;
        if (key++ == UINT64_MAX)
            break;
    }
    return true;
}

static bool set_library(cm_drivermap *m, uint32_t slot, uint32_t library)
{
    cm_driver_allocation *a = &m->allocation[slot];
    if (library == 0 || a->account == CM_ACCOUNT_NONE)
        return true;
    cm_account_key key = cm_accounts_key(&m->accounts, a->account);
    key.library = library;
    if (!reaccount(m, a, key))
        return false;
    return !is_torch_library(m, library) || make_torch(m, slot);
}

/* --- where a block lies -------------------------------------------------------------------- */

static bool lies_in(const cm_driver_allocation *a, uint64_t address, int64_t size)
{
    return a->alive && address >= a->address && size <= a->size &&
           address - a->address <= (uint64_t)(a->size - size);
}

/* Slot + 1; 0: in nothing that is known. */
static uint32_t home_of(cm_drivermap *m, uint64_t address, int64_t size)
{
    uint64_t key;
    uint32_t slot;
    if (m->last_home != 0 && lies_in(&m->allocation[m->last_home - 1], address, size))
        return m->last_home;
    if (!cm_ranges_below(&m->homes, address, &key, &slot) ||
        !lies_in(&m->allocation[slot], address, size))
        return 0;
    return m->last_home = slot + 1;
}

static bool make(cm_drivermap *m, cm_driver_allocation fresh, uint32_t library, uint32_t stack,
                 uint32_t *slot)
{
    if (!new_slot(m, slot))
        return false;
    fresh.account = CM_ACCOUNT_NONE;
    fresh.block_device = fresh.device;
    m->allocation[*slot] = fresh;
    bool nobody =
        fresh.kind == CM_DRIVER_CONTEXT || (fresh.implied && fresh.kind == CM_DRIVER_RESERVED);
    if (!nobody && !account_for(m, *slot, library, stack))
        return false;
    return revive(m, *slot);
}

static bool imply(cm_drivermap *m, int8_t device, uint64_t address, int64_t size, uint32_t stack,
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
    if (lookup(m, CM_DRIVER_SPACE_ADDRESS, address, &old) && !end_for_good(m, old))
        return false;
    return make(m, fresh, 0, stack, slot);
}

bool cm_drivermap_segment(cm_drivermap *m, int8_t device, uint64_t address, int64_t size,
                          uint32_t stack)
{
    uint32_t slot, home = home_of(m, address, size);
    if (home != 0)
        return make_torch(m, home - 1);
    return imply(m, device, address, size, stack, false, &slot);
}

bool cm_drivermap_segment_gone(cm_drivermap *m, uint64_t address)
{
    uint32_t slot;
    if (!lookup(m, CM_DRIVER_SPACE_ADDRESS, address, &slot) || !m->allocation[slot].implied ||
        m->allocation[slot].direct)
        return true;
    return end_for_good(m, slot);
}

enum { ADDRESS_BITS = 55 }; /* no device has more */

static uint64_t owner_key(const cm_block *block)
{
    return block->address | (uint64_t)(block->device & 0xff) << ADDRESS_BITS;
}

static bool is_addressed(const cm_block *block)
{
    return block->address >> ADDRESS_BITS == 0;
}

static bool add_block(cm_drivermap *m, cm_driver_allocation *a, int64_t bytes, int64_t slack)
{
    a->block_bytes += bytes;
    a->block_slack += slack;
    if (!a->alive)
        return true;
    cm_driver_state *d = &m->device[cm_drivermap_place(a->block_device)];
    d->block_bytes += bytes;
    d->block_slack += slack;
    return d->block_bytes < CM_ACCOUNT_MOST || fail(m, bad_size);
}

static bool bear(cm_drivermap *m, int8_t index, const cm_block *block)
{
    uint32_t home = home_of(m, block->address, block->size), slot;
    if (home == 0 && !block->direct)
        return true;
    if (cm_idmap_get(&m->owner, owner_key(block), &slot))
        return true; /* it is known: an event of its memory came late */
    if (home == 0) {
        if (!imply(m, index, block->address, block->size, 0, true, &slot))
            return false;
        home = slot + 1;
    }
    slot = home - 1;
    if (!m->allocation[slot].torch && !make_torch(m, slot))
        return false;
    cm_driver_allocation *a = &m->allocation[slot];
    if (a->blocks == 0)
        a->block_device = index;
    if (a->blocks == UINT32_MAX || a->block_device != index)
        return true; /* of two devices at one address: damage */
    if (!cm_idmap_put(&m->owner, owner_key(block), slot))
        return fail(m, out_of_memory);
    a->blocks++;
    return add_block(m, a, block->size, cm_block_slack(block));
}

static bool bury(cm_drivermap *m, const cm_block *block)
{
    uint32_t slot;
    if (!cm_idmap_get(&m->owner, owner_key(block), &slot))
        return true;
    cm_idmap_remove(&m->owner, owner_key(block));
    cm_driver_allocation *a = &m->allocation[slot];
    a->blocks--;
    if (!add_block(m, a, -block->size, -cm_block_slack(block)))
        return false;
    if (a->alive && a->implied && a->direct && a->blocks == 0)
        return end_for_good(m, slot);
    if (!a->alive)
        finish(m, slot);
    return true;
}

bool cm_drivermap_block(cm_drivermap *m, int8_t index, const cm_block *block, int sign)
{
    if (!is_addressed(block))
        return true;
    return sign > 0 ? bear(m, index, block) : bury(m, block);
}

void cm_drivermap_asked(cm_drivermap *m, const cm_block *block, int64_t more)
{
    uint32_t slot;
    if (is_addressed(block) && cm_idmap_get(&m->owner, owner_key(block), &slot))
        add_block(m, &m->allocation[slot], 0, more);
}

/* --- a thread's last event ----------------------------------------------------------------- */

static bool keep(cm_drivermap *m, cm_driver_thread *t, cm_driver_undo undo)
{
    if (!cm_grow((void **)&t->undo, &t->undo_capacity, t->undo_count + 1, sizeof *t->undo))
        return fail(m, out_of_memory);
    m->allocation[undo.slot].keepers++;
    t->undo[t->undo_count++] = undo;
    return true;
}

/* From here on, the last event is what it is. */
static void settle(cm_drivermap *m, cm_driver_thread *t)
{
    for (size_t i = 0; i < t->undo_count; i++)
        m->allocation[t->undo[i].slot].keepers--;
    for (size_t i = t->undo_count; i-- > 0;)
        finish(m, t->undo[i].slot);
    if (t->undo_capacity > 64) {
        free(t->undo);
        t->undo = NULL;
        t->undo_capacity = 0;
    }
    if (t->event.kind == CM_EV_WITNESS)
        m->join.expired_records++; /* no id was told */
    t->undo_count = 0;
    t->event.kind = 0;
    t->subject = 0;
    t->join = 0;
    t->counted = t->unknown = false;
}

static cm_driver_thread *thread_of(cm_drivermap *m, uint32_t number)
{
    cm_driver_thread *t = &m->thread[number % CM_DRIVER_THREADS];
    if (!t->known || t->number != number) {
        settle(m, t);
        t->known = true;
        t->number = number;
    }
    return t;
}

/* --- events -------------------------------------------------------------------------------- */

static bool take_reference(cm_drivermap *m, const cm_event *e, cm_driver_thread *t)
{
    uint32_t slot;
    if (!lookup(m, CM_DRIVER_SPACE_HANDLE, e->address, &slot)) {
        /* Of a handle that is older than the recording: what it takes is not known. */
        cm_driver_allocation fresh = {.address = e->address,
                                      .kind = CM_DRIVER_PHYSICAL,
                                      .device = e->device_index,
                                      .references = 1};
        return make(m, fresh, 0, e->stack, &slot);
    }
    if (m->allocation[slot].references < UINT32_MAX)
        m->allocation[slot].references++;
    return true;
}

/* Of the reservation that an event of mapping says that there is; one that is older than the
 * recording is implied, as long as mappings follow each other. */
static bool find_reservation(cm_drivermap *m, const cm_event *e, uint32_t *slot)
{
    uint64_t key;
    if (cm_ranges_below(&m->homes, e->address, &key, slot)) {
        cm_driver_allocation *a = &m->allocation[*slot];
        if (lies_in(a, e->address, e->size))
            return true;
        if (a->implied && a->kind == CM_DRIVER_RESERVED &&
            a->address + (uint64_t)a->size == e->address && a->size <= SIZE_MOST - e->size) {
            a->size += e->size;
            return true;
        }
    }
    cm_driver_allocation fresh = {.address = e->address,
                                  .size = e->size,
                                  .kind = CM_DRIVER_RESERVED,
                                  .device = e->device_index,
                                  .implied = true};
    return make(m, fresh, 0, 0, slot);
}

static bool replace(cm_drivermap *m, uint8_t kind, uint64_t address)
{
    uint32_t old;
    if (!lookup(m, space_of(kind), address, &old))
        return true;
    cm_driver_allocation *a = &m->allocation[old];
    if (space_of(kind) == CM_DRIVER_SPACE_HANDLE && a->shown > 0) {
        a->references = 0; /* its handle is another's now; it lives as long as it is shown */
        cm_idmap_remove(&m->space[CM_DRIVER_SPACE_HANDLE], key_of(address));
        return true;
    }
    m->replaced += !a->implied;
    return end_for_good(m, old);
}

static bool unmap(cm_drivermap *m, uint64_t address, int64_t size, cm_driver_thread *undo,
                  bool *any);

static bool come(cm_drivermap *m, const cm_event *e, cm_driver_thread *t)
{
    uint8_t kind = e->flags & CM_DRIVER_KIND;
    bool any, before = (e->flags & CM_EVF_ALREADY) != 0;
    uint32_t slot, reservation = 0;
    if (e->size < 0 || e->size > SIZE_MOST)
        return fail(m, bad_size);
    if (kind == 0 || kind > CM_DRIVER_CONTEXT)
        return true; /* of a version to come */
    if (kind != CM_DRIVER_CONTEXT)
        m->allocations += !before;
    if (kind == CM_DRIVER_REFERENCE)
        return take_reference(m, e, t);
    cm_driver_state *d = &m->device[cm_drivermap_place(e->device_index)];
    if (kind == CM_DRIVER_CONTEXT) {
        d->context_made |= !before && d->moments == 0;
        if (lookup(m, CM_DRIVER_SPACE_CONTEXT, e->address, &slot))
            return true; /* told again: one more that uses it */
    } else if (kind == CM_DRIVER_MAPPED) {
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
                                  .references = space_of(kind) == CM_DRIVER_SPACE_HANDLE};
    if (!make(m, fresh, 0, e->stack, &slot))
        return false;
    t->subject = slot + 1;
    return kind != CM_DRIVER_MAPPED || !m->allocation[reservation].torch || make_torch(m, slot);
}

static bool end_one(cm_drivermap *m, uint32_t slot, cm_driver_thread *t)
{
    uint32_t shows = m->allocation[slot].shows;
    bool ended;
    if (!keep(m, t, (cm_driver_undo){.slot = slot}) || !end(m, slot))
        return false;
    if (shows == 0)
        return true;
    /* Its handle may be over, too. */
    return keep(m, t, (cm_driver_undo){.slot = shows - 1}) &&
           end_handle_if_done(m, shows - 1, &ended);
}

/* A mapping without what lies in [address, address + size): one or two that are shorter, and the
 * rest as one of its own, `middle`, which is what ends. */
static bool cut(cm_drivermap *m, uint32_t slot, uint64_t address, uint64_t last, uint32_t *middle)
{
    cm_driver_allocation a = m->allocation[slot];
    uint64_t begin = a.address, end_at = a.address + (uint64_t)(a.size - 1);
    if (address <= begin && last >= end_at) {
        *middle = slot;
        return true;
    }
    cm_account_key key = cm_accounts_key(&m->accounts, a.account);
    uint64_t from = address > begin ? address : begin, to = last < end_at ? last : end_at;
    struct {
        uint64_t first, last;
        bool is;
    } piece[3] = {{begin, from - 1, from > begin}, {from, to, true}, {to + 1, end_at, to < end_at}};
    uint32_t shows = a.shows;
    if (shows != 0)
        m->allocation[shows - 1].shown++; /* it must not end meanwhile */
    if (!end(m, slot))
        return false;
    m->allocation[slot].shows = 0;
    finish(m, slot);
    for (int i = 0; i < 3; i++) {
        cm_driver_allocation part = {.address = piece[i].first,
                                     .size = (int64_t)(piece[i].last - piece[i].first) + 1,
                                     .kind = CM_DRIVER_MAPPED,
                                     .device = a.device,
                                     .torch = a.torch,
                                     .shows = shows};
        uint32_t made;
        if (!piece[i].is)
            continue;
        if (!make(m, part, key.library, key.stack, &made))
            return false;
        if (i == 1)
            *middle = made;
    }
    if (shows != 0)
        m->allocation[shows - 1].shown--;
    return true;
}

/* Ends the mappings in these addresses; undo: where to remember it, NULL: for good. */
static bool unmap(cm_drivermap *m, uint64_t address, int64_t size, cm_driver_thread *undo,
                  bool *any)
{
    uint64_t last = address + (uint64_t)size - 1, key;
    uint32_t slot, middle = 0;
    *any = false;
    if (size == 0 || last < address)
        return true;
    uint64_t from = address;
    if (cm_ranges_below(&m->mapped, address, &key, &slot) &&
        lies_in(&m->allocation[slot], address, 1))
        from = key;
    while (cm_ranges_above(&m->mapped, from, &key, &slot) && key <= last) {
        if (!cut(m, slot, address, last, &middle) ||
            !(undo != NULL ? end_one(m, middle, undo) : end_for_good(m, middle)))
            return false;
        *any = true;
        from = key < address ? address : key + 1;
        if (from == 0)
            break;
    }
    /* An implied reservation is over with its last mapping. */
    if (*any && cm_ranges_below(&m->homes, address, &key, &slot) && m->allocation[slot].implied &&
        m->allocation[slot].kind == CM_DRIVER_RESERVED) {
        uint64_t end_at = m->allocation[slot].address + (uint64_t)m->allocation[slot].size, next;
        uint32_t piece;
        if (!cm_ranges_above(&m->mapped, m->allocation[slot].address, &next, &piece) ||
            next >= end_at)
            return undo != NULL ? end_one(m, slot, undo) : end_for_good(m, slot);
    }
    return true;
}

static bool release(cm_drivermap *m, const cm_event *e, cm_driver_thread *t, bool *known)
{
    uint32_t slot;
    bool ended;
    *known =
        lookup(m, CM_DRIVER_SPACE_HANDLE, e->address, &slot) && m->allocation[slot].references > 0;
    if (!*known)
        return true;
    m->allocation[slot].references--;
    return keep(m, t, (cm_driver_undo){.slot = slot, .reference = true}) &&
           end_handle_if_done(m, slot, &ended);
}

static bool end_context(cm_drivermap *m, const cm_event *e, cm_driver_thread *t, bool *known)
{
    cm_driver_state *d = &m->device[cm_drivermap_place(e->device_index)];
    uint32_t slot;
    *known = lookup(m, CM_DRIVER_SPACE_CONTEXT, e->address, &slot);
    if (*known) {
        d = &m->device[cm_drivermap_place(m->allocation[slot].device)];
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

static bool go(cm_drivermap *m, const cm_event *e, cm_driver_thread *t)
{
    uint8_t kind = e->flags & CM_DRIVER_KIND;
    bool known = false, before = (e->flags & CM_EVF_ALREADY) != 0;
    uint32_t slot;
    if (e->size < 0 || e->size > SIZE_MOST)
        return fail(m, bad_size);
    if (kind > CM_DRIVER_CONTEXT || (kind == 0 && e->address == 0))
        return true; /* freeing nothing is allowed */
    if (kind == CM_DRIVER_CONTEXT)
        return end_context(m, e, t, &known);
    if (kind == CM_DRIVER_MAPPED) {
        if (!unmap(m, e->address, e->size, t, &known))
            return false;
    } else if (space_of(kind) == CM_DRIVER_SPACE_HANDLE) {
        if (!release(m, e, t, &known))
            return false;
    } else {
        int space = space_of(kind);
        known = lookup(m, space, e->address, &slot);
        /* Memory of a graph's node may be given back outside of it. */
        if (!known && space == CM_DRIVER_SPACE_ADDRESS)
            known = lookup(m, CM_DRIVER_SPACE_GRAPH, e->address, &slot);
        if (known) {
            t->subject = slot + 1; /* lives at least until this event is settled */
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

/* The last free did not happen. */
static bool take_back(cm_drivermap *m, cm_driver_thread *t)
{
    if (t->event.kind != CM_EV_DRIVER_FREE)
        return true;
    m->failed_frees++;
    m->frees -= t->counted;
    m->unknown_frees -= t->unknown;
    if (t->join != 0)
        cm_driverjoin_forget(&m->join, t->join - 1);
    for (size_t i = t->undo_count; i-- > 0;) {
        cm_driver_undo u = t->undo[i];
        cm_driver_allocation *a = &m->allocation[u.slot];
        if (u.reference && a->references < UINT32_MAX)
            a->references++;
        bool handle = space_of(a->kind) == CM_DRIVER_SPACE_HANDLE;
        /* A handle that only had lost a mapping never ended. */
        if (!(handle && a->alive) && !revive(m, u.slot))
            return false;
    }
    t->event.kind = 0;
    settle(m, t);
    return true;
}

/* --- joining with records ------------------------------------------------------------------ */

/* MEMORY2 has records of what is allocated so; of a free, as far as one knows what it was. */
static bool has_records(uint8_t kind)
{
    return kind == 0 || kind == CM_DRIVER_DEVICE || kind == CM_DRIVER_MANAGED ||
           kind == CM_DRIVER_HOST || kind == CM_DRIVER_ASYNC;
}

static bool give_library(cm_drivermap *m, const cm_join_side *event, uint32_t library)
{
    if (event->release || library == 0)
        return true;
    if (event->allocation != 0)
        return set_library(m, event->allocation - 1, library);
    if (event->account == CM_ACCOUNT_NONE)
        return true;
    /* Gone since: it may be on a picture. */
    cm_account_key key = cm_accounts_key(&m->accounts, event->account);
    key.library = library;
    key.torch |= is_torch_library(m, library);
    uint32_t now = cm_accounts_find(&m->accounts, &key);
    if (now == CM_ACCOUNT_NONE)
        return fail(m, out_of_memory);
    cm_accounts_move(&m->accounts, event->account, now, event->accounted, event->birth,
                     event->death);
    return true;
}

static bool join_event(cm_drivermap *m, cm_driver_thread *t, uint32_t correlation)
{
    const cm_event *e = &t->event;
    uint8_t kind = e->flags & CM_DRIVER_KIND;
    cm_join_side other, side = {.address = e->address,
                                .size = e->size,
                                .device = e->device_index,
                                .release = e->kind == CM_EV_DRIVER_FREE,
                                .account = CM_ACCOUNT_NONE};
    cm_driver_allocation *a = t->subject != 0 ? &m->allocation[t->subject - 1] : NULL;
    if (a != NULL && side.release) {
        kind = a->kind;
        side.size = a->size;
        side.device = a->device;
    } else if (a != NULL) {
        side.allocation = t->subject;
        side.account = a->account;
        side.accounted = a->size;
        side.birth = a->birth;
    }
    if (!has_records(kind) || t->join != 0 || (side.release && e->address == 0))
        return true;
    if (kind == CM_DRIVER_HOST)
        side.device = -1; /* of none */
    uint64_t number;
    int joined = cm_driverjoin_event(&m->join, correlation, &side, &other, &number);
    if (joined < 0)
        return fail(m, out_of_memory);
    if (joined == 1)
        return give_library(m, &side, other.library);
    t->join = number + 1;
    if (side.allocation != 0)
        a->join = number + 1;
    return true;
}

static bool join_record(cm_drivermap *m, cm_driver_thread *t, uint32_t correlation)
{
    const cm_event *e = &t->event;
    cm_join_side other, side = {.address = e->address,
                                .size = e->size,
                                .device = e->device_index,
                                .library = e->stack,
                                .release = (e->flags & CM_EVF_RELEASE) != 0};
    t->event.kind = 0;
    int joined = cm_driverjoin_record(&m->join, correlation, &side, &other);
    if (joined < 0)
        return fail(m, out_of_memory);
    if (joined == 0)
        return true;
    if (other.allocation != 0)
        m->allocation[other.allocation - 1].join = 0;
    return give_library(m, &other, side.library);
}

/* --- more about an event ------------------------------------------------------------------- */

static bool set_handle(cm_drivermap *m, cm_driver_thread *t, uint64_t value)
{
    uint32_t handle;
    cm_driver_allocation *a = &m->allocation[t->subject - 1];
    if (!a->alive)
        return true;
    if (a->kind == CM_DRIVER_ASYNC && a->pool == 0 && value != 0) {
        cm_driver_state *d = &m->device[cm_drivermap_place(a->device)];
        d->async_own -= a->size;
        d->async_other += a->size;
        a->pool = value;
    }
    if (a->kind != CM_DRIVER_MAPPED || a->shows != 0 ||
        !lookup(m, CM_DRIVER_SPACE_HANDLE, value, &handle) ||
        m->allocation[handle].shown == UINT32_MAX)
        return true;
    a->shows = handle + 1;
    m->allocation[handle].shown++;
    return !a->torch || make_torch(m, handle);
}

static bool say_more(cm_drivermap *m, const cm_event *e, cm_driver_thread *t)
{
    const cm_driver_allocation *a = t->subject != 0 ? &m->allocation[t->subject - 1] : NULL;
    if (a != NULL && a->address != t->event.address)
        t->subject = 0; /* gone meanwhile, and its slot is somebody else's */
    bool of_new = t->event.kind == CM_EV_DRIVER_NEW && t->subject != 0;
    switch (e->size) {
    case CM_MORE_LIBRARY:
        return !of_new || set_library(m, t->subject - 1, e->stack);
    case CM_MORE_CORRELATION:
        if (t->event.kind == CM_EV_DRIVER_NEW || t->event.kind == CM_EV_DRIVER_FREE)
            return join_event(m, t, (uint32_t)e->address);
        return t->event.kind != CM_EV_WITNESS || join_record(m, t, (uint32_t)e->address);
    case CM_MORE_HANDLE:
        return !of_new || set_handle(m, t, e->address);
    case CM_MORE_TORCH:
        return !of_new || make_torch(m, t->subject - 1);
    case CM_MORE_FAILED:
        return take_back(m, t);
    default:
        return true;
    }
}

/* --- pools and totals ---------------------------------------------------------------------- */

/* A table of as many as fit: a program has a few. */
static void see_pool(cm_drivermap *m, const cm_event *e)
{
    struct cm_driver_pool *found = NULL;
    for (size_t i = 0; i < CM_DRIVER_POOLS && found == NULL; i++)
        if (!m->pool[i].known || m->pool[i].address == e->address)
            found = &m->pool[i];
    if (found == NULL || e->size < 0 || e->size > SIZE_MOST)
        return;
    bool gone = e->flags == CM_POOL_DESTROYED;
    *found = (struct cm_driver_pool){e->address, gone ? 0 : e->size, e->device_index, true};
}

/* What the pools of a device hold; -1: not told. */
static int64_t held_by_pools(const cm_drivermap *m, int8_t index, int64_t pooled)
{
    int64_t held = -1;
    if (pooled >= 0)
        return pooled + m->device[cm_drivermap_place(index)].async_other;
    for (size_t i = 0; i < CM_DRIVER_POOLS && m->pool[i].known; i++)
        if (m->pool[i].device == index)
            held = (held < 0 ? 0 : held) + m->pool[i].size;
    return held;
}

static int64_t told_bytes(int64_t size)
{
    return size < 0 || size > SIZE_MOST ? -1 : size;
}

static void end_moment(cm_drivermap *m, int8_t index, bool quiet)
{
    cm_driver_state *d = &m->device[cm_drivermap_place(index)];
    cm_driver_moment now = d->told;
    int64_t live = d->async_own + d->async_other, held = held_by_pools(m, index, now.pooled);
    if (held >= 0) {
        now.pool_slack = held > live ? held - live : 0;
        now.pool_short = held < live ? live - held : 0;
    }
    now.quiet = quiet;
    now.block_bytes = d->block_bytes;
    now.block_slack = d->block_slack;
    now.driver = m->accounts.device[cm_drivermap_place(index)].bytes;
    if (quiet && !d->context_known) {
        int64_t others = now.others > 0 ? now.others : 0;
        d->context = now.used - others - m->accounts.device[cm_drivermap_place(index)].bytes -
                     now.pool_slack;
        if (d->context < 0)
            d->context = 0;
        d->context_known = true;
    }
    now.context = d->context;
    d->last = now;
    d->moments++;
    d->told = (cm_driver_moment){-1, -1, -1, -1, -1, -1, .context = -1};
}

static void see_device(cm_drivermap *m, const cm_event *e)
{
    cm_driver_moment *told = &m->device[cm_drivermap_place(e->device_index)].told;
    int64_t bytes = told_bytes(e->size);
    switch (e->address) {
    case CM_TOLD_TOTAL:
        told->total = bytes;
        return;
    case CM_TOLD_OWN:
        told->own = bytes;
        return;
    case CM_TOLD_OTHERS:
        told->others = bytes;
        return;
    case CM_TOLD_POOLED:
        told->pooled = bytes;
        return;
    case CM_TOLD_RESERVED:
        told->reserved = bytes;
        return;
    case CM_TOLD_USED:
        told->used = bytes;
        if (bytes >= 0)
            end_moment(m, e->device_index, (e->flags & CM_EVF_QUIET) != 0);
        return;
    default:
        return;
    }
}

bool cm_drivermap_apply(cm_drivermap *m, const cm_record *record)
{
    const cm_event *e = &record->event;
    if (e->kind == CM_EV_DEVICE) {
        see_device(m, e);
        return true;
    }
    cm_driver_thread *t = thread_of(m, record->thread);
    if (e->kind == CM_EV_DRIVER_MORE)
        return t->event.kind == 0 || say_more(m, e, t);
    settle(m, t);
    m->accounts.clock++;
    t->event = *e;
    switch (e->kind) {
    case CM_EV_DRIVER_NEW:
        return come(m, e, t);
    case CM_EV_DRIVER_FREE:
        return go(m, e, t);
    case CM_EV_WITNESS:
        m->join.record_count++;
        return true;
    case CM_EV_POOL:
        see_pool(m, e);
        return true;
    default:
        t->event.kind = 0;
        return true;
    }
}
