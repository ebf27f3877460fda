#include "cohorts.h"

#include <string.h>

#include "replay_parts.h"
#include "../base/grow.h"
#include "../base/hash.h"
#include "../base/own_frame.h"
#include "../base/table.h"

/* A pass over all slots then costs little for each block that made it necessary. */
enum { LISTED = 4096, SLOTS_OF_LISTED = 32 };

cm_cohorts *cm_cohorts_new(void)
{
    return calloc(1, sizeof(cm_cohorts));
}

cm_cohorts *cm_cohorts_copy(const cm_cohorts *c)
{
    cm_cohorts *copy = malloc(sizeof *copy);
    if (copy == NULL)
        return NULL;
    *copy = *c;
    copy->capacity = c->count;
    copy->loose_capacity = c->loose_count;
    copy->slot = NULL;
    copy->loose = NULL;
    if (cm_copy((void **)&copy->cohort, c->cohort, c->count, sizeof *c->cohort) &&
        cm_copy((void **)&copy->slot, c->slot, c->slots, sizeof *c->slot) &&
        cm_copy((void **)&copy->loose, c->loose, c->loose_count, sizeof *c->loose))
        return copy;
    cm_cohorts_free(copy);
    return NULL;
}

void cm_cohorts_free(cm_cohorts *c)
{
    if (c == NULL)
        return;
    free(c->cohort);
    free(c->slot);
    free(c->loose);
    free(c);
}

/* --- cohorts -------------------------------------------------------------------------------- */

typedef struct cohort_key {
    const cm_origin *origin;
    int64_t size;
} cohort_key;

static uint64_t hash_key(const cohort_key *key)
{
    const cm_origin *o = key->origin;
    return cm_hash(cm_hash((uint64_t)o->stack << 32 | o->own) + (uint64_t)key->size +
                   cm_hash((uint64_t)o->name << 32 | (uint64_t)o->device << 16 |
                           (uint64_t)o->phase << 8 | o->charge));
}

static cohort_key key_of(const cm_replay *r, const void *entry)
{
    const cm_cohort *of = &r->cohorts->cohort[cm_table_index(entry)];
    return (cohort_key){&r->origin[of->origin], of->size};
}

static uint64_t hash_cohort(const void *replay, const void *entry)
{
    const cohort_key key = key_of(replay, entry);
    return hash_key(&key);
}

static bool has_key(const void *replay, const void *entry, const void *wanted)
{
    const cohort_key key = key_of(replay, entry), *other = wanted;
    const cm_origin *a = key.origin, *b = other->origin;
    return key.size == other->size && a->stack == b->stack && a->own == b->own &&
           a->name == b->name && a->device == b->device && a->phase == b->phase &&
           a->charge == b->charge;
}

static const cm_table_kind by_key = {sizeof(uint32_t),   64,          2,
                                     cm_table_is_number, hash_cohort, has_key};

/* The number of a new cohort, without blocks; -1: out of memory. */
static int64_t add_cohort(cm_cohorts *c, const cm_block *block)
{
    uint32_t number = c->free - 1;
    if (c->free == 0) {
        if (c->count >= UINT32_MAX - 1 ||
            !cm_grow((void **)&c->cohort, &c->capacity, c->count + 1, sizeof *c->cohort))
            return -1;
        number = (uint32_t)c->count++;
    } else {
        c->free = c->cohort[number].origin;
    }
    c->cohort[number] = (cm_cohort){.size = block->size, .origin = block->origin};
    c->taken++;
    return number;
}

static bool join(cm_replay *r, cm_block *block)
{
    cm_cohorts *c = r->cohorts;
    const cohort_key key = {&r->origin[block->origin], block->size};
    if (!cm_table_make_room(&by_key, r, (void **)&c->slot, &c->slots, c->taken))
        return false;
    size_t at = cm_table_find(&by_key, r, c->slot, c->slots, hash_key(&key), &key);
    if (c->slot[at] == 0) {
        int64_t number = add_cohort(c, block);
        if (number < 0)
            return false;
        c->slot[at] = (uint32_t)number + 1;
    }
    uint64_t bit = cm_mix(block->address) % CM_COHORTS_BITS;
    c->address[bit / 64] |= UINT64_C(1) << bit % 64;
    block->origin = c->slot[at] - 1;
    block->grouped = true;
    c->cohort[block->origin].count++;
    return true;
}

/* Its last block has left. */
static void remove_cohort(cm_replay *r, uint32_t number)
{
    cm_cohorts *c = r->cohorts;
    cm_cohort *of = &c->cohort[number];
    const cohort_key key = {&r->origin[of->origin], of->size};
    cm_table_remove(&by_key, r, c->slot, c->slots,
                    cm_table_find(&by_key, r, c->slot, c->slots, hash_key(&key), &key));
    of->origin = c->free;
    c->free = number + 1;
    c->taken--;
}

CM_OWN_FRAME void cm_replay_leave_cohort(cm_replay *r, cm_block *block)
{
    uint32_t number = block->origin;
    cm_cohort *of = &r->cohorts->cohort[number];
    block->origin = of->origin;
    block->grouped = false;
    if (--of->count == 0)
        remove_cohort(r, number);
}

/* --- loose blocks --------------------------------------------------------------------------- */

static bool add_loose(cm_cohorts *c, const cm_block *block)
{
    if (!cm_grow((void **)&c->loose, &c->loose_capacity, c->loose_count + 1, sizeof *c->loose))
        return false;
    c->loose[c->loose_count++] = (cm_loose){block->address, block->device};
    c->sorted = false;
    return true;
}

CM_OWN_FRAME bool cm_replay_list_loose(cm_replay *r, const cm_block *block)
{
    cm_cohorts *c = r->cohorts;
    /* Those with labels stay loose, from window to window. */
    if (c->loose_count < LISTED + r->label_of.count + r->blocks.slots / SLOTS_OF_LISTED)
        return add_loose(c, block);
    c->unlisted = true;
    free(c->loose);
    c->loose = NULL;
    c->loose_count = c->loose_capacity = 0;
    return true;
}

static int by_address(const void *left, const void *right)
{
    const cm_loose *a = left, *b = right;
    if (a->device != b->device)
        return a->device < b->device ? -1 : 1;
    return a->address < b->address ? -1 : a->address > b->address;
}

/* An address may have had several loose blocks. */
static void sort_loose(cm_cohorts *c)
{
    size_t left = 0;
    if (c->sorted)
        return;
    cm_sort(c->loose, c->loose_count, sizeof *c->loose, by_address);
    for (size_t i = 0; i < c->loose_count; i++)
        if (i == 0 || by_address(&c->loose[i], &c->loose[i - 1]) != 0)
            c->loose[left++] = c->loose[i];
    c->loose_count = left;
    c->sorted = true;
}

cm_block *cm_replay_loose(const cm_replay *r, size_t *at)
{
    cm_cohorts *c = r->cohorts;
    if (*at == 0)
        sort_loose(c);
    cm_block *block;
    if (c->unlisted) {
        do
            block = (cm_block *)cm_blocks_next(&r->blocks, at);
        while (block != NULL && block->grouped);
        return block;
    }
    while (*at < c->loose_count) {
        const cm_loose *of = &c->loose[(*at)++];
        block = cm_blocks_at((cm_blocks *)&r->blocks, of->device, of->address);
        if (block != NULL && !block->grouped)
            return block;
    }
    return NULL;
}

const cm_block *cm_replay_next_loose(const cm_replay *r, size_t *at)
{
    return cm_replay_loose(r, at);
}

bool cm_replay_group(cm_replay *r)
{
    cm_cohorts *c = r->cohorts;
    cm_cohorts listed = {0}; /* those that stay loose */
    cm_block *block;
    bool fine = true;
    for (size_t at = 0; fine && (block = cm_replay_loose(r, &at)) != NULL;) {
        block->step = -1;
        block->made = false;
        fine = block->labelled ? add_loose(&listed, block) : join(r, block);
    }
    free(c->loose);
    c->loose = listed.loose;
    c->loose_count = listed.loose_count;
    c->loose_capacity = listed.loose_capacity;
    c->sorted = c->unlisted = false;
    return fine;
}
