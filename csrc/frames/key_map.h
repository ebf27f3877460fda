/* A hash map from 20 bytes of key to a 32-bit id, in mmap'ed memory: the private tables of
 * intern.c, used under its mutex. Hooks may call everything here, so it is not made of
 * base/table.h, which allocates by malloc. */
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
    uint32_t value; /* 0: this place is free */
} cm_map_entry;

/* All zero to start with: nothing is mapped yet. */
typedef struct cm_map {
    cm_map_entry *entries;
    uint32_t capacity; /* a power of two, or 0 */
    uint32_t used;
} cm_map;

/* Makes room for `more` entries. false: no memory (the map stays as it is) or more than `limit`
 * entries in all. */
bool cm_map_reserve(cm_map *map, uint32_t more, uint32_t limit);

/* The value, or 0. */
uint32_t cm_map_find(const cm_map *map, cm_map_key key);

/* Adds a key that is not there; there must be room. value is not 0. */
void cm_map_add(cm_map *map, cm_map_key key, uint32_t value);

/* Returns whether the key was there. */
bool cm_map_remove(cm_map *map, cm_map_key key);

/* Empties the map and gives its memory back. */
void cm_map_clear(cm_map *map);

size_t cm_map_bytes(const cm_map *map);

#endif
