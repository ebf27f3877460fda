#include "timeline.h"

#define NS_PER_SECOND INT64_C(1000000000)
/* The rate between nearer anchors would be mostly noise. */
#define SHORTEST_LINE_NS (NS_PER_SECOND / 1000)
#define LONGEST_LEAD_NS (NS_PER_SECOND * 3600)

/* Estimates the rate from one anchor. If the counter counts nanoseconds, its two numbers are equal;
 * otherwise both counter and monotonic clock count from boot. */
static double guess(const cm_clock_anchor *anchor)
{
    uint64_t apart = anchor->ticks - anchor->monotonic_ns;
    if (apart + NS_PER_SECOND < 2 * (uint64_t)NS_PER_SECOND || anchor->ticks == 0)
        return 1;
    double ratio = (double)anchor->monotonic_ns / (double)anchor->ticks;
    return ratio > 0.1 && ratio < 100 ? ratio : 1;
}

static bool line(cm_timeline *time, const cm_clock_anchor *from, const cm_clock_anchor *to)
{
    if (to->ticks <= from->ticks || to->monotonic_ns < from->monotonic_ns + SHORTEST_LINE_NS)
        return false;
    time->ns_per_tick =
        (double)(to->monotonic_ns - from->monotonic_ns) / (double)(to->ticks - from->ticks);
    time->measured = true;
    return true;
}

void cm_timeline_anchor(cm_timeline *time, cm_clock_anchor anchor)
{
    if (!time->started) {
        *time = (cm_timeline){.first = anchor, .base = anchor, .now = anchor, .started = true};
        time->ns_per_tick = guess(&anchor);
        return;
    }
    if (line(time, &time->base, &anchor))
        time->base = anchor;
    time->now = anchor;
}

bool cm_timeline_preview(cm_timeline *time, cm_clock_anchor later)
{
    return line(time, &time->first, &later);
}

void cm_timeline_reach_back(cm_timeline *time, uint64_t ticks)
{
    int64_t before = -cm_timeline_signed(time, ticks);
    if (before > 0 && time->lead_ns + before <= LONGEST_LEAD_NS)
        time->lead_ns += before;
}

uint64_t cm_timeline_realtime_at_zero(const cm_timeline *time)
{
    return time->first.realtime_ns - (uint64_t)time->lead_ns;
}
