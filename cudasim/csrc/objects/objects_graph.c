/* Graphs: nodes in the order in which they were made, each with those it comes behind. What the
 * nodes are to do is in objects_graph_node.c, a launch of them all in objects_graph_exec.c. */
#include "objects_graph_parts.h"

#include <stdlib.h>

static cm_sim_table graphs = CM_SIM_TABLE(cm_sim_graph);

bool cm_sim_graph_live(const cm_sim_graph *graph)
{
    return cm_sim_table_has(&graphs, graph);
}

int cm_sim_graph_new(cm_sim_graph **graph)
{
    if (!graph)
        return CM_CUDA_INVALID_VALUE;
    *graph = cm_sim_table_take(&graphs);
    return *graph ? CM_CUDA_OK : CM_CUDA_OUT_OF_MEMORY;
}

void cm_sim_graph_empty(cm_sim_graph *graph)
{
    for (size_t i = 0; i < graph->count; i++)
        cm_sim_node_delete(graph->nodes[i]);
    cm_sim_graph_keep_none(graph);
    cm_sim_graph_memory_leave(graph->memory);
    free(graph->nodes);
    cm_sim_table_drop(&graphs, graph);
}

int cm_sim_graph_delete(cm_sim_graph *graph)
{
    if (!cm_sim_graph_live(graph) || graph->owned)
        return CM_CUDA_INVALID_VALUE;
    cm_sim_graph_empty(graph);
    return CM_CUDA_OK;
}

static int append(cm_sim_graph *graph, int type, cm_sim_node *const *after, size_t count,
                  cm_sim_node **node)
{
    if (graph->count == graph->room) {
        size_t room = graph->room ? 2 * graph->room : 16;
        cm_sim_node **wider = realloc(graph->nodes, room * sizeof *wider);
        if (!wider)
            return CM_CUDA_OUT_OF_MEMORY;
        graph->nodes = wider;
        graph->room = room;
    }
    cm_sim_node *made = cm_sim_node_new(graph, type, after, count);
    if (!made)
        return CM_CUDA_OUT_OF_MEMORY;
    graph->nodes[graph->count++] = made;
    graph->others += type != CM_CUDA_NODE_KERNEL;
    *node = made;
    return CM_CUDA_OK;
}

int cm_sim_graph_add(cm_sim_graph *graph, cm_sim_node *const *after, size_t count,
                     cm_cuda_node_params *params, cm_sim_node **node)
{
    if (!cm_sim_graph_live(graph) || !params || (count && !after))
        return CM_CUDA_INVALID_VALUE;
    for (size_t i = 0; i < count; i++)
        if (!cm_sim_node_in(after[i], graph))
            return CM_CUDA_INVALID_VALUE;
    cm_sim_node *made;
    int result = append(graph, params->type, after, count, &made);
    if (result)
        return result;
    result = cm_sim_node_fill(made, params);
    if (result) {
        graph->count--;
        graph->others -= made->type != CM_CUDA_NODE_KERNEL;
        cm_sim_node_delete(made);
    } else if (node) {
        *node = made;
    }
    return result;
}

/* Nodes keep their index, which is what joins a copy's node to its original: in an executable's
 * graph that was sorted it is not their place. */
static int copy_nodes(const cm_sim_graph *from, cm_sim_graph *copy, cm_sim_node **by_index)
{
    for (size_t i = 0; i < from->count; i++) {
        const cm_sim_node *node = from->nodes[i];
        cm_sim_node *made;
        int result = append(copy, node->type, NULL, 0, &made);
        if (!result)
            result = cm_sim_node_fill_like(made, node);
        if (result)
            return result;
        made->index = node->index;
        by_index[made->index] = made;
    }
    /* Only now are all there. */
    for (size_t i = 0; i < from->count; i++) {
        const cm_sim_nodes *after = &from->nodes[i]->after;
        for (size_t j = 0; j < after->count; j++)
            if (!cm_sim_nodes_add(&copy->nodes[i]->after, &by_index[after->list[j]->index], 1))
                return CM_CUDA_OUT_OF_MEMORY;
    }
    return CM_CUDA_OK;
}

int cm_sim_graph_copy(const cm_sim_graph *from, cm_sim_graph **copy)
{
    cm_sim_graph *made;
    int result = cm_sim_graph_new(&made);
    if (result)
        return result;
    made->owned = true;
    cm_sim_node **by_index = malloc((from->count + 1) * sizeof *by_index);
    result = by_index ? copy_nodes(from, made, by_index) : CM_CUDA_OUT_OF_MEMORY;
    free(by_index);
    if (!result)
        result = cm_sim_graph_keep_like(made, from);
    if (result) {
        cm_sim_graph_empty(made);
        return result;
    }
    made->memory = from->memory;
    cm_sim_graph_memory_join(made->memory);
    *copy = made;
    return CM_CUDA_OK;
}
