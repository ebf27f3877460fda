/* What CUPTI does where its documentation leaves it open: cupti_facts CHECK LIBCUPTI LIBCUDART
 * prints one line of JSON. Each check is a process of its own, for CUPTI's state is a process's.
 * checks.py says what is expected.
 *
 * Declarations are our own, so that one source serves every release; what a release lacks is named.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

/* --- what is called ----------------------------------------------------------------------------
 */

typedef struct dim3 {
    unsigned x, y, z;
} dim3;
typedef struct channels {
    int x, y, z, w, f;
} channels;
typedef struct extent {
    size_t width, height, depth;
} extent;
typedef struct pitched {
    void *address;
    size_t pitch, x, y;
} pitched;
typedef struct properties {
    int type, handles, location, device;
    void *security;
    unsigned char flags[8];
} properties;
typedef struct access_description {
    int location, device, flags;
} access_description;

typedef void (*handler)(void *userdata, int domain, uint32_t id, const void *data);
typedef void (*request_function)(uint8_t **buffer, size_t *size, size_t *most);
typedef void (*complete_function)(void *context, uint32_t stream, uint8_t *buffer, size_t size,
                                  size_t valid);

#define FUNCTIONS(F)                                                                               \
    F(cuda, cuInit, unsigned)                                                                      \
    F(cuda, cuMemAddressReserve, uint64_t *, size_t, size_t, uint64_t, uint64_t)                   \
    F(cuda, cuMemAddressFree, uint64_t, size_t)                                                    \
    F(cuda, cuMemCreate, uint64_t *, size_t, const properties *, uint64_t)                         \
    F(cuda, cuMemRelease, uint64_t)                                                                \
    F(cuda, cuMemMap, uint64_t, size_t, size_t, uint64_t, uint64_t)                                \
    F(cuda, cuMemSetAccess, uint64_t, size_t, const access_description *, size_t)                  \
    F(cuda, cuMemUnmap, uint64_t, size_t)                                                          \
    F(cuda, cuMemGetInfo_v2, size_t *, size_t *)                                                   \
    F(cuda, cuModuleLoadData, void **, const void *)                                               \
    F(cuda, cuModuleGetFunction, void **, void *, const char *)                                    \
    F(cuda, cuLaunchKernel, void *, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned,    \
      unsigned, void *, void **, void **)                                                          \
    F(cuda, cuCtxSynchronize, void)                                                                \
    F(runtime, cudaFree, void *)                                                                   \
    F(runtime, cudaMalloc, void **, size_t)                                                        \
    F(runtime, cudaMallocAsync, void **, size_t, void *)                                           \
    F(runtime, cudaFreeAsync, void *, void *)                                                      \
    F(runtime, cudaMallocManaged, void **, size_t, unsigned)                                       \
    F(runtime, cudaMallocHost, void **, size_t)                                                    \
    F(runtime, cudaFreeHost, void *)                                                               \
    F(runtime, cudaHostRegister, void *, size_t, unsigned)                                         \
    F(runtime, cudaHostUnregister, void *)                                                         \
    F(runtime, cudaMallocArray, void **, const channels *, size_t, size_t, unsigned)               \
    F(runtime, cudaFreeArray, void *)                                                              \
    F(runtime, cudaMalloc3D, pitched *, extent)                                                    \
    F(runtime, cudaMallocPitch, void **, size_t *, size_t, size_t)                                 \
    F(runtime, cudaDeviceSynchronize, void)                                                        \
    F(runtime, cudaDeviceReset, void)                                                              \
    F(cupti, cuptiGetVersion, uint32_t *)                                                          \
    F(cupti, cuptiSubscribe, void **, handler, void *)                                             \
    F(cupti, cuptiUnsubscribe, void *)                                                             \
    F(cupti, cuptiEnableDomain, uint32_t, void *, int)                                             \
    F(cupti, cuptiEnableCallback, uint32_t, void *, int, uint32_t)                                 \
    F(cupti, cuptiGetCallbackName, int, uint32_t, const char **)                                   \
    F(cupti, cuptiActivityRegisterCallbacks, request_function, complete_function)                  \
    F(cupti, cuptiActivityEnable, int)                                                             \
    F(cupti, cuptiActivityDisable, int)                                                            \
    F(cupti, cuptiActivityFlushAll, uint32_t)                                                      \
    F(cupti, cuptiActivityGetNextRecord, uint8_t *, size_t, void **)

#define DECLARE(library, name, ...) static int (*name)(__VA_ARGS__);
FUNCTIONS(DECLARE)
static int (*cuptiActivityGetStructSize)(int kind, int version, size_t *size); /* 13.3 and later */

static void fail(const char *what, int error)
{
    fprintf(stderr, "cupti_facts: %s: %d\n", what, error);
    _exit(1);
}

#define DO(call)                                                                                   \
    do {                                                                                           \
        int error_ = (call);                                                                       \
        if (error_)                                                                                \
            fail(#call, error_);                                                                   \
    } while (0)

/* "-": its functions are in the process already. */
static void open_library(const char *path)
{
    if (strcmp(path, "-") && !dlopen(path, RTLD_NOW | RTLD_GLOBAL)) {
        fprintf(stderr, "cupti_facts: %s\n", dlerror());
        _exit(1);
    }
}

static void load(const char *cupti_path, const char *runtime_path)
{
    open_library("libcuda.so.1");
    open_library(runtime_path);
    open_library(cupti_path);
#define FIND(library, name, ...)                                                                   \
    name = (int (*)(__VA_ARGS__))dlsym(RTLD_DEFAULT, #name);                                       \
    if (!name)                                                                                     \
        fail("no function " #name, 0);
    FUNCTIONS(FIND)
    cuptiActivityGetStructSize =
        (int (*)(int, int, size_t *))dlsym(RTLD_DEFAULT, "cuptiActivityGetStructSize");
}

/* --- what is told ------------------------------------------------------------------------------
 */

enum { DRIVER = 1, RUNTIME = 2, ENTER = 0, LEAVE = 1, FORCED = 1, MOST = 4096, RECORD = 128 };
enum { NOT_SUPPORTED = 801 };
enum { KIND_DRIVER = 4, KIND_RUNTIME = 5, KIND_KERNEL = 10, KIND_MEMORY2 = 49, KIND_POOL = 50 };
enum { MEM_ALLOC = 243, MEM_FREE = 245, LAUNCH = 307 };

typedef struct callback_data {
    int site;
    const char *function;
    const void *parameters, *result;
    const char *symbol;
    void *context;
    uint32_t context_uid;
    uint64_t *word;
    uint32_t correlation;
} callback_data;

typedef struct told {
    int domain;
    uint32_t id, correlation;
} told;

static told calls[MOST]; /* at their entry */
static atomic_int call_count;
static uint8_t records[MOST][RECORD];
static int record_count;
static pthread_mutex_t records_lock = PTHREAD_MUTEX_INITIALIZER;
static void *subscriber;

static void note(void *userdata, int domain, uint32_t id, const void *data)
{
    const callback_data *call = data;
    (void)userdata;
    if (call->site != ENTER)
        return;
    int at = atomic_fetch_add(&call_count, 1);
    if (at < MOST)
        calls[at] = (told){domain, id, call->correlation};
}

static void nothing(void *userdata, int domain, uint32_t id, const void *data)
{
    (void)userdata, (void)domain, (void)id, (void)data;
}

static void request(uint8_t **buffer, size_t *size, size_t *most)
{
    *size = 1 << 20;
    *most = 0;
    if (posix_memalign((void **)buffer, 8, *size))
        fail("no memory", 0);
}

static void complete(void *context, uint32_t stream, uint8_t *buffer, size_t size, size_t valid)
{
    void *record = NULL;
    (void)context, (void)stream, (void)size;
    pthread_mutex_lock(&records_lock);
    while (valid > 0 && cuptiActivityGetNextRecord(buffer, valid, &record) == 0)
        if (record_count < MOST) {
            size_t left = valid - (size_t)((uint8_t *)record - buffer);
            memset(records[record_count], 0, RECORD);
            memcpy(records[record_count++], record, left < RECORD ? left : RECORD);
        }
    pthread_mutex_unlock(&records_lock);
    free(buffer);
}

static void discard(void *context, uint32_t stream, uint8_t *buffer, size_t size, size_t valid)
{
    (void)context, (void)stream, (void)size, (void)valid;
    free(buffer);
}

static uint32_t word(const uint8_t *record, size_t offset)
{
    uint32_t value;
    memcpy(&value, record + offset, sizeof value);
    return value;
}

/* Where each kind has its correlation id. */
static uint32_t correlation_of(const uint8_t *record)
{
    switch (word(record, 0)) {
    case KIND_MEMORY2:
    case KIND_POOL:
        return word(record, 12);
    case KIND_KERNEL:
        return word(record, 92);
    case KIND_DRIVER:
    case KIND_RUNTIME:
        return word(record, 32);
    default:
        return 0;
    }
}

static int count_records(uint32_t kind)
{
    int found = 0;
    for (int i = 0; i < record_count; i++)
        found += word(records[i], 0) == kind;
    return found;
}

static bool called(uint32_t correlation)
{
    int count = atomic_load(&call_count);
    for (int i = 0; i < count && i < MOST; i++)
        if (calls[i].correlation == correlation)
            return true;
    return false;
}

static void begin(handler which)
{
    DO(cudaFree(NULL)); /* a context */
    DO(cuptiSubscribe(&subscriber, which, NULL));
}

static void collect(complete_function where)
{
    DO(cuptiActivityRegisterCallbacks(request, where));
}

static void settle(void)
{
    DO(cudaDeviceSynchronize());
    DO(cuptiActivityFlushAll(FORCED));
}

/* --- a kernel -----------------------------------------------------------------------------------
 */

static const char ptx[] =
    ".version 7.0\n.target sm_70\n.address_size 64\n.visible .entry idle()\n{\n ret;\n}\n";
static void *kernel;

static void prepare_kernel(void)
{
    void *module;
    DO(cuModuleLoadData(&module, ptx));
    DO(cuModuleGetFunction(&kernel, module, "idle"));
}

static void launch(void)
{
    DO(cuLaunchKernel(kernel, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL));
}

/* --- the checks, by their number in the list of what is open
 * ----------------------------------------------------- */

/* 1. Virtual memory: are there records? */
static void virtual_memory(void)
{
    enum { BYTES = 4 << 20 };
    static const uint32_t ids[] = {547, 549, 551, 552, 550, 548};
    const properties which = {1, 0, 1, 0, NULL, {0}};
    const access_description open = {1, 0, 3};
    uint64_t address, handle;
    begin(note);
    for (size_t i = 0; i < sizeof ids / sizeof *ids; i++)
        DO(cuptiEnableCallback(1, subscriber, DRIVER, ids[i]));
    collect(complete);
    DO(cuptiActivityEnable(KIND_MEMORY2));
    DO(cuMemAddressReserve(&address, BYTES, 0, 0, 0));
    DO(cuMemCreate(&handle, BYTES, &which, 0));
    DO(cuMemMap(address, BYTES, 0, handle, 0));
    DO(cuMemSetAccess(address, BYTES, &open, 1));
    DO(cuMemUnmap(address, BYTES));
    DO(cuMemRelease(handle));
    DO(cuMemAddressFree(address, BYTES));
    settle();
    printf("{\"records\": %d, \"memory_kinds\": [", count_records(KIND_MEMORY2));
    for (int i = 0; i < record_count; i++)
        printf("%s%u", i ? ", " : "", word(records[i], 8));
    printf("], \"callbacks\": [");
    for (int i = 0; i < atomic_load(&call_count); i++)
        printf("%s%u", i ? ", " : "", calls[i].id);
    printf("]}\n");
}

/* 2. Runtime calls: which calls of the driver do they make, under which correlation id? */
static void print_calls(const char *name, bool *first)
{
    int count = atomic_exchange(&call_count, 0), driver = 0;
    const char *text;
    bool same = true;
    printf("%s\"%s\": {\"driver\": [", *first ? "" : ", ", name);
    *first = false;
    for (int i = 0; i < count && i < MOST; i++)
        if (calls[i].domain == DRIVER) {
            DO(cuptiGetCallbackName(DRIVER, calls[i].id, &text));
            printf("%s\"%s\"", driver++ ? ", " : "", text);
            same &= calls[0].domain == RUNTIME && calls[i].correlation == calls[0].correlation;
        }
    printf("], \"same_id\": %s}", same ? "true" : "false");
}

static bool done(const char *name, int error, bool *first)
{
    if (!error) {
        print_calls(name, first);
        return true;
    }
    printf("%s\"%s\": {\"error\": %d}", *first ? "" : ", ", name, error);
    *first = false;
    atomic_store(&call_count, 0);
    return false;
}

static void each_runtime_call(void)
{
    enum { BYTES = 4 << 20 };
    const channels format = {32, 0, 0, 0, 2};
    void *address, *own;
    size_t pitch;
    pitched cube;
    bool first = true;
    if (posix_memalign(&own, 4096, BYTES))
        fail("no memory", 0);
    atomic_store(&call_count, 0);
/* false: refused, which is told. */
#define EACH(name, ...) done(#name, name(__VA_ARGS__), &first)
    EACH(cudaMalloc, &address, BYTES);
    EACH(cudaFree, address);
    EACH(cudaMallocAsync, &address, BYTES, NULL);
    EACH(cudaFreeAsync, address, NULL);
    EACH(cudaMallocManaged, &address, BYTES, 1);
    DO(cudaFree(address));
    atomic_store(&call_count, 0);
    EACH(cudaMallocHost, &address, BYTES);
    EACH(cudaFreeHost, address);
    EACH(cudaHostRegister, own, BYTES, 0);
    EACH(cudaHostUnregister, own);
    if (EACH(cudaMallocArray, &address, &format, 256, 256, 0))
        EACH(cudaFreeArray, address);
    else
        done("cudaFreeArray", NOT_SUPPORTED, &first);
    EACH(cudaMalloc3D, &cube, ((extent){256, 256, 4}));
    DO(cudaFree(cube.address));
    atomic_store(&call_count, 0);
    EACH(cudaMallocPitch, &address, &pitch, 1000, 256);
    DO(cudaFree(address));
    free(own);
}

static void nested(void)
{
    void *warm;
    begin(note);
    DO(cudaMallocAsync(&warm, 1 << 20, NULL)); /* a pool's first use is another matter */
    DO(cudaFreeAsync(warm, NULL));
    DO(cuptiEnableDomain(1, subscriber, DRIVER));
    printf("{\"driver_domain\": {");
    each_runtime_call();
    printf("}, \"both_domains\": {");
    DO(cuptiEnableDomain(1, subscriber, RUNTIME));
    each_runtime_call();
    printf("}, \"reset\": {");
    atomic_store(&call_count, 0);
    bool first = true;
    if (cudaDeviceReset() == 0)
        print_calls("cudaDeviceReset", &first);
    printf("}}\n");
}

/* 3. Records' correlation ids without API records. */
static void correlation(void)
{
    void *address;
    int zero[2] = {0}, matched[2] = {0}, count[2] = {0};
    begin(note);
    prepare_kernel();
    DO(cuptiEnableCallback(1, subscriber, DRIVER, MEM_ALLOC));
    DO(cuptiEnableCallback(1, subscriber, DRIVER, MEM_FREE));
    DO(cuptiEnableCallback(1, subscriber, DRIVER, LAUNCH));
    collect(complete);
    DO(cuptiActivityEnable(KIND_MEMORY2));
    DO(cuptiActivityEnable(KIND_KERNEL));
    for (int i = 0; i < 10; i++) {
        DO(cudaMalloc(&address, 2 << 20));
        launch();
        DO(cudaFree(address));
    }
    settle();
    for (int i = 0; i < record_count; i++) {
        int which = word(records[i], 0) == KIND_MEMORY2  ? 0
                    : word(records[i], 0) == KIND_KERNEL ? 1
                                                         : -1;
        if (which < 0)
            continue;
        count[which]++;
        zero[which] += correlation_of(records[i]) == 0;
        matched[which] += called(correlation_of(records[i]));
    }
    printf("{\"memory\": {\"records\": %d, \"zero\": %d, \"matched\": %d}, "
           "\"kernels\": {\"records\": %d, \"zero\": %d, \"matched\": %d}, \"callbacks\": %d}\n",
           count[0], zero[0], matched[0], count[1], zero[1], matched[1], atomic_load(&call_count));
}

/* 4. Both API kinds: is the driver's call below a runtime's recorded, too? */
static void api_kinds(void)
{
    void *address;
    int nested_records = 0;
    begin(nothing);
    collect(complete);
    DO(cuptiActivityEnable(KIND_RUNTIME));
    DO(cuptiActivityEnable(KIND_DRIVER));
    for (int i = 0; i < 10; i++) {
        DO(cudaMalloc(&address, 2 << 20));
        DO(cudaFree(address));
    }
    settle();
    for (int i = 0; i < record_count; i++)
        for (int j = 0; j < record_count && word(records[i], 0) == KIND_DRIVER; j++)
            if (word(records[j], 0) == KIND_RUNTIME &&
                correlation_of(records[i]) == correlation_of(records[j])) {
                nested_records++;
                break;
            }
    printf("{\"runtime\": %d, \"driver\": %d, \"nested\": %d}\n", count_records(KIND_RUNTIME),
           count_records(KIND_DRIVER), nested_records);
}

/* 5. What it costs: nanoseconds for each pair of cudaMalloc and cudaFree, and for each launch. */
static double now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec * 1e9 + (double)time.tv_nsec;
}

static double pairs(int times)
{
    void *address;
    double start = now();
    for (int i = 0; i < times; i++) {
        DO(cudaMalloc(&address, 4096));
        DO(cudaFree(address));
    }
    return (now() - start) / times;
}

static double launches(int times)
{
    double start = now();
    for (int i = 0; i < times; i++)
        launch();
    double each = (now() - start) / times;
    DO(cudaDeviceSynchronize());
    return each;
}

static atomic_bool flushing;
static double flush_ns;

static void *flush(void *argument)
{
    double spent = 0;
    int times = 0;
    (void)argument;
    while (atomic_load(&flushing)) {
        double start = now();
        if (cuptiActivityFlushAll(0))
            break;
        spent += now() - start;
        times++;
        nanosleep(&(struct timespec){0, 100000000}, NULL);
    }
    flush_ns = times ? spent / times : 0;
    return NULL;
}

static void cost(void)
{
    enum { PAIRS = 2000, LAUNCHES = 20000 };
    pthread_t flusher;
    DO(cudaFree(NULL));
    prepare_kernel();
    pairs(PAIRS / 10);
    launches(LAUNCHES / 10);
    double bare = pairs(PAIRS), bare_launch = launches(LAUNCHES);
    DO(cuptiSubscribe(&subscriber, nothing, NULL));
    DO(cuptiEnableCallback(1, subscriber, DRIVER, MEM_ALLOC));
    DO(cuptiEnableCallback(1, subscriber, DRIVER, MEM_FREE));
    DO(cuptiEnableCallback(1, subscriber, DRIVER, LAUNCH));
    double callback = pairs(PAIRS), callback_launch = launches(LAUNCHES);
    collect(discard);
    DO(cuptiActivityEnable(KIND_MEMORY2));
    double record = pairs(PAIRS);
    DO(cuptiActivityEnable(KIND_KERNEL));
    atomic_store(&flushing, true);
    if (pthread_create(&flusher, NULL, flush, NULL))
        fail("no thread", 0);
    double record_launch = launches(LAUNCHES);
    atomic_store(&flushing, false);
    pthread_join(flusher, NULL);
    printf("{\"pair_ns\": {\"bare\": %.0f, \"callbacks\": %.0f, \"records\": %.0f}, "
           "\"launch_ns\": {\"bare\": %.0f, \"callbacks\": %.0f, \"records\": %.0f}, \"flush_ns\": "
           "%.0f}\n",
           bare, callback, record, bare_launch, callback_launch, record_launch, flush_ns);
}

/* 7. What CUPTI takes of the device for itself, and whether callbacks tell of it. */
static size_t used(void)
{
    size_t free_bytes, total;
    DO(cuMemGetInfo_v2(&free_bytes, &total));
    return total - free_bytes;
}

static void own_memory(void)
{
    static const int kinds[] = {KIND_MEMORY2, KIND_POOL, KIND_KERNEL, 1, 2};
    DO(cudaFree(NULL));
    prepare_kernel();
    launch();
    DO(cudaDeviceSynchronize());
    size_t before = used(), last = before;
    DO(cuptiSubscribe(&subscriber, note, NULL));
    static const uint32_t ids[] = {243, 244, 245, 371, 549, 598, 39, 294};
    for (size_t i = 0; i < sizeof ids / sizeof *ids; i++)
        DO(cuptiEnableCallback(1, subscriber, DRIVER, ids[i]));
    collect(complete);
    printf("{\"subscribed\": %lld, \"enabled\": {", (long long)(used() - last));
    last = used();
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        DO(cuptiActivityEnable(kinds[i]));
        printf("%s\"%d\": %lld", i ? ", " : "", kinds[i], (long long)(used() - last));
        last = used();
    }
    launch();
    settle();
    printf("}, \"first_launch\": %lld, \"all\": %lld, \"callbacks\": %d}\n",
           (long long)(used() - last), (long long)(used() - before), atomic_load(&call_count));
}

/* 9. Lengths of records, asked of a library with a live subscriber. */
static size_t length_of(uint32_t kind)
{
    static uint64_t buffer[1024];
    size_t size = 0;
    void *record = NULL;
    if (cuptiActivityGetStructSize)
        return cuptiActivityGetStructSize((int)kind, 0, &size) ? 0 : size;
    for (int i = 0; i < 1024; i++)
        buffer[i] = kind;
    if (cuptiActivityGetNextRecord((uint8_t *)buffer, sizeof buffer, &record))
        return 0;
    uint8_t *first = record;
    if (cuptiActivityGetNextRecord((uint8_t *)buffer, sizeof buffer, &record))
        return 0;
    return (size_t)((uint8_t *)record - first);
}

static void lengths(void)
{
    static const uint32_t kinds[] = {1, 2, 4, 5, 10, 17, 22, 39, 49, 50};
    uint32_t version = 0;
    begin(nothing);
    DO(cuptiGetVersion(&version));
    printf("{\"version\": %u, \"asked\": \"%s\", \"lengths\": {", version,
           cuptiActivityGetStructSize ? "cuptiActivityGetStructSize"
                                      : "cuptiActivityGetNextRecord");
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
        printf("%s\"%u\": %zu", i ? ", " : "", kinds[i], length_of(kinds[i]));
    printf("}}\n");
}

/* 10. Ends: unsubscribing while a thread is in a callback, a child, and leaving without a word. */
static atomic_bool churning, gone;
static atomic_int inside, late;

static void slow(void *userdata, int domain, uint32_t id, const void *data)
{
    (void)userdata, (void)domain, (void)id, (void)data;
    atomic_fetch_add(&inside, 1);
    if (atomic_load(&gone))
        atomic_fetch_add(&late, 1);
    nanosleep(&(struct timespec){0, 50000}, NULL);
    if (atomic_load(&gone))
        atomic_fetch_add(&late, 1);
    atomic_fetch_sub(&inside, 1);
}

static void *churn(void *argument)
{
    void *address;
    (void)argument;
    while (atomic_load(&churning)) {
        DO(cudaMalloc(&address, 4096));
        DO(cudaFree(address));
    }
    return NULL;
}

static void ends(void)
{
    enum { ROUNDS = 50 };
    pthread_t thread;
    int after_return = 0, status = -1;
    DO(cudaFree(NULL));
    atomic_store(&churning, true);
    if (pthread_create(&thread, NULL, churn, NULL))
        fail("no thread", 0);
    for (int i = 0; i < ROUNDS; i++) {
        atomic_store(&gone, false);
        DO(cuptiSubscribe(&subscriber, slow, NULL));
        DO(cuptiEnableCallback(1, subscriber, DRIVER, MEM_ALLOC));
        DO(cuptiEnableCallback(1, subscriber, DRIVER, MEM_FREE));
        nanosleep(&(struct timespec){0, 2000000}, NULL);
        DO(cuptiUnsubscribe(subscriber));
        atomic_store(&gone, true);
        after_return += atomic_load(&inside) > 0;
        nanosleep(&(struct timespec){0, 500000}, NULL);
    }
    atomic_store(&churning, false);
    pthread_join(thread, NULL);
    DO(cuptiSubscribe(&subscriber, nothing, NULL));
    DO(cuptiEnableCallback(1, subscriber, DRIVER, MEM_ALLOC));
    fflush(stdout);
    pid_t child = fork();
    if (child == 0)
        _exit(0);
    waitpid(child, &status, 0);
    void *address;
    DO(cudaMalloc(&address, 4096)); /* and we leave subscribed */
    printf("{\"rounds\": %d, \"inside_after_return\": %d, \"late\": %d, \"child\": %d}\n", ROUNDS,
           after_return, atomic_load(&late), WIFEXITED(status) ? WEXITSTATUS(status) : -1);
}

int main(int count, char **arguments)
{
    static const struct {
        const char *name;
        void (*run)(void);
    } checks[] = {
        {"virtual", virtual_memory}, {"nested", nested}, {"correlation", correlation},
        {"kinds", api_kinds},        {"cost", cost},     {"own", own_memory},
        {"lengths", lengths},        {"ends", ends},
    };
    if (count != 4) {
        fprintf(stderr, "usage: cupti_facts CHECK LIBCUPTI LIBCUDART\n");
        return 2;
    }
    load(arguments[2], arguments[3]);
    DO(cuInit(0));
    for (size_t i = 0; i < sizeof checks / sizeof *checks; i++)
        if (!strcmp(checks[i].name, arguments[1])) {
            checks[i].run();
            return 0;
        }
    fprintf(stderr, "cupti_facts: no check %s\n", arguments[1]);
    return 2;
}
