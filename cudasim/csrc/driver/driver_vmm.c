/* Virtual memory: addresses and physical memory apart. PyTorch's expandable segments live here. */
#include "driver.h"

#include <string.h>

enum { GRANULARITY = 2 << 20 };
enum { TYPE_PINNED = 1 };

/* CUmemAllocationProp */
typedef struct properties {
    int type;
    int handle_types;
    cm_cuda_location location;
    void *windows;
    struct {
        unsigned char compression, rdma;
        unsigned short usage;
        unsigned char reserved[4];
    } flags;
} properties;

/* Physical memory can lie on a device only: host memory that others map is not simulated. */
static int check(const properties *asked)
{
    if (!asked || asked->type != TYPE_PINNED)
        return CM_SIM_INVALID_VALUE;
    if (asked->location.type != CM_CUDA_LOCATION_DEVICE) {
        cm_sim_note(CM_SIM_NOTE_REFUSED, "cuMemCreate on the host", 0);
        return CM_SIM_NOT_SUPPORTED;
    }
    int device = asked->location.id;
    return device < 0 || device >= cm_sim_config_get()->devices ? CM_SIM_INVALID_DEVICE : CM_SIM_OK;
}

CM_SIM_EXPORT int cuMemGetAllocationGranularity(size_t *bytes, const properties *asked, int option)
{
    CM_SIM_ENTRY;
    (void)option; /* the least is also what is recommended */
    int result = check(asked);
    if (!result && bytes)
        *bytes = GRANULARITY;
    return result;
}

CM_SIM_EXPORT int cuMemAddressReserve(uint64_t *address, size_t bytes, size_t alignment,
                                      uint64_t wish, unsigned long long flags)
{
    CM_CU_BEGIN(cuMemAddressReserve, address, bytes, alignment, wish, flags);
    int result = CM_SIM_INVALID_VALUE;
    if (address && bytes && bytes % GRANULARITY == 0 && !flags && !(alignment & (alignment - 1))) {
        void *made = NULL;
        result = cm_sim_reserve(bytes, alignment, &made);
        if (!result)
            *address = (uintptr_t)made;
    }
    CM_CU_END(result);
}

CM_SIM_EXPORT int cuMemAddressFree(uint64_t address, size_t bytes)
{
    CM_CU_BEGIN(cuMemAddressFree, address, bytes);
    CM_CU_END(cm_sim_unreserve((void *)address, bytes));
}

CM_SIM_EXPORT int cuMemCreate(unsigned long long *handle, size_t bytes, const properties *asked,
                              unsigned long long flags)
{
    CM_CU_BEGIN(cuMemCreate, handle, bytes, asked, flags);
    int result = check(asked);
    if (!result && (!handle || !bytes || bytes % GRANULARITY || flags))
        result = CM_SIM_INVALID_VALUE;
    cm_sim_physical *made = NULL;
    if (!result)
        result = cm_sim_create(asked->location.id, bytes, &made);
    if (!result)
        *handle = (uintptr_t)made;
    CM_CU_END(result);
}

CM_SIM_EXPORT int cuMemRelease(unsigned long long handle)
{
    CM_CU_BEGIN(cuMemRelease, handle);
    CM_CU_END(handle ? cm_sim_release((cm_sim_physical *)(uintptr_t)handle) : CM_SIM_INVALID_VALUE);
}

CM_SIM_EXPORT int cuMemMap(uint64_t address, size_t bytes, size_t offset, unsigned long long handle,
                           unsigned long long flags)
{
    CM_CU_BEGIN(cuMemMap, address, bytes, offset, handle, flags);
    int result = CM_SIM_INVALID_VALUE;
    if (handle && !flags)
        result = cm_sim_map((void *)address, bytes, offset, (cm_sim_physical *)(uintptr_t)handle);
    CM_CU_END(result);
}

CM_SIM_EXPORT int cuMemUnmap(uint64_t address, size_t bytes)
{
    CM_CU_BEGIN(cuMemUnmap, address, bytes);
    CM_CU_END(cm_sim_unmap((void *)address, bytes));
}

CM_SIM_EXPORT int cuMemSetAccess(uint64_t address, size_t bytes, const cm_cuda_access *access,
                                 size_t count)
{
    CM_CU_BEGIN(cuMemSetAccess, address, bytes, access, count);
    int result = access && count ? CM_SIM_OK : CM_SIM_INVALID_VALUE;
    /* Memory is one for all devices: what any of them may write may be written. */
    bool writable = false, devices = false;
    for (size_t i = 0; !result && i < count; i++) {
        int flags = access[i].flags;
        bool device = access[i].location.type == CM_CUDA_LOCATION_DEVICE;
        if (flags != CM_CUDA_ACCESS_NONE && flags != CM_CUDA_ACCESS_READ &&
            flags != CM_CUDA_ACCESS_READ_WRITE)
            result = CM_SIM_INVALID_VALUE;
        else if (device && (access[i].location.id < 0 ||
                            access[i].location.id >= cm_sim_config_get()->devices))
            result = CM_SIM_INVALID_DEVICE;
        writable |= flags == CM_CUDA_ACCESS_READ_WRITE;
        devices |= device;
    }
    if (!result && devices)
        result = cm_sim_access((void *)address, bytes, writable);
    CM_CU_END(result);
}

CM_SIM_EXPORT int cuMemRetainAllocationHandle(unsigned long long *handle, void *address)
{
    CM_CU_BEGIN(cuMemRetainAllocationHandle, handle, address);
    cm_sim_physical *found = handle ? cm_sim_retain(address) : NULL;
    if (found)
        *handle = (uintptr_t)found;
    CM_CU_END(found ? CM_SIM_OK : CM_SIM_INVALID_VALUE);
}

CM_SIM_EXPORT int cuMemGetAllocationPropertiesFromHandle(properties *out, unsigned long long handle)
{
    CM_SIM_ENTRY;
    if (!out || !handle)
        return CM_SIM_INVALID_VALUE;
    int device = cm_sim_physical_device((cm_sim_physical *)(uintptr_t)handle);
    if (device < 0)
        return CM_SIM_INVALID_VALUE;
    memset(out, 0, sizeof *out);
    out->type = TYPE_PINNED;
    out->location = (cm_cuda_location){CM_CUDA_LOCATION_DEVICE, device};
    return CM_SIM_OK;
}
