#define _GNU_SOURCE
#include "helper_thread.h"

#include <errno.h>
#include <sched.h>
#include <signal.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#ifndef SYS_close_range
#define SYS_close_range 436
#endif
#ifndef CLOSE_RANGE_UNSHARE
#define CLOSE_RANGE_UNSHARE 2u
#endif

int cm_helper_start(pthread_t *thread, void *(*work)(void *), void *argument, size_t stack)
{
    pthread_attr_t attributes;
    sigset_t all, before;

    pthread_attr_init(&attributes);
    pthread_attr_setstacksize(&attributes, stack);
    /* A thread inherits the mask of its creator: signals meant for the program must interrupt the
     * program's own blocking calls, not ours. */
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int status = pthread_create(thread, &attributes, work, argument);
    if (status == EINVAL) /* the libraries' thread-local storage alone needs more */
        status = pthread_create(thread, NULL, work, argument);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    pthread_attr_destroy(&attributes);
    return -status;
}

int cm_helper_join(pthread_t thread, const int32_t *id)
{
    const struct timespec pause = {.tv_nsec = 50000};
    int status = pthread_join(thread, NULL);

    /* join returns a little before the kernel stops counting the thread, and Python's warning on
     * fork reads that count. */
    for (int tries = 0; tries < 2000; tries++) {
        if (syscall(SYS_tgkill, getpid(), *id, 0) < 0 && errno == ESRCH)
            break;
        nanosleep(&pause, NULL);
    }
    return -status;
}

/* Linux 5.9, or the right to unshare (which containers often lack). */
bool cm_helper_own_descriptors(void)
{
    return syscall(SYS_close_range, 0u, ~0u, CLOSE_RANGE_UNSHARE) == 0 || unshare(CLONE_FILES) == 0;
}
