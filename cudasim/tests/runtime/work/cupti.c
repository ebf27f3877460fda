/* What CUPTI is told of the runtime's calls. */
#include <stdatomic.h>

#include "../doubles.h"
#include "objects/calls.h"
#include "work.h"

/* The next thing told is this. */
static const told *next(const char *what)
{
    static int at;
    if (!what) {
        EQUAL(at, history_count);
        at = history_count = 0;
        return NULL;
    }
    CHECK(at < history_count);
    if (strcmp(history[at].what, what)) {
        fprintf(stderr, "told \"%s\", not \"%s\"\n", history[at].what, what);
        exit(1);
    }
    return &history[at++];
}

static void cupti(void)
{
    void **image = image_with_kernel(), *address = NULL;
    stream s;
    char bytes[32] = {0};
    const told *one;
    OK(cudaStreamCreate(&s)); /* nobody wants to know yet */
    EQUAL(history_count, 0);
    atomic_store(&cm_sim_cupti_on, true);

    OK(cudaMalloc(&address, 4 * MIB));
    one = next("runtime cudaMalloc");
    uint32_t correlation = one->correlation;
    EQUAL(one->id, 20);
    CHECK(correlation && !one->symbol);
    one = next("driver cuMemAlloc_v2");
    EQUAL(one->id, 243);
    EQUAL(one->correlation, correlation);
    one = next("memory allocation");
    CHECK(one->address == address && one->bytes == 4 * MIB && one->id == 3);
    EQUAL(one->correlation, correlation);
    one = next("driver exit cuMemAlloc_v2");
    CHECK(one->address == address); /* where the driver wrote it */
    EQUAL(next("runtime exit cudaMalloc")->result, 0);
    next(NULL);

    EQUAL(cudaMalloc(&(void *){0}, 1000 * GIB), CM_CUDA_OUT_OF_MEMORY);
    next("runtime cudaMalloc");
    next("driver cuMemAlloc_v2");
    EQUAL(next("driver exit cuMemAlloc_v2")->result, CM_CUDA_OUT_OF_MEMORY);
    EQUAL(next("runtime exit cudaMalloc")->result, CM_CUDA_OUT_OF_MEMORY);
    next(NULL);

    OK(cudaMemcpyAsync(address, bytes, 32, 1, s));
    next("runtime cudaMemcpyAsync");
    next("driver cuMemcpyHtoDAsync_v2");
    one = next("copy ");
    CHECK(one->id == 1 && one->bytes == 32 && one->stream == s);
    EQUAL(next("driver exit cuMemcpyHtoDAsync_v2")->first, (uintptr_t)address);
    next("runtime exit cudaMemcpyAsync");
    next(NULL);
    OK(cudaMemcpy(bytes, address, 32, 4));
    next("runtime cudaMemcpy");
    next("driver cuMemcpyDtoH_v2");
    EQUAL(next("copy ")->id, 2);
    next("driver exit cuMemcpyDtoH_v2");
    next("runtime exit cudaMemcpy");
    next(NULL);
    OK(cudaMemsetAsync(address, 5, 64, s));
    next("runtime cudaMemsetAsync");
    next("driver cuMemsetD8Async");
    one = next("set ");
    CHECK(one->id == 5 && one->bytes == 64);
    next("driver exit cuMemsetD8Async");
    next("runtime exit cudaMemsetAsync");
    next(NULL);

    launch(s, 1);
    one = next("runtime cudaLaunchKernel");
    CHECK(one->symbol && !strcmp(one->symbol, "_Z6kernelv"));
    EQUAL(one->id, 211);
    one = next("driver cuLaunchKernel");
    EQUAL(one->id, 307);
    CHECK(!strcmp(one->symbol, "_Z6kernelv"));
    one = next("kernel _Z6kernelv");
    CHECK(one->id == 32 && one->stream == s);
    next("driver exit cuLaunchKernel");
    next("runtime exit cudaLaunchKernel");
    next(NULL);

    void *pinned;
    OK(cudaHostAlloc(&pinned, 100, 0));
    next("runtime cudaHostAlloc");
    next("driver cuMemHostAlloc");
    EQUAL(next("memory allocation")->id, 2);
    next("driver exit cuMemHostAlloc");
    next("runtime exit cudaHostAlloc");
    OK(cudaFreeHost(pinned));
    next("runtime cudaFreeHost");
    next("driver cuMemFreeHost");
    EQUAL(next("memory release")->bytes, 100);
    next("driver exit cuMemFreeHost");
    next("runtime exit cudaFreeHost");
    next(NULL);

    void *pooled;
    OK(cudaMallocAsync(&pooled, 2 * MIB, s));
    next("runtime cudaMallocAsync");
    next("driver cuMemAllocAsync");
    next("pool created"); /* the default one is used for the first time */
    one = next("memory allocation");
    CHECK(one->stream == s && one->address == pooled);
    next("driver exit cuMemAllocAsync");
    next("runtime exit cudaMallocAsync");
    OK(cudaFreeAsync(pooled, s));
    next("runtime cudaFreeAsync");
    next("driver cuMemFreeAsync");
    EQUAL(next("memory release")->bytes, 2 * MIB);
    next("driver exit cuMemFreeAsync");
    next("runtime exit cudaFreeAsync");
    next(NULL);
    /* No bytes and no address: nothing that the driver is asked. */
    void *none = pooled;
    OK(cudaMalloc(&none, 0));
    CHECK(!none);
    next("runtime cudaMalloc");
    next("runtime exit cudaMalloc");
    OK(cudaFreeAsync(NULL, s));
    next("runtime cudaFreeAsync");
    next("runtime exit cudaFreeAsync");
    OK(cudaStreamSynchronize(s)); /* the pool gives back what it keeps */
    next("runtime cudaStreamSynchronize");
    CHECK(next("pool trimmed")->address);
    next("runtime exit cudaStreamSynchronize");
    next(NULL);

    /* What a captured stream allocates is no allocation yet. */
    graph kept;
    OK(cudaStreamBeginCapture(s, CM_CUDA_CAPTURE_RELAXED));
    next("runtime cudaStreamBeginCapture");
    next("runtime exit cudaStreamBeginCapture");
    OK(cudaMallocAsync(&pooled, 2 * MIB, s));
    next("runtime cudaMallocAsync");
    next("driver cuMemAllocAsync");
    next("driver exit cuMemAllocAsync");
    next("runtime exit cudaMallocAsync");
    OK(cudaFreeAsync(pooled, s));
    next("runtime cudaFreeAsync");
    next("driver cuMemFreeAsync");
    next("driver exit cuMemFreeAsync");
    next("runtime exit cudaFreeAsync");
    OK(cudaStreamEndCapture(s, &kept));
    next("runtime cudaStreamEndCapture");
    next("runtime exit cudaStreamEndCapture");
    OK(cudaGraphDestroy(kept));
    next("runtime cudaGraphDestroy");
    next("driver cuGraphDestroy");
    next("driver exit cuGraphDestroy");
    next("runtime exit cudaGraphDestroy");
    next(NULL);

    graph g;
    exec x;
    OK(cudaStreamBeginCapture(s, CM_CUDA_CAPTURE_RELAXED));
    launch(s, 2);
    OK(cudaStreamEndCapture(s, &g));
    OK(cudaGraphInstantiate(&x, g, 0));
    for (int i = 0; i < history_count; i++)
        CHECK(strncmp(history[i].what, "kernel", 6)); /* recorded, not run */
    while (history_count)
        history_count--;
    OK(cudaGraphLaunch(x, s));
    next("runtime cudaGraphLaunch");
    next("driver cuGraphLaunch");
    next("kernel _Z6kernelv");
    next("kernel _Z6kernelv");
    next("driver exit cuGraphLaunch");
    next("runtime exit cudaGraphLaunch");
    next(NULL);

    OK(cudaFree(address));
    next("runtime cudaFree");
    next("driver cuMemFree_v2");
    one = next("memory release");
    CHECK(one->address == address && one->bytes == 4 * MIB);
    next("driver exit cuMemFree_v2");
    next("runtime exit cudaFree");
    next(NULL);
    OK(cudaDeviceSynchronize());
    one = next("runtime cudaDeviceSynchronize");
    CHECK(one->id == 165 && one->parameters == NULL);
    next("runtime exit cudaDeviceSynchronize");
    next(NULL);
    atomic_store(&cm_sim_cupti_on, false);
    OK(cudaGraphExecDestroy(x));
    OK(cudaGraphDestroy(g));
    OK(cudaStreamDestroy(s));
    __cudaUnregisterFatBinary(image);
}

const test_case cupti_cases[] = {
    {"cupti", cupti},
    {NULL, NULL},
};
