#include "../objects/objects_graph.h"
#include "runtime.h"

CM_SIM_EXPORT int cudaGraphCreate(cm_sim_graph **graph, unsigned flags)
{
    CM_RT_BEGIN(cudaGraphCreate, graph, flags);
    CM_RT_END(flags ? CM_CUDA_INVALID_VALUE : cm_sim_graph_new(graph));
}

CM_SIM_EXPORT int cudaGraphDestroy(cm_sim_graph *graph)
{
    CM_RT_BEGIN(cudaGraphDestroy, graph);
    CM_RT_DRIVER(cuGraphDestroy, graph);
    int result = cm_sim_graph_delete(graph);
    CM_RT_DRIVER_END(result);
    CM_RT_END(result);
}

/* --- nodes ------------------------------------------------------------------------------------ */

/* CUDA 12 has no edges in what follows: each further parameter comes one place earlier. */

CM_SIM_EXPORT int cudaGraphAddNode(cm_sim_node **node, cm_sim_graph *graph,
                                   cm_sim_node *const *after, const cm_cuda_edge *edges,
                                   size_t count, cm_cuda_node_params *params)
{
    CM_RT_BEGIN(cudaGraphAddNode, node, graph, after, edges, count, params);
    if (cm_sim_cuda_major() == 12) {
        params = (void *)count;
        count = (size_t)edges;
    }
    CM_RT_END(node ? cm_sim_graph_add(graph, after, count, params, node) : CM_CUDA_INVALID_VALUE);
}

CM_SIM_EXPORT int cudaGraphAddChildGraphNode(cm_sim_node **node, cm_sim_graph *graph,
                                             cm_sim_node *const *after, size_t count,
                                             cm_sim_graph *child)
{
    CM_RT_BEGIN(cudaGraphAddChildGraphNode, node, graph, after, count, child);
    cm_cuda_node_params params = {.type = CM_CUDA_NODE_GRAPH, .graph = {child, 0}};
    CM_RT_END(node && child != graph ? cm_sim_graph_add(graph, after, count, &params, node)
                                     : CM_CUDA_INVALID_VALUE);
}

CM_SIM_EXPORT int cudaGraphAddEmptyNode(cm_sim_node **node, cm_sim_graph *graph,
                                        cm_sim_node *const *after, size_t count)
{
    CM_RT_BEGIN(cudaGraphAddEmptyNode, node, graph, after, count);
    cm_cuda_node_params params = {.type = CM_CUDA_NODE_EMPTY};
    CM_RT_END(node ? cm_sim_graph_add(graph, after, count, &params, node) : CM_CUDA_INVALID_VALUE);
}

CM_SIM_EXPORT int cudaGraphGetNodes(cm_sim_graph *graph, cm_sim_node **nodes, size_t *count)
{
    CM_RT_BEGIN(cudaGraphGetNodes, graph, nodes, count);
    CM_RT_END(cm_sim_graph_nodes(graph, nodes, count));
}

CM_SIM_EXPORT int cudaGraphGetRootNodes(cm_sim_graph *graph, cm_sim_node **nodes, size_t *count)
{
    CM_RT_BEGIN(cudaGraphGetRootNodes, graph, nodes, count);
    CM_RT_END(cm_sim_graph_roots(graph, nodes, count));
}

/* All edges are plain ones. */
static void plain(cm_cuda_edge *edges, const size_t *count, int result)
{
    if (edges && count && !result)
        memset(edges, 0, *count * sizeof *edges);
}

CM_SIM_EXPORT int cudaGraphGetEdges(cm_sim_graph *graph, cm_sim_node **from, cm_sim_node **to,
                                    cm_cuda_edge *edges, size_t *count)
{
    CM_RT_BEGIN(cudaGraphGetEdges, graph, from, to, edges, count);
    if (cm_sim_cuda_major() == 12) {
        count = (void *)edges;
        edges = NULL;
    }
    int result = cm_sim_graph_edges(graph, from, to, count);
    if (from)
        plain(edges, count, result);
    CM_RT_END(result);
}

CM_SIM_EXPORT int cudaGraphNodeGetDependencies(cm_sim_node *node, cm_sim_node **before,
                                               cm_cuda_edge *edges, size_t *count)
{
    CM_RT_BEGIN(cudaGraphNodeGetDependencies, node, before, edges, count);
    if (cm_sim_cuda_major() == 12) {
        count = (void *)edges;
        edges = NULL;
    }
    int result = cm_sim_node_before(node, before, count);
    if (before)
        plain(edges, count, result);
    CM_RT_END(result);
}

CM_SIM_EXPORT int cudaGraphNodeGetDependentNodes(cm_sim_node *node, cm_sim_node **behind,
                                                 cm_cuda_edge *edges, size_t *count)
{
    CM_RT_BEGIN(cudaGraphNodeGetDependentNodes, node, behind, edges, count);
    if (cm_sim_cuda_major() == 12) {
        count = (void *)edges;
        edges = NULL;
    }
    int result = cm_sim_node_behind(node, behind, count);
    if (behind)
        plain(edges, count, result);
    CM_RT_END(result);
}

CM_SIM_EXPORT int cudaGraphNodeGetType(cm_sim_node *node, int *type)
{
    CM_RT_BEGIN(cudaGraphNodeGetType, node, type);
    CM_RT_END(cm_sim_node_type(node, type));
}

/* A condition is set by kernels, which do nothing: see the node itself. */
CM_SIM_EXPORT int cudaGraphConditionalHandleCreate(cm_cuda_conditional *handle, cm_sim_graph *graph,
                                                   unsigned value, unsigned flags)
{
    CM_RT_BEGIN(cudaGraphConditionalHandleCreate, handle, graph, value, flags);
    CM_RT_END(cm_rt_refuse("conditional nodes of CUDA graphs"));
}

/* --- executables ------------------------------------------------------------------------------ */

static int instantiate(cm_sim_call *call, cm_sim_graph *graph, unsigned long long flags,
                       cm_sim_exec **exec)
{
    const cm_cuGraphInstantiateWithFlags_params parameters = {(void **)exec, graph, flags};
    if (call->correlation)
        cm_sim_driver_enter(call, cm_sim_current_device(), CM_CBID_cuGraphInstantiateWithFlags,
                            "cuGraphInstantiateWithFlags", &parameters, NULL);
    int result = cm_sim_graph_instantiate(graph, flags, exec);
    if (call->correlation)
        cm_sim_driver_exit(call, result);
    return result;
}

CM_SIM_EXPORT int cudaGraphInstantiate(cm_sim_exec **exec, cm_sim_graph *graph,
                                       unsigned long long flags)
{
    CM_RT_BEGIN(cudaGraphInstantiate, exec, graph, flags);
    CM_RT_END(instantiate(&cm_call, graph, flags, exec));
}

CM_SIM_EXPORT int cudaGraphInstantiateWithFlags(cm_sim_exec **exec, cm_sim_graph *graph,
                                                unsigned long long flags)
{
    CM_RT_BEGIN(cudaGraphInstantiateWithFlags, exec, graph, flags);
    CM_RT_END(instantiate(&cm_call, graph, flags, exec));
}

CM_SIM_EXPORT int cudaGraphExecDestroy(cm_sim_exec *exec)
{
    CM_RT_BEGIN(cudaGraphExecDestroy, exec);
    CM_RT_DRIVER(cuGraphExecDestroy, exec);
    int result = cm_sim_exec_delete(exec);
    CM_RT_DRIVER_END(result);
    CM_RT_END(result);
}

CM_SIM_EXPORT int cudaGraphUpload(cm_sim_exec *exec, cm_sim_stream *stream)
{
    CM_RT_BEGIN(cudaGraphUpload, exec, stream);
    bool capturing;
    int result = cm_sim_exec_live(exec) ? CM_CUDA_OK : CM_CUDA_INVALID_VALUE;
    if (!result && cm_sim_stream_work(stream, &capturing, &result) && capturing)
        result = CM_CUDA_CAPTURE_UNSUPPORTED;
    CM_RT_END(result);
}
CM_SIM_ALIAS(cudaGraphUpload, cudaGraphUpload_ptsz);

CM_SIM_EXPORT int cudaGraphLaunch(cm_sim_exec *exec, cm_sim_stream *stream)
{
    CM_RT_BEGIN(cudaGraphLaunch, exec, stream);
    int device;
    int result = cm_sim_device_ready(&device);
    if (result)
        CM_RT_END(result);
    CM_RT_DRIVER(cuGraphLaunch, exec, stream);
    result = cm_sim_exec_launch(exec, stream, CM_RT_REPORTED ? &cm_call : NULL);
    CM_RT_DRIVER_END(result);
    CM_RT_END(result);
}
CM_SIM_ALIAS(cudaGraphLaunch, cudaGraphLaunch_ptsz);

/* --- what graphs keep ------------------------------------------------------------------------- */

CM_SIM_EXPORT int cudaUserObjectCreate(cm_sim_user_object **object, void *data,
                                       cm_cuda_host_function destroy, unsigned references,
                                       unsigned flags)
{
    CM_RT_BEGIN(cudaUserObjectCreate, object, data, destroy, references, flags);
    enum { NO_DESTRUCTOR_SYNC = 1 };
    CM_RT_END(flags == NO_DESTRUCTOR_SYNC
                  ? cm_sim_user_object_new(data, destroy, references, object)
                  : CM_CUDA_INVALID_VALUE);
}

CM_SIM_EXPORT int cudaUserObjectRelease(cm_sim_user_object *object, unsigned count)
{
    CM_RT_BEGIN(cudaUserObjectRelease, object, count);
    CM_RT_END(cm_sim_user_object_release(object, count));
}

CM_SIM_EXPORT int cudaGraphRetainUserObject(cm_sim_graph *graph, cm_sim_user_object *object,
                                            unsigned count, unsigned flags)
{
    CM_RT_BEGIN(cudaGraphRetainUserObject, graph, object, count, flags);
    enum { MOVE = 1 };
    CM_RT_END(flags > MOVE ? CM_CUDA_INVALID_VALUE
                           : cm_sim_graph_retain_object(graph, object, count, flags == MOVE));
}

static int check(int device)
{
    return device >= 0 && device < cm_sim_config_get()->devices ? CM_CUDA_OK
                                                                : CM_CUDA_INVALID_DEVICE;
}

CM_SIM_EXPORT int cudaDeviceGetGraphMemAttribute(int device, int attribute, void *value)
{
    CM_RT_BEGIN(cudaDeviceGetGraphMemAttribute, device, attribute, value);
    int result = value ? check(device) : CM_CUDA_INVALID_VALUE;
    CM_RT_END(result ? result : cm_sim_graph_memory_get(device, attribute, value));
}

CM_SIM_EXPORT int cudaDeviceSetGraphMemAttribute(int device, int attribute, void *value)
{
    CM_RT_BEGIN(cudaDeviceSetGraphMemAttribute, device, attribute, value);
    int result = value && !*(uint64_t *)value ? check(device) : CM_CUDA_INVALID_VALUE;
    CM_RT_END(result ? result : cm_sim_graph_memory_reset(device, attribute));
}
