/* Which activity records each client asked for, and how it reads them.
 *
 * With the first interface all of this is one state per process: the last client to register or to
 * switch off wins. */
#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "cupti.h"

enum { BY_GLOBAL = 0, ON = 1, OFF = 2 };

/* A bit for each client. */
static atomic_uint kinds[CM_CUPTI_KINDS];
static atomic_uint calls[CM_CUPTI_RUNTIME_API + 1][CM_CUPTI_IDS]; /* recorded, by domain and id */
/* Of the first interface. */
static atomic_uchar context_kinds[CM_SIM_DEVICES][CM_CUPTI_KINDS]; /* BY_GLOBAL, ON, OFF */
static atomic_bool unified_configured;

/* --- Kinds ------------------------------------------------------------------------------------ */

uint32_t cm_sim_cupti_clients(uint32_t kind, int device)
{
    uint32_t wanting = atomic_load_explicit(&kinds[kind], memory_order_relaxed);
    unsigned own = atomic_load_explicit(&context_kinds[device][kind], memory_order_relaxed);
    uint32_t first = 1u << CM_CUPTI_FIRST;

    return own == BY_GLOBAL ? wanting : own == ON ? wanting | first : wanting & ~first;
}

uint32_t cm_sim_cupti_api_clients(int domain, uint32_t id)
{
    return id < CM_CUPTI_IDS ? atomic_load_explicit(&calls[domain][id], memory_order_relaxed) : 0;
}

static bool any(const atomic_uint *sets, size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (atomic_load_explicit(&sets[i], memory_order_relaxed))
            return true;
    return false;
}

bool cm_sim_cupti_any_kind_on(void)
{
    const atomic_uchar *of_contexts = &context_kinds[0][0];

    for (size_t i = 0; i < sizeof context_kinds; i++)
        if (atomic_load_explicit(&of_contexts[i], memory_order_relaxed) == ON)
            return true;
    return any(kinds, CM_CUPTI_KINDS) || any(&calls[0][0], sizeof calls / sizeof calls[0][0]);
}

static void set(atomic_uint *set_of, unsigned client, bool on)
{
    if (on)
        atomic_fetch_or_explicit(set_of, 1u << client, memory_order_relaxed);
    else
        atomic_fetch_and_explicit(set_of, ~(1u << client), memory_order_relaxed);
}

bool cm_sim_cupti_is_on(unsigned client, uint32_t kind)
{
    return atomic_load(&kinds[kind]) >> client & 1;
}

bool cm_sim_cupti_client_on(unsigned client)
{
    for (uint32_t kind = 0; kind < CM_CUPTI_KINDS; kind++)
        if (cm_sim_cupti_is_on(client, kind))
            return true;
    return false;
}

/* Kinds that simulated calls leave records of, or correctly never do (there is no overhead here).
 * The others leave none, which the report states. */
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

static int check(unsigned client, uint32_t kind)
{
    char name[64];

    if (!cm_sim_cupti_record_size(kind))
        return CM_CUPTI_INVALID_KIND;
    if (kind == CM_CUPTI_UNIFIED_MEMORY_COUNTER && !atomic_load(&unified_configured))
        return CM_CUPTI_NOT_READY;
    /* One makes kernels run one after the other, the other does not. */
    if ((kind == CM_CUPTI_KERNEL && cm_sim_cupti_is_on(client, CM_CUPTI_CONCURRENT_KERNEL)) ||
        (kind == CM_CUPTI_CONCURRENT_KERNEL && cm_sim_cupti_is_on(client, CM_CUPTI_KERNEL)))
        return CM_CUPTI_NOT_COMPATIBLE;
    if (!simulated(kind)) {
        snprintf(name, sizeof name, "CUPTI records of kind %u", kind);
        cm_sim_note(CM_SIM_NOTE_REFUSED, name, 0);
    }
    return CM_CUPTI_OK;
}

static void set_calls(unsigned client, uint32_t kind, bool on)
{
    if (kind == CM_CUPTI_DRIVER || kind == CM_CUPTI_RUNTIME) {
        int domain = kind == CM_CUPTI_DRIVER ? CM_CUPTI_DRIVER_API : CM_CUPTI_RUNTIME_API;
        for (size_t id = 0; id < CM_CUPTI_IDS; id++)
            set(&calls[domain][id], client, on);
    }
}

int cm_sim_cupti_switch_kind(unsigned client, uint32_t kind, bool on)
{
    CM_CUPTI_NEEDS_DRIVER;
    cm_sim_cupti_touch();
    cm_sim_cupti_lock();
    int result = on                               ? check(client, kind)
                 : cm_sim_cupti_record_size(kind) ? 0
                                                  : CM_CUPTI_INVALID_KIND;
    if (result == CM_CUPTI_OK) {
        set(&kinds[kind], client, on);
        set_calls(client, kind, on);
        cm_sim_cupti_recompute();
    }
    cm_sim_cupti_unlock();
    if (on && result == CM_CUPTI_OK)
        cm_sim_cupti_delivery_start();
    return result;
}

CM_SIM_EXPORT int cuptiActivityEnable(uint32_t kind)
{
    CM_CUPTI_FIRST_INTERFACE;
    return cm_sim_cupti_switch_kind(CM_CUPTI_FIRST, kind, true);
}

CM_SIM_EXPORT int cuptiActivityDisable(uint32_t kind)
{
    CM_CUPTI_FIRST_INTERFACE;
    return cm_sim_cupti_switch_kind(CM_CUPTI_FIRST, kind, false);
}

static int switch_context(void *context, uint32_t kind, unsigned state)
{
    int device = cm_sim_cupti_context_device(context);

    CM_CUPTI_FIRST_INTERFACE;
    CM_CUPTI_NEEDS_DRIVER;
    if (device < 0)
        return CM_CUPTI_INVALID_CONTEXT;
    cm_sim_cupti_touch();
    cm_sim_cupti_lock();
    int result = state == ON                      ? check(CM_CUPTI_FIRST, kind)
                 : cm_sim_cupti_record_size(kind) ? 0
                                                  : CM_CUPTI_INVALID_KIND;
    if (result == CM_CUPTI_OK) {
        atomic_store(&context_kinds[device][kind], state);
        cm_sim_cupti_recompute();
    }
    cm_sim_cupti_unlock();
    if (state == ON && result == CM_CUPTI_OK)
        cm_sim_cupti_delivery_start();
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
 * Switching the kind afterwards overrides settings of single calls. */

int cm_sim_cupti_switch_call(unsigned client, int domain, uint32_t id, uint8_t enable)
{
    CM_CUPTI_NEEDS_DRIVER;
    if (!id || id >= cm_sim_cupti_generation()->ids[domain])
        return CM_CUPTI_INVALID_PARAMETER;
    cm_sim_cupti_touch();
    cm_sim_cupti_lock();
    set(&calls[domain][id], client, enable != 0);
    cm_sim_cupti_recompute();
    cm_sim_cupti_unlock();
    if (enable)
        cm_sim_cupti_delivery_start();
    return CM_CUPTI_OK;
}

CM_SIM_EXPORT int cuptiActivityEnableDriverApi(uint32_t id, uint8_t enable)
{
    CM_CUPTI_FIRST_INTERFACE;
    return cm_sim_cupti_switch_call(CM_CUPTI_FIRST, CM_CUPTI_DRIVER_API, id, enable);
}

CM_SIM_EXPORT int cuptiActivityEnableRuntimeApi(uint32_t id, uint8_t enable)
{
    CM_CUPTI_FIRST_INTERFACE;
    return cm_sim_cupti_switch_call(CM_CUPTI_FIRST, CM_CUPTI_RUNTIME_API, id, enable);
}

CM_SIM_EXPORT int cuptiActivityConfigureUnifiedMemoryCounter(const void *config, uint32_t count)
{
    if (!config || !count)
        return CM_CUPTI_INVALID_PARAMETER;
    atomic_store(&unified_configured, true);
    return CM_CUPTI_OK;
}

void cm_sim_cupti_activity_reset_client(unsigned client)
{
    for (unsigned i = 0; i < CM_CUPTI_KINDS; i++)
        set(&kinds[i], client, false);
    for (size_t i = 0; i < sizeof calls / sizeof calls[0][0]; i++)
        set(&(&calls[0][0])[i], client, false);
    cm_sim_cupti_attributes_reset(client);
}

void cm_sim_cupti_activity_reset(void)
{
    for (unsigned client = 0; client < CM_CUPTI_CLIENTS; client++)
        cm_sim_cupti_activity_reset_client(client);
    for (size_t i = 0; i < sizeof context_kinds; i++)
        atomic_store(&(&context_kinds[0][0])[i], BY_GLOBAL);
    atomic_store(&unified_configured, false);
}

/* --- Reading a buffer ------------------------------------------------------------------------- */

int cm_sim_cupti_next(uint8_t *buffer, size_t valid, cm_cupti_record **record)
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

CM_SIM_EXPORT int cuptiActivityGetNextRecord(uint8_t *buffer, size_t valid,
                                             cm_cupti_record **record)
{
    enum { WITHOUT_SUBSCRIBER = 1302, NEEDS_DRIVER = 1303 };

    if (cm_sim_cupti_generation()->number >= NEEDS_DRIVER)
        CM_CUPTI_NEEDS_DRIVER;
    if (cm_sim_cupti_generation()->number == WITHOUT_SUBSCRIBER && !cm_sim_cupti_subscribers())
        cm_sim_cupti_walk_alone();
    return cm_sim_cupti_next(buffer, valid, record);
}
