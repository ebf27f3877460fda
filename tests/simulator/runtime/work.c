/* Launches, streams, events, captures, graphs, and what CUPTI is told. */
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdint.h>

#include "check.h"
#include "cupti/cupti_ids.h"
#include "doubles.h"
#include "driver/driver_params.h"
#include "runtime/cuda_params.h"

static void launches(void)
{
    const dim3 none = {0, 1, 1}, many = {33, 32, 1}, deep = {1, 1, 65}, high = {1, 65536, 1};
    stream s, gone, there;
    void **image = image_with_kernel();
    OK(cudaStreamCreate(&s));
    uint64_t before = cm_sim_launches(0);
    launch(NULL, 2);
    launch(s, 3);
    EQUAL(cm_sim_launches(0) - before, 5);
    EQUAL(cudaLaunchKernel(KERNEL, none, WARP, NULL, 0, s), CM_CUDA_INVALID_CONFIGURATION);
    EQUAL(cudaLaunchKernel(KERNEL, ONE, none, NULL, 0, s), CM_CUDA_INVALID_CONFIGURATION);
    EQUAL(cudaLaunchKernel(KERNEL, ONE, many, NULL, 0, s), CM_CUDA_INVALID_CONFIGURATION);
    EQUAL(cudaLaunchKernel(KERNEL, ONE, deep, NULL, 0, s), CM_CUDA_INVALID_CONFIGURATION);
    EQUAL(cudaLaunchKernel(KERNEL, high, WARP, NULL, 0, s), CM_CUDA_INVALID_CONFIGURATION);
    EQUAL(cudaLaunchKernel(KERNEL, ONE, WARP, NULL, MIB, s), CM_CUDA_INVALID_VALUE);
    EQUAL(cudaLaunchKernel(NULL, ONE, WARP, NULL, 0, s), CM_CUDA_INVALID_FUNCTION);
    EQUAL(cudaGetLastError(), CM_CUDA_INVALID_FUNCTION);
    OK(cudaStreamCreate(&gone));
    OK(cudaStreamDestroy(gone));
    EQUAL(cudaLaunchKernel(KERNEL, ONE, WARP, NULL, 0, gone), CM_CUDA_INVALID_HANDLE);
    OK(cudaSetDevice(1)); /* a stream of another device */
    EQUAL(cudaLaunchKernel(KERNEL, ONE, WARP, NULL, 0, s), CM_CUDA_INVALID_HANDLE);
    OK(cudaStreamCreate(&there));
    launch(there, 1);
    EQUAL(cm_sim_launches(1), 1);
    OK(cudaStreamDestroy(there));
    OK(cudaSetDevice(0));
    EQUAL(cm_sim_launches(0) - before, 5);

    cm_cuda_launch_attribute attributes[2] = {{.id = CM_CUDA_LAUNCH_PRIORITY}};
    attributes[1] =
        (cm_cuda_launch_attribute){.id = CM_CUDA_LAUNCH_CLUSTER, .val = {.clusterDim = {2, 1, 1}}};
    cm_cuda_launch_config config = {{4, 1, 1}, WARP, 0, s, attributes, 2};
    EQUAL(cudaLaunchKernelExC(&config, KERNEL, NULL), CM_CUDA_NOT_SUPPORTED); /* before 9.0 */
    config.numAttrs = 1;
    OK(cudaLaunchKernelExC(&config, KERNEL, NULL));
    config.attrs = NULL;
    EQUAL(cudaLaunchKernelExC(&config, KERNEL, NULL), CM_CUDA_INVALID_VALUE);
    EQUAL(cudaLaunchKernelExC(NULL, KERNEL, NULL), CM_CUDA_INVALID_VALUE);

    /* The brackets nest. */
    size_t shared = 0;
    dim3 grid, block;
    stream on = NULL;
    EQUAL(__cudaPushCallConfiguration(ONE, WARP, 64, s), 0);
    EQUAL(__cudaPushCallConfiguration(WARP, ONE, 0, NULL), 0);
    OK(__cudaPopCallConfiguration(&grid, &block, &shared, &on));
    CHECK(grid.x == 32 && block.x == 1 && shared == 0 && on == NULL);
    OK(__cudaPopCallConfiguration(&grid, &block, &shared, &on));
    CHECK(grid.x == 1 && block.x == 32 && shared == 64 && on == s);
    EQUAL(__cudaPopCallConfiguration(&grid, &block, &shared, &on), CM_CUDA_MISSING_CONFIGURATION);
    OK(cudaStreamDestroy(s));
    __cudaUnregisterFatBinary(image);
}

static void functions(void)
{
    static char unknown;
    cm_cuda_func_attributes a;
    function f, same, kernel;
    const char *name = NULL;
    void **image = image_with_kernel();
    OK(__cudaGetKernel(&f, KERNEL));
    OK(cudaGetFuncBySymbol(&same, KERNEL));
    CHECK(f == same);
    EQUAL(__cudaGetKernel(&same, &unknown), CM_CUDA_INVALID_FUNCTION);
    OK(__cudaLaunchKernel(f, ONE, WARP, NULL, 0, NULL));
    OK(cudaFuncGetName(&name, KERNEL));
    CHECK(!strcmp(name, "_Z6kernelv"));
    OK(cudaFuncGetAttributes(&a, KERNEL));
    EQUAL(a.maxThreadsPerBlock, 1024);
    EQUAL(a.binaryVersion, 86); /* PyTorch has no image for 8.9: a card of it runs those for 8.6 */
    EQUAL(a.ptxVersion, 86);
    EQUAL(a.maxDynamicSharedSizeBytes, 48 << 10);
    CHECK(a.numRegs > 0);
    int optin = cm_sim_config_get()->device[0].shared_per_block_optin;
    OK(cudaFuncSetAttribute(KERNEL, CM_CUDA_FUNC_MAX_DYNAMIC_SHARED, optin));
    OK(cudaFuncGetAttributes(&a, KERNEL));
    EQUAL(a.maxDynamicSharedSizeBytes, optin);
    EQUAL(cudaFuncSetAttribute(KERNEL, CM_CUDA_FUNC_MAX_DYNAMIC_SHARED, optin + 1),
          CM_CUDA_INVALID_VALUE);
    EQUAL(cudaFuncSetAttribute(KERNEL, 99, 0), CM_CUDA_INVALID_VALUE);
    EQUAL(cudaFuncSetAttribute(&unknown, 8, 0), CM_CUDA_INVALID_FUNCTION);
    EQUAL(cudaFuncGetAttributes(&a, &unknown), CM_CUDA_INVALID_FUNCTION);
    EQUAL(cudaFuncGetAttributes(NULL, KERNEL), CM_CUDA_INVALID_VALUE);

    /* As many as threads, blocks and shared memory leave room for: 1536, 24 and 100 KiB on an L4.
     */
    int blocks = -1;
    OK(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, KERNEL, 256, 0));
    EQUAL(blocks, 6);
    OK(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, KERNEL, 32, 0));
    EQUAL(blocks, 24);
    OK(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, KERNEL, 32, 40 << 10));
    EQUAL(blocks, 2);
    EQUAL(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, KERNEL, 0, 0),
          CM_CUDA_INVALID_VALUE);
    size_t shared = 0;
    OK(cudaOccupancyAvailableDynamicSMemPerBlock(&shared, KERNEL, 2, 32));
    OK(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, KERNEL, 32, shared));
    EQUAL(blocks, 2);
    OK(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, KERNEL, 32, shared + 1024));
    EQUAL(blocks, 1);
    int sms = cm_sim_config_get()->device[0].sms;
    OK(cudaLaunchCooperativeKernel(KERNEL, (dim3){(unsigned)sms * 6, 1, 1}, (dim3){256, 1, 1}, NULL,
                                   0, NULL));
    EQUAL(cudaLaunchCooperativeKernel(KERNEL, (dim3){(unsigned)sms * 6 + 1, 1, 1},
                                      (dim3){256, 1, 1}, NULL, 0, NULL),
          CM_CUDA_COOPERATIVE_TOO_LARGE);

    cm_sim_library *library;
    EQUAL(cudaLibraryLoadData(&library, NULL, NULL, NULL, 0, NULL, NULL, 0), CM_CUDA_INVALID_VALUE);
    EQUAL(cudaLibraryLoadFromFile(&library, "/nowhere", NULL, NULL, 0, NULL, NULL, 0),
          CM_CUDA_FILE_NOT_FOUND);
    OK(cudaLibraryLoadData(&library, "code", NULL, NULL, 0, NULL, NULL, 0));
    OK(cudaLibraryGetKernel(&kernel, library, "triton_"));
    OK(cudaLibraryGetKernel(&same, library, "triton_"));
    CHECK(kernel == same);
    OK(cudaKernelSetAttributeForDevice(kernel, CM_CUDA_FUNC_MAX_DYNAMIC_SHARED, 64 << 10, 0));
    EQUAL(cudaKernelSetAttributeForDevice(kernel, 8, 0, 5), CM_CUDA_INVALID_DEVICE);
    OK(cudaLaunchKernel(kernel, ONE, WARP, NULL, 0, NULL));
    OK(cudaFuncGetName(&name, kernel));
    CHECK(!strcmp(name, "triton_"));
    OK(cudaLibraryUnload(library));
    EQUAL(cudaLibraryUnload(library), CM_CUDA_INVALID_HANDLE);
    EQUAL(cudaFuncGetName(&name, kernel), CM_CUDA_INVALID_FUNCTION);
    __cudaUnregisterFatBinary(image);
    EQUAL(cudaFuncGetAttributes(&a, KERNEL), CM_CUDA_INVALID_FUNCTION);
}

/* Many kernels of several images, some of which go. */
static void many_functions(void)
{
    enum { IMAGES = 7, EACH = 900 };
    static char stubs[IMAGES][EACH];
    static char names[IMAGES][EACH][32];
    void **image[IMAGES];
    for (int i = 0; i < IMAGES; i++)
        image[i] = __cudaRegisterFatBinary(NULL);
    for (int j = 0; j < EACH; j++)
        for (int i = 0; i < IMAGES; i++) {
            snprintf(names[i][j], sizeof names[i][j], "k%d_%d", i, j);
            __cudaRegisterFunction(image[i], &stubs[i][j], NULL, names[i][j], -1, NULL, NULL, NULL,
                                   NULL, NULL);
        }
    for (int i = 0; i < IMAGES; i += 2)
        __cudaUnregisterFatBinary(image[i]);
    for (int i = 0; i < IMAGES; i++)
        for (int j = 0; j < EACH; j++) {
            const char *name = cm_sim_function_name(&stubs[i][j]);
            if (i % 2)
                CHECK(name && !strcmp(name, names[i][j]));
            else
                CHECK(name == NULL);
        }
    for (int i = 1; i < IMAGES; i += 2)
        __cudaUnregisterFatBinary(image[i]);
    __cudaUnregisterFatBinary(NULL);
}

static int called;
static void host_function(void *data)
{
    called += *(int *)data;
}

static void stream_callback(stream on, int status, void *data)
{
    CHECK(on != NULL && status == CM_CUDA_OK);
    called += *(int *)data;
}

static void streams(void)
{
    stream s, high, other;
    int priority = 9, device = 9, five = 5;
    unsigned flags = 9;
    unsigned long long id = 0, second = 0;
    OK(cudaStreamCreateWithPriority(&high, CM_CUDA_STREAM_NON_BLOCKING, -100));
    OK(cudaStreamGetPriority(high, &priority));
    EQUAL(priority, -5); /* the nearest there is */
    OK(cudaStreamGetFlags(high, &flags));
    EQUAL(flags, CM_CUDA_STREAM_NON_BLOCKING);
    OK(cudaStreamCreate(&s));
    OK(cudaStreamGetPriority(s, &priority));
    EQUAL(priority, 0);
    OK(cudaStreamGetId(s, &id));
    OK(cudaStreamGetId(high, &second));
    CHECK(id && second && id != second);
    OK(cudaStreamGetId(NULL, &second));
    CHECK(second && second != id);
    OK(cudaStreamGetDevice(s, &device));
    EQUAL(device, 0);
    cm_cuda_launch_value value;
    OK(cudaStreamGetAttribute(high, CM_CUDA_LAUNCH_PRIORITY, &value));
    EQUAL(value.priority, -5);
    EQUAL(cudaStreamGetAttribute(s, CM_CUDA_LAUNCH_CLUSTER, &value), CM_CUDA_INVALID_VALUE);
    EQUAL(cudaStreamCreateWithFlags(&other, 8), CM_CUDA_INVALID_VALUE);
    EQUAL(cudaStreamCreate(NULL), CM_CUDA_INVALID_VALUE);
    EQUAL(cudaStreamGetFlags(s, NULL), CM_CUDA_INVALID_VALUE);

    OK(cudaStreamSynchronize(s));
    OK(cudaStreamSynchronize(NULL));
    OK(cudaStreamSynchronize((stream)CM_CUDA_STREAM_LEGACY));
    OK(cudaStreamSynchronize((stream)CM_CUDA_STREAM_PER_THREAD));
    OK(cudaStreamQuery(s));
    OK(cudaLaunchHostFunc(s, host_function, &five));
    OK(cudaStreamAddCallback(s, stream_callback, &five, 0));
    EQUAL(called, 10);
    EQUAL(cudaLaunchHostFunc(s, NULL, NULL), CM_CUDA_INVALID_VALUE);
    EQUAL(cudaStreamAddCallback(s, stream_callback, &five, 1), CM_CUDA_INVALID_VALUE);

    EQUAL(cudaStreamDestroy(NULL), CM_CUDA_INVALID_HANDLE);
    EQUAL(cudaStreamDestroy((stream)&five), CM_CUDA_INVALID_HANDLE);
    EQUAL(cudaStreamDestroy((stream)((char *)s + 8)), CM_CUDA_INVALID_HANDLE);
    OK(cudaStreamDestroy(s));
    EQUAL(cudaStreamDestroy(s), CM_CUDA_INVALID_HANDLE);
    EQUAL(cudaStreamQuery(s), CM_CUDA_INVALID_HANDLE);
    EQUAL(cudaStreamSynchronize(s), CM_CUDA_INVALID_HANDLE);
    OK(cudaStreamDestroy(high));
    stream lots[500];
    for (int i = 0; i < 500; i++)
        OK(cudaStreamCreate(&lots[i]));
    for (int i = 0; i < 500; i++) {
        OK(cudaStreamQuery(lots[i]));
        OK(cudaStreamDestroy(lots[i]));
    }
}

static void events(void)
{
    event a, b, silent;
    stream s;
    float ms = -1;
    OK(cudaStreamCreate(&s));
    OK(cudaEventCreate(&a));
    OK(cudaEventCreate(&b));
    OK(cudaEventCreateWithFlags(&silent, CM_CUDA_EVENT_DISABLE_TIMING));
    OK(cudaEventQuery(a)); /* never recorded: done */
    OK(cudaEventSynchronize(a));
    EQUAL(cudaEventElapsedTime(&ms, a, b), CM_CUDA_INVALID_HANDLE);
    OK(cudaEventRecord(a, s));
    OK(cudaEventRecord(b, s));
    OK(cudaEventQuery(b));
    OK(cudaEventElapsedTime(&ms, a, b));
    CHECK(ms >= 0);
    OK(cudaEventElapsedTime(&ms, b, a));
    CHECK(ms <= 0);
    OK(cudaEventRecord(silent, s));
    EQUAL(cudaEventElapsedTime(&ms, a, silent), CM_CUDA_INVALID_HANDLE);
    EQUAL(cudaEventElapsedTime(NULL, a, b), CM_CUDA_INVALID_VALUE);
    OK(cudaStreamWaitEvent(s, a, 0));
    OK(cudaStreamWaitEvent(NULL, silent, 0));
    EQUAL(cudaStreamWaitEvent(s, NULL, 0), CM_CUDA_INVALID_HANDLE);
    EQUAL(cudaStreamWaitEvent(s, a, 77), CM_CUDA_INVALID_VALUE);
    EQUAL(cudaEventCreateWithFlags(&b, 64), CM_CUDA_INVALID_VALUE);
    EQUAL(cudaEventCreateWithFlags(&b, CM_CUDA_EVENT_INTERPROCESS), CM_CUDA_INVALID_VALUE);
    EQUAL(cudaEventRecord(a, (stream)a), CM_CUDA_INVALID_HANDLE);
    event there;
    OK(cudaSetDevice(1));
    OK(cudaEventCreate(&there));
    OK(cudaSetDevice(0));
    EQUAL(cudaEventRecord(there, s), CM_CUDA_INVALID_HANDLE);
    OK(cudaEventDestroy(there));
    OK(cudaEventDestroy(a));
    EQUAL(cudaEventDestroy(a), CM_CUDA_INVALID_HANDLE);
    EQUAL(cudaEventQuery(a), CM_CUDA_INVALID_HANDLE);
    EQUAL(cudaEventRecord(a, s), CM_CUDA_INVALID_HANDLE);
    OK(cudaEventDestroy(b));
    OK(cudaEventDestroy(silent));
    OK(cudaStreamDestroy(s));
}

/* CUPTIMEM_SIM_EVENT_LAG=3 */
static void lag(void)
{
    event e, later;
    stream s, other;
    OK(cudaStreamCreate(&s));
    OK(cudaStreamCreate(&other));
    OK(cudaEventCreate(&e));
    OK(cudaEventCreate(&later));
    launch(s, 1);
    EQUAL(cudaStreamQuery(s), CM_CUDA_NOT_READY);
    OK(cudaEventRecord(e, s));
    EQUAL(cudaEventQuery(e), CM_CUDA_NOT_READY);
    EQUAL(cudaGetLastError(), CM_CUDA_NOT_READY); /* as CUDA does: whoever polls clears it */
    launch(other, 2);
    EQUAL(cudaEventQuery(e), CM_CUDA_NOT_READY);
    launch(other, 1); /* three launches on the device since */
    OK(cudaEventQuery(e));
    OK(cudaStreamQuery(s));
    EQUAL(cudaStreamQuery(other), CM_CUDA_NOT_READY);

    launch(s, 1);
    OK(cudaEventRecord(e, s));
    OK(cudaEventRecord(later, other));
    float ms;
    EQUAL(cudaEventElapsedTime(&ms, e, later), CM_CUDA_NOT_READY);
    OK(cudaStreamSynchronize(s)); /* or the host waits: for the stream, */
    OK(cudaEventQuery(e));
    EQUAL(cudaEventQuery(later), CM_CUDA_NOT_READY);
    OK(cudaEventSynchronize(later)); /* the event, */
    OK(cudaEventQuery(later));
    OK(cudaEventElapsedTime(&ms, e, later));
    launch(s, 1);
    OK(cudaEventRecord(e, s));
    OK(cudaDeviceSynchronize()); /* the device, */
    OK(cudaEventQuery(e));
    launch(s, 1);
    OK(cudaEventRecord(e, s));
    void *address;
    OK(cudaMalloc(&address, 64));
    OK(cudaFree(address)); /* which is also what this does */
    OK(cudaEventQuery(e));
    launch(s, 1);
    OK(cudaEventRecord(e, s));
    OK(cudaStreamDestroy(s)); /* the stream goes, the event remembers */
    EQUAL(cudaEventQuery(e), CM_CUDA_NOT_READY);
    launch(other, 3);
    OK(cudaEventQuery(e));
    OK(cudaEventDestroy(e));
    OK(cudaEventDestroy(later));
    OK(cudaStreamDestroy(other));
}

/* The same lag; nothing is launched while somebody polls. */
static void polling(void)
{
    event e;
    stream s;
    OK(cudaStreamCreate(&s));
    OK(cudaEventCreate(&e));
    launch(s, 1);
    for (int round = 0; round < 2; round++) { /* recorded anew it starts anew */
        int asked = 1;
        OK(cudaEventRecord(e, s));
        while (cudaEventQuery(e) && asked < 100)
            asked++;
        EQUAL(asked,
              1 + 3 * 4 + 1); /* the first is not idle, four count as a launch, then it is done */
        OK(cudaEventQuery(e));
    }
    for (int round = 0; round < 2; round++) {
        int asked = 1;
        while (cudaStreamQuery(s) && asked < 100)
            asked++;
        EQUAL(asked, 1 + 3 * 4 + 1);
        OK(cudaStreamQuery(s));
        launch(s, 1);
    }
    OK(cudaEventRecord(e, s));
    for (int i = 0; i < 2; i++) { /* who asks between launches does not hurry it */
        EQUAL(cudaEventQuery(e), CM_CUDA_NOT_READY);
        EQUAL(cudaStreamQuery(s), CM_CUDA_NOT_READY);
        launch(NULL, 1);
    }
    EQUAL(cudaEventQuery(e), CM_CUDA_NOT_READY);
    launch(NULL, 1);
    OK(cudaEventQuery(e));
    (void)cudaGetLastError();
    OK(cudaEventDestroy(e));
    OK(cudaStreamDestroy(s));
}

/* One thread records an event, in captures and outside, while another asks for it. */
static atomic_bool asking;

static void *asker(void *e)
{
    while (atomic_load(&asking)) {
        int result = cudaEventQuery(e);
        CHECK(!result || result == CM_CUDA_NOT_READY || result == CM_CUDA_CAPTURED_EVENT);
        (void)cudaEventElapsedTime(&(float){0}, e, e);
        sched_yield();
    }
    return NULL;
}

static void shared_event(void)
{
    pthread_t thread;
    event e;
    stream s;
    OK(cudaStreamCreateWithFlags(&s, CM_CUDA_STREAM_NON_BLOCKING));
    OK(cudaEventCreate(&e));
    atomic_store(&asking, true);
    EQUAL(pthread_create(&thread, NULL, asker, e), 0);
    for (int i = 0; i < 2000; i++) {
        graph g;
        launch(s, 1);
        OK(cudaEventRecord(e, s));
        OK(cudaStreamBeginCapture(s, CM_CUDA_CAPTURE_RELAXED));
        launch(s, 1);
        OK(cudaEventRecord(e, s));
        OK(cudaStreamWaitEvent(s, e, 0));
        OK(cudaStreamEndCapture(s, &g));
        OK(cudaGraphDestroy(g));
    }
    atomic_store(&asking, false);
    EQUAL(pthread_join(thread, NULL), 0);
    OK(cudaEventDestroy(e));
    OK(cudaStreamDestroy(s));
}

static size_t nodes_of(graph g)
{
    size_t count = 0;
    OK(cudaGraphGetNodes(g, NULL, &count));
    return count;
}

static void capture(void)
{
    stream s, side;
    event fork_, join;
    graph g, now;
    exec x;
    int status = -1, two = 2;
    unsigned long long id = 0;
    size_t count = 99;
    node *after;
    char in[16] = "captured", out[16] = {0}, *a, *b;
    OK(cudaMalloc((void **)&a, 16));
    OK(cudaMalloc((void **)&b, 16));
    OK(cudaMemcpy(a, in, 16, 1));
    OK(cudaStreamCreateWithFlags(&s, CM_CUDA_STREAM_NON_BLOCKING));
    OK(cudaStreamCreateWithFlags(&side, CM_CUDA_STREAM_NON_BLOCKING));
    OK(cudaEventCreate(&fork_));
    OK(cudaEventCreate(&join));
    OK(cudaStreamIsCapturing(s, &status));
    EQUAL(status, CM_CUDA_CAPTURE_NONE);
    EQUAL(cudaStreamBeginCapture(NULL, CM_CUDA_CAPTURE_GLOBAL), CM_CUDA_CAPTURE_UNSUPPORTED);
    EQUAL(cudaStreamBeginCapture(s, 7), CM_CUDA_INVALID_VALUE);
    OK(cudaStreamBeginCapture(s, CM_CUDA_CAPTURE_GLOBAL));
    EQUAL(cudaStreamBeginCapture(s, CM_CUDA_CAPTURE_GLOBAL), CM_CUDA_ILLEGAL_STATE);
    OK(cudaStreamGetCaptureInfo(s, &status, &id, &now, (node *const **)&after, NULL, &count));
    CHECK(status == CM_CUDA_CAPTURE_ACTIVE && id && now && count == 0);
    OK(cudaStreamGetCaptureInfo(s, &status, NULL, NULL, NULL, NULL, NULL));
    uint64_t before = cm_sim_launches(0);
    launch(s, 2);
    OK(cudaMemcpyAsync(b, a, 16, 3, s));
    OK(cudaMemsetAsync(b + 4, 'x', 2, s));
    OK(cudaLaunchHostFunc(s, host_function, &two));
    OK(cudaEventRecord(fork_, s));
    OK(cudaStreamWaitEvent(side, fork_, 0));
    unsigned long long joined = 0;
    OK(cudaStreamGetCaptureInfo(side, &status, &joined, NULL, NULL, NULL, NULL));
    EQUAL(joined, id);
    launch(side, 1);
    OK(cudaEventRecord(join, side));
    launch(s, 1);
    OK(cudaStreamWaitEvent(s, join, 0));
    OK(cudaStreamGetCaptureInfo(s, &status, &id, &now, (node *const **)&after, NULL, &count));
    EQUAL(count, 2);
    launch(s, 1);
    OK(cudaStreamEndCapture(s, &g));
    CHECK(g == now);
    EQUAL(cm_sim_launches(0), before); /* nothing was done */
    EQUAL(called, 0);
    OK(cudaMemcpy(out, b, 16, 2));
    EQUAL(out[0], 0);
    OK(cudaStreamIsCapturing(side, &status));
    EQUAL(status, CM_CUDA_CAPTURE_NONE);
    EQUAL(nodes_of(g), 8);
    node nodes[8], roots[8], from[8], to[8];
    count = 8;
    OK(cudaGraphGetNodes(g, nodes, &count));
    int type = -1;
    int expected[] = {CM_CUDA_NODE_KERNEL, CM_CUDA_NODE_KERNEL, CM_CUDA_NODE_COPY,
                      CM_CUDA_NODE_SET,    CM_CUDA_NODE_HOST,   CM_CUDA_NODE_KERNEL,
                      CM_CUDA_NODE_KERNEL, CM_CUDA_NODE_KERNEL};
    for (int i = 0; i < 8; i++) {
        OK(cudaGraphNodeGetType(nodes[i], &type));
        EQUAL(type, expected[i]);
    }
    OK(cudaGraphNodeGetDependencies(nodes[7], NULL, NULL, &count));
    EQUAL(count, 2);
    OK(cudaGraphNodeGetDependentNodes(nodes[4], NULL, NULL, &count));
    EQUAL(count, 2);
    count = 8;
    OK(cudaGraphGetRootNodes(g, roots, &count));
    CHECK(count == 1 && roots[0] == nodes[0]);
    count = 8;
    cm_cuda_edge edges[8];
    OK(cudaGraphGetEdges(g, from, to, edges, &count));
    EQUAL(count, 8);
    cm_cuda_kernel_node kernel;
    OK(cudaGraphKernelNodeGetParams(nodes[0], &kernel));
    CHECK(kernel.func == KERNEL && kernel.blockDim.x == 32);
    EQUAL(cudaGraphKernelNodeGetParams(nodes[2], &kernel), CM_CUDA_INVALID_VALUE);

    OK(cudaGraphInstantiate(&x, g, 0));
    graph copy;
    OK(cudaGraphClone(&copy, g));
    OK(cudaGraphDestroy(g));
    EQUAL(cudaGraphDestroy(g), CM_CUDA_INVALID_VALUE);
    EQUAL(nodes_of(copy), 8);
    for (int i = 1; i <= 3; i++) {
        OK(cudaGraphLaunch(x, s));
        EQUAL(cm_sim_launches(0) - before, 5 * i);
        EQUAL(called, 2 * i);
    }
    OK(cudaMemcpy(out, b, 16, 2));
    CHECK(!strcmp(out, "captxxed"));

    /* Libraries launch nothing here: one node stands for whatever they would have done. */
    OK(cudaStreamBeginCapture(s, CM_CUDA_CAPTURE_GLOBAL));
    OK(cudaStreamEndCapture(s, &g));
    EQUAL(nodes_of(g), 1);
    OK(cudaGraphDestroy(g));

    /* A second capture of the same form takes its place. */
    cm_cuda_update_result result;
    OK(cudaGraphExecUpdate(x, copy, &result));
    EQUAL(result.result, 0);
    OK(cudaGraphDestroy(copy));
    OK(cudaGraphCreate(&copy, 0));
    EQUAL(cudaGraphExecUpdate(x, copy, &result), CM_CUDA_GRAPH_UPDATE_FAILURE);
    CHECK(result.result != 0);
    OK(cudaGraphDestroy(copy));
    /* Memory that its copies name and that is gone: a fault that stays. */
    OK(cudaFree(b));
    EQUAL(cudaGraphLaunch(x, s), CM_CUDA_ILLEGAL_ADDRESS);
    EQUAL(cudaMalloc((void **)&b, 16), CM_CUDA_ILLEGAL_ADDRESS);
    EQUAL(cudaStreamSynchronize(s), CM_CUDA_ILLEGAL_ADDRESS);
    OK(cudaGraphExecDestroy(x));
    EQUAL(cudaGraphExecDestroy(x), CM_CUDA_INVALID_VALUE);
    EQUAL(cudaFree(a), CM_CUDA_ILLEGAL_ADDRESS);
    OK(cm_sim_free(a, NULL));
    OK(cudaEventDestroy(fork_));
    OK(cudaEventDestroy(join));
    OK(cudaStreamDestroy(s));
    OK(cudaStreamDestroy(side));
}

static stream begin_capture(int mode)
{
    stream s;
    OK(cudaStreamCreateWithFlags(&s, CM_CUDA_STREAM_NON_BLOCKING));
    OK(cudaStreamBeginCapture(s, mode));
    launch(s, 1);
    return s;
}

static void spoiled(stream s)
{
    int status = -1;
    graph g = (graph)&status;
    OK(cudaStreamIsCapturing(s, &status));
    EQUAL(status, CM_CUDA_CAPTURE_IS_INVALIDATED);
    EQUAL(cudaLaunchKernel(KERNEL, ONE, WARP, NULL, 0, s), CM_CUDA_CAPTURE_INVALIDATED);
    EQUAL(cudaStreamEndCapture(s, &g), CM_CUDA_CAPTURE_INVALIDATED);
    CHECK(g == NULL);
    OK(cudaStreamIsCapturing(s, &status));
    EQUAL(status, CM_CUDA_CAPTURE_NONE);
    launch(s, 1);
    OK(cudaStreamDestroy(s));
}

static void *malloc_elsewhere(void *result)
{
    void *address;
    *(int *)result = cudaMalloc(&address, 64);
    if (!*(int *)result)
        OK(cudaFree(address));
    return NULL;
}

static int elsewhere(void)
{
    pthread_t thread;
    int result = -1;
    EQUAL(pthread_create(&thread, NULL, malloc_elsewhere, &result), 0);
    EQUAL(pthread_join(thread, NULL), 0);
    return result;
}

static void *end_elsewhere(void *s)
{
    graph g;
    EQUAL(cudaStreamEndCapture(s, &g), CM_CUDA_CAPTURE_WRONG_THREAD);
    return NULL;
}

static void capture_rules(void)
{
    void *address, *kept;
    event e, inside;
    graph g;
    int status = -1, mode;
    char byte;
    OK(cudaEventCreate(&e));
    OK(cudaEventCreate(&inside));
    OK(cudaEventRecord(e, NULL));
    OK(cudaMalloc(&kept, 64));

    /* To wait for what is only recorded. */
    stream s = begin_capture(CM_CUDA_CAPTURE_RELAXED);
    EQUAL(cudaStreamSynchronize(s), CM_CUDA_CAPTURE_UNSUPPORTED);
    spoiled(s);
    s = begin_capture(CM_CUDA_CAPTURE_RELAXED);
    EQUAL(cudaStreamQuery(s), CM_CUDA_CAPTURE_UNSUPPORTED);
    spoiled(s);
    s = begin_capture(CM_CUDA_CAPTURE_THREAD_LOCAL);
    EQUAL(cudaMalloc(&address, 64), CM_CUDA_CAPTURE_UNSUPPORTED);
    spoiled(s);
    s = begin_capture(CM_CUDA_CAPTURE_THREAD_LOCAL);
    EQUAL(cudaMemcpy(&byte, kept, 1, 2), CM_CUDA_CAPTURE_UNSUPPORTED);
    spoiled(s);
    s = begin_capture(CM_CUDA_CAPTURE_GLOBAL);
    EQUAL(cudaEventQuery(e), CM_CUDA_CAPTURE_UNSUPPORTED);
    spoiled(s);
    s = begin_capture(CM_CUDA_CAPTURE_GLOBAL);
    EQUAL(cudaDeviceSynchronize(), CM_CUDA_CAPTURE_UNSUPPORTED);
    spoiled(s);

    /* What another thread may do is a matter of the mode. */
    s = begin_capture(CM_CUDA_CAPTURE_THREAD_LOCAL);
    OK(elsewhere());
    OK(cudaStreamEndCapture(s, &g));
    OK(cudaGraphDestroy(g));
    OK(cudaStreamDestroy(s));
    s = begin_capture(CM_CUDA_CAPTURE_GLOBAL);
    EQUAL(elsewhere(), CM_CUDA_CAPTURE_UNSUPPORTED);
    spoiled(s);

    /* A relaxed thread may all; PyTorch's allocator stands on it. */
    s = begin_capture(CM_CUDA_CAPTURE_GLOBAL);
    mode = CM_CUDA_CAPTURE_RELAXED;
    OK(cudaThreadExchangeStreamCaptureMode(&mode));
    EQUAL(mode, CM_CUDA_CAPTURE_GLOBAL);
    OK(cudaMalloc(&address, 64));
    OK(cudaFree(address));
    OK(cudaEventQuery(e));
    OK(cudaThreadExchangeStreamCaptureMode(&mode));
    EQUAL(mode, CM_CUDA_CAPTURE_RELAXED);
    mode = 9;
    EQUAL(cudaThreadExchangeStreamCaptureMode(&mode), CM_CUDA_INVALID_VALUE);
    /* An event of a capture is none that the host can wait for. */
    OK(cudaEventRecord(inside, s));
    EQUAL(cudaEventSynchronize(inside), CM_CUDA_CAPTURED_EVENT);
    EQUAL(cudaEventElapsedTime(&(float){0}, inside, e), CM_CUDA_CAPTURED_EVENT);
    pthread_t thread;
    EQUAL(pthread_create(&thread, NULL, end_elsewhere, s), 0);
    EQUAL(pthread_join(thread, NULL), 0);
    OK(cudaStreamEndCapture(s, &g));
    OK(cudaGraphDestroy(g));
    EQUAL(cudaStreamWaitEvent(s, inside, 0), CM_CUDA_CAPTURED_EVENT);
    EQUAL(cudaStreamEndCapture(s, &g), CM_CUDA_ILLEGAL_STATE);
    OK(cudaEventRecord(inside, s));
    OK(cudaEventQuery(inside));

    /* Between streams. */
    OK(cudaStreamBeginCapture(s, CM_CUDA_CAPTURE_RELAXED));
    EQUAL(cudaStreamWaitEvent(s, e, 0), CM_CUDA_CAPTURE_ISOLATION);
    spoiled(s);
    s = begin_capture(CM_CUDA_CAPTURE_RELAXED);
    stream other = begin_capture(CM_CUDA_CAPTURE_RELAXED);
    OK(cudaEventRecord(inside, s));
    EQUAL(cudaStreamWaitEvent(other, inside, 0), CM_CUDA_CAPTURE_MERGE);
    spoiled(other);
    spoiled(s);
    s = begin_capture(CM_CUDA_CAPTURE_RELAXED);
    OK(cudaStreamCreateWithFlags(&other, CM_CUDA_STREAM_NON_BLOCKING));
    OK(cudaEventRecord(inside, s));
    OK(cudaStreamWaitEvent(other, inside, 0));
    EQUAL(cudaStreamEndCapture(other, &g), CM_CUDA_CAPTURE_UNMATCHED);
    spoiled(s);
    OK(cudaStreamIsCapturing(other, &status));
    EQUAL(status, CM_CUDA_CAPTURE_NONE);
    s = begin_capture(CM_CUDA_CAPTURE_RELAXED);
    OK(cudaEventRecord(inside, s));
    OK(cudaStreamWaitEvent(other, inside, 0));
    launch(other, 1); /* and never joined back */
    EQUAL(cudaStreamEndCapture(s, &g), CM_CUDA_CAPTURE_UNJOINED);
    CHECK(g == NULL);
    OK(cudaStreamBeginCapture(s, CM_CUDA_CAPTURE_RELAXED));
    OK(cudaEventRecord(inside, s));
    EQUAL(cudaStreamWaitEvent(NULL, inside, 0), CM_CUDA_CAPTURE_IMPLICIT);
    spoiled(s);

    /* The legacy stream waits for every blocking one, so also for a capturing one. */
    OK(cudaStreamCreate(&s));
    OK(cudaStreamBeginCapture(s, CM_CUDA_CAPTURE_RELAXED));
    EQUAL(cudaLaunchKernel(KERNEL, ONE, WARP, NULL, 0, NULL), CM_CUDA_CAPTURE_IMPLICIT);
    OK(cudaStreamEndCapture(s, &g));
    OK(cudaGraphDestroy(g));
    launch(NULL, 1);
    /* A stream that goes while it captures takes the capture with it. */
    OK(cudaStreamBeginCapture(s, CM_CUDA_CAPTURE_GLOBAL));
    OK(cudaStreamDestroy(s));
    OK(cudaMalloc(&address, 64));
    OK(cudaFree(address));

    /* Into a graph that is there, behind a node of it. */
    node first, *after;
    size_t count = 0;
    OK(cudaGraphCreate(&g, 0));
    OK(cudaGraphAddEmptyNode(&first, g, NULL, 0));
    OK(cudaStreamBeginCaptureToGraph(other, g, &first, NULL, 1, CM_CUDA_CAPTURE_RELAXED));
    launch(other, 1);
    OK(cudaStreamGetCaptureInfo(other, &status, NULL, NULL, (node *const **)&after, NULL, &count));
    EQUAL(count, 1);
    OK(cudaStreamUpdateCaptureDependencies(other, &first, NULL, 1, 0));
    OK(cudaStreamGetCaptureInfo(other, &status, NULL, NULL, NULL, NULL, &count));
    EQUAL(count, 2);
    OK(cudaStreamUpdateCaptureDependencies(other, &first, NULL, 1, 1));
    OK(cudaStreamGetCaptureInfo(other, &status, NULL, NULL, NULL, NULL, &count));
    EQUAL(count, 1);
    EQUAL(cudaStreamSynchronize(other), CM_CUDA_CAPTURE_UNSUPPORTED);
    graph same;
    EQUAL(cudaStreamEndCapture(other, &same), CM_CUDA_CAPTURE_INVALIDATED);
    EQUAL(nodes_of(g), 2); /* it was the program's: it stays */
    OK(cudaGraphDestroy(g));
    OK(cudaStreamDestroy(other));
    OK(cudaEventDestroy(e));
    OK(cudaEventDestroy(inside));
    OK(cudaFree(kept));
}

static int order[8], ordered;
static void in_order(void *number)
{
    order[ordered++] = *(int *)number;
}

static void graphs(void)
{
    graph g, child;
    node n[4], kernel_node;
    exec x;
    int numbers[] = {1, 2, 3};
    cm_cuda_kernel_node kernel = {
        .func = (void *)(uintptr_t)KERNEL, .gridDim = ONE, .blockDim = WARP};
    OK(cudaFree(NULL));
    OK(cudaGraphCreate(&child, 0));
    OK(cudaGraphAddKernelNode(&kernel_node, child, NULL, 0, &kernel));
    OK(cudaGraphAddKernelNode(&n[3], child, &kernel_node, 1, &kernel));
    OK(cudaGraphCreate(&g, 0));
    for (int i = 0; i < 3; i++) {
        cm_cuda_node_params params = {.type = CM_CUDA_NODE_HOST, .host = {in_order, &numbers[i]}};
        OK(cudaGraphAddNode(&n[i], g, NULL, NULL, 0, &params));
    }
    OK(cudaGraphAddChildGraphNode(&n[3], g, n, 1, child));
    OK(cudaGraphDestroy(child)); /* it was copied */
    /* 3 before 2 before 1 */
    OK(cudaGraphAddDependencies(g, (node[]){n[2], n[1]}, (node[]){n[1], n[0]}, NULL, 2));
    OK(cudaGraphInstantiate(&x, g, 0));
    uint64_t before = cm_sim_launches(0);
    OK(cudaGraphLaunch(x, NULL));
    CHECK(ordered == 3 && order[0] == 3 && order[1] == 2 && order[2] == 1);
    EQUAL(cm_sim_launches(0) - before, 2);
    OK(cudaGraphExecDestroy(x));
    OK(cudaGraphAddDependencies(g, &n[0], &n[2], NULL, 1)); /* a circle */
    EQUAL(cudaGraphInstantiate(&x, g, 0), CM_CUDA_INVALID_VALUE);
    EQUAL(cudaGraphAddDependencies(g, &n[0], &n[0], NULL, 1), CM_CUDA_INVALID_VALUE);
    EQUAL(cudaGraphAddDependencies(g, &n[0], &kernel_node, NULL, 1), CM_CUDA_INVALID_VALUE);
    OK(cudaGraphDestroy(g));
    EQUAL(cudaGraphAddDependencies(g, &n[0], &n[1], NULL, 1), CM_CUDA_INVALID_VALUE);

    OK(cudaGraphCreate(&g, 0));
    cm_cuda_node_params params = {.type = CM_CUDA_NODE_CONDITIONAL};
    EQUAL(cudaGraphAddNode(&n[0], g, NULL, NULL, 0, &params), CM_CUDA_NOT_SUPPORTED);
    cm_cuda_conditional handle;
    EQUAL(cudaGraphConditionalHandleCreate(&handle, g, 0, 0), CM_CUDA_NOT_SUPPORTED);
    EQUAL(noted(CM_SIM_NOTE_REFUSED, "conditional nodes of CUDA graphs"), 2);
    params.type = 77;
    EQUAL(cudaGraphAddNode(&n[0], g, NULL, NULL, 0, &params), CM_CUDA_INVALID_VALUE);
    EQUAL(nodes_of(g), 0);
    EQUAL(cudaGraphInstantiate(&x, g, 1u << 10), CM_CUDA_INVALID_VALUE);
    EQUAL(cudaGraphInstantiate(NULL, g, 0), CM_CUDA_INVALID_VALUE);
    EQUAL(cudaGraphLaunch((exec)g, NULL), CM_CUDA_INVALID_VALUE);
    OK(cudaGraphAddKernelNode(&n[0], g, NULL, 0, &kernel));
    OK(cudaGraphInstantiate(&x, g, 0));
    kernel.gridDim.x = 7;
    OK(cudaGraphExecKernelNodeSetParams(x, n[0], &kernel));
    OK(cudaGraphKernelNodeGetParams(n[0], &kernel));
    EQUAL(kernel.gridDim.x, 1); /* the executable is a thing of its own */
    OK(cudaGraphExecDestroy(x));

    /* What a graph keeps dies with the last that keeps it. */
    cm_sim_user_object *object;
    int one = 1;
    called = 0;
    EQUAL(cudaUserObjectCreate(&object, &one, host_function, 1, 0), CM_CUDA_INVALID_VALUE);
    OK(cudaUserObjectCreate(&object, &one, host_function, 1, 1));
    OK(cudaGraphRetainUserObject(g, object, 1, 1));
    OK(cudaGraphInstantiate(&x, g, 0));
    OK(cudaGraphDestroy(g));
    EQUAL(called, 0);
    OK(cudaGraphExecDestroy(x));
    EQUAL(called, 1);
    EQUAL(cudaUserObjectRelease(object, 1), CM_CUDA_INVALID_VALUE);
}

static uint64_t graph_memory(int attribute)
{
    uint64_t value = 0;
    OK(cudaDeviceGetGraphMemAttribute(0, attribute, &value));
    return value;
}

static void graph_allocations(void)
{
    stream s;
    graph g;
    exec x;
    char *a, *b, *c;
    OK(cudaFree(NULL));
    size_t before = used(0);
    OK(cudaStreamCreateWithFlags(&s, CM_CUDA_STREAM_NON_BLOCKING));
    OK(cudaStreamBeginCapture(s, CM_CUDA_CAPTURE_GLOBAL));
    OK(cudaMallocAsync((void **)&a, 4 * MIB, s));
    OK(cudaMemsetAsync(a, 3, 64, s));
    OK(cudaFreeAsync(a, s));
    OK(cudaMallocAsync((void **)&b, 3 * MIB, s)); /* fits where the first one was */
    CHECK(a == b);
    OK(cudaMallocAsync((void **)&c, 6 * MIB, s));
    EQUAL(cudaMallocAsync((void **)&a, 1000 * GIB, s), CM_CUDA_OUT_OF_MEMORY);
    spoiled(s);
    EQUAL(used(0), before);

    OK(cudaStreamCreateWithFlags(&s, CM_CUDA_STREAM_NON_BLOCKING));
    OK(cudaStreamBeginCapture(s, CM_CUDA_CAPTURE_GLOBAL));
    OK(cudaMallocAsync((void **)&b, 4 * MIB, s));
    OK(cudaMallocAsync((void **)&c, 6 * MIB, s));
    OK(cudaMemsetAsync(c, 3, 64, s));
    OK(cudaStreamEndCapture(s, &g));
    EQUAL(used(0) - before, 10 * MIB);
    EQUAL(graph_memory(CM_CUDA_GRAPH_MEM_USED_CURRENT), 10 * MIB);
    EQUAL(graph_memory(CM_CUDA_GRAPH_MEM_RESERVED_CURRENT), 10 * MIB);
    CHECK(noted(CM_SIM_NOTE_MODELLED, "memory of CUDA graphs") > 0);
    OK(cudaGraphInstantiate(&x, g, 0));
    OK(cudaGraphDestroy(g));
    EQUAL(used(0) - before, 10 * MIB); /* the executable's now */
    OK(cudaGraphLaunch(x, s));
    char out = 0;
    OK(cudaMemcpy(&out, c, 1, 2));
    EQUAL(out, 3);
    OK(cudaFreeAsync(b, s)); /* outside of the graph */
    EQUAL(cudaFreeAsync(b, s), CM_CUDA_INVALID_VALUE);
    EQUAL(graph_memory(CM_CUDA_GRAPH_MEM_USED_CURRENT), 6 * MIB);
    OK(cudaGraphExecDestroy(x));
    EQUAL(used(0), before);
    EQUAL(graph_memory(CM_CUDA_GRAPH_MEM_RESERVED_CURRENT), 0);
    EQUAL(graph_memory(CM_CUDA_GRAPH_MEM_RESERVED_HIGH), 10 * MIB);
    uint64_t zero = 0;
    OK(cudaDeviceSetGraphMemAttribute(0, CM_CUDA_GRAPH_MEM_RESERVED_HIGH, &zero));
    EQUAL(graph_memory(CM_CUDA_GRAPH_MEM_RESERVED_HIGH), 0);
    EQUAL(cudaDeviceGetGraphMemAttribute(9, 0, &zero), CM_CUDA_INVALID_DEVICE);
    EQUAL(cudaDeviceGetGraphMemAttribute(0, 9, &zero), CM_CUDA_INVALID_VALUE);
    OK(cudaStreamDestroy(s));
}

static void refused(void)
{
    cm_cuda_ipc_handle handle;
    void *address;
    event e;
    OK(cudaMalloc(&address, 64));
    OK(cudaEventCreate(&e));
    EQUAL(cudaIpcGetMemHandle(&handle, address), CM_CUDA_NOT_SUPPORTED);
    memset(&handle, 0, sizeof handle);
    EQUAL(cudaIpcOpenMemHandle(&address, handle, 1), CM_CUDA_NOT_SUPPORTED);
    EQUAL(cudaIpcGetEventHandle(&handle, e), CM_CUDA_NOT_SUPPORTED);
    EQUAL(noted(CM_SIM_NOTE_REFUSED, "CUDA IPC"), 3);
    EQUAL(cudaGetLastError(), CM_CUDA_NOT_SUPPORTED);
    OK(cudaEventDestroy(e));
    OK(cudaFree(address));
}

static int *variable_of_managed;

/* Memory of every kind on the device, and who keeps its addresses. */
static void resets(void)
{
    static char stub;
    cm_cuda_channels format = {32, 0, 0, 0, 2};
    void **image = __cudaRegisterFatBinary(NULL), *block, *small, *pooled, *variable, *other;
    void *array, *mipmapped, *elsewhere;
    stream s;
    graph g;
    __cudaRegisterVar(image, &stub, &stub, "variable", 0, 400, 0, 0);
    __cudaRegisterManagedVar(image, (void **)&variable_of_managed, NULL, "m", 0, 64, 0, 0);
    OK(cudaSetDevice(1));
    OK(cudaMalloc(&elsewhere, 4 * MIB));
    size_t second = used(1);
    OK(cudaSetDevice(0));
    OK(cudaMalloc(&block, 64 * MIB));
    OK(cudaMalloc(&small, 100));
    OK(cudaMallocManaged(&other, 4 * MIB, CM_CUDA_ATTACH_GLOBAL));
    OK(cudaMallocArray(&array, &format, 1024, 1024, 0));
    OK(cudaMallocMipmappedArray(&mipmapped, &format, (cm_cuda_extent){64, 64, 0}, 3, 0));
    OK(cudaStreamCreate(&s));
    OK(cudaMallocAsync(&pooled, 8 * MIB, s));
    OK(cudaMallocAsync(&other, 16 * MIB, s));
    OK(cudaFreeAsync(other, s)); /* kept */
    OK(cudaGetSymbolAddress(&variable, &stub));
    EQUAL(__cudaInitModule(image), 0);
    CHECK(variable_of_managed != NULL);
    OK(cudaStreamBeginCapture(s, 0));
    OK(cudaMallocAsync(&other, 32 * MIB, s));
    OK(cudaStreamEndCapture(s, &g));
    CHECK(used(0) > cm_sim_config_get()->device[0].context + 128 * MIB);

    OK(cudaDeviceReset());
    EQUAL(used(0), 0);
    EQUAL(used(1), second);
    CHECK(!cm_sim_has_context(0));
    CHECK(variable_of_managed == NULL);
    EQUAL(graph_memory(CM_CUDA_GRAPH_MEM_RESERVED_CURRENT), 0);
    OK(cudaDeviceReset()); /* of nothing */
    CHECK(!cm_sim_has_context(0));

    EQUAL(cudaFree(block), CM_CUDA_INVALID_VALUE);
    EQUAL(used(0), cm_sim_config_get()->device[0].context); /* it was made anew for that */
    EQUAL(cudaFree(small), CM_CUDA_INVALID_VALUE);
    EQUAL(cudaFreeAsync(pooled, s), CM_CUDA_INVALID_VALUE);
    EQUAL(cudaFreeArray(array), CM_SIM_INVALID_HANDLE);
    EQUAL(cudaFreeMipmappedArray(mipmapped), CM_SIM_INVALID_HANDLE);
    OK(cudaGraphDestroy(g));
    OK(cudaMallocAsync(&pooled, 8 * MIB, s));
    EQUAL(used(0), cm_sim_config_get()->device[0].context + 8 * MIB);
    OK(cudaFreeAsync(pooled, s));
    OK(cudaDeviceSynchronize());
    OK(cudaGetSymbolAddress(&variable, &stub));
    CHECK(used(0) > cm_sim_config_get()->device[0].context);
    __cudaUnregisterFatBinary(image);
    EQUAL(used(0), cm_sim_config_get()->device[0].context);
    OK(cudaStreamDestroy(s));
    OK(cudaMemcpy(elsewhere, &second, sizeof second, CM_CUDA_COPY_DEFAULT));
    OK(cudaFree(elsewhere));
}

static void array_of_the_runtime(size_t bytes, cm_cuda_channels format, cm_cuda_extent extent,
                                 unsigned levels, unsigned flags)
{
    void *array = NULL;
    cm_sim_block block;
    size_t before = used(0);
    if (levels)
        OK(cudaMallocMipmappedArray(&array, &format, extent, levels, flags));
    else
        OK(cudaMalloc3DArray(&array, &format, extent, flags));
    CHECK(cm_sim_find(array, &block));
    EQUAL(block.bytes, bytes);
    OK(levels ? cudaFreeMipmappedArray(array) : cudaFreeArray(array));
    EQUAL(used(0), before);
}

static void arrays(void)
{
    enum { SIGNED, UNSIGNED, FLOAT, NONE, NV12, NORMALIZED_8X2 = 6, NORMALIZED_16X4 = 16 };
    enum { BC1 = 17, BC6 = 27, PACKED = 31, LAYERED = 1, SPARSE = 0x40 };
    const cm_cuda_channels odd = {8, 16, 0, 0, UNSIGNED}, none = {0},
                           half = {16, 16, 16, 16, FLOAT};
    void *array = NULL, *level = NULL;
    OK(cudaFree(NULL));
    array_of_the_runtime(100 * 8, half, (cm_cuda_extent){100, 0, 0}, 0, 0);
    array_of_the_runtime(10 * 20 * 30, (cm_cuda_channels){8, 0, 0, 0, SIGNED},
                         (cm_cuda_extent){10, 20, 30}, 0, 0);
    array_of_the_runtime(10 * 6 * 8, (cm_cuda_channels){32, 32, 0, 0, UNSIGNED},
                         (cm_cuda_extent){10, 0, 6}, 0, LAYERED);
    array_of_the_runtime(10 * 2, (cm_cuda_channels){8, 8, 0, 0, NORMALIZED_8X2},
                         (cm_cuda_extent){10, 0, 0}, 0, 0);
    array_of_the_runtime(10 * 8, (cm_cuda_channels){16, 16, 16, 16, NORMALIZED_16X4},
                         (cm_cuda_extent){10, 0, 0}, 0, 0);
    array_of_the_runtime(10 * 4, (cm_cuda_channels){10, 10, 10, 2, PACKED},
                         (cm_cuda_extent){10, 0, 0}, 0, 0);
    array_of_the_runtime((4 * 2 + 2 + 1) * 8, (cm_cuda_channels){8, 8, 8, 8, BC1},
                         (cm_cuda_extent){16, 8, 0}, 3, 0);
    array_of_the_runtime(4 * 16, (cm_cuda_channels){16, 16, 16, 0, BC6}, (cm_cuda_extent){7, 5, 0},
                         0, 0);
    EQUAL(cudaMallocArray(&array, &odd, 10, 0, 0), CM_CUDA_INVALID_VALUE);
    EQUAL(cudaMallocArray(&array, &none, 10, 0, 0), CM_CUDA_INVALID_VALUE);
    EQUAL(cudaMallocArray(&array, NULL, 10, 0, 0), CM_CUDA_INVALID_VALUE);
    EQUAL(cudaMallocArray(NULL, &half, 10, 0, 0), CM_CUDA_INVALID_VALUE);
    EQUAL(cudaMallocArray(&array, &half, 0, 0, 0), CM_CUDA_INVALID_VALUE);
    EQUAL(cudaMallocArray(&array, &half, 10, 0, SPARSE), CM_CUDA_NOT_SUPPORTED);
    EQUAL(noted(CM_SIM_NOTE_REFUSED, "CUDA arrays without memory of their own"), 1);
    EQUAL(cudaMallocMipmappedArray(&array, &half, (cm_cuda_extent){4, 4, 0}, 0, 0),
          CM_CUDA_INVALID_VALUE);
    OK(cudaMallocMipmappedArray(&array, &half, (cm_cuda_extent){4, 4, 0}, 2, 0));
    OK(cudaGetMipmappedArrayLevel(&level, array, 1));
    EQUAL(cudaGetMipmappedArrayLevel(&level, array, 2), CM_CUDA_INVALID_VALUE);
    EQUAL(cudaFreeArray(level), CM_SIM_INVALID_HANDLE);
    EQUAL(cudaFreeArray(array), CM_SIM_INVALID_HANDLE);
    OK(cudaFreeMipmappedArray(array));
    OK(cudaFreeArray(NULL));
    OK(cudaFreeMipmappedArray(NULL));
}

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

/* All of it in several threads at once. */
static void *worker(void *number)
{
    enum { ROUNDS = 300 };
    unsigned seed = (unsigned)(uintptr_t)number;
    OK(cudaSetDevice((int)(seed % 2)));
    stream s;
    event e;
    OK(cudaStreamCreateWithFlags(&s, CM_CUDA_STREAM_NON_BLOCKING));
    OK(cudaEventCreate(&e));
    for (int i = 0; i < ROUNDS; i++) {
        void *a, *b;
        char bytes[64];
        graph g;
        exec x;
        size_t size = 1 + (size_t)rand_r(&seed) % (4 * MIB);
        OK(cudaMallocAsync(&a, size, s));
        OK(cudaMalloc(&b, size));
        launch(s, 3);
        OK(cudaMemcpyAsync(b, bytes, size < 64 ? size : 64, 1, s));
        OK(cudaEventRecord(e, s));
        OK(cudaEventQuery(e));
        OK(cudaFreeAsync(a, s));
        OK(cudaFree(b));
        OK(cudaStreamBeginCapture(s, CM_CUDA_CAPTURE_RELAXED));
        launch(s, 2);
        OK(cudaStreamEndCapture(s, &g));
        OK(cudaGraphInstantiate(&x, g, 0));
        OK(cudaGraphLaunch(x, s));
        OK(cudaGraphDestroy(g));
        OK(cudaGraphExecDestroy(x));
        OK(cudaStreamSynchronize(s));
        CHECK(cm_sim_function_name(KERNEL) != NULL);
    }
    OK(cudaEventDestroy(e));
    OK(cudaStreamDestroy(s));
    OK(cudaGetLastError());
    return NULL;
}

static void threads(void)
{
    enum { THREADS = 4 };
    pthread_t thread[THREADS];
    void **image = image_with_kernel();
    for (uintptr_t i = 0; i < THREADS; i++)
        EQUAL(pthread_create(&thread[i], NULL, worker, (void *)i), 0);
    for (int i = 0; i < THREADS; i++)
        EQUAL(pthread_join(thread[i], NULL), 0);
    EQUAL(cm_sim_launches(0) + cm_sim_launches(1), THREADS * 300 * 5);
    for (int i = 0; i < 2; i++)
        EQUAL(used(i), cm_sim_config_get()->device[i].context);
    __cudaUnregisterFatBinary(image);
}

static const test_case cases[] = {
    {"launches", launches},
    {"functions", functions},
    {"many_functions", many_functions},
    {"streams", streams},
    {"events", events},
    {"lag", lag},
    {"polling", polling},
    {"shared_event", shared_event},
    {"capture", capture},
    {"capture_rules", capture_rules},
    {"graphs", graphs},
    {"graph_allocations", graph_allocations},
    {"refused", refused},
    {"resets", resets},
    {"arrays", arrays},
    {"cupti", cupti},
    {"threads", threads},
};
MAIN(cases)
