#include "fates_parts.h"

#include "../base/hash.h"
#include "../base/table.h"

/* Of the address alone: most traces have blocks of one device. */
static uint64_t hash_key(const cm_fates *f, uint64_t key)
{
    return f->keyed ? cm_hash(key) : cm_mix(key << 16 >> 16);
}

static const cm_fate_life *life_at(const void *fates, const void *entry)
{
    return cm_fates_numbered(fates, *(const uint32_t *)entry);
}

static uint64_t hash_live(const void *fates, const void *entry)
{
    return hash_key(fates, life_at(fates, entry)->key);
}

static bool has_key(const void *fates, const void *entry, const void *wanted)
{
    return life_at(fates, entry)->key == *(const uint64_t *)wanted;
}

static uint64_t hash_node(const void *fates, const void *entry)
{
    return cm_hash(life_at(fates, entry)->node);
}

static bool has_node(const void *fates, const void *entry, const void *wanted)
{
    return life_at(fates, entry)->node == *(const uint32_t *)wanted;
}

static const cm_table_kind by_key = {sizeof(uint32_t),   256,       3,
                                     cm_table_is_number, hash_live, has_key};
static const cm_table_kind by_node = {sizeof(uint32_t),   256,       3,
                                      cm_table_is_number, hash_node, has_node};

/* Where its number is or belongs; there are slots. */
static inline size_t slot_of(const cm_fates *f, uint64_t key)
{
    return cm_table_find(&by_key, f, f->slot, f->slots, hash_key(f, key), &key);
}

cm_fate_life *cm_fates_find(cm_fates *f, uint64_t key)
{
    if (f->slots == 0)
        return NULL;
    f->last_slot = slot_of(f, key);
    uint32_t number = f->slot[f->last_slot];
    return number != 0 ? cm_fates_numbered(f, number) : NULL;
}

/* The slot for this key, after few others; SIZE_MAX: out of memory. */
static size_t make_room(cm_fates *f, uint64_t key)
{
    if (!cm_table_make_room(&by_key, f, (void **)&f->slot, &f->slots, f->alive))
        return SIZE_MAX;
    size_t at = slot_of(f, key);
    if (((at - hash_key(f, key)) & (f->slots - 1)) <= CM_HASH_LONG || f->keyed)
        return at;
    f->keyed = true;
    return cm_table_rebuild(&by_key, f, (void **)&f->slot, &f->slots, f->slots) ? slot_of(f, key)
                                                                                : SIZE_MAX;
}

cm_fate_life *cm_fates_reserve(cm_fates *f, uint64_t key)
{
    size_t at = make_room(f, key);
    if (at == SIZE_MAX)
        return NULL;
    if (f->slot[at] == 0) {
        f->slot[at] = cm_pool_add(&f->lives, sizeof(cm_fate_life));
        if (f->slot[at] == 0)
            return NULL;
        cm_fates_numbered(f, f->slot[at])->key = 0;
        f->alive++;
    }
    return cm_fates_numbered(f, f->slot[at]);
}

void cm_fates_take(cm_fates *f, const cm_fate_life *l)
{
    size_t at = f->last_slot;
    uint32_t number = f->slot[at];
    if (number == 0 || cm_fates_numbered(f, number) != l) {
        at = slot_of(f, l->key);
        number = f->slot[at];
    }
    cm_table_remove(&by_key, f, f->slot, f->slots, at);
    cm_pool_remove(&f->lives, sizeof(cm_fate_life), number);
    f->alive--;
}

void cm_fates_clear_lives(cm_fates *f)
{
    cm_pool_clear(&f->lives);
    free(f->slot);
    free(f->node_slot);
    f->slot = f->node_slot = NULL;
    f->slots = f->alive = f->node_slots = f->with_node = 0;
}

static inline size_t slot_of_node(const cm_fates *f, uint32_t node)
{
    return cm_table_find(&by_node, f, f->node_slot, f->node_slots, cm_hash(node), &node);
}

cm_fate_life *cm_fates_of_node(const cm_fates *f, uint32_t node)
{
    uint32_t number = f->node_slots > 0 ? f->node_slot[slot_of_node(f, node)] : 0;
    return number != 0 ? cm_fates_numbered(f, number) : NULL;
}

bool cm_fates_put_node(cm_fates *f, cm_fate_life *l, uint32_t node)
{
    if (!cm_table_make_room(&by_node, f, (void **)&f->node_slot, &f->node_slots, f->with_node))
        return false;
    l->node = node;
    f->node_slot[slot_of_node(f, node)] = f->slot[slot_of(f, l->key)];
    f->with_node++;
    return true;
}

void cm_fates_drop_node(cm_fates *f, const cm_fate_life *l)
{
    cm_table_remove(&by_node, f, f->node_slot, f->node_slots, slot_of_node(f, l->node));
    f->with_node--;
}
