/* The CUPTI surface, one behaviour after the other. The argument says which. */
#include <sched.h>
#include <time.h>

#include "collect.h"
#include "doubles.h"

enum { CUDA_MALLOC = 20, CUDA_LAUNCH = 211, CU_LAUNCH = 307, CU_MALLOC = 243 };

/* --- Callbacks ---------------------------------------------------------------------------------
 */

typedef struct seen {
    int domain, site, result;
    uint32_t id, correlation;
    uint64_t data;
    char name[32], symbol[32];
    size_t bytes;
    uintptr_t address;
    void *context;
    uint32_t context_id;
} seen;
static seen calls[64];
static unsigned called;
static bool nested_calls;

static void watch(void *userdata, int domain, uint32_t id, const void *cbdata)
{
    const cm_cupti_callback_data *data = cbdata;
    CHECK(called < 64);
    seen *s = &calls[called++];

    CHECK(userdata == calls);
    *s = (seen){.domain = domain,
                .site = data->callbackSite,
                .id = id,
                .correlation = data->correlationId,
                .context = data->context,
                .context_id = data->contextUid};
    strncpy(s->name, data->functionName, 31);
    strncpy(s->symbol, data->symbolName ? data->symbolName : "", 31);
    if (s->site == 0) {
        *data->correlationData = 1000 * (uint64_t)domain + called;
    } else {
        s->result = *(const int *)data->functionReturnValue;
        if (domain == DRIVER_API && id == CU_MALLOC) {
            const struct {
                uint64_t *pointer;
                size_t bytes;
            } *parameters = data->functionParams;
            s->bytes = parameters->bytes;
            s->address = *parameters->pointer;
        }
    }
    s->data = *data->correlationData;
    if (nested_calls)
        call_malloc(0, 512);
}

static void callbacks(void)
{
    void *one, *two;
    uint32_t on;

    EQUAL(cuptiSubscribe(NULL, watch, calls), INVALID_PARAMETER);
    EQUAL(cuptiSubscribe(&one, watch, calls), OK);
    EQUAL(cuptiSubscribe(&two, watch, calls), MULTIPLE_SUBSCRIBERS);
    CHECK(!cm_sim_cupti_wanted());
    call_malloc(0, 1000);
    EQUAL(called, 0);

    EQUAL(cuptiEnableDomain(1, one, RUNTIME_API), OK);
    EQUAL(cuptiEnableCallback(1, one, DRIVER_API, CU_MALLOC), OK);
    CHECK(cm_sim_cupti_wanted());
    uintptr_t address = call_malloc(1, 1000);
    EQUAL(called, 4);
    EQUAL(calls[0].domain, RUNTIME_API);
    EQUAL(calls[1].domain, DRIVER_API);
    EQUAL(calls[2].domain, DRIVER_API);
    EQUAL(calls[3].domain, RUNTIME_API);
    for (int i = 0; i < 4; i++) {
        EQUAL(calls[i].site, i >= 2);
        EQUAL(calls[i].id, calls[i].domain == RUNTIME_API ? CUDA_MALLOC : CU_MALLOC);
        EQUAL(calls[i].correlation, calls[0].correlation);
        CHECK(calls[i].context == a_context(1));
        EQUAL(calls[i].context_id, 2);
        CHECK(!strcmp(calls[i].name,
                      calls[i].domain == RUNTIME_API ? "cudaMalloc" : "cuMemAlloc_v2"));
    }
    EQUAL(calls[3].data, 2001); /* what ENTER left there */
    EQUAL(calls[2].data, 1002);
    EQUAL(calls[2].bytes, 1000);
    EQUAL(calls[2].address, address);
    CHECK(calls[0].correlation != 0);

    uint32_t before = calls[0].correlation;
    called = 0;
    call_launch(0, 0, "_Z4kernel");
    EQUAL(called, 2); /* of the driver only the allocation is wanted */
    CHECK(!strcmp(calls[0].symbol, "_Z4kernel") && !strcmp(calls[1].symbol, "_Z4kernel"));
    EQUAL(calls[0].correlation, before + 1);

    called = 0;
    EQUAL(cuptiEnableCallback(0, one, RUNTIME_API, CUDA_LAUNCH), OK);
    EQUAL(cuptiGetCallbackState(&on, one, RUNTIME_API, CUDA_LAUNCH), OK);
    EQUAL(on, 0);
    EQUAL(cuptiGetCallbackState(&on, one, RUNTIME_API, CUDA_MALLOC), OK);
    EQUAL(on, 1);
    call_launch(0, 0, "_Z4kernel");
    EQUAL(called, 0);
    EQUAL(cuptiEnableDomain(0, one, RUNTIME_API), OK);
    call_malloc(0, 1);
    EQUAL(called, 2);
    EQUAL(cuptiEnableDomain(0, one, DRIVER_API), OK);
    CHECK(!cm_sim_cupti_wanted());

    /* Ids and domains that do not exist. */
    EQUAL(cuptiEnableCallback(1, one, 0, 1), INVALID_PARAMETER);
    EQUAL(cuptiEnableCallback(1, one, 7, 1), INVALID_PARAMETER);
    EQUAL(cuptiEnableCallback(1, one, DRIVER_API, 807), INVALID_PARAMETER);
    EQUAL(cuptiEnableCallback(1, one, DRIVER_API, 806), OK);
    EQUAL(cuptiEnableCallback(1, one, RUNTIME_API, 523), INVALID_PARAMETER);
    EQUAL(cuptiEnableDomain(1, NULL, DRIVER_API), INVALID_PARAMETER);
    EQUAL(cuptiEnableDomain(1, &two, DRIVER_API), INVALID_PARAMETER);

    /* A driver call of its own has an id of its own, and its failure is told. */
    called = 0;
    EQUAL(cuptiEnableAllDomains(1, one), OK);
    call_malloc_async(0, 1, 4096);
    EQUAL(called, 2);
    EQUAL(calls[1].result, 2);

    /* A callback that makes calls itself does not hear of them. */
    called = 0;
    nested_calls = true;
    call_malloc(0, 1);
    EQUAL(called, 4);
    nested_calls = false;

    EQUAL(cuptiUnsubscribe(one), OK);
    CHECK(!cm_sim_cupti_wanted());
    EQUAL(cuptiUnsubscribe(one), INVALID_PARAMETER);
    EQUAL(cuptiSubscribe(&two, watch, calls), OK);
    CHECK(two != one);
    EQUAL(cuptiEnableDomain(1, one, DRIVER_API), INVALID_PARAMETER);
    EQUAL(cuptiUnsubscribe(two), OK);
    for (int i = 0; i < 100; i++) {
        EQUAL(cuptiSubscribe(&one, watch, calls), OK);
        EQUAL(cuptiUnsubscribe(one), OK);
    }
}

/* A callback that waits for who is unsubscribing: that one gives up waiting, and says so. */
static atomic_bool entered, leave;

static void wait_inside(void *userdata, int domain, uint32_t id, const void *data)
{
    (void)userdata, (void)domain, (void)id, (void)data;
    atomic_store(&entered, true);
    while (!atomic_load(&leave))
        nanosleep(&(struct timespec){0, 1000000}, NULL);
}

static void *call_and_wait(void *unused)
{
    (void)unused;
    call_launch(0, 0, "k");
    return NULL;
}

static void stuck(void)
{
    pthread_t thread;
    void *one, *other;

    EQUAL(cuptiSubscribe(&one, wait_inside, NULL), OK);
    EQUAL(cuptiEnableCallback(1, one, DRIVER_API, CU_LAUNCH), OK);
    EQUAL(pthread_create(&thread, NULL, call_and_wait, NULL), 0);
    while (!atomic_load(&entered))
        sched_yield();
    EQUAL(noted(), 0);
    EQUAL(cuptiUnsubscribe(one), OK);
    EQUAL(noted(), 1);
    for (int i = 0; i < 40; i++) { /* its place is not given to anybody meanwhile */
        EQUAL(cuptiSubscribe(&other, watch, calls), OK);
        CHECK(other != one);
        EQUAL(cuptiUnsubscribe(other), OK);
    }
    atomic_store(&leave, true);
    EQUAL(pthread_join(thread, NULL), 0);
    EQUAL(noted(), 0);
}

static void names(void)
{
    void *one, *two;
    char holder[64] = "nobody";
    const char *name = "unset";
    const int *domains;
    size_t count;
    cm_cupti_subscriber_params first = {.structSize = sizeof first,
                                        .subscriberName = "the first one"};
    cm_cupti_subscriber_params second = {.structSize = sizeof second,
                                         .subscriberName = "the second",
                                         .oldSubscriberName = holder,
                                         .oldSubscriberSize = sizeof holder};

    EQUAL(cuptiSubscribe_v2(&one, watch, calls, &first), OK);
    EQUAL(cuptiSubscribe_v2(&two, watch, calls, &second), MULTIPLE_SUBSCRIBERS);
    CHECK(!strcmp(holder, "CUPTI for the first one"));
    second.structSize = 8;
    EQUAL(cuptiSubscribe_v2(&two, watch, calls, &second), INVALID_PARAMETER);
    EQUAL(cuptiUnsubscribe(one), OK);

    /* As the vendor's library answers without a driver. */
    EQUAL(cuptiGetCallbackName(DRIVER_API, CU_MALLOC, &name), OK);
    CHECK(!strcmp(name, "cuMemAlloc_v2"));
    EQUAL(cuptiGetCallbackName(RUNTIME_API, 373, &name), OK);
    CHECK(!strcmp(name, "cudaMallocAsync_v11020"));
    EQUAL(cuptiGetCallbackName(DRIVER_API, 0, &name), OK);
    CHECK(!strcmp(name, "INVALID"));
    EQUAL(cuptiGetCallbackName(DRIVER_API, 807, &name), INVALID_PARAMETER);
    EQUAL(cuptiGetCallbackName(RUNTIME_API, 523, &name), INVALID_PARAMETER);
    EQUAL(cuptiGetCallbackName(3, 1, &name), INVALID_PARAMETER);
    EQUAL(cuptiGetCallbackName(DRIVER_API, 1, NULL), INVALID_PARAMETER);
    EQUAL(cuptiGetResultString(39, &name), OK);
    CHECK(!strcmp(name, "CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED"));
    EQUAL(cuptiGetResultString(36, &name), INVALID_PARAMETER);
    CHECK(!strcmp(name, "<unknown>"));
    EQUAL(cuptiGetResultString(999, &name), OK);
    EQUAL(cuptiGetResultString(UINT32_MAX, &name), INVALID_PARAMETER);
    EQUAL(cuptiSupportedDomains(&count, &domains), OK);
    EQUAL(count, 6);

    uint32_t id;
    EQUAL(cuptiGetVersion(&id), OK);
    EQUAL(id, 130001);
    EQUAL(cuptiGetContextId(a_context(1), &id), OK);
    EQUAL(id, 2);
    EQUAL(cuptiGetDeviceId(a_context(1), &id), OK);
    EQUAL(id, 1);
    EQUAL(cuptiGetDeviceId(&id, &id), INVALID_CONTEXT);
    EQUAL(cuptiGetStreamId(a_context(0), NULL, &id), OK);
    EQUAL(id, 7);
    EQUAL(cuptiGetStreamId(a_context(0), a_stream(2), &id), OK);
    EQUAL(id, 14);
    EQUAL(cuptiGetStreamId(a_context(0), &id, &id), 20);
}

/* --- Records -----------------------------------------------------------------------------------
 */

static void records(void)
{
    collect();
    EQUAL(cuptiActivityEnable(CM_CUPTI_MEMORY2), OK);
    EQUAL(cuptiActivityEnable(CM_CUPTI_CONCURRENT_KERNEL), OK);
    EQUAL(cuptiActivityEnable(CM_CUPTI_MEMCPY), OK);
    EQUAL(cuptiActivityEnable(CM_CUPTI_MEMCPY2), OK);
    EQUAL(cuptiActivityEnable(CM_CUPTI_MEMSET), OK);
    EQUAL(cuptiActivityEnable(CM_CUPTI_RUNTIME), OK);
    EQUAL(cuptiActivityEnable(CM_CUPTI_DRIVER), OK);
    EQUAL(cuptiActivityEnable(CM_CUPTI_MEMORY_POOL), OK);
    EQUAL(cuptiActivityEnable(CM_CUPTI_KERNEL), NOT_COMPATIBLE);
    EQUAL(cuptiSetThreadIdType(1), OK);
    EQUAL(noted(), 0);

    uintptr_t address = call_malloc(1, 1000);
    call_free(1, address, 1000);
    char *name = strdup("_Z6kernelPf");
    call_launch(0, 2, name);
    memset(name, 'x', strlen(name)); /* its module is unloaded */
    free(name);
    call_copy(0, CM_CUPTI_COPY_HTOD, address, 0x5000, 2000000);
    call_copy(0, CM_CUPTI_COPY_DTOH, 0x6000, address, 8);
    call_copy(0, CM_CUPTI_COPY_PTOP, address, address, 64);
    call_set(0, 7, 300);
    call_malloc_async(0, 1, 4096);
    flush();

    /* The nested driver calls leave no records, the one on its own does. */
    EQUAL(client.count, 2 + 1 + 3 + 1 + 1 + 1 + 7 + 1);
    EQUAL(count_of(CM_CUPTI_RUNTIME), 7);
    EQUAL(count_of(CM_CUPTI_DRIVER), 1);
    EQUAL(kind_of(0), CM_CUPTI_MEMORY2); /* before the call that it belongs to */
    EQUAL(kind_of(1), CM_CUPTI_RUNTIME);

    const cm_cupti_memory *memory = record_of(CM_CUPTI_MEMORY2, 0);
    const cm_cupti_api *api = record_of(CM_CUPTI_RUNTIME, 0);
    EQUAL(memory->memoryOperationType, CM_CUPTI_ALLOCATION);
    EQUAL(memory->memoryKind, CM_CUPTI_MEMORY_DEVICE);
    EQUAL(memory->address, address);
    EQUAL(memory->bytes, 1000);
    EQUAL(memory->deviceId, 1);
    EQUAL(memory->contextId, 2);
    EQUAL(memory->streamId, UINT32_MAX);
    EQUAL(memory->processId, getpid());
    EQUAL(memory->isAsync, 0);
    EQUAL(memory->correlationId, api->correlationId);
    CHECK(memory->timestamp >= api->start && memory->timestamp <= api->end);
    EQUAL(api->cbid, CUDA_MALLOC);
    EQUAL(api->returnValue, 0);
    EQUAL(api->threadId, getpid()); /* the main thread's system id */
    memory = record_of(CM_CUPTI_MEMORY2, 1);
    EQUAL(memory->memoryOperationType, CM_CUPTI_RELEASE);
    EQUAL(memory->address, address);
    EQUAL(memory->bytes, 1000);

    memory = record_of(CM_CUPTI_MEMORY2, 2);
    api = record_of(CM_CUPTI_DRIVER, 0);
    EQUAL(memory->isAsync, 1);
    EQUAL(memory->streamId, 13);
    EQUAL(memory->memoryPoolConfig.memoryPoolType, 1);
    EQUAL(memory->memoryPoolConfig.address, (uintptr_t)a_pool(0));
    EQUAL(memory->memoryPoolConfig.releaseThreshold, 11);
    EQUAL(memory->memoryPoolConfig.pool.size, 32 << 20);
    EQUAL(memory->memoryPoolConfig.utilizedSize, 4096);
    EQUAL(memory->correlationId, api->correlationId);
    EQUAL(api->returnValue, 2);
    const cm_cupti_memory_pool *pool = record_of(CM_CUPTI_MEMORY_POOL, 0);
    EQUAL(pool->memoryPoolOperationType, CM_CUPTI_POOL_CREATED);
    EQUAL(pool->address, (uintptr_t)a_pool(0));
    EQUAL(pool->size, 32 << 20);

    const cm_cupti_kernel *kernel = record_of(CM_CUPTI_CONCURRENT_KERNEL, 0);
    api = record_of(CM_CUPTI_RUNTIME, 2);
    CHECK(!strcmp(kernel->name, "_Z6kernelPf"));
    EQUAL(kernel->correlationId, api->correlationId);
    CHECK(kernel->start >= api->start && kernel->end > kernel->start);
    EQUAL(kernel->streamId, 14);
    EQUAL(kernel->gridX, 8);
    EQUAL(kernel->gridY, 4);
    EQUAL(kernel->gridZ, 2);
    EQUAL(kernel->blockX, 128);
    EQUAL(kernel->blockY, 2);
    EQUAL(kernel->blockZ, 1);
    EQUAL(kernel->dynamicSharedMemory, 1024);

    const cm_cupti_memcpy *copy = record_of(CM_CUPTI_MEMCPY, 0);
    EQUAL(copy->copyKind, CM_CUPTI_COPY_HTOD);
    EQUAL(copy->srcKind, CM_CUPTI_MEMORY_PINNED);
    EQUAL(copy->dstKind, CM_CUPTI_MEMORY_DEVICE);
    EQUAL(copy->bytes, 2000000);
    EQUAL(copy->flags, CM_CUPTI_FLAG_ASYNC);
    EQUAL(copy->streamId, 7);
    copy = record_of(CM_CUPTI_MEMCPY, 1);
    EQUAL(copy->srcKind, CM_CUPTI_MEMORY_DEVICE);
    EQUAL(copy->dstKind, CM_CUPTI_MEMORY_PAGEABLE);
    const cm_cupti_memcpy_peer *peer = record_of(CM_CUPTI_MEMCPY2, 0);
    EQUAL(peer->bytes, 64);
    const cm_cupti_memset *set = record_of(CM_CUPTI_MEMSET, 0);
    EQUAL(set->value, 7);
    EQUAL(set->bytes, 300);
    EQUAL(set->flags, 0);

    /* Off again, one after the other. */
    forget();
    static const uint32_t on[] = {
        CM_CUPTI_MEMORY2, CM_CUPTI_CONCURRENT_KERNEL, CM_CUPTI_MEMCPY, CM_CUPTI_MEMCPY2,
        CM_CUPTI_MEMSET,  CM_CUPTI_RUNTIME,           CM_CUPTI_DRIVER};
    for (size_t i = 0; i < sizeof on / sizeof on[0]; i++) {
        CHECK(cm_sim_cupti_wanted());
        EQUAL(cuptiActivityDisable(on[i]), OK);
    }
    EQUAL(cuptiActivityDisable(CM_CUPTI_MEMORY_POOL), OK);
    CHECK(!cm_sim_cupti_wanted());

    /* Without runtime records, driver records are those of all driver calls. */
    EQUAL(cuptiActivityEnable(CM_CUPTI_DRIVER), OK);
    call_malloc(0, 1);
    flush();
    EQUAL(client.count, 1);
    EQUAL(count_of(CM_CUPTI_DRIVER), 1);
}

static void kinds(void)
{
    uint32_t other;

    collect();
    EQUAL(cuptiActivityEnable(0), INVALID_KIND);
    EQUAL(cuptiActivityEnable(6), INVALID_KIND); /* EVENT went with 13.0 */
    EQUAL(cuptiActivityEnable(56), INVALID_KIND);
    EQUAL(cuptiActivityEnable(UINT32_MAX), INVALID_KIND);
    EQUAL(cuptiActivityDisable(UINT32_MAX), INVALID_KIND);
    EQUAL(cuptiActivityEnable(CM_CUPTI_UNIFIED_MEMORY_COUNTER), NOT_READY);
    EQUAL(cuptiActivityConfigureUnifiedMemoryCounter(&other, 1), OK);
    EQUAL(noted(), 0);
    EQUAL(cuptiActivityEnable(CM_CUPTI_UNIFIED_MEMORY_COUNTER), OK);
    EQUAL(noted(), 1); /* there will be none: said */
    EQUAL(cuptiActivityDisable(CM_CUPTI_UNIFIED_MEMORY_COUNTER), OK);

    /* One context only; and all but one. */
    EQUAL(cuptiActivityEnableContext(&other, CM_CUPTI_MEMORY2), INVALID_CONTEXT);
    EQUAL(cuptiActivityEnableContext(a_context(1), CM_CUPTI_MEMORY2), OK);
    CHECK(cm_sim_cupti_wanted());
    call_malloc(0, 1);
    call_malloc(1, 2);
    flush();
    EQUAL(client.count, 1);
    EQUAL(((const cm_cupti_memory *)record_of(CM_CUPTI_MEMORY2, 0))->bytes, 2);
    EQUAL(cuptiActivityDisableContext(a_context(1), CM_CUPTI_MEMORY2), OK);
    CHECK(!cm_sim_cupti_wanted());
    EQUAL(cuptiActivityEnable(CM_CUPTI_MEMORY2), OK);
    call_malloc(1, 1);
    call_malloc(0, 4);
    flush();
    EQUAL(client.count, 2);
    EQUAL(((const cm_cupti_memory *)record_of(CM_CUPTI_MEMORY2, 1))->bytes, 4);
    EQUAL(cuptiActivityDisable(CM_CUPTI_MEMORY2), OK);

    /* Single calls: without the kind, out of the kind, and the kind again over both. */
    forget();
    EQUAL(cuptiActivityEnableRuntimeApi(CUDA_LAUNCH, 1), OK);
    call_malloc(0, 1);
    call_launch(0, 0, "k");
    flush();
    EQUAL(client.count, 1);
    EQUAL(((const cm_cupti_api *)record_of(CM_CUPTI_RUNTIME, 0))->cbid, CUDA_LAUNCH);
    EQUAL(cuptiActivityEnable(CM_CUPTI_RUNTIME), OK);
    EQUAL(cuptiActivityEnableRuntimeApi(CUDA_LAUNCH, 0), OK);
    call_malloc(0, 1);
    call_launch(0, 0, "k");
    flush();
    EQUAL(client.count, 2);
    EQUAL(((const cm_cupti_api *)record_of(CM_CUPTI_RUNTIME, 1))->cbid, CUDA_MALLOC);
    EQUAL(cuptiActivityEnable(CM_CUPTI_RUNTIME), OK);
    call_launch(0, 0, "k");
    flush();
    EQUAL(client.count, 3);
    EQUAL(cuptiActivityEnableRuntimeApi(523, 1), INVALID_PARAMETER);
    EQUAL(cuptiActivityEnableDriverApi(807, 0), INVALID_PARAMETER);
    EQUAL(cuptiActivityDisable(CM_CUPTI_RUNTIME), OK);
    CHECK(!cm_sim_cupti_wanted());
}

static void attributes(void)
{
    size_t value = 0, size = sizeof value;
    uint8_t flag = 9;

    EQUAL(cuptiActivityGetAttribute(0, &size, &value), OK);
    EQUAL(value, 3200000);
    value = 12345678;
    EQUAL(cuptiActivitySetAttribute(0, &size, &value), OK);
    value = 0;
    EQUAL(cuptiActivityGetAttribute(0, &size, &value), OK);
    EQUAL(value, 12345678);
    size = 1;
    EQUAL(cuptiActivityGetAttribute(9, &size, &flag), OK);
    EQUAL(flag, 1); /* a buffer for each thread, since 13.0 */
    EQUAL(cuptiActivityGetAttribute(0, &size, &value), SIZE_NOT_SUFFICIENT);
    EQUAL(cuptiActivityGetAttribute(11, &size, &value), INVALID_PARAMETER);
    EQUAL(cuptiActivityGetAttribute(0, NULL, &value), INVALID_PARAMETER);
    EQUAL(cuptiActivitySetAttribute(0, &size, NULL), INVALID_PARAMETER);
    EQUAL(cuptiFinalize(), OK);
    size = sizeof value;
    EQUAL(cuptiActivityGetAttribute(0, &size, &value), OK);
    EQUAL(value, 3200000);
}

static void external(void)
{
    uint64_t last;

    collect();
    EQUAL(cuptiActivityEnable(CM_CUPTI_EXTERNAL_CORRELATION), OK);
    EQUAL(cuptiActivityPushExternalCorrelationId(0, 1), INVALID_PARAMETER);
    EQUAL(cuptiActivityPushExternalCorrelationId(6, 1), INVALID_PARAMETER);
    EQUAL(cuptiActivityPopExternalCorrelationId(6, &last), INVALID_PARAMETER);
    EQUAL(cuptiActivityPopExternalCorrelationId(3, &last), QUEUE_EMPTY);
    EQUAL(cuptiActivityPushExternalCorrelationId(3, 100), OK);
    EQUAL(cuptiActivityPushExternalCorrelationId(3, 101), OK);
    EQUAL(cuptiActivityPushExternalCorrelationId(5, UINT64_MAX), OK);
    call_malloc(0, 1); /* no record of the call, so none of these */
    EQUAL(cuptiActivityEnable(CM_CUPTI_RUNTIME), OK);
    call_malloc(0, 1);
    EQUAL(cuptiActivityPopExternalCorrelationId(3, &last), OK);
    EQUAL(last, 101);
    call_malloc(0, 1);
    EQUAL(cuptiActivityPopExternalCorrelationId(3, NULL), OK);
    EQUAL(cuptiActivityPopExternalCorrelationId(5, &last), OK);
    call_malloc(0, 1);
    flush();

    EQUAL(client.count, 7);
    static const uint32_t expected[] = {39, 39, 5, 39, 39, 5, 5}; /* each before its call */
    for (int i = 0; i < 7; i++)
        EQUAL(kind_of((size_t)i), expected[i]);
    const cm_cupti_external *record = record_of(CM_CUPTI_EXTERNAL_CORRELATION, 0);
    EQUAL(record->externalKind, 3);
    EQUAL(record->externalId, 101);
    EQUAL(record->correlationId,
          ((const cm_cupti_api *)record_of(CM_CUPTI_RUNTIME, 0))->correlationId);
    record = record_of(CM_CUPTI_EXTERNAL_CORRELATION, 1);
    EQUAL(record->externalKind, 5);
    CHECK(record->externalId == UINT64_MAX);
    EQUAL(((const cm_cupti_external *)record_of(CM_CUPTI_EXTERNAL_CORRELATION, 2))->externalId,
          100);
    for (uint64_t i = 0; i < 1000; i++)
        EQUAL(cuptiActivityPushExternalCorrelationId(4, i), OK);
    for (uint64_t i = 1000; i-- > 0;) {
        EQUAL(cuptiActivityPopExternalCorrelationId(4, &last), OK);
        EQUAL(last, i);
    }
}

/* --- Buffers -----------------------------------------------------------------------------------
 */

/* Every record comes back, whole and once, whatever the buffers' size. (Buffers may overtake each
 * other, as CUPTI's do.) */
static void sizes(void)
{
    static const size_t tried[] = {128, 136, 300, 1000, 4096, 65536};
    enum { CALLS = 500 };

    for (size_t i = 0; i < sizeof tried / sizeof tried[0]; i++)
        for (size_t limit = 0; limit < 3; limit++) {
            client.size = tried[i];
            client.max_records = limit;
            collect();
            EQUAL(cuptiActivityEnable(CM_CUPTI_MEMORY2), OK);
            EQUAL(cuptiActivityEnable(CM_CUPTI_RUNTIME), OK);
            for (size_t n = 0; n < CALLS; n++)
                call_malloc(0, n + 1);
            flush();
            EQUAL(client.count, 2 * CALLS);
            EQUAL(client.given, client.taken);
            bool seen[CALLS] = {false};
            for (size_t n = 0; n < client.count; n++) {
                bool memory = kind_of(n) == CM_CUPTI_MEMORY2;
                EQUAL(client.sizes[n], memory ? 128 : 40);
                if (memory) {
                    uint64_t bytes = ((const cm_cupti_memory *)client.records[n])->bytes;
                    CHECK(bytes && bytes <= CALLS && !seen[bytes - 1]);
                    seen[bytes - 1] = true;
                }
            }
            EQUAL(count_of(CM_CUPTI_MEMORY2), CALLS);
            EQUAL(count_of(CM_CUPTI_RUNTIME), CALLS);
            EQUAL(client.empty, 0);
            EQUAL(dropped(), 0);
            forget();
        }
}

static void drops(void)
{
    size_t count;

    EQUAL(cuptiActivityRegisterCallbacks(NULL, take_back), INVALID_PARAMETER);
    EQUAL(cuptiActivityRegisterCallbacks(give, NULL), INVALID_PARAMETER);
    EQUAL(cuptiActivityFlushAll(0), INVALID_OPERATION); /* nobody registered */
    EQUAL(cuptiActivityGetNumDroppedRecords(NULL, 0, NULL), INVALID_PARAMETER);
    EQUAL(cuptiActivityEnable(CM_CUPTI_MEMORY2), OK);
    call_malloc(0, 1);
    EQUAL(dropped(), 1);

    collect();
    client.decline = true;
    for (int i = 0; i < 5; i++)
        call_malloc(0, 1);
    EQUAL(cuptiActivityGetNumDroppedRecords(NULL, 0, &count), OK);
    EQUAL(count, 5);
    EQUAL(dropped(), 0); /* reading took them */
    client.decline = false;

    /* Too small, or not aligned: not used, and given back. */
    client.size = 127;
    call_malloc(0, 1);
    EQUAL(dropped(), 1);
    EQUAL(client.given, 1);
    EQUAL(client.taken, 1);
    EQUAL(client.empty, 1);
    client.size = 4096;
    client.misalign = 4;
    call_malloc(0, 1);
    EQUAL(dropped(), 1);
    EQUAL(client.empty, 2);
    client.misalign = 0;
    call_malloc(0, 77);
    flush();
    EQUAL(client.count, 1);
    EQUAL(dropped(), 0);
    flush(); /* nothing more, and no empty buffer */
    EQUAL(client.taken, 3);
}

/* Full buffers come back without a flush, on a thread of CUPTI's own. */
static void worker(void)
{
    client.size = 512;
    collect();
    EQUAL(cuptiActivityEnable(CM_CUPTI_MEMORY2), OK);
    EQUAL(cuptiActivityFlushPeriod(5), OK);
    for (int i = 0; i < 41; i++)
        call_malloc(0, 1);
    for (bool done = false; !done; sched_yield()) {
        pthread_mutex_lock(&client.lock);
        done = client.count == 40;
        pthread_mutex_unlock(&client.lock);
    }
    EQUAL(client.elsewhere, 10);
    EQUAL(cuptiActivityFlushPeriod(0), OK);
    EQUAL(cuptiActivityFlushAll(FORCED), OK);
    EQUAL(client.count, 41);
    EQUAL(client.given, client.taken);
}

/* Work that is not done: an ordinary flush keeps its buffer, a forced one gives it without an end.
 */
static void incomplete(void)
{
    lag(3);
    collect();
    EQUAL(cuptiActivityEnable(CM_CUPTI_CONCURRENT_KERNEL), OK);
    call_launch(0, 0, "first");
    flush();
    EQUAL(client.count, 0);
    for (int i = 0; i < 3; i++)
        call_launch(0, 0, "later");
    flush();
    EQUAL(client.count, 0); /* the first is done, those behind it are not */
    EQUAL(cuptiActivityFlushAll(FORCED), OK);
    EQUAL(client.count, 4);
    for (size_t i = 0; i < 4; i++) {
        const cm_cupti_kernel *kernel = record_of(CM_CUPTI_CONCURRENT_KERNEL, i);
        CHECK(kernel->start);
        CHECK(i ? !kernel->end : kernel->end > kernel->start);
    }
    call_launch(0, 0, "last");
    synchronize();
    flush();
    EQUAL(client.count, 5);
    CHECK(((const cm_cupti_kernel *)record_of(CM_CUPTI_CONCURRENT_KERNEL, 4))->end);

    /* Full ones wait too; they come in any order, but they come. */
    forget();
    client.size = 512;
    EQUAL(cuptiActivityFlushPeriod(1), OK);
    for (int i = 0; i < 40; i++)
        call_launch(0, i % 3, "k");
    nanosleep(&(struct timespec){0, 20000000}, NULL);
    pthread_mutex_lock(&client.lock);
    CHECK(client.count <= 36);
    pthread_mutex_unlock(&client.lock);
    synchronize();
    for (bool done = false; !done; sched_yield()) {
        pthread_mutex_lock(&client.lock);
        done = client.count == 38; /* the last buffer, of two records, is not known to be full */
        pthread_mutex_unlock(&client.lock);
    }
    flush();
    EQUAL(client.count, 40);
    for (size_t i = 0; i < 40; i++)
        CHECK(((const cm_cupti_kernel *)client.records[i])->end);
    /* Detaching gives everything, finished or not. */
    call_launch(0, 0, "k");
    EQUAL(cuptiFinalize(), OK);
    EQUAL(client.count, 41);
    EQUAL(client.given, client.taken);
    lag(0);
}

/* Functions of the client that call back into CUPTI, and take a lock that callers of CUPTI hold. */
static pthread_mutex_t clients_own = PTHREAD_MUTEX_INITIALIZER;

static void give_and_ask(uint8_t **buffer, size_t *size, size_t *max_records)
{
    size_t count;

    give(buffer, size, max_records);
    EQUAL(cuptiActivityGetNumDroppedRecords(NULL, 0, &count), OK);
    call_malloc(0, 999); /* its record finds no buffer */
}

static void take_and_ask(void *context, uint32_t stream, uint8_t *buffer, size_t size, size_t valid)
{
    size_t count;
    uint64_t now;

    pthread_mutex_lock(&clients_own);
    take_back(context, stream, buffer, size, valid);
    EQUAL(cuptiActivityGetNumDroppedRecords(NULL, 0, &count), OK);
    EQUAL(cuptiGetTimestamp(&now), OK);
    EQUAL(cuptiActivityEnable(CM_CUPTI_MEMSET), OK);
    EQUAL(cuptiActivityFlushAll(0), INVALID_OPERATION);
    pthread_mutex_unlock(&clients_own);
}

static void reentrant(void)
{
    size_t count;

    client.size = 256;
    client.main_thread = pthread_self();
    EQUAL(cuptiActivityRegisterCallbacks(give_and_ask, take_and_ask), OK);
    EQUAL(cuptiActivityEnable(CM_CUPTI_MEMORY2), OK);
    for (int i = 0; i < 200; i++) {
        pthread_mutex_lock(&clients_own);
        call_malloc(0, 1);
        EQUAL(cuptiActivityGetNumDroppedRecords(NULL, 0, &count), OK);
        pthread_mutex_unlock(&clients_own);
        if (i % 10 == 0)
            flush();
    }
    flush();
    size_t wanted = 0;
    for (size_t i = 0; i < client.count; i++)
        wanted += ((const cm_cupti_memory *)client.records[i])->bytes == 1;
    EQUAL(wanted, 200);
}

/* Another tool registers: buffers that were asked of one come back to the other. */
static unsigned foreign;

static void take_foreign(void *context, uint32_t stream, uint8_t *buffer, size_t size, size_t valid)
{
    foreign++;
    take_back(context, stream, buffer, size, valid);
}

static void takeover(void)
{
    collect();
    EQUAL(cuptiActivityEnable(CM_CUPTI_MEMORY2), OK);
    call_malloc(0, 1);
    EQUAL(cuptiActivityRegisterCallbacks(give, take_foreign), OK);
    flush();
    EQUAL(foreign, 1);
    EQUAL(client.count, 1);
}

static void *one_call(void *unused)
{
    (void)unused;
    call_malloc(0, 1);
    return NULL;
}

static void in_thread(void)
{
    pthread_t thread;

    EQUAL(pthread_create(&thread, NULL, one_call, NULL), 0);
    EQUAL(pthread_join(thread, NULL), 0);
}

/* Threads that end leave their buffer to the next one; a flush finds what all of them wrote. */
static void threads(void)
{
    client.size = 1 << 16;
    collect();
    EQUAL(cuptiActivityEnable(CM_CUPTI_MEMORY2), OK);
    for (int i = 0; i < 100; i++)
        in_thread();
    EQUAL(client.given, 1);
    call_malloc(0, 1);
    EQUAL(client.given, 1); /* this thread took the one that lay idle */
    in_thread();
    EQUAL(client.given, 2);
    flush();
    EQUAL(client.count, 102);
    EQUAL(client.taken, client.given);

    /* One for all, on request. */
    forget();
    EQUAL(cuptiFinalize(), OK);
    uint8_t no = 0;
    size_t size = 1;
    EQUAL(cuptiActivitySetAttribute(9, &size, &no), OK);
    collect();
    EQUAL(cuptiActivityEnable(CM_CUPTI_MEMORY2), OK);
    call_malloc(0, 1);
    in_thread();
    EQUAL(client.given, 1);
    flush();
    EQUAL(client.count, 2);
}

static void walking(void)
{
    uint64_t bytes[64] = {0};
    uint8_t *buffer = (uint8_t *)bytes;
    cm_cupti_record *record = NULL;

    EQUAL(cuptiActivityGetNextRecord(NULL, 8, &record), INVALID_PARAMETER);
    EQUAL(cuptiActivityGetNextRecord(buffer, 8, NULL), INVALID_PARAMETER);
    EQUAL(cuptiActivityGetNextRecord(buffer, 0, &record), MAX_LIMIT_REACHED);
    EQUAL(cuptiActivityGetNextRecord(buffer, sizeof bytes, &record), INVALID_KIND);
    ((cm_cupti_record *)buffer)->kind = CM_CUPTI_RUNTIME;
    EQUAL(cuptiActivityGetNextRecord(buffer, 39, &record), MAX_LIMIT_REACHED);
    EQUAL(cuptiActivityGetNextRecord(buffer, 40, &record), OK);
    CHECK((uint8_t *)record == buffer);
    EQUAL(cuptiActivityGetNextRecord(buffer, 40, &record), MAX_LIMIT_REACHED);
    EQUAL(cuptiActivityGetNextRecord(buffer, 48, &record), INVALID_KIND);
    record = (cm_cupti_record *)(buffer + 400);
    EQUAL(cuptiActivityGetNextRecord(buffer, 48, &record), INVALID_PARAMETER);
    record = (cm_cupti_record *)(buffer - 8);
    EQUAL(cuptiActivityGetNextRecord(buffer, 48, &record), INVALID_PARAMETER);
}

/* Detaching with records outstanding, inside a callback; then everything anew. */
static void finalize_inside(void *userdata, int domain, uint32_t id, const void *data)
{
    (void)userdata, (void)domain, (void)id, (void)data;
    EQUAL(cuptiFinalize(), OK);
}

static void finalize(void)
{
    void *one;

    for (int round = 0; round < 20; round++) {
        client.size = round % 2 ? 256 : 4096;
        collect();
        EQUAL(cuptiSubscribe(&one, finalize_inside, NULL), OK);
        EQUAL(cuptiActivityEnable(CM_CUPTI_MEMORY2), OK);
        for (int i = 0; i < 10; i++)
            call_malloc(0, 1);
        EQUAL(cuptiEnableCallback(1, one, DRIVER_API, CU_LAUNCH), OK);
        call_launch(0, 0, "k");
        CHECK(!cm_sim_cupti_wanted());
        EQUAL(client.count, 10);
        EQUAL(client.given, client.taken);
        EQUAL(cuptiUnsubscribe(one), INVALID_PARAMETER);
        EQUAL(cuptiActivityFlushAll(0), INVALID_OPERATION);
        forget();
    }
    EQUAL(cuptiFinalize(), OK);
}

/* --- Time --------------------------------------------------------------------------------------
 */

static uint64_t cycles_begin = 5000, cycles_rate = 3;
static uint64_t cycles(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return cycles_begin + cycles_rate * ((uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec);
}

/* Kernels follow each other on their stream, begin after their launch and soon after it. */
static void check_order(uint64_t lead)
{
    uint64_t end[9] = {0};
    size_t api = 0;

    for (size_t i = 0; i < client.count; i++) {
        if (kind_of(i) != CM_CUPTI_CONCURRENT_KERNEL)
            continue;
        const cm_cupti_kernel *kernel = (const cm_cupti_kernel *)client.records[i];
        const cm_cupti_api *call = record_of(CM_CUPTI_RUNTIME, api++);
        EQUAL(kernel->correlationId, call->correlationId);
        unsigned stream = kernel->streamId == 7 ? 0 : kernel->streamId - 12;
        CHECK(kernel->start >= call->start);
        CHECK(kernel->start < kernel->end);
        CHECK(kernel->start >= end[stream]);
        CHECK(kernel->end <= call->end + lead);
        end[stream] = kernel->end;
    }
}

static void time_of_day(void)
{
    uint64_t now;
    struct timespec before;

    clock_gettime(CLOCK_REALTIME, &before);
    EQUAL(cuptiGetTimestamp(NULL), INVALID_PARAMETER);
    EQUAL(cuptiGetTimestamp(&now), OK);
    CHECK(now >= (uint64_t)before.tv_sec * 1000000000 + (uint64_t)before.tv_nsec);
    client.size = 1 << 20;
    collect();
    EQUAL(cuptiActivityEnable(CM_CUPTI_CONCURRENT_KERNEL), OK);
    EQUAL(cuptiActivityEnable(CM_CUPTI_RUNTIME), OK);
    for (int i = 0; i < 400; i++)
        call_launch(0, i % 3, "k");
    flush();
    EQUAL(count_of(CM_CUPTI_CONCURRENT_KERNEL), 400);
    check_order(60000);

    /* A client's clock that counts something else: durations are in its units. */
    forget();
    EQUAL(cuptiActivityRegisterTimestampCallback(NULL), INVALID_PARAMETER);
    EQUAL(cuptiActivityRegisterTimestampCallback(cycles), OK);
    nanosleep(&(struct timespec){0, 30000000}, NULL);
    EQUAL(cuptiGetTimestamp(&now), OK);
    CHECK(now <= cycles());
    call_launch(0, 0, "k");
    for (int i = 0; i < 100; i++)
        call_launch(0, i % 3, "k");
    flush();
    check_order(3 * 60000);
    const cm_cupti_kernel *kernel = record_of(CM_CUPTI_CONCURRENT_KERNEL, 0);
    CHECK(kernel->end - kernel->start > 4400 && kernel->end - kernel->start < 4600); /* 1.5 us */

    /* It is set back: the device goes on from there. */
    forget();
    cycles_begin -= 4000;
    cycles_begin += UINT64_C(1) << 40;
    call_launch(0, 0, "k");
    cycles_begin -= UINT64_C(1) << 40;
    call_launch(0, 0, "k");
    flush();
    const cm_cupti_kernel *far = record_of(CM_CUPTI_CONCURRENT_KERNEL, 0);
    kernel = record_of(CM_CUPTI_CONCURRENT_KERNEL, 1);
    CHECK(far->start > kernel->end);
    CHECK(kernel->end < cycles() + 3 * 60000);
}

/* --- Fork --------------------------------------------------------------------------------------
 */

static void forked(void)
{
    void *one, *again;
    int status;

    collect();
    EQUAL(cuptiSubscribe(&one, watch, calls), OK);
    EQUAL(cuptiEnableDomain(1, one, RUNTIME_API), OK);
    EQUAL(cuptiActivityEnable(CM_CUPTI_MEMORY2), OK);
    call_malloc(0, 1);
    pid_t child = fork();
    if (!child) {
        CHECK(!cm_sim_cupti_wanted());
        unsigned before = called;
        call_malloc(0, 1);
        EQUAL(called, before);
        EQUAL(cuptiActivityFlushAll(0), INVALID_OPERATION);
        EQUAL(client.count, 0); /* the parent's record is the parent's */
        EQUAL(cuptiUnsubscribe(one), INVALID_PARAMETER);
        EQUAL(cuptiSubscribe(&again, watch, calls), OK);
        collect();
        client.size = 256;
        EQUAL(cuptiActivityEnable(CM_CUPTI_MEMORY2), OK);
        for (int i = 0; i < 10; i++)
            call_malloc(0, 5);
        flush();
        EQUAL(client.count, 10);
        EQUAL(((const cm_cupti_memory *)record_of(CM_CUPTI_MEMORY2, 0))->processId, getpid());
        _exit(0);
    }
    EQUAL(waitpid(child, &status, 0), child);
    CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    call_malloc(0, 1);
    flush();
    EQUAL(client.count, 2);
    EQUAL(cuptiUnsubscribe(one), OK);
}

/* --- Generations: prints what a walking client finds out ---------------------------------------
 */

static void generation(void)
{
    static uint64_t bytes[1024];
    uint32_t version;

    EQUAL(cuptiGetVersion(&version), OK);
    printf("version %u\n", version);
    for (uint32_t kind = 1; kind < 64; kind++) {
        cm_cupti_record *first = NULL, *second;
        for (size_t i = 0; i < 1024; i++)
            memcpy(&bytes[i], &kind, sizeof kind);
        if (cuptiActivityGetNextRecord((uint8_t *)bytes, sizeof bytes, &first) != OK)
            continue;
        second = first;
        EQUAL(cuptiActivityGetNextRecord((uint8_t *)bytes, sizeof bytes, &second), OK);
        printf("%u:%zu\n", kind, (size_t)((uint8_t *)second - (uint8_t *)first));
    }
    collect();
    static const uint32_t on[] = {CM_CUPTI_MEMORY2, CM_CUPTI_CONCURRENT_KERNEL, CM_CUPTI_MEMCPY,
                                  CM_CUPTI_MEMSET, CM_CUPTI_MEMORY_POOL};
    for (size_t i = 0; i < sizeof on / sizeof on[0]; i++)
        EQUAL(cuptiActivityEnable(on[i]), OK);
    for (uint32_t round = 0; round < 100; round++) {
        call_malloc(0, 10 + round);
        call_launch(0, 0, "kernel");
        call_copy(0, CM_CUPTI_COPY_HTOD, 0, 0, 20 + round);
        call_set(0, 1, 30 + round);
        call_malloc_async(0, 0, 40 + round);
    }
    flush();
    EQUAL(client.count, 600);
    /* Sums: a full buffer that the worker hands back may come after the one that a flush does. */
    uint64_t allocated = 0, copied = 0, set = 0;
    for (uint32_t round = 0; round < 100; round++) {
        allocated += ((const cm_cupti_memory *)record_of(CM_CUPTI_MEMORY2, 2 * round))->bytes;
        allocated += ((const cm_cupti_memory *)record_of(CM_CUPTI_MEMORY2, 2 * round + 1))->bytes;
        copied += ((const cm_cupti_memcpy *)record_of(CM_CUPTI_MEMCPY, round))->bytes;
        set += ((const cm_cupti_memset *)record_of(CM_CUPTI_MEMSET, round))->bytes;
        const cm_cupti_kernel *kernel = record_of(CM_CUPTI_CONCURRENT_KERNEL, round);
        CHECK(!strcmp(kernel->name, "kernel"));
    }
    EQUAL(allocated, 100 * (10 + 40) + 2 * 4950);
    EQUAL(copied, 100 * 20 + 4950);
    EQUAL(set, 100 * 30 + 4950);
}

static const struct {
    const char *name;
    void (*run)(void);
} units[] = {
    {"callbacks", callbacks},   {"stuck", stuck},           {"names", names},
    {"records", records},       {"kinds", kinds},           {"attributes", attributes},
    {"external", external},     {"sizes", sizes},           {"drops", drops},
    {"worker", worker},         {"incomplete", incomplete}, {"reentrant", reentrant},
    {"takeover", takeover},     {"threads", threads},       {"walking", walking},
    {"finalize", finalize},     {"time", time_of_day},      {"forked", forked},
    {"generation", generation},
};

int main(int count, char **arguments)
{
    for (size_t i = 0; i < sizeof units / sizeof units[0]; i++)
        if (count == 2 && !strcmp(units[i].name, arguments[1])) {
            units[i].run();
            forget();
            return 0;
        }
    fprintf(stderr, "which one?\n");
    return 2;
}
