/* The CUPTI surface's own house: what its files share.
 *
 *   cupti_callbacks.c   who is subscribed to what; calling them
 *   cupti_calls.c       cupti_hooks.h: a call begins and ends
 *   cupti_activity.c    which kinds of records are on; attributes; walking through a buffer
 *   cupti_records.c     cupti_hooks.h: memory, pools, kernels, copies
 *   cupti_buffers.c     the clients' buffers: filling, handing back, flushing
 *   cupti_clock.c       time, streams' order
 *   cupti_handles.c     what other surfaces' handles are to CUPTI
 *   cupti_external.c    external correlation ids
 *   cupti_misc.c        version, error names, ids, detaching
 *   cupti_names.c       names of callbacks
 *   cupti_generation.c  which release of CUPTI is imitated
 *
 * What is on lies in atomics that the calls read without a lock; what switches it is serialized by
 * the lock of cupti_callbacks.c. No lock is ever held while a client's function runs, so clients
 * may call whatever CUPTI allows them to. */
#ifndef CM_SIM_CUPTI_H
#define CM_SIM_CUPTI_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "cupti_generation.h"
#include "cupti_hooks.h"
#include "cupti_records.h"
#include "../core/sim.h"

/* CUptiResult. */
enum {
    CM_CUPTI_OK = 0,
    CM_CUPTI_INVALID_PARAMETER = 1,
    CM_CUPTI_INVALID_DEVICE = 2,
    CM_CUPTI_INVALID_CONTEXT = 3,
    CM_CUPTI_INVALID_OPERATION = 7,
    CM_CUPTI_OUT_OF_MEMORY = 8,
    CM_CUPTI_SIZE_NOT_SUFFICIENT = 10,
    CM_CUPTI_MAX_LIMIT_REACHED = 12,
    CM_CUPTI_NOT_READY = 13,
    CM_CUPTI_NOT_COMPATIBLE = 14,
    CM_CUPTI_QUEUE_EMPTY = 18,
    CM_CUPTI_INVALID_STREAM = 20,
    CM_CUPTI_INVALID_KIND = 21,
    CM_CUPTI_NOT_SUPPORTED = 27,
    CM_CUPTI_MULTIPLE_SUBSCRIBERS = 39
};

/* Parameter ids are larger than any generation's. */
enum { CM_CUPTI_IDS = 1024 };

/* --- cupti_callbacks.c ------------------------------------------------------------------------ */

typedef struct cm_cupti_subscriber cm_cupti_subscriber;
typedef void (*cm_cupti_callback)(void *userdata, int domain, uint32_t id, const void *data);

/* Calls who asked for this callback. Not from inside another callback of this thread. */
void cm_sim_cupti_fire(int domain, uint32_t id, const void *data);
/* Sets cm_sim_cupti_on from what is subscribed and enabled. */
void cm_sim_cupti_recompute(void);
/* Serializes what switches things on and off. */
void cm_sim_cupti_lock(void);
void cm_sim_cupti_unlock(void);
/* Everybody is unsubscribed; returns when no other thread is in a callback. */
void cm_sim_cupti_unsubscribe_all(void);
void cm_sim_cupti_callbacks_forked(void);

/* --- cupti_calls.c ---------------------------------------------------------------------------- */

/* The call that this thread is in; NULL: none, or one that nobody was told of. */
const cm_sim_call *cm_sim_cupti_call(void);

/* --- cupti_activity.c ------------------------------------------------------------------------- */

bool cm_sim_cupti_kind_on(uint32_t kind, int device);
bool cm_sim_cupti_any_kind_on(void);
/* Whether calls of this id are recorded: domain CM_CUPTI_DRIVER_API or _RUNTIME_API. */
bool cm_sim_cupti_api_on(int domain, uint32_t id);
bool cm_sim_cupti_per_thread_buffers(void);
bool cm_sim_cupti_want_source(void);
bool cm_sim_cupti_want_latency(void);
/* As after loading the library; also what fork() leaves to a child. */
void cm_sim_cupti_activity_reset(void);

/* --- cupti_buffers.c -------------------------------------------------------------------------- */

/* Puts a record into a client's buffer, cut to the generation's size. */
void cm_sim_cupti_emit(const void *record, size_t bytes);
/* The same of work on the device, which may not be done yet. */
typedef struct cm_cupti_work {
    const void *stream;
    uint64_t stream_id, launch; /* the device's launches when it was launched */
    int device;
} cm_cupti_work;
void cm_sim_cupti_emit_work(const void *record, size_t bytes, const cm_cupti_work *work);
/* Starts the thread that hands full buffers back. */
void cm_sim_cupti_buffers_start(void);
/* Hands everything back and forgets the client's functions. */
void cm_sim_cupti_buffers_finalize(void);
void cm_sim_cupti_buffers_forked(void);

/* --- cupti_clock.c ---------------------------------------------------------------------------- */

/* Time as records show it: nanoseconds since 1970, or what the client's function says. */
uint64_t cm_sim_cupti_now(void);
void cm_sim_cupti_clock_reset(void);
/* The next `nanoseconds` of a stream's time, not before now. In the records' time. */
void cm_sim_cupti_occupy(int device, uint32_t stream, uint64_t nanoseconds, uint64_t *start,
                         uint64_t *end);

/* --- cupti_handles.c: what other surfaces' handles are to CUPTI ------------------------------- */

/* As cuptiGetStreamId numbers it; CM_CUPTI_NO_STREAM: no stream of ours. */
uint32_t cm_sim_cupti_stream(void *stream);
/* Work that was just launched, and whether it is done. */
cm_cupti_work cm_sim_cupti_work(int device, void *stream);
bool cm_sim_cupti_done(const cm_cupti_work *work);
/* The CUcontext of a device's primary context. */
void *cm_sim_cupti_context(int device);
int cm_sim_cupti_context_device(const void *context); /* -1: none of ours */
typedef struct cm_cupti_pool_state {
    uint64_t address, threshold, reserved, used;
} cm_cupti_pool_state;
cm_cupti_pool_state cm_sim_cupti_pool(const void *pool);
static inline uint32_t cm_sim_cupti_context_id(int device)
{
    return (uint32_t)device + 1;
}

/* --- cupti_external.c ------------------------------------------------------------------------- */

/* Writes a record for each kind of external id that this thread is in. */
void cm_sim_cupti_external_emit(uint32_t correlation);

/* --- cupti_names.c ---------------------------------------------------------------------------- */

/* "cudaMalloc_v3020"; NULL: there is no such id. */
const char *cm_sim_cupti_name(int domain, uint32_t id);

/* --- cupti_misc.c ----------------------------------------------------------------------------- */

/* Stands first in what creates state: a forked child starts without any. */
void cm_sim_cupti_touch(void);
/* Waits until no more than `least` are left of those that others count. false: a client's function
 * that waits for whoever waits here would be waited for for ever; two seconds are enough. */
bool cm_sim_cupti_wait(atomic_uint *count, unsigned least);
uint32_t cm_sim_cupti_process(void);
uint32_t cm_sim_cupti_thread(void);

#endif
