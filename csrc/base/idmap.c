#include "idmap.h"

#include <stdlib.h>

#include "hash.h"
#include "grow.h"
#include "table.h"

void cm_idmap_clear(cm_idmap *map)
{
    free(map->slot);
    *map = (cm_idmap){0};
}

bool cm_idmap_copy(cm_idmap *copy, const cm_idmap *map)
{
    *copy = *map;
    if (cm_copy((void **)&copy->slot, map->slot, map->slots, sizeof *map->slot))
        return true;
    cm_idmap_clear(copy);
    return false;
}

static bool is_taken(const void *entry)
{
    return ((const struct cm_idmap_slot *)entry)->key != 0;
}

static uint64_t hash(const void *owner, const void *entry)
{
    (void)owner;
    return cm_hash(((const struct cm_idmap_slot *)entry)->key);
}

static bool is(const void *owner, const void *entry, const void *wanted)
{
    (void)owner;
    return ((const struct cm_idmap_slot *)entry)->key == *(const uint64_t *)wanted;
}

static const cm_table_kind by_key = {sizeof(struct cm_idmap_slot), 32, 3, is_taken, hash, is};

static size_t find(const cm_idmap *map, uint64_t stored)
{
    return cm_table_find(&by_key, NULL, map->slot, map->slots, cm_hash(stored), &stored);
}

bool cm_idmap_get(const cm_idmap *map, uint64_t key, uint32_t *value)
{
    if (map->slots == 0)
        return false;
    size_t i = find(map, key + 1);
    if (map->slot[i].key == 0)
        return false;
    *value = map->slot[i].value;
    return true;
}

bool cm_idmap_put(cm_idmap *map, uint64_t key, uint32_t value)
{
    if (!cm_table_make_room(&by_key, NULL, (void **)&map->slot, &map->slots, map->count))
        return false;
    size_t i = find(map, key + 1);
    map->count += map->slot[i].key == 0;
    map->slot[i] = (struct cm_idmap_slot){key + 1, value};
    return true;
}

bool cm_idmap_remove(cm_idmap *map, uint64_t key)
{
    if (map->slots == 0)
        return false;
    size_t i = find(map, key + 1);
    if (map->slot[i].key == 0)
        return false;
    cm_table_remove(&by_key, NULL, map->slot, map->slots, i);
    map->count--;
    return true;
}
