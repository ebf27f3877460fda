/* Streams that record a graph, and what spoils that. */
#include <pthread.h>

#include "work.h"

size_t nodes_of(graph g)
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

    OK(cudaGraphInstantiate(&x, g, 0));
    OK(cudaGraphDestroy(g));
    EQUAL(cudaGraphDestroy(g), CM_CUDA_INVALID_VALUE);
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

void spoiled(stream s)
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
    OK(cudaGraphAddNode(&first, g, NULL, NULL, 0,
                        &(cm_cuda_node_params){.type = CM_CUDA_NODE_EMPTY}));
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

const test_case capture_cases[] = {
    {"capture", capture},
    {"capture_rules", capture_rules},
    {NULL, NULL},
};
