/* The fate of each block of a window: its category, its label, and the node that saved it. The
 * first reading of the window's records finds the fates; the second, the replay, gets them in the
 * order of births. One byte for each allocation, 72 for each live block that the window's records
 * name, 88 for each stack, 4 for each backward pass and update; what else the window inherits is
 * judged by cohort (cohorts.h).
 *
 * A label decides (CM_EV_LABEL): of a walk, or of a hook that saw a workspace handed to cuBLAS or
 * cuDNN. Otherwise the place of birth and the lifetime decide:
 *
 *   in a backward node     gradient if it is alive when its backward pass returns, else temporary.
 *                          Forward run again inside a node (checkpointing) counts as forward. If a
 *                          later walk labelled gradients but not this block, and it lives from the
 *                          first pass for CM_FATE_LONG updates: kept if a hook's Python code made
 *                          it, else unknown. Activation if the pass recorded nodes itself
 *                          (create_graph) and the next pass ends it
 *   in an optimizer        optimizer state if it is alive when its step returns, else temporary
 *   in DDP or FSDP         bucket if a backward pass runs while it is alive
 *   from a file            loaded
 *   in forward             activation if the node that was made with it was not destroyed, or a
 *                          node frees it in the next pass. Else kept if it lives long. Else
 *                          activation if a node runs while it is alive; also if graph nodes were
 *                          made during its life and it outlives a failed request or the window;
 *                          else kept if its stack makes another one in a later turn, but the
 *                          next of its size that replaces it; else temporary
 *   elsewhere              kept if it lives long and was made in the loop, if it is carried over
 *                          to the next iteration (purposes.h), or if it lives past CM_FATE_LONG
 *                          calls of an evaluation, behind one, as the only one of its stack.
 *                          Temporary if it is a call's result that the next one replaces, and calls
 *                          have batches of their own. Else input if a forward begins while
 *                          it is alive, else temporary. Unknown if a constructor of PyTorch's
 *                          modules made it, or if it was made before the loop without a walk that
 *                          could label it as a parameter
 *   elsewhere, late        (after the step's first call of a module that recorded nodes) activation
 *                          if forward goes on and a backward pass runs while it is alive: a mask,
 *                          noise; input if a module is called next, and the line makes nothing
 *                          temporary: another batch; else kept if it outlives the update and the
 *                          call that made it and ran that pass, as the stacks that come next
 *                          show. Else kept if it outlives the step, else temporary
 *   before the recording   before start
 *
 * A life is long if the block's stack makes others in CM_FATE_LONG later turns of the program (it
 * is in a collection), or over CM_FATE_LONG updates. Updates of several optimizers, of a generator
 * and its critic, count as one.
 *
 * A block that is alive at the window's end, or outlives updates alone, decides nothing by itself:
 * it is what most blocks of its stack are. Where most are kept, all are (purposes.h).
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

#include "fate_list.h"
#include "replay.h"

enum { CM_FATE_LONG = 3 };

typedef struct cm_fates cm_fates;

/* The replay stands at the window's opening. NULL: out of memory. */
cm_fates *cm_fates_begin(const cm_replay *replay);
void cm_fates_free(cm_fates *fates);
/* Each record of the window, in order, with its position. false: out of memory. */
bool cm_fates_apply(cm_fates *fates, uint64_t position, const cm_record *record);
/* No more records. false: out of memory. */
bool cm_fates_end(cm_fates *fates);

/* The fates, for the second reading; valid as long as this is. */
cm_fate_list *cm_fates_list(cm_fates *fates);

#endif
