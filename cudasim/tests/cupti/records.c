/* What records say, and walking through them. */
#include "collect.h"
#include "doubles.h"

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

/* Prints what a walking client finds out. */
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

static const unit units[] = {
    {"records", records},   {"kinds", kinds},     {"attributes", attributes},
    {"external", external}, {"walking", walking}, {"generation", generation},
};
UNITS(units)
