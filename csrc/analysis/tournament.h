/* A tournament tree: the largest of many numbers, few of which change at a time. One owner. */
#ifndef CM_ANALYSIS_TOURNAMENT_H
#define CM_ANALYSIS_TOURNAMENT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct cm_tournament {
    int64_t *value; /* value[leaves + i] is leaf i; value[n] is the larger of its two children */
    size_t leaves;  /* 0 or a power of two */
} cm_tournament;

/* All zero is empty; leaves never set are 0. */
void cm_tournament_clear(cm_tournament *tree);
bool cm_tournament_reserve(cm_tournament *tree,
                           size_t leaves); /* false: out of memory, tree unchanged */
void cm_tournament_set(cm_tournament *tree, size_t leaf, int64_t value); /* leaf < reserved */
/* Puts the `wanted` largest leaves above 0 into leaf[], in order. Returns their number. */
size_t cm_tournament_largest(cm_tournament *tree, size_t wanted, uint32_t *leaf);

#endif
