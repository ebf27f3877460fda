/* Objects of the program that live as long as a graph. */
#include "objects_graph_parts.h"

#include <stdlib.h>

struct __attribute__((aligned(64))) cm_sim_user_object {
    cm_sim_slot slot;
    atomic_uint references;
    cm_cuda_host_function destroy;
    void *data;
};

static cm_sim_table user_objects = CM_SIM_TABLE(cm_sim_user_object);

int cm_sim_user_object_new(void *data, cm_cuda_host_function destroy, unsigned references,
                           cm_sim_user_object **object)
{
    if (!object || !destroy || !references || references > INT32_MAX)
        return CM_CUDA_INVALID_VALUE;
    cm_sim_user_object *made = cm_sim_table_take(&user_objects);
    if (!made)
        return CM_CUDA_OUT_OF_MEMORY;
    made->destroy = destroy;
    made->data = data;
    atomic_store(&made->references, references);
    *object = made;
    return CM_CUDA_OK;
}

int cm_sim_user_object_retain(cm_sim_user_object *object, unsigned count)
{
    if (!cm_sim_table_has(&user_objects, object) || !count || count > INT32_MAX)
        return CM_CUDA_INVALID_VALUE;
    atomic_fetch_add(&object->references, count);
    return CM_CUDA_OK;
}

int cm_sim_user_object_release(cm_sim_user_object *object, unsigned count)
{
    if (!cm_sim_table_has(&user_objects, object) || !count)
        return CM_CUDA_INVALID_VALUE;
    unsigned now = atomic_load(&object->references);
    do {
        if (now < count)
            return CM_CUDA_INVALID_VALUE;
    } while (!atomic_compare_exchange_weak(&object->references, &now, now - count));
    if (now == count) {
        object->destroy(object->data);
        cm_sim_table_drop(&user_objects, object);
    }
    return CM_CUDA_OK;
}

static bool keep(cm_sim_graph *graph, cm_sim_user_object *object, unsigned count)
{
    struct cm_sim_kept *wider = realloc(graph->kept, (graph->kept_count + 1) * sizeof *wider);
    if (!wider)
        return false;
    graph->kept = wider;
    wider[graph->kept_count++] = (struct cm_sim_kept){object, count};
    return true;
}

int cm_sim_graph_retain_object(cm_sim_graph *graph, cm_sim_user_object *object, unsigned count,
                               bool move)
{
    if (!cm_sim_graph_live(graph) || !cm_sim_table_has(&user_objects, object) || !count)
        return CM_CUDA_INVALID_VALUE;
    if (!keep(graph, object, count))
        return CM_CUDA_OUT_OF_MEMORY;
    return move ? CM_CUDA_OK : cm_sim_user_object_retain(object, count);
}

int cm_sim_graph_keep_like(cm_sim_graph *graph, const cm_sim_graph *from)
{
    int result = CM_CUDA_OK;
    for (size_t i = 0; !result && i < from->kept_count; i++) {
        const struct cm_sim_kept *kept = &from->kept[i];
        if (!keep(graph, kept->object, kept->count))
            result = CM_CUDA_OUT_OF_MEMORY;
        else
            result = cm_sim_user_object_retain(kept->object, kept->count);
    }
    return result;
}

void cm_sim_graph_keep_none(cm_sim_graph *graph)
{
    for (size_t i = 0; i < graph->kept_count; i++)
        (void)cm_sim_user_object_release(graph->kept[i].object, graph->kept[i].count);
    free(graph->kept);
}
