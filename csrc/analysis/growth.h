/* The judgement on one thing that may grow: pure numbers in, a verdict out. No trace, no stacks.
 *
 * Steps are those of one loop, counted from 0. What is judged is alive at the loop's last boundary.
 * Warm-up is the first 15 % of the steps, at least 2; thirds are those of the rest.
 *
 *   survivors of all ages  births in at least 6 distinct steps, from the first third into the last,
 *                          no gap over half the span, about as many late as early. If older ones
 *                          died meanwhile (a buffer's do), the level must have risen all along,
 * too.
 *   ... that began late    the same from the first survivor on, over at least 8 steps, and nothing
 *                          that had outlived two boundaries ever died: buffers and lists per epoch
 *                          evict, a leak does not.
 *   growing                the lower envelope of the level at the boundaries (the least that is
 *                          still to come) rises in each third by at least a fifth of its whole
 * rise, in at least 6 steps; or, if it began late, the level never fell. Not if most of what the
 * steps allocate grows alike (batches that get longer).
 *
 * Rates are what an observer at two boundaries sees: of survivors, what was born from the first
 * birth up to, but without, the last one before the last step, over the steps between the two; of a
 * growing level, its envelope's rise over its steps.
 *
 * Confidence is high for a signature over the whole run without an eviction, in at least 10 steps;
 * medium otherwise; low for suspects. */
#ifndef CM_ANALYSIS_GROWTH_H
#define CM_ANALYSIS_GROWTH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "analysis.h"

/* What was born in one step and is alive. */
typedef struct cm_birth {
    int64_t step;
    int64_t bytes;
    uint64_t count;
} cm_birth;

/* A level at the boundaries: the least of each bucket of steps, exact while steps fit. */
enum { CM_LEVELS = 60 };

typedef struct cm_growth {
    int64_t steps;
    const cm_birth *birth; /* by step, ascending */
    size_t births;
    const int64_t *level; /* CM_LEVELS, of which cm_growth_buckets(steps) count; NULL: all 0 */
    bool evicted;         /* after warm-up, something died that had outlived two boundaries */
    bool workload_grows;  /* the steps allocate more and more, as much as this grew */
    uint64_t epochs;      /* of data that were begun in the loop; 0 = no data loader */
} cm_growth;

typedef struct cm_verdict {
    bool found; /* leak or suspect */
    cm_suspect_reason reason;
    cm_leak_signature signature;
    cm_leak_confidence confidence;
    double bytes_per_step, count_per_step;
} cm_verdict;

cm_verdict cm_growth_judge(const cm_growth *growth);

int64_t cm_growth_warmup(int64_t steps);
size_t cm_growth_buckets(int64_t steps);
size_t cm_growth_bucket(int64_t steps, int64_t step);
/* How many times its value at the end of the first third the level is at the end. */
double cm_growth_factor(const cm_growth *growth);

#endif
