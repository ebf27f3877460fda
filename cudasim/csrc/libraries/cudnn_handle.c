/* cuDNN: handles, versions, errors, and the descriptors of tensors and filters. */

#include "cudnn.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct dnn {
    void *charge; /* what the handle takes of the device */
    void *stream;
} dnn;

CM_SIM_EXPORT int cudnnCreate(dnn **handle)
{
    CM_SIM_ENTRY;
    if (!handle)
        return DNN_NULL_POINTER;
    *handle = NULL;
    dnn *made = calloc(1, sizeof *made);
    if (!made)
        return DNN_NO_HOST_MEMORY;
    made->charge = cm_sim_handle_new("cuDNN");
    if (!made->charge) {
        free(made);
        return DNN_NO_DEVICE_MEMORY;
    }
    *handle = made;
    return DNN_SUCCESS;
}

CM_SIM_EXPORT int cudnnDestroy(dnn *handle)
{
    CM_SIM_ENTRY;
    if (!handle)
        return DNN_NULL_POINTER;
    cm_sim_handle_free(handle->charge);
    free(handle);
    return DNN_SUCCESS;
}

CM_SIM_EXPORT int cudnnSetStream(dnn *handle, void *stream)
{
    CM_SIM_ENTRY;
    if (!handle)
        return DNN_NULL_POINTER;
    handle->stream = stream;
    return DNN_SUCCESS;
}

CM_SIM_EXPORT int cudnnGetStream(const dnn *handle, void **stream)
{
    CM_SIM_ENTRY;
    if (!handle || !stream)
        return DNN_NULL_POINTER;
    *stream = handle->stream;
    return DNN_SUCCESS;
}

CM_SIM_EXPORT size_t cudnnGetVersion(void)
{
    CM_SIM_ENTRY;
    return CM_SIM_CUDNN_VERSION;
}

CM_SIM_EXPORT size_t cudnnGetCudartVersion(void)
{
    CM_SIM_ENTRY;
    return (size_t)cm_sim_runtime_version();
}

CM_SIM_EXPORT int cudnnGetProperty(int property, int *value)
{
    CM_SIM_ENTRY;
    return cm_sim_property(CM_SIM_CUDNN_VERSION, 10000, property, value, DNN_BAD_PARAM);
}

CM_SIM_EXPORT const char *cudnnGetErrorString(int status)
{
    CM_SIM_ENTRY;
    switch (status) {
    case DNN_SUCCESS:
        return "CUDNN_STATUS_SUCCESS";
    case DNN_BAD_PARAM:
        return "CUDNN_STATUS_BAD_PARAM";
    case DNN_NULL_POINTER:
        return "CUDNN_STATUS_BAD_PARAM_NULL_POINTER";
    case DNN_NOT_FINALIZED:
        return "CUDNN_STATUS_BAD_PARAM_NOT_FINALIZED";
    case DNN_TOO_SMALL:
        return "CUDNN_STATUS_BAD_PARAM_SIZE_INSUFFICIENT";
    case DNN_NOT_SUPPORTED:
        return "CUDNN_STATUS_NOT_SUPPORTED";
    case DNN_NO_HOST_MEMORY:
        return "CUDNN_STATUS_INTERNAL_ERROR_HOST_ALLOCATION_FAILED";
    case DNN_NO_DEVICE_MEMORY:
        return "CUDNN_STATUS_INTERNAL_ERROR_DEVICE_ALLOCATION_FAILED";
    default:
        return "CUDNN_UNKNOWN_STATUS";
    }
}

CM_SIM_EXPORT void cudnnGetLastErrorString(char *message, size_t size)
{
    CM_SIM_ENTRY;
    if (message && size)
        snprintf(message, size, "%s", "a simulated cuDNN keeps no messages");
}

/* --- tensors and filters ---------------------------------------------------------------------- */

size_t cm_sim_dnn_element(int type)
{
    switch (type) {
    case 1:  /* double */
    case 10: /* int64 */
    case 20: /* complex of float */
        return 8;
    case 21: /* complex of double */
        return 16;
    case 0:  /* float */
    case 4:  /* int32 */
    case 5:  /* 4 x int8 */
    case 7:  /* 4 x uint8 */
    case 14: /* float that accumulates 8 bits */
    case 19: /* uint32 */
        return 4;
    case 2: /* half */
    case 9: /* bfloat16 */
        return 2;
    case 8: /* 32 x int8 */
        return 32;
    default:
        return 1;
    }
}

size_t cm_sim_dnn_elements(const dnn_tensor *tensor)
{
    size_t count = tensor && tensor->dimensions ? 1 : 0;
    for (int i = 0; count && i < tensor->dimensions; i++)
        count *= (size_t)tensor->size[i];
    return count;
}

static int new_tensor(dnn_tensor **tensor)
{
    if (!tensor)
        return DNN_NULL_POINTER;
    *tensor = calloc(1, sizeof **tensor);
    return *tensor ? DNN_SUCCESS : DNN_NO_HOST_MEMORY;
}

CM_SIM_EXPORT int cudnnCreateTensorDescriptor(dnn_tensor **tensor)
{
    CM_SIM_ENTRY;
    return new_tensor(tensor);
}

CM_SIM_EXPORT int cudnnCreateFilterDescriptor(dnn_tensor **filter)
{
    CM_SIM_ENTRY;
    return new_tensor(filter);
}

CM_SIM_EXPORT int cudnnDestroyTensorDescriptor(dnn_tensor *tensor)
{
    CM_SIM_ENTRY;
    free(tensor);
    return DNN_SUCCESS;
}

CM_SIM_EXPORT int cudnnDestroyFilterDescriptor(dnn_tensor *filter)
{
    CM_SIM_ENTRY;
    free(filter);
    return DNN_SUCCESS;
}

/* strides: NULL for those of a dense tensor. */
static int describe(dnn_tensor *tensor, int type, int format, int dimensions, const int *sizes,
                    const int *strides)
{
    if (!tensor || !sizes)
        return DNN_NULL_POINTER;
    if (dimensions < 1 || dimensions > DNN_DIMENSIONS)
        return DNN_BAD_PARAM;
    for (int i = 0; i < dimensions; i++)
        if (sizes[i] < 0)
            return DNN_BAD_PARAM;
    *tensor = (dnn_tensor){.type = type, .format = format, .dimensions = dimensions};
    memcpy(tensor->size, sizes, (size_t)dimensions * sizeof *sizes);
    int64_t dense = 1;
    for (int i = dimensions; i-- > 0; dense *= sizes[i])
        tensor->stride[i] = strides ? strides[i] : (int)dense;
    return DNN_SUCCESS;
}

CM_SIM_EXPORT int cudnnSetTensorNdDescriptor(dnn_tensor *tensor, int type, int dimensions,
                                             const int *sizes, const int *strides)
{
    CM_SIM_ENTRY;
    return strides ? describe(tensor, type, 0, dimensions, sizes, strides) : DNN_NULL_POINTER;
}

CM_SIM_EXPORT int cudnnSetFilterNdDescriptor(dnn_tensor *filter, int type, int format,
                                             int dimensions, const int *sizes)
{
    CM_SIM_ENTRY;
    return describe(filter, type, format, dimensions, sizes, NULL);
}

/* Every output may be NULL; sizes and strides have room for `wanted`. */
static int read_back(const dnn_tensor *tensor, int wanted, int *type, int *format, int *dimensions,
                     int *sizes, int *strides)
{
    if (!tensor)
        return DNN_NULL_POINTER;
    if (type)
        *type = tensor->type;
    if (format)
        *format = tensor->format;
    if (dimensions)
        *dimensions = tensor->dimensions;
    for (int i = 0; i < wanted && i < tensor->dimensions; i++) {
        if (sizes)
            sizes[i] = tensor->size[i];
        if (strides)
            strides[i] = tensor->stride[i];
    }
    return DNN_SUCCESS;
}

CM_SIM_EXPORT int cudnnGetTensorNdDescriptor(const dnn_tensor *tensor, int wanted, int *type,
                                             int *dimensions, int *sizes, int *strides)
{
    CM_SIM_ENTRY;
    return read_back(tensor, wanted, type, NULL, dimensions, sizes, strides);
}

CM_SIM_EXPORT int cudnnGetFilterNdDescriptor(const dnn_tensor *filter, int wanted, int *type,
                                             int *format, int *dimensions, int *sizes)
{
    CM_SIM_ENTRY;
    return read_back(filter, wanted, type, format, dimensions, sizes, NULL);
}
