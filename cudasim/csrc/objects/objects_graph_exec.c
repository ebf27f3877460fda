/* Executables: copies of graphs. A node's predecessors were there before it: their order is one in
 * which they can be done.
 *
 * A launch does what the nodes say: kernels are counted, copies and fills are made, host functions
 * are called. */
#include "objects_graph_parts.h"
#include "cupti_hooks.h"

struct __attribute__((aligned(64))) cm_sim_exec {
    cm_sim_slot slot;
    cm_sim_graph *graph; /* a copy of what it was made of */
    unsigned long long flags;
};

static cm_sim_table execs = CM_SIM_TABLE(cm_sim_exec);

bool cm_sim_exec_live(const cm_sim_exec *exec)
{
    return cm_sim_table_has(&execs, exec);
}

int cm_sim_graph_instantiate(cm_sim_graph *graph, unsigned long long flags, cm_sim_exec **exec)
{
    enum { FLAGS = 15 };
    cm_sim_graph *copy;
    if (!exec || (flags & ~(unsigned long long)FLAGS) || !cm_sim_graph_live(graph))
        return CM_CUDA_INVALID_VALUE;
    int result = cm_sim_graph_copy(graph, &copy);
    if (result)
        return result;
    cm_sim_exec *made = cm_sim_table_take(&execs);
    if (!made) {
        cm_sim_graph_empty(copy);
        return CM_CUDA_OUT_OF_MEMORY;
    }
    made->graph = copy;
    *exec = made;
    return CM_CUDA_OK;
}

int cm_sim_exec_delete(cm_sim_exec *exec)
{
    if (!cm_sim_exec_live(exec))
        return CM_CUDA_INVALID_VALUE;
    cm_sim_graph_empty(exec->graph);
    cm_sim_table_drop(&execs, exec);
    return CM_CUDA_OK;
}

static int perform(const cm_sim_graph *graph, cm_sim_stream *stream, const cm_sim_call *call)
{
    int result = CM_CUDA_OK;
    if (!graph->others && !call) {
        for (size_t i = 0; i < graph->count; i++)
            cm_sim_stream_launched(stream);
        return CM_CUDA_OK;
    }
    for (size_t i = 0; !result && i < graph->count; i++) {
        const cm_sim_node *node = graph->nodes[i];
        switch (node->type) {
        case CM_CUDA_NODE_KERNEL:
            cm_sim_stream_launched(stream);
            if (call) {
                const cm_cuda_dim3 *g = &node->kernel.grid, *b = &node->kernel.block;
                cm_sim_record_kernel(call, cm_sim_function_name(node->kernel.function),
                                     (unsigned[]){g->x, g->y, g->z}, (unsigned[]){b->x, b->y, b->z},
                                     node->kernel.shared, stream);
            }
            break;
        case CM_CUDA_NODE_COPY:
            result = cm_sim_copy3d(node->copy);
            break;
        case CM_CUDA_NODE_SET:
            result = cm_sim_set2d(&node->set);
            break;
        case CM_CUDA_NODE_HOST:
            node->host.fn(node->host.userData);
            break;
        case CM_CUDA_NODE_GRAPH:
            result = perform(node->child, stream, call);
            break;
        case CM_CUDA_NODE_RECORD_EVENT:
            result = cm_sim_event_record(node->event, stream, 0);
            break;
        default:
            break;
        }
    }
    return result;
}

int cm_sim_exec_launch(cm_sim_exec *exec, cm_sim_stream *handle, const cm_sim_call *call)
{
    bool capturing;
    int result = CM_CUDA_OK;
    if (!cm_sim_exec_live(exec))
        return CM_CUDA_INVALID_VALUE;
    cm_sim_stream *stream = cm_sim_stream_work(handle, &capturing, &result);
    if (!stream)
        return result;
    if (capturing) {
        cm_cuda_node_params params = {.type = CM_CUDA_NODE_GRAPH, .graph = {exec->graph, 0}};
        return cm_sim_capture_add(stream, &params, NULL);
    }
    result = perform(exec->graph, stream, call);
    /* Memory that the graph's copies name and that is gone: a fault on the device, which spoils
     * its context for good. */
    if (result == CM_CUDA_INVALID_VALUE) {
        cm_sim_device_break(stream->device, CM_CUDA_ILLEGAL_ADDRESS);
        result = CM_CUDA_ILLEGAL_ADDRESS;
    }
    return result;
}
