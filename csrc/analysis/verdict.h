/* The verdict on a group of blocks or nodes: its signature, its confidence, and why it may only be
 * suspected. One owner.
 *
 * Without a collection after the loop's last boundary, as in a report in the middle of a run or
 * after a kill, survivors may be uncollected garbage. They are a leak only if what the loop's last
 * full collection left was one.
 *
 * Blocks that died in a collection after the loop's last boundary were garbage and prove nothing: a
 * group that only qualifies with them is a suspect. It is a leak by reference cycles if the
 * collector was disabled and no full collection ran in the last third of the steps, because only
 * the program's end would have freed it. Blocks that survived a full collection within the loop
 * were reachable then.
 *
 * What a search found to be held by names while the loop ran was no garbage then: a collection that
 * frees it when the loop's function has returned does not make it so.
 *
 * Lost events and lost frees explain a verdict from a quarter of its evidence on. */
#ifndef CM_ANALYSIS_VERDICT_H
#define CM_ANALYSIS_VERDICT_H

#include "analysis.h"
#include "growth.h"
#include "loops.h"

/* One that grows, before the search for causes. */
typedef struct cm_verdict_row {
    cm_leak leak;
    uint64_t first_position;          /* of a growing set: the record of its first birth */
    int64_t first_live;               /* ... and its bytes at its first boundary */
    uint32_t born[CM_GROWTH_BUCKETS]; /* distinct steps of birth, by bucket of the loop's steps */
    uint32_t line;                    /* number of the user's line (stack_class.h) */
    bool
        holds_inputs; /* nodes: most were not run by a backward, which would release their inputs */
    size_t under;     /* index + 1 of its cause */
} cm_verdict_row;

/* The verdicts of one trace and their common evidence. */
typedef struct cm_verdicts {
    uint64_t lost;           /* events and frees */
    bool collector_disabled; /* when the recording ended */
    cm_verdict_row *row;
    size_t rows, row_capacity;
    cm_leak_part *part;
    size_t parts, part_capacity;
} cm_verdicts;

typedef struct cm_verdict_case {
    const cm_loop *loop;
    uint32_t collected; /* boundaries of the loop passed at its last full collection; 0: none ran */
    uint32_t swept;     /* ... at its last one of any kind */
    uint32_t pause;     /* the most between two collections, the loop's beginning included */
    bool proven;        /* `kept` was no garbage: a collection ran after the loop, or many in it */
    bool late; /* no evidence that deaths in a collection after the loop were garbage in the loop */
    bool named;          /* a search in the loop found names for most of what had grown by then */
    cm_growth_case kept; /* without the garbage; steps and epochs are filled in */
    const cm_growth_birth *all; /* with it */
    size_t all_births;
} cm_verdict_case;

typedef enum cm_verdict_class {
    CM_VERDICT_NOTHING = 0,
    CM_VERDICT_HINT,   /* few births, or stopped: a suspect if nothing better is found */
    CM_VERDICT_KEPT,   /* it grows; its blocks are `kept` */
    CM_VERDICT_GARBAGE /* it grows; its blocks are `all` */
} cm_verdict_class;

/* Fills in signature, confidence, reason, cycle and rates. */
cm_verdict_class cm_verdict_judge(const cm_verdicts *verdicts, const cm_verdict_case *c,
                                  cm_leak *out);

/* Adds a row; sorts the parts and computes its bytes, count and stack. false: out of memory. */
bool cm_verdicts_add(cm_verdicts *verdicts, const cm_verdict_row *row, cm_leak_part *part,
                     size_t parts);

void cm_verdicts_clear(cm_verdicts *verdicts);

#endif
