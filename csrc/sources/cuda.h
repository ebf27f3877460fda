/* What PyTorch's CUDA allocator does not report itself (allocator.c): requested sizes, and the
 * memory that it takes from CUDA.
 *
 * cuda_allocator.c wraps the allocator's virtual `allocate`, outside of its mutex. It sees the size
 * requested, the device, and whether a block was reported meanwhile. cuda_runtime.c hooks the calls
 * from libc10_cuda to the CUDA runtime. Together they recognize:
 *
 * - The native back end: cudaMalloc and a report in the same call is a segment, on its first
 *   block's device. cudaFree ends a segment.
 * - No caching: cudaMalloc, and `allocate` returns without a report, is a block. Whether a cudaFree
 *   ends a block or a segment is left to the reader, which knows all blocks.
 * - cudaMallocAsync: every call is a block, on the thread's current device. This back end gets or
 *   sets that before each call, so those calls are hooked only while it is in use. Frees have no
 *   device, for an address is on one device only.
 * - Expandable segments: the driver maps them; they are in reserved totals only.
 * - Any other: unreported blocks are counted. */
#ifndef CM_SOURCES_CUDA_H
#define CM_SOURCES_CUDA_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "../capture/ring_producer.h"

/* The place of `allocate` in the vtable of c10::Allocator, after two destructors (Itanium C++ ABI).
 */
enum { CM_VTABLE_ALLOCATE = 2 };

/* c10::DataPtr. On x86-64 and aarch64, C returns a structure of this size as C++ returns one that
 * is not trivial: in memory of the caller's. */
typedef struct cm_data_ptr {
    void *data;
    void *context[2]; /* with its deleter, in the C++ library's order */
    int8_t device_type, device_index;
} cm_data_ptr;
_Static_assert(sizeof(cm_data_ptr) == 32, "c10::DataPtr");

typedef cm_data_ptr (*cm_allocate_fn)(void *self, size_t size);

/* How many streams are recorded that one block waits for. */
enum { CM_CUDA_WAITS = 8 };

/* A running function, and its stack pointer at the call. */
typedef struct cm_cuda_frame {
    uintptr_t function, stack;
} cm_cuda_frame;

typedef struct cm_cuda_wait {
    uint64_t stream;
    cm_cuda_frame by[2]; /* the function that recorded the event, and its caller */
} cm_cuda_wait;

/* The allocator call that this thread is in. */
typedef struct cm_cuda_call {
    size_t requested; /* of the running `allocate`, until its block is reported; 0: none */
    uint64_t taken;   /* memory of cudaMalloc that no report has explained yet; 0: none */
    size_t taken_size;
    uintptr_t site;   /* return address of that cudaMalloc */
    size_t refused;   /* by cudaMalloc in the running `allocate`, not yet emitted; 0: nothing */
    bool inside;      /* an `allocate` is running */
    int8_t device;    /* last one that this thread was seen using */
    bool device_seen; /* a hook saw it being set or returned */
    uint8_t waits;    /* events recorded by libc10_cuda since its last report */
    cm_cuda_wait wait[CM_CUDA_WAITS];
} cm_cuda_call;

/* Initial-exec: any other model may call malloc at a thread's first access. */
extern __thread cm_cuda_call cm_cuda_tls __attribute__((tls_model("initial-exec")));

/* The allocator reports a block: memory taken for it is its segment. t: NULL while recording is
 * off. */
void cm_cuda_segment_hook(cm_producer *t, const void *block, int8_t device);
/* Emits the requested size, after the block's ALLOC. */
void cm_cuda_requested_hook(cm_producer *t, const void *block, int8_t device);

/* `allocate` returned a block that was not reported. */
void cm_cuda_unreported_hook(const void *block, size_t size, int8_t device);
/* Whether such a block was ever a cudaMalloc of its own: from then on devices are watched. */
bool cm_cuda_met_direct(void);
/* `allocate` failed without a report. */
void cm_cuda_refused_hook(void);

/* --- deferred_free.c: blocks whose free waits for a stream -------------------------------------
 */

/* Switches the recording of these waits. Off, it costs a load at each CUDA event. */
void cm_cuda_watch_deferred(bool on);
bool cm_cuda_watches_deferred(void);
/* libc10_cuda records an event on a stream, by a call at `site`. */
void cm_cuda_event_hook(const void *stream, uintptr_t site);
/* The allocator reports a free, by a call at `site`: emits HELD for each stream it waits for. */
void cm_cuda_deferred_free_hook(cm_producer *t, int8_t device, uintptr_t site);

/* Reads whether caching is off. The GIL must be held: the environment cannot change then. */
void cm_cuda_read_environment(void);

/* Finds the allocator, after slots were found, and redirects its `allocate`. Returns how many more
 * slots hold a hook now. Any thread, no GIL needed, as the next two. */
int cm_cuda_install(void);
/* Redirects another allocator if PyTorch has switched to one; else costs a comparison. The
 * collector's idle callback. */
int cm_cuda_rescan(void);
/* Restores every vtable. */
void cm_cuda_remove(void);

typedef struct cm_cuda_state {
    const char *type;  /* mangled, of the allocator in use; NULL: there is none */
    bool redirected;   /* its `allocate` is hooked */
    uint64_t unseen;   /* blocks returned and not reported, since install */
    uint64_t untraced; /* memory taken from CUDA and not explained by a report, since install */
} cm_cuda_state;
cm_cuda_state cm_cuda_get_state(void);
void cm_cuda_counts(cm_cuda_state *state); /* fills in the two counts */
void cm_cuda_begin_counts(void);           /* sets them to zero */

/* --- host_allocator.c: pinned host memory ---------------------------------------------------- */

void cm_host_allocator_remove(void);

/* Calls `each` for every type of allocator seen. */
void cm_cuda_each(void (*each)(void *context, const char *type, const char *library,
                               int redirected),
                  void *context);

#endif
