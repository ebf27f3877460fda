/* Which nodes a graph has, and which of them come behind which. */
#include "objects_graph_parts.h"

#include <stdlib.h>
#include <string.h>

static bool make_room(cm_sim_nodes *list, size_t count)
{
    if (count <= list->room)
        return true;
    cm_sim_node **wider = realloc(list->list, count * sizeof *wider);
    if (!wider)
        return false;
    list->list = wider;
    list->room = count;
    return true;
}

bool cm_sim_nodes_set(cm_sim_nodes *list, cm_sim_node *const *from, size_t count)
{
    if (!make_room(list, count))
        return false;
    if (count)
        memmove(list->list, from, count * sizeof *from);
    list->count = count;
    return true;
}

bool cm_sim_nodes_add(cm_sim_nodes *list, cm_sim_node *const *from, size_t count)
{
    if (!make_room(list, list->count + count))
        return false;
    for (size_t i = 0; i < count; i++) {
        size_t j = 0;
        while (j < list->count && list->list[j] != from[i])
            j++;
        if (j == list->count)
            list->list[list->count++] = from[i];
    }
    return true;
}

void cm_sim_nodes_clear(cm_sim_nodes *list)
{
    free(list->list);
    *list = (cm_sim_nodes){0};
}

bool cm_sim_graph_reaches(cm_sim_graph *graph, const cm_sim_nodes *from, const cm_sim_nodes *wanted)
{
    cm_sim_nodes open = {0};
    uint32_t mark = ++graph->mark;
    bool reached = cm_sim_nodes_set(&open, from->list, from->count);
    for (size_t i = 0; reached && i < open.count; i++)
        open.list[i]->mark = mark;
    while (reached && open.count) {
        cm_sim_node *node = open.list[--open.count];
        for (size_t i = 0; reached && i < node->after.count; i++) {
            cm_sim_node *before = node->after.list[i];
            if (before->mark == mark)
                continue;
            before->mark = mark;
            /* Grows by doubling: make_room takes what it is asked for. */
            reached = open.count < open.room || make_room(&open, 2 * open.count + 16);
            if (reached)
                open.list[open.count++] = before;
        }
    }
    for (size_t i = 0; reached && i < wanted->count; i++)
        reached = wanted->list[i]->mark == mark;
    cm_sim_nodes_clear(&open);
    return reached;
}

static int answer(cm_sim_node *const *list, size_t there, cm_sim_node **out, size_t *count)
{
    if (!count)
        return CM_CUDA_INVALID_VALUE;
    if (out)
        for (size_t i = 0; i < *count; i++)
            out[i] = i < there ? list[i] : NULL;
    if (!out || *count > there)
        *count = there;
    return CM_CUDA_OK;
}

int cm_sim_graph_nodes(cm_sim_graph *graph, cm_sim_node **out, size_t *count)
{
    if (!cm_sim_graph_live(graph))
        return CM_CUDA_INVALID_VALUE;
    return answer(graph->nodes, graph->count, out, count);
}

int cm_sim_graph_roots(cm_sim_graph *graph, cm_sim_node **out, size_t *count)
{
    if (!cm_sim_graph_live(graph))
        return CM_CUDA_INVALID_VALUE;
    cm_sim_nodes roots = {0};
    int result = CM_CUDA_OK;
    for (size_t i = 0; !result && i < graph->count; i++)
        if (!graph->nodes[i]->after.count && !cm_sim_nodes_add(&roots, &graph->nodes[i], 1))
            result = CM_CUDA_OUT_OF_MEMORY;
    if (!result)
        result = answer(roots.list, roots.count, out, count);
    cm_sim_nodes_clear(&roots);
    return result;
}

int cm_sim_node_before(cm_sim_node *node, cm_sim_node **out, size_t *count)
{
    if (!cm_sim_node_live(node))
        return CM_CUDA_INVALID_VALUE;
    return answer(node->after.list, node->after.count, out, count);
}

int cm_sim_node_behind(cm_sim_node *node, cm_sim_node **out, size_t *count)
{
    if (!cm_sim_node_live(node))
        return CM_CUDA_INVALID_VALUE;
    cm_sim_nodes behind = {0};
    int result = CM_CUDA_OK;
    const cm_sim_graph *graph = node->graph;
    for (size_t i = 0; !result && i < graph->count; i++)
        for (size_t j = 0; !result && j < graph->nodes[i]->after.count; j++)
            if (graph->nodes[i]->after.list[j] == node &&
                !cm_sim_nodes_add(&behind, &graph->nodes[i], 1))
                result = CM_CUDA_OUT_OF_MEMORY;
    if (!result)
        result = answer(behind.list, behind.count, out, count);
    cm_sim_nodes_clear(&behind);
    return result;
}

int cm_sim_graph_edges(cm_sim_graph *graph, cm_sim_node **from, cm_sim_node **to, size_t *count)
{
    if (!cm_sim_graph_live(graph) || !count || !from != !to)
        return CM_CUDA_INVALID_VALUE;
    size_t there = 0;
    for (size_t i = 0; i < graph->count; i++)
        for (size_t j = 0; j < graph->nodes[i]->after.count; j++, there++)
            if (from && there < *count) {
                from[there] = graph->nodes[i]->after.list[j];
                to[there] = graph->nodes[i];
            }
    if (!from || *count > there)
        *count = there;
    return CM_CUDA_OK;
}
