/* cuSPARSE: sizes. A sparse product or sum has as many elements as the values happen to give, and
 * its caller allocates them, so that number is modelled and noted; so are the workspaces. What only
 * computes, and descriptors that are never read, are in tables/cusparse.txt. */

#include "libraries.h"

#include <limits.h>
#include <stdlib.h>

enum { SUCCESS = 0, ALLOC_FAILED = 2, INVALID_VALUE = 3 };

typedef struct matrix {
    int64_t rows, columns, nonzeros;
    size_t element;
} matrix;

CM_SIM_EXPORT const char *cusparseGetErrorString(int status)
{
    CM_SIM_ENTRY;
    switch (status) {
    case 0:
        return "success";
    case 1:
        return "initialization error";
    case 2:
        return "out of memory";
    case 3:
        return "invalid value";
    case 10:
        return "the simulated device has no such function";
    default:
        return "unknown error";
    }
}

/* --- matrices --------------------------------------------------------------------------------- */

static int create(matrix **result, int64_t rows, int64_t columns, int64_t nonzeros, int type)
{
    if (!result || rows < 0 || columns < 0 || nonzeros < 0)
        return INVALID_VALUE;
    *result = malloc(sizeof **result);
    if (!*result)
        return ALLOC_FAILED;
    **result = (matrix){rows, columns, nonzeros, cm_sim_data_type(type)};
    return SUCCESS;
}

CM_SIM_EXPORT int cusparseCreateCsr(matrix **result, int64_t rows, int64_t columns,
                                    int64_t nonzeros, void *offsets, void *indices, void *values,
                                    int offset_type, int index_type, int base, int type)
{
    CM_SIM_ENTRY;
    return create(result, rows, columns, nonzeros, type);
}

CM_SIM_EXPORT int cusparseCreateCoo(matrix **result, int64_t rows, int64_t columns,
                                    int64_t nonzeros, void *row_indices, void *column_indices,
                                    void *values, int index_type, int base, int type)
{
    CM_SIM_ENTRY;
    return create(result, rows, columns, nonzeros, type);
}

CM_SIM_EXPORT int cusparseDestroySpMat(matrix *what)
{
    CM_SIM_ENTRY;
    free(what);
    return SUCCESS;
}

CM_SIM_EXPORT int cusparseSpMatGetSize(const matrix *what, int64_t *rows, int64_t *columns,
                                       int64_t *nonzeros)
{
    CM_SIM_ENTRY;
    if (!what)
        return INVALID_VALUE;
    if (rows)
        *rows = what->rows;
    if (columns)
        *columns = what->columns;
    if (nonzeros)
        *nonzeros = what->nonzeros;
    return SUCCESS;
}

/* --- workspaces ------------------------------------------------------------------------------- */

static int workspace(size_t size, size_t *bytes)
{
    if (!bytes)
        return INVALID_VALUE;
    *bytes = cm_sim_modelled("cuSPARSE workspace", size);
    return SUCCESS;
}

/* Model: an offset per row. */
static int per_row(const matrix *what, size_t *bytes)
{
    return what ? workspace(((size_t)what->rows + 1) * sizeof(int), bytes) : INVALID_VALUE;
}

CM_SIM_EXPORT int cusparseSpMV_bufferSize(void *handle, int transpose, const void *alpha,
                                          const matrix *a, void *x, const void *beta, void *y,
                                          int compute, int algorithm, size_t *bytes)
{
    CM_SIM_ENTRY;
    return per_row(a, bytes);
}

CM_SIM_EXPORT int cusparseSpMM_bufferSize(void *handle, int transpose_a, int transpose_b,
                                          const void *alpha, const matrix *a, void *b,
                                          const void *beta, void *c, int compute, int algorithm,
                                          size_t *bytes)
{
    CM_SIM_ENTRY;
    return per_row(a, bytes);
}

CM_SIM_EXPORT int cusparseSDDMM_bufferSize(void *handle, int transpose_a, int transpose_b,
                                           const void *alpha, void *a, void *b, const void *beta,
                                           const matrix *c, int compute, int algorithm,
                                           size_t *bytes)
{
    CM_SIM_ENTRY;
    return per_row(c, bytes);
}

CM_SIM_EXPORT int cusparseSpSV_bufferSize(void *handle, int transpose, const void *alpha,
                                          const matrix *a, void *x, void *y, int compute,
                                          int algorithm, void *plan, size_t *bytes)
{
    CM_SIM_ENTRY;
    return per_row(a, bytes);
}

CM_SIM_EXPORT int cusparseSpSM_bufferSize(void *handle, int transpose_a, int transpose_b,
                                          const void *alpha, const matrix *a, void *b, void *c,
                                          int compute, int algorithm, void *plan, size_t *bytes)
{
    CM_SIM_ENTRY;
    return per_row(a, bytes);
}

/* Model: keys and permutation, each twice. */
CM_SIM_EXPORT int cusparseXcoosort_bufferSizeExt(void *handle, int m, int n, int nonzeros,
                                                 const int *rows, const int *columns, size_t *bytes)
{
    CM_SIM_ENTRY;
    return nonzeros < 0 ? INVALID_VALUE : workspace((size_t)nonzeros * 4 * sizeof(int), bytes);
}

CM_SIM_EXPORT int cusparseXcsrsort_bufferSizeExt(void *handle, int m, int n, int nonzeros,
                                                 const int *offsets, const int *columns,
                                                 size_t *bytes)
{
    CM_SIM_ENTRY;
    return nonzeros < 0 ? INVALID_VALUE : workspace((size_t)nonzeros * 4 * sizeof(int), bytes);
}

static int block_rows(int rows, int *bytes)
{
    size_t size;
    if (!bytes || rows < 0 || rows > INT_MAX / 16)
        return INVALID_VALUE;
    workspace((size_t)rows * 4 * sizeof(int), &size);
    *bytes = (int)size;
    return SUCCESS;
}

#define TYPED(T)                                                                                   \
    CM_SIM_EXPORT int cusparse##T##bsrsv2_bufferSize(                                              \
        void *handle, int direction, int transpose, int rows, int blocks, void *described,         \
        void *values, const int *offsets, const int *columns, int block, void *plan, int *bytes)   \
    {                                                                                              \
        CM_SIM_ENTRY;                                                                              \
        return block_rows(rows, bytes);                                                            \
    }                                                                                              \
    CM_SIM_EXPORT int cusparse##T##bsrsm2_bufferSize(                                              \
        void *handle, int direction, int transpose_a, int transpose_x, int rows, int n,            \
        int blocks, void *described, void *values, const int *offsets, const int *columns,         \
        int block, void *plan, int *bytes)                                                         \
    {                                                                                              \
        CM_SIM_ENTRY;                                                                              \
        return block_rows(rows, bytes);                                                            \
    }                                                                                              \
    CM_SIM_EXPORT int cusparse##T##csrgeam2_bufferSizeExt(                                         \
        void *handle, int m, int n, const void *alpha, void *described_a, int nonzeros_a,          \
        const void *values_a, const int *offsets_a, const int *columns_a, const void *beta,        \
        void *described_b, int nonzeros_b, const void *values_b, const int *offsets_b,             \
        const int *columns_b, void *described_c, const void *values_c, const int *offsets_c,       \
        const int *columns_c, size_t *bytes)                                                       \
    {                                                                                              \
        CM_SIM_ENTRY;                                                                              \
        return m < 0 ? INVALID_VALUE : workspace(((size_t)m + 1) * sizeof(int), bytes);            \
    }
TYPED(S)
TYPED(D)
TYPED(C)
TYPED(Z)

/* --- results of unknown size ------------------------------------------------------------------ */

/* Model: no element of the sum comes from both; that is the most there can be. */
CM_SIM_EXPORT int cusparseXcsrgeam2Nnz(void *handle, int m, int n, void *described_a,
                                       int nonzeros_a, const int *offsets_a, const int *columns_a,
                                       void *described_b, int nonzeros_b, const int *offsets_b,
                                       const int *columns_b, void *described_c, int *offsets_c,
                                       int *total, void *space)
{
    CM_SIM_ENTRY;
    if (m < 0 || n < 0 || nonzeros_a < 0 || nonzeros_b < 0 || !total)
        return INVALID_VALUE;
    int64_t sum = (int64_t)nonzeros_a + nonzeros_b, full = (int64_t)m * n;
    int64_t count = sum < full ? sum : full;
    if (count > INT_MAX)
        return INVALID_VALUE;
    cm_sim_modelled("elements of a sparse sum", (size_t)count);
    if (!cm_sim_is_device(total))
        *total = (int)count;
    return SUCCESS;
}

/* Model: the nonzeros of both factors are spread evenly over the dimension that is summed, and no
 * two products meet in one element of the result. */
static int64_t products(const matrix *a, const matrix *b)
{
    if (a->columns == 0)
        return 0;
    double count = (double)a->nonzeros * (double)b->nonzeros / (double)a->columns;
    double full = (double)a->rows * (double)b->columns;
    return (int64_t)(count < full ? count : full);
}

/* An index and a value for each product. */
static int product_space(const matrix *a, const matrix *b, size_t *bytes)
{
    if (!a || !b)
        return INVALID_VALUE;
    return workspace((size_t)products(a, b) * (sizeof(int) + a->element), bytes);
}

CM_SIM_EXPORT int cusparseSpGEMM_workEstimation(void *handle, int transpose_a, int transpose_b,
                                                const void *alpha, const matrix *a, const matrix *b,
                                                const void *beta, matrix *c, int compute,
                                                int algorithm, void *plan, size_t *bytes,
                                                void *space)
{
    CM_SIM_ENTRY;
    return per_row(a, bytes);
}

CM_SIM_EXPORT int cusparseSpGEMM_compute(void *handle, int transpose_a, int transpose_b,
                                         const void *alpha, const matrix *a, const matrix *b,
                                         const void *beta, matrix *c, int compute, int algorithm,
                                         void *plan, size_t *bytes, void *space)
{
    CM_SIM_ENTRY;
    int status = c ? product_space(a, b, bytes) : INVALID_VALUE;
    if (status == SUCCESS) {
        c->nonzeros = products(a, b);
        cm_sim_modelled("elements of a sparse product", (size_t)c->nonzeros);
    }
    return status;
}

CM_SIM_EXPORT int cusparseGetVersion(void *handle, int *version)
{
    CM_SIM_ENTRY;
    (void)handle;
    if (!version)
        return INVALID_VALUE;
    *version = CM_SIM_CUSPARSE_VERSION;
    return SUCCESS;
}

CM_SIM_EXPORT int cusparseGetProperty(int property, int *value)
{
    CM_SIM_ENTRY;
    return cm_sim_property(CM_SIM_CUSPARSE_VERSION, 1000, property, value, INVALID_VALUE);
}
