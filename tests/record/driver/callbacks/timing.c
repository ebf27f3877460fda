/* What a callback costs, in nanoseconds. */
#include <time.h>

#include "cases.h"
#include "events.h"

static double per_call(void (*call)(void *), int rounds)
{
    struct timespec a, b;
    double best = 1e9;

    for (int batch = 0; batch < 20; batch++) {
        clock_gettime(CLOCK_MONOTONIC, &a);
        for (int i = 0; i < rounds; i++)
            call(NULL);
        clock_gettime(CLOCK_MONOTONIC, &b);
        double ns =
            ((double)(b.tv_sec - a.tv_sec) * 1e9 + (double)(b.tv_nsec - a.tv_nsec)) / rounds;
        best = ns < best ? ns : best;
    }
    return best;
}

static void one_pair(void *unused)
{
    static uint64_t out = 0x7000;
    static const cm_call_take take = {&out, 64};
    static const cm_call_give give = {0x7000};

    (void)unused;
    whole(D, 243, &take, 0);
    whole(D, 245, &give, 0);
}

static void one_nested(void *unused)
{
    static uint64_t out = 0x7000;
    static const cm_call_take take = {&out, 64};
    uint32_t call = ++correlation;

    (void)unused;
    tell(R, 20, CM_SITE_ENTER, &take, 0, call);
    tell(D, 243, CM_SITE_ENTER, &take, 0, call);
    tell(D, 243, CM_SITE_EXIT, &take, 0, call);
    tell(R, 20, CM_SITE_EXIT, &take, 0, call);
}

static void *timed_caller;

static void from_library(void *unused)
{
    (void)unused;
    called_from(timed_caller, one_create);
}

static void uncached(void *unused)
{
    cm_self.thread->generation++; /* what was remembered is stale */
    from_library(unused);
}

static void one_launch(void *unused)
{
    static void *const launch[] = {[5] = (void *)0x9}; /* the stream */

    (void)unused;
    whole(D, 307, launch, 0);
}

void timing(void)
{
    timed_caller = load("liba.so");
    cm_libraries_refresh();
    cm_cupti_driver_expect_records(true);
    double_reuse(true);
    printf("allocation and free, both callbacks of each: %.0f ns\n", per_call(one_pair, 20000));
    printf("allocation, runtime around driver: %.0f ns\n", per_call(one_nested, 20000));
    printf("physical memory, caller remembered: %.0f ns\n", per_call(from_library, 20000));
    printf("physical memory, caller unwound: %.0f ns\n", per_call(uncached, 2000));
    cm_cupti_driver_disable(&link_);
    cm_cupti_driver_enable(&link_, true);
    printf("launch: %.0f ns\n", per_call(one_launch, 20000));
    double_record(false);
    printf("allocation and free, not recording: %.0f ns\n", per_call(one_pair, 20000));
}
