/* The rules that distinguish a leak from everything similar, given births and deaths over the steps
 * of a loop. Pure: no trace, no stacks, no allocation of its own; any thread.
 *
 * Steps here count within the loop, from 0. The judgement is made at the last step's end.
 *
 * (a) Survivors of all ages (cm_growth_survivors). After warm-up, blocks that are still alive were
 *     born in at least CM_GROWTH_BIRTHS distinct steps, from the first third into the last, with no
 *     gap over half the span. A cache has old survivors only, a bounded buffer young ones only.
 *     Where blocks die after they had grown old, the program evicts, and three more conditions
 *     hold. Only survivors older than the youngest evicted block count (a queue has none).
 *     Evictions must not keep up with births. The live bytes must rise in every third. Births that
 *     become rarer are those of a cache that fills. Late: births only since an onset after the
 *     first third. Then nothing of the group may have been evicted since, which excludes a list
 *     that is cleared at intervals. Half as much may never have been alive before, which excludes a
 *     queue. Births must go on to the end.
 *     A queue that falls behind has fewer than CM_GROWTH_HINT of these: there the live bytes must
 *     rise as above, and the number of blocks must rise straight.
 * (b) A live set that keeps growing although its blocks are young (cm_growth_rising): the lower
 *     envelope of live bytes at step boundaries rises in each third by a fifth of its whole rise,
 *     in at least CM_GROWTH_BIRTHS steps, and nearly all of it is younger than an eighth of the
 *     span (older sets belong to (a)). Late onsets as above.
 *
 * Rates. (a) Bytes born after the first birth that counts, divided by the steps from that birth to
 * the last: a block in every 5th step is a fifth of it a step. Where the program evicts: the rise
 * of the old survivors, divided by its steps.
 * (b) The envelope's rise up to the last tenth of the span, divided by its steps.
 *
 * Confidence. High: (a), from the first third on, at least CM_GROWTH_SURE births, in a rhythm (no
 * gap over twice the mean one), and nothing evicted. Everything else is medium. */
#ifndef CM_ANALYSIS_GROWTH_H
#define CM_ANALYSIS_GROWTH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Every threshold of the verdicts. */
enum {
    /* 64 minima per group bound the memory; a loop up to that length is judged exactly. */
    CM_GROWTH_BUCKETS = 64,
    /* Fewer distinct steps happen by chance: a few evaluations, checkpoints, reports. */
    CM_GROWTH_BIRTHS = 6,
    /* Enough to be mentioned as a suspect. */
    CM_GROWTH_HINT = 3,
    /* Enough for a verdict that leaves no doubt. */
    CM_GROWTH_SURE = 12,
    /* The first steps make optimizer states, caches and lazy buffers. */
    CM_GROWTH_WARM_PERCENT = 15,
    CM_GROWTH_WARM_STEPS = 2,
    /* A block that outlives so many boundaries of its loop does not belong to one step's work. */
    CM_GROWTH_OLD = 2,
    /* The least rise of each third, in percent of the whole: a steady leak adds 33 in each, a set
     * that fills adds less and less. */
    CM_GROWTH_THIRD_PERCENT = 20,
    /* Last third against first where blocks are evicted, percent: a set that is overwritten more
     * and more flattens. */
    CM_GROWTH_FLAT_PERCENT = 67,
    /* Deaths against births since the first eviction, percent: a full buffer from here on. */
    CM_GROWTH_FULL_PERCENT = 90,
    /* Of a queue that falls behind, percent of its rise: the largest distance of the number of
     * blocks from a straight line. One that is in balance, and only drifts, is farther off. */
    CM_GROWTH_STRAIGHT_PERCENT = 5,
    /* A late leak must go on for so many steps, and for this share of the loop, percent. */
    CM_GROWTH_LATE_STEPS = 8,
    CM_GROWTH_LATE_PERCENT = 10,
    /* A cache that fills has this many times fewer births in the last third of the loop than in the
     * first, of so many at least, because fewer may be chance. Or half as many, and half as dense
     * as the very first steps, in which a cache nearly always misses. Or less than this share,
     * percent, and every survivor of its own size, as in caches keyed by shape. */
    CM_GROWTH_FILL_FACTOR = 3,
    CM_GROWTH_FILLING = 4,
    CM_GROWTH_DENSE_FACTOR = 2,
    CM_GROWTH_SHAPES_PERCENT = 75,
    /* (b): this share of its bytes, percent, is younger than this part of the span. Longer lives
     * are judged by (a): their live bytes drift by chance. */
    CM_GROWTH_YOUNG_PERCENT = 90,
    CM_GROWTH_YOUNG = 8,
    /* (b), percent: the rise against the live bytes at the end, and the mean distance of the live
     * bytes from their envelope against the rise. Varying sizes drift by chance, but not straight.
     */
    CM_GROWTH_RISE_PERCENT = 25,
    CM_GROWTH_NOISE_PERCENT = 20,
    /* (b): this part of the span, at its end, only lowers the envelope. */
    CM_GROWTH_TAIL = 10,
    /* Epochs that must pass before a late group is ruled out as a per-epoch list. One that begins
     * with the epoch may be work of the last epoch only. */
    CM_GROWTH_EPOCHS_WITHOUT = 2,
    CM_GROWTH_EPOCH_ONSET = 3,
    /* Curriculum: (b) is explained where at least this share (percent) of the loop's other forward
     * lines grows with it, at least this much (percent) as strongly. */
    CM_GROWTH_ALIKE_LINES = 50,
    CM_GROWTH_ALIKE_PERCENT = 50,
    /* Collections that found nothing of a group: so many in different steps, with enough steps in
     * between that new garbage was still young, or so many collections of older generations. */
    CM_GROWTH_SWEEPS = 4,
    CM_GROWTH_SWEEP_STEPS = 2,
    /* Lost events and frees explain a verdict from this share of its evidence, percent. */
    CM_GROWTH_LOST_PERCENT = 25
};

/* The live blocks born in one step. */
typedef struct cm_growth_birth {
    uint32_t step;
    uint64_t count;
    int64_t bytes;
} cm_growth_birth;

/* Blocks that died before the judgement, after CM_GROWTH_OLD boundaries or more. All zero: none. */
typedef struct cm_growth_deaths {
    uint64_t count;
    uint32_t first, last; /* boundaries passed when the first and the last died */
    uint32_t youngest;    /* highest step of birth */
    double bytes;
    double born_since;                    /* bytes of those born since `first` */
    double alive[CM_GROWTH_BUCKETS + 1];  /* changes of the live bytes, by bucket of steps */
    double blocks[CM_GROWTH_BUCKETS + 1]; /* ... and of their number */
} cm_growth_deaths;

/* A group of blocks of one loop. */
typedef struct cm_growth_case {
    uint32_t steps;
    const cm_growth_birth *birth; /* by step, ascending */
    size_t births;
    const cm_growth_deaths *deaths; /* NULL: none */
    bool fleeting; /* its blocks die in the step after their own: the last step's prove nothing */
    const int64_t *low;    /* by bucket: lowest live bytes at its boundaries; NULL: unknown */
    const uint32_t *epoch; /* first steps of the data iterators' epochs */
    size_t epochs;         /* 0: there are no iterators */
    bool any_epoch;        /* nothing of this kind belongs to a per-epoch list */
} cm_growth_case;

typedef enum cm_growth_verdict {
    CM_GROWTH_NOTHING = 0,
    CM_GROWTH_LEAK,
    CM_GROWTH_FEW,
    CM_GROWTH_STOPPED,
    CM_GROWTH_EPOCH
} cm_growth_verdict;

typedef struct cm_growth_result {
    cm_growth_verdict verdict;
    bool sure; /* confidence high */
    double bytes_per_step, count_per_step;
    uint64_t evidence; /* blocks (b: rises) that support it */
} cm_growth_result;

/* Steps in a bucket of a loop of that length. */
static inline uint32_t cm_growth_width(uint32_t steps)
{
    return steps / CM_GROWTH_BUCKETS + (steps % CM_GROWTH_BUCKETS != 0 || steps == 0);
}

/* The first step after the warm-up. */
uint32_t cm_growth_warm(uint32_t steps);

/* A block born in step `birth` died when `passed` boundaries had passed. */
void cm_growth_die(cm_growth_deaths *deaths, uint32_t steps, uint32_t birth, uint32_t passed,
                   int64_t bytes);
void cm_growth_add_deaths(cm_growth_deaths *into, const cm_growth_deaths *from);

cm_growth_result cm_growth_survivors(const cm_growth_case *c); /* (a) */
cm_growth_result cm_growth_rising(const cm_growth_case *c);    /* (b) */

#endif
