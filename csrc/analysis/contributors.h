/* Contributors made from the replay's origins, in the order of reports. */
#ifndef CM_ANALYSIS_CONTRIBUTORS_H
#define CM_ANALYSIS_CONTRIBUTORS_H

#include "analysis.h"
#include "../heap/replay.h"
#include "../heap/snapshot.h"

typedef struct cm_contributors {
    cm_contributor *contributor;
    size_t count, capacity;
} cm_contributors;

cm_contributor cm_contributor_of(const cm_replay *replay, uint32_t origin, cm_amount amount);
/* false: out of memory. */
bool cm_contributors_add(cm_contributors *list, const cm_replay *replay, uint32_t origin,
                         cm_amount amount);
int cm_contributors_compare(const cm_contributor *a, const cm_contributor *b);
/* The largest first; the order of equal ones depends only on their fields. */
void cm_contributors_sort(cm_contributor *contributor, size_t count);

#endif
