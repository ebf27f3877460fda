/* The live blocks by whether a window's records can distinguish them. Blocks that a window inherits
 * are in cohorts: of one size, without a label, and of one origin up to what fates decide
 * (category, module), so that one fate is that of all. All others are loose: made since the window
 * began, labelled, or with a fate of their own in this window.
 *
 * A block joins its cohort once, when the first window after its birth begins. So a window costs
 * what its records and the number of cohorts cost, not what is alive while it lasts. One owner, any
 * thread. */
#ifndef CM_HEAP_COHORTS_H
#define CM_HEAP_COHORTS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "blocks.h"
#include "../base/grow.h"

enum { CM_COHORTS_BITS = 1 << 16 };

typedef struct cm_cohort {
    int64_t size;    /* of each block */
    uint64_t count;  /* of live blocks; 0: the entry is free */
    uint32_t origin; /* of all of them; free: number of the next free entry + 1 */
    bool labelled;   /* cm_replay_foresee gives all of them a label: they become loose */
} cm_cohort;

/* Where a block was made loose; it may have died since. */
typedef struct cm_loose {
    uint64_t address;
    uint16_t device;
} cm_loose;

typedef struct cm_cohorts {
    cm_cohort *cohort;
    size_t count, capacity;
    uint32_t *slot; /* hash: cohort number + 1 */
    size_t slots, taken;
    uint32_t free;                          /* number of the first free entry + 1 */
    uint64_t address[CM_COHORTS_BITS / 64]; /* a bit for the hash of each that was ever in one */
    cm_loose *loose;                        /* has all loose blocks, unless unlisted */
    size_t loose_count, loose_capacity;
    bool sorted;   /* by device and address, each once */
    bool unlisted; /* too many for a list: they are found among all blocks */
} cm_cohorts;

/* Whether a block at this address may be in a cohort, if one is: few programs have so many tensors
 * when a recording starts that this does not spare most births a search. */
static inline bool cm_cohorts_may_have(const cm_cohorts *cohorts, uint64_t address)
{
    uint64_t bit = cm_mix(address) % CM_COHORTS_BITS;
    return cohorts->address[bit / 64] >> bit % 64 & 1;
}

/* NULL: out of memory, as for cm_cohorts_copy. */
cm_cohorts *cm_cohorts_new(void);
cm_cohorts *cm_cohorts_copy(const cm_cohorts *cohorts);
void cm_cohorts_free(cm_cohorts *cohorts);

#endif
