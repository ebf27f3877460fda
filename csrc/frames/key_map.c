#include "key_map.h"

#include "../base/pages.h"

enum { CAPACITY_AT_START = 1024 };

static uint32_t first_place(const cm_map *map, cm_map_key key)
{
    uint64_t h = key.a * 0x9e3779b97f4a7c15u;
    h = ((h ^ h >> 32) + key.b) * 0xd6e8feb86659fd93u;
    h = ((h ^ h >> 32) + key.c) * 0x9fb21c651e98df25u;
    return (uint32_t)(h >> 32) & (map->capacity - 1);
}

/* At most three quarters full, so that probes stay short and always end. */
static uint32_t room(uint32_t capacity)
{
    return capacity / 4 * 3;
}

static bool grow(cm_map *map, uint32_t capacity)
{
    cm_map bigger = {.capacity = capacity, .used = 0};

    bigger.entries = cm_pages_map(cm_map_bytes(&bigger), PROT_READ | PROT_WRITE, 0);
    if (bigger.entries == MAP_FAILED)
        return false;
    for (uint32_t i = 0; i < map->capacity; i++) {
        const cm_map_entry *e = &map->entries[i];
        if (e->value != 0)
            cm_map_add(&bigger, (cm_map_key){e->a, e->b, e->c}, e->value);
    }
    cm_map_clear(map);
    *map = bigger;
    return true;
}

bool cm_map_reserve(cm_map *map, uint32_t more, uint32_t limit)
{
    uint32_t capacity = map->capacity == 0 ? CAPACITY_AT_START : map->capacity;

    if (map->used + more > limit)
        return false;
    while (map->used + more > room(capacity))
        capacity *= 2;
    return capacity == map->capacity || grow(map, capacity);
}

/* The place of the key, or the free place where it would be put. */
static uint32_t place(const cm_map *map, cm_map_key key)
{
    uint32_t i = first_place(map, key);

    for (;; i = (i + 1) & (map->capacity - 1)) {
        const cm_map_entry *e = &map->entries[i];
        if (e->value == 0 || (e->a == key.a && e->b == key.b && e->c == key.c))
            return i;
    }
}

uint32_t cm_map_find(const cm_map *map, cm_map_key key)
{
    return map->capacity == 0 ? 0 : map->entries[place(map, key)].value;
}

void cm_map_add(cm_map *map, cm_map_key key, uint32_t value)
{
    map->entries[place(map, key)] = (cm_map_entry){key.a, key.b, key.c, value};
    map->used++;
}

bool cm_map_remove(cm_map *map, cm_map_key key)
{
    if (map->capacity == 0)
        return false;
    uint32_t mask = map->capacity - 1, hole = place(map, key);
    if (map->entries[hole].value == 0)
        return false;
    /* Later entries of the run move into the hole if it lies between their first place and their
     * present one. Tombstones would pile up. */
    for (uint32_t i = (hole + 1) & mask; map->entries[i].value != 0; i = (i + 1) & mask) {
        const cm_map_entry *e = &map->entries[i];
        uint32_t distance = (i - first_place(map, (cm_map_key){e->a, e->b, e->c})) & mask;
        if (distance >= ((i - hole) & mask)) {
            map->entries[hole] = *e;
            hole = i;
        }
    }
    map->entries[hole].value = 0;
    map->used--;
    return true;
}

void cm_map_clear(cm_map *map)
{
    if (map->entries != NULL)
        cm_pages_unmap(map->entries, cm_map_bytes(map));
    *map = (cm_map){.entries = NULL};
}

size_t cm_map_bytes(const cm_map *map)
{
    return map->capacity * sizeof(cm_map_entry);
}
