/* A thread gets SIGBUS when a mapped file is truncated or its file system fails, which must not end
 * the training.
 *
 * While memory is guarded, our SIGBUS handler precedes the program's. A fault there replaces the
 * memory with private zeros: the thread goes on, and recording ends. Any other SIGBUS is the
 * program's: the handler restores the program's disposition and returns, so that the instruction
 * faults again, or sends the signal again.
 *
 * A program that ignores SIGBUS is left alone, because its children inherit that. A thread that
 * blocks SIGBUS cannot be helped. */
#ifndef CM_CAPTURE_BUS_ERROR_H
#define CM_CAPTURE_BUS_ERROR_H

#include <stdbool.h>
#include <stddef.h>

/* Guards this mapping of whole pages instead of the last one; NULL: none, and nothing counts as
 * replaced. is_harmed: whether the mapping's file is damaged; the handler calls it for a signal
 * without an address. */
void cm_bus_guard(void *memory, size_t bytes, bool (*is_harmed)(void));
/* Ends that, and restores the program's disposition if ours is installed. Does nothing if nothing
 * is guarded. */
void cm_bus_unguard(void);

/* Puts private memory in place of the guarded one now. False: there is none. */
bool cm_bus_replace(void);
/* Whether that has happened, here or in the handler. True for every thread that has read zeros. */
bool cm_bus_is_replaced(void);

/* Precedes the program's handler again if it has installed one since. One thread calls it now and
 * then. */
void cm_bus_reinstall(void);

/* For a thread of ours, which blocks all signals: it must get its own faults, but signals sent to
 * the process stay the program's. At its start, ... */
void cm_bus_enter_thread(void);
/* ... and now and then: the program may have got the signal by now. */
void cm_bus_poll_in_thread(void);

/* In a forked child: nothing is guarded. */
void cm_bus_forget(void);

#endif
