#include "objects_stream.h"
#include "../core/sim.h"

/* Milliseconds of a launch, about as a small kernel takes. */
#define OF_A_LAUNCH 0.01f

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

static void forget_nodes(cm_sim_event *event)
{
    cm_sim_captures_lock();
    cm_sim_nodes_clear(&event->after);
    cm_sim_captures_unlock();
}

int cm_sim_event_delete(cm_sim_event *event)
{
    if (!cm_sim_event_live(event))
        return CM_CUDA_INVALID_HANDLE;
    forget_nodes(event);
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
    if (atomic_exchange(&event->capture, 0))
        forget_nodes(event);
    /* NULL if another thread has ended the capture meanwhile. */
    cm_sim_capture *capture = capturing ? atomic_load(&stream->capture) : NULL;
    if (capture) {
        cm_sim_captures_lock();
        bool kept = cm_sim_nodes_set(&event->after, stream->after.list, stream->after.count);
        cm_sim_captures_unlock();
        if (!kept)
            return CM_CUDA_OUT_OF_MEMORY;
        atomic_store(&event->capture, capture->id);
        return CM_CUDA_OK;
    }
    atomic_store(&event->stream, stream);
    atomic_store(&event->stream_id, stream->id);
    atomic_store(&event->at, cm_sim_launches(stream->device));
    cm_sim_polls_reset(&event->polls);
    atomic_store(&event->done, false);
    atomic_store(&event->recorded, true);
    return CM_CUDA_OK;
}

static bool stream_is_done(cm_sim_event *event, uint64_t at)
{
    cm_sim_stream *stream = atomic_load(&event->stream);
    return stream->id == atomic_load(&event->stream_id) && at <= atomic_load(&stream->done);
}

static bool complete(cm_sim_event *event)
{
    uint32_t lag = cm_sim_config_get()->event_lag;
    if (!lag || !atomic_load(&event->recorded) || atomic_load(&event->done))
        return true;
    uint64_t at = atomic_load(&event->at);
    bool done = at + lag <= cm_sim_launches(event->device) + cm_sim_polls_worth(&event->polls) ||
                at <= cm_sim_device_done(event->device) || stream_is_done(event, at);
    if (done)
        atomic_store(&event->done, true);
    return done;
}

static int waitable(cm_sim_event *event)
{
    if (!cm_sim_event_live(event))
        return CM_CUDA_INVALID_HANDLE;
    return atomic_load(&event->capture) ? CM_CUDA_CAPTURED_EVENT : cm_sim_capture_permits();
}

int cm_sim_event_query(cm_sim_event *event)
{
    int result = waitable(event);
    if (result)
        return result;
    /* Asking is what PyTorch's allocators do with memory that another stream used: how long it is
     * kept depends on event_lag, so the report has to state that it mattered. */
    cm_sim_note(CM_SIM_NOTE_MODELLED, "memory that waits for an event", 0);
    if (complete(event))
        return CM_CUDA_OK;
    cm_sim_polled_in_vain(&event->polls, event->device);
    return CM_CUDA_NOT_READY;
}

int cm_sim_event_synchronize(cm_sim_event *event)
{
    int result = waitable(event);
    if (result || complete(event))
        return result;
    atomic_store(&event->done, true);
    cm_sim_stream *stream = atomic_load(&event->stream);
    if (stream->id == atomic_load(&event->stream_id))
        cm_sim_stream_done(stream, atomic_load(&event->at));
    return CM_CUDA_OK;
}

/* What measures engines or kernels to choose one gets the same in each run, however busy the host.
 */
int cm_sim_event_elapsed(cm_sim_event *start, cm_sim_event *end, float *milliseconds)
{
    cm_sim_event *both[] = {start, end};
    for (int i = 0; i < 2; i++) {
        if (!cm_sim_event_live(both[i]))
            return CM_CUDA_INVALID_HANDLE;
        if (atomic_load(&both[i]->capture))
            return CM_CUDA_CAPTURED_EVENT;
        if (!atomic_load(&both[i]->recorded) || (both[i]->flags & CM_CUDA_EVENT_DISABLE_TIMING))
            return CM_CUDA_INVALID_HANDLE;
    }
    if (!milliseconds)
        return CM_CUDA_INVALID_VALUE;
    if (!complete(start) || !complete(end))
        return CM_CUDA_NOT_READY;
    *milliseconds = (float)(int64_t)(atomic_load(&end->at) - atomic_load(&start->at)) * OF_A_LAUNCH;
    return CM_CUDA_OK;
}
