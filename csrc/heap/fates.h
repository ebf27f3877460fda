/* What becomes of each block of a window: its category, its label, and who had saved it. Learnt in
 * the first reading of the window's records, and given out again in the order of births while the
 * second one replays them. One byte for each allocation, 32 for each live block.
 *
 * A walk's label decides (CM_EV_LABEL). Otherwise the place of birth and the life decide:
 *
 *   in a backward node     gradient if it is alive when its backward pass returns, else temporary.
 *                          Forward run again inside a node (checkpointing) counts as forward.
 *                          Unknown if a later walk saw gradients and did not label it, and it is
 *                          there from the first pass for CM_FATE_LONG updates: a workspace
 *   in an optimizer        optimizer state if it is alive when its step returns, else temporary
 *   in forward             activation if a node runs while it is alive; also if graph nodes were
 *                          made during its life and it outlives a refused request or the window;
 *                          else temporary, or unknown if it is alive at the window's end, or
 *                          was made before the first update and outlives CM_FATE_LONG of them
 *   elsewhere              input if a forward begins while it is alive, else temporary. Unknown if
 *                          it was made in the loop and outlives CM_FATE_LONG updates, if a
 *                          constructor of PyTorch's modules made it, or if it was made before the
 *                          loop and no walk has distinguished it from a parameter
 *   before the recording   before start
 *
 * Updates of several optimizers, of a generator and its critic, count as one for CM_FATE_LONG.
 *
 * What was alive at the window's opening is judged by its place of birth and the window alone, so
 * that a window reads the same in whatever order windows are read: of backward, and in no label of
 * a walk in the window, it is unknown; of forward, it is an activation only if a node runs.
 *
 * A gradient of a pass without a walk is named as in a pass with one: the gradients of both have
 * the same sizes in the same order. What had saved an activation is the node that ran last on the
 * thread that freed it.
 *
 * Past a trace's bound (compact/compact.h) allocations and nodes are left out. What is left may
 * then show a block as temporary or unknown that the whole recording would show as input. */
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
bool cm_fates_see(cm_fates *fates, uint64_t position, const cm_record *record);
/* No more records. false: out of memory. */
bool cm_fates_end(cm_fates *fates);

/* Of the blocks that are alive at the opening, in the order of replay->blocks; then of each birth
 * of the window. Beyond the last one nothing is known. */
cm_fate cm_fates_next(cm_fates *fates);
/* The label's category; `otherwise` where it has none. */
cm_category cm_fates_category(const cm_label *label, cm_category otherwise);

#endif
