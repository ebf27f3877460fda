/* Memory calls and launches in C loops, and a CUPTI client that does nothing: what its callbacks
 * and records cost by themselves is not the recorder's. Our own declarations; the simulated device
 * answers them. */
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <time.h>

int cudaMalloc(void **address, size_t bytes);
int cudaFree(void *address);
int cudaMallocAsync(void **address, size_t bytes, void *stream);
int cudaFreeAsync(void *address, void *stream);
int cuModuleLoadData(void **module, const void *image);
int cuModuleGetFunction(void **function, void *module, const char *name);
int cuLaunchKernel(void *function, unsigned x, unsigned y, unsigned z, unsigned bx, unsigned by,
                   unsigned bz, unsigned shared, void *stream, void **parameters, void **more);
int cuptiSubscribe(void **subscriber, void (*callback)(void *, int, uint32_t, const void *),
                   void *userdata);
int cuptiUnsubscribe(void *subscriber);
int cuptiEnableCallback(uint32_t enable, void *subscriber, int domain, uint32_t id);
int cuptiActivityRegisterCallbacks(void (*request)(uint8_t **, size_t *, size_t *),
                                   void (*complete)(void *, uint32_t, uint8_t *, size_t, size_t));
int cuptiActivityEnable(int kind);
int cuptiActivityDisable(int kind);
int cuptiActivityFlushAll(uint32_t flag);

static double now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
    return (double)time.tv_sec * 1e9 + (double)time.tv_nsec;
}

/* Nanoseconds of this thread for each pair; negative: refused. */
double bench_malloc(size_t bytes, int times)
{
    double begin = now();
    for (int i = 0; i < times; i++) {
        void *address;
        if (cudaMalloc(&address, bytes) || cudaFree(address))
            return -1;
    }
    return (now() - begin) / times;
}

double bench_async(size_t bytes, int times)
{
    double begin = now();
    for (int i = 0; i < times; i++) {
        void *address;
        if (cudaMallocAsync(&address, bytes, NULL) || cudaFreeAsync(address, NULL))
            return -1;
    }
    return (now() - begin) / times;
}

double bench_launch(size_t unused, int times)
{
    static const char ptx[] = ".version 7.0\n.target sm_70\n.address_size 64\n"
                              ".visible .entry idle()\n{\n ret;\n}\n";
    static void *module, *kernel;
    (void)unused;
    if (!kernel && (cudaFree(NULL) || cuModuleLoadData(&module, ptx) ||
                    cuModuleGetFunction(&kernel, module, "idle")))
        return -1;
    double begin = now();
    for (int i = 0; i < times; i++)
        if (cuLaunchKernel(kernel, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL))
            return -1;
    return (now() - begin) / times;
}

/* --- the client ---------------------------------------------------------------------------------
 */

enum { DRIVER = 1, RUNTIME = 2, KIND_KERNEL = 10, KIND_MEMORY2 = 49, FORCED = 1, BUFFER = 1 << 20 };
/* The same that the recorder asks for: calls of the runtime, and those of the driver below them. */
static const uint32_t memory[] = {243, 245, 598, 600}, above[] = {20, 22, 373, 375}, launch = 307;
static void *subscriber;
static int kind;

static void nothing(void *userdata, int domain, uint32_t id, const void *data)
{
    (void)userdata, (void)domain, (void)id, (void)data;
}

static void request(uint8_t **buffer, size_t *size, size_t *most)
{
    *buffer = malloc(BUFFER);
    *size = BUFFER;
    *most = 0;
}

static void complete(void *context, uint32_t stream, uint8_t *buffer, size_t size, size_t valid)
{
    (void)context, (void)stream, (void)size, (void)valid;
    free(buffer);
}

/* CUPTI's error, or 0. */
int bench_subscribe(int launches, int records)
{
    int failed = cuptiSubscribe(&subscriber, nothing, NULL);
    for (size_t i = 0; !failed && i < sizeof memory / sizeof *memory; i++)
        failed = cuptiEnableCallback(1, subscriber, DRIVER, memory[i]);
    for (size_t i = 0; !failed && i < sizeof above / sizeof *above; i++)
        failed = cuptiEnableCallback(1, subscriber, RUNTIME, above[i]);
    if (!failed && launches)
        failed = cuptiEnableCallback(1, subscriber, DRIVER, launch);
    kind = !records ? 0 : launches ? KIND_KERNEL : KIND_MEMORY2;
    if (!failed && kind)
        failed = cuptiActivityRegisterCallbacks(request, complete);
    return failed || !kind ? failed : cuptiActivityEnable(kind);
}

int bench_unsubscribe(void)
{
    int failed = kind ? cuptiActivityDisable(kind) : 0;
    if (!failed && kind)
        failed = cuptiActivityFlushAll(FORCED);
    return failed ? failed : cuptiUnsubscribe(subscriber);
}
