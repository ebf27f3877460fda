/* Converting ticks to nanoseconds since the trace's start, by straight lines between the anchors of
 * successive batches; outside of them, by the nearest line. Anchors may be any numbers, and times
 * are clamped at 0. */
#ifndef CM_TRACE_TIMELINE_H
#define CM_TRACE_TIMELINE_H

#include <stdbool.h>
#include <stdint.h>

#include "../base/clock.h"

typedef struct cm_timeline {
    cm_clock_anchor first, base, now; /* base: the beginning of the current line */
    double ns_per_tick;
    int64_t lead_ns; /* from time 0 to the first anchor */
    bool started, measured;
} cm_timeline;

/* Sets the anchor of the batch that begins. */
void cm_timeline_anchor(cm_timeline *time, cm_clock_anchor anchor);
/* Takes a tick's length from a later anchor, while only the first is known. false: it is too near.
 */
bool cm_timeline_preview(cm_timeline *time, cm_clock_anchor later);
/* Moves time 0 back to an event before the first anchor, by at most an hour. */
void cm_timeline_reach_back(cm_timeline *time, uint64_t ticks);
/* Wall clock (CLOCK_REALTIME, ns) at time 0; 0 before the first anchor. */
uint64_t cm_timeline_realtime_at_zero(const cm_timeline *time);

/* Signed: before time 0 when negative. */
static inline int64_t cm_timeline_signed(const cm_timeline *time, uint64_t ticks)
{
    double since = (double)(int64_t)(ticks - time->now.ticks) * time->ns_per_tick +
                   (double)(int64_t)(time->now.monotonic_ns - time->first.monotonic_ns);
    if (__builtin_expect(since > 9e18 || since < -9e18, 0))
        return since < 0 ? INT64_MIN / 2 : INT64_MAX / 2;
    return (int64_t)since + time->lead_ns;
}

static inline uint64_t cm_timeline_at(const cm_timeline *time, uint64_t ticks)
{
    int64_t ns = cm_timeline_signed(time, ticks);
    return ns < 0 ? 0 : (uint64_t)ns;
}

#endif
