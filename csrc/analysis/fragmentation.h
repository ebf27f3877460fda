/* PyTorch's segments of one device against its blocks, at one moment of the replay. */
#ifndef CM_ANALYSIS_FRAGMENTATION_H
#define CM_ANALYSIS_FRAGMENTATION_H

#include "ledger.h"
#include "../heap/replay.h"

/* Sorts the live blocks, so the time grows with their number. asked: size of a failed request, else
 * -1. Without segments out->segment_total is 0. false: out of memory, nothing to clear. */
bool cm_fragmentation_take(const cm_replay *replay, uint16_t device, cm_fragment_what what,
                           uint64_t time_ns, int64_t asked, cm_fragmentation *out);
/* At the end of the replay: where no measurement of the device preceded the moment, the first one
 * behind it says what was free. */
void cm_fragmentation_finish(const cm_replay *replay, cm_fragmentation *one);
void cm_fragmentation_clear(cm_fragmentation *one);

#endif
