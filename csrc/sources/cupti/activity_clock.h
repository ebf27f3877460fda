/* CUPTI's time stamps converted to ticks of cm_clock_now(). The CUPTI thread only.
 *
 * Stamps are nanoseconds of CLOCK_REALTIME. But another client may replace CUPTI's clock at any
 * time and for good: torch.profiler sets processor cycles. So the only assumption is that stamps
 * run evenly between two samples of both clocks. */
#ifndef CM_SOURCES_CUPTI_ACTIVITY_CLOCK_H
#define CM_SOURCES_CUPTI_ACTIVITY_CLOCK_H

#include <stdbool.h>
#include <stdint.h>

#include "api.h"

/* Takes two samples, a few milliseconds apart. */
void cm_cupti_clock_begin(const cm_cupti_link *link);
/* Samples both clocks. Must be called before records that came since the last sample are converted.
 */
void cm_cupti_clock_sample(void);
/* An interval of stamps: its start in ticks, its length in nanoseconds (0 if the end is not later).
 * A start that fits no sample becomes the ticks of the last one. */
typedef struct cm_cupti_span {
    uint64_t ticks, ns;
} cm_cupti_span;
cm_cupti_span cm_cupti_clock_span(uint64_t start, uint64_t end);
/* Whether stamps differed from CLOCK_REALTIME in any sample since begin. Any thread. */
bool cm_cupti_clock_changed(void);

#endif
