/* Emitting driver events, for CUPTI's callbacks (cupti/callbacks.c) and relocation slots
 * (cuda_slots.c). Everything here is a hook. */
#ifndef CM_SOURCES_DRIVER_EVENTS_H
#define CM_SOURCES_DRIVER_EVENTS_H

#include <stdbool.h>
#include <stdint.h>

#include "../capture/ring_producer.h"

/* What CUDA allocated, or is about to free. */
typedef struct cm_driver_piece {
    uint8_t kind;  /* cm_driver_kind */
    uint8_t flags; /* CM_EVF_BY_SLOT */
    uint8_t device_type;
    int8_t device_index;
    uint64_t address;
    int64_t size;
    uint64_t time; /* 0: now */
    /* Optional; 0 means unknown, except for correlation and handle. */
    bool has_correlation, has_handle;
    uint32_t correlation, library;
    uint64_t stream, handle;
} cm_driver_piece;

/* Emits DRIVER_NEW with this thread's stack, and its DRIVER_MORE events. */
void cm_driver_new_hook(cm_producer *t, const cm_driver_piece *piece);
/* Emits DRIVER_FREE, likewise. */
void cm_driver_free_hook(cm_producer *t, const cm_driver_piece *piece);
/* Emits that the free which is this thread's last driver event failed. */
void cm_driver_failed_hook(cm_producer *t, int error);

/* Which source records the call that this thread is in. If CUPTI and a slot both see it, the slot,
 * which is the outer one, does. */
typedef struct cm_driver_thread {
    uint32_t finished; /* driver calls that ended on this thread; wraps */
    uint32_t events;   /* DRIVER_NEW and DRIVER_FREE of this thread; wraps */
    uint8_t in_slot;   /* depth of hooked calls, while slots record */
    uintptr_t site;    /* return address of the call that a hook is forwarding, 0: none. CUPTI would
                          take the hook for the caller */
} cm_driver_thread;
/* Initial-exec: any other model may call malloc at a thread's first access. */
extern __thread cm_driver_thread cm_driver_tls __attribute__((tls_model("initial-exec")));

#endif
