/* Compaction of devices, autograd nodes and blocks: which events belong together, and which stay.
 */
#include <string.h>

#include "../base/grow.h"
#include "compact_parts.h"

enum { DEPTH_MAX = 1 << 16, SEQUENCE_BITS = 40 };

/* --- what is known of devices and nodes ----------------------------------------------------- */

/* DEVICES: not known, or (with `make`) one too many. */
size_t cm_compact_find_device(cm_compaction *c, const cm_event *e, bool make)
{
    int8_t index = e->device_type == CM_DEVICE_CPU ? -1 : e->device_index;
    const compact_device *last = &c->device[c->last_device];
    if (c->devices > 0 && last->type == e->device_type && last->index == index)
        return c->last_device;
    for (size_t i = 0; i < c->devices; i++)
        if (c->device[i].type == e->device_type && c->device[i].index == index)
            return c->last_device = i;
    if (!make || c->devices == DEVICES)
        return DEVICES;
    c->device[c->devices] = (compact_device){.type = e->device_type, .index = index};
    return c->devices++;
}

static bool node_key(uint32_t number, uint64_t sequence, uint64_t *key)
{
    *key = (uint64_t)number << SEQUENCE_BITS | sequence;
    return number < 1u << (63 - SEQUENCE_BITS) && sequence < (uint64_t)1 << SEQUENCE_BITS;
}

/* The creation, in this stretch, of the node that a run or an end names; 0: none. */
static uint32_t find_made(const cm_compaction *c, const cm_event *e, uint64_t *key)
{
    uint64_t autograd_id = (uint64_t)e->size;
    uint32_t number, at;
    if (c->made.count == 0 || autograd_id == 0 || autograd_id == UINT64_MAX ||
        !cm_idmap_get(&c->by_autograd, autograd_id, &number) ||
        !node_key(number, e->address, key) || !cm_idmap_get(&c->made, *key, &at))
        return 0;
    return at;
}

/* --- keeping -------------------------------------------------------------------------------- */

static bool want(cm_compaction *c, uint32_t at)
{
    if (at == 0 || c->items[at].keep)
        return true;
    c->items[at].keep = true;
    if (!cm_grow((void **)&c->todo, &c->todo_capacity, c->todo_count + 1, sizeof *c->todo))
        return false;
    c->todo[c->todo_count++] = at;
    return true;
}

/* Keeps this item and all that it depends on. Only once the stretch is over: an item's partner is
 * not known before. */
bool cm_compact_keep(cm_compaction *c, uint32_t at)
{
    if (!want(c, at))
        return false;
    while (c->todo_count > 0) {
        const compact_item *it = &c->items[c->todo[--c->todo_count]];
        if (!want(c, it->partner) || !want(c, it->frame) || !want(c, it->link) ||
            !want(c, it->named))
            return false;
    }
    return true;
}

/* --- node runs ------------------------------------------------------------------------------ */

bool cm_compact_run_node(cm_compaction *c, compact_thread *t, const cm_event *e, uint32_t at)
{
    compact_frame *outer = cm_compact_find_innermost(t);
    uint64_t key;
    if (at != 0)
        c->items[at].frame = outer->run;
    if (e->address != CM_NODE_NO_SEQUENCE) {
        if (at != 0)
            c->items[at].link = find_made(c, e, &key);
        outer->setter = at;
        outer->previous = SET;
    } else {
        if (at != 0)
            c->items[at].link = outer->setter;
        /* Consecutive gradients of leaves share a line. */
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

void cm_compact_end_node(cm_compaction *c, compact_thread *t, uint32_t at)
{
    if (t->unseen > 0)
        t->unseen--;
    else if (t->frames > 1)
        cm_compact_tie(c, t->frame[--t->frames].run, at);
}

/* Forward runs again on this thread, so no leaf inherits a line. */
static void run_forward(compact_thread *t, const cm_event *e, uint32_t at)
{
    if (e->flags & CM_EVF_IN_NODE || t->frames > 1 || t->frame[0].previous == UNSET)
        return;
    t->frame[0].previous = UNSET;
    t->frame[0].setter = at;
}

static bool is_first_of_stack(cm_compaction *c, uint32_t stack, bool *first)
{
    size_t byte = stack / 8;
    if (!cm_grow_zeroed((void **)&c->stack_seen, &c->stack_seen_bytes, byte + 1, 1))
        return false;
    *first = !(c->stack_seen[byte] >> stack % 8 & 1);
    c->stack_seen[byte] |= (uint8_t)(1u << stack % 8);
    return true;
}

bool cm_compact_make_node(cm_compaction *c, compact_thread *t, const cm_event *e, uint32_t at)
{
    uint64_t key;
    bool first = false;
    run_forward(t, e, at);
    c->want_node = false;
    /* A stack beyond what a log of definitions can hold is damage: such an event just stays. */
    if (!(e->flags & CM_EVF_IN_NODE) && e->stack < 1u << 28 &&
        !is_first_of_stack(c, e->stack, &first))
        return false;
    if (at == 0)
        return true;
    c->items[at].frame = cm_compact_find_innermost(t)->run;
    if (first)
        cm_compact_must_stay(c, at);
    return !node_key(t->number, e->address, &key) || cm_idmap_put(&c->made, key, at);
}

void cm_compact_free_node(cm_compaction *c, const cm_event *e, uint32_t at)
{
    uint64_t key;
    uint32_t made = find_made(c, e, &key);
    if (made == 0)
        return;
    cm_idmap_remove(&c->made, key);
    cm_compact_tie(c, made, at);
}

/* --- blocks --------------------------------------------------------------------------------- */

static bool take(cm_compaction *c, const cm_event *e, uint32_t at)
{
    size_t known = c->devices, number = cm_compact_find_device(c, e, true);
    cm_block old;
    if (number == DEVICES)
        return true;
    if (at != 0) {
        c->items[at].device = (uint8_t)number;
        c->items[at].nothing = e->size >= 0 && e->size <= BLOCK_MAX && !cm_compact_is_block(e);
        if (number == known)
            cm_compact_must_stay(c, at); /* the first event of each numbers it */
    }
    if (!cm_compact_is_block(e))
        return true;
    compact_device *d = &c->device[number];
    if (cm_blocks_take(&c->blocks, (uint16_t)number, e->address, &old, NULL)) {
        d->live -= old.size;
        cm_compact_must_stay(c, at);
    }
    cm_block block = {
        .address = e->address, .size = e->size, .origin = at, .device = (uint16_t)number};
    block.direct = (e->flags & CM_EVF_DIRECT) != 0;
    if (cm_blocks_put(&c->blocks, &block) == NULL)
        return false;
    d->live += e->size;
    if (d->live > d->most) {
        d->most = d->live;
        d->at[PEAK] = at;
    }
    return true;
}

bool cm_compact_allocate(cm_compaction *c, compact_thread *t, const cm_record *record, uint32_t at)
{
    if (at != 0) {
        c->items[at].frame = cm_compact_find_innermost(t)->run;
        c->items[at].named = t->named;
        c->items[at].charge = (uint8_t)cm_nodes_charge(c->nodes, record).kind;
    }
    run_forward(t, &record->event, at);
    return cm_compact_lead(c, &record->event, t->number, at) && take(c, &record->event, at);
}

/* The device of the block at this address, for an event without one. */
static size_t owner_of(const cm_compaction *c, const cm_event *e)
{
    for (size_t i = 0; i < c->devices; i++)
        if (c->device[i].type == e->device_type &&
            cm_blocks_find(&c->blocks, (uint16_t)i, e->address) != NULL)
            return i;
    return DEVICES;
}

/* A segment's end stays; a block allocated directly from CUDA ends like any other. */
static bool ends_block(const cm_compaction *c, const cm_event *e)
{
    size_t number = e->kind == CM_EV_SEGMENT_FREE ? owner_of(c, e) : DEVICES;
    return e->kind == CM_EV_FREE ||
           (number != DEVICES && cm_blocks_find(&c->blocks, (uint16_t)number, e->address)->direct);
}

static size_t device_of_free(cm_compaction *c, const cm_event *e)
{
    size_t number = cm_compact_find_device(c, e, false);
    if (number == DEVICES && e->device_type == CM_DEVICE_CUDA &&
        e->device_index == CM_DEVICE_UNKNOWN)
        number = owner_of(c, e);
    return number;
}

static void give_back(cm_compaction *c, const cm_event *e, uint32_t at)
{
    size_t number = device_of_free(c, e);
    cm_block old;
    if (at != 0) /* its thread is named by some device's sums */
        c->items[at].nothing = e->address == 0 && c->devices > 0;
    if (e->address == 0 || number == DEVICES ||
        !cm_blocks_take(&c->blocks, (uint16_t)number, e->address, &old, NULL))
        return;
    c->device[number].live -= old.size;
    cm_compact_tie(c, old.origin, at);
}

/* An event that deferred this free goes with it. */
static void tie_deferral(cm_compaction *c, compact_thread *t, uint32_t at)
{
    if (at != 0 && t->deferral != 0) {
        c->items[at].link = t->deferral;
        c->items[t->deferral].nothing = true;
    }
    t->deferral = 0;
}

void cm_compact_release(cm_compaction *c, compact_thread *t, const cm_event *e, uint32_t at)
{
    if (!ends_block(c, e))
        return;
    give_back(c, e, at);
    tie_deferral(c, t, at);
}

static inline bool is_on(const compact_device *d, const cm_event *e)
{
    return d->type == e->device_type && d->index == e->device_index;
}

/* Whether an allocation shows that forward runs again after a backward. */
static inline bool ends_backward(const compact_thread *t, const cm_event *e)
{
    return t->frame[0].previous == SET && t->frames == 1 && !(e->flags & CM_EVF_IN_NODE);
}

size_t cm_compact_see_blocks(cm_compaction *c, const compact_thread *t, const cm_event *events,
                             size_t count)
{
    size_t number = c->devices > 0 ? c->last_device : DEVICES;
    cm_block block;

    for (size_t i = 0; i < count; i++) {
        const cm_event *e = &events[i];
        if (e->kind == CM_EV_FREE) {
            if (number == DEVICES || !is_on(&c->device[number], e))
                number = device_of_free(c, e);
            if (e->address != 0 && number != DEVICES)
                cm_blocks_take(&c->blocks, (uint16_t)number, e->address, &block, NULL);
        } else if (e->kind == CM_EV_ALLOC && !ends_backward(t, e)) {
            if (!cm_compact_lead(c, e, t->number, 0))
                return SIZE_MAX;
            if (number == DEVICES || !is_on(&c->device[number], e))
                number = cm_compact_find_device(c, e, true);
            if (number == DEVICES || !cm_compact_is_block(e))
                continue;
            block = (cm_block){.address = e->address,
                               .size = e->size,
                               .device = (uint16_t)number,
                               .direct = (e->flags & CM_EVF_DIRECT) != 0};
            if (cm_blocks_put(&c->blocks, &block) == NULL)
                return SIZE_MAX;
        } else if (e->kind != CM_EV_REQUESTED) {
            return i;
        }
    }
    return count;
}

/* A seed is a bound, so that blocks before it are older. */
bool cm_compact_find_alive(cm_compaction *c, const cm_event *e)
{
    size_t number = cm_compact_find_device(c, e, true);
    if (number == DEVICES || !cm_compact_is_block(e) ||
        cm_blocks_find(&c->blocks, (uint16_t)number, e->address) != NULL)
        return true;
    cm_block block = {.address = e->address, .size = e->size, .device = (uint16_t)number};
    block.direct = (e->flags & CM_EVF_DIRECT) != 0;
    return cm_blocks_put(&c->blocks, &block) != NULL;
}

/* Stays or goes with its block. */
void cm_compact_tie_request(cm_compaction *c, const cm_event *e, uint32_t at)
{
    size_t number = cm_compact_find_device(c, e, false);
    const cm_block *block =
        number != DEVICES ? cm_blocks_find(&c->blocks, (uint16_t)number, e->address) : NULL;
    if (at == 0 || block == NULL || block->origin == 0)
        return; /* of an older block it stays */
    c->items[block->origin].link = at;
    c->items[at].nothing = true;
}

void cm_compact_see_reserved(cm_compaction *c, const cm_event *e, uint32_t at)
{
    size_t number = cm_compact_find_device(c, e, true);
    if (number == DEVICES)
        return;
    compact_device *d = &c->device[number];
    if (at != 0)
        c->items[at].nothing = d->reserved_known && d->reserved == e->size;
    if (!d->reserved_known || e->size > d->most_reserved) {
        d->most_reserved = e->size;
        d->at[RESERVED_MOST] = at;
    }
    d->reserved_known = true;
    d->reserved = e->size;
}

static int64_t count_live_bytes(const cm_compaction *c, size_t number)
{
    int64_t bytes = 0;
    size_t at = 0;
    for (const cm_block *b; (b = cm_blocks_next(&c->blocks, &at)) != NULL;)
        if (b->device == number)
            bytes += b->size;
    return bytes;
}

void cm_compact_see_oom(cm_compaction *c, const cm_event *e, uint32_t at)
{
    size_t number = cm_compact_find_device(c, e, true);
    if (number == DEVICES)
        return;
    compact_device *d = &c->device[number];
    /* A reader cannot count what is alive: some blocks around this event are left out. */
    if (at != 0 && !cm_oom_is_known(e->address) && d->ooms_counted < CM_OOMS_KEPT) {
        c->items[at].event.address = (uint64_t)count_live_bytes(c, number);
        d->ooms_counted++;
    }
    if (d->oom)
        return;
    d->oom = true;
    d->at[FIRST_OOM] = at;
}
