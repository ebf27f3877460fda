/* What a hook sees of the capture: this thread's recording state and its ring.
 *
 * Use, always in this order:
 *
 *     cm_thread *t = cm_enter_hook();        // NULL: not recording, or already inside a hook
 *     if (t) {
 *         cm_event *e = cm_reserve_hook(t);  // NULL: no room, counted as lost
 *         if (e) { ...fill every field...; cm_commit_hook(t); }
 *         cm_leave_hook(t);
 *     }
 *
 * Every function here runs on the calling thread inside a hook: the GIL and the allocator's mutex
 * may or may not be held, so nothing here takes a lock, calls malloc, or waits for the collector. */
#ifndef CM_CAPTURE_THREAD_H
#define CM_CAPTURE_THREAD_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "../frames/walk.h"
#include "event.h"

typedef struct cm_thread cm_thread;

/* Lies on a page of its own that the kernel wipes in a forked child: the number of the running
 * capture, 0 while none records. Never NULL: before the first capture it points at a zero. */
extern const _Atomic uint32_t *cm_recording;

static inline bool cm_is_recording(void)
{
    return atomic_load_explicit(cm_recording, memory_order_relaxed) != 0;
}

cm_thread *cm_enter_hook(void);
cm_event *cm_reserve_hook(cm_thread *t);
void cm_commit_hook(cm_thread *t);
void cm_leave_hook(cm_thread *t);

/* This thread's walk memory for cm_walk_capture_hook. */
cm_walk *cm_thread_walk(cm_thread *t);

/* A number that changes whenever this thread state starts to serve another capture or another
 * thread: what a source remembers per thread is stale when it differs. Never 0. */
uint32_t cm_thread_generation(const cm_thread *t);

#endif
