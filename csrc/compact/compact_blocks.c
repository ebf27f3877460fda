/* Compaction of devices, autograd nodes and blocks: which events belong together, and which stay.
 */
#include <string.h>

#include "../base/grow.h"
#include "compact_parts.h"

enum { DEPTH_MAX = 1 << 16, SEQUENCE_BITS = 40 };

/* --- what is known of devices and nodes ----------------------------------------------------- */

/* DEVICES: not known, or (with `make`) one too many. */
size_t cm_compact_find_device(cm_compaction *f, const cm_event *e, bool make)
{
    int8_t index = e->device_type == CM_DEVICE_CPU ? -1 : e->device_index;
    const compact_device *last = &f->device[f->last_device];
    if (f->devices > 0 && last->type == e->device_type && last->index == index)
        return f->last_device;
    for (size_t i = 0; i < f->devices; i++)
        if (f->device[i].type == e->device_type && f->device[i].index == index)
            return f->last_device = i;
    if (!make || f->devices == DEVICES)
        return DEVICES;
    f->device[f->devices] = (compact_device){.type = e->device_type, .index = index};
    return f->devices++;
}

static bool node_key(uint32_t number, uint64_t sequence, uint64_t *key)
{
    *key = (uint64_t)number << SEQUENCE_BITS | sequence;
    return number < 1u << (63 - SEQUENCE_BITS) && sequence < (uint64_t)1 << SEQUENCE_BITS;
}

/* The creation, in this stretch, of the node that a run or an end names; 0: none. */
static uint32_t find_made(const cm_compaction *f, const cm_event *e, uint64_t *key)
{
    uint64_t autograd_id = (uint64_t)e->size;
    uint32_t number, at;
    if (f->made.count == 0 || autograd_id == 0 || autograd_id == UINT64_MAX ||
        !cm_idmap_get(&f->by_autograd, autograd_id, &number) ||
        !node_key(number, e->address, key) || !cm_idmap_get(&f->made, *key, &at))
        return 0;
    return at;
}

/* --- keeping -------------------------------------------------------------------------------- */

static bool want(cm_compaction *f, uint32_t at)
{
    if (at == 0 || f->items[at].keep)
        return true;
    f->items[at].keep = true;
    if (!cm_grow((void **)&f->todo, &f->todo_capacity, f->todo_count + 1, sizeof *f->todo))
        return false;
    f->todo[f->todo_count++] = at;
    return true;
}

/* This item stays, and all that it needs to mean what it meant. Only once the stretch is over: an
 * item's other half is not known before. */
bool cm_compact_keep(cm_compaction *f, uint32_t at)
{
    if (!want(f, at))
        return false;
    while (f->todo_count > 0) {
        const compact_item *it = &f->items[f->todo[--f->todo_count]];
        if (!want(f, it->partner) || !want(f, it->frame) || !want(f, it->link) ||
            !want(f, it->named))
            return false;
    }
    return true;
}

/* --- node runs ------------------------------------------------------------------------------ */

bool cm_compact_run_node(cm_compaction *f, compact_thread *t, const cm_event *e, uint32_t at)
{
    compact_frame *outer = cm_compact_find_innermost(t);
    uint64_t key;
    if (at != 0)
        f->items[at].frame = outer->run;
    if (e->address != CM_NODE_NO_SEQUENCE) {
        if (at != 0)
            f->items[at].link = find_made(f, e, &key);
        outer->setter = at;
        outer->previous = SET;
    } else {
        if (at != 0)
            f->items[at].link = outer->setter;
        /* Gradients of leaves, one after the other, hand the same line on. */
        if (outer->previous == UNSET)
            *outer = (compact_frame){outer->run, at, SET};
    }
    if (t->frames > DEPTH_MAX) {
        t->unseen++;
        return true;
    }
    if (!cm_grow((void **)&t->frame, &t->capacity, t->frames + 1, sizeof *t->frame))
        return false;
    t->frame[t->frames++] = (compact_frame){.run = at};
    return true;
}

void cm_compact_end_node(cm_compaction *f, compact_thread *t, uint32_t at)
{
    if (t->unseen > 0)
        t->unseen--;
    else if (t->frames > 1)
        cm_compact_tie(f, t->frame[--t->frames].run, at);
}

/* Forward runs again on this thread, so that no line is handed on. */
static void run_forward(compact_thread *t, const cm_event *e, uint32_t at)
{
    if (e->flags & CM_EVF_IN_NODE || t->frames > 1 || t->frame[0].previous == UNSET)
        return;
    t->frame[0].previous = UNSET;
    t->frame[0].setter = at;
}

static bool is_first_of_stack(cm_compaction *f, uint32_t stack, bool *first)
{
    size_t byte = stack / 8;
    if (!cm_grow_zeroed((void **)&f->told, &f->told_bytes, byte + 1, 1))
        return false;
    *first = !(f->told[byte] >> stack % 8 & 1);
    f->told[byte] |= (uint8_t)(1u << stack % 8);
    return true;
}

bool cm_compact_make_node(cm_compaction *f, compact_thread *t, const cm_event *e, uint32_t at)
{
    uint64_t key;
    bool first = false;
    run_forward(t, e, at);
    f->want_node = false;
    /* A stack beyond what a log of definitions can hold is damage: such an event just stays. */
    if (!(e->flags & CM_EVF_IN_NODE) && e->stack < 1u << 28 &&
        !is_first_of_stack(f, e->stack, &first))
        return false;
    if (at == 0)
        return true;
    f->items[at].frame = cm_compact_find_innermost(t)->run;
    if (first)
        cm_compact_must_stay(f, at);
    return !node_key(t->number, e->address, &key) || cm_idmap_put(&f->made, key, at);
}

void cm_compact_free_node(cm_compaction *f, const cm_event *e, uint32_t at)
{
    uint64_t key;
    uint32_t made = find_made(f, e, &key);
    if (made == 0)
        return;
    cm_idmap_remove(&f->made, key);
    cm_compact_tie(f, made, at);
}

/* --- blocks --------------------------------------------------------------------------------- */

static bool take(cm_compaction *f, const cm_event *e, uint32_t at)
{
    size_t known = f->devices, number = cm_compact_find_device(f, e, true);
    cm_block old;
    if (number == DEVICES)
        return true;
    if (at != 0) {
        f->items[at].device = (uint8_t)number;
        f->items[at].nothing = e->size >= 0 && e->size <= BLOCK_MAX && !cm_compact_is_block(e);
        if (number == known)
            cm_compact_must_stay(f, at); /* devices are numbered as they come */
    }
    if (!cm_compact_is_block(e))
        return true;
    compact_device *d = &f->device[number];
    if (cm_blocks_take(&f->blocks, (uint16_t)number, e->address, &old, NULL)) {
        d->live -= old.size;
        cm_compact_must_stay(f, at);
    }
    cm_block block = {
        .address = e->address, .size = e->size, .origin = at, .device = (uint16_t)number};
    block.direct = (e->flags & CM_EVF_DIRECT) != 0;
    if (cm_blocks_put(&f->blocks, &block) == NULL)
        return false;
    d->live += e->size;
    if (d->live > d->most) {
        d->most = d->live;
        d->at[PEAK] = at;
    }
    return true;
}

bool cm_compact_allocate(cm_compaction *f, compact_thread *t, const cm_record *record, uint32_t at)
{
    if (at != 0) {
        f->items[at].frame = cm_compact_find_innermost(t)->run;
        f->items[at].named = t->named;
        f->items[at].charge = (uint8_t)cm_nodes_charge(f->nodes, record).kind;
    }
    run_forward(t, &record->event, at);
    return take(f, &record->event, at);
}

/* The device that a block of this address is on, where the event does not tell it. */
static size_t owner_of(const cm_compaction *f, const cm_event *e)
{
    for (size_t i = 0; i < f->devices; i++)
        if (f->device[i].type == e->device_type &&
            cm_blocks_find(&f->blocks, (uint16_t)i, e->address) != NULL)
            return i;
    return DEVICES;
}

/* A segment's end stays; a block that was taken from CUDA for itself ends like any other. */
static bool ends_block(const cm_compaction *f, const cm_event *e)
{
    size_t number = e->kind == CM_EV_SEGMENT_FREE ? owner_of(f, e) : DEVICES;
    return e->kind == CM_EV_FREE ||
           (number != DEVICES && cm_blocks_find(&f->blocks, (uint16_t)number, e->address)->direct);
}

static size_t device_of_free(cm_compaction *f, const cm_event *e)
{
    size_t number = cm_compact_find_device(f, e, false);
    if (number == DEVICES && e->device_type == CM_DEVICE_CUDA &&
        e->device_index == CM_DEVICE_UNKNOWN)
        number = owner_of(f, e);
    return number;
}

static void give_back(cm_compaction *f, const cm_event *e, uint32_t at)
{
    size_t number = device_of_free(f, e);
    cm_block old;
    if (at != 0) /* its thread is named by some device's sums */
        f->items[at].nothing = e->address == 0 && f->devices > 0;
    if (e->address == 0 || number == DEVICES ||
        !cm_blocks_take(&f->blocks, (uint16_t)number, e->address, &old, NULL))
        return;
    f->device[number].live -= old.size;
    cm_compact_tie(f, old.origin, at);
}

/* The free that a thread told of: it goes where the free goes. */
static void release_held(cm_compaction *f, compact_thread *t, uint32_t at)
{
    if (at != 0 && t->held != 0) {
        f->items[at].link = t->held;
        f->items[t->held].nothing = true;
    }
    t->held = 0;
}

void cm_compact_release(cm_compaction *f, compact_thread *t, const cm_event *e, uint32_t at)
{
    if (!ends_block(f, e))
        return;
    give_back(f, e, at);
    release_held(f, t, at);
}

static inline bool is_on(const compact_device *d, const cm_event *e)
{
    return d->type == e->device_type && d->index == e->device_index;
}

/* Whether an allocation says that forward runs again behind a backward. */
static inline bool ends_backward(const compact_thread *t, const cm_event *e)
{
    return t->frame[0].previous == SET && t->frames == 1 && !(e->flags & CM_EVF_IN_NODE);
}

size_t cm_compact_see_blocks(cm_compaction *f, const compact_thread *t, const cm_event *events,
                             size_t count)
{
    size_t number = f->devices > 0 ? f->last_device : DEVICES;
    cm_block block;

    for (size_t i = 0; i < count; i++) {
        const cm_event *e = &events[i];
        if (e->kind == CM_EV_FREE) {
            if (number == DEVICES || !is_on(&f->device[number], e))
                number = device_of_free(f, e);
            if (e->address != 0 && number != DEVICES)
                cm_blocks_take(&f->blocks, (uint16_t)number, e->address, &block, NULL);
        } else if (e->kind == CM_EV_ALLOC && !ends_backward(t, e)) {
            if (number == DEVICES || !is_on(&f->device[number], e))
                number = cm_compact_find_device(f, e, true);
            if (number == DEVICES || !cm_compact_is_block(e))
                continue;
            block = (cm_block){.address = e->address,
                               .size = e->size,
                               .device = (uint16_t)number,
                               .direct = (e->flags & CM_EVF_DIRECT) != 0};
            if (!cm_blocks_set(&f->blocks, &block))
                return SIZE_MAX;
        } else if (e->kind != CM_EV_REQUESTED) {
            return i;
        }
    }
    return count;
}

/* A bound, so that the blocks before it are older ones. */
bool cm_compact_find_alive(cm_compaction *f, const cm_event *e)
{
    size_t number = cm_compact_find_device(f, e, true);
    if (number == DEVICES || !cm_compact_is_block(e) ||
        cm_blocks_find(&f->blocks, (uint16_t)number, e->address) != NULL)
        return true;
    cm_block block = {.address = e->address, .size = e->size, .device = (uint16_t)number};
    block.direct = (e->flags & CM_EVF_DIRECT) != 0;
    return cm_blocks_put(&f->blocks, &block) != NULL;
}

/* Goes with its block, wherever that goes. */
void cm_compact_tie_request(cm_compaction *f, const cm_event *e, uint32_t at)
{
    size_t number = cm_compact_find_device(f, e, false);
    const cm_block *block =
        number != DEVICES ? cm_blocks_find(&f->blocks, (uint16_t)number, e->address) : NULL;
    if (at == 0 || block == NULL || block->origin == 0)
        return; /* of an older block it stays */
    f->items[block->origin].link = at;
    f->items[at].nothing = true;
}

void cm_compact_see_reserved(cm_compaction *f, const cm_event *e, uint32_t at)
{
    size_t number = cm_compact_find_device(f, e, true);
    if (number == DEVICES)
        return;
    compact_device *d = &f->device[number];
    if (at != 0)
        f->items[at].nothing = d->reserved_known && d->reserved == e->size;
    if (!d->reserved_known || e->size > d->most_reserved) {
        d->most_reserved = e->size;
        d->at[RESERVED_MOST] = at;
    }
    d->reserved_known = true;
    d->reserved = e->size;
}

static int64_t count_live_bytes(const cm_compaction *f, size_t number)
{
    int64_t bytes = 0;
    for (const cm_block *b = NULL; (b = cm_blocks_next(&f->blocks, b)) != NULL;)
        if (b->device == number)
            bytes += b->size;
    return bytes;
}

void cm_compact_see_oom(cm_compaction *f, const cm_event *e, uint32_t at)
{
    size_t number = cm_compact_find_device(f, e, true);
    if (number == DEVICES)
        return;
    compact_device *d = &f->device[number];
    /* A reader would count what is alive, and of blocks around this event some are left out. */
    if (at != 0 && !cm_oom_is_known(e->address) && d->ooms_counted < CM_OOMS_KEPT) {
        f->items[at].event.address = (uint64_t)count_live_bytes(f, number);
        d->ooms_counted++;
    }
    if (d->oom)
        return;
    d->oom = true;
    d->at[FIRST_OOM] = at;
}
