/* Time: the host's as CUPTI reports it, and the simulated device's.
 *
 * Kernels do nothing and take no time, so durations are invented; order is not: on a stream work
 * follows work, and starts after its launch. The device is never more than LEAD behind its host,
 * because a program that waits for it does not really wait here, and a profiler cuts off what
 * ends after its own end. */
#include <pthread.h>
#include <time.h>

#include "cupti.h"

enum { SECOND = 1000000000, MILLISECOND = 1000000, LEAD = 20000 /* ns */ };
enum { SHORTEST = 10 /* ns: what a profiler rounds must not become nothing */ };
enum { STREAMS_KNOWN = 1024, READINGS = 8, CLOSE = 2000 /* ns */ };

typedef uint64_t (*clock_function)(void);

static _Atomic(clock_function) client_clock;
static atomic_uint_least64_t
    busy_until[STREAMS_KNOWN]; /* until when streams are busy; some share one */

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

/* Both clocks at the same moment. The thread may lose its core between two readings: of several
 * tries the closest counts. */
static void read_pair(clock_function function, uint64_t *client, uint64_t *own)
{
    uint64_t apart = UINT64_MAX;

    for (int i = 0; i < READINGS && apart > CLOSE; i++) {
        uint64_t before = clock_ns(CLOCK_MONOTONIC), read = function();
        uint64_t passed = clock_ns(CLOCK_MONOTONIC) - before;
        if (passed < apart) {
            apart = passed;
            *client = read;
            *own = before + passed / 2;
        }
    }
}

/* Nanoseconds in the units of the records. A client's clock may well count processor cycles
 * (Kineto's does): real CUPTI brings the device's time to it by two pairs of readings, too. */
static uint64_t in_units(uint64_t nanoseconds)
{
    clock_function function = atomic_load_explicit(&client_clock, memory_order_acquire);
    uint64_t client = 0, own = 0;

    if (!function)
        return nanoseconds;
    read_pair(function, &client, &own);
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
    atomic_uint_least64_t *stream_end =
        &busy_until[((unsigned)device * 31 + stream) % STREAMS_KNOWN];
    uint64_t lead = in_units(LEAD), second = in_units(SECOND), length = in_units(nanoseconds);
    uint64_t shortest = in_units(SHORTEST), busy;

    if (shortest == 0)
        shortest = 1;
    do {
        /* The time is read after the end: were it older, work of other threads that came
         * since would lie beyond the lead, and leave none of it. */
        busy = atomic_load(stream_end);
        uint64_t now = cm_sim_cupti_now(), latest = now + lead;
        uint64_t far = latest + second; /* the clock was set back, or is another one */
        *start = busy > now && busy < far ? busy : now;
        *end = *start + length;
        if (*end > latest)
            *end = latest;
        if (*end < *start + shortest)
            *end = *start + shortest;
    } while (!atomic_compare_exchange_weak(stream_end, &busy, *end));
}

void cm_sim_cupti_clock_reset(void)
{
    atomic_store(&client_clock, NULL);
    for (unsigned i = 0; i < STREAMS_KNOWN; i++)
        atomic_store(&busy_until[i], 0);
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
    uint64_t client = 0, own = 0;
    read_pair(function, &client, &own);
    pthread_mutex_lock(&calibrating);
    client_begin = client;
    own_begin = own;
    pthread_mutex_unlock(&calibrating);
    atomic_store_explicit(&client_clock, function, memory_order_release);
    return CM_CUPTI_OK;
}
