/* Which single blocks a chart draws: of those that were alive in its span the largest, and of those
 * that were made in the window and are alive at its end the largest. */
#ifndef CM_ANALYSIS_CHART_BLOCKS_H
#define CM_ANALYSIS_CHART_BLOCKS_H

#include <stdbool.h>

#include "chart.h"

/* The largest blocks seen so far; of equal ones those that came first. */
typedef struct cm_chart_heap {
    struct cm_chart_ranked {
        cm_chart_block block;
        uint64_t order;
    } * item; /* a heap: the one to drop first is the first */
    size_t count, capacity, limit;
    uint64_t offered;
    int64_t least; /* every block of at least that size is among them */
} cm_chart_heap;

/* false: out of memory. */
bool cm_chart_heap_offer(cm_chart_heap *heap, const cm_chart_block *block);
void cm_chart_heap_clear(cm_chart_heap *heap);
/* Both heaps' blocks without doubles, by birth, then address, in *out. false: out of memory. */
bool cm_chart_heap_merge(const cm_chart_heap *a, const cm_chart_heap *b, cm_chart_block **out,
                         size_t *count);

#endif
