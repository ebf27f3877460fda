/* cuSPARSELt: products with matrices of which two in four elements are zero. Its descriptors are
 * memory of the caller (512 bytes each), initialized in place. */

#include "libraries.h"

#include <string.h>

enum { SUCCESS = 0, ALLOC_FAILED = 2, INVALID_VALUE = 3 };
enum { ALGORITHM_COUNT = 1, ALGORITHM_ATTRIBUTES = 8 };

typedef struct handle {
    void *charge;
} handle;

typedef struct matrix {
    int64_t rows, columns;
    size_t element;
} matrix;

typedef struct selection {
    int attribute[ALGORITHM_ATTRIBUTES];
} selection;

CM_SIM_EXPORT int cusparseLtInit(handle *result)
{
    CM_SIM_ENTRY;
    if (!result)
        return INVALID_VALUE;
    result->charge = cm_sim_handle_new("cuSPARSELt");
    return result->charge ? SUCCESS : ALLOC_FAILED;
}

CM_SIM_EXPORT int cusparseLtDestroy(const handle *what)
{
    CM_SIM_ENTRY;
    if (!what)
        return INVALID_VALUE;
    cm_sim_handle_free(what->charge);
    return SUCCESS;
}

static int describe(matrix *result, int64_t rows, int64_t columns, int type)
{
    if (!result || rows < 0 || columns < 0)
        return INVALID_VALUE;
    *result = (matrix){rows, columns, cm_sim_data_type(type)};
    return SUCCESS;
}

CM_SIM_EXPORT int cusparseLtDenseDescriptorInit(const handle *with, matrix *result, int64_t rows,
                                                int64_t columns, int64_t leading,
                                                uint32_t alignment, int type, int order)
{
    CM_SIM_ENTRY;
    return describe(result, rows, columns, type);
}

CM_SIM_EXPORT int cusparseLtStructuredDescriptorInit(const handle *with, matrix *result,
                                                     int64_t rows, int64_t columns, int64_t leading,
                                                     uint32_t alignment, int type, int order,
                                                     int sparsity)
{
    CM_SIM_ENTRY;
    return describe(result, rows, columns, type);
}

/* Half of the elements, and two bits for the position of each. PyTorch knows the same numbers: 9/16
 * of a matrix of 2-byte elements, 10/16 of one of bytes. */
CM_SIM_EXPORT int cusparseLtSpMMACompressedSize2(const handle *with, const matrix *what,
                                                 size_t *compressed, size_t *space)
{
    CM_SIM_ENTRY;
    if (!what)
        return INVALID_VALUE;
    size_t elements = (size_t)what->rows * (size_t)what->columns;
    if (compressed)
        *compressed = elements / 2 * what->element + elements / 8;
    if (space)
        *space = cm_sim_modelled("cuSPARSELt workspace", 0);
    return SUCCESS;
}

CM_SIM_EXPORT int cusparseLtMatmulGetWorkspace(const handle *with, const void *plan, size_t *bytes)
{
    CM_SIM_ENTRY;
    if (!bytes)
        return INVALID_VALUE;
    *bytes = cm_sim_modelled("cuSPARSELt workspace", 0);
    return SUCCESS;
}

CM_SIM_EXPORT int cusparseLtMatmulAlgSelectionInit(const handle *with, selection *result,
                                                   const void *product, int algorithm)
{
    CM_SIM_ENTRY;
    if (!result)
        return INVALID_VALUE;
    *result = (selection){.attribute = {[1] = ALGORITHM_COUNT, [3] = 1}}; /* not split */
    return SUCCESS;
}

CM_SIM_EXPORT int cusparseLtMatmulAlgSetAttribute(const handle *with, selection *what, int name,
                                                  const void *data, size_t bytes)
{
    CM_SIM_ENTRY;
    if (!what || !data || name < 0 || name >= ALGORITHM_ATTRIBUTES || bytes != sizeof(int))
        return INVALID_VALUE;
    memcpy(&what->attribute[name], data, bytes);
    return SUCCESS;
}

CM_SIM_EXPORT int cusparseLtMatmulAlgGetAttribute(const handle *with, const selection *what,
                                                  int name, void *data, size_t bytes)
{
    CM_SIM_ENTRY;
    if (!what || !data || name < 0 || name >= ALGORITHM_ATTRIBUTES || bytes != sizeof(int))
        return INVALID_VALUE;
    memcpy(data, &what->attribute[name], bytes);
    return SUCCESS;
}
