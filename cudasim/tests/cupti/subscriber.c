/* A CUPTI client on the runtime and the driver as programs call them: every allocation that a
 * callback tells of has its record, kernels are named and in order. Declares everything itself. */
#define _GNU_SOURCE
#include <dlfcn.h>

#include "collect.h"

/* --- What it calls -----------------------------------------------------------------------------
 */

typedef struct dim3 {
    unsigned x, y, z;
} dim3;

int cudaMalloc(void **, size_t);
int cudaFree(void *);
int cudaMallocManaged(void **, size_t, unsigned);
int cudaHostAlloc(void **, size_t, unsigned);
int cudaFreeHost(void *);
int cudaMallocAsync(void **, size_t, void *);
int cudaFreeAsync(void *, void *);
int cudaMemcpy(void *, const void *, size_t, int);
int cudaMemcpyAsync(void *, const void *, size_t, int, void *);
int cudaMemsetAsync(void *, int, size_t, void *);
int cudaStreamCreate(void **);
int cudaStreamDestroy(void *);
int cudaStreamSynchronize(void *);
int cudaSetDevice(int);
int cudaLaunchKernel(const void *, dim3, dim3, void **, size_t, void *);
void **__cudaRegisterFatBinary(void *);
void __cudaUnregisterFatBinary(void **);
void __cudaRegisterFunction(void **, const char *, char *, const char *, int, void *, void *,
                            void *, void *, int *);
int cuMemAlloc_v2(uint64_t *, size_t);
int cuMemFree_v2(uint64_t);
int cuCtxGetCurrent(void **);

enum { HOST_TO_DEVICE = 1, DEVICE_TO_HOST = 2 };
enum { MEM_ALLOC = 243, MEM_FREE = 245, ALLOC_MANAGED = 371, ALLOC_ASYNC = 598, FREE_ASYNC = 600 };
enum { HOST_ALLOC = 39, FREE_HOST = 38, LAUNCH_KERNEL = 307 };

/* --- What callbacks tell -----------------------------------------------------------------------
 */

enum { TOLD = 100000 };
typedef struct told {
    uint32_t correlation, id;
    uint64_t address, bytes;
    bool release, matched;
} told;
static told memory_calls[TOLD];
static atomic_size_t told_count, runtime_calls, driver_calls, nested, launches, mismatches;
static _Thread_local uint32_t open_call; /* the runtime call that this thread is in */

static void note_memory(uint32_t id, const cm_cupti_callback_data *data)
{
    const uint64_t *words = data->functionParams; /* of 64-bit words all of them are made */
    told one = {.correlation = data->correlationId, .id = id};

    switch (id) {
    case MEM_ALLOC:
    case ALLOC_MANAGED:
    case ALLOC_ASYNC:
    case HOST_ALLOC:
        one.address = *(const uint64_t *)(uintptr_t)words[0];
        one.bytes = words[1];
        break;
    case MEM_FREE:
    case FREE_ASYNC:
    case FREE_HOST:
        one.address = words[0];
        one.release = true;
        break;
    default:
        return;
    }
    size_t at = atomic_fetch_add(&told_count, 1);
    CHECK(at < TOLD);
    memory_calls[at] = one;
}

static void hear(void *userdata, int domain, uint32_t id, const void *cbdata)
{
    const cm_cupti_callback_data *data = cbdata;

    CHECK(userdata == memory_calls);
    if (domain == RUNTIME_API) {
        if (data->callbackSite == 0) {
            atomic_fetch_add(&runtime_calls, 1);
            open_call = data->correlationId;
        } else {
            CHECK(open_call == data->correlationId);
            open_call = 0;
        }
        return;
    }
    if (domain != DRIVER_API)
        return;
    if (data->callbackSite == 0) {
        atomic_fetch_add(&driver_calls, 1);
        if (open_call) {
            atomic_fetch_add(&nested, 1);
            atomic_fetch_add(&mismatches, open_call != data->correlationId);
        }
        *data->correlationData = data->correlationId;
        return;
    }
    CHECK(*data->correlationData == data->correlationId);
    if (*(const int *)data->functionReturnValue)
        return;
    if (id == LAUNCH_KERNEL) {
        CHECK(data->symbolName && !strncmp(data->symbolName, "_Z", 2));
        atomic_fetch_add(&launches, 1);
    } else {
        note_memory(id, data);
    }
}

/* --- The program -------------------------------------------------------------------------------
 */

static char stubs[4];
static const char *const kernels[4] = {"_Z3addPfS_", "_Z3mulPfS_", "_Z4softPf", "_Z4copyPfS_"};

static void work(int seed, int rounds)
{
    void *stream, *device, *managed, *host, *pooled;
    uint64_t direct;

    EQUAL(cudaSetDevice(seed % 2), 0);
    EQUAL(cudaStreamCreate(&stream), 0);
    for (int i = 1; i <= rounds; i++) {
        size_t bytes = (size_t)(seed * 1000 + i);
        EQUAL(cudaMalloc(&device, bytes), 0);
        EQUAL(cudaMallocManaged(&managed, bytes + 1, 1), 0);
        EQUAL(cudaHostAlloc(&host, bytes + 2, 0), 0);
        EQUAL(cudaMallocAsync(&pooled, bytes + 3, stream), 0);
        EQUAL(cuMemAlloc_v2(&direct, bytes + 4), 0);
        EQUAL(cudaMemcpyAsync(device, host, bytes, HOST_TO_DEVICE, stream), 0);
        EQUAL(cudaMemcpy(host, device, bytes, DEVICE_TO_HOST), 0);
        EQUAL(cudaMemsetAsync(device, 3, bytes, stream), 0);
        for (int k = 0; k < 4; k++)
            EQUAL(cudaLaunchKernel(&stubs[k], (dim3){(unsigned)i, 1, 1}, (dim3){32, 1, 1}, NULL, 64,
                                   k % 2 ? stream : NULL),
                  0);
        EQUAL(cudaFreeAsync(pooled, stream), 0);
        EQUAL(cudaStreamSynchronize(stream), 0);
        EQUAL(cuMemFree_v2(direct), 0);
        EQUAL(cudaFreeHost(host), 0);
        EQUAL(cudaFree(managed), 0);
        EQUAL(cudaFree(device), 0);
    }
    EQUAL(cudaMalloc(&device, (size_t)1 << 50), 2); /* refused: told, but no memory record */
    EQUAL(cudaStreamDestroy(stream), 0);
}

enum { THREADS = 8, ROUNDS = 25, MEMORY_CALLS = 5, KERNELS = 4 };

static void *worker(void *number)
{
    work((int)(uintptr_t)number + 1, ROUNDS);
    return NULL;
}

/* --- Looking at it -----------------------------------------------------------------------------
 */

/* One record for each callback, with the same number, address and size. */
static void match(void)
{
    size_t count = atomic_load(&told_count), matched = 0;
    Dl_info here, there;

    CHECK(dladdr((void *)hear, &here));
    for (size_t i = 0; i < client.count; i++) {
        if (kind_of(i) != CM_CUPTI_MEMORY2)
            continue;
        const cm_cupti_memory *record = (const cm_cupti_memory *)client.records[i];
        bool release = record->memoryOperationType == CM_CUPTI_RELEASE, found = false;
        for (size_t n = 0; n < count && !found; n++) {
            told *one = &memory_calls[n];
            if (one->matched || one->correlation != record->correlationId)
                continue;
            EQUAL(one->release, release);
            CHECK(one->address == record->address);
            if (!release)
                CHECK(one->bytes == record->bytes);
            EQUAL(record->isAsync, one->id == ALLOC_ASYNC || one->id == FREE_ASYNC);
            EQUAL(record->memoryKind, one->id == HOST_ALLOC || one->id == FREE_HOST
                                          ? CM_CUPTI_MEMORY_PINNED
                                          : record->memoryKind);
            one->matched = found = true;
            matched++;
        }
        CHECK(found);
        /* Called from this program, whatever the simulator does inside. */
        CHECK(dladdr((void *)(uintptr_t)record->PC, &there));
        CHECK(there.dli_fbase == here.dli_fbase);
    }
    EQUAL(matched, count);
    EQUAL(count, (THREADS + 1) * ROUNDS * MEMORY_CALLS * 2);
}

static void check_kernels(void)
{
    size_t count = 0, names[KERNELS] = {0};

    for (size_t i = 0; i < client.count; i++) {
        if (kind_of(i) != CM_CUPTI_CONCURRENT_KERNEL)
            continue;
        const cm_cupti_kernel *kernel = (const cm_cupti_kernel *)client.records[i];
        count++;
        bool named = false;
        for (int k = 0; k < KERNELS; k++)
            if (!strcmp(kernel->name, kernels[k])) {
                names[k]++;
                named = true;
            }
        CHECK(named);
        CHECK(kernel->start < kernel->end);
        EQUAL(kernel->blockX, 32);
        EQUAL(kernel->dynamicSharedMemory, 64);
    }
    EQUAL(count, (THREADS + 1) * ROUNDS * KERNELS);
    for (int k = 0; k < KERNELS; k++)
        EQUAL(names[k], (THREADS + 1) * ROUNDS);
}

/* The records of one thread, which went to buffers of its own, are in order. */
static void check_order(void)
{
    uint64_t end[2] = {0}, last = 0;

    for (size_t i = 0; i < client.count; i++) {
        if (kind_of(i) == CM_CUPTI_CONCURRENT_KERNEL) {
            const cm_cupti_kernel *kernel = (const cm_cupti_kernel *)client.records[i];
            uint64_t *stream = &end[kernel->streamId == 7];
            CHECK(kernel->start >= *stream);
            *stream = kernel->end;
        } else if (kind_of(i) == CM_CUPTI_RUNTIME) {
            const cm_cupti_api *api = (const cm_cupti_api *)client.records[i];
            CHECK(api->start >= last && api->end >= api->start);
            last = api->end;
        }
    }
}

int main(void)
{
    pthread_t threads[THREADS];
    void *subscriber, *context;
    static struct {
        int magic, version;
        const void *data;
        void *unused;
    } fat = {0x466243b1, 1, "", NULL};
    void **module = __cudaRegisterFatBinary(&fat);

    for (int k = 0; k < KERNELS; k++)
        __cudaRegisterFunction(module, &stubs[k], (char *)kernels[k], kernels[k], -1, NULL, NULL,
                               NULL, NULL, NULL);
    work(1, 1); /* before anybody listens */
    client.size = 1 << 20;
    EQUAL(cuptiSubscribe(&subscriber, hear, memory_calls), OK);
    EQUAL(cuptiEnableDomain(1, subscriber, DRIVER_API), OK);
    EQUAL(cuptiEnableDomain(1, subscriber, RUNTIME_API), OK);
    collect();
    static const uint32_t on[] = {CM_CUPTI_MEMORY2, CM_CUPTI_CONCURRENT_KERNEL, CM_CUPTI_MEMCPY,
                                  CM_CUPTI_MEMSET,  CM_CUPTI_RUNTIME,           CM_CUPTI_DRIVER};
    for (size_t i = 0; i < sizeof on / sizeof on[0]; i++)
        EQUAL(cuptiActivityEnable(on[i]), OK);

    work(0, ROUNDS);
    flush();
    check_order();
    size_t alone = client.count;
    CHECK(alone > 0);
    for (uintptr_t i = 0; i < THREADS; i++)
        EQUAL(pthread_create(&threads[i], NULL, worker, (void *)i), 0);
    for (int i = 0; i < THREADS; i++)
        EQUAL(pthread_join(threads[i], NULL), 0);
    flush();

    match();
    check_kernels();
    EQUAL(atomic_load(&mismatches), 0);
    EQUAL(dropped(), 0);
    EQUAL(count_of(CM_CUPTI_RUNTIME), atomic_load(&runtime_calls));
    /* Of driver calls only those that are in no runtime call leave a record. */
    EQUAL(count_of(CM_CUPTI_DRIVER), atomic_load(&driver_calls) - atomic_load(&nested));
    EQUAL(count_of(CM_CUPTI_DRIVER), (THREADS + 1) * ROUNDS * 2);
    EQUAL(atomic_load(&launches), (THREADS + 1) * ROUNDS * KERNELS);
    EQUAL(count_of(CM_CUPTI_MEMCPY), (THREADS + 1) * ROUNDS * 2);
    EQUAL(count_of(CM_CUPTI_MEMSET), (THREADS + 1) * ROUNDS);
    for (size_t i = 0; i < 2 * ROUNDS; i++) {
        const cm_cupti_memcpy *copy = record_of(CM_CUPTI_MEMCPY, i);
        EQUAL(copy->copyKind, i % 2 ? CM_CUPTI_COPY_DTOH : CM_CUPTI_COPY_HTOD);
        EQUAL(i % 2 ? copy->dstKind : copy->srcKind, CM_CUPTI_MEMORY_PINNED);
        EQUAL(i % 2 ? copy->srcKind : copy->dstKind, CM_CUPTI_MEMORY_DEVICE);
    }
    EQUAL(cuCtxGetCurrent(&context), 0);
    uint32_t device, id;
    EQUAL(cuptiGetDeviceId(context, &device), OK);
    EQUAL(device, 0);
    EQUAL(cuptiGetContextId(context, &id), OK);
    EQUAL(((const cm_cupti_kernel *)record_of(CM_CUPTI_CONCURRENT_KERNEL, 0))->contextId, id);

    EQUAL(cuptiUnsubscribe(subscriber), OK);
    EQUAL(cuptiFinalize(), OK);
    size_t before = client.count, calls = atomic_load(&runtime_calls);
    work(0, 1);
    EQUAL(client.count, before);
    EQUAL(atomic_load(&runtime_calls), calls);
    forget();
    __cudaUnregisterFatBinary(module);
    return 0;
}
