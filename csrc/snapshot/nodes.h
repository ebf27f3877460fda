/* Backward passes, as stacks show them. The frames of C++ (stacks="all") name the autograd node
 * that ran; without them, what autograd's own thread allocates has no frames, or only those of a
 * function with a backward of its own. */
#ifndef CM_SNAPSHOT_NODES_H
#define CM_SNAPSHOT_NODES_H

#include "snapshot.h"

typedef struct cm_snap_node {
    uint32_t name;     /* text; 0: unknown */
    bool ran;          /* a node was running */
    bool accumulates;  /* it was AccumulateGrad */
    bool in_python;    /* ... and ran Python itself: the line is the node's own */
    uint8_t label;     /* cm_label_kind, of the block: a workspace, or moved; 0: none */
    bool charged;      /* cuptimem wrote it: the stack is that of the node's forward line */
    uint32_t operator; /* text: the operator that cuptimem recorded; 0: none */
} cm_snap_node;

typedef struct cm_snap_nodes {
    cm_snap *snapshot;
    uint32_t *name; /* of a frame that runs a node: text + 1 */
    bool native;    /* some frames are of C++ */
    bool stacks;    /* some allocations have frames */
} cm_snap_nodes;

/* Adds the names of nodes to the snapshot's texts. false: out of memory. */
bool cm_snap_nodes_init(cm_snap_nodes *nodes, cm_snap *snapshot);
void cm_snap_nodes_clear(cm_snap_nodes *nodes);

/* What runs where an allocation has this stack. */
cm_snap_node cm_snap_node_of(const cm_snap_nodes *nodes, uint32_t stack);

#endif
