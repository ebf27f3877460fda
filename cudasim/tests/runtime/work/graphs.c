/* Graphs that a program makes, and their memory. */
#include "work.h"

static int order[8], ordered;
static void in_order(void *number)
{
    order[ordered++] = *(int *)number;
}

/* A graph is done in its order where it is a node of another one, too, and where an executable of
 * it was captured. */
static void child_graphs(void)
{
    graph g, parent;
    node n[3], of_parent;
    exec x, whole;
    stream s;
    int numbers[] = {1, 2, 3};
    OK(cudaFree(NULL));
    OK(cudaGraphCreate(&g, 0));
    for (int i = 0; i < 3; i++) {
        cm_cuda_node_params params = {.type = CM_CUDA_NODE_HOST, .host = {in_order, &numbers[i]}};
        OK(cudaGraphAddNode(&n[i], g, i ? &n[i - 1] : NULL, NULL, i > 0, &params));
    }
    OK(cudaGraphCreate(&parent, 0));
    OK(cudaGraphAddChildGraphNode(&of_parent, parent, NULL, 0, g));
    OK(cudaGraphInstantiate(&x, parent, 0));
    OK(cudaGraphLaunch(x, NULL));
    CHECK(ordered == 3 && order[0] == 1 && order[1] == 2 && order[2] == 3);
    OK(cudaGraphDestroy(parent));

    ordered = 0;
    OK(cudaStreamCreate(&s));
    OK(cudaGraphExecDestroy(x));
    OK(cudaGraphInstantiate(&x, g, 0));
    OK(cudaStreamBeginCapture(s, CM_CUDA_CAPTURE_RELAXED));
    OK(cudaGraphLaunch(x, s));
    OK(cudaStreamEndCapture(s, &parent));
    OK(cudaGraphInstantiate(&whole, parent, 0));
    OK(cudaGraphLaunch(whole, s));
    CHECK(ordered == 3 && order[0] == 1 && order[1] == 2 && order[2] == 3);
    OK(cudaGraphExecDestroy(whole));
    OK(cudaGraphDestroy(parent));
    OK(cudaGraphDestroy(g));
    OK(cudaGraphExecDestroy(x));
    OK(cudaStreamDestroy(s));
}

static void graphs(void)
{
    graph g, child;
    node n[4], kernel_node, join;
    exec x;
    int numbers[] = {1, 2, 3}, type;
    cm_cuda_node_params kernel = {
        .type = CM_CUDA_NODE_KERNEL,
        .kernel = {.func = (void *)(uintptr_t)KERNEL, .gridDim = ONE, .blockDim = WARP}};
    OK(cudaFree(NULL));
    OK(cudaGraphCreate(&child, 0));
    OK(cudaGraphAddNode(&kernel_node, child, NULL, NULL, 0, &kernel));
    OK(cudaGraphAddNode(&n[3], child, &kernel_node, NULL, 1, &kernel));
    OK(cudaGraphCreate(&g, 0));
    for (int i = 0; i < 3; i++) {
        cm_cuda_node_params params = {.type = CM_CUDA_NODE_HOST, .host = {in_order, &numbers[i]}};
        OK(cudaGraphAddNode(&n[i], g, NULL, NULL, 0, &params));
    }
    OK(cudaGraphAddEmptyNode(&join, g, n, 3));
    OK(cudaGraphNodeGetType(join, &type));
    EQUAL(type, CM_CUDA_NODE_EMPTY);
    EQUAL(cudaGraphAddEmptyNode(NULL, g, n, 3), CM_CUDA_INVALID_VALUE);
    EQUAL(cudaGraphAddEmptyNode(&n[3], g, &kernel_node, 1), CM_CUDA_INVALID_VALUE);
    EQUAL(nodes_of(g), 4);
    OK(cudaGraphAddChildGraphNode(&n[3], g, &join, 1, child));
    OK(cudaGraphDestroy(child)); /* it was copied */
    OK(cudaGraphInstantiate(&x, g, 0));
    uint64_t before = cm_sim_launches(0);
    OK(cudaGraphLaunch(x, NULL));
    CHECK(ordered == 3 && order[0] == 1 && order[1] == 2 && order[2] == 3);
    EQUAL(cm_sim_launches(0) - before, 2);
    OK(cudaGraphExecDestroy(x));
    EQUAL(cudaGraphAddNode(&n[3], g, &kernel_node, NULL, 1, &kernel), CM_CUDA_INVALID_VALUE);
    OK(cudaGraphDestroy(g));
    EQUAL(cudaGraphAddNode(&n[3], g, &n[0], NULL, 1, &kernel), CM_CUDA_INVALID_VALUE);
    EQUAL(cudaGraphInstantiate(&x, g, 0), CM_CUDA_INVALID_VALUE);

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

uint64_t graph_memory(int attribute)
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

const test_case graph_cases[] = {
    {"graphs", graphs},
    {"child_graphs", child_graphs},
    {"graph_allocations", graph_allocations},
    {NULL, NULL},
};
