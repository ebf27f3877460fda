/* Live bytes over time by contributor, in intervals of spans of the window: the data of a chart.
 * Its size is bounded, whatever the length of the trace. All times count from the window's start.
 */
#ifndef CM_ANALYSIS_CHART_H
#define CM_ANALYSIS_CHART_H

#include <stddef.h>
#include <stdint.h>

struct cm_contributor;

enum { CM_CHART_PHASES = 5, CM_CHART_INTERVALS_MAX = 1 << 16, CM_CHART_SPANS_MAX = 64 };

/* A requested span. */
typedef struct cm_chart_span {
    uint64_t begin_ns, end_ns; /* cut at the window's end */
    uint32_t intervals;        /* at most; 1 .. CM_CHART_INTERVALS_MAX */
    uint32_t entries, blocks;  /* at most */
    char device[24];           /* "": all */
} cm_chart_span;

typedef struct cm_chart_interval {
    int64_t begin_ns, high_ns; /* high_ns: when `high` was reached */
    int64_t low, high, reserved, allocated, freed;
    int64_t allocations[CM_CHART_PHASES]; /* by cm_phase */
} cm_chart_interval;

/* One contributor in an interval in which it changed. */
typedef struct cm_chart_entry {
    uint32_t contributor, interval;
    int64_t high, end; /* at the interval's high_ns, and at its end */
    int64_t allocated, freed;
} cm_chart_entry;

typedef struct cm_chart_block {
    uint64_t address;
    int64_t bytes, begin_ns, end_ns; /* -1: before the window; after its end */
    uint32_t contributor;
    int32_t step, end_step; /* -1: outside of any */
} cm_chart_block;

/* One device in one span. */
typedef struct cm_chart {
    uint32_t device, span;
    int64_t begin_ns, end_ns;
    cm_chart_interval *interval;
    size_t interval_count;
    struct cm_contributor
        *contributor; /* bytes: the most at an interval's high; count: blocks born in the span */
    size_t contributor_count;
    cm_chart_entry *entry; /* by contributor, then interval */
    size_t entry_count;
    int64_t hidden; /* contributors that never held more may lack entries */
    cm_chart_block *block;
    size_t block_count;
    int64_t least_block, least_survivor; /* all blocks of at least that size are included */
} cm_chart;

#endif
