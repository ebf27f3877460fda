/* CUPTI's activity buffers: requested, filled, parsed. The CUPTI thread only. */
#ifndef CM_SOURCES_CUPTI_ACTIVITY_H
#define CM_SOURCES_CUPTI_ACTIVITY_H

#include "api.h"

/* false with a reason: there are no records, and the callbacks go on without them. */
bool cm_cupti_activity_begin(const cm_cupti_link *link, bool kernels, char *why, size_t why_size);
/* Whether CUPTI agreed to record kernels. */
bool cm_cupti_activity_has_kernels(void);
/* Collects the buffers, parses them, emits events. forced: also takes incomplete records. */
void cm_cupti_activity_drain(bool forced);
void cm_cupti_activity_end(const cm_cupti_link *link);
typedef struct cm_cupti_activity_counts {
    uint64_t records, dropped, foreign_buffers, unknown_records;
    bool time_base_changed;
} cm_cupti_activity_counts;
void cm_cupti_activity_get_counts(cm_cupti_activity_counts *counts);

#endif
