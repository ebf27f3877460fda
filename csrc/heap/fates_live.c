#include "fates_parts.h"

#include "../base/hash.h"
#include "../base/table.h"

/* Of the address alone: most traces have blocks of one device. */
static uint64_t hash_key(const cm_fates *f, uint64_t key)
{
    return f->keyed ? cm_hash(key) : cm_mix(key << 16 >> 16);
}

static bool is_taken(const void *entry)
{
    return ((const cm_fate_life *)entry)->key != 0;
}

static uint64_t hash_live(const void *fates, const void *entry)
{
    return hash_key(fates, ((const cm_fate_life *)entry)->key);
}

static bool has_key(const void *fates, const void *entry, const void *wanted)
{
    (void)fates;
    return ((const cm_fate_life *)entry)->key == *(const uint64_t *)wanted;
}

static const cm_table_kind by_key = {sizeof(cm_fate_life), 256, 3, is_taken, hash_live, has_key};

/* Its entry, or the free one for it; there are slots. */
static cm_fate_life *entry_of(const cm_fates *f, uint64_t key)
{
    return &f->slot[cm_table_find(&by_key, f, f->slot, f->slots, hash_key(f, key), &key)];
}

cm_fate_life *cm_fates_find(const cm_fates *f, uint64_t key)
{
    cm_fate_life *found = f->slots > 0 ? entry_of(f, key) : NULL;
    return found != NULL && found->key != 0 ? found : NULL;
}

static bool rebuild(cm_fates *f, size_t slots)
{
    return cm_table_rebuild(&by_key, f, (void **)&f->slot, &f->slots, slots);
}

bool cm_fates_make_room(cm_fates *f, size_t count)
{
    size_t slots = f->slots ? f->slots : by_key.least;
    while (count * 4 > slots * by_key.quarters)
        slots *= 2;
    return slots == f->slots || rebuild(f, slots);
}

cm_fate_life *cm_fates_reserve(cm_fates *f, uint64_t key)
{
    if (!cm_fates_make_room(f, f->alive + 1))
        return NULL;
    cm_fate_life *found = entry_of(f, key);
    size_t far = ((size_t)(found - f->slot) - hash_key(f, key)) & (f->slots - 1);
    if (far <= CM_HASH_LONG || f->keyed)
        return found;
    f->keyed = true;
    return rebuild(f, f->slots) ? entry_of(f, key) : NULL;
}

void cm_fates_take(cm_fates *f, cm_fate_life *l)
{
    cm_table_remove(&by_key, f, f->slot, f->slots, (size_t)(l - f->slot));
    f->alive--;
}
