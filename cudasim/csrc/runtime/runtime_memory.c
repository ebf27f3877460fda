#include "runtime.h"

/* Pitch and alignment of two-dimensional memory: the device's texture alignment. */
enum { PITCH = 512 };

/* cudaMalloc might wait for the device, so a capture forbids it. */
static int begin(int *device)
{
    int result = cm_sim_device_ready(device);
    return result ? result : cm_sim_capture_permits();
}

static int allocate(cm_sim_kind kind, size_t bytes, void **address)
{
    int device;
    int result = address ? begin(&device) : CM_CUDA_INVALID_VALUE;
    return result ? result : cm_sim_alloc(device, kind, bytes, NULL, address);
}

/* No bytes are no error, and nothing that the driver hears of: it knows no empty memory. */
static int nothing(void **address)
{
    int device;
    int result = address ? begin(&device) : CM_CUDA_INVALID_VALUE;
    if (!result)
        *address = NULL;
    return result;
}

static void record(const cm_sim_call *call, int operation, int kind, const cm_sim_block *block)
{
    cm_sim_record_memory(call, &(cm_sim_memory_event){.operation = operation,
                                                      .kind = kind,
                                                      .device = block->device,
                                                      .address = (void *)block->address,
                                                      .bytes = block->bytes});
}

/* What was just given out lies on the current device. */
static void record_given(const cm_sim_call *call, int kind, const void *address, size_t bytes)
{
    record(call, CM_RT_ALLOCATION, kind,
           &(cm_sim_block){
               .address = (uintptr_t)address, .bytes = bytes, .device = cm_sim_current_device()});
}

CM_SIM_EXPORT int cudaMalloc(void **address, size_t bytes)
{
    CM_RT_BEGIN(cudaMalloc, address, bytes);
    if (!bytes)
        CM_RT_END(nothing(address));
    uint64_t driver_address = 0;
    CM_RT_DRIVER(cuMemAlloc_v2, &driver_address, bytes);
    int result = allocate(CM_SIM_DEVICE, bytes, address);
    if (CM_RT_REPORTED && !result) {
        driver_address = (uintptr_t)*address;
        record_given(&cm_call, CM_RT_MEMORY_DEVICE, *address, bytes);
    }
    CM_RT_DRIVER_END(result);
    CM_RT_END(result);
}

CM_SIM_EXPORT int cudaMallocManaged(void **address, size_t bytes, unsigned flags)
{
    CM_RT_BEGIN(cudaMallocManaged, address, bytes, flags);
    uint64_t driver_address = 0;
    CM_RT_DRIVER(cuMemAllocManaged, &driver_address, bytes, flags);
    bool known = flags == CM_CUDA_ATTACH_GLOBAL || flags == CM_CUDA_ATTACH_HOST;
    int result = known && bytes ? allocate(CM_SIM_MANAGED, bytes, address) : CM_CUDA_INVALID_VALUE;
    if (CM_RT_REPORTED && !result) {
        driver_address = (uintptr_t)*address;
        record_given(&cm_call, CM_RT_MEMORY_MANAGED, *address, bytes);
    }
    CM_RT_DRIVER_END(result);
    CM_RT_END(result);
}

/* false: the product has no number. */
static bool pitched(size_t width, size_t rows, size_t *pitch, size_t *bytes)
{
    return !__builtin_add_overflow(width, PITCH - 1, pitch) &&
           (*pitch -= *pitch % PITCH, !__builtin_mul_overflow(*pitch, rows, bytes));
}

static int allocate_pitched(cm_sim_call *call, size_t width, size_t height, size_t rows,
                            void **address, size_t *pitch)
{
    size_t bytes, each;
    uint64_t driver_address = 0;
    cm_cuMemAllocPitch_v2_params parameters = {&driver_address, pitch, width, rows, 4};
    if (call->correlation)
        cm_sim_driver_enter(call, cm_sim_current_device(), CM_CBID_cuMemAllocPitch_v2,
                            "cuMemAllocPitch_v2", &parameters, NULL);
    int result = CM_CUDA_OUT_OF_MEMORY;
    if (!address || !pitch || !width || !height)
        result = CM_CUDA_INVALID_VALUE;
    else if (pitched(width, rows, &each, &bytes))
        result = allocate(CM_SIM_DEVICE, bytes, address);
    if (!result)
        *pitch = each;
    if (call->correlation) {
        if (!result) {
            driver_address = (uintptr_t)*address;
            record_given(call, CM_RT_MEMORY_DEVICE, *address, bytes);
        }
        cm_sim_driver_exit(call, result);
    }
    return result;
}

CM_SIM_EXPORT int cudaMallocPitch(void **address, size_t *pitch, size_t width, size_t height)
{
    CM_RT_BEGIN(cudaMallocPitch, address, pitch, width, height);
    CM_RT_END(allocate_pitched(&cm_call, width, height, height, address, pitch));
}

CM_SIM_EXPORT int cudaMalloc3D(cm_cuda_pitched *pitched_address, cm_cuda_extent extent)
{
    CM_RT_BEGIN(cudaMalloc3D, pitched_address, extent);
    size_t rows;
    if (!pitched_address || __builtin_mul_overflow(extent.height, extent.depth, &rows))
        CM_RT_END(CM_CUDA_INVALID_VALUE);
    int result = allocate_pitched(&cm_call, extent.width, rows, rows, &pitched_address->ptr,
                                  &pitched_address->pitch);
    if (!result) {
        pitched_address->xsize = extent.width;
        pitched_address->ysize = extent.height;
    }
    CM_RT_END(result);
}

CM_SIM_EXPORT int cudaFree(void *address)
{
    CM_RT_BEGIN(cudaFree, address);
    int device;
    int result = begin(&device); /* also cudaFree(NULL): how programs create a context */
    if (result || !address)
        CM_RT_END(result);
    CM_RT_DRIVER(cuMemFree_v2, (uintptr_t)address);
    cm_sim_block block;
    bool pooled = CM_RT_REPORTED && cm_sim_pool_of(address);
    /* To free is to wait for the device. */
    result = cm_sim_free_any(address, &block);
    if (!result)
        result = cm_sim_device_synchronize(device);
    /* Of what a graph allocated nothing was recorded, so nothing is now. */
    if (CM_RT_REPORTED && !result && (pooled || block.kind != CM_SIM_POOL))
        record(&cm_call, CM_RT_RELEASE,
               block.kind == CM_SIM_MANAGED ? CM_RT_MEMORY_MANAGED : CM_RT_MEMORY_DEVICE, &block);
    CM_RT_DRIVER_END(result);
    CM_RT_END(result);
}

CM_SIM_EXPORT int cudaMemGetInfo(size_t *free_bytes, size_t *total)
{
    CM_RT_BEGIN(cudaMemGetInfo, free_bytes, total);
    int device;
    int result = cm_sim_device_ready(&device);
    CM_RT_END(result ? result : cm_sim_memory_info(device, free_bytes, total));
}

/* --- memory of the host ----------------------------------------------------------------------- */

static int allocate_host(cm_sim_call *call, size_t bytes, unsigned flags, void **address)
{
    enum { FLAGS = CM_CUDA_HOST_PORTABLE | CM_CUDA_HOST_MAPPED | CM_CUDA_HOST_WRITE_COMBINED };
    if (!bytes)
        return flags & ~(unsigned)FLAGS ? CM_CUDA_INVALID_VALUE : nothing(address);
    cm_cuMemHostAlloc_params parameters = {address, bytes, flags};
    if (call->correlation)
        cm_sim_driver_enter(call, cm_sim_current_device(), CM_CBID_cuMemHostAlloc, "cuMemHostAlloc",
                            &parameters, NULL);
    int device;
    int result = CM_CUDA_INVALID_VALUE;
    if (address && !(flags & ~(unsigned)FLAGS))
        result = begin(&device);
    if (!result)
        result = cm_sim_host_alloc(bytes, address);
    if (call->correlation) {
        if (!result)
            record_given(call, CM_RT_MEMORY_PINNED, *address, bytes);
        cm_sim_driver_exit(call, result);
    }
    return result;
}

CM_SIM_EXPORT int cudaHostAlloc(void **address, size_t bytes, unsigned flags)
{
    CM_RT_BEGIN(cudaHostAlloc, address, bytes, flags);
    CM_RT_END(allocate_host(&cm_call, bytes, flags, address));
}

CM_SIM_EXPORT int cudaMallocHost(void **address, size_t bytes)
{
    CM_RT_BEGIN(cudaMallocHost, address, bytes);
    CM_RT_END(allocate_host(&cm_call, bytes, 0, address));
}

CM_SIM_EXPORT int cudaFreeHost(void *address)
{
    CM_RT_BEGIN(cudaFreeHost, address);
    int device;
    int result = begin(&device);
    if (result || !address)
        CM_RT_END(result);
    CM_RT_DRIVER(cuMemFreeHost, address);
    uintptr_t start;
    size_t bytes = 0;
    bool known = cm_sim_host_find(address, &start, &bytes);
    result = cm_sim_host_free(address);
    if (CM_RT_REPORTED && !result && known)
        record(&cm_call, CM_RT_RELEASE, CM_RT_MEMORY_PINNED,
               &(cm_sim_block){.address = start, .bytes = bytes, .device = device});
    CM_RT_DRIVER_END(result);
    CM_RT_END(result);
}

CM_SIM_EXPORT int cudaHostRegister(void *address, size_t bytes, unsigned flags)
{
    enum {
        FLAGS = CM_CUDA_HOST_PORTABLE | CM_CUDA_HOST_MAPPED | CM_CUDA_HOST_REGISTER_IO |
                CM_CUDA_HOST_REGISTER_READ_ONLY
    };
    CM_RT_BEGIN(cudaHostRegister, address, bytes, flags);
    CM_RT_DRIVER(cuMemHostRegister_v2, address, bytes, flags);
    int device;
    int result = flags & ~(unsigned)FLAGS ? CM_CUDA_INVALID_VALUE : begin(&device);
    if (!result)
        result = cm_sim_host_register(address, bytes);
    CM_RT_DRIVER_END(result);
    CM_RT_END(result);
}

CM_SIM_EXPORT int cudaHostUnregister(void *address)
{
    CM_RT_BEGIN(cudaHostUnregister, address);
    CM_RT_DRIVER(cuMemHostUnregister, address);
    int device;
    int result = begin(&device);
    if (!result)
        result = cm_sim_host_unregister(address);
    CM_RT_DRIVER_END(result);
    CM_RT_END(result);
}

CM_SIM_EXPORT int cudaHostGetDevicePointer(void **device_address, void *address, unsigned flags)
{
    CM_RT_BEGIN(cudaHostGetDevicePointer, device_address, address, flags);
    if (!device_address || flags || !cm_sim_host_find(address, NULL, NULL))
        CM_RT_END(CM_CUDA_INVALID_VALUE);
    *device_address = address; /* one address space */
    CM_RT_END(CM_CUDA_OK);
}

CM_SIM_EXPORT int cudaPointerGetAttributes(cm_cuda_pointer_attributes *attributes,
                                           const void *pointer)
{
    enum { NO_DEVICE = -2 };
    CM_RT_BEGIN(cudaPointerGetAttributes, attributes, pointer);
    if (!attributes)
        CM_RT_END(CM_CUDA_INVALID_VALUE);
    cm_sim_block block;
    cm_cuda_pointer_attributes found;
    void *address = (void *)(uintptr_t)pointer;
    if (cm_sim_is_device(pointer) && cm_sim_find(pointer, &block)) {
        bool managed = block.kind == CM_SIM_MANAGED;
        found = (cm_cuda_pointer_attributes){
            .type = managed ? CM_CUDA_MEMORY_MANAGED : CM_CUDA_MEMORY_DEVICE,
            .device = block.device,
            .devicePointer = address,
            .hostPointer = managed ? address : NULL,
        };
    } else if (cm_sim_host_find(pointer, NULL, NULL)) {
        found = (cm_cuda_pointer_attributes){
            .type = CM_CUDA_MEMORY_HOST,
            .device = cm_sim_current_device(),
            .devicePointer = address,
            .hostPointer = address,
        };
    } else {
        found = (cm_cuda_pointer_attributes){
            .type = CM_CUDA_MEMORY_UNREGISTERED, .device = NO_DEVICE, .hostPointer = address};
    }
    /* CUDA 12's has no reserved bytes: what lies behind it is the client's. */
    memcpy(attributes, &found, offsetof(cm_cuda_pointer_attributes, reserved));
    CM_RT_END(CM_CUDA_OK);
}

/* --- managed memory: where it lies is advice that changes nothing here ------------------------ */

static int managed(const void *address, size_t bytes)
{
    cm_sim_block block;
    bool ours = bytes && cm_sim_is_device(address) && cm_sim_find(address, &block) &&
                block.kind == CM_SIM_MANAGED && cm_sim_range_valid(address, bytes);
    return ours ? CM_CUDA_OK : CM_CUDA_INVALID_VALUE;
}

static int location(const cm_cuda_location *where)
{
    bool known = where->type == CM_CUDA_LOCATION_DEVICE
                     ? where->id >= 0 && where->id < cm_sim_config_get()->devices
                     : where->type >= CM_CUDA_LOCATION_NONE;
    return known ? CM_CUDA_OK : CM_CUDA_INVALID_DEVICE;
}

CM_SIM_EXPORT int cudaMemAdvise(const void *address, size_t bytes, int advice,
                                cm_cuda_location where)
{
    enum { FIRST = 1, LAST = 6 };
    CM_RT_BEGIN(cudaMemAdvise, address, bytes, advice, where);
    if (cm_sim_cuda_major() == 12) /* whose parameter is a device's number */
        CM_RT_END(cm_rt_refuse("cudaMemAdvise of CUDA 12"));
    if (advice < FIRST || advice > LAST)
        CM_RT_END(CM_CUDA_INVALID_VALUE);
    int result = managed(address, bytes);
    CM_RT_END(result ? result : location(&where));
}

CM_SIM_EXPORT int cudaMemPrefetchAsync(const void *address, size_t bytes, cm_cuda_location where,
                                       unsigned flags, cm_sim_stream *stream)
{
    CM_RT_BEGIN(cudaMemPrefetchAsync, address, bytes, where, flags, stream);
    if (cm_sim_cuda_major() == 12) /* whose third parameter is a device's number */
        CM_RT_END(cm_rt_refuse("cudaMemPrefetchAsync of CUDA 12"));
    bool capturing;
    int result = flags ? CM_CUDA_INVALID_VALUE : managed(address, bytes);
    if (!result)
        result = location(&where);
    if (!result && cm_sim_stream_work(stream, &capturing, &result) && capturing)
        result = cm_rt_refuse("prefetch in CUDA graphs");
    CM_RT_END(result);
}
CM_SIM_ALIAS(cudaMemPrefetchAsync, cudaMemPrefetchAsync_ptsz);
