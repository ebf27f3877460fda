/* Where events come from. Each source patches relocation slots of PyTorch's libraries (slots.h) and
 * puts what it sees on the calling thread's ring (../capture/ring_producer.h). */
#ifndef CM_SOURCES_SOURCES_H
#define CM_SOURCES_SOURCES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Reads what of the environment matters here. GIL held: nobody changes it then. */
void cm_sources_read_environment(void);

/* Whoever is about to record outside of slots (the driver level) asks first. False: the capture's
 * ring cannot be made just now, so nothing must be recorded; another try is of use. Any thread but
 * one inside a hook, without the GIL. */
bool cm_sources_may_record(void);

/* Patches every slot that is there now. Returns the number of slots newly patched. Any thread; no
 * GIL needed. Safe while other threads allocate. */
int cm_sources_install(void);

/* Restores every slot that still holds ours. Any thread. Code and originals stay valid for ever:
 * a thread inside a hook simply finishes. */
void cm_sources_remove(void);

/* Patches libraries that were loaded since the last call; costs nanoseconds when there are none.
 * The collector's idle callback. */
void cm_sources_rescan(void);

/* One row per (symbol, library): for `cuptimem doctor` and the trace's environment. */
typedef struct cm_slot_row {
    const char *source;  /* "allocator", "autograd" */
    const char *symbol;  /* mangled */
    const char *meaning; /* short: "CPU allocation" */
    char library[64];
    int patched; /* slots that hold our hook now */
} cm_slot_row;
size_t cm_sources_rows(cm_slot_row *rows, size_t capacity);

/* Offsets inside torch::autograd::Node, found by calibration (py_sources.c). -1: unknown, node runs
 * and node frees are then not recorded. */
void cm_autograd_set_offsets(long sequence_nr, long thread_id);
/* As they are set now; -1, -1: unknown. */
void cm_autograd_get_offsets(long *sequence_nr, long *thread_id);
/* While set, nodes that this thread makes and destroys are not recorded but counted: they are
 * calibration's. Recording need not be on. */
void cm_autograd_own_nodes(bool own);
/* Since it was set last: hooks seen by this thread for creations and ends. */
void cm_autograd_own_counts(uint32_t *made, uint32_t *ended);
/* Called after each backward pass that ticks, in its thread, as a rule without the GIL. NULL: not.
 */
void cm_autograd_set_pass_listener(void (*listener)(void));
/* Whether this thread runs a node, as far as that is recorded. */
bool cm_autograd_in_node(void);
/* NULL, or the mangled type of a shared pointer's control block whose nodes' ends are not seen
 * although all slots hold hooks (dispose.h). */
const char *cm_autograd_unseen_type(void);

/* PyTorch's CUDA allocator as it is now. */
typedef struct cm_sources_cuda {
    const char *type;       /* mangled; NULL: PyTorch has none */
    bool sizes_seen;        /* what is asked for is seen */
    unsigned long unseen;   /* blocks that it gave out without a report, ... */
    unsigned long untraced; /* memory that it took from CUDA without one; both since install */
} cm_sources_cuda;
cm_sources_cuda cm_sources_get_cuda(void);

#endif
