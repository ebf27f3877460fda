/* Time: the host's as CUPTI tells it, and the simulated device's.
 *
 * Kernels do nothing and take no time, so durations are invented; order is not: on a stream work
 * follows work, and starts after its launch. The device is never more than LEAD behind its host,
 * because a program that waits for it does not really wait here, and a profiler cuts off what
 * ends after its own end. */
#include <pthread.h>
#include <time.h>

#include "cupti.h"

enum { SECOND = 1000000000, MILLISECOND = 1000000, LEAD = 20000 /* ns */ };
enum { LANES = 1024 };

typedef uint64_t (*clock_function)(void);

static _Atomic(clock_function) client_clock;
static atomic_uint_least64_t lanes[LANES]; /* until when streams are busy; some share one */

/* Where the client's clock stood when it was registered, and ours. */
static pthread_mutex_t calibrating = PTHREAD_MUTEX_INITIALIZER;
static uint64_t client_begin, own_begin;

static uint64_t clock_ns(clockid_t which)
{
    struct timespec now;

    clock_gettime(which, &now);
    return (uint64_t)now.tv_sec * SECOND + (uint64_t)now.tv_nsec;
}

uint64_t cm_sim_cupti_now(void)
{
    clock_function function = atomic_load_explicit(&client_clock, memory_order_acquire);
    uint64_t ticks;

    if (function)
        return function();
    return cm_sim_cupti_ticks(&ticks) ? ticks : clock_ns(CLOCK_REALTIME);
}

/* Nanoseconds in the units of the records. A client's clock may well count processor cycles
 * (Kineto's does): real CUPTI brings the device's time to it by two pairs of readings, too. */
static uint64_t in_units(uint64_t nanoseconds)
{
    clock_function function = atomic_load_explicit(&client_clock, memory_order_acquire);

    if (!function)
        return nanoseconds;
    uint64_t client = function(), own = clock_ns(CLOCK_MONOTONIC);
    pthread_mutex_lock(&calibrating);
    uint64_t client_passed = client - client_begin, own_passed = own - own_begin;
    pthread_mutex_unlock(&calibrating);
    if (own_passed < MILLISECOND || client <= client_begin)
        return nanoseconds;
    double rate = (double)client_passed / (double)own_passed;
    return (uint64_t)((double)nanoseconds * rate);
}

void cm_sim_cupti_occupy(int device, uint32_t stream, uint64_t nanoseconds, uint64_t *start,
                         uint64_t *end)
{
    atomic_uint_least64_t *lane = &lanes[((unsigned)device * 31 + stream) % LANES];
    uint64_t now = cm_sim_cupti_now();
    uint64_t latest = now + in_units(LEAD), length = in_units(nanoseconds);
    uint64_t far = latest + in_units(SECOND); /* the clock was set back, or is another one */
    uint64_t busy = atomic_load(lane);

    do {
        *start = busy > now && busy < far ? busy : now;
        *end = *start + (length ? length : 1);
        if (*end > latest)
            *end = latest;
        if (*end <= *start)
            *end = *start + 1;
    } while (!atomic_compare_exchange_weak(lane, &busy, *end));
}

void cm_sim_cupti_clock_reset(void)
{
    atomic_store(&client_clock, NULL);
    for (unsigned i = 0; i < LANES; i++)
        atomic_store(&lanes[i], 0);
}

CM_SIM_EXPORT int cuptiGetTimestamp(uint64_t *timestamp)
{
    if (!timestamp)
        return CM_CUPTI_INVALID_PARAMETER;
    *timestamp = cm_sim_cupti_now();
    return CM_CUPTI_OK;
}

CM_SIM_EXPORT int cuptiActivityRegisterTimestampCallback(clock_function function)
{
    CM_CUPTI_FIRST_INTERFACE;
    if (!function)
        return CM_CUPTI_INVALID_PARAMETER;
    cm_sim_cupti_touch();
    uint64_t client = function(), own = clock_ns(CLOCK_MONOTONIC);
    pthread_mutex_lock(&calibrating);
    client_begin = client;
    own_begin = own;
    pthread_mutex_unlock(&calibrating);
    atomic_store_explicit(&client_clock, function, memory_order_release);
    return CM_CUPTI_OK;
}
