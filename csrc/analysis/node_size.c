#include "node_size.h"

enum {
    NODE_BYTES = 800,  /* in the middle, where nothing was measured */
    LEAST_BYTES = 500, /* of measured ones 650 to 1,420: where more or less is in use, ... */
    MOST_BYTES = 1500, /* ... something else grew or shrank, too */
    LEAST_SAMPLES = 8,
    LEAST_NODES = 200 /* of growth: fewer are lost in what else changes */
};

void cm_node_size_see(cm_node_size *size, uint64_t nodes, int64_t bytes)
{
    double count = (double)nodes;
    if (size->samples++ == 0) {
        size->least = size->most = size->nodes0 = count;
        size->bytes0 = (double)bytes;
    }
    if (count < size->least)
        size->least = count;
    if (count > size->most)
        size->most = count;
    double x = count - size->nodes0, y = (double)bytes - size->bytes0;
    size->nodes += x;
    size->bytes += y;
    size->squares += x * x;
    size->products += x * y;
}

int64_t cm_node_size_of(const cm_node_size *size)
{
    double n = (double)size->samples;
    if (size->samples < LEAST_SAMPLES || size->most - size->least < LEAST_NODES)
        return NODE_BYTES;
    double spread = n * size->squares - size->nodes * size->nodes;
    double slope = spread > 0 ? (n * size->products - size->nodes * size->bytes) / spread : 0;
    return slope < LEAST_BYTES ? LEAST_BYTES : slope > MOST_BYTES ? MOST_BYTES : (int64_t)slope;
}
