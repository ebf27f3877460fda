/* Nodes of graphs, and what each is to do. */
#include "objects_graph_parts.h"
#include "../core/sim.h"

#include <stdlib.h>
#include <string.h>

static cm_sim_table nodes = CM_SIM_TABLE(cm_sim_node);

bool cm_sim_node_live(const cm_sim_node *node)
{
    return cm_sim_table_has(&nodes, node);
}

bool cm_sim_node_in(const cm_sim_node *node, const cm_sim_graph *graph)
{
    return cm_sim_node_live(node) && node->graph == graph;
}

cm_sim_node *cm_sim_node_new(cm_sim_graph *graph, int type, cm_sim_node *const *after, size_t count)
{
    cm_sim_node *made = cm_sim_table_take(&nodes);
    if (!made)
        return NULL;
    made->graph = graph;
    made->type = type;
    made->index = (uint32_t)graph->count;
    if (!cm_sim_nodes_add(&made->after, after, count)) {
        cm_sim_table_drop(&nodes, made);
        return NULL;
    }
    return made;
}

void cm_sim_node_delete(cm_sim_node *node)
{
    if (node->type == CM_CUDA_NODE_COPY)
        free(node->copy);
    else if (node->type == CM_CUDA_NODE_GRAPH && node->child)
        cm_sim_graph_empty(node->child);
    cm_sim_nodes_clear(&node->after);
    cm_sim_table_drop(&nodes, node);
}

int cm_sim_node_fill(cm_sim_node *node, cm_cuda_node_params *params)
{
    switch (params->type) {
    case CM_CUDA_NODE_KERNEL:
        node->kernel.function = params->kernel.func;
        node->kernel.grid = params->kernel.gridDim;
        node->kernel.block = params->kernel.blockDim;
        node->kernel.shared = params->kernel.sharedMemBytes;
        return params->kernel.func ? CM_CUDA_OK : CM_CUDA_INVALID_VALUE;
    case CM_CUDA_NODE_COPY:
        if (params->memcpy.copyParams.srcArray || params->memcpy.copyParams.dstArray) {
            cm_sim_note(CM_SIM_NOTE_REFUSED, "CUDA arrays", 0);
            return CM_CUDA_NOT_SUPPORTED;
        }
        node->copy = malloc(sizeof *node->copy);
        if (!node->copy)
            return CM_CUDA_OUT_OF_MEMORY;
        *node->copy = params->memcpy.copyParams;
        return CM_CUDA_OK;
    case CM_CUDA_NODE_SET:
        node->set = params->memset;
        return CM_CUDA_OK;
    case CM_CUDA_NODE_HOST:
        node->host = params->host;
        return params->host.fn ? CM_CUDA_OK : CM_CUDA_INVALID_VALUE;
    case CM_CUDA_NODE_GRAPH:
        if (!cm_sim_graph_live(params->graph.graph))
            return CM_CUDA_INVALID_VALUE;
        return cm_sim_graph_copy(params->graph.graph, &node->child);
    case CM_CUDA_NODE_EMPTY:
        return CM_CUDA_OK;
    case CM_CUDA_NODE_WAIT_EVENT:
    case CM_CUDA_NODE_RECORD_EVENT:
        node->event = params->eventRecord.event;
        return cm_sim_event_live(node->event) ? CM_CUDA_OK : CM_CUDA_INVALID_VALUE;
    case CM_CUDA_NODE_ALLOC: {
        int result = cm_sim_graph_memory_take(node->graph, params->alloc.poolProps.location.id,
                                              params->alloc.bytesize, &node->memory.address);
        node->memory.bytes = params->alloc.bytesize;
        params->alloc.dptr = result ? NULL : node->memory.address;
        return result;
    }
    case CM_CUDA_NODE_FREE:
        node->memory.address = params->free.dptr;
        return cm_sim_graph_memory_give(node->graph, params->free.dptr);
    case CM_CUDA_NODE_CONDITIONAL:
        /* Which branch runs is decided by a kernel, and kernels do nothing. */
        cm_sim_note(CM_SIM_NOTE_REFUSED, "conditional nodes of CUDA graphs", 0);
        return CM_CUDA_NOT_SUPPORTED;
    case CM_CUDA_NODE_SIGNAL:
    case CM_CUDA_NODE_WAIT:
        cm_sim_note(CM_SIM_NOTE_REFUSED, "external semaphores", 0);
        return CM_CUDA_NOT_SUPPORTED;
    default:
        return CM_CUDA_INVALID_VALUE;
    }
}

int cm_sim_node_fill_like(cm_sim_node *node, const cm_sim_node *from)
{
    switch (from->type) {
    case CM_CUDA_NODE_COPY:
        node->copy = malloc(sizeof *node->copy);
        if (!node->copy)
            return CM_CUDA_OUT_OF_MEMORY;
        *node->copy = *from->copy;
        return CM_CUDA_OK;
    case CM_CUDA_NODE_GRAPH:
        return cm_sim_graph_copy(from->child, &node->child);
    default:
        memcpy(&node->kernel, &from->kernel, sizeof *node - offsetof(struct cm_sim_node, kernel));
        return CM_CUDA_OK;
    }
}

int cm_sim_node_type(const cm_sim_node *node, int *type)
{
    if (!cm_sim_node_live(node) || !type)
        return CM_CUDA_INVALID_VALUE;
    *type = node->type;
    return CM_CUDA_OK;
}
