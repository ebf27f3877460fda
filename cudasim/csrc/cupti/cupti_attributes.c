/* Settings of the records, of each client; most of them are remembered and change nothing here. */
#include <string.h>

#include "cupti.h"

enum {
    ATTRIBUTES = 25,
    PER_THREAD_BUFFER = 9,
    USER_DEFINED_RECORDS = 11,
    MULTIPLE_SUBSCRIBERS = 12,
    HARDWARE_EVENTS = 13,
    ALLOCATION_SOURCE = 14,
    LATENCY = 15,
    TIMESTAMP_CALLBACK = 22
};

static const struct {
    uint8_t bytes;
    uint16_t since; /* generation */
    uint32_t initial;
} rows[ATTRIBUTES] = {
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
    {1, 1302, 0},        /* USER_DEFINED_RECORDS */
    {1, 1302, 0},        /* MULTIPLE_SUBSCRIBER_STATE */
    {1, 1302, 0},        /* ENABLE_HES */
    {1, 1302, 0},        /* ENABLE_ALLOCATION_SOURCE_TRACKING */
    {1, 1302, 0},        /* ENABLE_KERNEL_LATENCY_TIMESTAMPS */
    {1, 1302, 0},        /* ENABLE_ALL_SYNC_RECORDS */
    {1, 1302, 0},        /* ENABLE_CUDA_EVENT_DEVICE_TIMESTAMPS */
    {1, 1302, 0},        /* ENABLE_KERNEL_LAUNCH_ATTRIBUTES */
    {1, 1302, 0},        /* ENABLE_DEVICE_GRAPH_TRACE */
    {1, 1302, 0},        /* ENABLE_MULTI_SUBSCRIBER_GRAPH_TRACE */
    {4, 1302, 0},        /* THREAD_ID_TYPE */
    {8, 1302, 0},        /* TIMESTAMP_CALLBACK */
    {1, 1302, 0},        /* ENABLE_CIG_MODE */
    {8, 1305, 128},      /* HES_BUFFER_SIZE */
};

static struct {
    atomic_uint_least64_t value;
    atomic_bool set;
} attributes[CM_CUPTI_CLIENTS][ATTRIBUTES];

static uint64_t get(unsigned client, unsigned which)
{
    if (atomic_load_explicit(&attributes[client][which].set, memory_order_acquire))
        return atomic_load_explicit(&attributes[client][which].value, memory_order_relaxed);
    if (which == PER_THREAD_BUFFER)
        return cm_sim_cupti_generation()->number >= 1300;
    return which == MULTIPLE_SUBSCRIBERS ? cm_sim_cupti_several_state() : rows[which].initial;
}

static void set(unsigned client, unsigned which, uint64_t value)
{
    atomic_store(&attributes[client][which].value, value);
    atomic_store(&attributes[client][which].set, true);
}

bool cm_sim_cupti_per_thread_buffers(unsigned client)
{
    return get(client, PER_THREAD_BUFFER) != 0;
}

uint32_t cm_sim_cupti_source_clients(void)
{
    uint32_t clients = 0;

    for (unsigned client = 0; client < CM_CUPTI_CLIENTS; client++)
        clients |= (uint32_t)(get(client, ALLOCATION_SOURCE) != 0) << client;
    return clients;
}

/* All clients get the same record: those that did not ask for this, too. */
bool cm_sim_cupti_want_latency(void)
{
    for (unsigned client = 0; client < CM_CUPTI_CLIENTS; client++)
        if (get(client, LATENCY))
            return true;
    return false;
}

static int check(unsigned which, const size_t *size, const void *value)
{
    CM_CUPTI_NEEDS_DRIVER;
    if (!size || !value || which >= ATTRIBUTES ||
        rows[which].since > cm_sim_cupti_generation()->number)
        return CM_CUPTI_INVALID_PARAMETER;
    return *size < rows[which].bytes ? CM_CUPTI_SIZE_NOT_SUFFICIENT : CM_CUPTI_OK;
}

int cm_sim_cupti_get_attribute(unsigned client, uint32_t which, size_t *size, void *value)
{
    int result = check(which, size, value);
    if (result != CM_CUPTI_OK)
        return result;

    uint64_t number = get(client, which);
    memcpy(value, &number, rows[which].bytes); /* little-endian, as all that has CUDA */
    *size = rows[which].bytes;
    return CM_CUPTI_OK;
}

/* What would change the records and is not simulated. */
static int refuse(uint32_t which)
{
    static const char *const names[ATTRIBUTES] = {
        [USER_DEFINED_RECORDS] = "CUPTI: user-defined records",
        [HARDWARE_EVENTS] = "CUPTI: hardware events", /* Blackwell's, which no profile is */
        [TIMESTAMP_CALLBACK] = "CUPTI: a subscriber's own clock",
    };

    if (!names[which])
        return CM_CUPTI_OK;
    cm_sim_note(CM_SIM_NOTE_REFUSED, names[which], 0);
    return CM_CUPTI_NOT_SUPPORTED;
}

int cm_sim_cupti_set_attribute(unsigned client, uint32_t which, size_t *size, const void *value)
{
    int result = check(which, size, value);
    if (result != CM_CUPTI_OK)
        return result;

    uint64_t number = 0;
    memcpy(&number, value, rows[which].bytes);
    if (which == MULTIPLE_SUBSCRIBERS)
        return CM_CUPTI_INVALID_PARAMETER; /* chosen when subscribing */
    if (number && (result = refuse(which)) != CM_CUPTI_OK)
        return result;
    set(client, which, number);
    return CM_CUPTI_OK;
}

void cm_sim_cupti_attributes_reset(unsigned client)
{
    for (unsigned i = 0; i < ATTRIBUTES; i++)
        atomic_store(&attributes[client][i].set, false);
}

/* --- The first interface ---------------------------------------------------------------------- */

/* Which of the two interfaces may be used is asked before it is known. */
CM_SIM_EXPORT int cuptiActivityGetAttribute(uint32_t which, size_t *size, void *value)
{
    if (which != MULTIPLE_SUBSCRIBERS)
        CM_CUPTI_FIRST_INTERFACE;
    return cm_sim_cupti_get_attribute(CM_CUPTI_FIRST, which, size, value);
}

CM_SIM_EXPORT int cuptiActivitySetAttribute(uint32_t which, size_t *size, const void *value)
{
    CM_CUPTI_FIRST_INTERFACE;
    return cm_sim_cupti_set_attribute(CM_CUPTI_FIRST, which, size, value);
}

CM_SIM_EXPORT int cuptiActivityEnableCudaEventDeviceTimestamps(uint8_t on)
{
    (void)on;
    return CM_CUPTI_OK;
}

/* Hardware event tracing is Blackwell's, which no profile is. */
CM_SIM_EXPORT int cuptiActivityEnableHWTrace(uint8_t on)
{
    return on ? CM_CUPTI_NOT_SUPPORTED : CM_CUPTI_OK;
}
