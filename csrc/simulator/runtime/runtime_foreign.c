/* Memory of other processes and other APIs under the runtime's names: refused, as the driver call
 * inside of each is. */
#include "runtime.h"

static const char ipc[] = "CUDA IPC", external[] = "memory of other APIs";

/* --- memory of other processes ---------------------------------------------------------------- */

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

CM_SIM_EXPORT int cudaMemPoolImportFromShareableHandle(cm_sim_pool **pool, void *handle, int type,
                                                       unsigned flags)
{
    CM_RT_BEGIN(cudaMemPoolImportFromShareableHandle, (void **)pool, handle, type, flags);
    CM_RT_DRIVER(cuMemPoolImportFromShareableHandle, (void **)pool, handle, type, flags);
    int result = cm_rt_refuse(ipc);
    CM_RT_DRIVER_END(result);
    CM_RT_END(result);
}

CM_SIM_EXPORT int cudaMemPoolImportPointer(void **address, cm_sim_pool *pool, void *data)
{
    CM_RT_BEGIN(cudaMemPoolImportPointer, address, pool, data);
    CM_RT_DRIVER(cuMemPoolImportPointer, (uint64_t *)address, pool, data);
    int result = cm_rt_refuse(ipc);
    CM_RT_DRIVER_END(result);
    CM_RT_END(result);
}

/* --- other APIs ------------------------------------------------------------------------------- */

CM_SIM_EXPORT int cudaImportExternalMemory(void **memory, const void *description)
{
    CM_RT_BEGIN(cudaImportExternalMemory, memory, description);
    CM_RT_DRIVER(cuImportExternalMemory, memory, description);
    int result = cm_rt_refuse(external);
    CM_RT_DRIVER_END(result);
    CM_RT_END(result);
}

CM_SIM_EXPORT int cudaDestroyExternalMemory(void *memory)
{
    CM_RT_BEGIN(cudaDestroyExternalMemory, memory);
    CM_RT_DRIVER(cuDestroyExternalMemory, memory);
    int result = cm_rt_refuse(external);
    CM_RT_DRIVER_END(result);
    CM_RT_END(result);
}

CM_SIM_EXPORT int cudaExternalMemoryGetMappedBuffer(void **address, void *memory,
                                                    const void *description)
{
    CM_RT_BEGIN(cudaExternalMemoryGetMappedBuffer, address, memory, description);
    CM_RT_DRIVER(cuExternalMemoryGetMappedBuffer, (uint64_t *)address, memory, description);
    int result = cm_rt_refuse(external);
    CM_RT_DRIVER_END(result);
    CM_RT_END(result);
}

CM_SIM_EXPORT int cudaExternalMemoryGetMappedMipmappedArray(void **array, void *memory,
                                                            const void *description)
{
    CM_RT_BEGIN(cudaExternalMemoryGetMappedMipmappedArray, array, memory, description);
    CM_RT_DRIVER(cuExternalMemoryGetMappedMipmappedArray, array, memory, description);
    int result = cm_rt_refuse(external);
    CM_RT_DRIVER_END(result);
    CM_RT_END(result);
}
