/* Tells callgrind from where to where it counts: what is outside runs some times faster. */
#include <valgrind/callgrind.h>

void start(void)
{
    CALLGRIND_START_INSTRUMENTATION;
}

void stop(void)
{
    CALLGRIND_STOP_INSTRUMENTATION;
}
