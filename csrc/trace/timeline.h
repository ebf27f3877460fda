/* Ticks of a batch to nanoseconds since the trace's start, through the anchors of its batches:
 * straight lines between successive anchors, the nearest line outside them. Anchors are what the
 * file says: any numbers are survived, and times are clamped at 0. */
#ifndef CM_TRACE_TIMELINE_H
#define CM_TRACE_TIMELINE_H

#include <stdbool.h>
#include <stdint.h>

#include "../base/clock.h"

typedef struct cm_timeline {
    cm_clock_anchor first, base, now; /* base: where the present line begins */
    double ns_per_tick;
    int64_t lead_ns; /* from time 0 to the first anchor */
    bool started, measured;
} cm_timeline;

/* The anchor of the batch that begins. */
void cm_timeline_anchor(cm_timeline *time, cm_clock_anchor anchor);
/* A later anchor, while only the first is known: how long a tick is. False when it is too near. */
bool cm_timeline_preview(cm_timeline *time, cm_clock_anchor later);
/* An event from before the first anchor: time 0 moves back to it, an hour at most. */
void cm_timeline_reach_back(cm_timeline *time, uint64_t ticks);
/* Wall clock (CLOCK_REALTIME, ns) at time 0; 0 before there is an anchor. */
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
