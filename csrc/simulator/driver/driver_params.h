/* The parameters of driver calls, as CUPTI's callbacks hand them out: own declarations with the
 * vendor's field names and order, and the numbers of the callbacks. Structures that a field points
 * to are not needed here. tests/simulator/device/test_driver_params.py compares all of it with the
 * vendor's headers. */
#ifndef CM_SIM_DRIVER_PARAMS_H
#define CM_SIM_DRIVER_PARAMS_H

#include <stddef.h>
#include <stdint.h>

#include "../objects/cuda_types.h"

enum {
    CM_CBID_cuCtxSynchronize = 17,
    CM_CBID_cuModuleLoad = 18,
    CM_CBID_cuModuleLoadData = 19,
    CM_CBID_cuModuleLoadDataEx = 20,
    CM_CBID_cuModuleUnload = 22,
    CM_CBID_cuMemFreeHost = 38,
    CM_CBID_cuMemHostAlloc = 39,
    CM_CBID_cuArrayDestroy = 89,
    CM_CBID_cuEventCreate = 118,
    CM_CBID_cuEventRecord = 119,
    CM_CBID_cuEventSynchronize = 121,
    CM_CBID_cuStreamCreate = 124,
    CM_CBID_cuStreamSynchronize = 126,
    CM_CBID_cuMemsetD8Async = 216,
    CM_CBID_cuMemsetD16Async = 218,
    CM_CBID_cuMemsetD32Async = 220,
    CM_CBID_cuMemsetD2D8Async = 222,
    CM_CBID_cuMemsetD2D16Async = 224,
    CM_CBID_cuMemsetD2D32Async = 226,
    CM_CBID_cuCtxCreate_v2 = 235,
    CM_CBID_cuMemAlloc_v2 = 243,
    CM_CBID_cuMemAllocPitch_v2 = 244,
    CM_CBID_cuMemFree_v2 = 245,
    CM_CBID_cuMemsetD8_v2 = 249,
    CM_CBID_cuMemsetD16_v2 = 250,
    CM_CBID_cuMemsetD32_v2 = 251,
    CM_CBID_cuMemsetD2D8_v2 = 252,
    CM_CBID_cuMemsetD2D16_v2 = 253,
    CM_CBID_cuMemsetD2D32_v2 = 254,
    CM_CBID_cuArrayCreate_v2 = 272,
    CM_CBID_cuArray3DCreate_v2 = 274,
    CM_CBID_cuMemcpyHtoD_v2 = 276,
    CM_CBID_cuMemcpyHtoDAsync_v2 = 277,
    CM_CBID_cuMemcpyDtoH_v2 = 278,
    CM_CBID_cuMemcpyDtoHAsync_v2 = 279,
    CM_CBID_cuMemcpyDtoD_v2 = 280,
    CM_CBID_cuMemcpyDtoDAsync_v2 = 281,
    CM_CBID_cuMemcpyAtoH_v2 = 282,
    CM_CBID_cuMemcpyAtoHAsync_v2 = 283,
    CM_CBID_cuMemcpyAtoD_v2 = 284,
    CM_CBID_cuMemcpyDtoA_v2 = 285,
    CM_CBID_cuMemcpyAtoA_v2 = 286,
    CM_CBID_cuMemcpy2D_v2 = 287,
    CM_CBID_cuMemcpy2DUnaligned_v2 = 288,
    CM_CBID_cuMemcpy2DAsync_v2 = 289,
    CM_CBID_cuMemcpy3D_v2 = 290,
    CM_CBID_cuMemcpy3DAsync_v2 = 291,
    CM_CBID_cuMemcpyHtoA_v2 = 292,
    CM_CBID_cuMemcpyHtoAAsync_v2 = 293,
    CM_CBID_cuMemAllocHost_v2 = 294,
    CM_CBID_cuStreamWaitEvent = 295,
    CM_CBID_cuMemHostRegister = 301,
    CM_CBID_cuMemHostUnregister = 302,
    CM_CBID_cuMemcpy = 305,
    CM_CBID_cuMemcpyAsync = 306,
    CM_CBID_cuLaunchKernel = 307,
    CM_CBID_cuMemcpyPeer = 318,
    CM_CBID_cuMemcpyPeerAsync = 319,
    CM_CBID_cuMemcpy3DPeer = 320,
    CM_CBID_cuMemcpy3DPeerAsync = 321,
    CM_CBID_cuCtxDestroy_v2 = 322,
    CM_CBID_cuEventDestroy_v2 = 325,
    CM_CBID_cuStreamDestroy_v2 = 326,
    CM_CBID_cuIpcCloseMemHandle = 330,
    CM_CBID_cuMipmappedArrayCreate = 347,
    CM_CBID_cuMipmappedArrayDestroy = 349,
    CM_CBID_cuStreamCreateWithPriority = 367,
    CM_CBID_cuMemAllocManaged = 371,
    CM_CBID_cuMemHostRegister_v2 = 379,
    CM_CBID_cuDevicePrimaryCtxRetain = 386,
    CM_CBID_cuLaunchCooperativeKernel = 477,
    CM_CBID_cuImportExternalMemory = 485,
    CM_CBID_cuExternalMemoryGetMappedBuffer = 486,
    CM_CBID_cuExternalMemoryGetMappedMipmappedArray = 487,
    CM_CBID_cuDestroyExternalMemory = 488,
    CM_CBID_cuStreamEndCapture = 497,
    CM_CBID_cuGraphLaunch = 514,
    CM_CBID_cuGraphExecDestroy = 516,
    CM_CBID_cuGraphDestroy = 517,
    CM_CBID_cuLaunchHostFunc = 527,
    CM_CBID_cuStreamBeginCapture_v2 = 539,
    CM_CBID_cuDevicePrimaryCtxRelease_v2 = 544,
    CM_CBID_cuDevicePrimaryCtxReset_v2 = 545,
    CM_CBID_cuMemAddressReserve = 547,
    CM_CBID_cuMemAddressFree = 548,
    CM_CBID_cuMemCreate = 549,
    CM_CBID_cuMemRelease = 550,
    CM_CBID_cuMemMap = 551,
    CM_CBID_cuMemUnmap = 552,
    CM_CBID_cuMemSetAccess = 553,
    CM_CBID_cuMemImportFromShareableHandle = 555,
    CM_CBID_cuMemRetainAllocationHandle = 565,
    CM_CBID_cuIpcOpenMemHandle_v2 = 567,
    CM_CBID_cuEventRecordWithFlags = 587,
    CM_CBID_cuMemAllocAsync = 598,
    CM_CBID_cuMemAllocAsync_ptsz = 599,
    CM_CBID_cuMemFreeAsync = 600,
    CM_CBID_cuMemFreeAsync_ptsz = 601,
    CM_CBID_cuMemPoolTrimTo = 602,
    CM_CBID_cuMemPoolSetAttribute = 603,
    CM_CBID_cuMemPoolGetAttribute = 604,
    CM_CBID_cuMemPoolSetAccess = 605,
    CM_CBID_cuDeviceGetDefaultMemPool = 606,
    CM_CBID_cuMemPoolCreate = 607,
    CM_CBID_cuMemPoolDestroy = 608,
    CM_CBID_cuDeviceSetMemPool = 609,
    CM_CBID_cuDeviceGetMemPool = 610,
    CM_CBID_cuMemAllocFromPoolAsync = 611,
    CM_CBID_cuMemAllocFromPoolAsync_ptsz = 612,
    CM_CBID_cuMemPoolImportFromShareableHandle = 614,
    CM_CBID_cuMemPoolImportPointer = 616,
    CM_CBID_cuMemPoolGetAccess = 617,
    CM_CBID_cuGraphAddMemAllocNode = 638,
    CM_CBID_cuGraphAddMemFreeNode = 639,
    CM_CBID_cuDeviceGraphMemTrim = 640,
    CM_CBID_cuGraphInstantiateWithFlags = 643,
    CM_CBID_cuCtxCreate_v3 = 645,
    CM_CBID_cuLaunchKernelEx = 652,
    CM_CBID_cuLibraryLoadData = 678,
    CM_CBID_cuLibraryUnload = 680,
    CM_CBID_cuMulticastCreate = 706,
    CM_CBID_cuCtxCreate_v4 = 757
};

/* --- Contexts --------------------------------------------------------------------------------- */

typedef struct cm_cuDevicePrimaryCtxRetain_params {
    void **pctx;
    int dev;
} cm_cuDevicePrimaryCtxRetain_params;

typedef struct cm_cuDevicePrimaryCtxRelease_v2_params {
    int dev;
} cm_cuDevicePrimaryCtxRelease_v2_params;

typedef struct cm_cuDevicePrimaryCtxReset_v2_params {
    int dev;
} cm_cuDevicePrimaryCtxReset_v2_params;

typedef struct cm_cuCtxCreate_v2_params {
    void **pctx;
    unsigned flags;
    int dev;
} cm_cuCtxCreate_v2_params;

typedef struct cm_cuCtxCreate_v3_params {
    void **pctx;
    void *paramsArray;
    int numParams;
    unsigned flags;
    int dev;
} cm_cuCtxCreate_v3_params;

typedef struct cm_cuCtxCreate_v4_params {
    void **pctx;
    void *ctxCreateParams;
    unsigned flags;
    int dev;
} cm_cuCtxCreate_v4_params;

typedef struct cm_cuCtxDestroy_v2_params {
    void *ctx;
} cm_cuCtxDestroy_v2_params;

/* --- Device memory --------------------------------------------------------------------------- */

typedef struct cm_cuMemAlloc_v2_params {
    uint64_t *dptr;
    size_t bytesize;
} cm_cuMemAlloc_v2_params;

typedef struct cm_cuMemAllocPitch_v2_params {
    uint64_t *dptr;
    size_t *pPitch;
    size_t WidthInBytes;
    size_t Height;
    unsigned ElementSizeBytes;
} cm_cuMemAllocPitch_v2_params;

typedef struct cm_cuMemFree_v2_params {
    uint64_t dptr;
} cm_cuMemFree_v2_params;

typedef struct cm_cuMemAllocManaged_params {
    uint64_t *dptr;
    size_t bytesize;
    unsigned flags;
} cm_cuMemAllocManaged_params;

/* --- Host memory ----------------------------------------------------------------------------- */

typedef struct cm_cuMemAllocHost_v2_params {
    void **pp;
    size_t bytesize;
} cm_cuMemAllocHost_v2_params;

typedef struct cm_cuMemFreeHost_params {
    void *p;
} cm_cuMemFreeHost_params;

typedef struct cm_cuMemHostAlloc_params {
    void **pp;
    size_t bytesize;
    unsigned Flags;
} cm_cuMemHostAlloc_params;

typedef struct cm_cuMemHostRegister_v2_params {
    void *p;
    size_t bytesize;
    unsigned Flags;
} cm_cuMemHostRegister_v2_params;

typedef struct cm_cuMemHostRegister_params {
    void *p;
    size_t bytesize;
    unsigned Flags;
} cm_cuMemHostRegister_params;

typedef struct cm_cuMemHostUnregister_params {
    void *p;
} cm_cuMemHostUnregister_params;

/* --- Stream-ordered memory and pools --------------------------------------------------------- */

typedef struct cm_cuMemAllocAsync_params {
    uint64_t *dptr;
    size_t bytesize;
    void *hStream;
} cm_cuMemAllocAsync_params;

typedef struct cm_cuMemAllocFromPoolAsync_params {
    uint64_t *dptr;
    size_t bytesize;
    void *pool;
    void *hStream;
} cm_cuMemAllocFromPoolAsync_params;

typedef struct cm_cuMemFreeAsync_params {
    uint64_t dptr;
    void *hStream;
} cm_cuMemFreeAsync_params;

typedef struct cm_cuMemAllocAsync_ptsz_params {
    uint64_t *dptr;
    size_t bytesize;
    void *hStream;
} cm_cuMemAllocAsync_ptsz_params;

typedef struct cm_cuMemAllocFromPoolAsync_ptsz_params {
    uint64_t *dptr;
    size_t bytesize;
    void *pool;
    void *hStream;
} cm_cuMemAllocFromPoolAsync_ptsz_params;

typedef struct cm_cuMemFreeAsync_ptsz_params {
    uint64_t dptr;
    void *hStream;
} cm_cuMemFreeAsync_ptsz_params;

typedef struct cm_cuMemPoolCreate_params {
    void **pool;
    const void *poolProps;
} cm_cuMemPoolCreate_params;

typedef struct cm_cuMemPoolDestroy_params {
    void *pool;
} cm_cuMemPoolDestroy_params;

typedef struct cm_cuMemPoolTrimTo_params {
    void *pool;
    size_t minBytesToKeep;
} cm_cuMemPoolTrimTo_params;

typedef struct cm_cuMemPoolSetAttribute_params {
    void *pool;
    int attr;
    void *value;
} cm_cuMemPoolSetAttribute_params;

typedef struct cm_cuMemPoolGetAttribute_params {
    void *pool;
    int attr;
    void *value;
} cm_cuMemPoolGetAttribute_params;

typedef struct cm_cuMemPoolSetAccess_params {
    void *pool;
    const void *map;
    size_t count;
} cm_cuMemPoolSetAccess_params;

typedef struct cm_cuMemPoolGetAccess_params {
    int *flags;
    void *memPool;
    void *location;
} cm_cuMemPoolGetAccess_params;

typedef struct cm_cuDeviceGetDefaultMemPool_params {
    void **pool_out;
    int dev;
} cm_cuDeviceGetDefaultMemPool_params;

typedef struct cm_cuDeviceGetMemPool_params {
    void **pool;
    int dev;
} cm_cuDeviceGetMemPool_params;

typedef struct cm_cuDeviceSetMemPool_params {
    int dev;
    void *pool;
} cm_cuDeviceSetMemPool_params;

/* --- Virtual memory -------------------------------------------------------------------------- */

typedef struct cm_cuMemAddressReserve_params {
    uint64_t *ptr;
    size_t size;
    size_t alignment;
    uint64_t addr;
    unsigned long long flags;
} cm_cuMemAddressReserve_params;

typedef struct cm_cuMemAddressFree_params {
    uint64_t ptr;
    size_t size;
} cm_cuMemAddressFree_params;

typedef struct cm_cuMemCreate_params {
    unsigned long long *handle;
    size_t size;
    const void *prop;
    unsigned long long flags;
} cm_cuMemCreate_params;

typedef struct cm_cuMemRelease_params {
    unsigned long long handle;
} cm_cuMemRelease_params;

typedef struct cm_cuMemMap_params {
    uint64_t ptr;
    size_t size;
    size_t offset;
    unsigned long long handle;
    unsigned long long flags;
} cm_cuMemMap_params;

typedef struct cm_cuMemUnmap_params {
    uint64_t ptr;
    size_t size;
} cm_cuMemUnmap_params;

typedef struct cm_cuMemSetAccess_params {
    uint64_t ptr;
    size_t size;
    const void *desc;
    size_t count;
} cm_cuMemSetAccess_params;

typedef struct cm_cuMemRetainAllocationHandle_params {
    unsigned long long *handle;
    void *addr;
} cm_cuMemRetainAllocationHandle_params;

/* --- Arrays ---------------------------------------------------------------------------------- */

typedef struct cm_cuArrayCreate_v2_params {
    void **pHandle;
    const void *pAllocateArray;
} cm_cuArrayCreate_v2_params;

typedef struct cm_cuArray3DCreate_v2_params {
    void **pHandle;
    const void *pAllocateArray;
} cm_cuArray3DCreate_v2_params;

typedef struct cm_cuArrayDestroy_params {
    void *hArray;
} cm_cuArrayDestroy_params;

typedef struct cm_cuMipmappedArrayCreate_params {
    void **pHandle;
    const void *pMipmappedArrayDesc;
    unsigned numMipmapLevels;
} cm_cuMipmappedArrayCreate_params;

typedef struct cm_cuMipmappedArrayDestroy_params {
    void *hMipmappedArray;
} cm_cuMipmappedArrayDestroy_params;

/* --- Memory of others ------------------------------------------------------------------------ */

typedef struct cm_cuIpcOpenMemHandle_v2_params {
    uint64_t *pdptr;
    cm_cuda_ipc_handle handle;
    unsigned Flags;
} cm_cuIpcOpenMemHandle_v2_params;

typedef struct cm_cuIpcCloseMemHandle_params {
    uint64_t dptr;
} cm_cuIpcCloseMemHandle_params;

typedef struct cm_cuMemImportFromShareableHandle_params {
    unsigned long long *handle;
    void *osHandle;
    int shHandleType;
} cm_cuMemImportFromShareableHandle_params;

typedef struct cm_cuMemPoolImportFromShareableHandle_params {
    void **pool_out;
    void *handle;
    int handleType;
    unsigned long long flags;
} cm_cuMemPoolImportFromShareableHandle_params;

typedef struct cm_cuMemPoolImportPointer_params {
    uint64_t *ptr_out;
    void *pool;
    void *shareData;
} cm_cuMemPoolImportPointer_params;

typedef struct cm_cuImportExternalMemory_params {
    void **extMem_out;
    const void *memHandleDesc;
} cm_cuImportExternalMemory_params;

typedef struct cm_cuDestroyExternalMemory_params {
    void *extMem;
} cm_cuDestroyExternalMemory_params;

typedef struct cm_cuExternalMemoryGetMappedBuffer_params {
    uint64_t *devPtr;
    void *extMem;
    const void *bufferDesc;
} cm_cuExternalMemoryGetMappedBuffer_params;

typedef struct cm_cuExternalMemoryGetMappedMipmappedArray_params {
    void **mipmap;
    void *extMem;
    const void *mipmapDesc;
} cm_cuExternalMemoryGetMappedMipmappedArray_params;

typedef struct cm_cuMulticastCreate_params {
    unsigned long long *mcHandle;
    const void *prop;
} cm_cuMulticastCreate_params;

/* --- Copies ---------------------------------------------------------------------------------- */

typedef struct cm_cuMemcpy_params {
    uint64_t dst;
    uint64_t src;
    size_t ByteCount;
} cm_cuMemcpy_params;

typedef struct cm_cuMemcpyAsync_params {
    uint64_t dst;
    uint64_t src;
    size_t ByteCount;
    void *hStream;
} cm_cuMemcpyAsync_params;

typedef struct cm_cuMemcpyPeer_params {
    uint64_t dstDevice;
    void *dstContext;
    uint64_t srcDevice;
    void *srcContext;
    size_t ByteCount;
} cm_cuMemcpyPeer_params;

typedef struct cm_cuMemcpyPeerAsync_params {
    uint64_t dstDevice;
    void *dstContext;
    uint64_t srcDevice;
    void *srcContext;
    size_t ByteCount;
    void *hStream;
} cm_cuMemcpyPeerAsync_params;

typedef struct cm_cuMemcpyHtoD_v2_params {
    uint64_t dstDevice;
    const void *srcHost;
    size_t ByteCount;
} cm_cuMemcpyHtoD_v2_params;

typedef struct cm_cuMemcpyDtoH_v2_params {
    void *dstHost;
    uint64_t srcDevice;
    size_t ByteCount;
} cm_cuMemcpyDtoH_v2_params;

typedef struct cm_cuMemcpyDtoD_v2_params {
    uint64_t dstDevice;
    uint64_t srcDevice;
    size_t ByteCount;
} cm_cuMemcpyDtoD_v2_params;

typedef struct cm_cuMemcpyHtoDAsync_v2_params {
    uint64_t dstDevice;
    const void *srcHost;
    size_t ByteCount;
    void *hStream;
} cm_cuMemcpyHtoDAsync_v2_params;

typedef struct cm_cuMemcpyDtoHAsync_v2_params {
    void *dstHost;
    uint64_t srcDevice;
    size_t ByteCount;
    void *hStream;
} cm_cuMemcpyDtoHAsync_v2_params;

typedef struct cm_cuMemcpyDtoDAsync_v2_params {
    uint64_t dstDevice;
    uint64_t srcDevice;
    size_t ByteCount;
    void *hStream;
} cm_cuMemcpyDtoDAsync_v2_params;

typedef struct cm_cuMemcpyHtoA_v2_params {
    void *dstArray;
    size_t dstOffset;
    const void *srcHost;
    size_t ByteCount;
} cm_cuMemcpyHtoA_v2_params;

typedef struct cm_cuMemcpyAtoH_v2_params {
    void *dstHost;
    void *srcArray;
    size_t srcOffset;
    size_t ByteCount;
} cm_cuMemcpyAtoH_v2_params;

typedef struct cm_cuMemcpyDtoA_v2_params {
    void *dstArray;
    size_t dstOffset;
    uint64_t srcDevice;
    size_t ByteCount;
} cm_cuMemcpyDtoA_v2_params;

typedef struct cm_cuMemcpyAtoD_v2_params {
    uint64_t dstDevice;
    void *srcArray;
    size_t srcOffset;
    size_t ByteCount;
} cm_cuMemcpyAtoD_v2_params;

typedef struct cm_cuMemcpyAtoA_v2_params {
    void *dstArray;
    size_t dstOffset;
    void *srcArray;
    size_t srcOffset;
    size_t ByteCount;
} cm_cuMemcpyAtoA_v2_params;

typedef struct cm_cuMemcpyHtoAAsync_v2_params {
    void *dstArray;
    size_t dstOffset;
    const void *srcHost;
    size_t ByteCount;
    void *hStream;
} cm_cuMemcpyHtoAAsync_v2_params;

typedef struct cm_cuMemcpyAtoHAsync_v2_params {
    void *dstHost;
    void *srcArray;
    size_t srcOffset;
    size_t ByteCount;
    void *hStream;
} cm_cuMemcpyAtoHAsync_v2_params;

typedef struct cm_cuMemcpy2D_v2_params {
    const void *pCopy;
} cm_cuMemcpy2D_v2_params;

typedef struct cm_cuMemcpy2DUnaligned_v2_params {
    const void *pCopy;
} cm_cuMemcpy2DUnaligned_v2_params;

typedef struct cm_cuMemcpy2DAsync_v2_params {
    const void *pCopy;
    void *hStream;
} cm_cuMemcpy2DAsync_v2_params;

typedef struct cm_cuMemcpy3D_v2_params {
    const void *pCopy;
} cm_cuMemcpy3D_v2_params;

typedef struct cm_cuMemcpy3DAsync_v2_params {
    const void *pCopy;
    void *hStream;
} cm_cuMemcpy3DAsync_v2_params;

typedef struct cm_cuMemcpy3DPeer_params {
    const void *pCopy;
} cm_cuMemcpy3DPeer_params;

typedef struct cm_cuMemcpy3DPeerAsync_params {
    const void *pCopy;
    void *hStream;
} cm_cuMemcpy3DPeerAsync_params;

/* --- Settings -------------------------------------------------------------------------------- */

typedef struct cm_cuMemsetD8_v2_params {
    uint64_t dstDevice;
    unsigned char uc;
    size_t N;
} cm_cuMemsetD8_v2_params;

typedef struct cm_cuMemsetD16_v2_params {
    uint64_t dstDevice;
    unsigned short us;
    size_t N;
} cm_cuMemsetD16_v2_params;

typedef struct cm_cuMemsetD32_v2_params {
    uint64_t dstDevice;
    unsigned ui;
    size_t N;
} cm_cuMemsetD32_v2_params;

typedef struct cm_cuMemsetD2D8_v2_params {
    uint64_t dstDevice;
    size_t dstPitch;
    unsigned char uc;
    size_t Width;
    size_t Height;
} cm_cuMemsetD2D8_v2_params;

typedef struct cm_cuMemsetD2D16_v2_params {
    uint64_t dstDevice;
    size_t dstPitch;
    unsigned short us;
    size_t Width;
    size_t Height;
} cm_cuMemsetD2D16_v2_params;

typedef struct cm_cuMemsetD2D32_v2_params {
    uint64_t dstDevice;
    size_t dstPitch;
    unsigned ui;
    size_t Width;
    size_t Height;
} cm_cuMemsetD2D32_v2_params;

typedef struct cm_cuMemsetD8Async_params {
    uint64_t dstDevice;
    unsigned char uc;
    size_t N;
    void *hStream;
} cm_cuMemsetD8Async_params;

typedef struct cm_cuMemsetD16Async_params {
    uint64_t dstDevice;
    unsigned short us;
    size_t N;
    void *hStream;
} cm_cuMemsetD16Async_params;

typedef struct cm_cuMemsetD32Async_params {
    uint64_t dstDevice;
    unsigned ui;
    size_t N;
    void *hStream;
} cm_cuMemsetD32Async_params;

typedef struct cm_cuMemsetD2D8Async_params {
    uint64_t dstDevice;
    size_t dstPitch;
    unsigned char uc;
    size_t Width;
    size_t Height;
    void *hStream;
} cm_cuMemsetD2D8Async_params;

typedef struct cm_cuMemsetD2D16Async_params {
    uint64_t dstDevice;
    size_t dstPitch;
    unsigned short us;
    size_t Width;
    size_t Height;
    void *hStream;
} cm_cuMemsetD2D16Async_params;

typedef struct cm_cuMemsetD2D32Async_params {
    uint64_t dstDevice;
    size_t dstPitch;
    unsigned ui;
    size_t Width;
    size_t Height;
    void *hStream;
} cm_cuMemsetD2D32Async_params;

/* --- Modules and launches -------------------------------------------------------------------- */

typedef struct cm_cuModuleLoad_params {
    void **module;
    const char *fname;
} cm_cuModuleLoad_params;

typedef struct cm_cuModuleLoadData_params {
    void **module;
    const void *image;
} cm_cuModuleLoadData_params;

typedef struct cm_cuModuleLoadDataEx_params {
    void **module;
    const void *image;
    unsigned numOptions;
    void *options;
    void **optionValues;
} cm_cuModuleLoadDataEx_params;

typedef struct cm_cuModuleUnload_params {
    void *hmod;
} cm_cuModuleUnload_params;

typedef struct cm_cuLibraryLoadData_params {
    void **library;
    const void *code;
    void *jitOptions;
    void **jitOptionsValues;
    unsigned numJitOptions;
    void *libraryOptions;
    void **libraryOptionValues;
    unsigned numLibraryOptions;
} cm_cuLibraryLoadData_params;

typedef struct cm_cuLibraryUnload_params {
    void *library;
} cm_cuLibraryUnload_params;

typedef struct cm_cuLaunchKernel_params {
    void *f;
    unsigned gridDimX;
    unsigned gridDimY;
    unsigned gridDimZ;
    unsigned blockDimX;
    unsigned blockDimY;
    unsigned blockDimZ;
    unsigned sharedMemBytes;
    void *hStream;
    void **kernelParams;
    void **extra;
} cm_cuLaunchKernel_params;

typedef struct cm_cuLaunchKernelEx_params {
    const void *config;
    void *f;
    void **kernelParams;
    void **extra;
} cm_cuLaunchKernelEx_params;

typedef struct cm_cuLaunchCooperativeKernel_params {
    void *f;
    unsigned gridDimX;
    unsigned gridDimY;
    unsigned gridDimZ;
    unsigned blockDimX;
    unsigned blockDimY;
    unsigned blockDimZ;
    unsigned sharedMemBytes;
    void *hStream;
    void **kernelParams;
} cm_cuLaunchCooperativeKernel_params;

typedef struct cm_cuLaunchHostFunc_params {
    void *hStream;
    void (*fn)(void *);
    void *userData;
} cm_cuLaunchHostFunc_params;

/* --- Streams, events, graphs, waiting -------------------------------------------------------- */

typedef struct cm_cuStreamCreate_params {
    void **phStream;
    unsigned Flags;
} cm_cuStreamCreate_params;

typedef struct cm_cuStreamCreateWithPriority_params {
    void **phStream;
    unsigned flags;
    int priority;
} cm_cuStreamCreateWithPriority_params;

typedef struct cm_cuStreamDestroy_v2_params {
    void *hStream;
} cm_cuStreamDestroy_v2_params;

typedef struct cm_cuStreamSynchronize_params {
    void *hStream;
} cm_cuStreamSynchronize_params;

typedef struct cm_cuStreamWaitEvent_params {
    void *hStream;
    void *hEvent;
    unsigned Flags;
} cm_cuStreamWaitEvent_params;

typedef struct cm_cuEventCreate_params {
    void **phEvent;
    unsigned Flags;
} cm_cuEventCreate_params;

typedef struct cm_cuEventDestroy_v2_params {
    void *hEvent;
} cm_cuEventDestroy_v2_params;

typedef struct cm_cuEventRecord_params {
    void *hEvent;
    void *hStream;
} cm_cuEventRecord_params;

typedef struct cm_cuEventRecordWithFlags_params {
    void *hEvent;
    void *hStream;
    unsigned flags;
} cm_cuEventRecordWithFlags_params;

typedef struct cm_cuEventSynchronize_params {
    void *hEvent;
} cm_cuEventSynchronize_params;

typedef struct cm_cuGraphLaunch_params {
    void *hGraph;
    void *hStream;
} cm_cuGraphLaunch_params;

typedef struct cm_cuGraphInstantiateWithFlags_params {
    void **phGraphExec;
    void *hGraph;
    unsigned long long flags;
} cm_cuGraphInstantiateWithFlags_params;

typedef struct cm_cuGraphAddMemAllocNode_params {
    void **phGraphNode;
    void *hGraph;
    void *const *dependencies;
    size_t numDependencies;
    void *nodeParams;
} cm_cuGraphAddMemAllocNode_params;

typedef struct cm_cuGraphAddMemFreeNode_params {
    void **phGraphNode;
    void *hGraph;
    void *const *dependencies;
    size_t numDependencies;
    uint64_t dptr;
} cm_cuGraphAddMemFreeNode_params;

typedef struct cm_cuDeviceGraphMemTrim_params {
    int device;
} cm_cuDeviceGraphMemTrim_params;

typedef struct cm_cuGraphDestroy_params {
    void *hGraph;
} cm_cuGraphDestroy_params;

typedef struct cm_cuGraphExecDestroy_params {
    void *hGraphExec;
} cm_cuGraphExecDestroy_params;

typedef struct cm_cuStreamBeginCapture_v2_params {
    void *hStream;
    int mode;
} cm_cuStreamBeginCapture_v2_params;

typedef struct cm_cuStreamEndCapture_params {
    void *hStream;
    void **phGraph;
} cm_cuStreamEndCapture_params;

#endif
