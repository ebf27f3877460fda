#include "node_size.h"

#include <math.h>
#include <stdlib.h>

enum {
    NODE_BYTES = 800,  /* in the middle, where nothing was measured */
    LEAST_BYTES = 500, /* of measured ones 690 to 1,850: where more or less is in use, ... */
    MOST_BYTES = 1500, /* ... something else grew or shrank, too */
    LEAST_SAMPLES = 4, /* in a loop of 2 s: behind the first ones two a second */
    LEAST_NODES = 200, /* of growth: fewer are lost in what else changes */
    LEAST_PART = 4     /* ... of one pair: such a part of all */
};

void cm_node_size_see(cm_node_size *size, uint64_t nodes, int64_t bytes)
{
    if (size->seen++ % (size->skips + 1) != 0)
        return;
    if (size->count == CM_NODE_SIZE_SAMPLES) { /* every other one stays, and this one would not */
        for (size_t i = 0; i < CM_NODE_SIZE_SAMPLES / 2; i++)
            size->sample[i] = size->sample[2 * i];
        size->count /= 2;
        size->skips = 2 * size->skips + 1;
    }
    size->sample[size->count].nodes = (double)nodes;
    size->sample[size->count++].bytes = (double)bytes;
}

static int compare(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double growth(const cm_node_size *size)
{
    double least = size->sample[0].nodes, most = least;
    for (size_t i = 1; i < size->count; i++) {
        double nodes = size->sample[i].nodes;
        least = nodes < least ? nodes : least;
        most = nodes > most ? nodes : most;
    }
    return most - least;
}

/* The median of the slopes between samples that are half of all apart: what grows once, late in the
 * warm-up, is in few of them. */
int64_t cm_node_size_of(const cm_node_size *size)
{
    double slope[CM_NODE_SIZE_SAMPLES];
    size_t slopes = 0, apart = size->count / 2;
    if (size->count < LEAST_SAMPLES || growth(size) < LEAST_NODES)
        return NODE_BYTES;
    for (size_t i = 0; i + apart < size->count; i++) {
        double nodes = size->sample[i + apart].nodes - size->sample[i].nodes;
        if (fabs(nodes) * LEAST_PART >= growth(size))
            slope[slopes++] = (size->sample[i + apart].bytes - size->sample[i].bytes) / nodes;
    }
    if (slopes == 0)
        return NODE_BYTES;
    qsort(slope, slopes, sizeof *slope, compare);
    double middle = (slope[(slopes - 1) / 2] + slope[slopes / 2]) / 2;
    return middle < LEAST_BYTES ? LEAST_BYTES : middle > MOST_BYTES ? MOST_BYTES : (int64_t)middle;
}
