/* What the parts of the simulated cuDNN share: its status numbers and its descriptors. */
#ifndef CM_SIM_CUDNN_H
#define CM_SIM_CUDNN_H

#include "libraries.h"

enum {
    DNN_SUCCESS = 0,
    DNN_BAD_PARAM = 2000,
    DNN_NULL_POINTER = 2002,
    DNN_NOT_FINALIZED = 2004,
    DNN_TOO_SMALL = 2006,
    DNN_NOT_SUPPORTED = 3000,
    DNN_NO_HOST_MEMORY = 4003,
    DNN_NO_DEVICE_MEMORY = 4004
};

enum { DNN_DIMENSIONS = 8 };

/* Tensors and filters. */
typedef struct dnn_tensor {
    int type, format, dimensions;
    int size[DNN_DIMENSIONS], stride[DNN_DIMENSIONS];
} dnn_tensor;

/* Bytes of an element; types of less than a byte count as one. */
size_t cm_sim_dnn_element(int type);
size_t cm_sim_dnn_elements(const dnn_tensor *tensor);

/* The workspace of a convolution: see cudnn_backend.c. */
size_t cm_sim_dnn_copy(size_t elements, int type, bool filter);
size_t cm_sim_dnn_workspace(const char *what, size_t allowance);

#endif
