/* A hash map from 64-bit keys to 32-bit values. One owner, any thread. */
#ifndef CM_BASE_IDMAP_H
#define CM_BASE_IDMAP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct cm_idmap {
    struct cm_idmap_slot {
        uint64_t key; /* + 1; 0 = empty */
        uint32_t value;
    } * slot;
    size_t slots, count; /* slots is 0 or a power of two */
} cm_idmap;

/* All zero is an empty map. Keys are below UINT64_MAX. */
void cm_idmap_clear(cm_idmap *map);
bool cm_idmap_copy(cm_idmap *copy, const cm_idmap *map); /* false: out of memory, it is empty */
bool cm_idmap_get(const cm_idmap *map, uint64_t key, uint32_t *value);
bool cm_idmap_put(cm_idmap *map, uint64_t key, uint32_t value); /* false: out of memory */
bool cm_idmap_remove(cm_idmap *map, uint64_t key);              /* false: it was not there */

#endif
