#include "driver.h"

#include "../objects/objects_array.h"

#include <pthread.h>
#include <stdlib.h>

/* What a context's end gives back is its memory; streams, events and code belong to devices here.
 * Those that cuCtxCreate made stay readable after cuCtxDestroy, so that a stale handle is an error
 * and no crash. */
struct cm_cu_context {
    uint64_t magic;
    int device;
    unsigned number; /* as the core counts them; 0: a primary one */
    atomic_bool alive;
    atomic_int retained;
    atomic_bool by_retain; /* ... made it: then the last release ends it */
    atomic_uint flags;     /* of a primary one */
};

static const uint64_t MAGIC = 0x63757074696d6578u;

enum { DEPTH = 64, LIMITS = 10 };

static cm_cu_context primaries[CM_SIM_DEVICES];
static pthread_once_t primaries_made = PTHREAD_ONCE_INIT;

/* The thread's stack of contexts. While it is empty and `none` is not set, the context of the
 * thread's device is current as soon as there is one: as after any runtime call. */
static __thread struct {
    cm_cu_context *stack[DEPTH];
    int depth;
    bool none; /* the program took the last one away */
} mine;

static void make_primaries(void)
{
    for (int i = 0; i < CM_SIM_DEVICES; i++) {
        primaries[i].magic = MAGIC;
        primaries[i].device = i;
        atomic_store(&primaries[i].alive, true);
    }
}

cm_cu_context *cm_cu_primary(int device)
{
    pthread_once(&primaries_made, make_primaries);
    return &primaries[device];
}

static bool ours(const cm_cu_context *context)
{
    return context && context->magic == MAGIC && atomic_load(&context->alive);
}

int cm_cu_context_device(const cm_cu_context *context)
{
    return ours(context) ? context->device : -1;
}

static cm_cu_context *current(void)
{
    int device = cm_sim_current_device();
    if (!mine.depth)
        return !mine.none && cm_sim_has_context(device) ? cm_cu_primary(device) : NULL;
    cm_cu_context **top = &mine.stack[mine.depth - 1];
    /* The runtime chose a device since: its primary context took this one's place. */
    if ((*top)->device != device || (*top)->number != cm_sim_current_context())
        *top = cm_cu_primary(device);
    return *top;
}

int cm_cu_device(void)
{
    return cm_cu_context_device(current());
}

cm_cu_context *cm_cu_context_on(int device)
{
    cm_cu_context *top = mine.depth ? mine.stack[mine.depth - 1] : NULL;
    if (top && top->device == device && top->number == cm_sim_current_context() && ours(top))
        return top;
    return cm_sim_has_context(device) ? cm_cu_primary(device) : NULL;
}

static void choose(const cm_cu_context *context)
{
    cm_sim_set_current_device(context->device);
    cm_sim_set_current_context(context->number);
}

static int push(cm_cu_context *context)
{
    /* What the runtime made current lies below: it comes back when this one is taken away. */
    cm_cu_context *below = mine.depth ? NULL : current();
    if (mine.depth + (below ? 2 : 1) > DEPTH)
        return CM_SIM_OUT_OF_MEMORY;
    if (below)
        mine.stack[mine.depth++] = below;
    mine.stack[mine.depth++] = context;
    choose(context);
    return CM_SIM_OK;
}

static void pop(void)
{
    mine.depth -= mine.depth > 0;
    mine.none = mine.depth == 0;
    if (mine.depth)
        choose(mine.stack[mine.depth - 1]);
    else
        cm_sim_set_current_context(0);
}

/* Without it the callback would name the first device. */
void cm_cu_enter(cm_sim_call *call, uint32_t id, const char *name, const void *parameters,
                 const char *symbol)
{
    int device = cm_cu_device();
    cm_sim_driver_enter(call, device < 0 ? 0 : device, id, name, parameters, symbol);
}

/* The core made a device's primary context. */
void cm_sim_context_made(int device)
{
    atomic_store(&cm_cu_primary(device)->alive, true);
    cm_sim_notify_context(CM_SIM_CONTEXT_MADE, cm_cu_primary(device));
}

/* Kept addresses are dropped first: the memory may be allocated again as soon as it is freed. */
static void end(cm_cu_context *context)
{
    int device = context->device;
    cm_sim_notify_context(CM_SIM_CONTEXT_ENDS, context);
    atomic_store(&context->alive, false);
    atomic_store(&context->by_retain, false);
    bool last = cm_sim_contexts(device) == 1;
    cm_sim_device_ends(device, last);
    cm_sim_arrays_end(device, context->number);
    cm_sim_symbols_end(device, context->number);
    cm_cu_modules_end(device, context->number);
    if (last) {
        cm_sim_graphs_end(device);
        cm_sim_pools_end(device);
    }
    cm_sim_context_end(device, context->number);
}

void cm_sim_primary_reset(int device)
{
    if (cm_sim_has_context(device))
        end(cm_cu_primary(device));
}

/* --- primary contexts ------------------------------------------------------------------------- */

static bool is_device(int device)
{
    return device >= 0 && device < cm_sim_config_get()->devices;
}

CM_SIM_EXPORT int cuDevicePrimaryCtxRetain(cm_cu_context **context, int device)
{
    CM_CU_BEGIN(cuDevicePrimaryCtxRetain, (void **)context, device);
    if (!is_device(device))
        CM_CU_END(CM_SIM_INVALID_DEVICE);
    cm_cu_context *primary = cm_cu_primary(device);
    /* First: another thread may retain it and let it go as soon as it is there. */
    atomic_fetch_add(&primary->retained, 1);
    bool there = cm_sim_has_context(device);
    unsigned own = cm_sim_current_context();
    cm_sim_set_current_context(0);
    int result = cm_sim_context(device);
    cm_sim_set_current_context(own);
    if (result) {
        atomic_fetch_sub(&primary->retained, 1);
        CM_CU_END(result);
    }
    if (!there)
        atomic_store(&primary->by_retain, true);
    if (context)
        *context = primary;
    CM_CU_END(CM_SIM_OK);
}

/* The last release ends the context, unless the runtime has used it: then it holds it, too. So does
 * whatever else made it by being used. */
CM_SIM_EXPORT int cuDevicePrimaryCtxRelease_v2(int device)
{
    CM_CU_BEGIN(cuDevicePrimaryCtxRelease_v2, device);
    if (!is_device(device))
        CM_CU_END(CM_SIM_INVALID_DEVICE);
    atomic_int *retained = &cm_cu_primary(device)->retained;
    int now = atomic_load(retained);
    do {
        if (!now)
            CM_CU_END(CM_SIM_INVALID_CONTEXT);
    } while (!atomic_compare_exchange_weak(retained, &now, now - 1));
    if (now == 1 && atomic_load(&cm_cu_primary(device)->by_retain) && !cm_sim_device_held(device))
        cm_sim_primary_reset(device);
    CM_CU_END(CM_SIM_OK);
}
CM_SIM_ALIAS(cuDevicePrimaryCtxRelease_v2, cuDevicePrimaryCtxRelease);

/* However many retain it. */
CM_SIM_EXPORT int cuDevicePrimaryCtxReset_v2(int device)
{
    CM_CU_BEGIN(cuDevicePrimaryCtxReset_v2, device);
    if (!is_device(device))
        CM_CU_END(CM_SIM_INVALID_DEVICE);
    cm_sim_primary_reset(device);
    CM_CU_END(CM_SIM_OK);
}
CM_SIM_ALIAS(cuDevicePrimaryCtxReset_v2, cuDevicePrimaryCtxReset);

CM_SIM_EXPORT int cuDevicePrimaryCtxGetState(int device, unsigned *flags, int *active)
{
    CM_SIM_ENTRY;
    if (!is_device(device))
        return CM_SIM_INVALID_DEVICE;
    if (flags)
        *flags = atomic_load(&cm_cu_primary(device)->flags);
    if (active)
        *active = cm_sim_has_context(device);
    return CM_SIM_OK;
}

CM_SIM_EXPORT int cuDevicePrimaryCtxSetFlags_v2(int device, unsigned flags)
{
    CM_SIM_ENTRY;
    if (!is_device(device))
        return CM_SIM_INVALID_DEVICE;
    atomic_store(&cm_cu_primary(device)->flags, flags);
    return CM_SIM_OK;
}
CM_SIM_ALIAS(cuDevicePrimaryCtxSetFlags_v2, cuDevicePrimaryCtxSetFlags);

/* --- contexts of the program's own ------------------------------------------------------------ */

static int create(cm_cu_context **context, int device)
{
    if (!is_device(device))
        return CM_SIM_INVALID_DEVICE;
    if (!context)
        return CM_SIM_INVALID_VALUE;
    if (mine.depth + 2 > DEPTH)
        return CM_SIM_OUT_OF_MEMORY;
    cm_cu_context *made = calloc(1, sizeof *made);
    if (!made)
        return CM_SIM_OUT_OF_MEMORY;
    /* What a second context of a device really takes is not modelled: nothing. */
    int result = cm_sim_context_new(device, &made->number);
    if (result) {
        free(made);
        return result;
    }
    cm_cu_primary(device);
    made->magic = MAGIC;
    made->device = device;
    atomic_store(&made->alive, true);
    *context = made;
    cm_sim_notify_context(CM_SIM_CONTEXT_MADE, made);
    return push(made);
}

CM_SIM_EXPORT int cuCtxCreate_v2(cm_cu_context **context, unsigned flags, int device)
{
    CM_CU_BEGIN(cuCtxCreate_v2, (void **)context, flags, device);
    CM_CU_END(create(context, device));
}

/* A part of the multiprocessors for a context cannot be asked of a simulated device. */
CM_SIM_EXPORT int cuCtxCreate_v3(cm_cu_context **context, const void *affinity, int affinities,
                                 unsigned flags, int device)
{
    CM_CU_BEGIN(cuCtxCreate_v3, (void **)context, (void *)affinity, affinities, flags, device);
    if (affinity && affinities > 0) {
        cm_sim_note(CM_SIM_NOTE_REFUSED, "execution affinity", 0);
        CM_CU_END(CM_SIM_NOT_SUPPORTED);
    }
    CM_CU_END(create(context, device));
}

CM_SIM_EXPORT int cuCtxCreate_v4(cm_cu_context **context, const void *parameters, unsigned flags,
                                 int device)
{
    CM_CU_BEGIN(cuCtxCreate_v4, (void **)context, (void *)parameters, flags, device);
    const struct {
        const void *affinity;
        int affinities;
        const void *graphics;
    } *asked = parameters;
    if (asked && ((asked->affinity && asked->affinities > 0) || asked->graphics)) {
        cm_sim_note(CM_SIM_NOTE_REFUSED, "execution affinity", 0);
        CM_CU_END(CM_SIM_NOT_SUPPORTED);
    }
    CM_CU_END(create(context, device));
}

CM_SIM_EXPORT int cuCtxDestroy_v2(cm_cu_context *context)
{
    CM_CU_BEGIN(cuCtxDestroy_v2, context);
    if (!ours(context) || !context->number)
        CM_CU_END(CM_SIM_INVALID_CONTEXT);
    end(context);
    if (mine.depth && mine.stack[mine.depth - 1] == context)
        pop();
    CM_CU_END(CM_SIM_OK);
}
CM_SIM_ALIAS(cuCtxDestroy_v2, cuCtxDestroy);

/* --- the thread's stack ----------------------------------------------------------------------- */

CM_SIM_EXPORT int cuCtxGetCurrent(cm_cu_context **context)
{
    CM_SIM_ENTRY;
    if (!context)
        return CM_SIM_INVALID_VALUE;
    *context = current();
    return CM_SIM_OK;
}

CM_SIM_EXPORT int cuCtxSetCurrent(cm_cu_context *context)
{
    CM_SIM_ENTRY;
    if (context && !ours(context))
        return CM_SIM_INVALID_CONTEXT;
    if (!context) {
        pop();
        return CM_SIM_OK;
    }
    mine.depth += mine.depth == 0;
    mine.stack[mine.depth - 1] = context;
    choose(context);
    return CM_SIM_OK;
}

CM_SIM_EXPORT int cuCtxPushCurrent_v2(cm_cu_context *context)
{
    CM_SIM_ENTRY;
    if (!ours(context))
        return CM_SIM_INVALID_CONTEXT;
    return push(context);
}
CM_SIM_ALIAS(cuCtxPushCurrent_v2, cuCtxPushCurrent);

CM_SIM_EXPORT int cuCtxPopCurrent_v2(cm_cu_context **context)
{
    CM_SIM_ENTRY;
    cm_cu_context *top = current();
    if (!top)
        return CM_SIM_INVALID_CONTEXT;
    pop();
    if (context)
        *context = top;
    return CM_SIM_OK;
}
CM_SIM_ALIAS(cuCtxPopCurrent_v2, cuCtxPopCurrent);

/* --- what is asked of contexts ---------------------------------------------------------------- */

/* The current one, as an error where there is none. */
static int need(cm_cu_context **context)
{
    *context = current();
    if (!*context)
        return CM_SIM_INVALID_CONTEXT;
    return ours(*context) ? CM_SIM_OK : CM_SIM_CONTEXT_DESTROYED;
}

CM_SIM_EXPORT int cuCtxGetDevice(int *device)
{
    CM_SIM_ENTRY;
    cm_cu_context *context;
    int result = need(&context);
    if (!result && device)
        *device = context->device;
    return result;
}

CM_SIM_EXPORT int cuCtxGetDevice_v2(int *device, cm_cu_context *context)
{
    CM_SIM_ENTRY;
    if (!context)
        return cuCtxGetDevice(device);
    if (!ours(context))
        return CM_SIM_INVALID_CONTEXT;
    if (device)
        *device = context->device;
    return CM_SIM_OK;
}

CM_SIM_EXPORT int cuCtxSynchronize(void)
{
    CM_SIM_ENTRY;
    cm_sim_call call = {.correlation = 0};
    if (cm_sim_cupti_wanted())
        cm_cu_enter(&call, CM_CBID_cuCtxSynchronize, "cuCtxSynchronize", NULL, NULL);
    cm_cu_context *context;
    int result = need(&context);
    if (!result)
        result = cm_sim_device_synchronize(context->device);
    return cm_cu_exit(&call, result);
}

CM_SIM_EXPORT int cuCtxSynchronize_v2(cm_cu_context *context)
{
    CM_SIM_ENTRY;
    if (!context)
        return cuCtxSynchronize();
    return ours(context) ? cm_sim_device_synchronize(context->device) : CM_SIM_INVALID_CONTEXT;
}

/* Limits are kept per process and take no memory of the device. */
static atomic_size_t limits[LIMITS] = {1024, 8 << 20, 8 << 20, 2, 2048, 128};

CM_SIM_EXPORT int cuCtxGetLimit(size_t *value, int limit)
{
    CM_SIM_ENTRY;
    cm_cu_context *context;
    int result = need(&context);
    if (result)
        return result;
    if (limit < 0 || limit >= LIMITS)
        return CM_CUDA_UNSUPPORTED_LIMIT;
    if (value)
        *value = atomic_load(&limits[limit]);
    return CM_SIM_OK;
}

CM_SIM_EXPORT int cuCtxSetLimit(int limit, size_t value)
{
    CM_SIM_ENTRY;
    cm_cu_context *context;
    int result = need(&context);
    if (result)
        return result;
    if (limit < 0 || limit >= LIMITS)
        return CM_CUDA_UNSUPPORTED_LIMIT;
    atomic_store(&limits[limit], value);
    return CM_SIM_OK;
}

CM_SIM_EXPORT int cuCtxGetStreamPriorityRange(int *least, int *greatest)
{
    CM_SIM_ENTRY;
    cm_cu_context *context;
    int result = need(&context);
    if (!result && least)
        *least = CM_SIM_PRIORITY_LEAST;
    if (!result && greatest)
        *greatest = CM_SIM_PRIORITY_GREATEST;
    return result;
}

/* --- peers ------------------------------------------------------------------------------------ */

CM_SIM_EXPORT int cuCtxEnablePeerAccess(cm_cu_context *peer, unsigned flags)
{
    CM_SIM_ENTRY;
    cm_cu_context *context;
    int result = need(&context);
    if (result)
        return result;
    if (!ours(peer))
        return CM_SIM_INVALID_CONTEXT;
    return flags ? CM_SIM_INVALID_VALUE : cm_sim_peer_enable(context->device, peer->device);
}

CM_SIM_EXPORT int cuCtxDisablePeerAccess(cm_cu_context *peer)
{
    CM_SIM_ENTRY;
    cm_cu_context *context;
    int result = need(&context);
    if (result)
        return result;
    return ours(peer) ? cm_sim_peer_disable(context->device, peer->device) : CM_SIM_INVALID_CONTEXT;
}
