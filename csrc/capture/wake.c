#include "wake.h"

#include <errno.h>
#include <linux/futex.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

static _Atomic uint32_t pending; /* futex: 1 = there is something to do */

void cm_wake_collector_hook(void)
{
    if (atomic_load_explicit(&pending, memory_order_relaxed) == 0 &&
        atomic_exchange_explicit(&pending, 1, memory_order_release) == 0) {
        int saved = errno;
        syscall(SYS_futex, &pending, FUTEX_WAKE_PRIVATE, 1, NULL, NULL, 0);
        errno = saved;
    }
}

void cm_wake_wait(int milliseconds)
{
    struct timespec wait = {.tv_nsec = milliseconds * 1000000L};
    syscall(SYS_futex, &pending, FUTEX_WAIT_PRIVATE, 0, &wait, NULL, 0);
}

bool cm_wake_is_pending(void)
{
    return atomic_load(&pending) != 0;
}

void cm_wake_reset(void)
{
    atomic_store(&pending, 0);
}
