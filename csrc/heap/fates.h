/* The fate of each block of a window: its category, its label, and the node that saved it. The
 * first reading of the window's records finds the fates; the second, the replay, gets them in the
 * order of births. One byte for each allocation, 32 for each live block.
 *
 * A walk's label decides (CM_EV_LABEL). Otherwise the place of birth and the lifetime decide:
 *
 *   in a backward node     gradient if it is alive when its backward pass returns, else temporary.
 *                          Forward run again inside a node (checkpointing) counts as forward.
 *                          Unknown if a later walk labelled gradients but not this block, and it
 *                          lives from the first pass for CM_FATE_LONG updates: a workspace
 *   in an optimizer        optimizer state if it is alive when its step returns, else temporary
 *   in forward             activation if a node runs while it is alive; also if graph nodes were
 *                          made during its life and it outlives a failed request or the window;
 *                          else temporary, or unknown if it is alive at the window's end, or
 *                          was made before the first update and outlives CM_FATE_LONG of them
 *   elsewhere              input if a forward begins while it is alive, else temporary. Unknown if
 *                          it was made in the loop and outlives CM_FATE_LONG updates, if a
 *                          constructor of PyTorch's modules made it, or if it was made before the
 *                          loop without a walk that could label it as a parameter
 *   before the recording   before start
 *
 * Updates of several optimizers, of a generator and its critic, count as one for CM_FATE_LONG.
 *
 * Blocks alive at the window's opening are judged by place of birth and the window only, so that
 * the order in which windows are read does not matter. A block of backward without a label in the
 * window is unknown; one of forward is an activation only if a node runs.
 *
 * Gradients of a pass without a walk get the names of a pass with one: both have the same sizes in
 * the same order. The node that saved an activation is the last one run by the thread that freed
 * it.
 *
 * Compaction (compact/compact.h) removes allocations and nodes. A block that is an input in the
 * whole recording may then be temporary or unknown. */
#ifndef CM_HEAP_FATES_H
#define CM_HEAP_FATES_H

#include <stdbool.h>
#include <stdint.h>

#include "replay.h"

enum { CM_FATE_LONG = 3 };

typedef struct cm_fate {
    cm_category category;
    const cm_label *label; /* NULL: none; valid as long as the fates */
    uint32_t saved_by;     /* name id, 0 = unknown */
} cm_fate;

/* The replay stands at the window's opening. NULL: out of memory. */
cm_fates *cm_fates_begin(const cm_replay *replay);
void cm_fates_free(cm_fates *fates);
/* Each record of the window, in order, with its position. false: out of memory. */
bool cm_fates_apply(cm_fates *fates, uint64_t position, const cm_record *record);
/* No more records. false: out of memory. */
bool cm_fates_end(cm_fates *fates);

/* First of the blocks alive at the opening, in the order of replay->blocks, then of each birth of
 * the window. Unknown after the last one. */
cm_fate cm_fates_next(cm_fates *fates);
/* The label's category; `otherwise` where it has none. */
cm_category cm_fates_category(const cm_label *label, cm_category otherwise);

#endif
