/* What the core asks of the driver, without one: nobody is told. */
#include "core/sim.h"

void cm_sim_context_made(int device)
{
    (void)device;
}

int cm_sim_library_take(const char *library, size_t bytes, void **memory)
{
    return cm_sim_alloc(cm_sim_current_device(), CM_SIM_LIBRARY, bytes, library, memory);
}

void cm_sim_library_give(const char *library, void *memory)
{
    (void)library;
    cm_sim_free(memory, NULL);
}
