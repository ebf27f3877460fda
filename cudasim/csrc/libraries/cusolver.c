/* cuSOLVER: how much workspace each decomposition asks for. PyTorch allocates it, so it is part of
 * the peak. cuSOLVER does not publish its formulas; these are LAPACK's workspaces for blocks of 32
 * columns, noted as modelled. Everything else is in tables/cusolver.txt. */

#include "libraries.h"

#include <limits.h>

enum { SUCCESS = 0, INVALID_VALUE = 3 };
enum { BLOCK = 32, LEFT = 0, NO_VECTORS = 0 };

static int64_t least(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

static int64_t most(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

/* The older functions count elements in an int. */
static int elements(int64_t count, size_t element, int *result)
{
    if (!result || count < 0 || count > INT_MAX)
        return INVALID_VALUE;
    *result = (int)count;
    cm_sim_modelled("cuSOLVER workspace", (size_t)count * element);
    return SUCCESS;
}

/* The 64-bit ones count bytes, here and on the host. */
static int bytes(int64_t count, int type, size_t *device, size_t *host)
{
    if (!device || !host || count < 0)
        return INVALID_VALUE;
    *device = cm_sim_modelled("cuSOLVER workspace", (size_t)count * cm_sim_data_type(type));
    *host = 0;
    return SUCCESS;
}

static int64_t svd(int64_t m, int64_t n)
{
    return 3 * least(m, n) + (m + n) * BLOCK;
}

/* A copy of the matrix and its right vectors. */
static int64_t jacobi_svd(int64_t m, int64_t n)
{
    return m * n + n * n;
}

static int64_t eigen(int64_t n, int vectors)
{
    return vectors == NO_VECTORS ? 2 * n + 1 + n * BLOCK : 1 + 6 * n + 2 * n * n;
}

#define CHECK(condition)                                                                           \
    CM_SIM_ENTRY;                                                                                  \
    if (!(condition))                                                                              \
    return INVALID_VALUE

#define REAL_OR_COMPLEX(T, ELEMENT, ORGQR, ORMQR, SYEVD, SYEVJ, SYEVJ_BATCHED)                     \
    CM_SIM_EXPORT int cusolverDn##T##potrf_bufferSize(void *handle, int uplo, int n, void *a,      \
                                                      int lda, int *work)                          \
    {                                                                                              \
        CHECK(n >= 0);                                                                             \
        return elements((int64_t)n * BLOCK, ELEMENT, work);                                        \
    }                                                                                              \
    CM_SIM_EXPORT int cusolverDn##T##getrf_bufferSize(void *handle, int m, int n, void *a,         \
                                                      int lda, int *work)                          \
    {                                                                                              \
        CHECK(m >= 0 && n >= 0);                                                                   \
        return elements(most(m, n) * BLOCK, ELEMENT, work);                                        \
    }                                                                                              \
    CM_SIM_EXPORT int cusolverDn##T##geqrf_bufferSize(void *handle, int m, int n, void *a,         \
                                                      int lda, int *work)                          \
    {                                                                                              \
        CHECK(m >= 0 && n >= 0);                                                                   \
        return elements((int64_t)n * BLOCK, ELEMENT, work);                                        \
    }                                                                                              \
    CM_SIM_EXPORT int cusolverDn##ORGQR##_bufferSize(                                              \
        void *handle, int m, int n, int k, const void *a, int lda, const void *tau, int *work)     \
    {                                                                                              \
        CHECK(m >= 0 && n >= 0);                                                                   \
        return elements((int64_t)n * BLOCK, ELEMENT, work);                                        \
    }                                                                                              \
    CM_SIM_EXPORT int cusolverDn##ORMQR##_bufferSize(                                              \
        void *handle, int side, int transpose, int m, int n, int k, const void *a, int lda,        \
        const void *tau, const void *c, int ldc, int *work)                                        \
    {                                                                                              \
        CHECK(m >= 0 && n >= 0);                                                                   \
        return elements((int64_t)(side == LEFT ? n : m) * BLOCK, ELEMENT, work);                   \
    }                                                                                              \
    CM_SIM_EXPORT int cusolverDn##T##sytrf_bufferSize(void *handle, int n, void *a, int lda,       \
                                                      int *work)                                   \
    {                                                                                              \
        CHECK(n >= 0);                                                                             \
        return elements((int64_t)n * BLOCK, ELEMENT, work);                                        \
    }                                                                                              \
    CM_SIM_EXPORT int cusolverDn##T##gesvd_bufferSize(void *handle, int m, int n, int *work)       \
    {                                                                                              \
        CHECK(m >= 0 && n >= 0);                                                                   \
        return elements(svd(m, n), ELEMENT, work);                                                 \
    }                                                                                              \
    CM_SIM_EXPORT int cusolverDn##T##gesvdj_bufferSize(                                            \
        void *handle, int vectors, int thin, int m, int n, const void *a, int lda, const void *s,  \
        const void *u, int ldu, const void *v, int ldv, int *work, void *parameters)               \
    {                                                                                              \
        CHECK(m >= 0 && n >= 0);                                                                   \
        return elements(jacobi_svd(m, n), ELEMENT, work);                                          \
    }                                                                                              \
    CM_SIM_EXPORT int cusolverDn##T##gesvdjBatched_bufferSize(                                     \
        void *handle, int vectors, int m, int n, const void *a, int lda, const void *s,            \
        const void *u, int ldu, const void *v, int ldv, int *work, void *parameters, int batch)    \
    {                                                                                              \
        CHECK(m >= 0 && n >= 0 && batch >= 0);                                                     \
        return elements(batch * jacobi_svd(m, n), ELEMENT, work);                                  \
    }                                                                                              \
    CM_SIM_EXPORT int cusolverDn##T##gesvdaStridedBatched_bufferSize(                              \
        void *handle, int vectors, int rank, int m, int n, const void *a, int lda,                 \
        int64_t stride_a, const void *s, int64_t stride_s, const void *u, int ldu,                 \
        int64_t stride_u, const void *v, int ldv, int64_t stride_v, int *work, int batch)          \
    {                                                                                              \
        CHECK(m >= 0 && n >= 0 && batch >= 0);                                                     \
        return elements(batch * jacobi_svd(m, n), ELEMENT, work);                                  \
    }                                                                                              \
    CM_SIM_EXPORT int cusolverDn##SYEVD##_bufferSize(void *handle, int vectors, int uplo, int n,   \
                                                     const void *a, int lda, const void *w,        \
                                                     int *work)                                    \
    {                                                                                              \
        CHECK(n >= 0);                                                                             \
        return elements(eigen(n, vectors), ELEMENT, work);                                         \
    }                                                                                              \
    CM_SIM_EXPORT int cusolverDn##SYEVJ_BATCHED##_bufferSize(                                      \
        void *handle, int vectors, int uplo, int n, const void *a, int lda, const void *w,         \
        int *work, void *parameters, int batch)                                                    \
    {                                                                                              \
        CHECK(n >= 0 && batch >= 0);                                                               \
        return elements(batch * (int64_t)n * n, ELEMENT, work);                                    \
    }                                                                                              \
    CM_SIM_EXPORT int cusolverDn##SYEVJ##_bufferSize(void *handle, int vectors, int uplo, int n,   \
                                                     const void *a, int lda, const void *w,        \
                                                     int *work, void *parameters)                  \
    {                                                                                              \
        CHECK(n >= 0);                                                                             \
        return elements((int64_t)n * n, ELEMENT, work);                                            \
    }

REAL_OR_COMPLEX(S, 4, Sorgqr, Sormqr, Ssyevd, Ssyevj, SsyevjBatched)
REAL_OR_COMPLEX(D, 8, Dorgqr, Dormqr, Dsyevd, Dsyevj, DsyevjBatched)
REAL_OR_COMPLEX(C, 8, Cungqr, Cunmqr, Cheevd, Cheevj, CheevjBatched)
REAL_OR_COMPLEX(Z, 16, Zungqr, Zunmqr, Zheevd, Zheevj, ZheevjBatched)

CM_SIM_EXPORT int cusolverDnXpotrf_bufferSize(void *handle, void *parameters, int uplo, int64_t n,
                                              int type, const void *a, int64_t lda, int compute,
                                              size_t *device, size_t *host)
{
    CHECK(n >= 0);
    return bytes(n * BLOCK, type, device, host);
}

CM_SIM_EXPORT int cusolverDnXgeqrf_bufferSize(void *handle, void *parameters, int64_t m, int64_t n,
                                              int type, const void *a, int64_t lda, int tau_type,
                                              const void *tau, int compute, size_t *device,
                                              size_t *host)
{
    CHECK(m >= 0 && n >= 0);
    return bytes(n * BLOCK, type, device, host);
}

CM_SIM_EXPORT int cusolverDnXsytrs_bufferSize(void *handle, int uplo, int64_t n, int64_t columns,
                                              int type, const void *a, int64_t lda,
                                              const int64_t *pivots, int b_type, void *b,
                                              int64_t ldb, size_t *device, size_t *host)
{
    CHECK(n >= 0 && columns >= 0);
    return bytes(n * columns, type, device, host);
}

CM_SIM_EXPORT int cusolverDnXsyevd_bufferSize(void *handle, void *parameters, int vectors, int uplo,
                                              int64_t n, int type, const void *a, int64_t lda,
                                              int w_type, const void *w, int compute,
                                              size_t *device, size_t *host)
{
    CHECK(n >= 0);
    return bytes(eigen(n, vectors), type, device, host);
}

CM_SIM_EXPORT int cusolverDnXsyevBatched_bufferSize(void *handle, void *parameters, int vectors,
                                                    int uplo, int64_t n, int type, const void *a,
                                                    int64_t lda, int w_type, const void *w,
                                                    int compute, size_t *device, size_t *host,
                                                    int64_t batch)
{
    CHECK(n >= 0 && batch >= 0);
    return bytes(batch * n * n, type, device, host);
}

CM_SIM_EXPORT int cusolverDnXgeev_bufferSize(void *handle, void *parameters, int left, int right,
                                             int64_t n, int type, const void *a, int64_t lda,
                                             int w_type, const void *w, int left_type,
                                             const void *vl, int64_t ldvl, int right_type,
                                             const void *vr, int64_t ldvr, int compute,
                                             size_t *device, size_t *host)
{
    CHECK(n >= 0);
    return bytes(n * n + n * BLOCK, type, device, host);
}

CM_SIM_EXPORT int cusolverGetVersion(int *version)
{
    CM_SIM_ENTRY;
    if (!version)
        return INVALID_VALUE;
    *version = CM_SIM_CUSOLVER_VERSION;
    return SUCCESS;
}

CM_SIM_EXPORT int cusolverGetProperty(int property, int *value)
{
    CM_SIM_ENTRY;
    return cm_sim_property(CM_SIM_CUSOLVER_VERSION, 1000, property, value, INVALID_VALUE);
}
