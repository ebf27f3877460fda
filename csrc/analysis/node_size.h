/* What a graph node takes of the process with its share of the graph: what is in use beside tensors
 * grows with the nodes that are alive. A node's own size depends on its class and on whether a
 * backward pass has dropped what it saved, so that no constant fits. */
#ifndef CM_ANALYSIS_NODE_SIZE_H
#define CM_ANALYSIS_NODE_SIZE_H

#include <stdint.h>

/* Sums for a least-squares line; zero-initialized. */
typedef struct cm_node_size {
    uint64_t samples;
    double least, most;    /* nodes */
    double nodes0, bytes0; /* of the first sample: the sums are of differences from it */
    double nodes, bytes, squares, products;
} cm_node_size;

void cm_node_size_see(cm_node_size *size, uint64_t nodes, int64_t bytes);
/* An estimate; a constant where samples are few or the nodes do not grow. */
int64_t cm_node_size_of(const cm_node_size *size);

#endif
