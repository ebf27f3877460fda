#include "runtime.h"

/* --- memory in stream order ------------------------------------------------------------------- */

/* pool NULL: a stream that is being captured allocates nothing yet, and no call allocates for a
 * graph. */
static void record(const cm_sim_call *call, int operation, const void *address, size_t bytes,
                   const cm_sim_pool *pool, cm_sim_stream *stream)
{
    if (pool)
        cm_sim_record_memory(call, &(cm_sim_memory_event){.operation = operation,
                                                          .kind = CM_RT_MEMORY_DEVICE,
                                                          .device = cm_sim_pool_device(pool),
                                                          .address = address,
                                                          .bytes = bytes,
                                                          .pool = pool,
                                                          .stream = stream});
}

static int allocate(cm_sim_call *call, void **address, size_t bytes, cm_sim_pool *pool,
                    cm_sim_stream *stream)
{
    int device;
    int result = address ? cm_sim_device_ready(&device) : CM_CUDA_INVALID_VALUE;
    if (!result)
        result = cm_sim_pool_alloc(pool, stream, bytes, address);
    if (!result && __builtin_expect(call->correlation != 0, 0))
        record(call, CM_RT_ALLOCATION, *address, bytes, cm_sim_pool_of(*address), stream);
    return result;
}

static int release(cm_sim_call *call, void *address, cm_sim_stream *stream)
{
    bool reported = call->correlation != 0;
    cm_sim_pool *pool = reported ? cm_sim_pool_of(address) : NULL;
    cm_sim_block block = {0};
    bool known = pool && cm_sim_find(address, &block);
    int device;
    int result = cm_sim_device_ready(&device);
    if (!result)
        result = cm_sim_pool_free(stream, address);
    if (!result && known)
        record(call, CM_RT_RELEASE, address, block.bytes, pool, stream);
    return result;
}

/* The driver's call in each. No bytes and no address are no errors, and nothing that it hears of.
 */

static int driver_alloc(cm_sim_call *call, uint32_t id, const char *name, void **address,
                        size_t bytes, cm_sim_stream *stream)
{
    uint64_t driver_address = 0;
    const cm_cuMemAllocAsync_params parameters = {&driver_address, bytes, stream};
    bool report = call->correlation && bytes;
    if (report)
        cm_sim_driver_enter(call, cm_sim_current_device(), id, name, &parameters, NULL);
    int result = allocate(call, address, bytes, NULL, stream);
    driver_address = result ? 0 : (uintptr_t)*address;
    if (report)
        cm_sim_driver_exit(call, result);
    return result;
}

static int driver_alloc_from(cm_sim_call *call, uint32_t id, const char *name, void **address,
                             size_t bytes, cm_sim_pool *pool, cm_sim_stream *stream)
{
    uint64_t driver_address = 0;
    const cm_cuMemAllocFromPoolAsync_params parameters = {&driver_address, bytes, pool, stream};
    bool report = call->correlation && bytes;
    if (report)
        cm_sim_driver_enter(call, cm_sim_current_device(), id, name, &parameters, NULL);
    int result = pool ? allocate(call, address, bytes, pool, stream) : CM_CUDA_INVALID_VALUE;
    driver_address = result ? 0 : (uintptr_t)*address;
    if (report)
        cm_sim_driver_exit(call, result);
    return result;
}

static int driver_free(cm_sim_call *call, uint32_t id, const char *name, void *address,
                       cm_sim_stream *stream)
{
    const cm_cuMemFreeAsync_params parameters = {(uintptr_t)address, stream};
    bool report = call->correlation && address;
    if (report)
        cm_sim_driver_enter(call, cm_sim_current_device(), id, name, &parameters, NULL);
    int result = release(call, address, stream);
    if (report)
        cm_sim_driver_exit(call, result);
    return result;
}

/* The variants for a default stream per thread have numbers of their own. */

CM_SIM_EXPORT int cudaMallocAsync(void **address, size_t bytes, cm_sim_stream *stream)
{
    CM_RT_BEGIN(cudaMallocAsync, address, bytes, stream);
    CM_RT_END(
        driver_alloc(&cm_call, CM_CBID_cuMemAllocAsync, "cuMemAllocAsync", address, bytes, stream));
}

CM_SIM_EXPORT int cudaMallocFromPoolAsync(void **address, size_t bytes, cm_sim_pool *pool,
                                          cm_sim_stream *stream)
{
    CM_RT_BEGIN(cudaMallocFromPoolAsync, address, bytes, pool, stream);
    CM_RT_END(driver_alloc_from(&cm_call, CM_CBID_cuMemAllocFromPoolAsync,
                                "cuMemAllocFromPoolAsync", address, bytes, pool, stream));
}

CM_SIM_EXPORT int cudaFreeAsync(void *address, cm_sim_stream *stream)
{
    CM_RT_BEGIN(cudaFreeAsync, address, stream);
    CM_RT_END(driver_free(&cm_call, CM_CBID_cuMemFreeAsync, "cuMemFreeAsync", address, stream));
}

CM_SIM_EXPORT int cudaMallocAsync_ptsz(void **address, size_t bytes, cm_sim_stream *stream)
{
    CM_RT_BEGIN(cudaMallocAsync_ptsz, address, bytes, stream);
    CM_RT_END(driver_alloc(&cm_call, CM_CBID_cuMemAllocAsync_ptsz, "cuMemAllocAsync_ptsz", address,
                           bytes, stream));
}

CM_SIM_EXPORT int cudaMallocFromPoolAsync_ptsz(void **address, size_t bytes, cm_sim_pool *pool,
                                               cm_sim_stream *stream)
{
    CM_RT_BEGIN(cudaMallocFromPoolAsync_ptsz, address, bytes, pool, stream);
    CM_RT_END(driver_alloc_from(&cm_call, CM_CBID_cuMemAllocFromPoolAsync_ptsz,
                                "cuMemAllocFromPoolAsync_ptsz", address, bytes, pool, stream));
}

CM_SIM_EXPORT int cudaFreeAsync_ptsz(void *address, cm_sim_stream *stream)
{
    CM_RT_BEGIN(cudaFreeAsync_ptsz, address, stream);
    CM_RT_END(
        driver_free(&cm_call, CM_CBID_cuMemFreeAsync_ptsz, "cuMemFreeAsync_ptsz", address, stream));
}

/* --- pools ------------------------------------------------------------------------------------ */

static int check(int device)
{
    int devices = cm_sim_config_get()->devices;
    if (!devices)
        return CM_CUDA_NO_DEVICE;
    return device >= 0 && device < devices ? CM_CUDA_OK : CM_CUDA_INVALID_DEVICE;
}

static int give(cm_sim_pool **out, cm_sim_pool *pool)
{
    if (!pool)
        return CM_CUDA_OUT_OF_MEMORY;
    *out = pool;
    return CM_CUDA_OK;
}

CM_SIM_EXPORT int cudaDeviceGetDefaultMemPool(cm_sim_pool **pool, int device)
{
    CM_RT_BEGIN(cudaDeviceGetDefaultMemPool, pool, device);
    int result = pool ? check(device) : CM_CUDA_INVALID_VALUE;
    CM_RT_END(result ? result : give(pool, cm_sim_pool_default(device)));
}

/* The kinds of memory that CUDA 13 has pools for; only pinned memory of a device is simulated. */
enum { PINNED = 1 };

static int place(const cm_cuda_location *location, int type)
{
    if (!location)
        return CM_CUDA_INVALID_VALUE;
    if (location->type != CM_CUDA_LOCATION_DEVICE || type != PINNED)
        return cm_rt_refuse("memory pools of the host");
    return check(location->id);
}

CM_SIM_EXPORT int cudaMemPoolCreate(cm_sim_pool **pool, const cm_cuda_pool_props *props)
{
    CM_RT_BEGIN(cudaMemPoolCreate, pool, props);
    int result = pool && props ? place(&props->location, props->allocType) : CM_CUDA_INVALID_VALUE;
    if (!result && props->handleTypes)
        result = cm_rt_refuse("CUDA IPC");
    if (result)
        CM_RT_END(result);
    CM_RT_DRIVER(cuMemPoolCreate, (void **)pool, props);
    result = cm_sim_pool_new(props->location.id, props->maxSize, pool);
    CM_RT_DRIVER_END(result);
    CM_RT_END(result);
}

CM_SIM_EXPORT int cudaMemPoolDestroy(cm_sim_pool *pool)
{
    CM_RT_BEGIN(cudaMemPoolDestroy, pool);
    CM_RT_DRIVER(cuMemPoolDestroy, pool);
    int result = cm_sim_pool_delete(pool);
    CM_RT_DRIVER_END(result);
    CM_RT_END(result);
}

CM_SIM_EXPORT int cudaMemPoolTrimTo(cm_sim_pool *pool, size_t keep)
{
    CM_RT_BEGIN(cudaMemPoolTrimTo, pool, keep);
    CM_RT_DRIVER(cuMemPoolTrimTo, pool, keep);
    int result = cm_sim_pool_trim(pool, keep);
    CM_RT_DRIVER_END(result);
    CM_RT_END(result);
}

CM_SIM_EXPORT int cudaMemPoolGetAttribute(cm_sim_pool *pool, int attribute, void *value)
{
    CM_RT_BEGIN(cudaMemPoolGetAttribute, pool, attribute, value);
    CM_RT_END(cm_sim_pool_get(pool, attribute, value));
}

CM_SIM_EXPORT int cudaMemPoolSetAttribute(cm_sim_pool *pool, int attribute, void *value)
{
    CM_RT_BEGIN(cudaMemPoolSetAttribute, pool, attribute, value);
    CM_RT_DRIVER(cuMemPoolSetAttribute, pool, attribute, value);
    int result = cm_sim_pool_set(pool, attribute, value);
    CM_RT_DRIVER_END(result);
    CM_RT_END(result);
}

/* Every device may use every pool's memory: all of it is memory of the host. */
CM_SIM_EXPORT int cudaMemPoolSetAccess(cm_sim_pool *pool, const cm_cuda_access *access,
                                       size_t count)
{
    CM_RT_BEGIN(cudaMemPoolSetAccess, pool, access, count);
    int owner = cm_sim_pool_device(pool);
    if (owner < 0 || (count && !access))
        CM_RT_END(CM_CUDA_INVALID_VALUE);
    for (size_t i = 0; i < count; i++) {
        const cm_cuda_location *location = &access[i].location;
        if (location->type != CM_CUDA_LOCATION_DEVICE || check(location->id))
            CM_RT_END(CM_CUDA_INVALID_DEVICE);
        /* The owner's access cannot be taken away. */
        if (location->id == owner && access[i].flags != CM_CUDA_ACCESS_READ_WRITE)
            CM_RT_END(CM_CUDA_INVALID_DEVICE);
    }
    CM_RT_END(CM_CUDA_OK);
}

CM_SIM_EXPORT int cudaMemPoolGetAccess(int *flags, cm_sim_pool *pool, cm_cuda_location *location)
{
    CM_RT_BEGIN(cudaMemPoolGetAccess, flags, pool, location);
    if (!flags || !location || cm_sim_pool_device(pool) < 0 ||
        location->type != CM_CUDA_LOCATION_DEVICE || check(location->id))
        CM_RT_END(CM_CUDA_INVALID_VALUE);
    *flags = CM_CUDA_ACCESS_READ_WRITE;
    CM_RT_END(CM_CUDA_OK);
}
