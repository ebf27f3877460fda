/* Names of the driver's and the runtime's callbacks, by their numbers. */
#include "cupti.h"

#include "generated/callbacks.h"

enum { DRIVER = sizeof driver / sizeof driver[0], RUNTIME = sizeof runtime / sizeof runtime[0] };

const char *cm_sim_cupti_name(int domain, uint32_t id)
{
    const cm_cupti_generation *generation = cm_sim_cupti_generation();

    if (domain == CM_CUPTI_DRIVER_API && id < generation->ids[domain] && id < DRIVER)
        return driver[id];
    if (domain == CM_CUPTI_RUNTIME_API && id < generation->ids[domain] && id < RUNTIME)
        return runtime[id];
    return NULL;
}
