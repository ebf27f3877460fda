/* A call of the runtime or the driver, as CUPTI's clients see it: a callback on each side, and a
 * record with the same correlation id when it is over.
 *
 * A runtime call and the driver call inside it are one call with one id. Both raise callbacks, but
 * only the outer one leaves a record while runtime calls are recorded, as in published traces. */
#include "cupti.h"

enum { ENTER = 0, EXIT = 1 };

static atomic_uint correlations;
enum { BEFORE_A_WRAP = 0xffffffef };

static uint32_t next_correlation(void)
{
    uint32_t id, first = cm_sim_cupti_hostile()->wrap ? BEFORE_A_WRAP : 0;

    /* 0 means that no client listened; the counter wraps. */
    do
        id = atomic_fetch_add_explicit(&correlations, 1, memory_order_relaxed) + 1 + first;
    while (!id);
    return id;
}

/* A callback may make calls itself: then the innermost. */
static _Thread_local cm_sim_call *current __attribute__((tls_model("initial-exec")));

const cm_sim_call *cm_sim_cupti_call(void)
{
    return current;
}

static void begin(cm_sim_call *call)
{
    call->around = current;
    current = call;
}

static void notify(cm_sim_call *call, int domain, int site)
{
    bool runtime = domain == CM_CUPTI_RUNTIME_API;
    uint32_t id = runtime ? call->runtime_id : call->driver_id;

    if (site == ENTER)
        cm_sim_cupti_enters(domain);
    if (!cm_sim_cupti_listens(domain, id))
        return;
    cm_cupti_callback_data data = {
        .callbackSite = site,
        .functionName = runtime ? call->runtime_name : call->driver_name,
        .functionParams = runtime ? call->runtime_parameters : call->driver_parameters,
        .functionReturnValue = runtime ? &call->runtime_result : &call->driver_result,
        .symbolName = call->symbol,
        .context = cm_sim_cupti_context(call->device),
        .contextUid = cm_sim_cupti_context_id(call->device),
        .correlationId = call->correlation,
    };

    cm_sim_cupti_fire(domain, id, &data);
}

/* When it began, for its record; 0: no client asked for one. */
static uint64_t begins(int domain, uint32_t id)
{
    return cm_sim_cupti_api_clients(domain, id) ? cm_sim_cupti_now() : 0;
}

static void record(const cm_sim_call *call, int domain, uint64_t begin)
{
    bool runtime = domain == CM_CUPTI_RUNTIME_API;
    uint32_t id = runtime ? call->runtime_id : call->driver_id;
    uint32_t clients = cm_sim_cupti_api_clients(domain, id);

    if (!runtime && call->runtime)
        clients &= ~cm_sim_cupti_clients(CM_CUPTI_RUNTIME, call->device);
    if (!clients || !begin) /* no client, or none when it began */
        return;
    cm_sim_cupti_external_emit(clients, call->correlation);
    cm_cupti_api api = {
        .kind = runtime ? CM_CUPTI_RUNTIME : CM_CUPTI_DRIVER,
        .cbid = id,
        .start = begin,
        .end = cm_sim_cupti_now(),
        .processId = cm_sim_cupti_process(),
        .threadId = cm_sim_cupti_thread(),
        .correlationId = call->correlation,
        .returnValue = (uint32_t)(runtime ? call->runtime_result : call->driver_result),
    };
    cm_sim_cupti_emit(clients, &api, sizeof api);
}

void cm_sim_notify_context(int what, void *context)
{
    const cm_cupti_resource_data data = {.context = context};

    if (cm_sim_cupti_wanted())
        cm_sim_cupti_fire_other(CM_CUPTI_RESOURCE, (uint32_t)what, &data);
}

bool cm_sim_runtime_listens(uint32_t id)
{
    return cm_sim_cupti_listens(CM_CUPTI_RUNTIME_API, id);
}

bool cm_sim_driver_listens(uint32_t id)
{
    return cm_sim_cupti_listens(CM_CUPTI_DRIVER_API, id);
}

bool cm_sim_kernels_reported(int device)
{
    return (cm_sim_cupti_clients(CM_CUPTI_CONCURRENT_KERNEL, device) |
            cm_sim_cupti_clients(CM_CUPTI_KERNEL, device)) != 0;
}

void cm_sim_runtime_enter(cm_sim_call *call, int device, uint32_t id, const char *name,
                          const void *parameters, const char *symbol)
{
    *call = (cm_sim_call){
        .correlation = next_correlation(),
        .runtime = true,
        .device = device,
        .runtime_id = id,
        .runtime_name = name,
        .runtime_parameters = parameters,
        .runtime_begin = begins(CM_CUPTI_RUNTIME_API, id),
        .symbol = symbol,
    };
    begin(call);
    notify(call, CM_CUPTI_RUNTIME_API, ENTER);
}

void cm_sim_runtime_exit(cm_sim_call *call, int result)
{
    if (!call->correlation)
        return;
    call->runtime_result = result;
    notify(call, CM_CUPTI_RUNTIME_API, EXIT);
    record(call, CM_CUPTI_RUNTIME_API, call->runtime_begin);
    current = call->around;
}

void cm_sim_driver_enter(cm_sim_call *call, int device, uint32_t id, const char *name,
                         const void *parameters, const char *symbol)
{
    if (!call->runtime) {
        *call = (cm_sim_call){.correlation = next_correlation()};
        begin(call);
    }
    call->device = device;
    call->driver_id = id;
    call->driver_name = name;
    call->driver_parameters = parameters;
    call->driver_begin = begins(CM_CUPTI_DRIVER_API, id);
    call->symbol = symbol;
    notify(call, CM_CUPTI_DRIVER_API, ENTER);
}

void cm_sim_driver_exit(cm_sim_call *call, int result)
{
    if (!call->correlation)
        return;
    call->driver_result = result;
    notify(call, CM_CUPTI_DRIVER_API, EXIT);
    record(call, CM_CUPTI_DRIVER_API, call->driver_begin);
    if (!call->runtime)
        current = call->around;
}
