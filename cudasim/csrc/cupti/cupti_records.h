/* What CUPTI hands to its clients, declared by ourselves: activity records and callback data.
 *
 * Each record is declared in its newest form. NVIDIA only ever appends fields (or gives meaning to
 * bytes that were padding), so what an older generation writes is a prefix: cupti_generation.c
 * knows how long. Field names are the vendor's, so that a test can compare every offset with the
 * vendor's headers, of several generations. */
#ifndef CM_SIM_CUPTI_RECORDS_H
#define CM_SIM_CUPTI_RECORDS_H

#include <stddef.h>
#include <stdint.h>

#define CM_CUPTI_RECORD __attribute__((packed, aligned(8)))

enum { CM_CUPTI_ALIGNMENT = 8 };

/* CUpti_ActivityKind: those that are simulated, and those that a client's code path may name. */
enum {
    CM_CUPTI_MEMCPY = 1,
    CM_CUPTI_MEMSET = 2,
    CM_CUPTI_KERNEL = 3,
    CM_CUPTI_DRIVER = 4,
    CM_CUPTI_RUNTIME = 5,
    CM_CUPTI_DEVICE = 8,
    CM_CUPTI_CONTEXT = 9,
    CM_CUPTI_CONCURRENT_KERNEL = 10,
    CM_CUPTI_OVERHEAD = 17,
    CM_CUPTI_MEMCPY2 = 22,
    CM_CUPTI_UNIFIED_MEMORY_COUNTER = 25,
    CM_CUPTI_CUDA_EVENT = 36,
    CM_CUPTI_STREAM = 37,
    CM_CUPTI_SYNCHRONIZATION = 38,
    CM_CUPTI_EXTERNAL_CORRELATION = 39,
    CM_CUPTI_MEMORY = 45,
    CM_CUPTI_MEMORY2 = 49,
    CM_CUPTI_MEMORY_POOL = 50,
    CM_CUPTI_GRAPH_TRACE = 51,
    CM_CUPTI_KINDS = 64 /* more than any generation has */
};

/* CUpti_ActivityMemcpyKind, CUpti_ActivityMemoryKind, ...: numbers that we write into records. */
enum {
    CM_CUPTI_COPY_HTOD = 1,
    CM_CUPTI_COPY_DTOH = 2,
    CM_CUPTI_COPY_DTOD = 8,
    CM_CUPTI_COPY_HTOH = 9,
    CM_CUPTI_COPY_PTOP = 10
};
enum {
    CM_CUPTI_MEMORY_UNKNOWN = 0,
    CM_CUPTI_MEMORY_PAGEABLE = 1,
    CM_CUPTI_MEMORY_PINNED = 2,
    CM_CUPTI_MEMORY_DEVICE = 3,
    CM_CUPTI_MEMORY_ARRAY = 4,
    CM_CUPTI_MEMORY_MANAGED = 5
};
enum { CM_CUPTI_ALLOCATION = 1, CM_CUPTI_RELEASE = 2 };
enum { CM_CUPTI_POOL_CREATED = 1, CM_CUPTI_POOL_DESTROYED = 2, CM_CUPTI_POOL_TRIMMED = 3 };
enum { CM_CUPTI_POOL_LOCAL = 1 };
enum { CM_CUPTI_FLAG_ASYNC = 1 };
#define CM_CUPTI_NO_STREAM UINT32_MAX /* of what has no stream: cudaMalloc */

typedef struct CM_CUPTI_RECORD {
    uint32_t kind;
} cm_cupti_record;

typedef struct CM_CUPTI_RECORD {
    uint32_t kind;
    uint8_t copyKind, srcKind, dstKind, flags;
    uint64_t bytes, start, end;
    uint32_t deviceId, contextId, streamId, correlationId, runtimeCorrelationId, pad;
    void *reserved0;
    uint64_t graphNodeId;
    uint32_t graphId, channelID, channelType;
    uint8_t isDeviceLaunched, pad2[3];
    uint64_t copyCount;
    uint32_t sourceGraphId, pad3;
    uint64_t sourceGraphNodeId;
} cm_cupti_memcpy;

typedef struct CM_CUPTI_RECORD {
    uint32_t kind;
    uint8_t copyKind, srcKind, dstKind, flags;
    uint64_t bytes, start, end;
    uint32_t deviceId, contextId, streamId;
    uint32_t srcDeviceId, srcContextId, dstDeviceId, dstContextId, correlationId;
    void *reserved0;
    uint64_t graphNodeId;
    uint32_t graphId, channelID, channelType;
} cm_cupti_memcpy_peer;

typedef struct CM_CUPTI_RECORD {
    uint32_t kind, value;
    uint64_t bytes, start, end;
    uint32_t deviceId, contextId, streamId, correlationId;
    uint16_t flags, memoryKind;
    uint32_t pad;
    void *reserved0;
    uint64_t graphNodeId;
    uint32_t graphId, channelID, channelType;
    uint8_t isDeviceLaunched, pad2[3];
    uint32_t sourceGraphId, pad3;
    uint64_t sourceGraphNodeId;
} cm_cupti_memset;

typedef struct CM_CUPTI_RECORD {
    uint32_t kind, memoryOperationType, memoryKind, correlationId;
    uint64_t address, bytes, timestamp, PC;
    uint32_t processId, deviceId, contextId, streamId;
    const char *name;
    uint32_t isAsync, pad1;
    struct CM_CUPTI_RECORD {
        uint32_t memoryPoolType, pad2;
        uint64_t address, releaseThreshold;
        union {
            uint64_t size, processId;
        } pool;
        uint64_t utilizedSize;
    } memoryPoolConfig;
    const char *source;
} cm_cupti_memory;

typedef struct CM_CUPTI_RECORD {
    uint32_t kind, memoryPoolOperationType, memoryPoolType, correlationId, processId, deviceId;
    size_t minBytesToKeep;
    uint64_t address, size, releaseThreshold, timestamp, utilizedSize;
    uint8_t isManagedPool, pad2[7];
} cm_cupti_memory_pool;

typedef struct CM_CUPTI_RECORD {
    uint32_t kind;
    uint8_t cacheConfig, sharedMemoryConfig;
    uint16_t registersPerThread;
    uint32_t partitionedGlobalCacheRequested, partitionedGlobalCacheExecuted;
    uint64_t start, end, completed;
    uint32_t deviceId, contextId, streamId;
    int32_t gridX, gridY, gridZ, blockX, blockY, blockZ, staticSharedMemory, dynamicSharedMemory;
    uint32_t localMemoryPerThread, localMemoryTotal, correlationId;
    int64_t gridId;
    const char *name;
    void *reserved0;
    uint64_t queued, submitted;
    uint8_t launchType, isSharedMemoryCarveoutRequested, sharedMemoryCarveoutRequested, padding;
    uint32_t sharedMemoryExecuted;
    uint64_t graphNodeId;
    uint32_t shmemLimitConfig, graphId;
    void *pAccessPolicyWindow;
    uint32_t channelID, channelType;
    uint32_t clusterX, clusterY, clusterZ, clusterSchedulingPolicy;
    uint64_t localMemoryTotal_v2;
    uint32_t maxPotentialClusterSize, maxActiveClusters;
    uint8_t isDeviceLaunched, padding3[7];
    int32_t priority;
    uint32_t padding4, executionModel, padding5, sourceGraphId, padding6;
    uint64_t sourceGraphNodeId;
} cm_cupti_kernel;

typedef struct CM_CUPTI_RECORD {
    uint32_t kind, cbid;
    uint64_t start, end;
    uint32_t processId, threadId, correlationId, returnValue;
} cm_cupti_api;

typedef struct CM_CUPTI_RECORD {
    uint32_t kind, externalKind;
    uint64_t externalId;
    uint32_t correlationId, reserved;
} cm_cupti_external;

/* CUpti_CallbackData: not packed, and laid out as C lays it out. */
typedef struct cm_cupti_callback_data {
    int callbackSite; /* 0 enter, 1 exit */
    const char *functionName;
    const void *functionParams;
    void *functionReturnValue;
    const char *symbolName;
    void *context;
    uint32_t contextUid;
    uint64_t *correlationData;
    uint32_t correlationId;
} cm_cupti_callback_data;

/* CUpti_SubscriberParams of 13.2. Before it ended with oldSubscriberSize. */
typedef struct cm_cupti_subscriber_params {
    size_t structSize;
    const char *subscriberName;
    char *oldSubscriberName;
    size_t oldSubscriberSize;
    uint8_t allowMultipleSubscribers, padding[7];
} cm_cupti_subscriber_params;

/* CUpti_BufferCallbackRequestInfo, CUpti_BufferCallbackCompleteInfo. */
typedef struct cm_cupti_request_info {
    size_t structSize;
} cm_cupti_request_info;

typedef struct cm_cupti_complete_info {
    size_t structSize;
    uint64_t threadId;
    void **ppRecordLayouts;
    size_t numRecordLayouts;
} cm_cupti_complete_info;

/* CUpti_ResourceData. */
typedef struct cm_cupti_resource_data {
    void *context, *resourceHandle, *resourceDescriptor;
} cm_cupti_resource_data;

#endif
