/* A hash map from 64-bit keys to 32-bit values. One owner, any thread. */
#ifndef CM_ANALYSIS_MAP_H
#define CM_ANALYSIS_MAP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct cm_map {
    struct cm_map_slot {
        uint64_t key; /* + 1; 0 = empty */
        uint32_t value;
    } * slot;
    size_t slots, count; /* slots is 0 or a power of two */
} cm_map;

/* All zero is an empty map. Keys are below UINT64_MAX. */
void cm_map_clear(cm_map *map);
bool cm_map_get(const cm_map *map, uint64_t key, uint32_t *value);
bool cm_map_put(cm_map *map, uint64_t key, uint32_t value); /* false: out of memory */
bool cm_map_remove(cm_map *map, uint64_t key);              /* false: it was not there */

#endif
