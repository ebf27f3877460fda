/* A program's own declarations of the driver and NVML, as cuda.h and nvml.h have them. */
#ifndef CU_H
#define CU_H

#include <stddef.h>
#include <stdint.h>

typedef uint64_t address;
typedef void *handle;

typedef struct location {
    int type, id;
} location;

typedef struct properties {
    int type, handle_types;
    location where;
    void *windows;
    unsigned char flags[8];
} properties;

typedef struct access {
    location where;
    int flags;
} access_rights;

typedef struct pool_properties {
    int type, handle_types;
    location where;
    void *windows;
    size_t most;
    unsigned short usage;
    unsigned char reserved[54];
} pool_properties;

typedef struct copy2d {
    size_t src_x, src_y;
    int src_type;
    const void *src_host;
    address src_device;
    handle src_array;
    size_t src_pitch, dst_x, dst_y;
    int dst_type;
    void *dst_host;
    address dst_device;
    handle dst_array;
    size_t dst_pitch, width, height;
} copy2d;

typedef struct copy3d {
    size_t src_x, src_y, src_z, src_level;
    int src_type;
    const void *src_host;
    address src_device;
    handle src_array, src_context;
    size_t src_pitch, src_height, dst_x, dst_y, dst_z, dst_level;
    int dst_type;
    void *dst_host;
    address dst_device;
    handle dst_array, dst_context;
    size_t dst_pitch, dst_height, width, height, depth;
} copy3d;

typedef struct shape {
    size_t width, height;
    int format;
    unsigned channels;
} shape;

typedef struct shape3d {
    size_t width, height, depth;
    int format;
    unsigned channels, flags;
} shape3d;

typedef struct launch {
    unsigned grid[3], block[3], shared;
    handle stream;
    void *attributes;
    unsigned count;
} launch;

int cuInit(unsigned);
int cuDriverGetVersion(int *);
int cuGetErrorName(int, const char **);
int cuGetErrorString(int, const char **);
int cuGetProcAddress_v2(const char *, void **, int, uint64_t, int *);
int cuGetProcAddress(const char *, void **, int, uint64_t);
int cuGetExportTable(const void **, const void *);

int cuDeviceGet(int *, int);
int cuDeviceGetCount(int *);
int cuDeviceGetName(char *, int, int);
int cuDeviceGetUuid_v2(uint8_t *, int);
int cuDeviceTotalMem_v2(size_t *, int);
int cuDeviceGetAttribute(int *, int, int);
int cuDeviceGetPCIBusId(char *, int, int);
int cuDeviceGetByPCIBusId(int *, const char *);
int cuDeviceCanAccessPeer(int *, int, int);
int cuDevicePrimaryCtxRetain(handle *, int);
int cuDevicePrimaryCtxRelease_v2(int);
int cuDevicePrimaryCtxReset_v2(int);
int cuDevicePrimaryCtxGetState(int, unsigned *, int *);
int cuCtxCreate_v2(handle *, unsigned, int);
int cuCtxDestroy_v2(handle);
int cuCtxGetCurrent(handle *);
int cuCtxSetCurrent(handle);
int cuCtxPushCurrent_v2(handle);
int cuCtxPopCurrent_v2(handle *);
int cuCtxGetDevice(int *);
int cuCtxSynchronize(void);
int cuCtxGetLimit(size_t *, int);
int cuCtxSetLimit(int, size_t);
int cuCtxEnablePeerAccess(handle, unsigned);
int cuCtxDisablePeerAccess(handle);

int cuMemAlloc_v2(address *, size_t);
int cuMemAllocManaged(address *, size_t, unsigned);
int cuMemAllocPitch_v2(address *, size_t *, size_t, size_t, unsigned);
int cuMemFree_v2(address);
int cuMemGetInfo_v2(size_t *, size_t *);
int cuMemGetAddressRange_v2(address *, size_t *, address);
int cuMemHostAlloc(void **, size_t, unsigned);
int cuMemAllocHost_v2(void **, size_t);
int cuMemFreeHost(void *);
int cuMemHostRegister_v2(void *, size_t, unsigned);
int cuMemHostUnregister(void *);
int cuMemHostGetDevicePointer_v2(address *, void *, unsigned);
int cuPointerGetAttribute(void *, int, address);
int cuPointerGetAttributes(unsigned, const int *, void **, address);

int cuMemcpy(address, address, size_t);
int cuMemcpyHtoD_v2(address, const void *, size_t);
int cuMemcpyDtoH_v2(void *, address, size_t);
int cuMemcpyDtoD_v2(address, address, size_t);
int cuMemcpyHtoDAsync_v2(address, const void *, size_t, handle);
int cuMemcpyDtoHAsync_v2(void *, address, size_t, handle);
int cuMemcpy2D_v2(const copy2d *);
int cuMemcpy3D_v2(const copy3d *);
int cuMemsetD8_v2(address, unsigned char, size_t);
int cuMemsetD16_v2(address, unsigned short, size_t);
int cuMemsetD2D32Async(address, size_t, unsigned, size_t, size_t, handle);
int cuMemsetD32_v2(address, unsigned, size_t);
int cuMemsetD32Async(address, unsigned, size_t, handle);
int cuArrayCreate_v2(handle *, const shape *);
int cuArray3DCreate_v2(handle *, const shape3d *);
int cuArrayDestroy(handle);
int cuMipmappedArrayCreate(handle *, const shape3d *, unsigned);
int cm_sim_array_level(handle, unsigned, handle *);
int cuMipmappedArrayDestroy(handle);
int cuMemImportFromShareableHandle(uint64_t *, void *, int);
int cuMulticastCreate(uint64_t *, const void *);

int cuMemGetAllocationGranularity(size_t *, const properties *, int);
int cuMemAddressReserve(address *, size_t, size_t, address, unsigned long long);
int cuMemAddressFree(address, size_t);
int cuMemCreate(uint64_t *, size_t, const properties *, unsigned long long);
int cuMemRelease(uint64_t);
int cuMemMap(address, size_t, size_t, uint64_t, unsigned long long);
int cuMemUnmap(address, size_t);
int cuMemSetAccess(address, size_t, const access_rights *, size_t);
int cuMemRetainAllocationHandle(uint64_t *, void *);
int cuMemGetAllocationPropertiesFromHandle(properties *, uint64_t);
int cuMemExportToShareableHandle(void *, uint64_t, int, unsigned long long);

int cuMemAllocAsync(address *, size_t, handle);
int cuMemAllocAsync_ptsz(address *, size_t, handle);
int cuMemFreeAsync(address, handle);
int cuMemAllocFromPoolAsync(address *, size_t, handle, handle);
int cuMemPoolCreate(handle *, const pool_properties *);
int cuMemPoolDestroy(handle);
int cuMemPoolGetAttribute(handle, int, void *);
int cuMemPoolSetAttribute(handle, int, void *);
int cuMemPoolTrimTo(handle, size_t);
int cuDeviceGetDefaultMemPool(handle *, int);

int cuModuleLoad(handle *, const char *);
int cuModuleLoadData(handle *, const void *);
int cuModuleLoadFatBinary(handle *, const void *);
int cuModuleGetLoadingMode(int *);
int cuModuleUnload(handle);
int cuModuleGetFunction(handle *, handle, const char *);
int cuModuleGetFunctionCount(unsigned *, handle);
int cuModuleGetGlobal_v2(address *, size_t *, handle, const char *);
int cuLibraryLoadData(handle *, const void *, int *, void **, unsigned, int *, void **, unsigned);
int cuLibraryLoadFromFile(handle *, const char *, int *, void **, unsigned, int *, void **,
                          unsigned);
int cuLibraryGetKernel(handle *, handle, const char *);
int cuLibraryGetManaged(address *, size_t *, handle, const char *);
int cuLibraryGetUnifiedFunction(void **, handle, const char *);
int cuLibraryUnload(handle);
int cuKernelGetFunction(handle *, handle);
int cuLinkCreate_v2(unsigned, int *, void **, handle *);
int cuLinkAddData_v2(handle, int, void *, size_t, const char *, unsigned, int *, void **);
int cuLinkComplete(handle, void **, size_t *);
int cuLinkDestroy(handle);
int cuFuncGetAttribute(int *, int, handle);
int cuFuncSetAttribute(handle, int, int);
int cuFuncGetName(const char **, handle);
int cuOccupancyMaxActiveBlocksPerMultiprocessor(int *, handle, int, size_t);
int cuOccupancyMaxPotentialBlockSize(int *, int *, handle, size_t (*)(int), size_t, int);
int cuOccupancyMaxActiveClusters(int *, handle, const launch *);
int cuLaunchKernel(handle, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned,
                   handle, void **, void **);
int cuLaunchKernelEx(const launch *, handle, void **, void **);
int cuLaunchCooperativeKernel(handle, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned,
                              unsigned, handle, void **);
int cuLaunchHostFunc(handle, void (*)(void *), void *);
int cuTensorMapEncodeTiled(void *, int, uint32_t, void *, const uint64_t *, const uint64_t *,
                           const uint32_t *, const uint32_t *, int, int, int, int);

int cuStreamCreate(handle *, unsigned);
int cuStreamDestroy_v2(handle);
int cuStreamSynchronize(handle);
int cuStreamQuery(handle);
int cuStreamGetCtx(handle, handle *);
int cuStreamAddCallback(handle, void (*)(handle, int, void *), void *, unsigned);
int cuStreamWriteValue32_v2(handle, address, uint32_t, unsigned);
int cuStreamBeginCapture_v2(handle, int);
int cuStreamEndCapture(handle, handle *);
int cuStreamIsCapturing(handle, int *);
int cuGraphInstantiateWithFlags(handle *, handle, unsigned long long);
int cuGraphLaunch(handle, handle);
int cuGraphDestroy(handle);
int cuGraphExecDestroy(handle);
int cuEventCreate(handle *, unsigned);
int cuEventRecord(handle, handle);
int cuEventQuery(handle);
int cuEventSynchronize(handle);
int cuEventElapsedTime(float *, handle, handle);
int cuEventDestroy_v2(handle);

typedef struct memory {
    unsigned long long total, free, used;
} memory;

typedef struct memory_v2 {
    unsigned version;
    unsigned long long total, reserved, free, used;
} memory_v2;

typedef struct process {
    unsigned pid;
    unsigned long long bytes;
} process;

int nvmlInit_v2(void);
int nvmlShutdown(void);
int nvmlDeviceGetCount_v2(unsigned *);
int nvmlDeviceGetHandleByIndex_v2(unsigned, handle *);
int nvmlDeviceGetHandleByUUID(const char *, handle *);
int nvmlDeviceGetHandleByPciBusId_v2(const char *, handle *);
int nvmlDeviceGetUUID(handle, char *, unsigned);
int nvmlDeviceGetName(handle, char *, unsigned);
int nvmlDeviceGetMemoryInfo(handle, memory *);
int nvmlDeviceGetMemoryInfo_v2(handle, memory_v2 *);
int nvmlDeviceGetComputeRunningProcesses(handle, unsigned *, process *);
int nvmlDeviceGetGpuFabricInfoV(handle, void *);
int nvmlDeviceGetNvLinkRemoteDeviceType(handle, unsigned, int *);

#endif
