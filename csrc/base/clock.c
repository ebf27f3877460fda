/* Chooses the clock: the counter if the kernel itself keeps time with it. */
#include "clock.h"

#include <fcntl.h>
#include <string.h>
#include <unistd.h>

int cm_clock_uses_counter;

#if defined(__x86_64__)
/* The kernel measures drift between cores and leaves the counter as soon as it finds any. No flag
 * of the processor can replace that test. */
static int kernel_trusts_counter(void)
{
    char name[32];
    int fd = open("/sys/devices/system/clocksource/clocksource0/current_clocksource",
                  O_RDONLY | O_CLOEXEC);

    if (fd < 0)
        return 0;
    ssize_t n = read(fd, name, sizeof name);
    close(fd);
    return n == 4 && memcmp(name, "tsc\n", 4) == 0; /* "tsc-early" is not yet measured */
}
#elif defined(__aarch64__)
static int kernel_trusts_counter(void)
{
    return 1; /* by architecture one generic timer serves the whole system */
}
#else
static int kernel_trusts_counter(void)
{
    return 0;
}
#endif

void cm_clock_init(void)
{
    cm_clock_uses_counter = kernel_trusts_counter();
}

cm_clock_anchor cm_clock_sample(void)
{
    cm_clock_anchor best = {0};
    uint64_t narrowest = UINT64_MAX;

    /* A preemption between the readings would skew them: the tightest of a few tries counts. */
    for (int i = 0; i < 3; i++) {
        struct timespec real;
        uint64_t before = cm_clock_now();
        uint64_t monotonic = cm_clock_monotonic_ns();
        uint64_t after = cm_clock_now();
        clock_gettime(CLOCK_REALTIME, &real);
        if (after - before >= narrowest)
            continue;
        narrowest = after - before;
        best.ticks = before + narrowest / 2;
        best.monotonic_ns = monotonic;
        best.realtime_ns = (uint64_t)real.tv_sec * 1000000000u + (uint64_t)real.tv_nsec;
    }
    return best;
}
