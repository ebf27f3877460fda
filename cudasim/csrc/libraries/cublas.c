/* cuBLAS: handles, their modes, and copies. Everything that computes is in tables/cublas.txt.
 *
 * The workspace that matters is not here: PyTorch allocates it itself and hands it over. */

#include "libraries.h"

#include <stdlib.h>

enum { SUCCESS = 0, NOT_INITIALIZED = 1, ALLOC_FAILED = 3, INVALID_VALUE = 7 };

typedef struct blas {
    void *charge; /* what the handle takes of the device */
    void *stream;
    int math, pointer, atomics, sms;
} blas;

CM_SIM_EXPORT int cublasCreate_v2(blas **handle)
{
    CM_SIM_ENTRY;
    if (!handle)
        return INVALID_VALUE;
    *handle = NULL;
    blas *made = calloc(1, sizeof *made);
    if (!made)
        return ALLOC_FAILED;
    made->charge = cm_sim_handle_new("cuBLAS");
    if (!made->charge) {
        free(made);
        return ALLOC_FAILED;
    }
    *handle = made;
    return SUCCESS;
}

CM_SIM_EXPORT int cublasDestroy_v2(blas *handle)
{
    CM_SIM_ENTRY;
    if (!handle)
        return NOT_INITIALIZED;
    cm_sim_handle_free(handle->charge);
    free(handle);
    return SUCCESS;
}

CM_SIM_EXPORT int cublasSetStream_v2(blas *handle, void *stream)
{
    CM_SIM_ENTRY;
    if (!handle)
        return NOT_INITIALIZED;
    handle->stream = stream;
    return SUCCESS;
}

CM_SIM_EXPORT int cublasGetStream_v2(const blas *handle, void **stream)
{
    CM_SIM_ENTRY;
    if (!handle)
        return NOT_INITIALIZED;
    if (!stream)
        return INVALID_VALUE;
    *stream = handle->stream;
    return SUCCESS;
}

#define MODE(set, get, field)                                                                      \
    CM_SIM_EXPORT int set(blas *handle, int mode)                                                  \
    {                                                                                              \
        CM_SIM_ENTRY;                                                                              \
        if (!handle)                                                                               \
            return NOT_INITIALIZED;                                                                \
        handle->field = mode;                                                                      \
        return SUCCESS;                                                                            \
    }                                                                                              \
    CM_SIM_EXPORT int get(const blas *handle, int *mode)                                           \
    {                                                                                              \
        CM_SIM_ENTRY;                                                                              \
        if (!handle)                                                                               \
            return NOT_INITIALIZED;                                                                \
        if (!mode)                                                                                 \
            return INVALID_VALUE;                                                                  \
        *mode = handle->field;                                                                     \
        return SUCCESS;                                                                            \
    }
MODE(cublasSetMathMode, cublasGetMathMode, math)
MODE(cublasSetPointerMode_v2, cublasGetPointerMode_v2, pointer)
MODE(cublasSetAtomicsMode, cublasGetAtomicsMode, atomics)
MODE(cublasSetSmCountTarget, cublasGetSmCountTarget, sms)

CM_SIM_EXPORT int cublasGetVersion_v2(const blas *handle, int *version)
{
    CM_SIM_ENTRY;
    if (!version)
        return INVALID_VALUE;
    *version = CM_SIM_CUBLAS_VERSION;
    return SUCCESS;
}

CM_SIM_EXPORT int cublasGetProperty(int property, int *value)
{
    CM_SIM_ENTRY;
    return cm_sim_property(CM_SIM_CUBLAS_VERSION, 10000, property, value, INVALID_VALUE);
}

/* cuBLASLt has the same numbers, and the same function under another name. */
CM_SIM_EXPORT const char *cublasGetStatusName(int status)
{
    CM_SIM_ENTRY;
    switch (status) {
    case 0:
        return "CUBLAS_STATUS_SUCCESS";
    case 1:
        return "CUBLAS_STATUS_NOT_INITIALIZED";
    case 3:
        return "CUBLAS_STATUS_ALLOC_FAILED";
    case 7:
        return "CUBLAS_STATUS_INVALID_VALUE";
    case 8:
        return "CUBLAS_STATUS_ARCH_MISMATCH";
    case 11:
        return "CUBLAS_STATUS_MAPPING_ERROR";
    case 13:
        return "CUBLAS_STATUS_EXECUTION_FAILED";
    case 14:
        return "CUBLAS_STATUS_INTERNAL_ERROR";
    case 15:
        return "CUBLAS_STATUS_NOT_SUPPORTED";
    case 16:
        return "CUBLAS_STATUS_LICENSE_ERROR";
    default:
        return "<unknown>";
    }
}

CM_SIM_EXPORT const char *cublasGetStatusString(int status)
{
    CM_SIM_ENTRY;
    return status == 15 ? "the simulated device has no such function" : cublasGetStatusName(status);
}

CM_SIM_EXPORT const char *cublasLtGetStatusName(int status)
{
    CM_SIM_ENTRY;
    return cublasGetStatusName(status);
}

CM_SIM_EXPORT const char *cublasLtGetStatusString(int status)
{
    CM_SIM_ENTRY;
    return cublasGetStatusString(status);
}

/* Vectors are matrices with one row and columns `increment` elements apart. */
static int copy_matrix(int64_t rows, int64_t columns, int64_t element, const void *from,
                       int64_t from_leading, void *to, int64_t to_leading)
{
    if (rows < 0 || columns < 0 || element <= 0 || from_leading <= 0 || to_leading <= 0)
        return INVALID_VALUE;
    if (rows > 0 && columns > 0)
        cm_sim_copy_2d(to, (size_t)to_leading * (size_t)element, from,
                       (size_t)from_leading * (size_t)element, (size_t)rows * (size_t)element,
                       (size_t)columns);
    return SUCCESS;
}

#define VECTOR(name, integer)                                                                      \
    CM_SIM_EXPORT int name(integer count, integer element, const void *from, integer from_by,      \
                           void *to, integer to_by)                                                \
    {                                                                                              \
        CM_SIM_ENTRY;                                                                              \
        return copy_matrix(1, count, element, from, from_by, to, to_by);                           \
    }
VECTOR(cublasSetVector, int)
VECTOR(cublasGetVector, int)
VECTOR(cublasSetVectorAsync, int) /* the stream, last, changes nothing */
VECTOR(cublasGetVectorAsync, int)
VECTOR(cublasSetVector_64, int64_t)
VECTOR(cublasGetVector_64, int64_t)
VECTOR(cublasSetVectorAsync_64, int64_t)
VECTOR(cublasGetVectorAsync_64, int64_t)

#define MATRIX(name, integer)                                                                      \
    CM_SIM_EXPORT int name(integer rows, integer columns, integer element, const void *from,       \
                           integer from_leading, void *to, integer to_leading)                     \
    {                                                                                              \
        CM_SIM_ENTRY;                                                                              \
        return copy_matrix(rows, columns, element, from, from_leading, to, to_leading);            \
    }
MATRIX(cublasSetMatrix, int)
MATRIX(cublasGetMatrix, int)
MATRIX(cublasSetMatrixAsync, int)
MATRIX(cublasGetMatrixAsync, int)
MATRIX(cublasSetMatrix_64, int64_t)
MATRIX(cublasGetMatrix_64, int64_t)
MATRIX(cublasSetMatrixAsync_64, int64_t)
MATRIX(cublasGetMatrixAsync_64, int64_t)
