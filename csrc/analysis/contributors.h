/* Contributors out of the replay's origins, in the order in which reports have them. */
#ifndef CM_ANALYSIS_CONTRIBUTORS_H
#define CM_ANALYSIS_CONTRIBUTORS_H

#include "analysis.h"
#include "../heap/replay.h"

cm_contributor cm_contributor_of(const cm_replay *replay, uint32_t origin, int64_t bytes,
                                 uint64_t count);
/* The largest first; the order of equal ones depends on nothing but what they are. */
void cm_contributors_sort(cm_contributor *contributor, size_t count);

#endif
