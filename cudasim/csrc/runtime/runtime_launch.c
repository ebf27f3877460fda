/* Launches. A kernel does nothing, so a launch is its checks and a count: PyTorch makes thousands
 * in a training step, and the kernel's name is looked up only for CUPTI. */
#include "../objects/objects_function.h"
#include "runtime.h"

enum { THREADS = 1024, BLOCK_Z = 64, GRID_Y = 65535 };

/* --- <<<grid, block, shared, stream>>> -------------------------------------------------------- */

/* The launch configuration in <<<>>>, until the stub that is called with the arguments takes it.
 * They nest where an argument launches a kernel itself. */
enum { NESTED = 16 };
static _Thread_local struct {
    cm_cuda_dim3 grid, block;
    size_t shared;
    cm_sim_stream *stream;
} configured[NESTED] __attribute__((tls_model("initial-exec")));
static _Thread_local int configured_count __attribute__((tls_model("initial-exec")));

CM_SIM_EXPORT unsigned __cudaPushCallConfiguration(cm_cuda_dim3 grid, cm_cuda_dim3 block,
                                                   size_t shared, cm_sim_stream *stream)
{
    if (configured_count == NESTED)
        return CM_CUDA_OUT_OF_RESOURCES;
    configured[configured_count].grid = grid;
    configured[configured_count].block = block;
    configured[configured_count].shared = shared;
    configured[configured_count++].stream = stream;
    return CM_CUDA_OK;
}

CM_SIM_EXPORT int __cudaPopCallConfiguration(cm_cuda_dim3 *grid, cm_cuda_dim3 *block,
                                             size_t *shared, void *stream)
{
    if (!configured_count)
        return CM_CUDA_MISSING_CONFIGURATION;
    configured_count--;
    if (grid)
        *grid = configured[configured_count].grid;
    if (block)
        *block = configured[configured_count].block;
    if (shared)
        *shared = configured[configured_count].shared;
    if (stream)
        *(cm_sim_stream **)stream = configured[configured_count].stream;
    return CM_CUDA_OK;
}

/* --- launching -------------------------------------------------------------------------------- */

static bool fits(const cm_cuda_dim3 *grid, const cm_cuda_dim3 *block)
{
    return grid->x && grid->y && grid->z && grid->x <= INT32_MAX && grid->y <= GRID_Y &&
           grid->z <= GRID_Y && block->x && block->y && block->z && block->x <= THREADS &&
           block->y <= THREADS && block->z <= BLOCK_Z &&
           (uint64_t)block->x * block->y * block->z <= THREADS;
}

static int shared_fits(int device, size_t shared)
{
    return shared <= (size_t)cm_sim_config_get()->device[device].shared_per_block_optin
               ? CM_CUDA_OK
               : CM_CUDA_INVALID_VALUE;
}

static int launch(cm_sim_call *call, const void *kernel, const cm_cuda_dim3 *grid,
                  const cm_cuda_dim3 *block, void **arguments, size_t shared, cm_sim_stream *handle)
{
    enum { SHARED_ALWAYS = 48 << 10 };
    int device;
    bool capturing;
    int result = cm_sim_device_ready(&device);
    if (__builtin_expect(result != CM_CUDA_OK, 0))
        return result;
    if (__builtin_expect(!fits(grid, block), 0))
        return CM_CUDA_INVALID_CONFIGURATION;
    if (__builtin_expect(!kernel, 0))
        return CM_CUDA_INVALID_FUNCTION;
    if (__builtin_expect(shared > SHARED_ALWAYS, 0) && (result = shared_fits(device, shared)))
        return result;
    cm_sim_stream *stream = cm_sim_stream_work(handle, &capturing, &result);
    if (__builtin_expect(!stream, 0))
        return result;
    if (__builtin_expect(cm_sim_stream_device(stream) != device, 0))
        return CM_CUDA_INVALID_HANDLE;
    if (__builtin_expect(capturing, 0)) {
        cm_cuda_kernel_node node = {.func = (void *)(uintptr_t)kernel,
                                    .gridDim = *grid,
                                    .blockDim = *block,
                                    .sharedMemBytes = (unsigned)shared};
        result = cm_sim_capture_kernel(stream, &node);
    } else {
        cm_sim_stream_launched(stream);
    }
    if (__builtin_expect(call->correlation != 0, 0)) {
        bool reported =
            cm_sim_driver_listens(CM_CBID_cuLaunchKernel) || cm_sim_kernels_reported(device);
        const char *name = reported ? cm_sim_function_name(kernel) : NULL;
        cm_cuLaunchKernel_params parameters = {
            (void *)(uintptr_t)kernel, grid->x, grid->y,   grid->z, block->x, block->y, block->z,
            (unsigned)shared,          handle,  arguments, NULL};
        cm_sim_driver_enter(call, device, CM_CBID_cuLaunchKernel, "cuLaunchKernel", &parameters,
                            name);
        if (!capturing && !result && reported)
            cm_sim_record_kernel(call, name, (unsigned[]){grid->x, grid->y, grid->z},
                                 (unsigned[]){block->x, block->y, block->z}, (unsigned)shared,
                                 stream);
        cm_sim_driver_exit(call, result);
    }
    return result;
}

CM_SIM_EXPORT int cudaLaunchKernel(const void *kernel, cm_cuda_dim3 grid, cm_cuda_dim3 block,
                                   void **arguments, size_t shared, cm_sim_stream *stream)
{
    CM_RT_BEGIN_KERNEL(cudaLaunchKernel, kernel, kernel, grid, block, arguments, shared, stream);
    CM_RT_END(launch(&cm_call, kernel, &grid, &block, arguments, shared, stream));
}
CM_SIM_ALIAS(cudaLaunchKernel, cudaLaunchKernel_ptsz);

/* What compilers since CUDA 13 make of <<<>>>: reported as the call that it stands for. */
CM_SIM_EXPORT int __cudaLaunchKernel(cm_sim_function *kernel, cm_cuda_dim3 grid, cm_cuda_dim3 block,
                                     void **arguments, size_t shared, cm_sim_stream *stream)
{
    CM_RT_BEGIN_KERNEL(cudaLaunchKernel, kernel, kernel, grid, block, arguments, shared, stream);
    CM_RT_END(launch(&cm_call, kernel, &grid, &block, arguments, shared, stream));
}
CM_SIM_ALIAS(__cudaLaunchKernel, __cudaLaunchKernel_ptsz);

static int all_fit_at_once(const void *kernel, const cm_cuda_dim3 *grid, const cm_cuda_dim3 *block,
                           size_t shared)
{
    int device = cm_sim_current_device();
    (void)kernel; /* all are taken to be alike */
    int blocks = cm_sim_occupancy(device, (int)(block->x * block->y * block->z),
                                  CM_SIM_FUNCTION_REGISTERS, shared);
    uint64_t room = (uint64_t)blocks * (uint64_t)cm_sim_config_get()->device[device].sms;
    return (uint64_t)grid->x * grid->y * grid->z <= room ? CM_CUDA_OK
                                                         : CM_CUDA_COOPERATIVE_TOO_LARGE;
}

static int launch_together(cm_sim_call *call, const void *kernel, const cm_cuda_dim3 *grid,
                           const cm_cuda_dim3 *block, void **arguments, size_t shared,
                           cm_sim_stream *stream)
{
    int device;
    int result = cm_sim_device_ready(&device);
    if (!result && !fits(grid, block))
        result = CM_CUDA_INVALID_CONFIGURATION;
    if (!result)
        result = all_fit_at_once(kernel, grid, block, shared);
    return result ? result : launch(call, kernel, grid, block, arguments, shared, stream);
}

CM_SIM_EXPORT int cudaLaunchCooperativeKernel(const void *kernel, cm_cuda_dim3 grid,
                                              cm_cuda_dim3 block, void **arguments, size_t shared,
                                              cm_sim_stream *stream)
{
    CM_RT_BEGIN_KERNEL(cudaLaunchCooperativeKernel, kernel, kernel, grid, block, arguments, shared,
                       stream);
    CM_RT_END(launch_together(&cm_call, kernel, &grid, &block, arguments, shared, stream));
}
CM_SIM_ALIAS(cudaLaunchCooperativeKernel, cudaLaunchCooperativeKernel_ptsz);

/* The extent of clusters that a launch asks for; {0}: none. */
static bool attributes_of(const cm_cuda_launch_config *config, bool *together,
                          cm_cuda_dim3 *cluster)
{
    *together = false;
    *cluster = (cm_cuda_dim3){0};
    if (config->numAttrs && !config->attrs)
        return false;
    for (unsigned i = 0; i < config->numAttrs; i++) {
        const cm_cuda_launch_attribute *one = &config->attrs[i];
        if (one->id < 0 || one->id >= CM_CUDA_LAUNCH_END)
            return false;
        if (one->id == CM_CUDA_LAUNCH_COOPERATIVE)
            *together = one->val.cooperative != 0;
        else if (one->id == CM_CUDA_LAUNCH_CLUSTER)
            *cluster = one->val.clusterDim;
    }
    return true;
}

/* Clusters came with 9.0; 8 blocks are always possible, 16 where a kernel's attribute allows it. */
static int cluster_fits(const cm_cuda_dim3 *cluster, const cm_cuda_dim3 *grid)
{
    enum { LARGEST = 16, FIRST_MAJOR = 9 };
    uint64_t blocks = (uint64_t)cluster->x * cluster->y * cluster->z;
    if (blocks <= 1)
        return CM_CUDA_OK;
    if (cm_sim_config_get()->device[cm_sim_current_device()].major < FIRST_MAJOR)
        return CM_CUDA_NOT_SUPPORTED;
    if (blocks > LARGEST || grid->x % cluster->x || grid->y % cluster->y || grid->z % cluster->z)
        return CM_CUDA_INVALID_CLUSTER_SIZE;
    return CM_CUDA_OK;
}

CM_SIM_EXPORT int cudaLaunchKernelExC(const cm_cuda_launch_config *config, const void *kernel,
                                      void **arguments)
{
    CM_RT_BEGIN_KERNEL(cudaLaunchKernelExC, kernel, config, kernel, arguments);
    bool together;
    cm_cuda_dim3 cluster;
    if (!config || !attributes_of(config, &together, &cluster))
        CM_RT_END(CM_CUDA_INVALID_VALUE);
    int result = cluster_fits(&cluster, &config->gridDim);
    if (result)
        CM_RT_END(result);
    CM_RT_END((together ? launch_together : launch)(&cm_call, kernel, &config->gridDim,
                                                    &config->blockDim, arguments,
                                                    config->dynamicSmemBytes, config->stream));
}
CM_SIM_ALIAS(cudaLaunchKernelExC, cudaLaunchKernelExC_ptsz);

/* --- kernels as objects ----------------------------------------------------------------------- */

static int find(const void *kernel, cm_sim_function **function)
{
    *function = cm_sim_function_find(kernel);
    return *function ? CM_CUDA_OK : CM_CUDA_INVALID_FUNCTION;
}

/* The handle of a stub is the stub's: what is launched through it is looked up no sooner. */
CM_SIM_EXPORT int __cudaGetKernel(cm_sim_function **kernel, const void *stub)
{
    CM_SIM_ENTRY;
    return kernel ? find(stub, kernel) : CM_CUDA_INVALID_VALUE;
}

CM_SIM_EXPORT int cudaGetKernel(cm_sim_function **kernel, const void *stub)
{
    CM_RT_BEGIN(cudaGetKernel, kernel, stub);
    CM_RT_END(kernel ? find(stub, kernel) : CM_CUDA_INVALID_VALUE);
}

CM_SIM_EXPORT int cudaGetFuncBySymbol(cm_sim_function **function, const void *stub)
{
    CM_RT_BEGIN(cudaGetFuncBySymbol, function, stub);
    CM_RT_END(function ? find(stub, function) : CM_CUDA_INVALID_VALUE);
}

CM_SIM_EXPORT int cudaFuncGetAttributes(cm_cuda_func_attributes *attributes, const void *kernel)
{
    CM_RT_BEGIN(cudaFuncGetAttributes, attributes, kernel);
    int device;
    cm_sim_function *function;
    int result = attributes ? cm_sim_device_ready(&device) : CM_CUDA_INVALID_VALUE;
    if (!result)
        result = find(kernel, &function);
    CM_RT_END(result ? result : cm_sim_function_attributes(function, device, attributes));
}

CM_SIM_EXPORT int cudaFuncSetAttribute(const void *kernel, int attribute, int value)
{
    CM_RT_BEGIN(cudaFuncSetAttribute, kernel, attribute, value);
    int device;
    cm_sim_function *function;
    int result = cm_sim_device_ready(&device);
    if (!result)
        result = find(kernel, &function);
    CM_RT_END(result ? result : cm_sim_function_set(function, attribute, value));
}

CM_SIM_EXPORT int cudaKernelSetAttributeForDevice(cm_sim_function *kernel, int attribute, int value,
                                                  int device)
{
    CM_RT_BEGIN(cudaKernelSetAttributeForDevice, kernel, attribute, value, device);
    cm_sim_function *function;
    if (device < 0 || device >= cm_sim_config_get()->devices)
        CM_RT_END(CM_CUDA_INVALID_DEVICE);
    int result = find(kernel, &function);
    CM_RT_END(result ? CM_CUDA_INVALID_HANDLE : cm_sim_function_set(function, attribute, value));
}

CM_SIM_EXPORT int cudaFuncSetCacheConfig(const void *kernel, int preference)
{
    CM_RT_BEGIN(cudaFuncSetCacheConfig, kernel, preference);
    enum { PREFERENCES = 4 };
    cm_sim_function *function;
    CM_RT_END(preference < 0 || preference >= PREFERENCES ? CM_CUDA_INVALID_VALUE
                                                          : find(kernel, &function));
}

/* --- occupancy -------------------------------------------------------------------------------- */

static int occupancy(int *blocks, const void *kernel, int threads, size_t shared)
{
    int device;
    cm_sim_function *function;
    if (!blocks || threads <= 0)
        return CM_CUDA_INVALID_VALUE;
    int result = cm_sim_device_ready(&device);
    if (!result)
        result = find(kernel, &function);
    if (!result)
        *blocks = threads > THREADS
                      ? 0
                      : cm_sim_occupancy(device, threads, CM_SIM_FUNCTION_REGISTERS, shared);
    return result;
}

CM_SIM_EXPORT int cudaOccupancyMaxActiveBlocksPerMultiprocessor(int *blocks, const void *kernel,
                                                                int threads, size_t shared)
{
    CM_RT_BEGIN(cudaOccupancyMaxActiveBlocksPerMultiprocessor, blocks, kernel, threads, shared);
    CM_RT_END(occupancy(blocks, kernel, threads, shared));
}

CM_SIM_EXPORT int cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int *blocks,
                                                                         const void *kernel,
                                                                         int threads, size_t shared,
                                                                         unsigned flags)
{
    CM_RT_BEGIN(cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags, blocks, kernel, threads,
                shared, flags);
    CM_RT_END(flags > 1 ? CM_CUDA_INVALID_VALUE : occupancy(blocks, kernel, threads, shared));
}

/* How many clusters of a launch run at once: as many as their blocks fit. */
CM_SIM_EXPORT int cudaOccupancyMaxActiveClusters(int *clusters, const void *kernel,
                                                 const cm_cuda_launch_config *config)
{
    CM_RT_BEGIN(cudaOccupancyMaxActiveClusters, clusters, kernel, config);
    bool together;
    cm_cuda_dim3 cluster;
    if (!clusters || !config || !attributes_of(config, &together, &cluster))
        CM_RT_END(CM_CUDA_INVALID_VALUE);
    int result = cluster_fits(&cluster, &config->gridDim), blocks;
    const cm_cuda_dim3 *block = &config->blockDim;
    if (!result)
        result = occupancy(&blocks, kernel, (int)(block->x * block->y * block->z),
                           config->dynamicSmemBytes);
    if (result)
        CM_RT_END(result);
    int each = (int)(cluster.x * cluster.y * cluster.z);
    *clusters =
        blocks * cm_sim_config_get()->device[cm_sim_current_device()].sms / (each ? each : 1);
    CM_RT_END(CM_CUDA_OK);
}
