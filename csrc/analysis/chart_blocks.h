/* The single blocks that a chart draws: the largest of those alive in its span, and the largest of
 * those born in the window and alive at its end. */
#ifndef CM_ANALYSIS_CHART_BLOCKS_H
#define CM_ANALYSIS_CHART_BLOCKS_H

#include <stdbool.h>

#include "chart.h"

/* The largest blocks so far; of equal ones a sample that is spread evenly over their births. */
typedef struct cm_chart_heap {
    struct cm_chart_ranked {
        cm_chart_block block;
        uint64_t order;
    } * item; /* a heap: item 0 is dropped first */
    size_t count, capacity, limit;
    uint64_t offered;
    int64_t least; /* every block of at least that size is included */
} cm_chart_heap;

/* false: out of memory. */
bool cm_chart_heap_offer(cm_chart_heap *heap, const cm_chart_block *block);
void cm_chart_heap_clear(cm_chart_heap *heap);
/* Puts both heaps' blocks without duplicates into *out, by birth, then address. false: out of
 * memory. */
bool cm_chart_heap_merge(const cm_chart_heap *a, const cm_chart_heap *b, cm_chart_block **out,
                         size_t *count);

#endif
