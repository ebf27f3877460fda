/* Installing the sources of events. Each hooks relocation slots of PyTorch's libraries (slots.h)
 * and emits events on the calling thread's ring (../capture/ring_producer.h). */
#ifndef CM_SOURCES_SOURCES_H
#define CM_SOURCES_SOURCES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Reads the environment variables used here. The GIL must be held: they cannot change then. */
void cm_sources_read_environment(void);

/* To be called before recording outside of slots (the driver level). false: the capture's ring
 * cannot be made now, so nothing may be recorded; try again later. Not in a hook, without the GIL.
 */
bool cm_sources_may_record(void);

/* Patches every slot found now. Returns the number of slots newly patched. Any thread, no GIL
 * needed. Safe while other threads allocate. */
int cm_sources_install(void);

/* Restores every slot that still holds a hook. Any thread. Hooks and the functions they forward to
 * stay valid, so a thread inside a hook simply finishes. */
void cm_sources_remove(void);

/* Patches libraries loaded since the last call; costs nanoseconds if there are none. The
 * collector's idle callback. */
void cm_sources_rescan(void);

/* One row per (symbol, library): for `cuptimem doctor` and the trace's environment. */
typedef struct cm_slot_row {
    const char *source;  /* "allocator", "autograd" */
    const char *symbol;  /* mangled */
    const char *meaning; /* short: "CPU allocation" */
    char library[64];
    int patched; /* slots that hold a hook now */
} cm_slot_row;
size_t cm_sources_rows(cm_slot_row *rows, size_t capacity);

/* Sets the offsets inside torch::autograd::Node that calibration found. -1: unknown, and node runs
 * and frees are not recorded. */
void cm_autograd_set_offsets(long sequence_nr, long thread_id);
/* The current offsets; -1, -1: unknown. */
void cm_autograd_get_offsets(long *sequence_nr, long *thread_id);
/* While set, this thread's nodes are calibration's: they are counted, not recorded. Recording need
 * not be on. */
void cm_autograd_own_nodes(bool own);
/* How many creations and ends the hooks have counted since it was set. */
void cm_autograd_own_counts(uint32_t *made, uint32_t *ended);
/* Sets a function to be called after each recorded backward pass, on its thread, usually without
 * the GIL; or NULL. */
void cm_autograd_set_pass_listener(void (*listener)(void));
/* Sets a function to be called once, inside an allocation that brings a device's tensors to so many
 * bytes or more: it may only note that. */
void cm_allocator_set_listener(void (*listener)(void), size_t bytes);
/* Whether this thread is running a recorded node. */
bool cm_autograd_in_node(void);

/* Whether autograd records on this thread: not under no_grad. true where that is unknown. */
bool cm_autograd_records(void);
/* NULL, or the mangled type of a control block that could not be redirected (dispose.h). */
const char *cm_autograd_unseen_type(void);

/* The state of PyTorch's CUDA allocator. */
typedef struct cm_sources_cuda {
    const char *type;       /* mangled; NULL: PyTorch has none */
    bool sizes_seen;        /* requested sizes are recorded */
    unsigned long unseen;   /* blocks that it returned without a report, since install */
    unsigned long untraced; /* memory that it took from CUDA without a report, since install */
} cm_sources_cuda;
cm_sources_cuda cm_sources_get_cuda(void);

#endif
