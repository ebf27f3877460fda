/* CUDA arrays: memory with a shape. Here it lies row after row, without gaps, level after level. */
#ifndef CM_SIM_OBJECTS_ARRAY_H
#define CM_SIM_OBJECTS_ARRAY_H

#include <stdbool.h>
#include <stddef.h>

#include "cupti_hooks.h"

typedef struct cm_sim_array cm_sim_array;

/* CUDA_ARRAY3D_DESCRIPTOR. Formats and flags have the same numbers in the driver and the runtime.
 */
typedef struct cm_sim_shape {
    size_t width, height, depth;
    int format;
    unsigned channels;
    unsigned flags;
} cm_sim_shape;

/* On the calling thread's device, which has a context. levels 0: an array, else a mipmapped one of
 * at most that many. Reports to CUPTI within `call`. */
int cm_sim_array_new(const cm_sim_call *call, const cm_sim_shape *shape, unsigned levels,
                     cm_sim_array **array);
/* A level goes with its mipmapped array. CM_SIM_INVALID_HANDLE: no such array, or of the other
 * kind. */
int cm_sim_array_delete(const cm_sim_call *call, cm_sim_array *array, bool mipmapped);
/* CM_SIM_INVALID_VALUE: it has no such level. */
int cm_sim_array_level(cm_sim_array *mipmapped, unsigned level, cm_sim_array **array);
/* NULL: not an array, or destroyed. width in bytes; of blocks, where the format has such. */
void *cm_sim_array_memory(cm_sim_array *array, size_t *width, size_t *height, size_t *depth);

/* What lives in a context is about to be given back. */
void cm_sim_arrays_end(int device, unsigned context);

#endif
