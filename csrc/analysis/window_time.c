#include "window_time.h"

/* Threads are merged, so a time may be a little before the window's mark. */
static void rebase(uint64_t *time_ns, uint64_t begin_ns)
{
    *time_ns = *time_ns > begin_ns ? *time_ns - begin_ns : 0;
}

static void rebase_device(cm_device_report *d, uint64_t begin_ns)
{
    rebase(&d->peak_time_ns, begin_ns);
    rebase(&d->above_time_ns, begin_ns);
    for (size_t i = 0; i < d->timeline_count; i++)
        rebase(&d->timeline[i].time_ns, begin_ns);
    for (size_t i = 0; i < d->oom_count; i++) {
        rebase(&d->ooms[i].time_ns, begin_ns);
        rebase(&d->ooms[i].memory.time_ns, begin_ns);
    }
}

static void rebase_driver_level(cm_analysis *out, uint64_t begin_ns)
{
    for (size_t i = 0; i < out->ledger_count; i++)
        rebase(&out->ledgers[i].time_ns, begin_ns);
    for (size_t i = 0; i < out->curve_count; i++)
        for (size_t j = 0; j < out->curves[i].count; j++)
            rebase(&out->curves[i].point[j].time_ns, begin_ns);
    for (size_t i = 0; i < out->fragmentation_count; i++)
        rebase(&out->fragmentation[i].time_ns, begin_ns);
}

void cm_window_time_rebase(cm_analysis *out)
{
    uint64_t begin_ns = out->begin_ns;

    out->start_realtime_ns += begin_ns;
    for (size_t i = 0; i < out->device_count; i++)
        rebase_device(&out->device[i], begin_ns);
    for (size_t i = 0; i < out->step_count; i++) {
        rebase(&out->step[i].begin_ns, begin_ns);
        rebase(&out->step[i].end_ns, begin_ns);
        rebase(&out->step[i].peak_ns, begin_ns);
    }
    for (size_t i = 0; i < out->rss_count; i++)
        rebase(&out->rss[i].time_ns, begin_ns);
    for (size_t i = 0; i < out->rest_count; i++)
        rebase(&out->rest[i].time_ns, begin_ns);
    rebase_driver_level(out, begin_ns);
}
