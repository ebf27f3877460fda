/* The CUDA runtime as a client in C declares it for itself. */
#ifndef RT_H
#define RT_H

#include "objects/cuda_types.h"

#define DECLARE(name, ...) int name(__VA_ARGS__)

typedef cm_sim_stream *stream;
typedef cm_sim_event *event;
typedef cm_sim_graph *graph;
typedef cm_sim_node *node;
typedef cm_sim_exec *exec;
typedef cm_sim_pool *pool;
typedef cm_sim_function *function;
typedef cm_cuda_dim3 dim3;

DECLARE(cudaGetLastError, void);
DECLARE(cudaPeekAtLastError, void);
const char *cudaGetErrorName(int);
const char *cudaGetErrorString(int);

DECLARE(cudaGetDeviceCount, int *);
DECLARE(cudaGetDevice, int *);
DECLARE(cudaSetDevice, int);
DECLARE(cudaInitDevice, int, unsigned, unsigned);
DECLARE(cudaGetDeviceProperties, cm_cuda_prop *, int);
DECLARE(cudaDeviceGetAttribute, int *, int, int);
DECLARE(cudaDeviceSynchronize, void);
DECLARE(cudaDeviceReset, void);
DECLARE(cudaDriverGetVersion, int *);
DECLARE(cudaRuntimeGetVersion, int *);
DECLARE(cudaDeviceGetPCIBusId, char *, int, int);
DECLARE(cudaDeviceGetByPCIBusId, int *, const char *);
DECLARE(cudaDeviceGetStreamPriorityRange, int *, int *);
DECLARE(cudaDeviceGetLimit, size_t *, int);
DECLARE(cudaDeviceSetLimit, int, size_t);
DECLARE(cudaDeviceGetCacheConfig, int *);
DECLARE(cudaDeviceSetCacheConfig, int);
DECLARE(cudaDeviceCanAccessPeer, int *, int, int);
DECLARE(cudaDeviceEnablePeerAccess, int, unsigned);

DECLARE(cudaMalloc, void **, size_t);
DECLARE(cudaMallocManaged, void **, size_t, unsigned);
DECLARE(cudaMallocPitch, void **, size_t *, size_t, size_t);
DECLARE(cudaMalloc3D, cm_cuda_pitched *, cm_cuda_extent);
DECLARE(cudaFree, void *);
DECLARE(cudaMemGetInfo, size_t *, size_t *);
DECLARE(cudaMallocArray, void **, const cm_cuda_channels *, size_t, size_t, unsigned);
DECLARE(cudaMalloc3DArray, void **, const cm_cuda_channels *, cm_cuda_extent, unsigned);
DECLARE(cudaMallocMipmappedArray, void **, const cm_cuda_channels *, cm_cuda_extent, unsigned,
        unsigned);
DECLARE(cudaGetMipmappedArrayLevel, void **, void *, unsigned);
DECLARE(cudaFreeArray, void *);
DECLARE(cudaFreeMipmappedArray, void *);
DECLARE(cudaHostAlloc, void **, size_t, unsigned);
DECLARE(cudaMallocHost, void **, size_t);
DECLARE(cudaFreeHost, void *);
DECLARE(cudaHostRegister, void *, size_t, unsigned);
DECLARE(cudaHostUnregister, void *);
DECLARE(cudaHostGetDevicePointer, void **, void *, unsigned);
DECLARE(cudaPointerGetAttributes, cm_cuda_pointer_attributes *, const void *);
DECLARE(cudaMemAdvise, const void *, size_t, int, cm_cuda_location);
DECLARE(cudaMemPrefetchAsync, const void *, size_t, cm_cuda_location, unsigned, stream);

DECLARE(cudaMemcpy, void *, const void *, size_t, int);
DECLARE(cudaMemcpyAsync, void *, const void *, size_t, int, stream);
DECLARE(cudaMemcpyPeer, void *, int, const void *, int, size_t);
DECLARE(cudaMemcpyPeerAsync, void *, int, const void *, int, size_t, stream);
DECLARE(cudaMemcpy2D, void *, size_t, const void *, size_t, size_t, size_t, int);
DECLARE(cudaMemcpy2DAsync, void *, size_t, const void *, size_t, size_t, size_t, int, stream);
DECLARE(cudaMemcpyBatchAsync, void *const *, const void *const *, const size_t *, size_t,
        cm_cuda_copy_attributes *, size_t *, size_t, stream);
DECLARE(cudaMemcpyToSymbol, const void *, const void *, size_t, size_t, int);
DECLARE(cudaMemcpyFromSymbol, void *, const void *, size_t, size_t, int);
DECLARE(cudaMemset, void *, int, size_t);
DECLARE(cudaMemset2DAsync, void *, size_t, int, size_t, size_t, stream);
DECLARE(cudaMemsetAsync, void *, int, size_t, stream);
DECLARE(cudaGetSymbolAddress, void **, const void *);
DECLARE(cudaGetSymbolSize, size_t *, const void *);

void **__cudaRegisterFatBinary(void *);
void __cudaRegisterFatBinaryEnd(void **);
void __cudaUnregisterFatBinary(void **);
void __cudaRegisterFunction(void **, const char *, char *, const char *, int, void *, void *,
                            void *, void *, int *);
void __cudaRegisterVar(void **, char *, char *, const char *, int, size_t, int, int);
void __cudaRegisterManagedVar(void **, void **, char *, const char *, int, size_t, int, int);
char __cudaInitModule(void **);
unsigned __cudaPushCallConfiguration(dim3, dim3, size_t, stream);
DECLARE(__cudaPopCallConfiguration, dim3 *, dim3 *, size_t *, void *);
DECLARE(__cudaGetKernel, function *, const void *);
DECLARE(__cudaLaunchKernel, function, dim3, dim3, void **, size_t, stream);
DECLARE(cudaLaunchKernel, const void *, dim3, dim3, void **, size_t, stream);
DECLARE(cudaLaunchKernelExC, const cm_cuda_launch_config *, const void *, void **);
DECLARE(cudaLaunchCooperativeKernel, const void *, dim3, dim3, void **, size_t, stream);
DECLARE(cudaFuncGetAttributes, cm_cuda_func_attributes *, const void *);
DECLARE(cudaFuncSetAttribute, const void *, int, int);
DECLARE(cudaGetFuncBySymbol, function *, const void *);
DECLARE(cudaKernelSetAttributeForDevice, function, int, int, int);
DECLARE(cudaOccupancyMaxActiveBlocksPerMultiprocessor, int *, const void *, int, size_t);
DECLARE(cudaOccupancyMaxActiveClusters, int *, const void *, const cm_cuda_launch_config *);

DECLARE(cudaStreamCreate, stream *);
DECLARE(cudaStreamCreateWithFlags, stream *, unsigned);
DECLARE(cudaStreamCreateWithPriority, stream *, unsigned, int);
DECLARE(cudaStreamDestroy, stream);
DECLARE(cudaStreamSynchronize, stream);
DECLARE(cudaStreamQuery, stream);
DECLARE(cudaStreamWaitEvent, stream, event, unsigned);
DECLARE(cudaStreamGetPriority, stream, int *);
DECLARE(cudaStreamGetFlags, stream, unsigned *);
DECLARE(cudaStreamGetDevice, stream, int *);
DECLARE(cudaLaunchHostFunc, stream, cm_cuda_host_function, void *);
DECLARE(cudaStreamAddCallback, stream, cm_cuda_stream_callback, void *, unsigned);
DECLARE(cudaEventCreate, event *);
DECLARE(cudaEventCreateWithFlags, event *, unsigned);
DECLARE(cudaEventDestroy, event);
DECLARE(cudaEventRecord, event, stream);
DECLARE(cudaEventRecordWithFlags, event, stream, unsigned);
DECLARE(cudaEventQuery, event);
DECLARE(cudaEventSynchronize, event);
DECLARE(cudaEventElapsedTime, float *, event, event);

DECLARE(cudaStreamBeginCapture, stream, int);
DECLARE(cudaStreamBeginCaptureToGraph, stream, graph, const node *, const cm_cuda_edge *, size_t,
        int);
DECLARE(cudaStreamEndCapture, stream, graph *);
DECLARE(cudaStreamIsCapturing, stream, int *);
DECLARE(cudaStreamGetCaptureInfo, stream, int *, unsigned long long *, graph *, node *const **,
        const cm_cuda_edge **, size_t *);
DECLARE(cudaStreamUpdateCaptureDependencies, stream, node *, const cm_cuda_edge *, size_t,
        unsigned);
DECLARE(cudaThreadExchangeStreamCaptureMode, int *);

DECLARE(cudaGraphCreate, graph *, unsigned);
DECLARE(cudaGraphDestroy, graph);
DECLARE(cudaGraphAddNode, node *, graph, const node *, const cm_cuda_edge *, size_t,
        cm_cuda_node_params *);
DECLARE(cudaGraphAddMemcpyNode1D, node *, graph, const node *, size_t, void *, const void *, size_t,
        int);
DECLARE(cudaGraphAddChildGraphNode, node *, graph, const node *, size_t, graph);
DECLARE(cudaGraphAddEmptyNode, node *, graph, const node *, size_t);
DECLARE(cudaGraphGetNodes, graph, node *, size_t *);
DECLARE(cudaGraphGetRootNodes, graph, node *, size_t *);
DECLARE(cudaGraphGetEdges, graph, node *, node *, cm_cuda_edge *, size_t *);
DECLARE(cudaGraphNodeGetDependencies, node, node *, cm_cuda_edge *, size_t *);
DECLARE(cudaGraphNodeGetDependentNodes, node, node *, cm_cuda_edge *, size_t *);
DECLARE(cudaGraphNodeGetType, node, int *);
DECLARE(cudaGraphConditionalHandleCreate, cm_cuda_conditional *, graph, unsigned, unsigned);
DECLARE(cudaGraphInstantiate, exec *, graph, unsigned long long);
DECLARE(cudaGraphExecDestroy, exec);
DECLARE(cudaGraphLaunch, exec, stream);
DECLARE(cudaUserObjectCreate, cm_sim_user_object **, void *, cm_cuda_host_function, unsigned,
        unsigned);
DECLARE(cudaUserObjectRelease, cm_sim_user_object *, unsigned);
DECLARE(cudaGraphRetainUserObject, graph, cm_sim_user_object *, unsigned, unsigned);
DECLARE(cudaDeviceGetGraphMemAttribute, int, int, void *);
DECLARE(cudaDeviceSetGraphMemAttribute, int, int, void *);

DECLARE(cudaMallocAsync, void **, size_t, stream);
DECLARE(cudaMallocFromPoolAsync, void **, size_t, pool, stream);
DECLARE(cudaFreeAsync, void *, stream);
DECLARE(cudaDeviceGetDefaultMemPool, pool *, int);
DECLARE(cudaMemPoolCreate, pool *, const cm_cuda_pool_props *);
DECLARE(cudaMemPoolDestroy, pool);
DECLARE(cudaMemPoolTrimTo, pool, size_t);
DECLARE(cudaMemPoolGetAttribute, pool, int, void *);
DECLARE(cudaMemPoolSetAttribute, pool, int, void *);
DECLARE(cudaMemPoolSetAccess, pool, const cm_cuda_access *, size_t);
DECLARE(cudaMemPoolGetAccess, int *, pool, cm_cuda_location *);

DECLARE(cudaLibraryLoadData, cm_sim_library **, const void *, int *, void **, unsigned, int *,
        void **, unsigned);
DECLARE(cudaLibraryLoadFromFile, cm_sim_library **, const char *, int *, void **, unsigned, int *,
        void **, unsigned);
DECLARE(cudaLibraryGetKernel, function *, cm_sim_library *, const char *);
DECLARE(cudaLibraryGetKernelCount, unsigned *, cm_sim_library *);
DECLARE(cudaLibraryEnumerateKernels, function *, unsigned, cm_sim_library *);
DECLARE(cudaLibraryGetGlobal, void **, size_t *, cm_sim_library *, const char *);
DECLARE(cudaLibraryGetManaged, void **, size_t *, cm_sim_library *, const char *);
DECLARE(cudaLibraryGetUnifiedFunction, void **, cm_sim_library *, const char *);
DECLARE(cudaLibraryUnload, cm_sim_library *);
DECLARE(cudaGetDriverEntryPointByVersion, const char *, void **, unsigned, unsigned long long,
        int *);
DECLARE(cudaIpcGetMemHandle, cm_cuda_ipc_handle *, void *);
DECLARE(cudaIpcOpenMemHandle, void **, cm_cuda_ipc_handle, unsigned);
DECLARE(cudaIpcGetEventHandle, cm_cuda_ipc_handle *, event);

#endif
