/* Activity records of what calls did: memory, pools, kernels, copies. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unwind.h>

#include "../objects/calls.h"
#include "cupti.h"

static atomic_llong grids;

/* --- Names -------------------------------------------------------------------------------------
 * Records point at names, and clients read them long after the module that had them is gone. Each
 * different name is kept once, for ever. */

typedef struct kept {
    struct kept *next;
    char text[];
} kept;

enum { BUCKETS = 4096 };
static _Atomic(kept *) names[BUCKETS];

static const char *find_name(const kept *first, const char *text)
{
    for (; first; first = first->next)
        if (!strcmp(first->text, text))
            return first->text;
    return NULL;
}

static const char *keep(const char *text)
{
    size_t hash = 5381, length = 0;

    if (!text)
        return "";
    for (; text[length]; length++)
        hash = hash * 33 + (unsigned char)text[length];
    _Atomic(kept *) *bucket = &names[hash % BUCKETS];
    kept *first = atomic_load(bucket);
    const char *found = find_name(first, text);
    if (found)
        return found;
    kept *one = malloc(sizeof *one + length + 1);
    if (!one)
        return "";
    memcpy(one->text, text, length + 1);
    one->next = first;
    while (!atomic_compare_exchange_weak(bucket, &first, one)) {
        found = find_name(first, text);
        if (found) {
            free(one);
            return found;
        }
        one->next = first;
    }
    return one->text;
}

/* --- The caller ------------------------------------------------------------------------------- */

/* The first frame outside this library: the entry point's caller. */
static _Unwind_Reason_Code outside(struct _Unwind_Context *context, void *caller)
{
    uintptr_t at = _Unwind_GetIP(context);
    Dl_info info;
    static _Atomic(void *) ours; /* where this library lies */

    if (!atomic_load(&ours) && dladdr((void *)outside, &info))
        atomic_store(&ours, info.dli_fbase);
    if (at && dladdr((void *)at, &info) && info.dli_fbase == atomic_load(&ours))
        return _URC_NO_REASON;
    *(uintptr_t *)caller = at;
    return _URC_END_OF_STACK;
}

static uintptr_t caller(void)
{
    uintptr_t at = 0;

    _Unwind_Backtrace(outside, &at);
    return at;
}

static const char *source_of(uintptr_t at)
{
    Dl_info info;

    return at && dladdr((void *)at, &info) && info.dli_fname ? keep(info.dli_fname) : NULL;
}

/* --- Memory ----------------------------------------------------------------------------------- */

void cm_sim_record_memory(const cm_sim_call *call, const cm_sim_memory_event *what)
{
    uint32_t clients = call->correlation ? cm_sim_cupti_clients(CM_CUPTI_MEMORY2, what->device) : 0;

    /* As far as is known no release reports arrays. */
    if (!clients || (what->kind == CM_CUPTI_MEMORY_ARRAY && !cm_sim_cupti_hostile()->arrays))
        return;
    uintptr_t from = caller();
    cm_cupti_memory record = {
        .kind = CM_CUPTI_MEMORY2,
        .memoryOperationType = (uint32_t)what->operation,
        .memoryKind = (uint32_t)what->kind,
        .correlationId = call->correlation,
        .address = (uintptr_t)what->address,
        .bytes = what->bytes,
        .timestamp = cm_sim_cupti_now(),
        .PC = from,
        .processId = cm_sim_cupti_process(),
        .deviceId = (uint32_t)what->device,
        .contextId = cm_sim_cupti_context_id(what->device),
        .streamId = CM_CUPTI_NO_STREAM,
    };
    uint32_t ask = clients & cm_sim_cupti_source_clients();
    if (what->pool) {
        cm_cupti_pool_state pool = cm_sim_cupti_pool(what->pool);
        /* A release reports what was used before it. */
        if (what->operation == CM_CUPTI_RELEASE)
            pool.used += what->bytes;
        record.streamId = cm_sim_cupti_stream(what->stream);
        record.isAsync = 1;
        record.memoryPoolConfig.memoryPoolType = CM_CUPTI_POOL_LOCAL;
        record.memoryPoolConfig.address = pool.address;
        record.memoryPoolConfig.releaseThreshold = pool.threshold;
        record.memoryPoolConfig.pool.size = pool.reserved;
        record.memoryPoolConfig.utilizedSize = pool.used;
    }
    cm_sim_cupti_emit(clients & ~ask, &record, sizeof record);
    record.source = ask ? source_of(from) : NULL;
    cm_sim_cupti_emit(ask, &record, sizeof record);
}

/* bytes: what a trim was to leave, else nothing. */
void cm_sim_record_pool(int operation, const void *pool, int device, size_t bytes)
{
    const cm_sim_call *call = cm_sim_cupti_call();
    uint32_t clients =
        call && call->correlation ? cm_sim_cupti_clients(CM_CUPTI_MEMORY_POOL, device) : 0;

    if (!clients)
        return;
    cm_cupti_pool_state state = cm_sim_cupti_pool(pool);
    cm_cupti_memory_pool record = {
        .kind = CM_CUPTI_MEMORY_POOL,
        .memoryPoolOperationType = (uint32_t)operation,
        .memoryPoolType = CM_CUPTI_POOL_LOCAL,
        .correlationId = call->correlation,
        .processId = cm_sim_cupti_process(),
        .deviceId = (uint32_t)device,
        .minBytesToKeep = operation == CM_CUPTI_POOL_TRIMMED ? bytes : 0,
        .address = state.address,
        .size = state.reserved,
        .releaseThreshold = state.threshold,
        .timestamp = cm_sim_cupti_now(),
        .utilizedSize = state.used,
    };
    cm_sim_cupti_emit(clients, &record, sizeof record);
}

/* --- Work on the device ------------------------------------------------------------------------
 * Durations are invented (cupti_clock.c), with the order of magnitude of real ones, so that a
 * picture of them can be looked at. */

enum { WORK_NS = 1500, WAVE_NS = 1000, HOST_BYTES_PER_NS = 20, DEVICE_BYTES_PER_NS = 1000 };
enum { COMPUTE_CHANNEL = 1, COPY_CHANNEL = 2 }; /* CUpti_ChannelType */

static uint64_t kernel_time(int device, const unsigned grid[3], const unsigned block[3])
{
    const cm_sim_profile *profile = &cm_sim_config_get()->device[device];
    uint64_t threads = (uint64_t)grid[0] * grid[1] * grid[2] * block[0] * block[1] * block[2];
    uint64_t at_once = (uint64_t)profile->sms * (uint64_t)profile->threads_per_sm;

    return WORK_NS + (at_once ? threads / at_once * WAVE_NS : 0);
}

void cm_sim_record_kernel(const cm_sim_call *call, const char *name, const unsigned grid[3],
                          const unsigned block[3], unsigned shared, void *stream)
{
    uint32_t concurrent = cm_sim_cupti_clients(CM_CUPTI_CONCURRENT_KERNEL, call->device);
    uint32_t serial = cm_sim_cupti_clients(CM_CUPTI_KERNEL, call->device);

    if (!call->correlation || !(concurrent | serial))
        return;
    cm_cupti_work work = cm_sim_cupti_work(call->device, stream);
    uint32_t number = cm_sim_cupti_stream(stream);
    uint64_t launched = cm_sim_cupti_now(), start, end;
    cm_sim_cupti_occupy(call->device, number, kernel_time(call->device, grid, block), &start, &end);
    cm_cupti_kernel record = {
        .kind = CM_CUPTI_CONCURRENT_KERNEL,
        .registersPerThread = 32,
        .start = start,
        .end = end,
        .completed = end,
        .deviceId = (uint32_t)call->device,
        .contextId = cm_sim_cupti_context_id(call->device),
        .streamId = number,
        .gridX = (int32_t)grid[0],
        .gridY = (int32_t)grid[1],
        .gridZ = (int32_t)grid[2],
        .blockX = (int32_t)block[0],
        .blockY = (int32_t)block[1],
        .blockZ = (int32_t)block[2],
        .dynamicSharedMemory = (int32_t)shared,
        .correlationId = call->correlation,
        .gridId = atomic_fetch_add_explicit(&grids, 1, memory_order_relaxed) + 1,
        .name = keep(name),
        .queued = cm_sim_cupti_want_latency() ? launched : 0,
        .submitted = cm_sim_cupti_want_latency() ? launched : 0,
        .sharedMemoryExecuted = shared,
        .channelID = COMPUTE_CHANNEL,
        .channelType = COMPUTE_CHANNEL,
    };
    cm_sim_cupti_emit_work(concurrent, &record, sizeof record, &work);
    record.kind = CM_CUPTI_KERNEL;
    cm_sim_cupti_emit_work(serial, &record, sizeof record, &work);
}

static uint8_t memory_kind(const void *address)
{
    cm_sim_block block;
    uintptr_t start;
    size_t bytes;

    if (cm_sim_find(address, &block))
        return block.kind == CM_SIM_MANAGED ? CM_CUPTI_MEMORY_MANAGED : CM_CUPTI_MEMORY_DEVICE;
    return cm_sim_host_find(address, &start, &bytes) ? CM_CUPTI_MEMORY_PINNED
                                                     : CM_CUPTI_MEMORY_PAGEABLE;
}

/* The kind of a copy's source and destination, where the call's parameters name it. */
static void copy_ends(const cm_sim_call *call, int kind, uint8_t *from, uint8_t *to)
{
    bool from_host = kind == CM_CUPTI_COPY_HTOD || kind == CM_CUPTI_COPY_HTOH;
    bool to_host = kind == CM_CUPTI_COPY_DTOH || kind == CM_CUPTI_COPY_HTOH;

    *from = from_host ? CM_CUPTI_MEMORY_UNKNOWN : CM_CUPTI_MEMORY_DEVICE;
    *to = to_host ? CM_CUPTI_MEMORY_UNKNOWN : CM_CUPTI_MEMORY_DEVICE;
    if (call->runtime &&
        (call->runtime_id == CM_CBID_cudaMemcpy || call->runtime_id == CM_CBID_cudaMemcpyAsync)) {
        const cm_cudaMemcpy_params *parameters = call->runtime_parameters; /* Async begins alike */
        *from = memory_kind(parameters->src);
        *to = memory_kind(parameters->dst);
    }
}

static bool asynchronous(const char *name)
{
    return name && strstr(name, "Async");
}

void cm_sim_record_copy(const cm_sim_call *call, int kind, size_t bytes, void *stream)
{
    bool peer = kind == CM_CUPTI_COPY_PTOP;
    uint64_t start, end;
    uint32_t clients =
        cm_sim_cupti_clients(peer ? CM_CUPTI_MEMCPY2 : CM_CUPTI_MEMCPY, call->device);

    if (!call->correlation || !clients)
        return;
    cm_cupti_work work = cm_sim_cupti_work(call->device, stream);
    uint32_t number = cm_sim_cupti_stream(stream);
    uint64_t rate = kind == CM_CUPTI_COPY_DTOD ? DEVICE_BYTES_PER_NS : HOST_BYTES_PER_NS;
    cm_sim_cupti_occupy(call->device, number, WORK_NS + bytes / rate, &start, &end);
    uint8_t async = asynchronous(call->runtime ? call->runtime_name : call->driver_name)
                        ? CM_CUPTI_FLAG_ASYNC
                        : 0;
    if (peer) {
        cm_cupti_memcpy_peer record = {
            .kind = CM_CUPTI_MEMCPY2,
            .copyKind = CM_CUPTI_COPY_PTOP,
            .srcKind = CM_CUPTI_MEMORY_DEVICE,
            .dstKind = CM_CUPTI_MEMORY_DEVICE,
            .flags = async,
            .bytes = bytes,
            .start = start,
            .end = end,
            .deviceId = (uint32_t)call->device,
            .contextId = cm_sim_cupti_context_id(call->device),
            .streamId = number,
            .correlationId = call->correlation,
            .channelID = COPY_CHANNEL,
            .channelType = COPY_CHANNEL,
        };
        cm_sim_cupti_emit_work(clients, &record, sizeof record, &work);
        return;
    }
    cm_cupti_memcpy record = {
        .kind = CM_CUPTI_MEMCPY,
        .copyKind = (uint8_t)kind,
        .flags = async,
        .bytes = bytes,
        .start = start,
        .end = end,
        .deviceId = (uint32_t)call->device,
        .contextId = cm_sim_cupti_context_id(call->device),
        .streamId = number,
        .correlationId = call->correlation,
        .channelID = COPY_CHANNEL,
        .channelType = COPY_CHANNEL,
        .copyCount = 1,
    };
    copy_ends(call, kind, &record.srcKind, &record.dstKind);
    cm_sim_cupti_emit_work(clients, &record, sizeof record, &work);
}

void cm_sim_record_set(const cm_sim_call *call, int value, size_t bytes, void *stream)
{
    uint64_t start, end;
    uint32_t clients = cm_sim_cupti_clients(CM_CUPTI_MEMSET, call->device);

    if (!call->correlation || !clients)
        return;
    cm_cupti_work work = cm_sim_cupti_work(call->device, stream);
    uint32_t number = cm_sim_cupti_stream(stream);
    cm_sim_cupti_occupy(call->device, number, WORK_NS + bytes / DEVICE_BYTES_PER_NS, &start, &end);
    cm_cupti_memset record = {
        .kind = CM_CUPTI_MEMSET,
        .value = (uint32_t)value,
        .bytes = bytes,
        .start = start,
        .end = end,
        .deviceId = (uint32_t)call->device,
        .contextId = cm_sim_cupti_context_id(call->device),
        .streamId = number,
        .correlationId = call->correlation,
        .flags = asynchronous(call->runtime ? call->runtime_name : call->driver_name)
                     ? CM_CUPTI_FLAG_ASYNC
                     : 0,
        .memoryKind = CM_CUPTI_MEMORY_DEVICE,
        .channelID = COMPUTE_CHANNEL,
        .channelType = COMPUTE_CHANNEL,
    };
    cm_sim_cupti_emit_work(clients, &record, sizeof record, &work);
}
