/* Streams, contexts and pools belong to the runtime and the driver: what they are to CUPTI. */
#include "cupti.h"
#include "driver.h"
#include "driver_params.h"
#include "objects.h"

/* A real process has streams of its own before the default one, and before the program's. */
enum { DEFAULT_STREAM = 7, FIRST_STREAM = 13 };
enum { HANDLES_OF_DEFAULT = 2 }; /* 0; 1: legacy; 2: per thread */
enum { POOL_THRESHOLD = 4, POOL_RESERVED = 5, POOL_USED = 7 };

uint32_t cm_sim_cupti_stream(void *stream)
{
    if ((uintptr_t)stream <= HANDLES_OF_DEFAULT)
        return DEFAULT_STREAM;
    const cm_sim_stream *found = cm_sim_stream_find(stream);
    return found ? FIRST_STREAM + (uint32_t)cm_sim_stream_id(found) : CM_CUPTI_NO_STREAM;
}

void *cm_sim_cupti_context(int device)
{
    return cm_cu_primary(device);
}

int cm_sim_cupti_context_device(const void *context)
{
    return cm_cu_context_device(context);
}

static cm_sim_pool *pool_of(const cm_sim_call *call)
{
    if (call->driver_id == CM_CBID_cuMemAllocFromPoolAsync) {
        const cm_cuMemAllocFromPoolAsync_params *parameters = call->driver_parameters;
        return parameters->pool;
    }
    return cm_sim_pool_current(call->device);
}

cm_cupti_pool_state cm_sim_cupti_pool(const cm_sim_call *call, const void *pool)
{
    cm_sim_pool *which = pool ? (cm_sim_pool *)pool : pool_of(call);
    cm_cupti_pool_state state = {.address = (uintptr_t)which};

    if (which) {
        cm_sim_pool_get(which, POOL_THRESHOLD, &state.threshold);
        cm_sim_pool_get(which, POOL_RESERVED, &state.reserved);
        cm_sim_pool_get(which, POOL_USED, &state.used);
    }
    return state;
}
