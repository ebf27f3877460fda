/* The time that records bear, by CUPTI's clock and a client's own. */
#include <time.h>

#include "collect.h"
#include "doubles.h"

static uint64_t cycles_begin = 5000, cycles_rate = 3;
static uint64_t cycles(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return cycles_begin + cycles_rate * ((uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec);
}

/* Kernels follow each other on their stream, begin after their launch and soon after it. */
static void check_order(uint64_t lead)
{
    uint64_t end[9] = {0};
    size_t api = 0;

    for (size_t i = 0; i < client.count; i++) {
        if (kind_of(i) != CM_CUPTI_CONCURRENT_KERNEL)
            continue;
        const cm_cupti_kernel *kernel = (const cm_cupti_kernel *)client.records[i];
        const cm_cupti_api *call = record_of(CM_CUPTI_RUNTIME, api++);
        EQUAL(kernel->correlationId, call->correlationId);
        unsigned stream = kernel->streamId == 7 ? 0 : kernel->streamId - 12;
        CHECK(kernel->start >= call->start);
        CHECK(kernel->start < kernel->end);
        CHECK(kernel->start >= end[stream]);
        CHECK(kernel->end <= call->end + lead);
        end[stream] = kernel->end;
    }
}

static void time_of_day(void)
{
    uint64_t now;
    struct timespec before;

    clock_gettime(CLOCK_REALTIME, &before);
    EQUAL(cuptiGetTimestamp(NULL), INVALID_PARAMETER);
    EQUAL(cuptiGetTimestamp(&now), OK);
    CHECK(now >= (uint64_t)before.tv_sec * 1000000000 + (uint64_t)before.tv_nsec);
    client.size = 1 << 20;
    collect();
    EQUAL(cuptiActivityEnable(CM_CUPTI_CONCURRENT_KERNEL), OK);
    EQUAL(cuptiActivityEnable(CM_CUPTI_RUNTIME), OK);
    for (int i = 0; i < 400; i++)
        call_launch(0, i % 3, "k");
    flush();
    EQUAL(count_of(CM_CUPTI_CONCURRENT_KERNEL), 400);
    check_order(60000);

    /* A client's clock that counts something else: durations are in its units. */
    forget();
    EQUAL(cuptiActivityRegisterTimestampCallback(NULL), INVALID_PARAMETER);
    EQUAL(cuptiActivityRegisterTimestampCallback(cycles), OK);
    nanosleep(&(struct timespec){0, 30000000}, NULL);
    EQUAL(cuptiGetTimestamp(&now), OK);
    CHECK(now <= cycles());
    call_launch(0, 0, "k");
    for (int i = 0; i < 100; i++)
        call_launch(0, i % 3, "k");
    flush();
    check_order(3 * 60000);
    const cm_cupti_kernel *kernel = record_of(CM_CUPTI_CONCURRENT_KERNEL, 0);
    CHECK(kernel->end - kernel->start > 4400 && kernel->end - kernel->start < 4600); /* 1.5 us */

    /* It is set back: the device goes on from there. */
    forget();
    cycles_begin -= 4000;
    cycles_begin += UINT64_C(1) << 40;
    call_launch(0, 0, "k");
    cycles_begin -= UINT64_C(1) << 40;
    call_launch(0, 0, "k");
    flush();
    const cm_cupti_kernel *far = record_of(CM_CUPTI_CONCURRENT_KERNEL, 0);
    kernel = record_of(CM_CUPTI_CONCURRENT_KERNEL, 1);
    CHECK(far->start > kernel->end);
    CHECK(kernel->end < cycles() + 3 * 60000);
}

static const unit units[] = {
    {"time", time_of_day},
};
UNITS(units)
