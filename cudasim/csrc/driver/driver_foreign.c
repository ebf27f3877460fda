/* Memory of other processes and of several devices at once: none of it is simulated. Each
 * call is refused by name, and CUPTI reports that it failed. */
#include "driver.h"

static int refuse(const char *what)
{
    cm_sim_note(CM_SIM_NOTE_REFUSED, what, 0);
    return CM_SIM_NOT_SUPPORTED;
}

/* Of a call that CUPTI does not report. */
static int refuse_quietly(const char *what)
{
    CM_SIM_ENTRY;
    return refuse(what);
}

static const char ipc[] = "CUDA IPC";

/* --- other processes -------------------------------------------------------------------------- */

CM_SIM_EXPORT int cuMemExportToShareableHandle(void *out, unsigned long long handle, int type,
                                               unsigned long long flags)
{
    (void)out, (void)handle, (void)type, (void)flags;
    return refuse_quietly(ipc);
}

CM_SIM_EXPORT int cuMemImportFromShareableHandle(unsigned long long *handle, void *other, int type)
{
    CM_CU_BEGIN(cuMemImportFromShareableHandle, handle, other, type);
    CM_CU_END(refuse(ipc));
}

CM_SIM_EXPORT int cuIpcGetMemHandle(void *handle, uint64_t address)
{
    (void)handle, (void)address;
    return refuse_quietly(ipc);
}

CM_SIM_EXPORT int cuIpcOpenMemHandle_v2(uint64_t *address, cm_cuda_ipc_handle handle,
                                        unsigned flags)
{
    CM_CU_BEGIN(cuIpcOpenMemHandle_v2, address, handle, flags);
    CM_CU_END(refuse(ipc));
}
CM_SIM_ALIAS(cuIpcOpenMemHandle_v2, cuIpcOpenMemHandle);

CM_SIM_EXPORT int cuIpcCloseMemHandle(uint64_t address)
{
    CM_CU_BEGIN(cuIpcCloseMemHandle, address);
    CM_CU_END(refuse(ipc));
}

CM_SIM_EXPORT int cuMemPoolExportToShareableHandle(void *handle, cm_sim_pool *pool, int type,
                                                   unsigned long long flags)
{
    (void)handle, (void)pool, (void)type, (void)flags;
    return refuse_quietly(ipc);
}

CM_SIM_EXPORT int cuMemPoolImportFromShareableHandle(cm_sim_pool **pool, void *handle, int type,
                                                     unsigned long long flags)
{
    CM_CU_BEGIN(cuMemPoolImportFromShareableHandle, (void **)pool, handle, type, flags);
    CM_CU_END(refuse(ipc));
}

CM_SIM_EXPORT int cuMemPoolExportPointer(void *data, uint64_t address)
{
    (void)data, (void)address;
    return refuse_quietly(ipc);
}

CM_SIM_EXPORT int cuMemPoolImportPointer(uint64_t *address, cm_sim_pool *pool, void *data)
{
    CM_CU_BEGIN(cuMemPoolImportPointer, address, pool, data);
    CM_CU_END(refuse(ipc));
}

/* --- several devices -------------------------------------------------------------------------- */

CM_SIM_EXPORT int cuMulticastCreate(unsigned long long *handle, const void *properties)
{
    CM_CU_BEGIN(cuMulticastCreate, handle, properties);
    CM_CU_END(refuse("multicast objects"));
}
