/* Device and host memory, and what a pointer is. */
#include "driver.h"

#include <string.h>

static void record(const cm_sim_call *call, int operation, int kind, int device, uint64_t address,
                   size_t bytes)
{
    cm_sim_record_memory(call, &(cm_sim_memory_event){.operation = operation,
                                                      .kind = kind,
                                                      .device = device,
                                                      .address = (void *)address,
                                                      .bytes = bytes});
}

/* --- device memory ---------------------------------------------------------------------------- */

static int allocate(cm_sim_kind kind, size_t bytes, uint64_t *address)
{
    int device = cm_cu_device();
    if (device < 0)
        return CM_SIM_INVALID_CONTEXT;
    if (!address || !bytes)
        return CM_SIM_INVALID_VALUE;
    int result = cm_sim_capture_permits();
    if (result)
        return result;
    void *made = NULL;
    result = cm_sim_alloc(device, kind, bytes, NULL, &made);
    if (!result)
        *address = (uintptr_t)made;
    return result;
}

CM_SIM_EXPORT int cuMemAlloc_v2(uint64_t *address, size_t bytes)
{
    CM_CU_BEGIN(cuMemAlloc_v2, address, bytes);
    int result = allocate(CM_SIM_DEVICE, bytes, address);
    if (CM_CU_REPORTED && !result)
        record(&cm_call, CM_CU_ALLOCATED, CM_CU_KIND_DEVICE, cm_cu_device(), *address, bytes);
    CM_CU_END(result);
}

CM_SIM_EXPORT int cuMemAllocManaged(uint64_t *address, size_t bytes, unsigned flags)
{
    CM_CU_BEGIN(cuMemAllocManaged, address, bytes, flags);
    int result = flags == CM_CUDA_ATTACH_GLOBAL || flags == CM_CUDA_ATTACH_HOST
                     ? allocate(CM_SIM_MANAGED, bytes, address)
                     : CM_SIM_INVALID_VALUE;
    if (CM_CU_REPORTED && !result)
        record(&cm_call, CM_CU_ALLOCATED, CM_CU_KIND_MANAGED, cm_cu_device(), *address, bytes);
    CM_CU_END(result);
}

CM_SIM_EXPORT int cuMemAllocPitch_v2(uint64_t *address, size_t *pitch, size_t width, size_t height,
                                     unsigned element)
{
    enum { PITCH_UNIT = 512 };
    CM_CU_BEGIN(cuMemAllocPitch_v2, address, pitch, width, height, element);
    size_t row = 0, bytes = 0;
    int result = CM_SIM_INVALID_VALUE;
    bool sizes = !__builtin_add_overflow(width, PITCH_UNIT - 1, &row);
    row &= ~(size_t)(PITCH_UNIT - 1);
    if (sizes && !__builtin_mul_overflow(row, height, &bytes) &&
        (element == 4 || element == 8 || element == 16))
        result = allocate(CM_SIM_DEVICE, bytes, address);
    if (!result && pitch)
        *pitch = row;
    if (CM_CU_REPORTED && !result)
        record(&cm_call, CM_CU_ALLOCATED, CM_CU_KIND_DEVICE, cm_cu_device(), *address, bytes);
    CM_CU_END(result);
}

CM_SIM_EXPORT int cuMemFree_v2(uint64_t address)
{
    CM_CU_BEGIN(cuMemFree_v2, address);
    cm_sim_block block = {0};
    int result = CM_SIM_OK; /* of address 0 too */
    bool pooled = CM_CU_REPORTED && cm_sim_pool_of((void *)address);
    if (address) {
        result = cm_sim_capture_permits();
        if (!result)
            result = cm_sim_free_any((void *)address, &block);
    }
    /* Of what a graph allocated nothing was recorded, so nothing is now. */
    if (CM_CU_REPORTED && !result && address && (pooled || block.kind != CM_SIM_POOL))
        record(&cm_call, CM_CU_RELEASED,
               block.kind == CM_SIM_MANAGED ? CM_CU_KIND_MANAGED : CM_CU_KIND_DEVICE, block.device,
               address, block.bytes);
    CM_CU_END(result);
}

CM_SIM_EXPORT int cuMemGetInfo_v2(size_t *free_bytes, size_t *total)
{
    CM_SIM_ENTRY;
    int device = cm_cu_device();
    return device < 0 ? CM_SIM_INVALID_CONTEXT : cm_sim_memory_info(device, free_bytes, total);
}

CM_SIM_EXPORT int cuMemGetAddressRange_v2(uint64_t *base, size_t *bytes, uint64_t address)
{
    CM_SIM_ENTRY;
    cm_sim_block block;
    uintptr_t start;
    size_t size;
    if (cm_sim_find((void *)address, &block)) {
        start = block.address;
        size = block.bytes;
    } else if (!cm_sim_host_find((void *)address, &start, &size)) {
        return CM_SIM_NOT_FOUND;
    }
    if (base)
        *base = start;
    if (bytes)
        *bytes = size;
    return CM_SIM_OK;
}

/* --- host memory ------------------------------------------------------------------------------ */

static int allocate_host(void **address, size_t bytes)
{
    int device = cm_cu_device();
    if (device < 0)
        return CM_SIM_INVALID_CONTEXT;
    if (!address || !bytes)
        return CM_SIM_INVALID_VALUE;
    int result = cm_sim_capture_permits();
    return result ? result : cm_sim_host_alloc(bytes, address);
}

CM_SIM_EXPORT int cuMemAllocHost_v2(void **address, size_t bytes)
{
    CM_CU_BEGIN(cuMemAllocHost_v2, address, bytes);
    int result = allocate_host(address, bytes);
    if (CM_CU_REPORTED && !result)
        record(&cm_call, CM_CU_ALLOCATED, CM_CU_KIND_PINNED, cm_cu_device(), (uintptr_t)*address,
               bytes);
    CM_CU_END(result);
}

CM_SIM_EXPORT int cuMemHostAlloc(void **address, size_t bytes, unsigned flags)
{
    CM_CU_BEGIN(cuMemHostAlloc, address, bytes, flags);
    unsigned known = CM_CUDA_HOST_PORTABLE | CM_CUDA_HOST_MAPPED | CM_CUDA_HOST_WRITE_COMBINED;
    int result = flags & ~known ? CM_SIM_INVALID_VALUE : allocate_host(address, bytes);
    if (CM_CU_REPORTED && !result)
        record(&cm_call, CM_CU_ALLOCATED, CM_CU_KIND_PINNED, cm_cu_device(), (uintptr_t)*address,
               bytes);
    CM_CU_END(result);
}

CM_SIM_EXPORT int cuMemFreeHost(void *address)
{
    CM_CU_BEGIN(cuMemFreeHost, address);
    uintptr_t start = 0;
    size_t bytes = 0;
    bool known = cm_sim_host_find(address, &start, &bytes);
    int result = cm_sim_host_free(address);
    if (CM_CU_REPORTED && !result && known)
        record(&cm_call, CM_CU_RELEASED, CM_CU_KIND_PINNED, cm_sim_current_device(), start, bytes);
    CM_CU_END(result);
}

static int register_host(void *address, size_t bytes, unsigned flags)
{
    unsigned known = CM_CUDA_HOST_PORTABLE | CM_CUDA_HOST_MAPPED | CM_CUDA_HOST_REGISTER_IO |
                     CM_CUDA_HOST_REGISTER_READ_ONLY;
    if (cm_cu_device() < 0)
        return CM_SIM_INVALID_CONTEXT;
    return flags & ~known ? CM_SIM_INVALID_VALUE : cm_sim_host_register(address, bytes);
}

CM_SIM_EXPORT int cuMemHostRegister_v2(void *address, size_t bytes, unsigned flags)
{
    CM_CU_BEGIN(cuMemHostRegister_v2, address, bytes, flags);
    CM_CU_END(register_host(address, bytes, flags));
}

CM_SIM_EXPORT int cuMemHostRegister(void *address, size_t bytes, unsigned flags)
{
    CM_CU_BEGIN(cuMemHostRegister, address, bytes, flags);
    CM_CU_END(register_host(address, bytes, flags));
}

CM_SIM_EXPORT int cuMemHostUnregister(void *address)
{
    CM_CU_BEGIN(cuMemHostUnregister, address);
    CM_CU_END(cm_sim_host_unregister(address));
}

CM_SIM_EXPORT int cuMemHostGetDevicePointer_v2(uint64_t *device, void *host, unsigned flags)
{
    CM_SIM_ENTRY;
    uintptr_t start;
    size_t bytes;
    if (flags || !cm_sim_host_find(host, &start, &bytes))
        return CM_SIM_INVALID_VALUE;
    if (device)
        *device = (uintptr_t)host;
    return CM_SIM_OK;
}

/* --- what a pointer is ------------------------------------------------------------------------ */

enum {
    POINTER_CONTEXT = 1,
    POINTER_MEMORY_TYPE = 2,
    POINTER_DEVICE = 3,
    POINTER_HOST = 4,
    POINTER_SYNC = 6,
    POINTER_BUFFER_ID = 7,
    POINTER_MANAGED = 8,
    POINTER_ORDINAL = 9,
    POINTER_IPC = 10,
    POINTER_START = 11,
    POINTER_SIZE = 12,
    POINTER_MAPPED = 13,
    POINTER_HANDLE_TYPES = 14,
    POINTER_RDMA = 15,
    POINTER_ACCESS = 16,
    POINTER_POOL = 17,
    POINTER_MAPPING_SIZE = 18,
    POINTER_MAPPING_BASE = 19,
    POINTER_BLOCK_ID = 20,
    POINTER_DECOMPRESS = 21
};

typedef struct pointer {
    cm_sim_block block;
    bool host;
} pointer;

static bool look_up(uint64_t address, pointer *found)
{
    memset(found, 0, sizeof *found);
    if (cm_sim_find((void *)address, &found->block))
        return true;
    found->host = true;
    return cm_sim_host_find((void *)address, &found->block.address, &found->block.bytes);
}

/* How much of the program's memory an attribute fills: a pointer's width, an int, a bool. */
static size_t attribute_size(int which)
{
    switch (which) {
    case POINTER_MEMORY_TYPE:
    case POINTER_ORDINAL:
    case POINTER_ACCESS:
        return sizeof(int);
    case POINTER_SYNC:
    case POINTER_MANAGED:
    case POINTER_IPC:
    case POINTER_MAPPED:
    case POINTER_RDMA:
    case POINTER_DECOMPRESS:
        return sizeof(bool);
    case POINTER_CONTEXT:
    case POINTER_DEVICE:
    case POINTER_HOST:
    case POINTER_BUFFER_ID:
    case POINTER_START:
    case POINTER_SIZE:
    case POINTER_HANDLE_TYPES:
    case POINTER_POOL:
    case POINTER_MAPPING_SIZE:
    case POINTER_MAPPING_BASE:
    case POINTER_BLOCK_ID:
        return sizeof(uint64_t);
    default:
        return 0;
    }
}

/* 0 for all that would lead out of the process (handles, RDMA): nothing does. */
static uint64_t attribute(const pointer *of, uint64_t address, int which)
{
    switch (which) {
    case POINTER_CONTEXT:
        return (uintptr_t)cm_cu_primary(of->host ? cm_sim_current_device() : of->block.device);
    case POINTER_MEMORY_TYPE:
        return of->host ? CM_CU_HOST : CM_CU_DEVICE;
    case POINTER_DEVICE:
    case POINTER_HOST:
        return address;
    case POINTER_BUFFER_ID:
    case POINTER_BLOCK_ID:
    case POINTER_START:
    case POINTER_MAPPING_BASE:
        return of->block.address;
    case POINTER_SIZE:
    case POINTER_MAPPING_SIZE:
        return of->block.bytes;
    case POINTER_MANAGED:
        return of->block.kind == CM_SIM_MANAGED;
    case POINTER_ORDINAL:
        return (uint64_t)(of->host ? cm_sim_current_device() : of->block.device);
    case POINTER_MAPPED:
        return true;
    case POINTER_ACCESS:
        return CM_CUDA_ACCESS_READ_WRITE;
    default:
        return 0;
    }
}

/* Only the host has an address for it, or both do. */
static bool has_host_pointer(const pointer *of)
{
    return of->host || of->block.kind == CM_SIM_MANAGED;
}

CM_SIM_EXPORT int cuPointerGetAttribute(void *out, int which, uint64_t address)
{
    CM_SIM_ENTRY;
    pointer found;
    size_t size = attribute_size(which);
    if (!out || !size || !look_up(address, &found))
        return CM_SIM_INVALID_VALUE;
    if (which == POINTER_HOST && !has_host_pointer(&found))
        return CM_SIM_INVALID_VALUE;
    uint64_t value = attribute(&found, address, which);
    memcpy(out, &value, size); /* little-endian, as all that this runs on */
    return CM_SIM_OK;
}

/* Unlike the single question this one knows of no error but bad arguments: of ordinary memory all
 * is zero, and its device none. */
CM_SIM_EXPORT int cuPointerGetAttributes(unsigned count, const int *which, void **out,
                                         uint64_t address)
{
    enum { NO_DEVICE = -2 };
    CM_SIM_ENTRY;
    if (!count || !which || !out)
        return CM_SIM_INVALID_VALUE;
    for (unsigned i = 0; i < count; i++)
        if (!out[i] || !attribute_size(which[i]))
            return CM_SIM_INVALID_VALUE;
    pointer found;
    bool known = look_up(address, &found);
    for (unsigned i = 0; i < count; i++) {
        uint64_t value = which[i] == POINTER_ORDINAL ? (uint64_t)NO_DEVICE : 0;
        if (known && (which[i] != POINTER_HOST || has_host_pointer(&found)))
            value = attribute(&found, address, which[i]);
        memcpy(out[i], &value, attribute_size(which[i]));
    }
    return CM_SIM_OK;
}
