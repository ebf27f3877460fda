/* Memory in stream order, and its pools: the runtime's own under the driver's names. */
#include "driver.h"

static int allocate(const cm_sim_call *call, uint64_t *address, size_t bytes, cm_sim_pool *pool,
                    cm_sim_stream *handle)
{
    if (cm_cu_device() < 0)
        return CM_SIM_INVALID_CONTEXT;
    cm_sim_stream *stream = cm_sim_stream_find(handle);
    if (!stream)
        return CM_SIM_INVALID_HANDLE;
    if (!address || !bytes)
        return CM_SIM_INVALID_VALUE;
    void *made = NULL;
    int result = cm_sim_pool_alloc(pool, stream, bytes, &made);
    if (result)
        return result;
    *address = (uintptr_t)made;
    cm_cu_record_pooled(call, CM_CU_ALLOCATED, made, bytes,
                        call->correlation ? cm_sim_pool_of(made) : NULL, handle);
    return CM_SIM_OK;
}

static int release(const cm_sim_call *call, uint64_t address, cm_sim_stream *handle)
{
    cm_sim_stream *stream = cm_sim_stream_find(handle);
    if (!stream)
        return CM_SIM_INVALID_HANDLE;
    if (!address)
        return CM_SIM_INVALID_VALUE;
    void *memory = (void *)address;
    cm_sim_pool *pool = call->correlation ? cm_sim_pool_of(memory) : NULL;
    cm_sim_block block = {0};
    bool known = pool && cm_sim_find(memory, &block);
    int result = cm_sim_pool_free(stream, memory);
    if (!result && known)
        cm_cu_record_pooled(call, CM_CU_RELEASED, memory, block.bytes, pool, handle);
    return result;
}

/* The variants for a default stream per thread have numbers of their own. */

CM_SIM_EXPORT int cuMemAllocAsync(uint64_t *address, size_t bytes, cm_sim_stream *stream)
{
    CM_CU_BEGIN(cuMemAllocAsync, address, bytes, stream);
    CM_CU_END(allocate(&cm_call, address, bytes, NULL, stream));
}

CM_SIM_EXPORT int cuMemAllocFromPoolAsync(uint64_t *address, size_t bytes, cm_sim_pool *pool,
                                          cm_sim_stream *stream)
{
    CM_CU_BEGIN(cuMemAllocFromPoolAsync, address, bytes, pool, stream);
    CM_CU_END(pool ? allocate(&cm_call, address, bytes, pool, stream) : CM_SIM_INVALID_VALUE);
}

CM_SIM_EXPORT int cuMemFreeAsync(uint64_t address, cm_sim_stream *stream)
{
    CM_CU_BEGIN(cuMemFreeAsync, address, stream);
    CM_CU_END(release(&cm_call, address, stream));
}

CM_SIM_EXPORT int cuMemAllocAsync_ptsz(uint64_t *address, size_t bytes, cm_sim_stream *stream)
{
    CM_CU_BEGIN(cuMemAllocAsync_ptsz, address, bytes, stream);
    CM_CU_END(allocate(&cm_call, address, bytes, NULL, stream));
}

CM_SIM_EXPORT int cuMemAllocFromPoolAsync_ptsz(uint64_t *address, size_t bytes, cm_sim_pool *pool,
                                               cm_sim_stream *stream)
{
    CM_CU_BEGIN(cuMemAllocFromPoolAsync_ptsz, address, bytes, pool, stream);
    CM_CU_END(pool ? allocate(&cm_call, address, bytes, pool, stream) : CM_SIM_INVALID_VALUE);
}

CM_SIM_EXPORT int cuMemFreeAsync_ptsz(uint64_t address, cm_sim_stream *stream)
{
    CM_CU_BEGIN(cuMemFreeAsync_ptsz, address, stream);
    CM_CU_END(release(&cm_call, address, stream));
}

/* --- pools ------------------------------------------------------------------------------------ */

static bool is_device(int device)
{
    return device >= 0 && device < cm_sim_config_get()->devices;
}

static int give(cm_sim_pool **out, cm_sim_pool *pool)
{
    if (!pool)
        return CM_SIM_OUT_OF_MEMORY;
    if (out)
        *out = pool;
    return CM_SIM_OK;
}

CM_SIM_EXPORT int cuDeviceGetDefaultMemPool(cm_sim_pool **pool, int device)
{
    CM_CU_BEGIN(cuDeviceGetDefaultMemPool, (void **)pool, device);
    CM_CU_END(is_device(device) ? give(pool, cm_sim_pool_default(device)) : CM_SIM_INVALID_DEVICE);
}

CM_SIM_EXPORT int cuMemPoolCreate(cm_sim_pool **pool, const cm_cuda_pool_props *asked)
{
    CM_CU_BEGIN(cuMemPoolCreate, (void **)pool, asked);
    int result = pool && asked ? CM_SIM_OK : CM_SIM_INVALID_VALUE;
    if (!result && asked->location.type != CM_CUDA_LOCATION_DEVICE) {
        cm_sim_note(CM_SIM_NOTE_REFUSED, "memory pool on the host", 0);
        result = CM_SIM_NOT_SUPPORTED;
    } else if (!result && !is_device(asked->location.id)) {
        result = CM_SIM_INVALID_DEVICE;
    }
    if (!result)
        result = cm_sim_pool_new(asked->location.id, asked->maxSize, pool);
    CM_CU_END(result);
}

CM_SIM_EXPORT int cuMemPoolDestroy(cm_sim_pool *pool)
{
    CM_CU_BEGIN(cuMemPoolDestroy, pool);
    CM_CU_END(cm_sim_pool_delete(pool));
}

CM_SIM_EXPORT int cuMemPoolTrimTo(cm_sim_pool *pool, size_t keep)
{
    CM_CU_BEGIN(cuMemPoolTrimTo, pool, keep);
    CM_CU_END(cm_sim_pool_trim(pool, keep));
}

CM_SIM_EXPORT int cuMemPoolSetAttribute(cm_sim_pool *pool, int attribute, void *value)
{
    CM_CU_BEGIN(cuMemPoolSetAttribute, pool, attribute, value);
    CM_CU_END(value ? cm_sim_pool_set(pool, attribute, value) : CM_SIM_INVALID_VALUE);
}

CM_SIM_EXPORT int cuMemPoolGetAttribute(cm_sim_pool *pool, int attribute, void *value)
{
    CM_CU_BEGIN(cuMemPoolGetAttribute, pool, attribute, value);
    CM_CU_END(value ? cm_sim_pool_get(pool, attribute, value) : CM_SIM_INVALID_VALUE);
}

/* Peers see all memory of each other: access is what it is. */
CM_SIM_EXPORT int cuMemPoolSetAccess(cm_sim_pool *pool, const cm_cuda_access *access, size_t count)
{
    CM_CU_BEGIN(cuMemPoolSetAccess, pool, access, count);
    int result = pool && access && count ? CM_SIM_OK : CM_SIM_INVALID_VALUE;
    for (size_t i = 0; !result && i < count; i++)
        if (access[i].location.type != CM_CUDA_LOCATION_DEVICE)
            result = CM_SIM_INVALID_VALUE;
        else if (!is_device(access[i].location.id))
            result = CM_SIM_INVALID_DEVICE;
    CM_CU_END(result);
}

CM_SIM_EXPORT int cuMemPoolGetAccess(int *flags, cm_sim_pool *pool,
                                     const cm_cuda_location *location)
{
    CM_CU_BEGIN(cuMemPoolGetAccess, flags, pool, (void *)location);
    int result =
        pool && location && location->type == CM_CUDA_LOCATION_DEVICE && is_device(location->id)
            ? CM_SIM_OK
            : CM_SIM_INVALID_VALUE;
    if (!result && flags)
        *flags = CM_CUDA_ACCESS_READ_WRITE;
    CM_CU_END(result);
}
