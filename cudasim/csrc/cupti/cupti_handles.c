/* CUPTI's ids of streams, contexts and pools, which belong to the runtime and the driver. */
#include "cupti.h"
#include "../objects/devices.h"
#include "../objects/objects.h"
#include "../objects/objects_stream.h"

/* A real process has streams of its own before the default one, and before the program's. */
enum { DEFAULT_STREAM = 7, FIRST_STREAM = 13 };
/* The ids of default streams, two for each device, come first (objects_stream.c). */
enum { LAST_DEFAULT_ID = 2 * CM_SIM_DEVICES };
enum { POOL_THRESHOLD = 4, POOL_RESERVED = 5, POOL_USED = 7 };

uint32_t cm_sim_cupti_stream(void *stream)
{
    const cm_sim_stream *found = cm_sim_stream_find(stream);

    if (!found)
        return CM_CUPTI_NO_STREAM;
    uint64_t id = cm_sim_stream_id(found);
    return id <= LAST_DEFAULT_ID ? DEFAULT_STREAM
                                 : FIRST_STREAM + (uint32_t)(id - LAST_DEFAULT_ID - 1);
}

cm_cupti_work cm_sim_cupti_work(int device, void *handle)
{
    const cm_sim_stream *stream = cm_sim_stream_find(handle);

    return (cm_cupti_work){.stream = stream,
                           .stream_id = stream ? stream->id : 0,
                           .launch = cm_sim_launches(device),
                           .device = device};
}

/* As events see it: objects_event.c. What was launched on a stream that is gone is done. */
bool cm_sim_cupti_done(const cm_cupti_work *work)
{
    uint32_t lag = cm_sim_config_get()->event_lag;
    const cm_sim_stream *stream = work->stream;

    return !lag || !stream || stream->id != work->stream_id ||
           work->launch + lag <= cm_sim_launches(work->device) ||
           work->launch <= cm_sim_device_done(work->device) ||
           work->launch <= atomic_load(&stream->done);
}

void *cm_sim_cupti_context(int device)
{
    return cm_cu_context_on(device);
}

int cm_sim_cupti_context_device(const void *context)
{
    return cm_cu_context_device(context);
}

/* Of a pool that is gone all but the address is 0. */
cm_cupti_pool_state cm_sim_cupti_pool(const void *pool)
{
    cm_sim_pool *which = (cm_sim_pool *)pool;
    cm_cupti_pool_state state = {.address = (uintptr_t)which};

    cm_sim_pool_get(which, POOL_THRESHOLD, &state.threshold);
    cm_sim_pool_get(which, POOL_RESERVED, &state.reserved);
    cm_sim_pool_get(which, POOL_USED, &state.used);
    return state;
}
