/* Kernels: their attributes, how many fit, and their launches, which do nothing. */
#include "driver.h"

#include <string.h>

/* --- attributes ------------------------------------------------------------------------------- */

static int device_or_first(void)
{
    int device = cm_cu_device();
    return device < 0 ? 0 : device;
}

/* CUfunction_attribute; the order is the driver's. */
static int get(int *value, int which, const cm_sim_function *handle, int device)
{
    const cm_sim_function *function = cm_sim_function_find(handle);
    cm_cuda_func_attributes all;
    if (!function)
        return CM_SIM_INVALID_HANDLE;
    int result = cm_sim_function_attributes(function, device, &all);
    if (result)
        return result;
    const int values[] = {all.maxThreadsPerBlock,
                          (int)all.sharedSizeBytes,
                          (int)all.constSizeBytes,
                          (int)all.localSizeBytes,
                          all.numRegs,
                          all.ptxVersion,
                          all.binaryVersion,
                          all.cacheModeCA,
                          all.maxDynamicSharedSizeBytes,
                          all.preferredShmemCarveout,
                          all.clusterDimMustBeSet,
                          all.requiredClusterWidth,
                          all.requiredClusterHeight,
                          all.requiredClusterDepth,
                          all.nonPortableClusterSizeAllowed,
                          all.clusterSchedulingPolicyPreference};
    if (which < 0 || which >= (int)(sizeof values / sizeof *values))
        return CM_SIM_INVALID_VALUE;
    if (value)
        *value = values[which];
    return CM_SIM_OK;
}

static int set(cm_sim_function *handle, int which, int value)
{
    cm_sim_function *function = cm_sim_function_find(handle);
    return function ? cm_sim_function_set(function, which, value) : CM_SIM_INVALID_HANDLE;
}

CM_SIM_EXPORT int cuFuncGetAttribute(int *value, int which, cm_sim_function *function)
{
    CM_SIM_ENTRY;
    return get(value, which, function, device_or_first());
}

CM_SIM_EXPORT int cuFuncSetAttribute(cm_sim_function *function, int which, int value)
{
    CM_SIM_ENTRY;
    return set(function, which, value);
}

CM_SIM_EXPORT int cuFuncSetCacheConfig(cm_sim_function *function, int configuration)
{
    enum { PREFER_EQUAL = 3 };
    CM_SIM_ENTRY;
    if (!cm_sim_function_find(function))
        return CM_SIM_INVALID_HANDLE;
    return configuration < 0 || configuration > PREFER_EQUAL ? CM_SIM_INVALID_VALUE : CM_SIM_OK;
}

CM_SIM_EXPORT int cuFuncGetName(const char **name, cm_sim_function *function)
{
    CM_SIM_ENTRY;
    if (!cm_sim_function_find(function))
        return CM_SIM_INVALID_HANDLE;
    if (name)
        *name = cm_sim_function_name(function);
    return CM_SIM_OK;
}

CM_SIM_EXPORT int cuKernelGetFunction(cm_sim_function **function, cm_sim_function *kernel)
{
    CM_SIM_ENTRY;
    cm_sim_function *found = cm_sim_function_find(kernel);
    if (!found)
        return CM_SIM_INVALID_HANDLE;
    if (function)
        *function = found;
    return CM_SIM_OK;
}

static bool is_device(int device)
{
    return device >= 0 && device < cm_sim_config_get()->devices;
}

CM_SIM_EXPORT int cuKernelGetAttribute(int *value, int which, cm_sim_function *kernel, int device)
{
    CM_SIM_ENTRY;
    return is_device(device) ? get(value, which, kernel, device) : CM_SIM_INVALID_DEVICE;
}

CM_SIM_EXPORT int cuKernelSetAttribute(int which, int value, cm_sim_function *kernel, int device)
{
    CM_SIM_ENTRY;
    return is_device(device) ? set(kernel, which, value) : CM_SIM_INVALID_DEVICE;
}

/* --- occupancy -------------------------------------------------------------------------------- */

enum { WARP = 32, BLOCK_LIMIT = 1024, REGISTERS = 65536 };

static size_t round_up(size_t n, size_t unit)
{
    return (n + unit - 1) / unit * unit;
}

/* Shared memory that the system keeps of each block, since 8.0. */
static size_t reserved_shared(const cm_sim_profile *profile)
{
    return profile->major >= 8 ? 1024 : 0;
}

/* Registers are given to warps in units, in one of four partitions; shared memory in units too. */
int cm_sim_occupancy(int device, int threads, int registers, size_t shared)
{
    enum { REGISTER_UNIT = 256, SHARED_UNIT = 128, PARTITIONS = 4 };
    const cm_sim_profile *profile = &cm_sim_config_get()->device[device];
    if (threads < 1 || threads > BLOCK_LIMIT || shared > (size_t)profile->shared_per_block_optin)
        return 0;
    int warps = (threads + WARP - 1) / WARP;
    int blocks = profile->threads_per_sm / WARP / warps;
    if (registers > 0) {
        size_t of_warp = round_up((size_t)registers * WARP, REGISTER_UNIT);
        int fitting = (int)(REGISTERS / PARTITIONS / of_warp) * PARTITIONS / warps;
        blocks = fitting < blocks ? fitting : blocks;
    }
    size_t of_block = round_up(shared + reserved_shared(profile), SHARED_UNIT);
    if (of_block) {
        int fitting = (int)((size_t)profile->shared_per_sm / of_block);
        blocks = fitting < blocks ? fitting : blocks;
    }
    return blocks < profile->blocks_per_sm ? blocks : profile->blocks_per_sm;
}

static int occupancy(cm_sim_function *handle, int threads, size_t dynamic, int *blocks)
{
    int device = cm_cu_device();
    const cm_sim_function *function = cm_sim_function_find(handle);
    cm_cuda_func_attributes all;
    if (device < 0)
        return CM_SIM_INVALID_CONTEXT;
    if (!function)
        return CM_SIM_INVALID_HANDLE;
    if (threads < 1)
        return CM_SIM_INVALID_VALUE;
    int result = cm_sim_function_attributes(function, device, &all);
    if (!result)
        *blocks = cm_sim_occupancy(device, threads, all.numRegs, all.sharedSizeBytes + dynamic);
    return result;
}

CM_SIM_EXPORT int cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int *count,
                                                                       cm_sim_function *function,
                                                                       int threads, size_t dynamic,
                                                                       unsigned flags)
{
    enum { NO_CACHE_OVERRIDE = 1 };
    CM_SIM_ENTRY;
    int blocks;
    if (flags > NO_CACHE_OVERRIDE)
        return CM_SIM_INVALID_VALUE;
    int result = occupancy(function, threads, dynamic, &blocks);
    if (!result && count)
        *count = blocks;
    return result;
}

CM_SIM_EXPORT int cuOccupancyMaxActiveBlocksPerMultiprocessor(int *count, cm_sim_function *function,
                                                              int threads, size_t dynamic)
{
    return cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(count, function, threads, dynamic,
                                                                0);
}

/* The largest block that keeps the most threads on a multiprocessor. */
CM_SIM_EXPORT int cuOccupancyMaxPotentialBlockSizeWithFlags(int *grid, int *block,
                                                            cm_sim_function *function,
                                                            size_t (*dynamic_of)(int),
                                                            size_t dynamic, int limit,
                                                            unsigned flags)
{
    CM_SIM_ENTRY;
    (void)flags;
    int best = 0, best_blocks = 0, result = CM_SIM_OK;
    int most = limit > 0 && limit < BLOCK_LIMIT ? limit : BLOCK_LIMIT;
    for (int threads = most; threads > 0 && !result;
         threads = threads % WARP ? threads - threads % WARP : threads - WARP) {
        int blocks;
        result = occupancy(function, threads, dynamic_of ? dynamic_of(threads) : dynamic, &blocks);
        if (!result && blocks * threads > best * best_blocks) {
            best = threads;
            best_blocks = blocks;
        }
    }
    if (!result && block)
        *block = best;
    if (!result && grid)
        *grid = best_blocks * cm_sim_config_get()->device[cm_cu_device()].sms;
    return result;
}

CM_SIM_EXPORT int cuOccupancyMaxPotentialBlockSize(int *grid, int *block, cm_sim_function *function,
                                                   size_t (*dynamic_of)(int), size_t dynamic,
                                                   int limit)
{
    return cuOccupancyMaxPotentialBlockSizeWithFlags(grid, block, function, dynamic_of, dynamic,
                                                     limit, 0);
}

/* CUlaunchConfig */
typedef struct launch {
    unsigned grid[3], block[3], shared;
    cm_sim_stream *stream;
    cm_cuda_launch_attribute *attributes;
    unsigned count;
} launch;

static unsigned cluster_blocks(const launch *asked)
{
    for (unsigned i = 0; asked->attributes && i < asked->count; i++)
        if (asked->attributes[i].id == CM_CUDA_LAUNCH_CLUSTER) {
            cm_cuda_dim3 size = asked->attributes[i].val.clusterDim;
            return size.x * size.y * size.z;
        }
    return 1;
}

/* A cluster lies within a group of multiprocessors; how those are cut is not modelled: counted is
 * what fits if all of them were one group. */
CM_SIM_EXPORT int cuOccupancyMaxActiveClusters(int *count, cm_sim_function *function,
                                               const launch *asked)
{
    CM_SIM_ENTRY;
    if (!asked)
        return CM_SIM_INVALID_VALUE;
    unsigned size = cluster_blocks(asked), threads = 1;
    for (int i = 0; i < 3; i++)
        if (!asked->block[i] || asked->block[i] > BLOCK_LIMIT)
            return CM_SIM_INVALID_VALUE;
        else
            threads *= asked->block[i];
    int blocks;
    int result =
        occupancy(function, threads > BLOCK_LIMIT ? 0 : (int)threads, asked->shared, &blocks);
    if (result)
        return result;
    const cm_sim_profile *profile = &cm_sim_config_get()->device[cm_cu_device()];
    if (!size || (size > 1 && profile->major < 9))
        return CM_CUDA_INVALID_CLUSTER_SIZE;
    if (count)
        *count = blocks * profile->sms / (int)size;
    return CM_SIM_OK;
}

/* --- launches --------------------------------------------------------------------------------- */

static int check(const cm_sim_function *function, const launch *asked, int device)
{
    static const unsigned grid_limits[3] = {2147483647, 65535, 65535};
    static const unsigned block_limits[3] = {1024, 1024, 64};
    for (int i = 0; i < 3; i++)
        if (!asked->grid[i] || asked->grid[i] > grid_limits[i] || !asked->block[i] ||
            asked->block[i] > block_limits[i])
            return CM_SIM_INVALID_VALUE;
    if (asked->block[0] * asked->block[1] * asked->block[2] > BLOCK_LIMIT)
        return CM_SIM_INVALID_VALUE;
    enum { ALWAYS_ALLOWED = 49152 };
    if (asked->shared <= ALWAYS_ALLOWED)
        return CM_SIM_OK;
    cm_cuda_func_attributes all;
    int result = cm_sim_function_attributes(function, device, &all);
    if (!result && asked->shared > (unsigned)all.maxDynamicSharedSizeBytes)
        result = CM_SIM_INVALID_VALUE;
    return result;
}

static int run(const cm_sim_call *call, cm_sim_function *handle, const launch *asked,
               void **parameters, void **extra)
{
    int device = cm_cu_device();
    cm_sim_function *function = cm_sim_function_find(handle);
    if (device < 0)
        return CM_SIM_INVALID_CONTEXT;
    if (!function)
        return CM_SIM_INVALID_HANDLE;
    int result = check(function, asked, device);
    bool capturing = false;
    cm_sim_stream *stream = result ? NULL : cm_sim_stream_work(asked->stream, &capturing, &result);
    if (!stream)
        return result;
    if (capturing) {
        const unsigned *grid = asked->grid, *block = asked->block;
        cm_cuda_kernel_node node = {.func = function,
                                    .gridDim = {grid[0], grid[1], grid[2]},
                                    .blockDim = {block[0], block[1], block[2]},
                                    .sharedMemBytes = asked->shared,
                                    .kernelParams = parameters,
                                    .extra = extra};
        return cm_sim_capture_kernel(stream, &node);
    }
    cm_sim_stream_launched(stream);
    if (call->correlation && cm_sim_kernels_reported(call->device))
        cm_sim_record_kernel(call, cm_sim_function_name(function), asked->grid, asked->block,
                             asked->shared, asked->stream);
    return CM_SIM_OK;
}

CM_SIM_EXPORT int cuLaunchKernel(cm_sim_function *function, unsigned grid_x, unsigned grid_y,
                                 unsigned grid_z, unsigned block_x, unsigned block_y,
                                 unsigned block_z, unsigned shared, cm_sim_stream *stream,
                                 void **parameters, void **extra)
{
    CM_CU_BEGIN_KERNEL(cuLaunchKernel, cm_sim_function_name(function), function, grid_x, grid_y,
                       grid_z, block_x, block_y, block_z, shared, stream, parameters, extra);
    const launch asked = {.grid = {grid_x, grid_y, grid_z},
                          .block = {block_x, block_y, block_z},
                          .shared = shared,
                          .stream = stream};
    CM_CU_END(run(&cm_call, function, &asked, parameters, extra));
}
CM_SIM_ALIAS(cuLaunchKernel, cuLaunchKernel_ptsz);

CM_SIM_EXPORT int cuLaunchKernelEx(const launch *asked, cm_sim_function *function,
                                   void **parameters, void **extra)
{
    CM_CU_BEGIN_KERNEL(cuLaunchKernelEx, cm_sim_function_name(function), asked, function,
                       parameters, extra);
    int result = asked ? CM_SIM_OK : CM_SIM_INVALID_VALUE;
    unsigned size = result ? 1 : cluster_blocks(asked);
    if (size != 1 && (!size || cm_sim_config_get()->device[device_or_first()].major < 9))
        result = CM_CUDA_INVALID_CLUSTER_SIZE;
    if (!result)
        result = run(&cm_call, function, asked, parameters, extra);
    CM_CU_END(result);
}
CM_SIM_ALIAS(cuLaunchKernelEx, cuLaunchKernelEx_ptsz);

/* All blocks of a cooperative launch have to be there at once. */
CM_SIM_EXPORT int cuLaunchCooperativeKernel(cm_sim_function *function, unsigned grid_x,
                                            unsigned grid_y, unsigned grid_z, unsigned block_x,
                                            unsigned block_y, unsigned block_z, unsigned shared,
                                            cm_sim_stream *stream, void **parameters)
{
    CM_CU_BEGIN_KERNEL(cuLaunchCooperativeKernel, cm_sim_function_name(function), function, grid_x,
                       grid_y, grid_z, block_x, block_y, block_z, shared, stream, parameters);
    const launch asked = {.grid = {grid_x, grid_y, grid_z},
                          .block = {block_x, block_y, block_z},
                          .shared = shared,
                          .stream = stream};
    uint64_t threads = (uint64_t)block_x * block_y * block_z;
    uint64_t blocks = (uint64_t)grid_x * grid_y * grid_z;
    int fitting = 0;
    int result = occupancy(function, threads > BLOCK_LIMIT ? 0 : (int)threads, shared, &fitting);
    if (!result &&
        blocks > (uint64_t)fitting * (unsigned)cm_sim_config_get()->device[cm_cu_device()].sms)
        result = CM_CUDA_COOPERATIVE_TOO_LARGE;
    if (!result)
        result = run(&cm_call, function, &asked, parameters, NULL);
    CM_CU_END(result);
}
CM_SIM_ALIAS(cuLaunchCooperativeKernel, cuLaunchCooperativeKernel_ptsz);

CM_SIM_EXPORT int cuLaunchHostFunc(cm_sim_stream *stream, cm_cuda_host_function function,
                                   void *data)
{
    CM_CU_BEGIN(cuLaunchHostFunc, stream, function, data);
    CM_CU_END(function ? cm_sim_stream_host(stream, function, data) : CM_SIM_INVALID_VALUE);
}
CM_SIM_ALIAS(cuLaunchHostFunc, cuLaunchHostFunc_ptsz);

/* --- tensor maps: 128 bytes that only the hardware reads -------------------------------------- */

enum { MAP_WORDS = 16, MAP_RANK = 5, MAP_ALIGNMENT = 64, ADDRESS_ALIGNMENT = 16 };

static int encode(uint64_t *map, unsigned rank, void *address, const uint64_t *sizes,
                  const uint64_t *strides)
{
    if (!map || (uintptr_t)map % MAP_ALIGNMENT || !rank || rank > MAP_RANK ||
        (uintptr_t)address % ADDRESS_ALIGNMENT || !sizes || (rank > 1 && !strides))
        return CM_SIM_INVALID_VALUE;
    memset(map, 0, MAP_WORDS * sizeof *map);
    map[0] = (uintptr_t)address;
    map[1] = rank;
    for (unsigned i = 0; i < rank; i++) {
        map[2 + i] = sizes[i];
        map[2 + MAP_RANK + i] = i ? strides[i - 1] : 0;
        if (!sizes[i] || sizes[i] > UINT64_C(1) << 32 || (i && strides[i - 1] % ADDRESS_ALIGNMENT))
            return CM_SIM_INVALID_VALUE;
    }
    return CM_SIM_OK;
}

CM_SIM_EXPORT int cuTensorMapEncodeTiled(uint64_t *map, int type, uint32_t rank, void *address,
                                         const uint64_t *sizes, const uint64_t *strides,
                                         const uint32_t *box, const uint32_t *steps, int interleave,
                                         int swizzle, int promotion, int fill)
{
    enum { BOX_LIMIT = 256, STEP_LIMIT = 8 };
    CM_SIM_ENTRY;
    (void)type, (void)interleave, (void)swizzle, (void)promotion, (void)fill;
    int result = box && steps ? encode(map, rank, address, sizes, strides) : CM_SIM_INVALID_VALUE;
    for (uint32_t i = 0; !result && i < rank; i++)
        if (!box[i] || box[i] > BOX_LIMIT || !steps[i] || steps[i] > STEP_LIMIT)
            result = CM_SIM_INVALID_VALUE;
    return result;
}

CM_SIM_EXPORT int cuTensorMapEncodeIm2col(uint64_t *map, int type, uint32_t rank, void *address,
                                          const uint64_t *sizes, const uint64_t *strides,
                                          const int *lower, const int *upper, uint32_t channels,
                                          uint32_t pixels, const uint32_t *steps, int interleave,
                                          int swizzle, int promotion, int fill)
{
    enum { LEAST_RANK = 3 };
    CM_SIM_ENTRY;
    (void)type, (void)interleave, (void)swizzle, (void)promotion, (void)fill;
    if (rank < LEAST_RANK || !lower || !upper || !steps || !channels || !pixels)
        return CM_SIM_INVALID_VALUE;
    return encode(map, rank, address, sizes, strides);
}
