/* What the files of graphs know of each other. */
#ifndef CM_SIM_OBJECTS_GRAPH_PARTS_H
#define CM_SIM_OBJECTS_GRAPH_PARTS_H

#include "objects_graph.h"

/* --- objects_graph.c -------------------------------------------------------------------------- */

struct __attribute__((aligned(128))) cm_sim_graph {
    cm_sim_slot slot;
    cm_sim_node **nodes;
    size_t count, room;
    size_t others; /* nodes that are no kernels */
    bool owned;    /* by a node or an executable: not the program's to destroy */
    uint32_t mark;
    struct cm_sim_kept {
        cm_sim_user_object *object;
        unsigned count;
    } * kept;
    size_t kept_count;
    struct cm_sim_graph_memory *memory;
};

void cm_sim_graph_empty(cm_sim_graph *graph); /* it ends, whatever owns it */
/* For a node or an executable: a copy that is not the program's to destroy. */
int cm_sim_graph_copy(const cm_sim_graph *from, cm_sim_graph **copy);

/* --- objects_graph_node.c --------------------------------------------------------------------- */

struct __attribute__((aligned(128))) cm_sim_node {
    cm_sim_slot slot;
    cm_sim_graph *graph;
    int type;
    uint32_t index; /* in its graph */
    uint32_t mark;
    cm_sim_nodes after;
    union {
        struct {
            const void *function;
            cm_cuda_dim3 grid, block;
            unsigned shared;
        } kernel;
        cm_cuda_copy3d *copy;
        cm_cuda_set_node set;
        cm_cuda_host_node host;
        cm_sim_graph *child;
        cm_sim_event *event;
        struct {
            void *address;
            size_t bytes;
        } memory;
    };
};

/* Not yet among its graph's. NULL: no memory. */
cm_sim_node *cm_sim_node_new(cm_sim_graph *graph, int type, cm_sim_node *const *after,
                             size_t count);
void cm_sim_node_delete(cm_sim_node *node); /* its graph forgets it by itself */
/* What a node is to do, from the program's words or from another node. */
int cm_sim_node_fill(cm_sim_node *node, cm_cuda_node_params *params);
int cm_sim_node_fill_like(cm_sim_node *node, const cm_sim_node *from);

/* --- objects_graph_order.c -------------------------------------------------------------------- */

/* --- objects_graph_exec.c --------------------------------------------------------------------- */

/* --- objects_graph_memory.c ------------------------------------------------------------------- */

int cm_sim_graph_memory_take(cm_sim_graph *graph, int device, size_t bytes, void **address);
/* A free node of the graph: a later node may have it. */
int cm_sim_graph_memory_give(const cm_sim_graph *graph, const void *address);
/* One more graph or executable stands on it, one less. NULL: none has any. */
void cm_sim_graph_memory_join(struct cm_sim_graph_memory *memory);
void cm_sim_graph_memory_leave(struct cm_sim_graph_memory *memory);

/* --- objects_graph_keep.c --------------------------------------------------------------------- */

/* Objects of the program: retains all that `from` has. */
int cm_sim_graph_keep_like(cm_sim_graph *graph, const cm_sim_graph *from);
void cm_sim_graph_keep_none(cm_sim_graph *graph);

#endif
