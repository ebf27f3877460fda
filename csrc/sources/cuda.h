/* PyTorch's CUDA allocator, beside what it reports (allocator.c): what it was asked for, and what
 * it takes from CUDA itself.
 *
 * cuda_allocator.c stands around the allocator's virtual `allocate`, outside of its mutex. It
 * knows the size that was asked for, and afterwards the device and whether a block was reported
 * meanwhile. cuda_runtime.c stands between libc10_cuda and the CUDA runtime. Together they tell:
 *
 *   native back end   cudaMalloc, then a report in the same call: a segment; its first block tells
 *                     the device. cudaFree: a segment goes.
 *   without caching   cudaMalloc, and `allocate` returns without a report: a block. Which of the
 * two a cudaFree gives back is known where all blocks are known: to the reader. cudaMallocAsync
 * every call is a block. Its device is the thread's current one, which this back end asks for or
 * sets before each of them: those calls are watched only where it is in use. Frees are told without
 * a device: no address is on two. expandable        segments are mapped by the driver, in reserved
 * totals only. any other         blocks that nobody reported are counted, so that the recording can
 * say so. */
#ifndef CM_SOURCES_CUDA_H
#define CM_SOURCES_CUDA_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "../capture/ring_producer.h"

/* Streams that one block may wait for, as far as they are told. */
enum { CM_CUDA_WAITS = 8 };

/* A function that was running, and where its stack stood when it called. */
typedef struct cm_cuda_frame {
    uintptr_t function, stack;
} cm_cuda_frame;

typedef struct cm_cuda_wait {
    uint64_t stream;
    cm_cuda_frame by[2]; /* whoever recorded the event, and its caller */
} cm_cuda_wait;

/* What this thread's allocator is doing now. */
typedef struct cm_cuda_call {
    size_t requested; /* by the `allocate` that runs, until its block is reported; 0: none */
    uint64_t taken;   /* what cudaMalloc gave and no report has explained yet; 0: nothing */
    size_t taken_size;
    uintptr_t site;   /* that called cudaMalloc for it */
    size_t refused;   /* by cudaMalloc in the `allocate` that runs, and not yet told; 0: nothing */
    bool inside;      /* an `allocate` runs */
    int8_t device;    /* that this thread used last, as far as it was seen */
    bool device_seen; /* being chosen, or asked for */
    uint8_t waits;    /* events recorded by libc10_cuda since its last report */
    cm_cuda_wait wait[CM_CUDA_WAITS];
} cm_cuda_call;

/* Initial-exec: any other model may call malloc at a thread's first access. */
extern __thread cm_cuda_call cm_cuda_tls __attribute__((tls_model("initial-exec")));

/* The allocator reports a block: what was taken for it is its segment. t: NULL while nothing is
 * recorded. */
void cm_cuda_segment_hook(cm_thread *t, const void *block, int8_t device);
/* ... and, behind its ALLOC, how much of it was asked for. */
void cm_cuda_requested_hook(cm_thread *t, const void *block, int8_t device);

/* `allocate` came back with a block that nobody reported. */
void cm_cuda_unreported_hook(const void *block, size_t size, int8_t device);
/* Whether one of those was taken from CUDA for itself: from then on devices are watched. */
bool cm_cuda_met_direct(void);
/* `allocate` failed without a report. */
void cm_cuda_refused_hook(void);

/* --- deferred_free.c: blocks that record_stream keeps from being used again
 * ---------------------------- */

/* Whether they are told. Costs a load at each event otherwise. */
void cm_cuda_watch_held(bool on);
bool cm_cuda_watches_held(void);
/* libc10_cuda, at this code address, records an event on a stream. */
void cm_cuda_event_hook(const void *stream, uintptr_t site);
/* The allocator, at this one, reports a free: HELD for each stream that the block waits for. */
void cm_cuda_held_hook(cm_thread *t, int8_t device, uintptr_t site);

/* Whether PyTorch was told not to cache. GIL held: nobody changes the environment then. */
void cm_cuda_read_environment(void);

/* Looks for the allocator after slots were found, and redirects what is there; returns how many
 * more slots hold a hook now. Any thread, no GIL needed, as the next two. */
int cm_cuda_install(void);
/* The allocator may be another one by now. Costs a comparison when it is not. The collector's idle
 * callback. */
int cm_cuda_rescan(void);
/* Gives every vtable back. */
void cm_cuda_remove(void);

typedef struct cm_cuda_state {
    const char *type;  /* mangled, of the allocator in use; NULL: there is none */
    bool redirected;   /* its `allocate` is ours, or need not be */
    uint64_t unseen;   /* blocks that it gave out and did not report, ... */
    uint64_t untraced; /* memory taken from CUDA that no report explained; both since install */
} cm_cuda_state;
cm_cuda_state cm_cuda_get_state(void);
void cm_cuda_counts(cm_cuda_state *state); /* fills in the two counts */
void cm_cuda_begin_counts(void);           /* they count from here */

/* One call for each type of allocator met. */
void cm_cuda_each(void (*each)(void *context, const char *type, const char *library,
                               int redirected),
                  void *context);

#endif
