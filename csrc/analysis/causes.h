/* Merges verdict rows into entries: one entry per cause, none for growth too small to matter.
 *
 * Rows of one user line born in the same steps become one row. Then some rows of a loop stand under
 * another one, their cause.
 *
 *  - A kept graph retains bytes that survive from the same steps as its nodes: those of the line
 *    that keeps it, and scalars of its lines, which are losses that keep it (CM_LEAK_RETAINED).
 *    Nodes that no backward has run also hold what they saved: bytes of the lines that made such
 *    nodes (CM_LEAK_RETAINED), and where most of the graph's are such, of other lines (a batch, a
 *    mask) if their steps are the same and they are no more than the rest (CM_LEAK_SAME_STEPS).
 *  - A growing set may be computed from another set that grows no slower: both hold what the same
 *    number of steps adds (CM_LEAK_FOLLOWS). The cause is the one that began a step ahead, else the
 *    first-born one.
 *
 * A sure row never stands under an unsure one.
 *
 * An entry is negligible if it adds less than CM_NEGLIGIBLE_RATE a step and ends below
 * CM_NEGLIGIBLE_SHARE of the device's peak, alone and together with all others of its loop. With
 * options->min_rate, an entry is negligible below that rate. Only min_rate applies to graphs,
 * because a kept node is a mistake at any rate. */
#ifndef CM_ANALYSIS_CAUSES_H
#define CM_ANALYSIS_CAUSES_H

#include "../heap/stack_class.h"
#include "verdict.h"

enum {
    /* A scalar takes 4 bytes on the CPU and 512 on a GPU: a few kept numbers a step. */
    CM_NEGLIGIBLE_RATE = 1024,
    /* Of the device's peak, percent. */
    CM_NEGLIGIBLE_SHARE = 1,
    /* The most that a scalar takes: the smallest block of PyTorch's CUDA allocator. */
    CM_CAUSE_SCALAR_BYTES = 512,
    /* A growing set may be computed from one that grows at this share of its rate, percent. */
    CM_CAUSE_RATE_PERCENT = 125,
    /* Steps in common of two rows, percent of the longer one's. */
    CM_CAUSE_STEPS_PERCENT = 90
};

/* Turns the rows of `verdicts` into out->leaks, out->suspects and out->kept; out->device has the
 * peaks. false: out of memory. */
bool cm_causes_find(cm_verdicts *verdicts, cm_stack_classes *classes,
                    const cm_analysis_options *options, cm_analysis *out);

#endif
