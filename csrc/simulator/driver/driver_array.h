/* CUDA arrays: memory with a shape. Here it lies row after row, without gaps. */
#ifndef CM_SIM_DRIVER_ARRAY_H
#define CM_SIM_DRIVER_ARRAY_H

#include <stddef.h>

typedef struct cm_cu_array cm_cu_array;

/* NULL: not an array, or destroyed. width in bytes. */
void *cm_cu_array_memory(cm_cu_array *array, size_t *width, size_t *height, size_t *depth);

#endif
