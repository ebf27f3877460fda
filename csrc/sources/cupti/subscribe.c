/* Subscribing to CUPTI, by the three interfaces of its releases. */
#include <stdio.h>
#include <string.h>

#include "callbacks.h"

enum {
    MAX_LIMIT_REACHED = 12, /* another subscriber, in old releases */
    MULTIPLE_SUBSCRIBERS = 39,
    NAME_SIZE = 64,
    SIZE_NAMES = 32, /* CUpti_SubscriberParams of 13.0 and 13.1 */
    SIZE_MULTIPLE = 40
};

/* CUpti_SubscriberParams. */
typedef struct parameters {
    size_t size;
    const char *name;
    char *old_name;
    size_t old_name_size;
    uint8_t allow_multiple, padding[7];
} parameters;
_Static_assert(sizeof(parameters) == SIZE_MULTIPLE, "as in the headers of 13.2 and later");

/* --- refusals ----------------------------------------------------------------------------------
 */

static const struct {
    int result;
    const char *cause, *fix;
} meanings[] = {
    {8, "CUPTI has no memory", "free some of the host's"},
    {14, "this CUPTI and the driver do not fit together",
     "install the CUPTI of the driver's CUDA release"},
    {15, "CUPTI cannot start, as when the driver is older than it",
     "update the driver, or install the CUPTI of the driver's CUDA release"},
    {27, "CUPTI does not support this system", "see nvidia-smi"},
    {33, "CUPTI is not licensed for this virtual GPU", "enable profiling in the vGPU's settings"},
    {35, "the driver lets only the administrator profile",
     "set NVreg_RestrictProfilingToAdminUsers=0, or give the container --cap-add=SYS_ADMIN"},
    {38, "CUPTI does not support so old a device", "use one of compute capability 7.5 or later"},
    {40, "CUPTI is not enabled on this virtual GPU", "set the vGPU's enable_profiling"},
    {41, "the device is in confidential computing mode", "use its devtools mode"},
    {42, "CUPTI does not work on mining processors", "use another device"},
    {43, "CUPTI does not work on this MIG instance", "use a whole GPU, or a newer driver"},
    {44, "CUPTI does not work while SLI is on", "turn it off"},
    {45, "CUPTI does not work in this WSL", "update the driver of Windows, and WSL"},
    {999, "CUPTI does not reach the NVIDIA driver",
     "see nvidia-smi; a container needs --gpus all and "
     "NVIDIA_DRIVER_CAPABILITIES=compute,utility"},
};

void cm_cupti_explain(int result, const char *holder, char *text, size_t size)
{
    const char *cause = "CUPTI refuses", *fix = "see nvidia-smi";

    for (size_t i = 0; i < sizeof meanings / sizeof meanings[0]; i++) {
        if (meanings[i].result != result)
            continue;
        cause = meanings[i].cause;
        fix = meanings[i].fix;
    }
    if (result != MULTIPLE_SUBSCRIBERS && result != MAX_LIMIT_REACHED)
        snprintf(text, size, "%s: error %d (%s)", cause, result, fix);
    else if (holder[0] != '\0')
        snprintf(text, size, "another profiler, %s, holds CUPTI: error %d (run without it)", holder,
                 result);
    else
        snprintf(text, size,
                 "another profiler holds CUPTI: error %d (run without it; torch.profiler keeps it "
                 "from its first use on)",
                 result);
}

/* --- subscribing -------------------------------------------------------------------------------
 */

/* 13.2 lacks the last of these functions, and its multi-subscriber interface slows every call. */
static bool has_multiple(const cm_cupti_api *api)
{
    return api->Subscribe_v2 != NULL && api->ActivityEnable_v2 != NULL &&
           api->ActivityRegisterCallbacks_v2 != NULL && api->ActivityGetNextRecord_v2 != NULL;
}

static int subscribe_by_name(cm_cupti_link *link, size_t size, char *holder)
{
    parameters asked = {
        .size = size,
        .name = "cuptimem",
        .old_name = holder,
        .old_name_size = NAME_SIZE,
        .allow_multiple = size == SIZE_MULTIPLE,
    };

    return link->api->Subscribe_v2(&link->subscriber, cm_cupti_callback_hook, NULL, &asked);
}

static int subscribe(cm_cupti_link *link, bool v1_only, char *holder)
{
    const cm_cupti_api *api = link->api;
    bool multiple = has_multiple(api);

    /* All clients of a process must use the same interface and agree on allow_multiple. */
    if (multiple && !v1_only) {
        int result = subscribe_by_name(link, SIZE_MULTIPLE, holder);
        link->v2 = result == 0;
        if (result == 0 || (result == MULTIPLE_SUBSCRIBERS && holder[0] != '\0'))
            return result;
        /* An old driver returns the same error as a taken subscription: try the old interface. */
    } else if (api->Subscribe_v2 != NULL && !multiple) {
        /* Does what the old one does, and exchanges the clients' names. */
        int result = subscribe_by_name(link, SIZE_NAMES, holder);
        if (result == 0 || result == MULTIPLE_SUBSCRIBERS)
            return result;
    }
    return api->Subscribe(&link->subscriber, cm_cupti_callback_hook, NULL);
}

bool cm_cupti_subscribe(cm_cupti_link *link, cm_cupti_api *api, bool v1_only, char *why,
                        size_t why_size)
{
    char holder[NAME_SIZE] = "";

    *link = (cm_cupti_link){.api = api};
    int result = subscribe(link, v1_only, holder);
    if (result == 0) {
        if (api->GetVersion == NULL || api->GetVersion(&api->version) != 0)
            api->version = 0;
        return true;
    }
    holder[NAME_SIZE - 1] = '\0';
    /* CUPTI puts "CUPTI for " before every name, and "CUPTI" for a client without one. */
    if (strncmp(holder, "CUPTI for ", 10) == 0)
        memmove(holder, holder + 10, NAME_SIZE - 10);
    else if (strcmp(holder, "CUPTI") == 0)
        holder[0] = '\0';
    for (char *c = holder; *c != '\0'; c++)
        if ((unsigned char)*c < ' ')
            *c = ' ';
    cm_cupti_explain(result, holder, why, why_size);
    *link = (cm_cupti_link){.api = api};
    return false;
}

void cm_cupti_unsubscribe(cm_cupti_link *link)
{
    if (link->subscriber != NULL)
        link->api->Unsubscribe(link->subscriber);
    *link = (cm_cupti_link){.api = link->api};
}
