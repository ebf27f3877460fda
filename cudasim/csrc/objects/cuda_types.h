/* What a CUDA 13 program and this library must agree on: structures and numbers, in our own words.
 *
 * Layouts and values are the ones of CUDA 13.0; field names are the vendor's, so that a test can
 * compare every offset with the headers where they are installed (test_runtime_vendor.py). Enums
 * of the interface are plain ints here: only the values that something decides on are named. */
#ifndef CM_SIM_CUDA_TYPES_H
#define CM_SIM_CUDA_TYPES_H

#include <stddef.h>
#include <stdint.h>

/* Handles. The runtime and the driver hand out the same objects (objects.h). */
typedef struct cm_sim_stream cm_sim_stream;
typedef struct cm_sim_event cm_sim_event;
typedef struct cm_sim_graph cm_sim_graph;
typedef struct cm_sim_node cm_sim_node;
typedef struct cm_sim_exec cm_sim_exec;
typedef struct cm_sim_function cm_sim_function; /* cudaFunction_t, cudaKernel_t, CUfunction */
typedef struct cm_sim_library cm_sim_library;
typedef struct cm_sim_pool cm_sim_pool;
typedef struct cm_sim_user_object cm_sim_user_object;
typedef unsigned long long cm_cuda_conditional; /* cudaGraphConditionalHandle */
typedef unsigned long long cm_cuda_pointer;     /* CUdeviceptr */

/* The three values that stand for default streams. */
enum { CM_CUDA_STREAM_DEFAULT = 0, CM_CUDA_STREAM_LEGACY = 1, CM_CUDA_STREAM_PER_THREAD = 2 };

typedef void (*cm_cuda_host_function)(void *user_data);
typedef void (*cm_cuda_stream_callback)(cm_sim_stream *stream, int status, void *user_data);

/* --- errors: those that this library returns (names and texts of all: errors.h) --------------- */

enum {
    CM_CUDA_OK = 0,
    CM_CUDA_INVALID_VALUE = 1,
    CM_CUDA_OUT_OF_MEMORY = 2,
    CM_CUDA_INVALID_CONFIGURATION = 9,
    CM_CUDA_INVALID_PITCH = 12,
    CM_CUDA_INVALID_SYMBOL = 13,
    CM_CUDA_INVALID_DEVICE_POINTER = 17,
    CM_CUDA_INVALID_DIRECTION = 21,
    CM_CUDA_MISSING_CONFIGURATION = 52,
    CM_CUDA_INVALID_FUNCTION = 98,
    CM_CUDA_NO_DEVICE = 100,
    CM_CUDA_INVALID_DEVICE = 101,
    CM_CUDA_INVALID_CONTEXT = 201,
    CM_CUDA_UNSUPPORTED_LIMIT = 215,
    CM_CUDA_PEER_UNSUPPORTED = 217,
    CM_CUDA_FILE_NOT_FOUND = 301,
    CM_CUDA_INVALID_HANDLE = 400,
    CM_CUDA_ILLEGAL_STATE = 401,
    CM_CUDA_SYMBOL_NOT_FOUND = 500,
    CM_CUDA_NOT_READY = 600,
    CM_CUDA_ILLEGAL_ADDRESS = 700,
    CM_CUDA_OUT_OF_RESOURCES = 701,
    CM_CUDA_PEER_ALREADY_ENABLED = 704,
    CM_CUDA_PEER_NOT_ENABLED = 705,
    CM_CUDA_HOST_ALREADY_REGISTERED = 712,
    CM_CUDA_HOST_NOT_REGISTERED = 713,
    CM_CUDA_COOPERATIVE_TOO_LARGE = 720,
    CM_CUDA_NOT_PERMITTED = 800,
    CM_CUDA_NOT_SUPPORTED = 801,
    CM_CUDA_CAPTURE_UNSUPPORTED = 900,
    CM_CUDA_CAPTURE_INVALIDATED = 901,
    CM_CUDA_CAPTURE_MERGE = 902,
    CM_CUDA_CAPTURE_UNMATCHED = 903,
    CM_CUDA_CAPTURE_UNJOINED = 904,
    CM_CUDA_CAPTURE_ISOLATION = 905,
    CM_CUDA_CAPTURE_IMPLICIT = 906,
    CM_CUDA_CAPTURED_EVENT = 907,
    CM_CUDA_CAPTURE_WRONG_THREAD = 908,
    CM_CUDA_INVALID_CLUSTER_SIZE = 912,
    CM_CUDA_UNKNOWN = 999
};

/* --- devices ---------------------------------------------------------------------------------- */

typedef struct cm_cuda_uuid {
    char bytes[16];
} cm_cuda_uuid;

/* cudaDeviceProp of CUDA 13. */
typedef struct cm_cuda_prop {
    char name[256];
    cm_cuda_uuid uuid;
    char luid[8];
    unsigned luidDeviceNodeMask;
    size_t totalGlobalMem;
    size_t sharedMemPerBlock;
    int regsPerBlock;
    int warpSize;
    size_t memPitch;
    int maxThreadsPerBlock;
    int maxThreadsDim[3];
    int maxGridSize[3];
    size_t totalConstMem;
    int major;
    int minor;
    size_t textureAlignment;
    size_t texturePitchAlignment;
    int multiProcessorCount;
    int integrated;
    int canMapHostMemory;
    int maxTexture1D;
    int maxTexture1DMipmap;
    int maxTexture2D[2];
    int maxTexture2DMipmap[2];
    int maxTexture2DLinear[3];
    int maxTexture2DGather[2];
    int maxTexture3D[3];
    int maxTexture3DAlt[3];
    int maxTextureCubemap;
    int maxTexture1DLayered[2];
    int maxTexture2DLayered[3];
    int maxTextureCubemapLayered[2];
    int maxSurface1D;
    int maxSurface2D[2];
    int maxSurface3D[3];
    int maxSurface1DLayered[2];
    int maxSurface2DLayered[3];
    int maxSurfaceCubemap;
    int maxSurfaceCubemapLayered[2];
    size_t surfaceAlignment;
    int concurrentKernels;
    int ECCEnabled;
    int pciBusID;
    int pciDeviceID;
    int pciDomainID;
    int tccDriver;
    int asyncEngineCount;
    int unifiedAddressing;
    int memoryBusWidth;
    int l2CacheSize;
    int persistingL2CacheMaxSize;
    int maxThreadsPerMultiProcessor;
    int streamPrioritiesSupported;
    int globalL1CacheSupported;
    int localL1CacheSupported;
    size_t sharedMemPerMultiprocessor;
    int regsPerMultiprocessor;
    int managedMemory;
    int isMultiGpuBoard;
    int multiGpuBoardGroupID;
    int hostNativeAtomicSupported;
    int pageableMemoryAccess;
    int concurrentManagedAccess;
    int computePreemptionSupported;
    int canUseHostPointerForRegisteredMem;
    int cooperativeLaunch;
    size_t sharedMemPerBlockOptin;
    int pageableMemoryAccessUsesHostPageTables;
    int directManagedMemAccessFromHost;
    int maxBlocksPerMultiProcessor;
    int accessPolicyMaxWindowSize;
    size_t reservedSharedMemPerBlock;
    int hostRegisterSupported;
    int sparseCudaArraySupported;
    int hostRegisterReadOnlySupported;
    int timelineSemaphoreInteropSupported;
    int memoryPoolsSupported;
    int gpuDirectRDMASupported;
    unsigned gpuDirectRDMAFlushWritesOptions;
    int gpuDirectRDMAWritesOrdering;
    unsigned memoryPoolSupportedHandleTypes;
    int deferredMappingCudaArraySupported;
    int ipcEventSupported;
    int clusterLaunch;
    int unifiedFunctionPointers;
    int deviceNumaConfig;
    int deviceNumaId;
    int mpsEnabled;
    int hostNumaId;
    unsigned gpuPciDeviceID;
    unsigned gpuPciSubsystemID;
    int hostNumaMultinodeIpcSupported;
    int reserved[56];
} cm_cuda_prop;

/* cudaDeviceAttr; the driver's CU_DEVICE_ATTRIBUTE_* are the same numbers. */
enum {
    CM_CUDA_ATTR_MAX_THREADS_PER_BLOCK = 1,
    CM_CUDA_ATTR_MAX_BLOCK_DIM_X = 2,
    CM_CUDA_ATTR_MAX_BLOCK_DIM_Y = 3,
    CM_CUDA_ATTR_MAX_BLOCK_DIM_Z = 4,
    CM_CUDA_ATTR_MAX_GRID_DIM_X = 5,
    CM_CUDA_ATTR_MAX_GRID_DIM_Y = 6,
    CM_CUDA_ATTR_MAX_GRID_DIM_Z = 7,
    CM_CUDA_ATTR_SHARED_PER_BLOCK = 8,
    CM_CUDA_ATTR_TOTAL_CONSTANT = 9,
    CM_CUDA_ATTR_WARP_SIZE = 10,
    CM_CUDA_ATTR_MAX_PITCH = 11,
    CM_CUDA_ATTR_REGISTERS_PER_BLOCK = 12,
    CM_CUDA_ATTR_CLOCK_RATE = 13,
    CM_CUDA_ATTR_TEXTURE_ALIGNMENT = 14,
    CM_CUDA_ATTR_GPU_OVERLAP = 15,
    CM_CUDA_ATTR_MULTIPROCESSORS = 16,
    CM_CUDA_ATTR_KERNEL_TIMEOUT = 17,
    CM_CUDA_ATTR_INTEGRATED = 18,
    CM_CUDA_ATTR_MAP_HOST_MEMORY = 19,
    CM_CUDA_ATTR_COMPUTE_MODE = 20,
    CM_CUDA_ATTR_SURFACE_ALIGNMENT = 30,
    CM_CUDA_ATTR_CONCURRENT_KERNELS = 31,
    CM_CUDA_ATTR_ECC = 32,
    CM_CUDA_ATTR_PCI_BUS = 33,
    CM_CUDA_ATTR_PCI_DEVICE = 34,
    CM_CUDA_ATTR_MEMORY_CLOCK_RATE = 36,
    CM_CUDA_ATTR_BUS_WIDTH = 37,
    CM_CUDA_ATTR_L2_SIZE = 38,
    CM_CUDA_ATTR_THREADS_PER_MULTIPROCESSOR = 39,
    CM_CUDA_ATTR_ASYNC_ENGINES = 40,
    CM_CUDA_ATTR_UNIFIED_ADDRESSING = 41,
    CM_CUDA_ATTR_PCI_DOMAIN = 50,
    CM_CUDA_ATTR_TEXTURE_PITCH_ALIGNMENT = 51,
    CM_CUDA_ATTR_MAJOR = 75,
    CM_CUDA_ATTR_MINOR = 76,
    CM_CUDA_ATTR_STREAM_PRIORITIES = 78,
    CM_CUDA_ATTR_GLOBAL_L1 = 79,
    CM_CUDA_ATTR_LOCAL_L1 = 80,
    CM_CUDA_ATTR_SHARED_PER_MULTIPROCESSOR = 81,
    CM_CUDA_ATTR_REGISTERS_PER_MULTIPROCESSOR = 82,
    CM_CUDA_ATTR_MANAGED_MEMORY = 83,
    CM_CUDA_ATTR_SINGLE_TO_DOUBLE = 87,
    CM_CUDA_ATTR_CONCURRENT_MANAGED = 89,
    CM_CUDA_ATTR_PREEMPTION = 90,
    CM_CUDA_ATTR_HOST_POINTER_FOR_REGISTERED = 91,
    CM_CUDA_ATTR_COOPERATIVE = 95,
    CM_CUDA_ATTR_SHARED_PER_BLOCK_OPTIN = 97,
    CM_CUDA_ATTR_HOST_REGISTER = 99,
    CM_CUDA_ATTR_VIRTUAL_MEMORY = 102, /* of the driver only, as far as 105 */
    CM_CUDA_ATTR_HANDLE_POSIX_FD = 103,
    CM_CUDA_ATTR_HANDLE_WIN32 = 104,
    CM_CUDA_ATTR_HANDLE_WIN32_KMT = 105,
    CM_CUDA_ATTR_BLOCKS_PER_MULTIPROCESSOR = 106,
    CM_CUDA_ATTR_PERSISTING_L2 = 108,
    CM_CUDA_ATTR_ACCESS_POLICY_WINDOW = 109,
    CM_CUDA_ATTR_RESERVED_SHARED = 111,
    CM_CUDA_ATTR_MEMORY_POOLS = 115,
    CM_CUDA_ATTR_POOL_HANDLE_TYPES = 119,
    CM_CUDA_ATTR_CLUSTER_LAUNCH = 120,
    CM_CUDA_ATTR_IPC_EVENTS = 125,
    CM_CUDA_ATTR_SYNC_DOMAINS = 126,
    CM_CUDA_ATTR_TENSOR_MAP = 127,        /* of the driver only */
    CM_CUDA_ATTR_HANDLE_FABRIC = 128,     /* of the driver only */
    CM_CUDA_ATTR_UNIFIED_FUNCTIONS = 129, /* of the driver only */
    CM_CUDA_ATTR_NUMA_ID = 131,
    CM_CUDA_ATTR_MULTICAST = 132, /* of the driver only */
    CM_CUDA_ATTR_HOST_NUMA_ID = 134,
    CM_CUDA_ATTR_PCI_DEVICE_ID = 139,
    CM_CUDA_ATTR_END = 148
};

/* --- memory ----------------------------------------------------------------------------------- */

enum {
    CM_CUDA_MEMORY_UNREGISTERED = 0,
    CM_CUDA_MEMORY_HOST = 1,
    CM_CUDA_MEMORY_DEVICE = 2,
    CM_CUDA_MEMORY_MANAGED = 3
};

typedef struct cm_cuda_pointer_attributes {
    int type;
    int device;
    void *devicePointer;
    void *hostPointer;
    long reserved[8];
} cm_cuda_pointer_attributes;

enum {
    CM_CUDA_COPY_HOST_TO_HOST = 0,
    CM_CUDA_COPY_HOST_TO_DEVICE = 1,
    CM_CUDA_COPY_DEVICE_TO_HOST = 2,
    CM_CUDA_COPY_DEVICE_TO_DEVICE = 3,
    CM_CUDA_COPY_DEFAULT = 4
};

typedef struct cm_cuda_pitched {
    void *ptr;
    size_t pitch, xsize, ysize;
} cm_cuda_pitched;

typedef struct cm_cuda_extent {
    size_t width, height, depth;
} cm_cuda_extent;

/* Bits of each channel of an array. */
typedef struct cm_cuda_channels {
    int x, y, z, w;
    int f;
} cm_cuda_channels;

typedef struct cm_cuda_pos {
    size_t x, y, z;
} cm_cuda_pos;

/* cudaMemcpy3DParms */
typedef struct cm_cuda_copy3d {
    void *srcArray;
    cm_cuda_pos srcPos;
    cm_cuda_pitched srcPtr;
    void *dstArray;
    cm_cuda_pos dstPos;
    cm_cuda_pitched dstPtr;
    cm_cuda_extent extent;
    int kind;
} cm_cuda_copy3d;

typedef struct cm_cuda_location {
    int type;
    int id;
} cm_cuda_location;
enum { CM_CUDA_LOCATION_NONE = 0, CM_CUDA_LOCATION_DEVICE = 1, CM_CUDA_LOCATION_HOST = 2 };

typedef struct cm_cuda_access {
    cm_cuda_location location;
    int flags;
} cm_cuda_access;
enum { CM_CUDA_ACCESS_NONE = 0, CM_CUDA_ACCESS_READ = 1, CM_CUDA_ACCESS_READ_WRITE = 3 };

/* cudaMemcpyAttributes */
typedef struct cm_cuda_copy_attributes {
    int srcAccessOrder;
    cm_cuda_location srcLocHint;
    cm_cuda_location dstLocHint;
    unsigned flags;
} cm_cuda_copy_attributes;

/* cudaMemPoolProps, CUmemPoolProps */
typedef struct cm_cuda_pool_props {
    int allocType;
    int handleTypes;
    cm_cuda_location location;
    void *win32SecurityAttributes;
    size_t maxSize;
    unsigned short usage;
    unsigned char reserved[54];
} cm_cuda_pool_props;

enum {
    CM_CUDA_POOL_FOLLOW_EVENTS = 1,
    CM_CUDA_POOL_OPPORTUNISTIC = 2,
    CM_CUDA_POOL_INTERNAL_DEPENDENCIES = 3,
    CM_CUDA_POOL_RELEASE_THRESHOLD = 4,
    CM_CUDA_POOL_RESERVED_CURRENT = 5,
    CM_CUDA_POOL_RESERVED_HIGH = 6,
    CM_CUDA_POOL_USED_CURRENT = 7,
    CM_CUDA_POOL_USED_HIGH = 8
};
enum {
    CM_CUDA_GRAPH_MEM_USED_CURRENT = 0,
    CM_CUDA_GRAPH_MEM_USED_HIGH = 1,
    CM_CUDA_GRAPH_MEM_RESERVED_CURRENT = 2,
    CM_CUDA_GRAPH_MEM_RESERVED_HIGH = 3
};

/* Flags of cudaHostAlloc and cudaHostRegister, cudaMallocManaged. */
enum {
    CM_CUDA_HOST_PORTABLE = 1,
    CM_CUDA_HOST_MAPPED = 2,
    CM_CUDA_HOST_WRITE_COMBINED = 4,
    CM_CUDA_HOST_REGISTER_IO = 4,
    CM_CUDA_HOST_REGISTER_READ_ONLY = 8,
    CM_CUDA_ATTACH_GLOBAL = 1,
    CM_CUDA_ATTACH_HOST = 2
};

typedef struct cm_cuda_ipc_handle {
    char reserved[64];
} cm_cuda_ipc_handle;

/* --- launches --------------------------------------------------------------------------------- */

typedef struct cm_cuda_dim3 {
    unsigned x, y, z;
} cm_cuda_dim3;

/* cudaFuncAttributes */
typedef struct cm_cuda_func_attributes {
    size_t sharedSizeBytes;
    size_t constSizeBytes;
    size_t localSizeBytes;
    int maxThreadsPerBlock;
    int numRegs;
    int ptxVersion;
    int binaryVersion;
    int cacheModeCA;
    int maxDynamicSharedSizeBytes;
    int preferredShmemCarveout;
    int clusterDimMustBeSet;
    int requiredClusterWidth;
    int requiredClusterHeight;
    int requiredClusterDepth;
    int clusterSchedulingPolicyPreference;
    int nonPortableClusterSizeAllowed;
    int reserved[16];
} cm_cuda_func_attributes;

/* cudaFuncAttribute: what cudaFuncSetAttribute takes. The driver's numbers are the same. */
enum {
    CM_CUDA_FUNC_MAX_DYNAMIC_SHARED = 8,
    CM_CUDA_FUNC_CARVEOUT = 9,
    CM_CUDA_FUNC_CLUSTER_REQUIRED = 10,
    CM_CUDA_FUNC_CLUSTER_WIDTH = 11,
    CM_CUDA_FUNC_CLUSTER_HEIGHT = 12,
    CM_CUDA_FUNC_CLUSTER_DEPTH = 13,
    CM_CUDA_FUNC_NON_PORTABLE_CLUSTER = 14,
    CM_CUDA_FUNC_CLUSTER_POLICY = 15,
    CM_CUDA_FUNC_END = 16
};

/* cudaLaunchAttributeValue: 64 bytes of which the first member that is read is named. */
typedef union cm_cuda_launch_value {
    char pad[64];
    int cooperative;
    cm_cuda_dim3 clusterDim;
    uint64_t words[8];
} cm_cuda_launch_value;

typedef struct cm_cuda_launch_attribute {
    int id;
    char pad[4];
    cm_cuda_launch_value val;
} cm_cuda_launch_attribute;
enum { CM_CUDA_LAUNCH_COOPERATIVE = 2, CM_CUDA_LAUNCH_CLUSTER = 4, CM_CUDA_LAUNCH_END = 17 };

/* cudaLaunchConfig_t */
typedef struct cm_cuda_launch_config {
    cm_cuda_dim3 gridDim;
    cm_cuda_dim3 blockDim;
    size_t dynamicSmemBytes;
    cm_sim_stream *stream;
    cm_cuda_launch_attribute *attrs;
    unsigned numAttrs;
} cm_cuda_launch_config;

/* --- streams, events -------------------------------------------------------------------------- */

enum { CM_CUDA_STREAM_NON_BLOCKING = 1 };
enum {
    CM_CUDA_EVENT_BLOCKING_SYNC = 1,
    CM_CUDA_EVENT_DISABLE_TIMING = 2,
    CM_CUDA_EVENT_INTERPROCESS = 4,
    CM_CUDA_EVENT_RECORD_EXTERNAL = 1
};
enum { CM_CUDA_CAPTURE_NONE = 0, CM_CUDA_CAPTURE_ACTIVE = 1, CM_CUDA_CAPTURE_IS_INVALIDATED = 2 };
enum { CM_CUDA_CAPTURE_GLOBAL = 0, CM_CUDA_CAPTURE_THREAD_LOCAL = 1, CM_CUDA_CAPTURE_RELAXED = 2 };

/* --- graphs ----------------------------------------------------------------------------------- */

enum {
    CM_CUDA_NODE_KERNEL = 0,
    CM_CUDA_NODE_COPY = 1,
    CM_CUDA_NODE_SET = 2,
    CM_CUDA_NODE_HOST = 3,
    CM_CUDA_NODE_GRAPH = 4,
    CM_CUDA_NODE_EMPTY = 5,
    CM_CUDA_NODE_WAIT_EVENT = 6,
    CM_CUDA_NODE_RECORD_EVENT = 7,
    CM_CUDA_NODE_SIGNAL = 8,
    CM_CUDA_NODE_WAIT = 9,
    CM_CUDA_NODE_ALLOC = 10,
    CM_CUDA_NODE_FREE = 11,
    CM_CUDA_NODE_CONDITIONAL = 13
};

typedef struct cm_cuda_edge {
    unsigned char from_port, to_port, type, reserved[5];
} cm_cuda_edge;

typedef struct cm_cuda_kernel_node {
    void *func;
    cm_cuda_dim3 gridDim;
    cm_cuda_dim3 blockDim;
    unsigned sharedMemBytes;
    void **kernelParams;
    void **extra;
} cm_cuda_kernel_node;

typedef struct cm_cuda_copy_node {
    int flags;
    int reserved[3];
    cm_cuda_copy3d copyParams;
} cm_cuda_copy_node;

typedef struct cm_cuda_set_node {
    void *dst;
    size_t pitch;
    unsigned value;
    unsigned elementSize;
    size_t width;
    size_t height;
} cm_cuda_set_node;

typedef struct cm_cuda_host_node {
    cm_cuda_host_function fn;
    void *userData;
} cm_cuda_host_node;

typedef struct cm_cuda_graph_child {
    cm_sim_graph *graph;
    int ownership;
} cm_cuda_graph_child;

typedef struct cm_cuda_alloc_node {
    cm_cuda_pool_props poolProps;
    const cm_cuda_access *accessDescs;
    size_t accessDescCount;
    size_t bytesize;
    void *dptr;
} cm_cuda_alloc_node;

typedef struct cm_cuda_conditional_node {
    cm_cuda_conditional handle;
    int type;
    unsigned size;
    cm_sim_graph **phGraph_out;
} cm_cuda_conditional_node;

/* cudaGraphNodeParams */
typedef struct cm_cuda_node_params {
    int type;
    int reserved0[3];
    union {
        long long reserved1[29];
        cm_cuda_kernel_node kernel;
        cm_cuda_copy_node memcpy;
        cm_cuda_set_node memset;
        cm_cuda_host_node host;
        cm_cuda_graph_child graph;
        struct {
            cm_sim_event *event;
        } eventWait, eventRecord;
        cm_cuda_alloc_node alloc;
        struct {
            void *dptr;
        } free;
        cm_cuda_conditional_node conditional;
    };
    long long reserved2;
} cm_cuda_node_params;

/* cudaDriverEntryPointQueryResult */
enum { CM_CUDA_ENTRY_FOUND = 0, CM_CUDA_ENTRY_NOT_FOUND = 1, CM_CUDA_ENTRY_VERSION = 2 };

#endif
