/* The parameters of runtime calls, as CUPTI's callbacks hand them out (functionParams): fields and
 * order of CUDA 13.0, compared with the vendor's headers by test_runtime_vendor.py. A call without
 * parameters has no structure: its callbacks are handed NULL. The driver's: driver_params.h. */
#ifndef CM_SIM_CUDA_PARAMS_H
#define CM_SIM_CUDA_PARAMS_H

#include "../objects/cuda_types.h"

typedef struct cm_cudaChooseDevice_params {
    int *device;
    const cm_cuda_prop *prop;
} cm_cudaChooseDevice_params;

typedef struct cm_cudaDestroyExternalMemory_params {
    void *extMem;
} cm_cudaDestroyExternalMemory_params;

typedef struct cm_cudaDeviceCanAccessPeer_params {
    int *canAccessPeer;
    int device;
    int peerDevice;
} cm_cudaDeviceCanAccessPeer_params;

typedef struct cm_cudaDeviceDisablePeerAccess_params {
    int peerDevice;
} cm_cudaDeviceDisablePeerAccess_params;

typedef struct cm_cudaDeviceEnablePeerAccess_params {
    int peerDevice;
    unsigned flags;
} cm_cudaDeviceEnablePeerAccess_params;

typedef struct cm_cudaDeviceGetAttribute_params {
    int *value;
    int attr;
    int device;
} cm_cudaDeviceGetAttribute_params;

typedef struct cm_cudaDeviceGetByPCIBusId_params {
    int *device;
    const char *pciBusId;
} cm_cudaDeviceGetByPCIBusId_params;

typedef struct cm_cudaDeviceGetCacheConfig_params {
    int *pCacheConfig;
} cm_cudaDeviceGetCacheConfig_params;

typedef struct cm_cudaDeviceGetDefaultMemPool_params {
    cm_sim_pool **memPool;
    int device;
} cm_cudaDeviceGetDefaultMemPool_params;

typedef struct cm_cudaDeviceGetGraphMemAttribute_params {
    int device;
    int attr;
    void *value;
} cm_cudaDeviceGetGraphMemAttribute_params;

typedef struct cm_cudaDeviceGetLimit_params {
    size_t *pValue;
    int limit;
} cm_cudaDeviceGetLimit_params;

typedef struct cm_cudaDeviceGetMemPool_params {
    cm_sim_pool **memPool;
    int device;
} cm_cudaDeviceGetMemPool_params;

typedef struct cm_cudaDeviceGetP2PAttribute_params {
    int *value;
    int attr;
    int srcDevice;
    int dstDevice;
} cm_cudaDeviceGetP2PAttribute_params;

typedef struct cm_cudaDeviceGetPCIBusId_params {
    char *pciBusId;
    int len;
    int device;
} cm_cudaDeviceGetPCIBusId_params;

typedef struct cm_cudaDeviceGetStreamPriorityRange_params {
    int *leastPriority;
    int *greatestPriority;
} cm_cudaDeviceGetStreamPriorityRange_params;

typedef struct cm_cudaDeviceGraphMemTrim_params {
    int device;
} cm_cudaDeviceGraphMemTrim_params;

typedef struct cm_cudaDeviceSetCacheConfig_params {
    int cacheConfig;
} cm_cudaDeviceSetCacheConfig_params;

typedef struct cm_cudaDeviceSetGraphMemAttribute_params {
    int device;
    int attr;
    void *value;
} cm_cudaDeviceSetGraphMemAttribute_params;

typedef struct cm_cudaDeviceSetLimit_params {
    int limit;
    size_t value;
} cm_cudaDeviceSetLimit_params;

typedef struct cm_cudaDeviceSetMemPool_params {
    int device;
    cm_sim_pool *memPool;
} cm_cudaDeviceSetMemPool_params;

typedef struct cm_cudaDriverGetVersion_params {
    int *driverVersion;
} cm_cudaDriverGetVersion_params;

typedef struct cm_cudaEventCreate_params {
    cm_sim_event **event;
} cm_cudaEventCreate_params;

typedef struct cm_cudaEventCreateWithFlags_params {
    cm_sim_event **event;
    unsigned flags;
} cm_cudaEventCreateWithFlags_params;

typedef struct cm_cudaEventDestroy_params {
    cm_sim_event *event;
} cm_cudaEventDestroy_params;

typedef struct cm_cudaEventElapsedTime_params {
    float *ms;
    cm_sim_event *start;
    cm_sim_event *end;
} cm_cudaEventElapsedTime_params;

typedef struct cm_cudaEventQuery_params {
    cm_sim_event *event;
} cm_cudaEventQuery_params;

typedef struct cm_cudaEventRecord_params {
    cm_sim_event *event;
    cm_sim_stream *stream;
} cm_cudaEventRecord_params;

typedef struct cm_cudaEventRecordWithFlags_params {
    cm_sim_event *event;
    cm_sim_stream *stream;
    unsigned flags;
} cm_cudaEventRecordWithFlags_params;

typedef struct cm_cudaEventSynchronize_params {
    cm_sim_event *event;
} cm_cudaEventSynchronize_params;

typedef struct cm_cudaExternalMemoryGetMappedBuffer_params {
    void **devPtr;
    void *extMem;
    const void *bufferDesc;
} cm_cudaExternalMemoryGetMappedBuffer_params;

typedef struct cm_cudaExternalMemoryGetMappedMipmappedArray_params {
    void **mipmap;
    void *extMem;
    const void *mipmapDesc;
} cm_cudaExternalMemoryGetMappedMipmappedArray_params;

typedef struct cm_cudaFree_params {
    void *devPtr;
} cm_cudaFree_params;

typedef struct cm_cudaFreeArray_params {
    void *array;
} cm_cudaFreeArray_params;

typedef struct cm_cudaFreeAsync_params {
    void *devPtr;
    cm_sim_stream *hStream;
} cm_cudaFreeAsync_params;

typedef struct cm_cudaFreeAsync_ptsz_params {
    void *devPtr;
    cm_sim_stream *hStream;
} cm_cudaFreeAsync_ptsz_params;

typedef struct cm_cudaFreeHost_params {
    void *ptr;
} cm_cudaFreeHost_params;

typedef struct cm_cudaFreeMipmappedArray_params {
    void *mipmappedArray;
} cm_cudaFreeMipmappedArray_params;

typedef struct cm_cudaFuncGetAttributes_params {
    cm_cuda_func_attributes *attr;
    const void *func;
} cm_cudaFuncGetAttributes_params;

typedef struct cm_cudaFuncGetName_params {
    const char **name;
    const void *func;
} cm_cudaFuncGetName_params;

typedef struct cm_cudaFuncSetAttribute_params {
    const void *func;
    int attr;
    int value;
} cm_cudaFuncSetAttribute_params;

typedef struct cm_cudaFuncSetCacheConfig_params {
    const void *func;
    int cacheConfig;
} cm_cudaFuncSetCacheConfig_params;

typedef struct cm_cudaGetDevice_params {
    int *device;
} cm_cudaGetDevice_params;

typedef struct cm_cudaGetDeviceCount_params {
    int *count;
} cm_cudaGetDeviceCount_params;

typedef struct cm_cudaGetDeviceFlags_params {
    unsigned *flags;
} cm_cudaGetDeviceFlags_params;

typedef struct cm_cudaGetDeviceProperties_params {
    cm_cuda_prop *prop;
    int device;
} cm_cudaGetDeviceProperties_params;

typedef struct cm_cudaGetDriverEntryPoint_params {
    const char *symbol;
    void **funcPtr;
    unsigned long long flags;
    int *driverStatus;
} cm_cudaGetDriverEntryPoint_params;

typedef struct cm_cudaGetDriverEntryPointByVersion_params {
    const char *symbol;
    void **funcPtr;
    unsigned cudaVersion;
    unsigned long long flags;
    int *driverStatus;
} cm_cudaGetDriverEntryPointByVersion_params;

typedef struct cm_cudaGetFuncBySymbol_params {
    cm_sim_function **functionPtr;
    const void *symbolPtr;
} cm_cudaGetFuncBySymbol_params;

typedef struct cm_cudaGetKernel_params {
    cm_sim_function **kernelPtr;
    const void *entryFuncAddr;
} cm_cudaGetKernel_params;

typedef struct cm_cudaGetMipmappedArrayLevel_params {
    void *levelArray;
    const void *mipmappedArray;
    unsigned level;
} cm_cudaGetMipmappedArrayLevel_params;

typedef struct cm_cudaGetSymbolAddress_params {
    void **devPtr;
    const void *symbol;
} cm_cudaGetSymbolAddress_params;

typedef struct cm_cudaGetSymbolSize_params {
    size_t *size;
    const void *symbol;
} cm_cudaGetSymbolSize_params;

typedef struct cm_cudaGraphAddChildGraphNode_params {
    cm_sim_node **pGraphNode;
    cm_sim_graph *graph;
    cm_sim_node *const *pDependencies;
    size_t numDependencies;
    cm_sim_graph *childGraph;
} cm_cudaGraphAddChildGraphNode_params;

typedef struct cm_cudaGraphAddDependencies_params {
    cm_sim_graph *graph;
    cm_sim_node *const *from;
    cm_sim_node *const *to;
    const cm_cuda_edge *edgeData;
    size_t numDependencies;
} cm_cudaGraphAddDependencies_params;

typedef struct cm_cudaGraphAddEmptyNode_params {
    cm_sim_node **pGraphNode;
    cm_sim_graph *graph;
    cm_sim_node *const *pDependencies;
    size_t numDependencies;
} cm_cudaGraphAddEmptyNode_params;

typedef struct cm_cudaGraphAddEventRecordNode_params {
    cm_sim_node **pGraphNode;
    cm_sim_graph *graph;
    cm_sim_node *const *pDependencies;
    size_t numDependencies;
    cm_sim_event *event;
} cm_cudaGraphAddEventRecordNode_params;

typedef struct cm_cudaGraphAddEventWaitNode_params {
    cm_sim_node **pGraphNode;
    cm_sim_graph *graph;
    cm_sim_node *const *pDependencies;
    size_t numDependencies;
    cm_sim_event *event;
} cm_cudaGraphAddEventWaitNode_params;

typedef struct cm_cudaGraphAddHostNode_params {
    cm_sim_node **pGraphNode;
    cm_sim_graph *graph;
    cm_sim_node *const *pDependencies;
    size_t numDependencies;
    const cm_cuda_host_node *pNodeParams;
} cm_cudaGraphAddHostNode_params;

typedef struct cm_cudaGraphAddKernelNode_params {
    cm_sim_node **pGraphNode;
    cm_sim_graph *graph;
    cm_sim_node *const *pDependencies;
    size_t numDependencies;
    const cm_cuda_kernel_node *pNodeParams;
} cm_cudaGraphAddKernelNode_params;

typedef struct cm_cudaGraphAddMemAllocNode_params {
    cm_sim_node **pGraphNode;
    cm_sim_graph *graph;
    cm_sim_node *const *pDependencies;
    size_t numDependencies;
    cm_cuda_alloc_node *nodeParams;
} cm_cudaGraphAddMemAllocNode_params;

typedef struct cm_cudaGraphAddMemFreeNode_params {
    cm_sim_node **pGraphNode;
    cm_sim_graph *graph;
    cm_sim_node *const *pDependencies;
    size_t numDependencies;
    void *dptr;
} cm_cudaGraphAddMemFreeNode_params;

typedef struct cm_cudaGraphAddMemcpyNode_params {
    cm_sim_node **pGraphNode;
    cm_sim_graph *graph;
    cm_sim_node *const *pDependencies;
    size_t numDependencies;
    const cm_cuda_copy3d *pCopyParams;
} cm_cudaGraphAddMemcpyNode_params;

typedef struct cm_cudaGraphAddMemcpyNode1D_params {
    cm_sim_node **pGraphNode;
    cm_sim_graph *graph;
    cm_sim_node *const *pDependencies;
    size_t numDependencies;
    void *dst;
    const void *src;
    size_t count;
    int kind;
} cm_cudaGraphAddMemcpyNode1D_params;

typedef struct cm_cudaGraphAddMemsetNode_params {
    cm_sim_node **pGraphNode;
    cm_sim_graph *graph;
    cm_sim_node *const *pDependencies;
    size_t numDependencies;
    const cm_cuda_set_node *pMemsetParams;
} cm_cudaGraphAddMemsetNode_params;

typedef struct cm_cudaGraphAddNode_params {
    cm_sim_node **pGraphNode;
    cm_sim_graph *graph;
    cm_sim_node *const *pDependencies;
    const cm_cuda_edge *dependencyData;
    size_t numDependencies;
    cm_cuda_node_params *nodeParams;
} cm_cudaGraphAddNode_params;

typedef struct cm_cudaGraphClone_params {
    cm_sim_graph **pGraphClone;
    cm_sim_graph *originalGraph;
} cm_cudaGraphClone_params;

typedef struct cm_cudaGraphConditionalHandleCreate_params {
    cm_cuda_conditional *pHandle_out;
    cm_sim_graph *graph;
    unsigned defaultLaunchValue;
    unsigned flags;
} cm_cudaGraphConditionalHandleCreate_params;

typedef struct cm_cudaGraphCreate_params {
    cm_sim_graph **pGraph;
    unsigned flags;
} cm_cudaGraphCreate_params;

typedef struct cm_cudaGraphDestroy_params {
    cm_sim_graph *graph;
} cm_cudaGraphDestroy_params;

typedef struct cm_cudaGraphExecDestroy_params {
    cm_sim_exec *graphExec;
} cm_cudaGraphExecDestroy_params;

typedef struct cm_cudaGraphExecGetFlags_params {
    cm_sim_exec *graphExec;
    unsigned long long *flags;
} cm_cudaGraphExecGetFlags_params;

typedef struct cm_cudaGraphExecKernelNodeSetParams_params {
    cm_sim_exec *hGraphExec;
    cm_sim_node *node;
    const cm_cuda_kernel_node *pNodeParams;
} cm_cudaGraphExecKernelNodeSetParams_params;

typedef struct cm_cudaGraphExecUpdate_params {
    cm_sim_exec *hGraphExec;
    cm_sim_graph *hGraph;
    cm_cuda_update_result *resultInfo;
} cm_cudaGraphExecUpdate_params;

typedef struct cm_cudaGraphGetEdges_params {
    cm_sim_graph *graph;
    cm_sim_node **from;
    cm_sim_node **to;
    cm_cuda_edge *edgeData;
    size_t *numEdges;
} cm_cudaGraphGetEdges_params;

typedef struct cm_cudaGraphGetNodes_params {
    cm_sim_graph *graph;
    cm_sim_node **nodes;
    size_t *numNodes;
} cm_cudaGraphGetNodes_params;

typedef struct cm_cudaGraphGetRootNodes_params {
    cm_sim_graph *graph;
    cm_sim_node **pRootNodes;
    size_t *pNumRootNodes;
} cm_cudaGraphGetRootNodes_params;

typedef struct cm_cudaGraphInstantiate_params {
    cm_sim_exec **pGraphExec;
    cm_sim_graph *graph;
    unsigned long long flags;
} cm_cudaGraphInstantiate_params;

typedef struct cm_cudaGraphInstantiateWithFlags_params {
    cm_sim_exec **pGraphExec;
    cm_sim_graph *graph;
    unsigned long long flags;
} cm_cudaGraphInstantiateWithFlags_params;

typedef struct cm_cudaGraphInstantiateWithParams_params {
    cm_sim_exec **pGraphExec;
    cm_sim_graph *graph;
    cm_cuda_instantiate *instantiateParams;
} cm_cudaGraphInstantiateWithParams_params;

typedef struct cm_cudaGraphKernelNodeGetParams_params {
    cm_sim_node *node;
    cm_cuda_kernel_node *pNodeParams;
} cm_cudaGraphKernelNodeGetParams_params;

typedef struct cm_cudaGraphKernelNodeSetParams_params {
    cm_sim_node *node;
    const cm_cuda_kernel_node *pNodeParams;
} cm_cudaGraphKernelNodeSetParams_params;

typedef struct cm_cudaGraphLaunch_params {
    cm_sim_exec *graphExec;
    cm_sim_stream *stream;
} cm_cudaGraphLaunch_params;

typedef struct cm_cudaGraphNodeGetDependencies_params {
    cm_sim_node *node;
    cm_sim_node **pDependencies;
    cm_cuda_edge *edgeData;
    size_t *pNumDependencies;
} cm_cudaGraphNodeGetDependencies_params;

typedef struct cm_cudaGraphNodeGetDependentNodes_params {
    cm_sim_node *node;
    cm_sim_node **pDependentNodes;
    cm_cuda_edge *edgeData;
    size_t *pNumDependentNodes;
} cm_cudaGraphNodeGetDependentNodes_params;

typedef struct cm_cudaGraphNodeGetType_params {
    cm_sim_node *node;
    int *pType;
} cm_cudaGraphNodeGetType_params;

typedef struct cm_cudaGraphReleaseUserObject_params {
    cm_sim_graph *graph;
    cm_sim_user_object *object;
    unsigned count;
} cm_cudaGraphReleaseUserObject_params;

typedef struct cm_cudaGraphRetainUserObject_params {
    cm_sim_graph *graph;
    cm_sim_user_object *object;
    unsigned count;
    unsigned flags;
} cm_cudaGraphRetainUserObject_params;

typedef struct cm_cudaGraphUpload_params {
    cm_sim_exec *graphExec;
    cm_sim_stream *stream;
} cm_cudaGraphUpload_params;

typedef struct cm_cudaHostAlloc_params {
    void **pHost;
    size_t size;
    unsigned flags;
} cm_cudaHostAlloc_params;

typedef struct cm_cudaHostGetDevicePointer_params {
    void **pDevice;
    void *pHost;
    unsigned flags;
} cm_cudaHostGetDevicePointer_params;

typedef struct cm_cudaHostRegister_params {
    void *ptr;
    size_t size;
    unsigned flags;
} cm_cudaHostRegister_params;

typedef struct cm_cudaHostUnregister_params {
    void *ptr;
} cm_cudaHostUnregister_params;

typedef struct cm_cudaImportExternalMemory_params {
    void **extMem_out;
    const void *memHandleDesc;
} cm_cudaImportExternalMemory_params;

typedef struct cm_cudaInitDevice_params {
    int device;
    unsigned deviceFlags;
    unsigned flags;
} cm_cudaInitDevice_params;

typedef struct cm_cudaIpcCloseMemHandle_params {
    void *devPtr;
} cm_cudaIpcCloseMemHandle_params;

typedef struct cm_cudaIpcGetEventHandle_params {
    cm_cuda_ipc_handle *handle;
    cm_sim_event *event;
} cm_cudaIpcGetEventHandle_params;

typedef struct cm_cudaIpcGetMemHandle_params {
    cm_cuda_ipc_handle *handle;
    void *devPtr;
} cm_cudaIpcGetMemHandle_params;

typedef struct cm_cudaIpcOpenEventHandle_params {
    cm_sim_event **event;
    cm_cuda_ipc_handle handle;
} cm_cudaIpcOpenEventHandle_params;

typedef struct cm_cudaIpcOpenMemHandle_params {
    void **devPtr;
    cm_cuda_ipc_handle handle;
    unsigned flags;
} cm_cudaIpcOpenMemHandle_params;

typedef struct cm_cudaKernelSetAttributeForDevice_params {
    cm_sim_function *kernel;
    int attr;
    int value;
    int device;
} cm_cudaKernelSetAttributeForDevice_params;

typedef struct cm_cudaLaunchCooperativeKernel_params {
    const void *func;
    cm_cuda_dim3 gridDim;
    cm_cuda_dim3 blockDim;
    void **args;
    size_t sharedMem;
    cm_sim_stream *stream;
} cm_cudaLaunchCooperativeKernel_params;

typedef struct cm_cudaLaunchHostFunc_params {
    cm_sim_stream *stream;
    cm_cuda_host_function fn;
    void *userData;
} cm_cudaLaunchHostFunc_params;

typedef struct cm_cudaLaunchKernel_params {
    const void *func;
    cm_cuda_dim3 gridDim;
    cm_cuda_dim3 blockDim;
    void **args;
    size_t sharedMem;
    cm_sim_stream *stream;
} cm_cudaLaunchKernel_params;

typedef struct cm_cudaLaunchKernelExC_params {
    const cm_cuda_launch_config *config;
    const void *func;
    void **args;
} cm_cudaLaunchKernelExC_params;

typedef struct cm_cudaLibraryGetKernel_params {
    cm_sim_function **pKernel;
    cm_sim_library *library;
    const char *name;
} cm_cudaLibraryGetKernel_params;

typedef struct cm_cudaLibraryLoadData_params {
    cm_sim_library **library;
    const void *code;
    int *jitOptions;
    void **jitOptionsValues;
    unsigned numJitOptions;
    int *libraryOptions;
    void **libraryOptionValues;
    unsigned numLibraryOptions;
} cm_cudaLibraryLoadData_params;

typedef struct cm_cudaLibraryLoadFromFile_params {
    cm_sim_library **library;
    const char *fileName;
    int *jitOptions;
    void **jitOptionsValues;
    unsigned numJitOptions;
    int *libraryOptions;
    void **libraryOptionValues;
    unsigned numLibraryOptions;
} cm_cudaLibraryLoadFromFile_params;

typedef struct cm_cudaLibraryUnload_params {
    cm_sim_library *library;
} cm_cudaLibraryUnload_params;

typedef struct cm_cudaMalloc_params {
    void **devPtr;
    size_t size;
} cm_cudaMalloc_params;

typedef struct cm_cudaMalloc3D_params {
    cm_cuda_pitched *pitchedDevPtr;
    cm_cuda_extent extent;
} cm_cudaMalloc3D_params;

typedef struct cm_cudaMalloc3DArray_params {
    void *array;
    const cm_cuda_channels *desc;
    cm_cuda_extent extent;
    unsigned flags;
} cm_cudaMalloc3DArray_params;

typedef struct cm_cudaMallocArray_params {
    void *array;
    const cm_cuda_channels *desc;
    size_t width;
    size_t height;
    unsigned flags;
} cm_cudaMallocArray_params;

typedef struct cm_cudaMallocAsync_params {
    void **devPtr;
    size_t size;
    cm_sim_stream *hStream;
} cm_cudaMallocAsync_params;

typedef struct cm_cudaMallocAsync_ptsz_params {
    void **devPtr;
    size_t size;
    cm_sim_stream *hStream;
} cm_cudaMallocAsync_ptsz_params;

typedef struct cm_cudaMallocFromPoolAsync_params {
    void **ptr;
    size_t size;
    cm_sim_pool *memPool;
    cm_sim_stream *stream;
} cm_cudaMallocFromPoolAsync_params;

typedef struct cm_cudaMallocFromPoolAsync_ptsz_params {
    void **ptr;
    size_t size;
    cm_sim_pool *memPool;
    cm_sim_stream *stream;
} cm_cudaMallocFromPoolAsync_ptsz_params;

typedef struct cm_cudaMallocHost_params {
    void **ptr;
    size_t size;
} cm_cudaMallocHost_params;

typedef struct cm_cudaMallocManaged_params {
    void **devPtr;
    size_t size;
    unsigned flags;
} cm_cudaMallocManaged_params;

typedef struct cm_cudaMallocMipmappedArray_params {
    void *mipmappedArray;
    const cm_cuda_channels *desc;
    cm_cuda_extent extent;
    unsigned numLevels;
    unsigned flags;
} cm_cudaMallocMipmappedArray_params;

typedef struct cm_cudaMallocPitch_params {
    void **devPtr;
    size_t *pitch;
    size_t width;
    size_t height;
} cm_cudaMallocPitch_params;

typedef struct cm_cudaMemAdvise_params {
    const void *devPtr;
    size_t count;
    int advice;
    cm_cuda_location location;
} cm_cudaMemAdvise_params;

typedef struct cm_cudaMemGetDefaultMemPool_params {
    cm_sim_pool **memPool;
    cm_cuda_location *location;
    int type;
} cm_cudaMemGetDefaultMemPool_params;

typedef struct cm_cudaMemGetInfo_params {
    size_t *free;
    size_t *total;
} cm_cudaMemGetInfo_params;

typedef struct cm_cudaMemGetMemPool_params {
    cm_sim_pool **memPool;
    cm_cuda_location *location;
    int type;
} cm_cudaMemGetMemPool_params;

typedef struct cm_cudaMemPoolCreate_params {
    cm_sim_pool **memPool;
    const cm_cuda_pool_props *poolProps;
} cm_cudaMemPoolCreate_params;

typedef struct cm_cudaMemPoolDestroy_params {
    cm_sim_pool *memPool;
} cm_cudaMemPoolDestroy_params;

typedef struct cm_cudaMemPoolGetAccess_params {
    int *flags;
    cm_sim_pool *memPool;
    cm_cuda_location *location;
} cm_cudaMemPoolGetAccess_params;

typedef struct cm_cudaMemPoolGetAttribute_params {
    cm_sim_pool *memPool;
    int attr;
    void *value;
} cm_cudaMemPoolGetAttribute_params;

typedef struct cm_cudaMemPoolImportFromShareableHandle_params {
    void **memPool;
    void *shareableHandle;
    int handleType;
    unsigned flags;
} cm_cudaMemPoolImportFromShareableHandle_params;

typedef struct cm_cudaMemPoolImportPointer_params {
    void **ptr;
    void *memPool;
    void *exportData;
} cm_cudaMemPoolImportPointer_params;

typedef struct cm_cudaMemPoolSetAccess_params {
    cm_sim_pool *memPool;
    const cm_cuda_access *descList;
    size_t count;
} cm_cudaMemPoolSetAccess_params;

typedef struct cm_cudaMemPoolSetAttribute_params {
    cm_sim_pool *memPool;
    int attr;
    void *value;
} cm_cudaMemPoolSetAttribute_params;

typedef struct cm_cudaMemPoolTrimTo_params {
    cm_sim_pool *memPool;
    size_t minBytesToKeep;
} cm_cudaMemPoolTrimTo_params;

typedef struct cm_cudaMemPrefetchAsync_params {
    const void *devPtr;
    size_t count;
    cm_cuda_location location;
    unsigned flags;
    cm_sim_stream *stream;
} cm_cudaMemPrefetchAsync_params;

typedef struct cm_cudaMemSetMemPool_params {
    cm_cuda_location *location;
    int type;
    cm_sim_pool *memPool;
} cm_cudaMemSetMemPool_params;

typedef struct cm_cudaMemcpy_params {
    void *dst;
    const void *src;
    size_t count;
    int kind;
} cm_cudaMemcpy_params;

typedef struct cm_cudaMemcpy2D_params {
    void *dst;
    size_t dpitch;
    const void *src;
    size_t spitch;
    size_t width;
    size_t height;
    int kind;
} cm_cudaMemcpy2D_params;

typedef struct cm_cudaMemcpy2DAsync_params {
    void *dst;
    size_t dpitch;
    const void *src;
    size_t spitch;
    size_t width;
    size_t height;
    int kind;
    cm_sim_stream *stream;
} cm_cudaMemcpy2DAsync_params;

typedef struct cm_cudaMemcpy3D_params {
    const cm_cuda_copy3d *p;
} cm_cudaMemcpy3D_params;

typedef struct cm_cudaMemcpy3DAsync_params {
    const cm_cuda_copy3d *p;
    cm_sim_stream *stream;
} cm_cudaMemcpy3DAsync_params;

typedef struct cm_cudaMemcpy3DPeer_params {
    const cm_cuda_copy3d_peer *p;
} cm_cudaMemcpy3DPeer_params;

typedef struct cm_cudaMemcpy3DPeerAsync_params {
    const cm_cuda_copy3d_peer *p;
    cm_sim_stream *stream;
} cm_cudaMemcpy3DPeerAsync_params;

typedef struct cm_cudaMemcpyAsync_params {
    void *dst;
    const void *src;
    size_t count;
    int kind;
    cm_sim_stream *stream;
} cm_cudaMemcpyAsync_params;

typedef struct cm_cudaMemcpyBatchAsync_params {
    void *const *dsts;
    const void *const *srcs;
    const size_t *sizes;
    size_t count;
    cm_cuda_copy_attributes *attrs;
    size_t *attrsIdxs;
    size_t numAttrs;
    cm_sim_stream *stream;
} cm_cudaMemcpyBatchAsync_params;

typedef struct cm_cudaMemcpyFromSymbol_params {
    void *dst;
    const void *symbol;
    size_t count;
    size_t offset;
    int kind;
} cm_cudaMemcpyFromSymbol_params;

typedef struct cm_cudaMemcpyFromSymbolAsync_params {
    void *dst;
    const void *symbol;
    size_t count;
    size_t offset;
    int kind;
    cm_sim_stream *stream;
} cm_cudaMemcpyFromSymbolAsync_params;

typedef struct cm_cudaMemcpyPeer_params {
    void *dst;
    int dstDevice;
    const void *src;
    int srcDevice;
    size_t count;
} cm_cudaMemcpyPeer_params;

typedef struct cm_cudaMemcpyPeerAsync_params {
    void *dst;
    int dstDevice;
    const void *src;
    int srcDevice;
    size_t count;
    cm_sim_stream *stream;
} cm_cudaMemcpyPeerAsync_params;

typedef struct cm_cudaMemcpyToSymbol_params {
    const void *symbol;
    const void *src;
    size_t count;
    size_t offset;
    int kind;
} cm_cudaMemcpyToSymbol_params;

typedef struct cm_cudaMemcpyToSymbolAsync_params {
    const void *symbol;
    const void *src;
    size_t count;
    size_t offset;
    int kind;
    cm_sim_stream *stream;
} cm_cudaMemcpyToSymbolAsync_params;

typedef struct cm_cudaMemset_params {
    void *devPtr;
    int value;
    size_t count;
} cm_cudaMemset_params;

typedef struct cm_cudaMemset2D_params {
    void *devPtr;
    size_t pitch;
    int value;
    size_t width;
    size_t height;
} cm_cudaMemset2D_params;

typedef struct cm_cudaMemset2DAsync_params {
    void *devPtr;
    size_t pitch;
    int value;
    size_t width;
    size_t height;
    cm_sim_stream *stream;
} cm_cudaMemset2DAsync_params;

typedef struct cm_cudaMemset3D_params {
    cm_cuda_pitched pitchedDevPtr;
    int value;
    cm_cuda_extent extent;
} cm_cudaMemset3D_params;

typedef struct cm_cudaMemset3DAsync_params {
    cm_cuda_pitched pitchedDevPtr;
    int value;
    cm_cuda_extent extent;
    cm_sim_stream *stream;
} cm_cudaMemset3DAsync_params;

typedef struct cm_cudaMemsetAsync_params {
    void *devPtr;
    int value;
    size_t count;
    cm_sim_stream *stream;
} cm_cudaMemsetAsync_params;

typedef struct cm_cudaOccupancyAvailableDynamicSMemPerBlock_params {
    size_t *dynamicSmemSize;
    const void *func;
    int numBlocks;
    int blockSize;
} cm_cudaOccupancyAvailableDynamicSMemPerBlock_params;

typedef struct cm_cudaOccupancyMaxActiveBlocksPerMultiprocessor_params {
    int *numBlocks;
    const void *func;
    int blockSize;
    size_t dynamicSMemSize;
} cm_cudaOccupancyMaxActiveBlocksPerMultiprocessor_params;

typedef struct cm_cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags_params {
    int *numBlocks;
    const void *func;
    int blockSize;
    size_t dynamicSMemSize;
    unsigned flags;
} cm_cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags_params;

typedef struct cm_cudaOccupancyMaxActiveClusters_params {
    int *numClusters;
    const void *func;
    const cm_cuda_launch_config *launchConfig;
} cm_cudaOccupancyMaxActiveClusters_params;

typedef struct cm_cudaOccupancyMaxPotentialClusterSize_params {
    int *clusterSize;
    const void *func;
    const cm_cuda_launch_config *launchConfig;
} cm_cudaOccupancyMaxPotentialClusterSize_params;

typedef struct cm_cudaPointerGetAttributes_params {
    cm_cuda_pointer_attributes *attributes;
    const void *ptr;
} cm_cudaPointerGetAttributes_params;

typedef struct cm_cudaRuntimeGetVersion_params {
    int *runtimeVersion;
} cm_cudaRuntimeGetVersion_params;

typedef struct cm_cudaSetDevice_params {
    int device;
} cm_cudaSetDevice_params;

typedef struct cm_cudaSetDeviceFlags_params {
    unsigned flags;
} cm_cudaSetDeviceFlags_params;

typedef struct cm_cudaSetValidDevices_params {
    int *device_arr;
    int len;
} cm_cudaSetValidDevices_params;

typedef struct cm_cudaStreamAddCallback_params {
    cm_sim_stream *stream;
    cm_cuda_stream_callback callback;
    void *userData;
    unsigned flags;
} cm_cudaStreamAddCallback_params;

typedef struct cm_cudaStreamAttachMemAsync_params {
    cm_sim_stream *stream;
    void *devPtr;
    size_t length;
    unsigned flags;
} cm_cudaStreamAttachMemAsync_params;

typedef struct cm_cudaStreamBeginCapture_params {
    cm_sim_stream *stream;
    int mode;
} cm_cudaStreamBeginCapture_params;

typedef struct cm_cudaStreamBeginCaptureToGraph_params {
    cm_sim_stream *stream;
    cm_sim_graph *graph;
    cm_sim_node *const *dependencies;
    const cm_cuda_edge *dependencyData;
    size_t numDependencies;
    int mode;
} cm_cudaStreamBeginCaptureToGraph_params;

typedef struct cm_cudaStreamCopyAttributes_params {
    cm_sim_stream *dstStream;
    cm_sim_stream *srcStream;
} cm_cudaStreamCopyAttributes_params;

typedef struct cm_cudaStreamCreate_params {
    cm_sim_stream **pStream;
} cm_cudaStreamCreate_params;

typedef struct cm_cudaStreamCreateWithFlags_params {
    cm_sim_stream **pStream;
    unsigned flags;
} cm_cudaStreamCreateWithFlags_params;

typedef struct cm_cudaStreamCreateWithPriority_params {
    cm_sim_stream **pStream;
    unsigned flags;
    int priority;
} cm_cudaStreamCreateWithPriority_params;

typedef struct cm_cudaStreamDestroy_params {
    cm_sim_stream *stream;
} cm_cudaStreamDestroy_params;

typedef struct cm_cudaStreamEndCapture_params {
    cm_sim_stream *stream;
    cm_sim_graph **pGraph;
} cm_cudaStreamEndCapture_params;

typedef struct cm_cudaStreamGetAttribute_params {
    cm_sim_stream *stream;
    int attr;
    cm_cuda_launch_value *value;
} cm_cudaStreamGetAttribute_params;

typedef struct cm_cudaStreamGetCaptureInfo_params {
    cm_sim_stream *stream;
    int *captureStatus_out;
    unsigned long long *id_out;
    cm_sim_graph **graph_out;
    cm_sim_node *const **dependencies_out;
    const cm_cuda_edge **edgeData_out;
    size_t *numDependencies_out;
} cm_cudaStreamGetCaptureInfo_params;

typedef struct cm_cudaStreamGetDevice_params {
    cm_sim_stream *hStream;
    int *device;
} cm_cudaStreamGetDevice_params;

typedef struct cm_cudaStreamGetFlags_params {
    cm_sim_stream *hStream;
    unsigned *flags;
} cm_cudaStreamGetFlags_params;

typedef struct cm_cudaStreamGetId_params {
    cm_sim_stream *hStream;
    unsigned long long *streamId;
} cm_cudaStreamGetId_params;

typedef struct cm_cudaStreamGetPriority_params {
    cm_sim_stream *hStream;
    int *priority;
} cm_cudaStreamGetPriority_params;

typedef struct cm_cudaStreamIsCapturing_params {
    cm_sim_stream *stream;
    int *pCaptureStatus;
} cm_cudaStreamIsCapturing_params;

typedef struct cm_cudaStreamQuery_params {
    cm_sim_stream *stream;
} cm_cudaStreamQuery_params;

typedef struct cm_cudaStreamSetAttribute_params {
    cm_sim_stream *stream;
    int attr;
    const cm_cuda_launch_value *param;
} cm_cudaStreamSetAttribute_params;

typedef struct cm_cudaStreamSynchronize_params {
    cm_sim_stream *stream;
} cm_cudaStreamSynchronize_params;

typedef struct cm_cudaStreamUpdateCaptureDependencies_params {
    cm_sim_stream *stream;
    cm_sim_node **dependencies;
    const cm_cuda_edge *dependencyData;
    size_t numDependencies;
    unsigned flags;
} cm_cudaStreamUpdateCaptureDependencies_params;

typedef struct cm_cudaStreamWaitEvent_params {
    cm_sim_stream *stream;
    cm_sim_event *event;
    unsigned flags;
} cm_cudaStreamWaitEvent_params;

typedef struct cm_cudaThreadExchangeStreamCaptureMode_params {
    int *mode;
} cm_cudaThreadExchangeStreamCaptureMode_params;

typedef struct cm_cudaUserObjectCreate_params {
    cm_sim_user_object **object_out;
    void *ptr;
    cm_cuda_host_function destroy;
    unsigned initialRefcount;
    unsigned flags;
} cm_cudaUserObjectCreate_params;

typedef struct cm_cudaUserObjectRelease_params {
    cm_sim_user_object *object;
    unsigned count;
} cm_cudaUserObjectRelease_params;

typedef struct cm_cudaUserObjectRetain_params {
    cm_sim_user_object *object;
    unsigned count;
} cm_cudaUserObjectRetain_params;

#endif
