/* Threads of ours in the program's process: they take none of its signals, and are joined until the
 * kernel no longer counts them. */
#ifndef CM_BASE_HELPER_THREAD_H
#define CM_BASE_HELPER_THREAD_H

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* All signals are blocked in it. 0 or a negative errno. */
int cm_helper_start(pthread_t *thread, void *(*work)(void *), void *argument, size_t stack);
/* *id: its kernel thread id, which it has written itself. */
int cm_helper_join(pthread_t thread, const int32_t *id);
/* Gives the calling thread a descriptor table of its own: it takes no number from the program, and
 * its close drops no file lock. false: the system refuses. */
bool cm_helper_own_descriptors(void);

#endif
