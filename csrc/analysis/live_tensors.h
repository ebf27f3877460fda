/* Blocks that a walk has labelled, in the order of reports. */
#ifndef CM_ANALYSIS_LIVE_TENSORS_H
#define CM_ANALYSIS_LIVE_TENSORS_H

#include "analysis.h"
#include "../heap/replay.h"

cm_tensor cm_live_tensor(const cm_replay *replay, const cm_block *block, const cm_label *label);
/* The largest first. */
void cm_live_tensors_sort(cm_tensor *tensors, size_t count);
/* Those of the device that are alive now; the caller frees them. false: out of memory. */
bool cm_live_tensors_take(const cm_replay *replay, uint16_t device, cm_tensor **out, size_t *count);

#endif
