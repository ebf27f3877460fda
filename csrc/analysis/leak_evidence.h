/* The evidence for leaks: per loop, what was alive at its last boundary, and which of that died in
 * a later collection. leaks.c gathers it during the replay; leak_cases.h judges it. */
#ifndef CM_ANALYSIS_LEAK_EVIDENCE_H
#define CM_ANALYSIS_LEAK_EVIDENCE_H

#include "census.h"
#include "../base/idmap.h"
#include "node_size.h"
#include "parts.h"
#include "track.h"
#include "verdict.h"

enum {
    CM_FULL_COLLECTION = 2,   /* generation */
    CM_LEAKS_REPLACED = 3,    /* what a later run replaces is one part of so many that were alive */
    CM_LEAKS_NODE_UNIT = 1024 /* bytes of a node while it is judged; what it takes is known later */
};

/* Flag in the order of a row of nodes, above the sequence number: no backward has run it. */
#define CM_LEAKS_NEVER_RAN ((uint64_t)1 << 63)

/* Blocks that died in a collection which another window made at its end. Without it they would have
 * lived until the program's own next one: for this loop they are alive until then. */
typedef struct cm_leaks_ghost {
    bool is_node;
    cm_block block;
    cm_node_life node;
} cm_leaks_ghost;

typedef struct cm_leaks_loop {
    /* Rows of blocks by group of cm_track. Rows of nodes by canonical stack; `youngest` is the
     * sequence number, with nodes that never ran above all others. */
    cm_census blocks, dead_blocks, nodes, dead_nodes;
    bool fleeting_nodes, nodes_collected; /* died in the step after their own, in a collection */
    uint32_t collected; /* boundaries passed at its last full collection; 0: none ran */
    bool proven;        /* a full collection ran after its last boundary */
    bool in_frame;      /* ... while its function, or a module's code, still ran */
    uint32_t sweeps[CM_GROWTH_BUCKETS];     /* steps with a collection, by bucket of them */
    uint32_t old_sweeps[CM_GROWTH_BUCKETS]; /* collections of older generations */
    uint32_t swept_in;                      /* the last step with a collection, + 1 */
    uint32_t swept;                         /* ... at its last one of any kind */
    uint32_t pause; /* the most boundaries between two of them, the loop's start included */
    int64_t older, older_left; /* bytes from before the loop at its end, and at the program's */
    bool counted;              /* what is alive at the program's end */
} cm_leaks_loop;

typedef struct cm_leaks {
    const cm_run *run;
    cm_loops *loops;
    cm_stack_classes *classes;
    cm_track *track;
    cm_leaks_loop loop[CM_LOOPS_MAX];
    cm_idmap node_deaths_at; /* loop, canonical stack -> index of node_deaths */
    cm_growth_deaths *node_deaths;
    size_t node_death_count, node_death_capacity;
    bool collecting;    /* a collection is running */
    uint32_t collector; /* ... on this thread */
    bool asked;         /* ... requested by cuptimem at a window's end */
    bool final_disabled;
    cm_leaks_ghost *ghost;
    size_t ghosts, ghost_capacity;
    uint64_t live_nodes;
    bool stepped;
    bool evaluated;    /* a loop that does not train is over */
    bool exiting;      /* the program is over: its exit handlers run */
    int32_t exit_step; /* the step when that began */
    uint64_t born;     /* records before the last allocation */
    cm_idmap held_by;  /* canonical stack -> whether it is reached from a variable (CM_MARK_HELD) */
    cm_idmap named; /* canonical stack -> what had grown of it had a name while the program ran */
    cm_node_size node_size;
    cm_verdicts verdicts;
} cm_leaks;

/* Step of birth within the loop, bytes and count of some rows as births. */
typedef struct cm_leaks_births {
    cm_growth_birth *birth;
    size_t count, capacity;
} cm_leaks_births;
bool cm_leaks_births_of(cm_leaks_births *births, const cm_census_row *row, size_t rows);
/* The number of steps of birth in each bucket. */
void cm_leaks_spread_births(const cm_leaks_births *births, uint32_t steps, uint32_t *born);

/* Whether collections in the loop would have found garbage born in `first` or later steps. */
bool cm_leaks_were_swept(const cm_leaks *leaks, uint32_t loop, uint32_t first);

static inline uint64_t cm_leaks_node_key(uint32_t loop, uint32_t stack)
{
    return (uint64_t)loop << 32 | stack;
}

#endif
