/* Streams: what is launched there is done at once, unless events lag (config.event_lag): then an
 * event or a stream counts as busy until that many later launches on its device, or until the host
 * waits for it. Time is counted in launches, so what a program sees depends on nothing else. */
#include "objects_stream.h"
#include "../core/sim.h"

#include <stdlib.h>

static cm_sim_table streams = CM_SIM_TABLE(cm_sim_stream);
static atomic_ullong ids;

static struct {
    _Alignas(64) atomic_ullong launches;
    atomic_ullong done;
} devices[CM_SIM_DEVICES];

/* The default streams of each device: the legacy one and, for all threads, the per-thread one. */
static cm_sim_stream defaults[CM_SIM_DEVICES][2];

static uint64_t id_of_default(int device, bool per_thread)
{
    return (uint64_t)device * 2 + per_thread + 1;
}

static cm_sim_stream *find_default(bool per_thread)
{
    int device = cm_sim_current_device();
    cm_sim_stream *stream = &defaults[device][per_thread];
    if (__builtin_expect(!stream->id, 0)) { /* idempotent: any thread writes the same */
        stream->device = device;
        stream->legacy = !per_thread;
        stream->id = id_of_default(device, per_thread);
    }
    return stream;
}

cm_sim_stream *cm_sim_stream_find(cm_sim_stream *handle)
{
    uintptr_t value = (uintptr_t)handle;
    if (value <= CM_CUDA_STREAM_PER_THREAD)
        return find_default(value == CM_CUDA_STREAM_PER_THREAD);
    if (cm_sim_table_has(&streams, handle))
        return handle;
    /* What was found before, handed on. */
    return value - (uintptr_t)defaults < sizeof defaults &&
                   (value - (uintptr_t)defaults) % sizeof **defaults == 0 && handle->id
               ? handle
               : NULL;
}

int cm_sim_stream_new(int device, unsigned flags, int priority, cm_sim_stream **handle)
{
    if (!handle || (flags & ~(unsigned)CM_CUDA_STREAM_NON_BLOCKING))
        return CM_CUDA_INVALID_VALUE;
    cm_sim_stream *stream = cm_sim_table_take(&streams);
    if (!stream)
        return CM_CUDA_OUT_OF_MEMORY;
    stream->device = device;
    stream->flags = flags;
    stream->priority = priority > CM_SIM_PRIORITY_LEAST      ? CM_SIM_PRIORITY_LEAST
                       : priority < CM_SIM_PRIORITY_GREATEST ? CM_SIM_PRIORITY_GREATEST
                                                             : priority;
    stream->id = id_of_default(CM_SIM_DEVICES, 0) + atomic_fetch_add(&ids, 1);
    *handle = stream;
    return CM_CUDA_OK;
}

int cm_sim_stream_delete(cm_sim_stream *handle)
{
    if ((uintptr_t)handle <= CM_CUDA_STREAM_PER_THREAD || !cm_sim_table_has(&streams, handle))
        return CM_CUDA_INVALID_HANDLE;
    if (atomic_load(&handle->capture))
        cm_sim_capture_forget(handle);
    cm_sim_nodes_clear(&handle->after);
    return cm_sim_table_drop(&streams, handle) ? CM_CUDA_OK : CM_CUDA_INVALID_HANDLE;
}

int cm_sim_stream_device(const cm_sim_stream *stream)
{
    return stream->device;
}

unsigned cm_sim_stream_flags(const cm_sim_stream *stream)
{
    return stream->flags;
}

int cm_sim_stream_priority(const cm_sim_stream *stream)
{
    return stream->priority;
}

uint64_t cm_sim_stream_id(const cm_sim_stream *stream)
{
    return stream->id;
}

/* --- work ------------------------------------------------------------------------------------- */

cm_sim_stream *cm_sim_stream_work(cm_sim_stream *handle, bool *capturing, int *result)
{
    cm_sim_stream *stream = cm_sim_stream_find(handle);
    *capturing = false;
    if (!stream) {
        *result = CM_CUDA_INVALID_HANDLE;
        return NULL;
    }
    cm_sim_capture *capture = atomic_load_explicit(&stream->capture, memory_order_acquire);
    if (__builtin_expect(capture != NULL, 0)) {
        if (atomic_load(&capture->status) != CM_CUDA_CAPTURE_ACTIVE) {
            *result = CM_CUDA_CAPTURE_INVALIDATED;
            return NULL;
        }
        *capturing = true;
    } else if (stream->legacy && cm_sim_capture_unsafe_legacy(stream->device)) {
        *result = CM_CUDA_CAPTURE_IMPLICIT;
        return NULL;
    }
    return stream;
}

void cm_sim_stream_launched(cm_sim_stream *stream)
{
    uint64_t now =
        atomic_fetch_add_explicit(&devices[stream->device].launches, 1, memory_order_relaxed) + 1;
    atomic_store_explicit(&stream->last, now, memory_order_relaxed);
}

uint64_t cm_sim_launches(int device)
{
    return device >= 0 && device < CM_SIM_DEVICES ? atomic_load(&devices[device].launches) : 0;
}

static void raise_to(atomic_ullong *value, uint64_t least)
{
    unsigned long long now = atomic_load(value);
    while (now < least && !atomic_compare_exchange_weak(value, &now, least))
        ;
}

void cm_sim_stream_done(cm_sim_stream *stream, uint64_t at)
{
    raise_to(&stream->done, at);
}

void cm_sim_polled_in_vain(cm_sim_polls *polls, int device)
{
    uint64_t now = cm_sim_launches(device);
    if (atomic_exchange(&polls->at, now) == now)
        atomic_fetch_add(&polls->idle, 1);
}

void cm_sim_polls_reset(cm_sim_polls *polls)
{
    atomic_store(&polls->at, UINT64_MAX);
    atomic_store(&polls->idle, 0);
}

uint64_t cm_sim_device_done(int device)
{
    return atomic_load(&devices[device].done);
}

/* A capturing stream has nothing to wait for: to ask is an error that ends the capture. */
static int not_capturing(cm_sim_stream *stream)
{
    cm_sim_capture *capture = atomic_load(&stream->capture);
    if (!capture)
        return CM_CUDA_OK;
    if (atomic_load(&capture->status) != CM_CUDA_CAPTURE_ACTIVE)
        return CM_CUDA_CAPTURE_INVALIDATED;
    cm_sim_capture_invalidate(capture);
    return CM_CUDA_CAPTURE_UNSUPPORTED;
}

int cm_sim_stream_synchronize(cm_sim_stream *handle)
{
    cm_sim_stream *stream = cm_sim_stream_find(handle);
    if (!stream)
        return CM_CUDA_INVALID_HANDLE;
    int result = not_capturing(stream);
    if (!result)
        result = cm_sim_capture_permits();
    if (!result) {
        cm_sim_stream_done(stream, cm_sim_launches(stream->device));
        cm_sim_pools_settle(stream->device);
    }
    return result;
}

int cm_sim_stream_query(cm_sim_stream *handle)
{
    cm_sim_stream *stream = cm_sim_stream_find(handle);
    if (!stream)
        return CM_CUDA_INVALID_HANDLE;
    int result = not_capturing(stream);
    uint32_t lag = cm_sim_config_get()->event_lag;
    if (result || !lag)
        return result;
    uint64_t last = atomic_load(&stream->last);
    if (atomic_exchange(&stream->asked_for, last) != last)
        cm_sim_polls_reset(&stream->polls);
    if (last <= atomic_load(&stream->done) || last <= cm_sim_device_done(stream->device))
        return CM_CUDA_OK;
    if (last + lag <= cm_sim_launches(stream->device) + cm_sim_polls_worth(&stream->polls)) {
        cm_sim_stream_done(stream, last);
        return CM_CUDA_OK;
    }
    cm_sim_polled_in_vain(&stream->polls, stream->device);
    return CM_CUDA_NOT_READY;
}

int cm_sim_device_synchronize(int device)
{
    int result = cm_sim_capture_permits();
    if (result)
        return result;
    raise_to(&devices[device].done, cm_sim_launches(device));
    cm_sim_pools_settle(device);
    return CM_CUDA_OK;
}

int cm_sim_stream_wait(cm_sim_stream *handle, cm_sim_event *event, unsigned flags)
{
    cm_sim_stream *stream = cm_sim_stream_find(handle);
    if (!stream || !cm_sim_event_live(event))
        return CM_CUDA_INVALID_HANDLE;
    if (flags & ~(unsigned)CM_CUDA_EVENT_RECORD_EXTERNAL)
        return CM_CUDA_INVALID_VALUE;
    cm_sim_capture *capture = atomic_load(&stream->capture);
    if (capture && atomic_load(&capture->status) != CM_CUDA_CAPTURE_ACTIVE)
        return CM_CUDA_CAPTURE_INVALIDATED;
    if (capture && (flags & CM_CUDA_EVENT_RECORD_EXTERNAL)) {
        cm_cuda_node_params params = {.type = CM_CUDA_NODE_WAIT_EVENT, .eventWait = {event}};
        return cm_sim_capture_add(stream, &params, NULL);
    }
    if (capture || atomic_load(&event->capture))
        return cm_sim_capture_join(stream, event);
    return CM_CUDA_OK;
}

int cm_sim_stream_host(cm_sim_stream *handle, cm_cuda_host_function function, void *data)
{
    bool capturing;
    int result = CM_CUDA_OK;
    if (!function)
        return CM_CUDA_INVALID_VALUE;
    cm_sim_stream *stream = cm_sim_stream_work(handle, &capturing, &result);
    if (!stream)
        return result;
    if (capturing)
        return cm_sim_capture_host(stream, function, data);
    function(data);
    return CM_CUDA_OK;
}
