/* What CUPTI's files share.
 *
 *   cupti_callbacks.c   subscribers, and calling them
 *   cupti_calls.c       cupti_hooks.h: a call begins and ends
 *   cupti_activity.c    which kinds of records are on, by client; walking through a buffer
 *   cupti_attributes.c  settings of the records
 *   cupti_second.c      the second interface (13.2, 13.3): the same for one subscriber of several
 *   cupti_records.c     cupti_hooks.h: memory, pools, kernels, copies
 *   cupti_buffers.c     the clients' buffers: filling, flushing
 *   cupti_delivery.c    asking for them, handing them back
 *   cupti_clock.c       time, streams' order
 *   cupti_handles.c     CUPTI's ids of streams, contexts and pools
 *   cupti_external.c    external correlation ids
 *   cupti_misc.c        version, error names, ids, detaching
 *   cupti_names.c       names of callbacks
 *   cupti_generation.c  which release of CUPTI is imitated
 *   cupti_exports.c     which functions that release has
 *   cupti_hostile.c     what it and other tools do to a client, on demand
 *
 * Records are written for clients: one for all users of the first interface, and one for each
 * subscriber of the second. Sets of them are bits of a word.
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
#include "../objects/cupti_hooks.h"
#include "cupti_hostile.h"
#include "cupti_records.h"
#include "../core/sim.h"

/* CUptiResult. */
enum {
    CM_CUPTI_OK = 0,
    CM_CUPTI_INVALID_PARAMETER = 1,
    CM_CUPTI_INVALID_CONTEXT = 3,
    CM_CUPTI_INVALID_OPERATION = 7,
    CM_CUPTI_OUT_OF_MEMORY = 8,
    CM_CUPTI_SIZE_NOT_SUFFICIENT = 10,
    CM_CUPTI_MAX_LIMIT_REACHED = 12,
    CM_CUPTI_NOT_READY = 13,
    CM_CUPTI_NOT_COMPATIBLE = 14,
    CM_CUPTI_NOT_INITIALIZED = 15,
    CM_CUPTI_QUEUE_EMPTY = 18,
    CM_CUPTI_INVALID_STREAM = 20,
    CM_CUPTI_INVALID_KIND = 21,
    CM_CUPTI_NOT_SUPPORTED = 27,
    CM_CUPTI_MULTIPLE_SUBSCRIBERS = 39,
    CM_CUPTI_UNKNOWN = 999
};

/* Parameter ids are larger than any generation's. */
enum { CM_CUPTI_IDS = 1024 };

/* Subscribers at a time, and clients that records are written for. */
enum { CM_CUPTI_SUBSCRIBERS = 8, CM_CUPTI_FIRST = 0, CM_CUPTI_CLIENTS = 1 + CM_CUPTI_SUBSCRIBERS };

/* Stands first in functions of the first interface: the two cannot be used in one process. */
#define CM_CUPTI_FIRST_INTERFACE                                                                   \
    do {                                                                                           \
        if (cm_sim_cupti_several())                                                                \
            return CM_CUPTI_MULTIPLE_SUBSCRIBERS;                                                  \
    } while (0)
/* Stands first in what the vendor's library cannot do without a driver. */
#define CM_CUPTI_NEEDS_DRIVER                                                                      \
    do {                                                                                           \
        if (cm_sim_cupti_hostile()->nodriver)                                                      \
            return CM_CUPTI_UNKNOWN;                                                               \
    } while (0)

/* --- cupti_callbacks.c ------------------------------------------------------------------------ */

typedef struct cm_cupti_subscriber cm_cupti_subscriber;
typedef void (*cm_cupti_callback)(void *userdata, int domain, uint32_t id, const void *data);

/* Calls the subscribers of this callback of a runtime or driver call. Not from inside another
 * callback of this thread. Each subscriber has a correlationData of its own, from enter to exit. */
void cm_sim_cupti_fire(int domain, uint32_t id, cm_cupti_callback_data *data);
/* Whether there is such a one: most calls of a program are watched by no client. */
bool cm_sim_cupti_listens(int domain, uint32_t id);
/* A call begins: what subscribers kept of the one before is gone. */
void cm_sim_cupti_enters(int domain);
/* To the subscribers of this callback of another domain, with data of its own. */
void cm_sim_cupti_fire_other(int domain, uint32_t id, const void *data);
/* Sets cm_sim_cupti_on from what is subscribed and enabled. */
void cm_sim_cupti_recompute(void);
/* Serializes what switches things on and off. */
void cm_sim_cupti_lock(void);
void cm_sim_cupti_unlock(void);
/* Whether several subscribers may be there: then the second interface is the only one. */
bool cm_sim_cupti_several(void);
/* As ATTR_MULTIPLE_SUBSCRIBER_STATE has it: 0 one only, 1 several, 2 not decided. */
unsigned cm_sim_cupti_several_state(void);
unsigned cm_sim_cupti_subscribers(void);
/* The client that a subscriber is, 1 and up; 0: no subscriber. */
unsigned cm_sim_cupti_client_of(const void *handle);
/* Whether it subscribed by the second interface. */
bool cm_sim_cupti_second(const void *handle);
/* Everybody is unsubscribed; returns when no other thread is in a callback. */
void cm_sim_cupti_unsubscribe_all(void);
void cm_sim_cupti_callbacks_forked(void);

/* --- cupti_calls.c ---------------------------------------------------------------------------- */

/* The call that this thread is in; NULL: none, or one that was not reported. */
const cm_sim_call *cm_sim_cupti_call(void);

/* --- cupti_activity.c ------------------------------------------------------------------------- */

/* The clients of records of this kind; of calls of this id, domain CM_CUPTI_DRIVER_API or
 * _RUNTIME_API. */
uint32_t cm_sim_cupti_clients(uint32_t kind, int device);
uint32_t cm_sim_cupti_api_clients(int domain, uint32_t id);
bool cm_sim_cupti_any_kind_on(void);
bool cm_sim_cupti_client_on(unsigned client); /* any kind */
bool cm_sim_cupti_is_on(unsigned client, uint32_t kind);
int cm_sim_cupti_switch_kind(unsigned client, uint32_t kind, bool on);
int cm_sim_cupti_switch_call(unsigned client, int domain, uint32_t id, uint8_t enable);
/* The next record of a buffer after *record; NULL: the first. */
int cm_sim_cupti_next(uint8_t *buffer, size_t valid, cm_cupti_record **record);
/* As after loading the library; also what fork() leaves to a child. */
void cm_sim_cupti_activity_reset(void);
void cm_sim_cupti_activity_reset_client(unsigned client);

/* --- cupti_attributes.c ----------------------------------------------------------------------- */

int cm_sim_cupti_get_attribute(unsigned client, uint32_t which, size_t *size, void *value);
int cm_sim_cupti_set_attribute(unsigned client, uint32_t which, size_t *size, const void *value);
bool cm_sim_cupti_per_thread_buffers(unsigned client);
/* The clients that ask which library allocated. */
uint32_t cm_sim_cupti_source_clients(void);
bool cm_sim_cupti_want_latency(void);
void cm_sim_cupti_attributes_reset(unsigned client);

/* --- cupti_buffers.c -------------------------------------------------------------------------- */

/* Puts a record into these clients' buffers, cut to the generation's size. */
void cm_sim_cupti_emit(uint32_t clients, const void *record, size_t bytes);
/* The same of work on the device, which may not be done yet. */
typedef struct cm_cupti_work {
    const void *stream;
    uint64_t stream_id, launch; /* the device's launches when it was launched */
    int device;
} cm_cupti_work;
void cm_sim_cupti_emit_work(uint32_t clients, const void *record, size_t bytes,
                            const cm_cupti_work *work);
/* Records that found no buffer since the last such question. */
size_t cm_sim_cupti_dropped(unsigned client);
/* Hands everything back and forgets the client's functions. */
void cm_sim_cupti_client_gone(unsigned client);
void cm_sim_cupti_buffers_finalize(void);
void cm_sim_cupti_buffers_forked(void);

/* --- cupti_delivery.c ------------------------------------------------------------------------- */

/* A client's functions, of its interface. */
int cm_sim_cupti_register(unsigned client, void *request, void *complete);
/* Starts the thread that hands full buffers back. */
void cm_sim_cupti_delivery_start(void);

/* --- cupti_clock.c ---------------------------------------------------------------------------- */

/* Time as records show it: nanoseconds since 1970, or what the client's function returns. */
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
void cm_sim_cupti_external_emit(uint32_t clients, uint32_t correlation);
int cm_sim_cupti_external_push(unsigned client, uint32_t kind, uint64_t id);
int cm_sim_cupti_external_pop(unsigned client, uint32_t kind, uint64_t *last);

/* --- cupti_exports.c -------------------------------------------------------------------------- */

/* A function of the release that is imitated; NULL: it has none of that name. For the file that
 * clients look into (setup.py). */
CM_SIM_EXPORT void *cm_sim_cupti_function(const char *name);

/* --- cupti_names.c ---------------------------------------------------------------------------- */

/* "cudaMalloc_v3020"; NULL: there is no such id. */
const char *cm_sim_cupti_name(int domain, uint32_t id);

/* --- cupti_misc.c ----------------------------------------------------------------------------- */

/* Stands first in what creates state: a forked child starts without any. */
void cm_sim_cupti_touch(void);
/* Waits until *count is at most `least`. false: it was not after two seconds; a client's function
 * may itself be waiting for this thread. */
bool cm_sim_cupti_wait(atomic_uint *count, unsigned least);
uint32_t cm_sim_cupti_process(void);
uint32_t cm_sim_cupti_thread(void);

#endif
