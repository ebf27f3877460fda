#include "runtime.h"

_Thread_local int cm_rt_last_error;

void cm_rt_enter(cm_sim_call *call, uint32_t id, const char *name, const void *parameters,
                 const char *symbol)
{
    cm_sim_runtime_enter(call, cm_sim_current_device(), id, name, parameters, symbol);
}

void cm_rt_exit(cm_sim_call *call, int result)
{
    cm_sim_runtime_exit(call, result);
}

/* A device that died of a fault answers everything with it, so there is nothing sticky here: what
 * is forgotten comes back with the next call. */
CM_SIM_EXPORT int cudaGetLastError(void)
{
    CM_RT_BEGIN_BARE(cudaGetLastError);
    int error = cm_rt_last_error;
    if (CM_RT_REPORTED)
        cm_rt_exit(&cm_call, error);
    cm_rt_last_error = CM_CUDA_OK;
    return error;
}

CM_SIM_EXPORT int cudaPeekAtLastError(void)
{
    CM_RT_BEGIN_BARE(cudaPeekAtLastError);
    int error = cm_rt_last_error;
    if (CM_RT_REPORTED)
        cm_rt_exit(&cm_call, error);
    return error;
}

CM_SIM_EXPORT const char *cudaGetErrorName(int error)
{
    CM_SIM_ENTRY;
    const char *name = cm_sim_error_name(error);
    return name ? name : "unrecognized error code";
}

CM_SIM_EXPORT const char *cudaGetErrorString(int error)
{
    CM_SIM_ENTRY;
    const char *text = cm_sim_error_name(error) ? cm_sim_error_text(error) : NULL;
    return text ? text : "unrecognized error code";
}
