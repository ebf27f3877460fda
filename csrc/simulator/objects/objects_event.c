#include "objects_stream.h"
#include "../core/sim.h"

#include <time.h>

static cm_sim_table events = CM_SIM_TABLE(cm_sim_event);

enum {
    FLAGS = CM_CUDA_EVENT_BLOCKING_SYNC | CM_CUDA_EVENT_DISABLE_TIMING | CM_CUDA_EVENT_INTERPROCESS
};

bool cm_sim_event_live(const cm_sim_event *event)
{
    return cm_sim_table_has(&events, event);
}

int cm_sim_event_new(int device, unsigned flags, cm_sim_event **event)
{
    if (!event || (flags & ~(unsigned)FLAGS))
        return CM_CUDA_INVALID_VALUE;
    /* An event of several processes has no clock. */
    if ((flags & CM_CUDA_EVENT_INTERPROCESS) && !(flags & CM_CUDA_EVENT_DISABLE_TIMING))
        return CM_CUDA_INVALID_VALUE;
    cm_sim_event *made = cm_sim_table_take(&events);
    if (!made)
        return CM_CUDA_OUT_OF_MEMORY;
    made->device = device;
    made->flags = flags;
    *event = made;
    return CM_CUDA_OK;
}

int cm_sim_event_delete(cm_sim_event *event)
{
    if (!cm_sim_event_live(event))
        return CM_CUDA_INVALID_HANDLE;
    cm_sim_nodes_clear(&event->after);
    return cm_sim_table_drop(&events, event) ? CM_CUDA_OK : CM_CUDA_INVALID_HANDLE;
}

int cm_sim_event_record(cm_sim_event *event, cm_sim_stream *handle, unsigned flags)
{
    bool capturing;
    int result = CM_CUDA_OK;
    if (!cm_sim_event_live(event))
        return CM_CUDA_INVALID_HANDLE;
    if (flags & ~(unsigned)CM_CUDA_EVENT_RECORD_EXTERNAL)
        return CM_CUDA_INVALID_VALUE;
    cm_sim_stream *stream = cm_sim_stream_work(handle, &capturing, &result);
    if (!stream)
        return result;
    if (stream->device != event->device)
        return CM_CUDA_INVALID_HANDLE;
    if (capturing && (flags & CM_CUDA_EVENT_RECORD_EXTERNAL)) {
        cm_cuda_node_params params = {.type = CM_CUDA_NODE_RECORD_EVENT, .eventRecord = {event}};
        return cm_sim_capture_add(stream, &params, NULL);
    }
    cm_sim_nodes_clear(&event->after);
    event->capture = 0;
    if (capturing) {
        if (!cm_sim_nodes_set(&event->after, stream->after.list, stream->after.count))
            return CM_CUDA_OUT_OF_MEMORY;
        event->capture = atomic_load(&stream->capture)->id;
        return CM_CUDA_OK;
    }
    event->recorded = true;
    event->done = false;
    event->stream = stream;
    event->stream_id = stream->id;
    event->at = cm_sim_launches(stream->device);
    if (!(event->flags & CM_CUDA_EVENT_DISABLE_TIMING)) {
        struct timespec now;
        clock_gettime(CLOCK_MONOTONIC, &now);
        event->time = (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
    }
    return CM_CUDA_OK;
}

static bool complete(cm_sim_event *event)
{
    uint32_t lag = cm_sim_config_get()->event_lag;
    if (!lag || !event->recorded || event->done)
        return true;
    event->done =
        event->at + lag <= cm_sim_launches(event->device) ||
        event->at <= cm_sim_device_done(event->device) ||
        (event->stream->id == event->stream_id && event->at <= atomic_load(&event->stream->done));
    return event->done;
}

static int waitable(const cm_sim_event *event)
{
    if (!cm_sim_event_live(event))
        return CM_CUDA_INVALID_HANDLE;
    return event->capture ? CM_CUDA_CAPTURED_EVENT : cm_sim_capture_permits();
}

int cm_sim_event_query(cm_sim_event *event)
{
    int result = waitable(event);
    if (result)
        return result;
    /* Asking is what PyTorch's allocators do with memory that another stream used: how long it is
     * kept depends on event_lag, so whoever reads the report must know that it mattered. */
    cm_sim_note(CM_SIM_NOTE_MODELLED, "memory that waits for an event", 0);
    return complete(event) ? CM_CUDA_OK : CM_CUDA_NOT_READY;
}

int cm_sim_event_synchronize(cm_sim_event *event)
{
    int result = waitable(event);
    if (result || complete(event))
        return result;
    event->done = true;
    if (event->stream->id == event->stream_id)
        cm_sim_stream_done(event->stream, event->at);
    return CM_CUDA_OK;
}

int cm_sim_event_elapsed(cm_sim_event *start, cm_sim_event *end, float *milliseconds)
{
    cm_sim_event *both[] = {start, end};
    for (int i = 0; i < 2; i++) {
        if (!cm_sim_event_live(both[i]))
            return CM_CUDA_INVALID_HANDLE;
        if (both[i]->capture)
            return CM_CUDA_CAPTURED_EVENT;
        if (!both[i]->recorded || (both[i]->flags & CM_CUDA_EVENT_DISABLE_TIMING))
            return CM_CUDA_INVALID_HANDLE;
    }
    if (!milliseconds)
        return CM_CUDA_INVALID_VALUE;
    if (!complete(start) || !complete(end))
        return CM_CUDA_NOT_READY;
    *milliseconds = (float)((double)(int64_t)(end->time - start->time) / 1e6);
    return CM_CUDA_OK;
}
