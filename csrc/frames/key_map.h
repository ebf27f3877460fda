/* A hash map from 20 bytes of key to a 32-bit id, in mmap'ed memory. intern.c uses it under its
 * mutex. Hooks may call everything here, so base/table.h, which calls malloc, does not serve. */
#ifndef CM_FRAMES_KEY_MAP_H
#define CM_FRAMES_KEY_MAP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct cm_map_key {
    uint64_t a, b;
    uint32_t c;
} cm_map_key;

typedef struct cm_map_entry {
    uint64_t a, b;
    uint32_t c;
    uint32_t value; /* 0: a free entry */
} cm_map_entry;

/* Initialized to zero: nothing is mapped. */
typedef struct cm_map {
    cm_map_entry *entries;
    uint32_t capacity; /* a power of two, or 0 */
    uint32_t used;
} cm_map;

/* Makes room for `more` entries. false: no memory, or more than `limit` entries in all; the map is
 * unchanged. */
bool cm_map_reserve(cm_map *map, uint32_t more, uint32_t limit);

/* The value, or 0. */
uint32_t cm_map_find(const cm_map *map, cm_map_key key);

/* Adds a key that is not in the map, which must have room. value is not 0. */
void cm_map_add(cm_map *map, cm_map_key key, uint32_t value);

/* Returns whether the key was in the map. */
bool cm_map_remove(cm_map *map, cm_map_key key);

/* Empties the map and frees its memory. */
void cm_map_clear(cm_map *map);

size_t cm_map_bytes(const cm_map *map);

#endif
