/* Memory of other processes under the runtime's names: refused, as the driver call inside of each
 * is. */
#include "runtime.h"

static const char ipc[] = "CUDA IPC";

CM_SIM_EXPORT int cudaIpcGetMemHandle(cm_cuda_ipc_handle *handle, void *address)
{
    CM_RT_BEGIN(cudaIpcGetMemHandle, handle, address);
    CM_RT_END(cm_rt_refuse(ipc));
}

CM_SIM_EXPORT int cudaIpcOpenMemHandle(void **address, cm_cuda_ipc_handle handle, unsigned flags)
{
    CM_RT_BEGIN(cudaIpcOpenMemHandle, address, handle, flags);
    CM_RT_DRIVER(cuIpcOpenMemHandle_v2, (uint64_t *)address, handle, flags);
    int result = cm_rt_refuse(ipc);
    CM_RT_DRIVER_END(result);
    CM_RT_END(result);
}

CM_SIM_EXPORT int cudaIpcCloseMemHandle(void *address)
{
    CM_RT_BEGIN(cudaIpcCloseMemHandle, address);
    CM_RT_DRIVER(cuIpcCloseMemHandle, (uintptr_t)address);
    int result = cm_rt_refuse(ipc);
    CM_RT_DRIVER_END(result);
    CM_RT_END(result);
}

CM_SIM_EXPORT int cudaIpcGetEventHandle(cm_cuda_ipc_handle *handle, cm_sim_event *event)
{
    CM_RT_BEGIN(cudaIpcGetEventHandle, handle, event);
    CM_RT_END(cm_rt_refuse(ipc));
}

CM_SIM_EXPORT int cudaIpcOpenEventHandle(cm_sim_event **event, cm_cuda_ipc_handle handle)
{
    CM_RT_BEGIN(cudaIpcOpenEventHandle, event, handle);
    CM_RT_END(cm_rt_refuse(ipc));
}
