/* From rows to entries: what has one cause is one entry, and what is too small to matter is none.
 *
 * Rows of one line of the user's that are born in the same steps are one row. Then, of the rows of
 * one loop, some stand under another one, their cause.
 *
 *  - A kept graph retains bytes that survive from the steps from which its nodes survive: those of
 *    the line that keeps it, and scalars of its lines, which are losses that keep it
 *    (CM_LEAK_RETAINED). A graph that no backward has run also holds what its nodes have saved: of
 *    lines that made such nodes (CM_LEAK_RETAINED), and of others (a batch, a mask) if their steps
 *    are the same and they are no more than the rest of it (CM_LEAK_SAME_STEPS).
 *  - A growing set may be computed from another set that grows, and no slower: both have as much as
 *    the same number of steps adds (CM_LEAK_FOLLOWS). The cause is the one that began a step ahead,
 *    else the one that was born first.
 *
 * A row that is sure stands under no row that is not.
 *
 * Negligible is an entry that adds less than CM_NEGLIGIBLE_RATE a step and has less than
 * CM_NEGLIGIBLE_SHARE of the device's peak in the end, alone and together with all others of its
 * loop; with options->min_rate, one that adds less than that. Graphs are only by the latter: that a
 * node is kept is a mistake at any rate. */
#ifndef CM_ANALYSIS_CAUSES_H
#define CM_ANALYSIS_CAUSES_H

#include "../heap/stack_class.h"
#include "verdict.h"

enum {
    /* A scalar takes 4 bytes on the CPU and 512 on a GPU: a few kept numbers a step. */
    CM_NEGLIGIBLE_RATE = 1024,
    /* Of the device's peak, percent. */
    CM_NEGLIGIBLE_SHARE = 1,
    /* What a scalar takes at most: the smallest block of PyTorch's CUDA allocator. */
    CM_CAUSE_SCALAR_BYTES = 512,
    /* A growing set may be computed from one that grows at this share of its pace, percent. */
    CM_CAUSE_RATE_PERCENT = 125,
    /* Steps that two rows must have in common, percent of the longer one's. */
    CM_CAUSE_STEPS_PERCENT = 90
};

/* Turns the rows of `verdicts` into out->leaks, out->suspects and out->kept; out->device has the
 * peaks. false: out of memory. */
bool cm_causes_find(cm_verdicts *verdicts, cm_stack_classes *classes,
                    const cm_analysis_options *options, cm_analysis *out);

#endif
