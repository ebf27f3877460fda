/* The second interface, of 13.2 and 13.3: what the first does for the process, for one subscriber
 * of several. Predefined records only; those that a client puts together itself are refused
 * (cupti_attributes.c). */
#include "cupti.h"

/* The client that a subscriber is. One of the first interface is none: the two do not mix. */
static int client_of(const void *handle, unsigned *client)
{
    *client = cm_sim_cupti_client_of(handle);
    if (!*client)
        return CM_CUPTI_INVALID_PARAMETER;
    return cm_sim_cupti_second(handle) ? CM_CUPTI_OK : CM_CUPTI_MULTIPLE_SUBSCRIBERS;
}

static int switch_kind(const void *handle, uint32_t kind, bool on)
{
    unsigned client;
    int result = client_of(handle, &client);

    return result ? result : cm_sim_cupti_switch_kind(client, kind, on);
}

/* A configuration chooses the fields of records, or calls by their numbers: neither is simulated.
 */
static int no_configuration(const void *configuration)
{
    if (!configuration)
        return CM_CUPTI_OK;
    cm_sim_note(CM_SIM_NOTE_REFUSED, "CUPTI: an activity's configuration", 0);
    return CM_CUPTI_NOT_SUPPORTED;
}

CM_SIM_EXPORT int cuptiActivityEnable_v2(void *handle, uint32_t kind, const void *configuration)
{
    int result = no_configuration(configuration);

    return result ? result : switch_kind(handle, kind, true);
}

CM_SIM_EXPORT int cuptiActivityDisable_v2(void *handle, uint32_t kind, const void *configuration)
{
    int result = no_configuration(configuration);

    return result ? result : switch_kind(handle, kind, false);
}

CM_SIM_EXPORT int cuptiActivityRegisterCallbacks_v2(void *handle, void *request, void *complete)
{
    unsigned client;
    int result = client_of(handle, &client);

    return result ? result : cm_sim_cupti_register(client, request, complete);
}

/* Which of the interfaces may be used can be asked with no subscriber at all. */
CM_SIM_EXPORT int cuptiActivityGetAttribute_v2(void *handle, uint32_t which, size_t *size,
                                               void *value)
{
    enum { MULTIPLE_SUBSCRIBERS = 12 };
    unsigned client = CM_CUPTI_FIRST;
    int result = which == MULTIPLE_SUBSCRIBERS ? CM_CUPTI_OK : client_of(handle, &client);

    return result ? result : cm_sim_cupti_get_attribute(client, which, size, value);
}

CM_SIM_EXPORT int cuptiActivitySetAttribute_v2(void *handle, uint32_t which, size_t *size,
                                               const void *value)
{
    unsigned client;
    int result = client_of(handle, &client);

    return result ? result : cm_sim_cupti_set_attribute(client, which, size, value);
}

static int switch_call(const void *handle, int domain, uint32_t id, uint8_t enable)
{
    unsigned client;
    int result = client_of(handle, &client);

    return result ? result : cm_sim_cupti_switch_call(client, domain, id, enable);
}

CM_SIM_EXPORT int cuptiActivityEnableDriverApi_v2(void *handle, uint32_t id, uint8_t enable)
{
    return switch_call(handle, CM_CUPTI_DRIVER_API, id, enable);
}

CM_SIM_EXPORT int cuptiActivityEnableRuntimeApi_v2(void *handle, uint32_t id, uint8_t enable)
{
    return switch_call(handle, CM_CUPTI_RUNTIME_API, id, enable);
}

CM_SIM_EXPORT int cuptiActivityGetNumDroppedRecords_v2(void *handle, void *context, uint32_t stream,
                                                       size_t *count)
{
    unsigned client;
    int result = client_of(handle, &client);

    (void)context, (void)stream;
    if (result || !count)
        return result ? result : CM_CUPTI_INVALID_PARAMETER;
    *count = cm_sim_cupti_dropped(client);
    return CM_CUPTI_OK;
}

CM_SIM_EXPORT int cuptiActivityGetNextRecord_v2(void *handle, uint8_t *buffer, size_t valid,
                                                cm_cupti_record **record)
{
    CM_CUPTI_NEEDS_DRIVER;
    return cm_sim_cupti_client_of(handle) ? cm_sim_cupti_next(buffer, valid, record)
                                          : CM_CUPTI_INVALID_PARAMETER;
}

CM_SIM_EXPORT int cuptiActivityPushExternalCorrelationId_v2(void *handle, uint32_t kind,
                                                            uint64_t id)
{
    unsigned client;
    int result = client_of(handle, &client);

    return result ? result : cm_sim_cupti_external_push(client, kind, id);
}

CM_SIM_EXPORT int cuptiActivityPopExternalCorrelationId_v2(void *handle, uint32_t kind,
                                                           uint64_t *last)
{
    unsigned client;
    int result = client_of(handle, &client);

    return result ? result : cm_sim_cupti_external_pop(client, kind, last);
}

CM_SIM_EXPORT int cuptiGetTimestamp_v2(void *handle, uint64_t *time)
{
    if (!cm_sim_cupti_client_of(handle) || !time)
        return CM_CUPTI_INVALID_PARAMETER;
    *time = cm_sim_cupti_now();
    return CM_CUPTI_OK;
}

/* version 0: the one that is here; else xxyyzz, from 13.0 on. */
CM_SIM_EXPORT int cuptiActivityGetStructSize(uint32_t kind, uint32_t version, size_t *size)
{
    enum { LEAST = 130000, MINOR = 100 };
    const cm_cupti_generation *now = cm_sim_cupti_generation();

    CM_CUPTI_NEEDS_DRIVER;
    if (!size)
        return CM_CUPTI_INVALID_PARAMETER;
    if (version && version < LEAST)
        return CM_CUPTI_NOT_SUPPORTED;
    size_t bytes = cm_sim_cupti_record_size_of(kind, version ? version / MINOR : now->number);
    if (!bytes)
        return CM_CUPTI_INVALID_KIND;
    *size = bytes;
    return CM_CUPTI_OK;
}
