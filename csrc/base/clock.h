/* Time stamps cheap enough for every event: the invariant time stamp counter where the kernel
 * itself trusts it, else CLOCK_MONOTONIC in nanoseconds. Ticks become nanoseconds only in the
 * reader, through the anchor pairs that every batch of the trace carries. */
#ifndef CM_BASE_CLOCK_H
#define CM_BASE_CLOCK_H

#include <stdint.h>
#include <time.h>
#if defined(__x86_64__)
#include <x86intrin.h>
#endif

extern int cm_clock_uses_counter; /* set once by cm_clock_init, before any hook exists */

static inline uint64_t cm_clock_monotonic_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static inline uint64_t cm_clock_now(void)
{
#if defined(__x86_64__)
    if (__builtin_expect(cm_clock_uses_counter, 1))
        return __rdtsc();
#elif defined(__aarch64__)
    if (__builtin_expect(cm_clock_uses_counter, 1)) {
        uint64_t ticks;
        __asm__ volatile("mrs %0, cntvct_el0" : "=r"(ticks));
        return ticks;
    }
#endif
    return cm_clock_monotonic_ns();
}

/* For frees: later than the allocation that another thread handed over. The counter alone may be
 * read before the address is loaded, and the free would overtake its allocation. Waiting for the
 * loads costs some 6 ns. An allocation's own time is in its event before any other thread can know
 * its address. */
static inline uint64_t cm_clock_after_loads(void)
{
#if defined(__x86_64__)
    _mm_lfence();
#elif defined(__aarch64__)
    __asm__ volatile("isb" ::: "memory");
#endif
    return cm_clock_now();
}

/* Decides which clock is used. Any thread, idempotent. */
void cm_clock_init(void);

/* A (ticks, monotonic ns, realtime ns) triple taken together: the reader's anchor. */
typedef struct cm_clock_anchor {
    uint64_t ticks, monotonic_ns, realtime_ns;
} cm_clock_anchor;
cm_clock_anchor cm_clock_sample(void);

#endif
