/* How a thread inside a hook wakes the collector. */
#ifndef CM_CAPTURE_WAKE_H
#define CM_CAPTURE_WAKE_H

#include <stdbool.h>

/* Wakes the collector unless it is awake already. Any thread, inside a hook too. */
void cm_wake_collector_hook(void);

/* For the collector: waits until it is woken, at most so long. */
void cm_wake_wait(int milliseconds);
/* Whether it was woken since the last reset. */
bool cm_wake_is_pending(void);
/* Before a round of work: what is published from here on wakes it again. */
void cm_wake_reset(void);

#endif
