#include "runtime.h"
#include "../libraries/libraries.h"

#include <stdio.h>

/* What the driver surface keeps for both. */
int cuCtxGetLimit(size_t *value, int limit);
int cuCtxSetLimit(int limit, size_t value);
int cuDeviceGetPCIBusId(char *text, int length, int device);
int cuDeviceGetByPCIBusId(int *device, const char *text);

static int check(int device)
{
    int devices = cm_sim_config_get()->devices;
    if (!devices)
        return CM_CUDA_NO_DEVICE;
    return device >= 0 && device < devices ? CM_CUDA_OK : CM_CUDA_INVALID_DEVICE;
}

CM_SIM_EXPORT int cudaGetDeviceCount(int *count)
{
    CM_RT_BEGIN(cudaGetDeviceCount, count);
    int devices = cm_sim_config_get()->devices;
    if (count)
        *count = devices;
    CM_RT_END(!count ? CM_CUDA_INVALID_VALUE : devices ? CM_CUDA_OK : CM_CUDA_NO_DEVICE);
}

CM_SIM_EXPORT int cudaGetDevice(int *device)
{
    CM_RT_BEGIN(cudaGetDevice, device);
    if (!device)
        CM_RT_END(CM_CUDA_INVALID_VALUE);
    int current = cm_sim_current_device();
    int result = check(current);
    if (!result)
        *device = current;
    CM_RT_END(result);
}

/* Since CUDA 12 this makes the device's primary context, which takes the place of any other. */
static int set(int device)
{
    unsigned before = cm_sim_current_context();
    int result = check(device);
    if (result)
        return result;
    cm_sim_set_current_context(0);
    result = cm_sim_device_hold(device);
    if (result)
        cm_sim_set_current_context(before);
    else
        cm_sim_set_current_device(device);
    return result;
}

CM_SIM_EXPORT int cudaSetDevice(int device)
{
    CM_RT_BEGIN(cudaSetDevice, device);
    /* Guards of libraries set what is set: the common case is no more than this. */
    int now;
    if (device == cm_sim_current_device() && !cm_sim_device_ready(&now))
        CM_RT_END(CM_CUDA_OK);
    CM_RT_END(set(device));
}

CM_SIM_EXPORT int cudaInitDevice(int device, unsigned device_flags, unsigned flags)
{
    CM_RT_BEGIN(cudaInitDevice, device, device_flags, flags);
    int result = check(device);
    CM_RT_END(result ? result : cm_sim_device_hold(device));
}

CM_SIM_EXPORT int cudaDeviceSynchronize(void)
{
    CM_RT_BEGIN_BARE(cudaDeviceSynchronize);
    int device;
    int result = cm_sim_device_ready(&device);
    CM_RT_END(result ? result : cm_sim_device_synchronize(device));
}

CM_SIM_EXPORT int cudaDeviceReset(void)
{
    CM_RT_BEGIN_BARE(cudaDeviceReset);
    int device = cm_sim_current_device();
    int result = check(device);
    if (result)
        CM_RT_END(result);
    CM_RT_DRIVER(cuDevicePrimaryCtxReset_v2, device);
    cm_sim_primary_reset(device);
    CM_RT_DRIVER_END(CM_CUDA_OK);
    CM_RT_END(CM_CUDA_OK);
}

CM_SIM_EXPORT int cudaDriverGetVersion(int *version)
{
    CM_RT_BEGIN(cudaDriverGetVersion, version);
    if (version)
        *version = cm_sim_config_get()->driver_version;
    CM_RT_END(version ? CM_CUDA_OK : CM_CUDA_INVALID_VALUE);
}

CM_SIM_EXPORT int cudaRuntimeGetVersion(int *version)
{
    CM_RT_BEGIN(cudaRuntimeGetVersion, version);
    if (version)
        *version = cm_sim_runtime_version();
    CM_RT_END(version ? CM_CUDA_OK : CM_CUDA_INVALID_VALUE);
}

/* --- what a device can do --------------------------------------------------------------------- */

CM_SIM_EXPORT int cudaDeviceGetAttribute(int *value, int attribute, int device)
{
    CM_RT_BEGIN(cudaDeviceGetAttribute, value, attribute, device);
    CM_RT_END(value ? cm_sim_device_attribute(device, attribute, value) : CM_CUDA_INVALID_VALUE);
}

/* The properties repeat the attributes: the offset of each field of one number, and its
 * attribute. */
static const struct {
    uint16_t offset, attribute;
} fields[] = {
#define FIELD(name, attribute)                                                                     \
    {                                                                                              \
        offsetof(cm_cuda_prop, name), attribute                                                    \
    }
    FIELD(regsPerBlock, 12),
    FIELD(warpSize, 10),
    FIELD(maxThreadsPerBlock, 1),
    FIELD(maxThreadsDim[0], 2),
    FIELD(maxThreadsDim[1], 3),
    FIELD(maxThreadsDim[2], 4),
    FIELD(maxGridSize[0], 5),
    FIELD(maxGridSize[1], 6),
    FIELD(maxGridSize[2], 7),
    FIELD(major, 75),
    FIELD(minor, 76),
    FIELD(multiProcessorCount, 16),
    FIELD(integrated, 18),
    FIELD(canMapHostMemory, 19),
    FIELD(maxTexture1D, 21),
    FIELD(maxTexture1DMipmap, 77),
    FIELD(maxTexture2D[0], 22),
    FIELD(maxTexture2D[1], 23),
    FIELD(maxTexture2DMipmap[0], 73),
    FIELD(maxTexture2DMipmap[1], 74),
    FIELD(maxTexture2DLinear[0], 70),
    FIELD(maxTexture2DLinear[1], 71),
    FIELD(maxTexture2DLinear[2], 72),
    FIELD(maxTexture2DGather[0], 45),
    FIELD(maxTexture2DGather[1], 46),
    FIELD(maxTexture3D[0], 24),
    FIELD(maxTexture3D[1], 25),
    FIELD(maxTexture3D[2], 26),
    FIELD(maxTexture3DAlt[0], 47),
    FIELD(maxTexture3DAlt[1], 48),
    FIELD(maxTexture3DAlt[2], 49),
    FIELD(maxTextureCubemap, 52),
    FIELD(maxTexture1DLayered[0], 42),
    FIELD(maxTexture1DLayered[1], 43),
    FIELD(maxTexture2DLayered[0], 27),
    FIELD(maxTexture2DLayered[1], 28),
    FIELD(maxTexture2DLayered[2], 29),
    FIELD(maxTextureCubemapLayered[0], 53),
    FIELD(maxTextureCubemapLayered[1], 54),
    FIELD(maxSurface1D, 55),
    FIELD(maxSurface2D[0], 56),
    FIELD(maxSurface2D[1], 57),
    FIELD(maxSurface3D[0], 58),
    FIELD(maxSurface3D[1], 59),
    FIELD(maxSurface3D[2], 60),
    FIELD(maxSurface1DLayered[0], 61),
    FIELD(maxSurface1DLayered[1], 62),
    FIELD(maxSurface2DLayered[0], 63),
    FIELD(maxSurface2DLayered[1], 64),
    FIELD(maxSurface2DLayered[2], 65),
    FIELD(maxSurfaceCubemap, 66),
    FIELD(maxSurfaceCubemapLayered[0], 67),
    FIELD(maxSurfaceCubemapLayered[1], 68),
    FIELD(concurrentKernels, 31),
    FIELD(ECCEnabled, 32),
    FIELD(pciBusID, 33),
    FIELD(pciDeviceID, 34),
    FIELD(pciDomainID, 50),
    FIELD(asyncEngineCount, 40),
    FIELD(unifiedAddressing, 41),
    FIELD(memoryBusWidth, 37),
    FIELD(l2CacheSize, 38),
    FIELD(persistingL2CacheMaxSize, 108),
    FIELD(maxThreadsPerMultiProcessor, 39),
    FIELD(streamPrioritiesSupported, 78),
    FIELD(globalL1CacheSupported, 79),
    FIELD(localL1CacheSupported, 80),
    FIELD(regsPerMultiprocessor, 82),
    FIELD(managedMemory, 83),
    FIELD(isMultiGpuBoard, 84),
    FIELD(multiGpuBoardGroupID, 85),
    FIELD(hostNativeAtomicSupported, 86),
    FIELD(pageableMemoryAccess, 88),
    FIELD(concurrentManagedAccess, 89),
    FIELD(computePreemptionSupported, 90),
    FIELD(canUseHostPointerForRegisteredMem, 91),
    FIELD(cooperativeLaunch, 95),
    FIELD(pageableMemoryAccessUsesHostPageTables, 100),
    FIELD(directManagedMemAccessFromHost, 101),
    FIELD(maxBlocksPerMultiProcessor, 106),
    FIELD(accessPolicyMaxWindowSize, 109),
    FIELD(hostRegisterSupported, 99),
    FIELD(sparseCudaArraySupported, 112),
    FIELD(hostRegisterReadOnlySupported, 113),
    FIELD(timelineSemaphoreInteropSupported, 114),
    FIELD(memoryPoolsSupported, 115),
    FIELD(gpuDirectRDMASupported, 116),
    FIELD(gpuDirectRDMAFlushWritesOptions, 117),
    FIELD(gpuDirectRDMAWritesOrdering, 118),
    FIELD(memoryPoolSupportedHandleTypes, 119),
    FIELD(deferredMappingCudaArraySupported, 121),
    FIELD(ipcEventSupported, 125),
    FIELD(clusterLaunch, 120),
    FIELD(unifiedFunctionPointers, 129),
    FIELD(deviceNumaConfig, 130),
    FIELD(deviceNumaId, 131),
    FIELD(mpsEnabled, 133),
    FIELD(hostNumaId, 134),
    FIELD(gpuPciDeviceID, 139),
    FIELD(gpuPciSubsystemID, 140),
    FIELD(hostNumaMultinodeIpcSupported, 143),
#undef FIELD
};

/* Those that are wider. */
static const struct {
    uint16_t offset, attribute;
} wide_fields[] = {
#define FIELD(name, attribute)                                                                     \
    {                                                                                              \
        offsetof(cm_cuda_prop, name), attribute                                                    \
    }
    FIELD(sharedMemPerBlock, 8),
    FIELD(memPitch, 11),
    FIELD(totalConstMem, 9),
    FIELD(textureAlignment, 14),
    FIELD(texturePitchAlignment, 51),
    FIELD(surfaceAlignment, 30),
    FIELD(sharedMemPerMultiprocessor, 81),
    FIELD(sharedMemPerBlockOptin, 97),
    FIELD(reservedSharedMemPerBlock, 111),
#undef FIELD
};

static int fill(cm_cuda_prop *prop, int device)
{
    int result = check(device);
    if (result)
        return result;
    cm_sim_nvrtc_prepare(); /* a compiler asks for this first */
    const cm_sim_profile *profile = &cm_sim_config_get()->device[device];
    memset(prop, 0, sizeof *prop);
    snprintf(prop->name, sizeof prop->name, "%s", profile->name);
    cm_sim_uuid(device, (uint8_t *)prop->uuid.bytes);
    prop->totalGlobalMem = profile->memory;
    int value = 0;
    for (size_t i = 0; !result && i < sizeof fields / sizeof *fields; i++) {
        result = cm_sim_device_attribute(device, fields[i].attribute, &value);
        memcpy((char *)prop + fields[i].offset, &value, sizeof value);
    }
    for (size_t i = 0; !result && i < sizeof wide_fields / sizeof *wide_fields; i++) {
        result = cm_sim_device_attribute(device, wide_fields[i].attribute, &value);
        size_t wide = (size_t)value;
        memcpy((char *)prop + wide_fields[i].offset, &wide, sizeof wide);
    }
    return result;
}

CM_SIM_EXPORT int cudaGetDeviceProperties(cm_cuda_prop *prop, int device)
{
    CM_RT_BEGIN(cudaGetDeviceProperties, prop, device);
    CM_RT_END(prop ? fill(prop, device) : CM_CUDA_INVALID_VALUE);
}

/* CUDA 12's cudaDeviceProp is CUDA 13's with fields between: at which offset of it what both have
 * lies in one piece, from which field to which. */
enum { PROP_12_BYTES = 1032 };
static const struct {
    uint16_t to, from, bytes;
} pieces_of_12[] = {
#define PIECE(to, first, last)                                                                     \
    {                                                                                              \
        to, offsetof(cm_cuda_prop, first),                                                         \
            offsetof(cm_cuda_prop, last) + sizeof((cm_cuda_prop *)0)->last -                       \
                offsetof(cm_cuda_prop, first)                                                      \
    }
    PIECE(0, name, maxGridSize),
    PIECE(352, totalConstMem, texturePitchAlignment),
    PIECE(388, multiProcessorCount, multiProcessorCount),
    PIECE(396, integrated, canMapHostMemory),
    PIECE(408, maxTexture1D, maxTexture1DMipmap),
    PIECE(420, maxTexture2D, maxSurfaceCubemapLayered),
    PIECE(568, surfaceAlignment, unifiedAddressing),
    PIECE(612, memoryBusWidth, localL1CacheSupported),
    PIECE(640, sharedMemPerMultiprocessor, hostNativeAtomicSupported),
    PIECE(672, pageableMemoryAccess, cooperativeLaunch),
    PIECE(696, sharedMemPerBlockOptin, maxBlocksPerMultiProcessor),
    PIECE(716, accessPolicyMaxWindowSize, accessPolicyMaxWindowSize),
    PIECE(720, reservedSharedMemPerBlock, unifiedFunctionPointers),
#undef PIECE
};

static const struct {
    uint16_t offset, attribute;
} only_in_12[] = {
    {348, 13}, /* clockRate */
    {384, 15}, /* deviceOverlap */
    {392, 17}, /* kernelExecTimeoutEnabled */
    {404, 20}, /* computeMode */
    {416, 69}, /* maxTexture1DLinear */
    {608, 36}, /* memoryClockRate */
    {668, 87}, /* singleToDoublePrecisionPerfRatio */
    {692, 96}, /* cooperativeMultiDeviceLaunch */
};

/* The name that CUDA 12's header gives the function. */
CM_SIM_EXPORT int cudaGetDeviceProperties_v2(void *prop, int device)
{
    CM_RT_BEGIN(cudaGetDeviceProperties, prop, device); /* the same callback */
    cm_cuda_prop now;
    int value = 0, result = prop ? fill(&now, device) : CM_CUDA_INVALID_VALUE;
    if (result)
        CM_RT_END(result);
    memset(prop, 0, PROP_12_BYTES);
    for (size_t i = 0; i < sizeof pieces_of_12 / sizeof *pieces_of_12; i++)
        memcpy((char *)prop + pieces_of_12[i].to, (char *)&now + pieces_of_12[i].from,
               pieces_of_12[i].bytes);
    for (size_t i = 0; !result && i < sizeof only_in_12 / sizeof *only_in_12; i++) {
        result = cm_sim_device_attribute(device, only_in_12[i].attribute, &value);
        memcpy((char *)prop + only_in_12[i].offset, &value, sizeof value);
    }
    CM_RT_END(result);
}

CM_SIM_EXPORT int cudaDeviceGetPCIBusId(char *text, int length, int device)
{
    CM_RT_BEGIN(cudaDeviceGetPCIBusId, text, length, device);
    CM_RT_END(cuDeviceGetPCIBusId(text, length, device));
}

CM_SIM_EXPORT int cudaDeviceGetByPCIBusId(int *device, const char *text)
{
    CM_RT_BEGIN(cudaDeviceGetByPCIBusId, device, text);
    CM_RT_END(device ? cuDeviceGetByPCIBusId(device, text) : CM_CUDA_INVALID_VALUE);
}

CM_SIM_EXPORT int cudaDeviceGetStreamPriorityRange(int *least, int *greatest)
{
    CM_RT_BEGIN(cudaDeviceGetStreamPriorityRange, least, greatest);
    if (least)
        *least = CM_SIM_PRIORITY_LEAST;
    if (greatest)
        *greatest = CM_SIM_PRIORITY_GREATEST;
    CM_RT_END(check(cm_sim_current_device()));
}

/* Limits of the device's own heap and stack: numbers that are kept, and take nothing. */
CM_SIM_EXPORT int cudaDeviceGetLimit(size_t *value, int limit)
{
    CM_RT_BEGIN(cudaDeviceGetLimit, value, limit);
    int device;
    int result = value ? cm_sim_device_ready(&device) : CM_CUDA_INVALID_VALUE;
    CM_RT_END(result ? result : cuCtxGetLimit(value, limit));
}

CM_SIM_EXPORT int cudaDeviceSetLimit(int limit, size_t value)
{
    CM_RT_BEGIN(cudaDeviceSetLimit, limit, value);
    int device;
    int result = cm_sim_device_ready(&device);
    CM_RT_END(result ? result : cuCtxSetLimit(limit, value));
}

/* Which part of a multiprocessor's memory is cache is a preference that no kernel is here to use.
 */
static atomic_int cache_preference[CM_SIM_DEVICES];
enum { CACHE_PREFERENCES = 4 };

CM_SIM_EXPORT int cudaDeviceGetCacheConfig(int *preference)
{
    CM_RT_BEGIN(cudaDeviceGetCacheConfig, preference);
    int device;
    int result = preference ? cm_sim_device_ready(&device) : CM_CUDA_INVALID_VALUE;
    if (!result)
        *preference = atomic_load(&cache_preference[device]);
    CM_RT_END(result);
}

CM_SIM_EXPORT int cudaDeviceSetCacheConfig(int preference)
{
    CM_RT_BEGIN(cudaDeviceSetCacheConfig, preference);
    int device;
    int result = preference >= 0 && preference < CACHE_PREFERENCES ? cm_sim_device_ready(&device)
                                                                   : CM_CUDA_INVALID_VALUE;
    if (!result)
        atomic_store(&cache_preference[device], preference);
    CM_RT_END(result);
}

/* --- peers ------------------------------------------------------------------------------------ */

CM_SIM_EXPORT int cudaDeviceCanAccessPeer(int *can, int device, int peer)
{
    CM_RT_BEGIN(cudaDeviceCanAccessPeer, can, device, peer);
    int result = can ? check(device) : CM_CUDA_INVALID_VALUE;
    if (!result)
        result = check(peer);
    if (!result)
        *can = cm_sim_peer_possible(device, peer);
    CM_RT_END(result);
}

CM_SIM_EXPORT int cudaDeviceEnablePeerAccess(int peer, unsigned flags)
{
    CM_RT_BEGIN(cudaDeviceEnablePeerAccess, peer, flags);
    int device;
    int result = flags ? CM_CUDA_INVALID_VALUE : cm_sim_device_ready(&device);
    CM_RT_END(result ? result : cm_sim_peer_enable(device, peer));
}
