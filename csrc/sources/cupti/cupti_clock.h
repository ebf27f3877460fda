/* CUPTI's time stamps as ticks of cm_clock_now(). The witness's thread only.
 *
 * Stamps are nanoseconds of CLOCK_REALTIME, unless another client of CUPTI has given it a clock of
 * its own (torch.profiler does: processor cycles), at any moment and for good. So nothing is
 * assumed about them but that they run evenly between two looks. */
#ifndef CM_SOURCES_CUPTI_CUPTI_CLOCK_H
#define CM_SOURCES_CUPTI_CUPTI_CLOCK_H

#include <stdbool.h>
#include <stdint.h>

#include "cupti.h"

/* Takes some milliseconds: two looks. */
void cm_cupti_clock_begin(const cm_cupti_link *link);
/* A look at both clocks; before the records that came since the last one are converted. */
void cm_cupti_clock_look(void);
/* Where a stretch of stamps lies: ticks of its start, and nanoseconds until its end (0 where that
 * is not later). The ticks of the last look where the start fits nowhere. */
typedef struct cm_cupti_span {
    uint64_t ticks, ns;
} cm_cupti_span;
cm_cupti_span cm_cupti_clock_span(uint64_t start, uint64_t end);
/* Whether stamps were anything else than CLOCK_REALTIME at any look since begin. Any thread. */
bool cm_cupti_clock_changed(void);

#endif
