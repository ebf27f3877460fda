/* The word that every hook reads first: whether this process records. */
#ifndef CM_CAPTURE_RECORDING_H
#define CM_CAPTURE_RECORDING_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

/* The number of the running capture, 0 while none records. It lies on a page of its own that the
 * kernel wipes in a forked child. Never NULL: before the first capture it points at a zero. */
extern const _Atomic uint32_t *cm_recording;

static inline bool cm_is_recording(void)
{
    return atomic_load_explicit(cm_recording, memory_order_relaxed) != 0;
}

/* Replaces the capture's number while the rings move: hooks wait until it is gone. */
#define CM_RECORDING_HELD UINT32_MAX

/* Once per process; 0 or a negative errno. */
int cm_recording_init(void);
/* 0 = off, also in signal handlers. Hooks may still be running when this returns. */
void cm_recording_set(uint32_t capture);
/* Sets CM_RECORDING_HELD if recording is on, and keeps others from turning it on; release restores
 * the number. Both on one thread. */
void cm_recording_hold(void);
void cm_recording_release(void);
/* In a forked child. */
void cm_recording_forget(void);

#endif
