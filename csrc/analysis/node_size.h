/* What a graph node takes of the process with its share of the graph: what is in use beside tensors
 * grows with the nodes that are alive. A node's own size depends on its class and on whether a
 * backward pass has dropped what it saved, so that no constant fits. */
#ifndef CM_ANALYSIS_NODE_SIZE_H
#define CM_ANALYSIS_NODE_SIZE_H

#include <stddef.h>
#include <stdint.h>

enum { CM_NODE_SIZE_SAMPLES = 256 };

/* Samples at equal distances; zero-initialized. */
typedef struct cm_node_size {
    struct {
        double nodes, bytes;
    } sample[CM_NODE_SIZE_SAMPLES];
    size_t count;
    uint64_t seen, skips; /* after each sample that stays so many do not */
} cm_node_size;

void cm_node_size_see(cm_node_size *size, uint64_t nodes, int64_t bytes);
/* An estimate; a constant where samples are few or the nodes do not grow. */
int64_t cm_node_size_of(const cm_node_size *size);

#endif
