#include "idmap.h"

#include <stdlib.h>

#include "hash.h"
#include "grow.h"

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

static size_t find(const cm_idmap *map, uint64_t stored)
{
    size_t i = cm_hash(stored) & (map->slots - 1);
    while (map->slot[i].key != 0 && map->slot[i].key != stored)
        i = (i + 1) & (map->slots - 1);
    return i;
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
    if (map->count * 4 >= map->slots * 3) {
        cm_idmap larger = {.slots = map->slots ? map->slots * 2 : 32, .count = map->count};
        larger.slot = calloc(larger.slots, sizeof *larger.slot);
        if (larger.slot == NULL)
            return false;
        for (size_t i = 0; i < map->slots; i++)
            if (map->slot[i].key != 0)
                larger.slot[find(&larger, map->slot[i].key)] = map->slot[i];
        free(map->slot);
        *map = larger;
    }
    size_t i = find(map, key + 1);
    map->count += map->slot[i].key == 0;
    map->slot[i] = (struct cm_idmap_slot){key + 1, value};
    return true;
}

bool cm_idmap_remove(cm_idmap *map, uint64_t key)
{
    if (map->slots == 0)
        return false;
    size_t mask = map->slots - 1, hole = find(map, key + 1);
    if (map->slot[hole].key == 0)
        return false;
    /* Close the gap, so that no probe stops early and no tombstones pile up. */
    for (size_t i = (hole + 1) & mask; map->slot[i].key != 0; i = (i + 1) & mask) {
        size_t home = cm_hash(map->slot[i].key) & mask;
        if (((i - home) & mask) >= ((i - hole) & mask)) {
            map->slot[hole] = map->slot[i];
            hole = i;
        }
    }
    map->slot[hole].key = 0;
    map->count--;
    return true;
}
