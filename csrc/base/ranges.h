/* An ordered map from addresses to small numbers: what begins at or before an address? Leaves of a
 * few entries lie under one sorted directory, so that an insertion moves little in any order of
 * addresses. Leaves join when they empty. One owner, any thread. */
#ifndef CM_BASE_RANGES_H
#define CM_BASE_RANGES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { CM_RANGES_LEAF = 128 };

typedef struct cm_ranges_leaf {
    uint64_t key[CM_RANGES_LEAF];
    uint32_t value[CM_RANGES_LEAF];
    uint32_t count; /* at least 1 */
} cm_ranges_leaf;

typedef struct cm_ranges {
    struct cm_ranges_entry {
        uint64_t first; /* key of the leaf */
        cm_ranges_leaf *leaf;
    } * entry;
    size_t leaves, capacity, count;
} cm_ranges;

/* All zero is an empty map. */
void cm_ranges_clear(cm_ranges *ranges);
bool cm_ranges_copy(cm_ranges *copy, const cm_ranges *ranges); /* false: out of memory */
/* A key that is there gets the new value. false: out of memory. */
bool cm_ranges_put(cm_ranges *ranges, uint64_t key, uint32_t value);
/* Only where it has this value; false: it has not. */
bool cm_ranges_remove(cm_ranges *ranges, uint64_t key, uint32_t value);
/* The highest key at or below `at`; false: there is none. */
bool cm_ranges_below(const cm_ranges *ranges, uint64_t at, uint64_t *key, uint32_t *value);
/* The lowest key at or above `at`; false: there is none. */
bool cm_ranges_above(const cm_ranges *ranges, uint64_t at, uint64_t *key, uint32_t *value);

#endif
