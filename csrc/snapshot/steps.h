/* Steps of the optimizer, as a snapshot shows them: PyTorch notes the beginning and end of each
 * call (external_annotations, since 2.6); else allocations whose stack lies in one. A step that is
 * noted nowhere and allocates nothing is unknown. */
#ifndef CM_SNAPSHOT_STEPS_H
#define CM_SNAPSHOT_STEPS_H

#include "snapshot.h"

typedef struct cm_snap_tick {
    uint64_t time_us;
    uint64_t optimizer; /* a number of its own for each that is told apart */
} cm_snap_tick;

/* The ends of steps that were noted, in their order. *ticks is the caller's. false: out of memory.
 */
bool cm_snap_steps_noted(const cm_snap *snapshot, cm_snap_tick **ticks, size_t *count);

/* How many inner frames of a stack lie in an optimizer's step, its own included; 0: it does not. */
size_t cm_snap_step_depth(const cm_snap *snapshot, uint32_t stack);

#endif
