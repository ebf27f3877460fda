/* The file behind a mapping may be truncated, or its file system fail: a thread that touches it
 * then gets SIGBUS, which must not end the training.
 *
 * While memory is guarded a handler for SIGBUS stands before the program's. A fault in the guarded
 * memory puts private memory, all zero, in its place, so that the thread goes on; recording ends.
 * Any other SIGBUS is the program's: the handler puts back what was there before and returns, so
 * that the instruction faults again, or sends again what was sent.
 *
 * A program that ignores SIGBUS is left alone, because its children inherit that. A thread that
 * blocks SIGBUS cannot be helped. */
#ifndef CM_CAPTURE_BUS_ERROR_H
#define CM_CAPTURE_BUS_ERROR_H

#include <stdbool.h>
#include <stddef.h>

/* Guards this mapping of whole pages, one at a time, in place of the one before; NULL: none, and
 * nothing counts as replaced. is_harmed: whether the mapping's file is damaged; called in the
 * handler when a signal does not say where it comes from. */
void cm_bus_guard(void *memory, size_t bytes, bool (*is_harmed)(void));
/* Ends that, and puts back what was there before if we still stand before it. Nothing happens where
 * nothing is guarded. */
void cm_bus_unguard(void);

/* Puts private memory in place of the guarded one now. False: there is none. */
bool cm_bus_replace(void);
/* Whether that has happened, here or in the handler. Whoever has read zeros sees true. */
bool cm_bus_is_replaced(void);

/* Now and then, by one thread: stands before the program's handler again if it has installed one
 * since. */
void cm_bus_reinstall(void);

/* For a thread of ours, which blocks all signals: it must get faults of its own, while what is sent
 * to the process stays the program's. At its start, ... */
void cm_bus_enter_thread(void);
/* ... and now and then: what was sent may have arrived by now. */
void cm_bus_poll_in_thread(void);

/* In a forked child: nothing is guarded. */
void cm_bus_forget(void);

#endif
