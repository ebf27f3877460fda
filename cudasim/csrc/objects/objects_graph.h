/* What the entry points ask of graphs beyond objects.h. */
#ifndef CM_SIM_OBJECTS_GRAPH_H
#define CM_SIM_OBJECTS_GRAPH_H

#include "objects_stream.h"

bool cm_sim_graph_live(const cm_sim_graph *graph);
bool cm_sim_exec_live(const cm_sim_exec *exec);
bool cm_sim_node_live(const cm_sim_node *node);

/* As CUDA answers such questions: *count is how many fit and becomes how many there are. */
int cm_sim_graph_nodes(cm_sim_graph *graph, cm_sim_node **out, size_t *count);
int cm_sim_graph_roots(cm_sim_graph *graph, cm_sim_node **out, size_t *count);
int cm_sim_graph_edges(cm_sim_graph *graph, cm_sim_node **from, cm_sim_node **to, size_t *count);
int cm_sim_node_before(cm_sim_node *node, cm_sim_node **out, size_t *count);
int cm_sim_node_behind(cm_sim_node *node, cm_sim_node **out, size_t *count);
int cm_sim_node_type(const cm_sim_node *node, int *type);

int cm_sim_user_object_new(void *data, cm_cuda_host_function destroy, unsigned references,
                           cm_sim_user_object **object);
int cm_sim_user_object_retain(cm_sim_user_object *object, unsigned count);
int cm_sim_user_object_release(cm_sim_user_object *object, unsigned count);
int cm_sim_graph_retain_object(cm_sim_graph *graph, cm_sim_user_object *object, unsigned count,
                               bool move);

/* Memory of a graph that the program frees outside of it. false: it is no graph's. */
bool cm_sim_graph_memory_free(const void *address);
int cm_sim_graph_memory_get(int device, int attribute, uint64_t *value);
int cm_sim_graph_memory_reset(int device, int attribute); /* a high mark to what is now */

#endif
