/* Version, names of results, numbers of things, detaching; and what a fork leaves. */
#include <pthread.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "cupti.h"

/* --- Processes and threads -------------------------------------------------------------------- */

enum { BY_PTHREAD = 0, BY_SYSTEM = 1, THREAD_ID_TYPES };

static atomic_uint process, thread_id_type;
static _Thread_local uint32_t system_id;

static void in_child(void)
{
    atomic_store(&process, 0);
    system_id = 0;
    cm_sim_cupti_callbacks_forked();
    cm_sim_cupti_activity_reset();
    cm_sim_cupti_buffers_forked();
    cm_sim_cupti_clock_reset();
    atomic_store(&cm_sim_cupti_on, false);
}

static void watch(void)
{
    if (pthread_atfork(NULL, NULL, in_child) != 0)
        cm_sim_note(CM_SIM_NOTE_LIMIT, "memory to watch fork()", 0);
}

void cm_sim_cupti_touch(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;

    pthread_once(&once, watch);
}

uint32_t cm_sim_cupti_process(void)
{
    uint32_t id = atomic_load_explicit(&process, memory_order_relaxed);

    if (!id) {
        id = (uint32_t)getpid();
        atomic_store_explicit(&process, id, memory_order_relaxed);
    }
    return id;
}

uint32_t cm_sim_cupti_thread(void)
{
    if (atomic_load_explicit(&thread_id_type, memory_order_relaxed) == BY_PTHREAD)
        return (uint32_t)(uintptr_t)pthread_self();
    if (!system_id)
        system_id = (uint32_t)syscall(SYS_gettid);
    return system_id;
}

CM_SIM_EXPORT int cuptiSetThreadIdType(uint32_t type)
{
    if (type >= THREAD_ID_TYPES)
        return CM_CUPTI_NOT_SUPPORTED;
    atomic_store(&thread_id_type, type);
    return CM_CUPTI_OK;
}

/* --- Waiting for others ----------------------------------------------------------------------- */

bool cm_sim_cupti_wait(atomic_uint *count, unsigned least)
{
    enum { SECONDS = 2, PAUSE_NS = 50 * 1000, LONG_PAUSE_NS = 1000 * 1000, SOON = 20 };
    struct timespec now, end;

    clock_gettime(CLOCK_MONOTONIC, &end);
    end.tv_sec += SECONDS;
    for (unsigned i = 0; atomic_load(count) > least; i++) {
        clock_gettime(CLOCK_MONOTONIC, &now);
        if (now.tv_sec > end.tv_sec || (now.tv_sec == end.tv_sec && now.tv_nsec > end.tv_nsec))
            return false;
        nanosleep(&(struct timespec){0, i < SOON ? PAUSE_NS : LONG_PAUSE_NS}, NULL);
    }
    return true;
}

/* --- Identity --------------------------------------------------------------------------------- */

enum { VERSION_NEEDS_DRIVER = 1303 };

CM_SIM_EXPORT int cuptiGetVersion(uint32_t *version)
{
    if (!version)
        return CM_CUPTI_INVALID_PARAMETER;
    const cm_cupti_generation *now = cm_sim_cupti_generation();
    if (cm_sim_cupti_hostile()->nodriver && now->number >= VERSION_NEEDS_DRIVER) {
        *version = 0;
        return CM_CUPTI_UNKNOWN;
    }
    *version = now->version;
    return CM_CUPTI_OK;
}

static const char *const results[] = {
    "CUPTI_SUCCESS",
    "CUPTI_ERROR_INVALID_PARAMETER",
    "CUPTI_ERROR_INVALID_DEVICE",
    "CUPTI_ERROR_INVALID_CONTEXT",
    "CUPTI_ERROR_INVALID_EVENT_DOMAIN_ID",
    "CUPTI_ERROR_INVALID_EVENT_ID",
    "CUPTI_ERROR_INVALID_EVENT_NAME",
    "CUPTI_ERROR_INVALID_OPERATION",
    "CUPTI_ERROR_OUT_OF_MEMORY",
    "CUPTI_ERROR_HARDWARE",
    "CUPTI_ERROR_PARAMETER_SIZE_NOT_SUFFICIENT",
    "CUPTI_ERROR_API_NOT_IMPLEMENTED",
    "CUPTI_ERROR_MAX_LIMIT_REACHED",
    "CUPTI_ERROR_NOT_READY",
    "CUPTI_ERROR_NOT_COMPATIBLE",
    "CUPTI_ERROR_NOT_INITIALIZED",
    "CUPTI_ERROR_INVALID_METRIC_ID",
    "CUPTI_ERROR_INVALID_METRIC_NAME",
    "CUPTI_ERROR_QUEUE_EMPTY",
    "CUPTI_ERROR_INVALID_HANDLE",
    "CUPTI_ERROR_INVALID_STREAM",
    "CUPTI_ERROR_INVALID_KIND",
    "CUPTI_ERROR_INVALID_EVENT_VALUE",
    "CUPTI_ERROR_DISABLED",
    "CUPTI_ERROR_INVALID_MODULE",
    "CUPTI_ERROR_INVALID_METRIC_VALUE",
    "CUPTI_ERROR_HARDWARE_BUSY",
    "CUPTI_ERROR_NOT_SUPPORTED",
    "CUPTI_ERROR_UM_PROFILING_NOT_SUPPORTED",
    "CUPTI_ERROR_UM_PROFILING_NOT_SUPPORTED_ON_DEVICE",
    "CUPTI_ERROR_UM_PROFILING_NOT_SUPPORTED_ON_NON_P2P_DEVICES",
    "CUPTI_ERROR_UM_PROFILING_NOT_SUPPORTED_WITH_MPS",
    "CUPTI_ERROR_CDP_TRACING_NOT_SUPPORTED",
    "CUPTI_ERROR_VIRTUALIZED_DEVICE_NOT_SUPPORTED",
    "CUPTI_ERROR_CUDA_COMPILER_NOT_COMPATIBLE",
    "CUPTI_ERROR_INSUFFICIENT_PRIVILEGES",
    NULL, /* 36 and 37 have no name in the vendor's library either */
    NULL,
    "CUPTI_ERROR_LEGACY_PROFILER_NOT_SUPPORTED",
    "CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED",
    "CUPTI_ERROR_VIRTUALIZED_DEVICE_INSUFFICIENT_PRIVILEGES",
    "CUPTI_ERROR_CONFIDENTIAL_COMPUTING_NOT_SUPPORTED",
    "CUPTI_ERROR_CMP_DEVICE_NOT_SUPPORTED",
    "CUPTI_ERROR_MIG_DEVICE_NOT_SUPPORTED",
    "CUPTI_ERROR_SLI_DEVICE_NOT_SUPPORTED",
    "CUPTI_ERROR_WSL_DEVICE_NOT_SUPPORTED",
    "CUPTI_ERROR_INVALID_CHIP_NAME",
};
enum { RESULTS = sizeof results / sizeof results[0] };

CM_SIM_EXPORT int cuptiGetResultString(uint32_t result, const char **text)
{
    if (!text)
        return CM_CUPTI_INVALID_PARAMETER;
    *text = result == CM_CUPTI_UNKNOWN ? "CUPTI_ERROR_UNKNOWN"
            : result < RESULTS         ? results[result]
                                       : NULL;
    if (*text)
        return CM_CUPTI_OK;
    *text = "<unknown>";
    return CM_CUPTI_INVALID_PARAMETER;
}

CM_SIM_EXPORT int cuptiGetErrorMessage(uint32_t result, const char **text)
{
    return cuptiGetResultString(result, text);
}

/* --- Numbers of things ------------------------------------------------------------------------ */

CM_SIM_EXPORT int cuptiGetContextId(void *context, uint32_t *id)
{
    int device = cm_sim_cupti_context_device(context);

    if (!id)
        return CM_CUPTI_INVALID_PARAMETER;
    if (device < 0)
        return CM_CUPTI_INVALID_CONTEXT;
    *id = cm_sim_cupti_context_id(device);
    return CM_CUPTI_OK;
}

CM_SIM_EXPORT int cuptiGetDeviceId(void *context, uint32_t *id)
{
    int device = cm_sim_cupti_context_device(context);

    if (!id)
        return CM_CUPTI_INVALID_PARAMETER;
    if (device < 0)
        return CM_CUPTI_INVALID_CONTEXT;
    *id = (uint32_t)device;
    return CM_CUPTI_OK;
}

CM_SIM_EXPORT int cuptiGetStreamIdEx(void *context, void *stream, uint8_t per_thread, uint32_t *id)
{
    (void)context, (void)per_thread; /* a thread's default stream is the default stream */
    if (!id)
        return CM_CUPTI_INVALID_PARAMETER;
    *id = cm_sim_cupti_stream(stream);
    return *id == CM_CUPTI_NO_STREAM ? CM_CUPTI_INVALID_STREAM : CM_CUPTI_OK;
}

/* --- The end ---------------------------------------------------------------------------------- */

/* May be called inside a callback, as the vendor recommends. */
CM_SIM_EXPORT int cuptiFinalize(void)
{
    if (cm_sim_cupti_several() && cm_sim_cupti_subscribers() > 1)
        return CM_CUPTI_OK; /* the others go on */
    /* In this order: a subscriber reads what it is handed by its handle. */
    cm_sim_cupti_lock();
    cm_sim_cupti_activity_reset();
    cm_sim_cupti_unlock();
    cm_sim_cupti_buffers_finalize();
    cm_sim_cupti_unsubscribe_all();
    cm_sim_cupti_clock_reset();
    atomic_store(&thread_id_type, BY_PTHREAD);
    return CM_CUPTI_OK;
}
