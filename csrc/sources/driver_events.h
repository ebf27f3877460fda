/* Events of the driver level as both of its sources put them on a ring: CUPTI's callbacks
 * (cupti_driver.c) and relocation slots (cuda_slots.c). Everything here is a hook. */
#ifndef CM_SOURCES_DRIVER_EVENTS_H
#define CM_SOURCES_DRIVER_EVENTS_H

#include <stdbool.h>
#include <stdint.h>

#include "../capture/ring_producer.h"

/* What CUDA gave out, or takes back. */
typedef struct cm_driver_piece {
    uint8_t kind;  /* cm_driver_kind */
    uint8_t flags; /* CM_EVF_BY_SLOT */
    uint8_t device_type;
    int8_t device_index;
    uint64_t address;
    int64_t size;
    uint64_t time; /* 0: now */
    /* What more is told of it: 0 is not told, except of correlation and handle. */
    bool has_correlation, has_handle;
    uint32_t correlation, library;
    uint64_t stream, handle;
} cm_driver_piece;

/* DRIVER_NEW with this thread's stack, and what more there is. */
void cm_driver_new_hook(cm_thread *t, const cm_driver_piece *piece);
/* DRIVER_FREE. */
void cm_driver_free_hook(cm_thread *t, const cm_driver_piece *piece);
/* The free that is this thread's last event of the driver level did not happen. */
void cm_driver_failed_hook(cm_thread *t, int error);

/* Who tells of the call that this thread is in. Where CUPTI and slots both see it, the outer one
 * does: the slot. */
typedef struct cm_driver_thread {
    uint32_t told;   /* calls of the driver that came to an end on this thread; wraps */
    uint32_t events; /* DRIVER_NEW and DRIVER_FREE of this thread; wraps */
    uint8_t in_slot; /* depth of hooked calls, while slots record */
    uintptr_t site;  /* who made the call that a hook of ours is passing on, 0: none. CUPTI takes
                        the hook for the caller */
} cm_driver_thread;
/* Initial-exec: any other model may call malloc at a thread's first access. */
extern __thread cm_driver_thread cm_driver_tls __attribute__((tls_model("initial-exec")));

#endif
