/* Which activity records are wanted, and how a client reads them.
 *
 * As in CUPTI before its second interface, all of this is one state per process that belongs to
 * nobody: the last client to register or to switch off wins. */
#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "cupti.h"

enum { BY_GLOBAL = 0, ON = 1, OFF = 2 };

static atomic_uchar kinds[CM_CUPTI_KINDS];
static atomic_uchar context_kinds[CM_SIM_DEVICES][CM_CUPTI_KINDS]; /* BY_GLOBAL, ON, OFF */
static atomic_uchar calls[CM_CUPTI_RUNTIME_API + 1][CM_CUPTI_IDS]; /* recorded, by domain and id */
static atomic_bool want_source, want_latency, unified_configured;

/* --- Kinds -------------------------------------------------------------------------------------
 */

bool cm_sim_cupti_kind_on(uint32_t kind, int device)
{
    unsigned own = atomic_load_explicit(&context_kinds[device][kind], memory_order_relaxed);

    return own == BY_GLOBAL ? atomic_load_explicit(&kinds[kind], memory_order_relaxed) : own == ON;
}

bool cm_sim_cupti_api_on(int domain, uint32_t id)
{
    return id < CM_CUPTI_IDS && atomic_load_explicit(&calls[domain][id], memory_order_relaxed);
}

static bool any(atomic_uchar *flags, size_t count, unsigned value)
{
    for (size_t i = 0; i < count; i++)
        if (atomic_load_explicit(&flags[i], memory_order_relaxed) == value)
            return true;
    return false;
}

bool cm_sim_cupti_any_kind_on(void)
{
    return any(kinds, CM_CUPTI_KINDS, ON) || any(&context_kinds[0][0], sizeof context_kinds, ON) ||
           any(&calls[0][0], sizeof calls, ON);
}

bool cm_sim_cupti_want_source(void)
{
    return atomic_load_explicit(&want_source, memory_order_relaxed);
}

bool cm_sim_cupti_want_latency(void)
{
    return atomic_load_explicit(&want_latency, memory_order_relaxed);
}

/* Kinds that simulated calls leave records of, or rightly never do (there is no overhead here). Of
 * the others a client hears nothing, which the report tells. */
static bool simulated(uint32_t kind)
{
    switch (kind) {
    case CM_CUPTI_MEMCPY:
    case CM_CUPTI_MEMSET:
    case CM_CUPTI_KERNEL:
    case CM_CUPTI_DRIVER:
    case CM_CUPTI_RUNTIME:
    case CM_CUPTI_CONCURRENT_KERNEL:
    case CM_CUPTI_OVERHEAD:
    case CM_CUPTI_MEMCPY2:
    case CM_CUPTI_EXTERNAL_CORRELATION:
    case CM_CUPTI_MEMORY2:
    case CM_CUPTI_MEMORY_POOL:
        return true;
    default:
        return false;
    }
}

static int check(uint32_t kind)
{
    char name[64];

    if (!cm_sim_cupti_record_size(kind))
        return CM_CUPTI_INVALID_KIND;
    if (kind == CM_CUPTI_UNIFIED_MEMORY_COUNTER && !atomic_load(&unified_configured))
        return CM_CUPTI_NOT_READY;
    /* One makes kernels run one after the other, the other does not. */
    if ((kind == CM_CUPTI_KERNEL && atomic_load(&kinds[CM_CUPTI_CONCURRENT_KERNEL])) ||
        (kind == CM_CUPTI_CONCURRENT_KERNEL && atomic_load(&kinds[CM_CUPTI_KERNEL])))
        return CM_CUPTI_NOT_COMPATIBLE;
    if (!simulated(kind)) {
        snprintf(name, sizeof name, "CUPTI records of kind %u", kind);
        cm_sim_note(CM_SIM_NOTE_REFUSED, name, 0);
    }
    return CM_CUPTI_OK;
}

static void set_calls(uint32_t kind, bool on)
{
    if (kind == CM_CUPTI_DRIVER || kind == CM_CUPTI_RUNTIME) {
        int domain = kind == CM_CUPTI_DRIVER ? CM_CUPTI_DRIVER_API : CM_CUPTI_RUNTIME_API;
        for (size_t id = 0; id < CM_CUPTI_IDS; id++)
            atomic_store_explicit(&calls[domain][id], on, memory_order_relaxed);
    }
}

static int switch_kind(uint32_t kind, bool on)
{
    cm_sim_cupti_touch();
    cm_sim_cupti_lock();
    int result = on ? check(kind) : cm_sim_cupti_record_size(kind) ? 0 : CM_CUPTI_INVALID_KIND;
    if (result == CM_CUPTI_OK) {
        atomic_store(&kinds[kind], on);
        set_calls(kind, on);
        cm_sim_cupti_recompute();
    }
    cm_sim_cupti_unlock();
    if (on && result == CM_CUPTI_OK)
        cm_sim_cupti_buffers_start();
    return result;
}

CM_SIM_EXPORT int cuptiActivityEnable(uint32_t kind)
{
    return switch_kind(kind, true);
}

CM_SIM_EXPORT int cuptiActivityDisable(uint32_t kind)
{
    return switch_kind(kind, false);
}

/* Contexts, devices, ... that exist already would be told about: those kinds are not simulated. */
CM_SIM_EXPORT int cuptiActivityEnableAndDump(uint32_t kind)
{
    return switch_kind(kind, true);
}

static int switch_context(void *context, uint32_t kind, unsigned state)
{
    int device = cm_sim_cupti_context_device(context);

    if (device < 0)
        return CM_CUPTI_INVALID_CONTEXT;
    cm_sim_cupti_touch();
    cm_sim_cupti_lock();
    int result = state == ON                      ? check(kind)
                 : cm_sim_cupti_record_size(kind) ? 0
                                                  : CM_CUPTI_INVALID_KIND;
    if (result == CM_CUPTI_OK) {
        atomic_store(&context_kinds[device][kind], state);
        cm_sim_cupti_recompute();
    }
    cm_sim_cupti_unlock();
    if (state == ON && result == CM_CUPTI_OK)
        cm_sim_cupti_buffers_start();
    return result;
}

CM_SIM_EXPORT int cuptiActivityEnableContext(void *context, uint32_t kind)
{
    return switch_context(context, kind, ON);
}

CM_SIM_EXPORT int cuptiActivityDisableContext(void *context, uint32_t kind)
{
    return switch_context(context, kind, OFF);
}

/* --- Some calls only ---------------------------------------------------------------------------
 * Switching the kind afterwards overrides what was said of single calls. */

static int switch_call(int domain, uint32_t id, uint8_t enable)
{
    if (!id || id >= cm_sim_cupti_generation()->ids[domain])
        return CM_CUPTI_INVALID_PARAMETER;
    cm_sim_cupti_touch();
    cm_sim_cupti_lock();
    atomic_store(&calls[domain][id], enable != 0);
    cm_sim_cupti_recompute();
    cm_sim_cupti_unlock();
    if (enable)
        cm_sim_cupti_buffers_start();
    return CM_CUPTI_OK;
}

CM_SIM_EXPORT int cuptiActivityEnableDriverApi(uint32_t id, uint8_t enable)
{
    return switch_call(CM_CUPTI_DRIVER_API, id, enable);
}

CM_SIM_EXPORT int cuptiActivityEnableRuntimeApi(uint32_t id, uint8_t enable)
{
    return switch_call(CM_CUPTI_RUNTIME_API, id, enable);
}

/* --- Switches of detail ------------------------------------------------------------------------
 */

CM_SIM_EXPORT int cuptiActivityEnableAllocationSource(uint8_t enable)
{
    atomic_store(&want_source, enable != 0);
    return CM_CUPTI_OK;
}

CM_SIM_EXPORT int cuptiActivityEnableLatencyTimestamps(uint8_t enable)
{
    atomic_store(&want_latency, enable != 0);
    return CM_CUPTI_OK;
}

/* What these add to (launch attributes, device graphs, CUDA_EVENT and SYNCHRONIZATION records) does
 * not occur here. */
CM_SIM_EXPORT int cuptiActivityEnableLaunchAttributes(uint8_t enable)
{
    (void)enable;
    return CM_CUPTI_OK;
}

CM_SIM_EXPORT int cuptiActivityEnableDeviceGraph(uint8_t enable)
{
    (void)enable;
    return CM_CUPTI_OK;
}

CM_SIM_EXPORT int cuptiActivityEnableCudaEventDeviceTimestamps(uint8_t enable)
{
    (void)enable;
    return CM_CUPTI_OK;
}

CM_SIM_EXPORT int cuptiActivityEnableAllSyncRecords(uint8_t enable)
{
    (void)enable;
    return CM_CUPTI_OK;
}

/* Hardware event tracing is Blackwell's, which no profile is. */
CM_SIM_EXPORT int cuptiActivityEnableHWTrace(uint8_t enable)
{
    return enable ? CM_CUPTI_NOT_SUPPORTED : CM_CUPTI_OK;
}

CM_SIM_EXPORT int cuptiActivityConfigureUnifiedMemoryCounter(const void *config, uint32_t count)
{
    if (!config || !count)
        return CM_CUPTI_INVALID_PARAMETER;
    atomic_store(&unified_configured, true);
    return CM_CUPTI_OK;
}

/* --- Attributes --------------------------------------------------------------------------------
 */

enum { ATTRIBUTES = 11, PER_THREAD_BUFFER = 9 };

static const struct {
    uint8_t bytes;
    uint16_t since; /* generation */
    uint32_t initial;
} attribute_rows[ATTRIBUTES] = {
    {8, 0, 3200000},     /* DEVICE_BUFFER_SIZE */
    {8, 0, 8388608},     /* DEVICE_BUFFER_SIZE_CDP */
    {8, 0, 250},         /* DEVICE_BUFFER_POOL_LIMIT */
    {8, 0, 25000},       /* PROFILING_SEMAPHORE_POOL_SIZE */
    {8, 0, 250},         /* PROFILING_SEMAPHORE_POOL_LIMIT */
    {1, 0, 0},           /* ZEROED_OUT_ACTIVITY_BUFFER: whole records are written either way */
    {8, 0, 3},           /* DEVICE_BUFFER_PRE_ALLOCATE_VALUE */
    {8, 0, 3},           /* PROFILING_SEMAPHORE_PRE_ALLOCATE_VALUE */
    {1, 0, 0},           /* MEM_ALLOCATION_TYPE_HOST_PINNED */
    {1, 1203, 0},        /* PER_THREAD_ACTIVITY_BUFFER, from 13.0 on 1 */
    {8, 1209, 16777216}, /* DEVICE_BUFFER_SIZE_DEVICE_GRAPHS */
};

static atomic_uint_least64_t attributes[ATTRIBUTES];
static atomic_bool attribute_set[ATTRIBUTES];

static uint64_t attribute(unsigned which)
{
    if (atomic_load(&attribute_set[which]))
        return atomic_load(&attributes[which]);
    if (which == PER_THREAD_BUFFER)
        return cm_sim_cupti_generation()->number >= 1300;
    return attribute_rows[which].initial;
}

bool cm_sim_cupti_per_thread_buffers(void)
{
    return attribute(PER_THREAD_BUFFER) != 0;
}

static int check_attribute(unsigned which, const size_t *size, const void *value)
{
    if (!size || !value || which >= ATTRIBUTES ||
        attribute_rows[which].since > cm_sim_cupti_generation()->number)
        return CM_CUPTI_INVALID_PARAMETER;
    return *size < attribute_rows[which].bytes ? CM_CUPTI_SIZE_NOT_SUFFICIENT : CM_CUPTI_OK;
}

CM_SIM_EXPORT int cuptiActivityGetAttribute(uint32_t which, size_t *size, void *value)
{
    int result = check_attribute(which, size, value);
    if (result != CM_CUPTI_OK)
        return result;

    uint64_t number = attribute(which);
    memcpy(value, &number, attribute_rows[which].bytes); /* little-endian, as all that has CUDA */
    *size = attribute_rows[which].bytes;
    return CM_CUPTI_OK;
}

CM_SIM_EXPORT int cuptiActivitySetAttribute(uint32_t which, size_t *size, const void *value)
{
    int result = check_attribute(which, size, value);
    if (result != CM_CUPTI_OK)
        return result;

    uint64_t number = 0;
    memcpy(&number, value, attribute_rows[which].bytes);
    atomic_store(&attributes[which], number);
    atomic_store(&attribute_set[which], true);
    return CM_CUPTI_OK;
}

void cm_sim_cupti_activity_reset(void)
{
    for (unsigned i = 0; i < CM_CUPTI_KINDS; i++)
        atomic_store(&kinds[i], 0);
    for (size_t i = 0; i < sizeof context_kinds; i++)
        atomic_store(&(&context_kinds[0][0])[i], BY_GLOBAL);
    for (size_t i = 0; i < sizeof calls; i++)
        atomic_store(&(&calls[0][0])[i], 0);
    for (unsigned i = 0; i < ATTRIBUTES; i++)
        atomic_store(&attribute_set[i], false);
    atomic_store(&want_source, false);
    atomic_store(&want_latency, false);
    atomic_store(&unified_configured, false);
}

/* --- Reading a buffer --------------------------------------------------------------------------
 */

CM_SIM_EXPORT int cuptiActivityGetNextRecord(uint8_t *buffer, size_t valid,
                                             cm_cupti_record **record)
{
    uint32_t kind;
    size_t at = 0;

    if (!buffer || !record)
        return CM_CUPTI_INVALID_PARAMETER;
    if (*record) {
        at = (size_t)((uint8_t *)*record - buffer);
        if ((uint8_t *)*record < buffer || at >= valid)
            return CM_CUPTI_INVALID_PARAMETER;
        memcpy(&kind, *record, sizeof kind);
        at += cm_sim_cupti_record_size(kind);
    }
    if (at + sizeof kind > valid)
        return CM_CUPTI_MAX_LIMIT_REACHED;
    memcpy(&kind, buffer + at, sizeof kind);
    size_t bytes = cm_sim_cupti_record_size(kind);
    if (!bytes)
        return CM_CUPTI_INVALID_KIND;
    if (at + bytes > valid)
        return CM_CUPTI_MAX_LIMIT_REACHED;
    *record = (cm_cupti_record *)(buffer + at);
    return CM_CUPTI_OK;
}
