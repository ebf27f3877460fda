/* cuBLASLt: descriptors and heuristics.
 *
 * There is always one algorithm, and it wants no workspace: PyTorch allocates its workspace for
 * cuBLASLt in a size of its own, whatever the heuristic returns. */

#include "libraries.h"

#include <stdlib.h>
#include <string.h>

enum { SUCCESS = 0, NOT_INITIALIZED = 1, ALLOC_FAILED = 3, INVALID_VALUE = 7 };

CM_SIM_EXPORT int cublasLtCreate(void **handle)
{
    CM_SIM_ENTRY;
    if (!handle)
        return INVALID_VALUE;
    *handle = cm_sim_handle_new("cuBLASLt");
    return *handle ? SUCCESS : ALLOC_FAILED;
}

CM_SIM_EXPORT int cublasLtDestroy(void *handle)
{
    CM_SIM_ENTRY;
    if (!handle)
        return NOT_INITIALIZED;
    cm_sim_handle_free(handle);
    return SUCCESS;
}

CM_SIM_EXPORT size_t cublasLtGetVersion(void)
{
    CM_SIM_ENTRY;
    return CM_SIM_CUBLAS_VERSION;
}

/* --- descriptors ------------------------------------------------------------------------------ */

typedef struct descriptor {
    cm_sim_attribute *attributes;
} descriptor;

static int destroy(descriptor *what)
{
    if (what) {
        cm_sim_attribute_drop(&what->attributes);
        free(what);
    }
    return SUCCESS;
}

static int set(descriptor *what, int name, const void *data, size_t bytes)
{
    if (!what || (!data && bytes))
        return INVALID_VALUE;
    return cm_sim_attribute_set(&what->attributes, name, 0, 1, data, bytes) ? SUCCESS
                                                                            : ALLOC_FAILED;
}

/* What was not set reads as zero. With no room: how much there is. */
static int get(const descriptor *what, int name, void *data, size_t bytes, size_t *written)
{
    if (!what || (!data && bytes) || (!bytes && !written))
        return INVALID_VALUE;
    const cm_sim_attribute *found = cm_sim_attribute_get(what->attributes, name);
    size_t size = found ? found->bytes : bytes;
    if (written)
        *written = size;
    if (bytes == 0)
        return SUCCESS;
    if (bytes < size)
        return INVALID_VALUE;
    memset(data, 0, bytes);
    if (found)
        memcpy(data, found->data, size);
    return SUCCESS;
}

#define ATTRIBUTES(kind)                                                                           \
    CM_SIM_EXPORT int cublasLt##kind##SetAttribute(descriptor *what, int name, const void *data,   \
                                                   size_t bytes)                                   \
    {                                                                                              \
        CM_SIM_ENTRY;                                                                              \
        return set(what, name, data, bytes);                                                       \
    }                                                                                              \
    CM_SIM_EXPORT int cublasLt##kind##GetAttribute(const descriptor *what, int name, void *data,   \
                                                   size_t bytes, size_t *written)                  \
    {                                                                                              \
        CM_SIM_ENTRY;                                                                              \
        return get(what, name, data, bytes, written);                                              \
    }                                                                                              \
    CM_SIM_EXPORT int cublasLt##kind##Destroy(descriptor *what)                                    \
    {                                                                                              \
        CM_SIM_ENTRY;                                                                              \
        return destroy(what);                                                                      \
    }

ATTRIBUTES(MatmulDesc)
ATTRIBUTES(MatmulPreference)
ATTRIBUTES(MatrixLayout)

/* What a descriptor is created with are its attributes too, numbered in the order of creation. */
typedef struct initial {
    int name;
    const void *data;
    size_t bytes;
} initial;

static int create(descriptor **result, const initial *attributes, int count)
{
    if (!result)
        return INVALID_VALUE;
    *result = calloc(1, sizeof **result);
    if (!*result)
        return ALLOC_FAILED;
    for (int i = 0; i < count; i++)
        if (set(*result, attributes[i].name, attributes[i].data, attributes[i].bytes) != SUCCESS) {
            destroy(*result);
            *result = NULL;
            return ALLOC_FAILED;
        }
    return SUCCESS;
}

CM_SIM_EXPORT int cublasLtMatmulDescCreate(descriptor **what, int compute, int scale)
{
    CM_SIM_ENTRY;
    const initial attributes[] = {{0, &compute, sizeof compute}, {1, &scale, sizeof scale}};
    return create(what, attributes, 2);
}

CM_SIM_EXPORT int cublasLtMatrixLayoutCreate(descriptor **what, int type, uint64_t rows,
                                             uint64_t columns, int64_t leading)
{
    CM_SIM_ENTRY;
    const initial attributes[] = {{0, &type, sizeof type},
                                  {2, &rows, sizeof rows}, /* 1 is the order: columns first */
                                  {3, &columns, sizeof columns},
                                  {4, &leading, sizeof leading}};
    return create(what, attributes, 4);
}

CM_SIM_EXPORT int cublasLtMatmulPreferenceCreate(descriptor **what)
{
    CM_SIM_ENTRY;
    return create(what, NULL, 0);
}

/* --- algorithms ------------------------------------------------------------------------------- */

enum { CONFIGURABLE = 9, ALGORITHM_WORDS = 16 };

typedef struct algorithm {
    uint32_t word[ALGORITHM_WORDS]; /* its configuration, by the attribute's number */
} algorithm;

typedef struct heuristic {
    algorithm algo;
    size_t workspace;
    int state;
    float waves;
    int reserved[4];
} heuristic;

CM_SIM_EXPORT int cublasLtMatmulAlgoGetHeuristic(void *handle, const descriptor *operation,
                                                 const descriptor *a, const descriptor *b,
                                                 const descriptor *c, const descriptor *d,
                                                 const descriptor *preference, int wanted,
                                                 heuristic *results, int *found)
{
    CM_SIM_ENTRY;
    if (!operation || !results || !found || wanted < 1)
        return INVALID_VALUE;
    memset(results, 0, (size_t)wanted * sizeof *results);
    results[0].waves = 1;
    *found = 1;
    return SUCCESS;
}

CM_SIM_EXPORT int cublasLtMatmulAlgoCheck(void *handle, const descriptor *operation,
                                          const descriptor *a, const descriptor *b,
                                          const descriptor *c, const descriptor *d,
                                          const algorithm *algo, heuristic *result)
{
    CM_SIM_ENTRY;
    if (!operation || !algo || !result)
        return INVALID_VALUE;
    *result = (heuristic){.algo = *algo, .waves = 1};
    return SUCCESS;
}

CM_SIM_EXPORT int cublasLtMatmulAlgoInit(void *handle, int compute, int scale, int a, int b, int c,
                                         int d, int id, algorithm *algo)
{
    CM_SIM_ENTRY;
    if (!algo)
        return INVALID_VALUE;
    *algo = (algorithm){.word = {(uint32_t)id}};
    return SUCCESS;
}

CM_SIM_EXPORT int cublasLtMatmulAlgoConfigSetAttribute(algorithm *algo, int name, const void *data,
                                                       size_t bytes)
{
    CM_SIM_ENTRY;
    if (!algo || !data || name < 0 || name >= CONFIGURABLE || bytes > sizeof(uint32_t))
        return INVALID_VALUE;
    algo->word[name] = 0;
    memcpy(&algo->word[name], data, bytes);
    return SUCCESS;
}

CM_SIM_EXPORT int cublasLtMatmulAlgoConfigGetAttribute(const algorithm *algo, int name, void *data,
                                                       size_t bytes, size_t *written)
{
    CM_SIM_ENTRY;
    if (!algo || name < 0 || name >= CONFIGURABLE || (!data && bytes) || (!bytes && !written))
        return INVALID_VALUE;
    size_t size = name < 7 ? sizeof(uint32_t) : sizeof(uint16_t);
    if (written)
        *written = size;
    if (bytes == 0)
        return SUCCESS;
    if (bytes < size)
        return INVALID_VALUE;
    memcpy(data, &algo->word[name], size);
    return SUCCESS;
}
