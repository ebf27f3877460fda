/* The time that records bear, by CUPTI's clock and a client's own. */
#include <time.h>

#include "collect.h"
#include "doubles.h"

static uint64_t cycles_begin = 5000, cycles_rate = 3;
/* After so many readings this thread loses its core: until it is let go, or for a while. */
static __thread int reads_left;
static __thread void (*lose_core)(void);
static uint64_t cycles(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    if (reads_left > 0 && --reads_left == 0)
        lose_core();
    return cycles_begin + cycles_rate * ((uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec);
}

static void rest(long nanoseconds)
{
    nanosleep(&(struct timespec){0, nanoseconds}, NULL);
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

static void begin_cycles(void)
{
    client.size = 1 << 20;
    collect();
    EQUAL(cuptiActivityEnable(CM_CUPTI_CONCURRENT_KERNEL), OK);
    EQUAL(cuptiActivityRegisterTimestampCallback(cycles), OK);
    rest(5000000);
}

/* Whichever reading of the clock it is, a kernel is as long as ever. */
enum { MOST_READINGS = 12 };

static void lose_core_for_a_while(void)
{
    rest(20000000);
}

static void a_core_lost(void)
{
    lose_core = lose_core_for_a_while;
    begin_cycles();
    for (int i = 1; i <= MOST_READINGS; i++) {
        rest(100000);
        reads_left = i;
        call_launch(0, 0, "k");
        reads_left = 0;
    }
    flush();
    EQUAL(count_of(CM_CUPTI_CONCURRENT_KERNEL), MOST_READINGS);
    for (size_t i = 0; i < client.count; i++) {
        const cm_cupti_kernel *kernel = (const cm_cupti_kernel *)client.records[i];
        CHECK(kernel->end - kernel->start > 4400 && kernel->end - kernel->start < 4600);
    }
}

/* Others go on meanwhile, on the same stream. */
static atomic_bool lost, let_go;

static void lose_core_until_told(void)
{
    atomic_store(&lost, true);
    while (!atomic_load(&let_go))
        rest(10000);
}

static void *launch_and_lose(void *readings)
{
    lose_core = lose_core_until_told;
    reads_left = *(int *)readings;
    call_launch(0, 0, "k");
    atomic_store(&lost, true); /* where it reads the clock less often */
    return NULL;
}

static int by_start(const void *a, const void *b)
{
    const cm_cupti_kernel *first = *(const cm_cupti_kernel *const *)a;
    const cm_cupti_kernel *second = *(const cm_cupti_kernel *const *)b;

    return (first->start > second->start) - (first->start < second->start);
}

static void a_core_lost_among_threads(void)
{
    pthread_t thread;

    begin_cycles();
    for (int i = 1; i <= MOST_READINGS; i++) {
        atomic_store(&lost, false);
        atomic_store(&let_go, false);
        EQUAL(pthread_create(&thread, NULL, launch_and_lose, &i), 0);
        while (!atomic_load(&lost))
            rest(10000);
        rest(200000);
        for (int k = 0; k < 3; k++)
            call_launch(0, 0, "k");
        atomic_store(&let_go, true);
        pthread_join(thread, NULL);
    }
    flush();
    EQUAL(count_of(CM_CUPTI_CONCURRENT_KERNEL), 4 * MOST_READINGS);
    qsort(client.records, client.count, sizeof *client.records, by_start);
    for (size_t i = 0; i < client.count; i++) {
        const cm_cupti_kernel *kernel = (const cm_cupti_kernel *)client.records[i];
        CHECK(kernel->end >= kernel->start + 3 * 9); /* 10 ns, roughly */
        if (i > 0)
            CHECK(kernel->start >= ((const cm_cupti_kernel *)client.records[i - 1])->end);
    }
}

static const unit units[] = {
    {"time", time_of_day},
    {"core_lost", a_core_lost},
    {"core_lost_among_threads", a_core_lost_among_threads},
};
UNITS(units)
