/* A set of addresses that are known beforehand, and which of them are in use: the nearest one in
 * use is found in a few steps. One owner. */
#ifndef CM_SNAPSHOT_ORDERED_H
#define CM_SNAPSHOT_ORDERED_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { CM_ORDERED_LEVELS = 6 }; /* 64^6 addresses */

typedef struct cm_ordered {
    uint64_t *key; /* rising */
    size_t count, capacity;
    uint64_t *level[CM_ORDERED_LEVELS]; /* a bit for each key; above it, one for each word */
} cm_ordered;

bool cm_ordered_add(cm_ordered *ordered, uint64_t key); /* false: out of memory */
/* After all were added. false: out of memory. */
bool cm_ordered_build(cm_ordered *ordered);
void cm_ordered_clear(cm_ordered *ordered);

/* The number of the first key that is not below; `count`: there is none. */
size_t cm_ordered_find(const cm_ordered *ordered, uint64_t key);
void cm_ordered_use(cm_ordered *ordered, size_t number, bool used);
/* The first in use from this number on, and the last up to it; SIZE_MAX: there is none. */
size_t cm_ordered_next(const cm_ordered *ordered, size_t number);
size_t cm_ordered_last(const cm_ordered *ordered, size_t number);

#endif
