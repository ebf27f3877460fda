/* Calls the libraries of the simulated device as PyTorch would, with declarations of its own.
 * client CASE: exits with 0, or says which line was wrong. */

#include <complex.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../../../tests/check.h"
#include "../../csrc/core/sim.h"

typedef void *any;

static size_t used(void)
{
    size_t now, peak;
    cm_sim_used(0, &now, &peak);
    return now;
}

/* --- handles: CUPTIMEM_SIM_HANDLE_BYTES is 4 MiB --------------------------------------------- */

int cublasCreate_v2(any *), cublasDestroy_v2(any), cublasSetStream_v2(any, any),
    cublasGetStream_v2(any, any *), cublasSetMathMode(any, int), cublasGetMathMode(any, int *),
    cublasSetPointerMode_v2(any, int), cublasGetPointerMode_v2(any, int *),
    cublasGetProperty(int, int *), cublasGetVersion_v2(any, int *);
int cublasLtCreate(any *), cublasLtDestroy(any), cudnnCreate(any *), cudnnDestroy(any),
    cudnnSetStream(any, any), cudnnGetStream(any, any *), cusolverDnCreate(any *),
    cusolverDnDestroy(any), cusparseCreate(any *), cusparseDestroy(any), cusparseLtInit(any),
    cusparseLtDestroy(any), cufftCreate(int *), cufftDestroy(int), cufftGetVersion(int *),
    cufftGetProperty(int, int *), cusolverGetVersion(int *), cusolverGetProperty(int, int *),
    cusparseGetVersion(any, int *), cusparseGetProperty(int, int *);
const char *cublasGetStatusString(int), *cudnnGetErrorString(int);

static const size_t HANDLE = 4 << 20;

static int part(int (*get)(int, int *), int property)
{
    int value = -1;
    CHECK(get(property, &value) == 0);
    return value;
}

static void handles(void)
{
    any blas, light, dnn, solver, sparse, stream;
    _Alignas(16) unsigned char sparse_light[512];
    int mode, plan, version, major, minor, patch;

    CHECK(cublasCreate_v2(NULL) != 0 && cudnnCreate(NULL) != 0 && cufftCreate(NULL) != 0);
    CHECK(cublasDestroy_v2(NULL) != 0 && cudnnDestroy(NULL) != 0);
    CHECK(cublasCreate_v2(&blas) == 0);
    size_t base = used() - HANDLE; /* the context is there now */
    CHECK(cublasLtCreate(&light) == 0 && used() == base + 2 * HANDLE);
    CHECK(cudnnCreate(&dnn) == 0 && used() == base + 3 * HANDLE);
    CHECK(cusolverDnCreate(&solver) == 0 && used() == base + 4 * HANDLE);
    CHECK(cusparseCreate(&sparse) == 0 && used() == base + 5 * HANDLE);
    CHECK(cusparseLtInit(sparse_light) == 0 && used() == base + 6 * HANDLE);
    CHECK(cufftCreate(&plan) == 0 && plan > 0 && used() == base + 7 * HANDLE);

    CHECK(cublasSetStream_v2(blas, &base) == 0 && cublasGetStream_v2(blas, &stream) == 0);
    CHECK(stream == &base && cublasGetStream_v2(blas, NULL) != 0);
    CHECK(cudnnSetStream(dnn, &blas) == 0 && cudnnGetStream(dnn, &stream) == 0);
    CHECK(stream == &blas);
    CHECK(cublasSetMathMode(blas, 3) == 0 && cublasSetPointerMode_v2(blas, 1) == 0);
    CHECK(cublasGetMathMode(blas, &mode) == 0 && mode == 3);
    CHECK(cublasGetPointerMode_v2(blas, &mode) == 0 && mode == 1);
    CHECK(cublasGetVersion_v2(blas, &version) == 0 && cublasGetProperty(0, &major) == 0);
    CHECK(cublasGetProperty(1, &minor) == 0 && cublasGetProperty(2, &patch) == 0);
    CHECK(version == major * 10000 + minor * 100 + patch && cublasGetProperty(3, &patch) != 0);
    CHECK(cufftGetVersion(&version) == 0 && version / 1000 == part(cufftGetProperty, 0));
    CHECK(cusolverGetVersion(&version) == 0 && version % 100 == part(cusolverGetProperty, 2));
    CHECK(cusparseGetVersion(sparse, &version) == 0);
    CHECK(version % 1000 / 100 == part(cusparseGetProperty, 1));
    CHECK(cusparseGetProperty(0, NULL) != 0 && cufftGetVersion(NULL) != 0);
    CHECK(strcmp(cublasGetStatusString(3), "CUBLAS_STATUS_ALLOC_FAILED") == 0);
    CHECK(strcmp(cudnnGetErrorString(0), "CUDNN_STATUS_SUCCESS") == 0);

    CHECK(cufftDestroy(plan) == 0 && cufftDestroy(plan) != 0 && cufftDestroy(0) != 0);
    CHECK(cusparseLtDestroy(sparse_light) == 0 && cusparseDestroy(sparse) == 0);
    CHECK(cusolverDnDestroy(solver) == 0 && cudnnDestroy(dnn) == 0 && cublasLtDestroy(light) == 0);
    CHECK(cublasDestroy_v2(blas) == 0 && used() == base);
}

/* The device has room for the context and two handles. */
static void full(void)
{
    any handle[3] = {0}, other = &handle;
    int plan = -1;

    CHECK(cublasCreate_v2(&handle[0]) == 0 && cudnnCreate(&handle[1]) == 0);
    CHECK(cublasCreate_v2(&handle[2]) == 3 && handle[2] == NULL);
    CHECK(cudnnCreate(&handle[2]) == 4004 && handle[2] == NULL);
    CHECK(cusolverDnCreate(&other) != 0 && other == NULL);
    CHECK(cufftCreate(&plan) == 2 && plan == -1);
    CHECK(cudnnDestroy(handle[1]) == 0 && cusolverDnCreate(&other) == 0);
    CHECK(cusolverDnDestroy(other) == 0 && cublasDestroy_v2(handle[0]) == 0);
}

/* --- cuBLAS, cuBLASLt ------------------------------------------------------------------------- */

int cublasSetMatrixAsync(int, int, int, const void *, int, void *, int, any),
    cublasGetMatrix(int, int, int, const void *, int, void *, int),
    cublasSetVector(int, int, const void *, int, void *, int),
    cublasGetVectorAsync(int, int, const void *, int, void *, int, any);
int cublasSdot_v2(any, int, const float *, int, const float *, int, float *);
int cublasZdotc_v2(any, int, const void *, int, const void *, int, double complex *);
int cublasSgetrsBatched(any, int, int, int, const any *, int, const int *, const any *, int, int *,
                        int);

static void blas(void)
{
    float from[12], to[12] = {0}, result = 7;
    double complex product = 7;
    void *device;
    int info = 7;

    for (int i = 0; i < 12; i++)
        from[i] = (float)i;
    CHECK(cm_sim_alloc(0, CM_SIM_DEVICE, 4096, NULL, &device) == 0);
    /* Two of three rows, four columns, and back with another leading dimension. */
    CHECK(cublasSetMatrixAsync(2, 4, 4, from, 3, device, 5, NULL) == 0);
    CHECK(cublasGetMatrix(2, 4, 4, device, 5, to, 2) == 0);
    for (int column = 0; column < 4; column++)
        for (int row = 0; row < 2; row++)
            CHECK(to[column * 2 + row] == from[column * 3 + row]);
    CHECK(cublasSetVector(4, 4, from, 3, device, 1) == 0);
    CHECK(cublasGetVectorAsync(4, 4, device, 1, to, 2, NULL) == 0);
    for (int i = 0; i < 4; i++)
        CHECK(to[2 * i] == from[3 * i]);
    CHECK(cublasSetVector(-1, 4, from, 1, device, 1) != 0);
    CHECK(cublasSetVector(0, 4, from, 1, device, 1) == 0);

    /* Results on the host are zero; those on the device are what nobody computed. */
    CHECK(cublasSdot_v2(NULL, 4, from, 1, from, 1, &result) == 0 && result == 0);
    CHECK(cublasSdot_v2(NULL, 4, from, 1, from, 1, device) == 0);
    CHECK(cublasGetVectorAsync(1, 4, device, 1, to, 1, NULL) == 0 && to[0] == from[0]);
    CHECK(cublasSdot_v2(NULL, 4, from, 1, from, 1, NULL) == 0);
    CHECK(cublasZdotc_v2(NULL, 4, from, 1, from, 1, &product) == 0 && product == 0);
    CHECK(cublasSgetrsBatched(NULL, 0, 1, 1, NULL, 1, NULL, NULL, 1, &info, 1) == 0 && info == 0);
    CHECK(cm_sim_free(device, NULL) == 0);
}

typedef struct heuristic {
    uint64_t algorithm[8];
    size_t workspace;
    int state;
    float waves;
    int reserved[4];
} heuristic;

int cublasLtMatmulDescCreate(any *, int, int), cublasLtMatmulDescDestroy(any),
    cublasLtMatmulDescSetAttribute(any, int, const void *, size_t),
    cublasLtMatmulDescGetAttribute(any, int, void *, size_t, size_t *),
    cublasLtMatrixLayoutCreate(any *, int, uint64_t, uint64_t, int64_t),
    cublasLtMatrixLayoutDestroy(any),
    cublasLtMatrixLayoutGetAttribute(any, int, void *, size_t, size_t *),
    cublasLtMatmulPreferenceCreate(any *), cublasLtMatmulPreferenceDestroy(any),
    cublasLtMatmulAlgoGetHeuristic(any, any, any, any, any, any, any, int, heuristic *, int *),
    cublasLtMatmulAlgoConfigSetAttribute(any, int, const void *, size_t),
    cublasLtMatmulAlgoConfigGetAttribute(any, int, void *, size_t, size_t *);

static void light(void)
{
    any product, layout, preference;
    heuristic results[3];
    uint64_t rows;
    int value = 5, got = 0, found = 0;
    size_t written = 0;

    CHECK(cublasLtMatmulDescCreate(&product, 68, 0) == 0);
    CHECK(cublasLtMatmulDescGetAttribute(product, 0, &got, sizeof got, &written) == 0);
    CHECK(got == 68 && written == sizeof got);
    CHECK(cublasLtMatmulDescSetAttribute(product, 3, &value, sizeof value) == 0);
    CHECK(cublasLtMatmulDescSetAttribute(product, 3, &value, sizeof value) == 0); /* again */
    CHECK(cublasLtMatmulDescGetAttribute(product, 3, NULL, 0, &written) == 0);
    CHECK(written == sizeof value);
    CHECK(cublasLtMatmulDescGetAttribute(product, 3, &got, 1, &written) != 0); /* no room */
    CHECK(cublasLtMatmulDescGetAttribute(product, 3, &got, sizeof got, NULL) == 0 && got == 5);
    CHECK(cublasLtMatmulDescSetAttribute(NULL, 3, &value, sizeof value) != 0);
    CHECK(cublasLtMatrixLayoutCreate(&layout, 14, 30, 40, 50) == 0);
    CHECK(cublasLtMatrixLayoutGetAttribute(layout, 2, &rows, sizeof rows, NULL) == 0 && rows == 30);
    CHECK(cublasLtMatmulPreferenceCreate(&preference) == 0);
    memset(results, 0xff, sizeof results);
    CHECK(cublasLtMatmulAlgoGetHeuristic(NULL, product, layout, layout, layout, layout, preference,
                                         3, results, &found) == 0);
    CHECK(found == 1 && results[0].workspace == 0 && results[0].state == 0);
    CHECK(results[0].waves == 1);
    CHECK(cublasLtMatmulAlgoConfigSetAttribute(results[0].algorithm, 2, &value, sizeof value) == 0);
    CHECK(cublasLtMatmulAlgoConfigGetAttribute(results[0].algorithm, 2, &got, sizeof got, NULL) ==
          0);
    CHECK(got == value);
    CHECK(cublasLtMatmulAlgoConfigSetAttribute(results[0].algorithm, 9, &value, 4) != 0);
    CHECK(cublasLtMatmulDescDestroy(product) == 0 && cublasLtMatrixLayoutDestroy(layout) == 0);
    CHECK(cublasLtMatmulPreferenceDestroy(preference) == 0);
}

/* --- cuDNN ------------------------------------------------------------------------------------ */

int cudnnCreateTensorDescriptor(any *), cudnnDestroyTensorDescriptor(any),
    cudnnSetTensorNdDescriptor(any, int, int, const int *, const int *),
    cudnnGetTensorNdDescriptor(any, int, int *, int *, int *, int *),
    cudnnCreateFilterDescriptor(any *), cudnnDestroyFilterDescriptor(any),
    cudnnSetFilterNdDescriptor(any, int, int, int, const int *),
    cudnnGetConvolutionForwardWorkspaceSize(any, any, any, any, any, int, size_t *),
    cudnnDropoutGetStatesSize(any, size_t *),
    cudnnGetBatchNormalizationTrainingExReserveSpaceSize(any, int, int, any, any, size_t *);

static void tensors(void)
{
    any x, w;
    const int size[] = {2, 3, 4, 5}, stride[] = {60, 1, 15, 3};
    int type, count, got[8] = {0}, got_stride[8] = {0};
    size_t bytes;

    CHECK(cudnnCreateTensorDescriptor(&x) == 0 && cudnnCreateFilterDescriptor(&w) == 0);
    CHECK(cudnnSetTensorNdDescriptor(x, 2, 4, size, stride) == 0);
    CHECK(cudnnSetTensorNdDescriptor(x, 2, 9, size, stride) != 0);
    CHECK(cudnnGetTensorNdDescriptor(x, 3, &type, &count, got, got_stride) == 0);
    CHECK(type == 2 && count == 4 && got[2] == 4 && got[3] == 0 && got_stride[2] == 15);
    CHECK(cudnnGetTensorNdDescriptor(x, 8, NULL, NULL, NULL, NULL) == 0);
    CHECK(cudnnSetFilterNdDescriptor(w, 0, 0, 4, size) == 0);
    CHECK(cudnnGetConvolutionForwardWorkspaceSize(NULL, x, w, NULL, x, 1, &bytes) == 0);
    CHECK(bytes == 512 + 512); /* the allowance: a copy in half precision, the filter in single */
    CHECK(cudnnGetBatchNormalizationTrainingExReserveSpaceSize(NULL, 1, 0, NULL, x, &bytes) == 0);
    CHECK(bytes == 0);
    CHECK(cudnnGetBatchNormalizationTrainingExReserveSpaceSize(NULL, 1, 1, NULL, x, &bytes) == 0);
    CHECK(bytes == 2 * 3 * 4 * 5 / 8);
    CHECK(cudnnDropoutGetStatesSize(NULL, &bytes) == 0 && bytes > 0);
    CHECK(cudnnDestroyTensorDescriptor(x) == 0 && cudnnDestroyFilterDescriptor(w) == 0);
}

int cudnnBackendCreateDescriptor(int, any *), cudnnBackendDestroyDescriptor(any),
    cudnnBackendFinalize(any), cudnnBackendExecute(any, any, any),
    cudnnBackendSetAttribute(any, int, int, int64_t, const void *),
    cudnnBackendGetAttribute(any, int, int, int64_t, int64_t *, void *);
int64_t cm_sim_passed_over(void);

enum { TYPE_DATA = 1, TYPE_BOOLEAN = 2, TYPE_INT64 = 3, TYPE_NOTE = 11, TYPE_DESCRIPTOR = 15 };

static any make(int kind)
{
    any made;
    CHECK(cudnnBackendCreateDescriptor(kind, &made) == 0);
    return made;
}

static any tensor(int64_t elements, int type, bool hidden)
{
    any made = make(17);
    const int64_t sizes[] = {1, elements};
    CHECK(cudnnBackendSetAttribute(made, 901, TYPE_DATA, 1, &type) == 0);
    CHECK(cudnnBackendSetAttribute(made, 902, TYPE_INT64, 2, sizes) == 0);
    CHECK(cudnnBackendSetAttribute(made, 907, TYPE_BOOLEAN, 1, &hidden) == 0);
    CHECK(cudnnBackendFinalize(made) == 0);
    return made;
}

/* Gives the child away, as PyTorch does with temporaries. */
static void give(any to, int name, any child)
{
    CHECK(cudnnBackendSetAttribute(to, name, TYPE_DESCRIPTOR, 1, &child) == 0);
    CHECK(cudnnBackendDestroyDescriptor(child) == 0);
}

/* From a graph of one operation to a plan, as cuDNN's front end goes; the plan's workspace. */
static int64_t plan_workspace(any operation)
{
    any graph = make(15), heuristic = make(4), config = make(3), engine = make(2), plan = make(5);
    any pack = make(16);
    int64_t count = -1, index = -1, bytes = -1, engines = -1;
    int shared = -1, notes[50];

    give(graph, 801, operation);
    CHECK(cudnnBackendFinalize(graph) == 0);
    CHECK(cudnnBackendGetAttribute(graph, 802, TYPE_INT64, 1, &count, &engines) == 0);
    CHECK(count == 1);
    give(heuristic, 201, graph);
    CHECK(cudnnBackendGetAttribute(heuristic, 202, TYPE_DESCRIPTOR, 0, &count, NULL) == 0);
    CHECK(count == engines);
    CHECK(cudnnBackendGetAttribute(heuristic, 202, TYPE_DESCRIPTOR, 1, &count, &config) == 0);
    CHECK(cudnnBackendDestroyDescriptor(heuristic) == 0);
    CHECK(cudnnBackendGetAttribute(config, 300, TYPE_DESCRIPTOR, 1, &count, &engine) == 0);
    CHECK(count == 1);
    CHECK(cudnnBackendGetAttribute(engine, 1301, TYPE_INT64, 1, &count, &index) == 0);
    CHECK(count == 1 && index == 0);
    /* Notes and knobs: none. Scalars: one element, whatever their type. */
    CHECK(cudnnBackendGetAttribute(engine, 1303, TYPE_NOTE, 50, &count, notes) == 0 && count == 0);
    CHECK(cudnnBackendGetAttribute(engine, 1302, TYPE_DESCRIPTOR, 0, &count, NULL) == 0);
    CHECK(count == 0);
    CHECK(cudnnBackendGetAttribute(config, 304, 23, 1, &count, &shared) == 0);
    CHECK(count == 1 && shared == 0);
    CHECK(cudnnBackendDestroyDescriptor(engine) == 0);
    CHECK(cudnnBackendExecute(&plan, plan, pack) != 0); /* not finalized */
    give(plan, 401, config);
    CHECK(cudnnBackendFinalize(plan) == 0);
    CHECK(cudnnBackendGetAttribute(plan, 402, TYPE_INT64, 1, NULL, &bytes) == 0);
    CHECK(cudnnBackendExecute(&plan, plan, pack) == 0);
    CHECK(cudnnBackendDestroyDescriptor(plan) == 0 && cudnnBackendDestroyDescriptor(pack) == 0);
    return bytes;
}

static any convolution(void)
{
    any made = make(10);
    give(made, 704, tensor(1000, 2, false)); /* half */
    give(made, 703, tensor(100, 2, false));
    give(made, 705, tensor(500, 0, false)); /* float */
    return made;
}

/* The plan of a graph's engine. */
static any plan_of(any operation, int64_t engine)
{
    any graph = make(15), heuristic = make(4), config[5], plan = make(5);
    int64_t count = -1;

    for (int i = 0; i < 5; i++)
        config[i] = make(3);
    give(graph, 801, operation);
    give(heuristic, 201, graph);
    CHECK(cudnnBackendGetAttribute(heuristic, 202, TYPE_DESCRIPTOR, 5, &count, config) == 0);
    CHECK(count == 5);
    CHECK(cudnnBackendDestroyDescriptor(heuristic) == 0);
    CHECK(cudnnBackendSetAttribute(plan, 401, TYPE_DESCRIPTOR, 1, &config[engine]) == 0);
    for (int i = 0; i < 5; i++)
        CHECK(cudnnBackendDestroyDescriptor(config[i]) == 0);
    CHECK(cudnnBackendFinalize(plan) == 0);
    return plan;
}

static void plan_after(bool refused, any operation, int64_t engine)
{
    void *none;
    CHECK(!refused || cm_sim_alloc(0, CM_SIM_DEVICE, (size_t)1 << 50, NULL, &none) != 0);
    CHECK(cudnnBackendDestroyDescriptor(plan_of(operation, engine)) == 0);
}

/* A convolution's plans take less and less, and those that found no room are counted: not what the
 * program was refused itself. */
static void passes(void)
{
    int64_t bytes;
    void *block;
    any kept, other, pack = make(16);

    for (int64_t i = 0; i < 5; i++) {
        any plan = plan_of(convolution(), i);
        CHECK(cudnnBackendGetAttribute(plan, 402, TYPE_INT64, 1, NULL, &bytes) == 0);
        CHECK(bytes == (i == 4 ? 0 : 4608 >> i));
        CHECK(cudnnBackendDestroyDescriptor(plan) == 0);
    }
    plan_after(true, convolution(), 0);
    CHECK(cm_sim_passed_over() == 0); /* the program's own refusal */
    kept = plan_of(convolution(), 0);
    CHECK(cudnnBackendExecute(&kept, kept, pack) == 0);
    CHECK(cudnnBackendExecute(&kept, kept, pack) == 0);
    plan_after(true, convolution(), 0);
    CHECK(cm_sim_passed_over() == 1); /* the one that was kept */
    plan_after(true, convolution(), 1);
    CHECK(cm_sim_passed_over() == 2);
    plan_after(false, convolution(), 2);
    CHECK(cm_sim_alloc(0, CM_SIM_DEVICE, (size_t)1 << 50, NULL, &block) != 0);
    CHECK(cm_sim_alloc(0, CM_SIM_DEVICE, 1 << 20, NULL, &block) == 0); /* with an emptied cache */
    plan_after(false, convolution(), 3);
    other = convolution();
    give(other, 705, tensor(501, 0, false));
    plan_after(true, other, 0); /* another graph */
    CHECK(cm_sim_passed_over() == 2);
    CHECK(cudnnBackendDestroyDescriptor(kept) == 0);
    plan_after(true, convolution(), 0); /* none is kept */
    CHECK(cm_sim_passed_over() == 2);
    CHECK(cudnnBackendDestroyDescriptor(pack) == 0);
}

static void backend(void)
{
    any same, product, pointwise;
    const char *asked = getenv("CUPTIMEM_SIM_CONV_WORKSPACE");
    int64_t each = asked ? atoll(asked) : -1;

    /* 2000 and 400 and 2000 bytes, each rounded up. */
    CHECK(plan_workspace(convolution()) == (each < 0 ? 2048 + 512 + 2048 : each));
    product = make(19);
    give(product, 1501, tensor(1000, 9, false));
    give(product, 1502, tensor(3000, 9, false));
    give(product, 1503, tensor(9000, 9, true)); /* never in memory */
    CHECK(plan_workspace(product) == (each < 0 ? 12032 : each));
    pointwise = make(13);
    give(pointwise, 750, tensor(1000, 0, false));
    CHECK(plan_workspace(pointwise) == 0);

    /* A descriptor that replaces itself. */
    same = tensor(5, 0, false);
    product = make(19);
    CHECK(cudnnBackendSetAttribute(product, 1501, TYPE_DESCRIPTOR, 1, &same) == 0);
    give(product, 1501, same);
    CHECK(cudnnBackendSetAttribute(product, 1501, TYPE_DESCRIPTOR, 1, &same) == 0);
    CHECK(cudnnBackendDestroyDescriptor(product) == 0);
    CHECK(cudnnBackendDestroyDescriptor(NULL) == 0);
    CHECK(cudnnBackendSetAttribute(NULL, 1, TYPE_INT64, 1, &each) != 0);
}

static void *plans(void *shared)
{
    for (int i = 0; i < 200; i++) {
        any graph = make(15), operation = convolution();
        CHECK(cudnnBackendSetAttribute(graph, 801, TYPE_DESCRIPTOR, 1, &shared) == 0);
        CHECK(cudnnBackendDestroyDescriptor(graph) == 0);
        CHECK(plan_workspace(operation) >= 0);
    }
    return NULL;
}

static void threads(void)
{
    pthread_t thread[4];
    any shared = convolution();
    for (int i = 0; i < 4; i++)
        CHECK(pthread_create(&thread[i], NULL, plans, shared) == 0);
    for (int i = 0; i < 4; i++)
        CHECK(pthread_join(thread[i], NULL) == 0);
    CHECK(cudnnBackendDestroyDescriptor(shared) == 0);
}

int cudnnCreateRNNDescriptor(any *), cudnnDestroyRNNDescriptor(any),
    cudnnCreateRNNDataDescriptor(any *), cudnnDestroyRNNDataDescriptor(any),
    cudnnSetRNNDescriptor_v8(any, int, int, int, int, int, int, int, int, int, int, int, int, any,
                             unsigned),
    cudnnSetRNNDataDescriptor(any, int, int, int, int, int, const int *, any),
    cudnnGetRNNWeightSpaceSize(any, any, size_t *),
    cudnnGetRNNWeightParams(any, any, int, size_t, const void *, int, any, any *, any, any *),
    cudnnGetRNNTempSpaceSizes(any, any, int, any, size_t *, size_t *);

/* Marks an area of the space; it must be free yet. */
static size_t mark(unsigned char *taken, size_t total, const any address, any descriptor)
{
    int type, count, size[3];
    CHECK(cudnnGetTensorNdDescriptor(descriptor, 3, &type, &count, size, NULL) == 0);
    if (address == NULL) {
        CHECK(count == 0);
        return 0;
    }
    CHECK(count == 3 && size[0] == 1);
    size_t from = (uintptr_t)address - 4096, bytes = (size_t)size[1] * (size_t)size[2] * 4;
    CHECK(from + bytes <= total);
    for (size_t i = from; i < from + bytes; i++)
        CHECK(!taken[i]++);
    return bytes;
}

/* The areas of all matrices and biases are disjoint and fill the weight space. */
static void rnn_layout(int cell, int direction, int projection, int bias)
{
    const int layers = 3, gates = cell == 2 ? 4 : cell == 3 ? 3 : 1;
    any network, matrix, vector, matrix_at, vector_at;
    size_t total, sum = 0;

    CHECK(cudnnCreateRNNDescriptor(&network) == 0);
    CHECK(cudnnSetRNNDescriptor_v8(network, 0, cell, bias, direction, 0, 0, 0, 0, 5, 8, projection,
                                   layers, NULL, 0) == 0);
    CHECK(cudnnGetRNNWeightSpaceSize(NULL, network, &total) == 0);
    unsigned char *taken = calloc(1, total);
    CHECK(taken && cudnnCreateTensorDescriptor(&matrix) == 0);
    CHECK(cudnnCreateTensorDescriptor(&vector) == 0);
    int pseudo = layers * (direction + 1);
    for (int layer = 0; layer < pseudo; layer++) {
        for (int linear = 0; linear <= 8; linear++) {
            if (linear >= 2 * gates && linear != 8)
                continue;
            CHECK(cudnnGetRNNWeightParams(NULL, network, layer, total, (any)4096, linear, matrix,
                                          &matrix_at, vector, &vector_at) == 0);
            CHECK((matrix_at != NULL) == (linear != 8 || (cell == 2 && projection != 8)));
            CHECK((vector_at != NULL) == (linear < gates * bias));
            sum += mark(taken, total, matrix_at, matrix) + mark(taken, total, vector_at, vector);
        }
        CHECK(cudnnGetRNNWeightParams(NULL, network, layer, total, NULL, 0, NULL, NULL, NULL,
                                      NULL) == 0);
    }
    CHECK(sum == total);
    CHECK(cudnnGetRNNWeightParams(NULL, network, pseudo, total, NULL, 0, matrix, &matrix_at, vector,
                                  &vector_at) != 0);
    free(taken);
    CHECK(cudnnDestroyTensorDescriptor(matrix) == 0 && cudnnDestroyTensorDescriptor(vector) == 0);
    CHECK(cudnnDestroyRNNDescriptor(network) == 0);
}

static void rnn(void)
{
    any network, data;
    size_t work, reserve;

    for (int cell = 0; cell < 4; cell++)
        for (int direction = 0; direction < 2; direction++)
            for (int bias = 0; bias < 3; bias++) {
                rnn_layout(cell, direction, 8, bias);
                if (cell == 2)
                    rnn_layout(cell, direction, 3, bias);
            }
    CHECK(cudnnCreateRNNDescriptor(&network) == 0 && cudnnCreateRNNDataDescriptor(&data) == 0);
    CHECK(cudnnSetRNNDescriptor_v8(network, 0, 2, 2, 0, 0, 0, 0, 0, 5, 8, 8, 2, NULL, 0) == 0);
    CHECK(cudnnSetRNNDescriptor_v8(network, 0, 2, 2, 0, 0, 0, 0, 0, 5, 8, 9, 2, NULL, 0) != 0);
    CHECK(cudnnSetRNNDataDescriptor(data, 0, 0, 10, 3, 5, NULL, NULL) == 0);
    CHECK(cudnnGetRNNTempSpaceSizes(NULL, network, 1, data, &work, &reserve) == 0);
    CHECK(work == 4 * 10 * 3 * 8 * 4 && reserve == 6 * 2 * 10 * 3 * 8 * 4);
    CHECK(cudnnGetRNNTempSpaceSizes(NULL, network, 0, data, NULL, &reserve) == 0 && reserve == 0);
    CHECK(cudnnGetRNNTempSpaceSizes(NULL, network, 1, data, NULL, NULL) == 0);
    CHECK(cudnnDestroyRNNDescriptor(network) == 0 && cudnnDestroyRNNDataDescriptor(data) == 0);
}

/* --- cuSOLVER, cuSPARSE, cuSPARSELt, cuFFT ---------------------------------------------------- */

int cusolverDnSgetrf_bufferSize(any, int, int, any, int, int *),
    cusolverDnZheevd_bufferSize(any, int, int, int, any, int, any, int *),
    cusolverDnXpotrf_bufferSize(any, any, int, int64_t, int, any, int64_t, int, size_t *, size_t *);
int cusparseCreateCsr(any *, int64_t, int64_t, int64_t, any, any, any, int, int, int, int),
    cusparseDestroySpMat(any), cusparseSpMatGetSize(any, int64_t *, int64_t *, int64_t *),
    cusparseSpMM_bufferSize(any, int, int, any, any, any, any, any, int, int, size_t *),
    cusparseSpGEMM_compute(any, int, int, any, any, any, any, any, int, int, any, size_t *, any),
    cusparseXcsrgeam2Nnz(any, int, int, any, int, any, any, any, int, any, any, any, any, int *,
                         any),
    cusparseCreateMatDescr(any *), cusparseDestroyMatDescr(any);
int cusparseLtStructuredDescriptorInit(any, any, int64_t, int64_t, int64_t, uint32_t, int, int,
                                       int),
    cusparseLtSpMMACompressedSize2(any, any, size_t *, size_t *);
int cufftXtMakePlanMany(int, int, long long *, long long *, long long, long long, int, long long *,
                        long long, long long, int, long long, size_t *, int),
    cufftXtExec(int, any, any, int), cufftSetAutoAllocation(int, int);

static void solver(void)
{
    int count = -1;
    size_t device, host;
    CHECK(cusolverDnSgetrf_bufferSize(NULL, 10, 20, NULL, 10, &count) == 0 && count == 640);
    CHECK(cusolverDnSgetrf_bufferSize(NULL, 10, 20, NULL, 10, NULL) != 0);
    CHECK(cusolverDnSgetrf_bufferSize(NULL, -1, 20, NULL, 10, &count) != 0);
    CHECK(cusolverDnZheevd_bufferSize(NULL, 1, 0, 10, NULL, 10, NULL, &count) == 0);
    CHECK(count == 1 + 60 + 200);
    /* More than an int can say. */
    CHECK(cusolverDnZheevd_bufferSize(NULL, 1, 0, 100000, NULL, 1, NULL, &count) != 0);
    CHECK(cusolverDnXpotrf_bufferSize(NULL, NULL, 0, 10, 1, NULL, 10, 1, &device, &host) == 0);
    CHECK(device == 10 * 32 * 8 && host == 0);
}

static void sparse(void)
{
    any a, b, c, described;
    int64_t rows, columns, nonzeros;
    size_t bytes;
    int total;

    CHECK(cusparseCreateCsr(&a, 10, 20, 40, NULL, NULL, NULL, 2, 2, 0, 0) == 0);
    CHECK(cusparseCreateCsr(&b, 20, 30, 60, NULL, NULL, NULL, 2, 2, 0, 0) == 0);
    CHECK(cusparseCreateCsr(&c, 10, 30, 0, NULL, NULL, NULL, 2, 2, 0, 0) == 0);
    CHECK(cusparseCreateCsr(&described, -1, 30, 0, NULL, NULL, NULL, 2, 2, 0, 0) != 0);
    CHECK(cusparseSpMM_bufferSize(NULL, 0, 0, NULL, a, NULL, NULL, NULL, 0, 0, &bytes) == 0);
    CHECK(bytes == 11 * 4);
    CHECK(cusparseSpGEMM_compute(NULL, 0, 0, NULL, a, b, NULL, c, 0, 0, NULL, &bytes, NULL) == 0);
    CHECK(bytes == 120 * 8);
    CHECK(cusparseSpMatGetSize(c, &rows, &columns, &nonzeros) == 0);
    CHECK(rows == 10 && columns == 30 && nonzeros == 120);
    CHECK(cusparseXcsrgeam2Nnz(NULL, 10, 20, NULL, 40, NULL, NULL, NULL, 30, NULL, NULL, NULL, NULL,
                               &total, NULL) == 0);
    CHECK(total == 70);
    CHECK(cusparseCreateMatDescr(&described) == 0 && described);
    CHECK(cusparseDestroyMatDescr(described) == 0);
    CHECK(cusparseDestroySpMat(a) == 0 && cusparseDestroySpMat(b) == 0);
    CHECK(cusparseDestroySpMat(c) == 0);

    _Alignas(16) unsigned char matrix[512];
    size_t compressed, space;
    CHECK(cusparseLtStructuredDescriptorInit(NULL, matrix, 64, 32, 32, 16, 14, 1, 0) == 0);
    CHECK(cusparseLtSpMMACompressedSize2(NULL, matrix, &compressed, &space) == 0);
    CHECK(compressed == 64 * 32 * 2 * 9 / 16);
    CHECK(cusparseLtStructuredDescriptorInit(NULL, matrix, 64, 32, 32, 16, 3, 1, 0) == 0);
    CHECK(cusparseLtSpMMACompressedSize2(NULL, matrix, &compressed, NULL) == 0);
    CHECK(compressed == 64 * 32 * 10 / 16);
}

static void fourier(void)
{
    int plan[40], again;
    long long size[2] = {8, 16};
    size_t bytes;

    for (int i = 0; i < 40; i++) {
        CHECK(cufftCreate(&plan[i]) == 0);
        for (int j = 0; j < i; j++)
            CHECK(plan[j] != plan[i]);
    }
    CHECK(cufftSetAutoAllocation(plan[3], 0) == 0);
    CHECK(cufftXtMakePlanMany(plan[3], 2, size, NULL, 1, 1, 4, NULL, 1, 1, 4, 5, &bytes, 4) == 0);
    CHECK(bytes == 8 * 16 * 5 * 8 && cufftXtExec(plan[3], NULL, NULL, -1) == 0);
    CHECK(cufftXtMakePlanMany(plan[3], 2, size, NULL, 1, 1, 4, NULL, 1, 1, 4, 0, &bytes, 4) != 0);
    CHECK(cufftDestroy(plan[3]) == 0 && cufftXtExec(plan[3], NULL, NULL, -1) == 1);
    CHECK(cufftCreate(&again) == 0 && again == plan[3]);
    for (int i = 0; i < 40; i++)
        CHECK(cufftDestroy(plan[i]) == 0);
}

/* --- NCCL: two devices ------------------------------------------------------------------------ */

typedef struct unique {
    char bytes[128];
} unique;
int ncclCommInitAll(any *, int, const int *), ncclCommDestroy(any), ncclCommCount(any, int *),
    ncclCommUserRank(any, int *), ncclCommCuDevice(any, int *), ncclCommGetAsyncError(any, int *),
    ncclGetUniqueId(unique *), ncclCommInitRank(any *, int, unique, int), ncclGroupStart(void),
    ncclGroupEnd(void), ncclCommSplit(any, int, int, any *, any), ncclGetVersion(int *),
    ncclBroadcast(const void *, void *, size_t, int, int, any, any),
    ncclAllReduce(const void *, void *, size_t, int, int, any, any),
    ncclAllGather(const void *, void *, size_t, int, any, any),
    ncclReduce(const void *, void *, size_t, int, int, int, any, any), ncclPutSignal(void),
    ncclMemAlloc(any *, size_t), ncclMemFree(any), ncclCommSuspend(any, int), ncclCommResume(any),
    ncclRedOpCreatePreMulSum(int *, any, int, int, any);
const char *ncclGetErrorString(int), *ncclGetLastError(any);

static size_t used_of(int device)
{
    size_t now, peak;
    cm_sim_used(device, &now, &peak);
    return now;
}

static size_t met, right; /* bytes that no host wrote; reads of nothing else */
static void on_read(const void *address, size_t bytes, int device, bool written)
{
    met += written ? 0 : bytes;
    right += written;
}

static int first_of(const int *memory)
{
    int value = -1;
    cm_sim_copy(&value, memory, sizeof value);
    return value;
}

static void ranks(void)
{
    enum { INT32 = 2, SUM = 0, MIB = 1 << 20 };
    static const int twice[2] = {1, 1}, turned[2] = {1, 0};
    any comm[2] = {NULL, NULL}, alone, split, memory[2], gathered;
    int value, seven = 7, nine = 9, operation;
    unique id, other;

    CHECK(ncclGetVersion(&value) == 0 && value == 23007 && ncclGetVersion(NULL) != 0);
    CHECK(strcmp(ncclGetErrorString(0), "no error") == 0 && ncclGetErrorString(99) != NULL);
    CHECK(ncclCommInitAll(comm, 3, NULL) == 5 && ncclCommInitAll(comm, 2, twice) == 5);
    CHECK(ncclCommInitAll(NULL, 1, NULL) == 4 && strlen(ncclGetLastError(NULL)) > 0);
    CHECK(ncclCommInitAll(comm, 2, turned) == 0);
    size_t base = used_of(0) - 1024 * (size_t)MIB; /* the context */
    CHECK(used_of(1) == base + 1024 * (size_t)MIB);
    CHECK(ncclCommCount(comm[0], &value) == 0 && value == 2);
    CHECK(ncclCommUserRank(comm[1], &value) == 0 && value == 1);
    CHECK(ncclCommCuDevice(comm[0], &value) == 0 && value == 1);
    CHECK(ncclCommGetAsyncError(comm[0], &value) == 0 && value == 0);

    /* Rank 0 is on device 1. */
    for (int rank = 0; rank < 2; rank++)
        CHECK(cm_sim_alloc(1 - rank, CM_SIM_DEVICE, MIB, NULL, &memory[rank]) == 0);
    CHECK(cm_sim_alloc(0, CM_SIM_DEVICE, MIB, NULL, &gathered) == 0);
    cm_sim_set_read_hook(on_read);
    cm_sim_copy(memory[0], &seven, sizeof seven);
    cm_sim_copy(memory[1], &nine, sizeof nine);
    /* Gathered is what each had; nothing happens before the group ends. */
    CHECK(ncclGroupStart() == 0);
    CHECK(ncclAllGather(memory[1], gathered, 1, INT32, comm[1], NULL) == 0);
    CHECK(first_of(gathered) == 0 && met == 4);
    CHECK(ncclAllGather(memory[0], memory[0], 1, INT32, comm[0], NULL) == 0);
    CHECK(ncclGroupEnd() == 0 && ncclGroupEnd() == 5);
    CHECK(first_of(gathered) == 7 && first_of((int *)gathered + 1) == 9 && right == 2);
    /* What the root has, all have. */
    CHECK(ncclGroupStart() == 0);
    CHECK(ncclBroadcast(memory[1], memory[1], 1, INT32, 0, comm[1], NULL) == 0);
    CHECK(ncclBroadcast(memory[0], memory[0], 1, INT32, 0, comm[0], NULL) == 0);
    CHECK(ncclGroupEnd() == 0 && first_of(memory[1]) == 7 && right == 3 && met == 4);
    /* A sum is unknown, where it arrives. */
    CHECK(ncclGroupStart() == 0);
    CHECK(ncclReduce(memory[0], memory[0], 1, INT32, SUM, 1, comm[0], NULL) == 0);
    CHECK(ncclReduce(memory[1], memory[1], 1, INT32, SUM, 1, comm[1], NULL) == 0);
    CHECK(ncclGroupEnd() == 0 && first_of(memory[0]) == 7 && met == 4);
    CHECK(first_of(memory[1]) == 0 && met == 8);
    CHECK(ncclAllReduce(memory[0], memory[0], 1, INT32, SUM, comm[0], NULL) == 0);
    CHECK(first_of(memory[0]) == 0 && met == 12);
    CHECK(ncclAllReduce(memory[0], memory[0], 1, 99, SUM, comm[0], NULL) == 4);
    CHECK(ncclBroadcast(memory[0], memory[0], 1, INT32, 2, comm[0], NULL) == 4);
    CHECK(ncclCommSplit(comm[0], 1, 0, &split, NULL) == 2 && split == NULL);
    CHECK(ncclCommSuspend(comm[0], 1) == 0 && used_of(1) == base + 2 * MIB);
    CHECK(ncclCommResume(comm[0]) == 0 && used_of(1) > base + 1024 * (size_t)MIB);
    CHECK(ncclCommDestroy(comm[0]) == 0 && ncclCommDestroy(comm[1]) == 0);
    CHECK(ncclCommDestroy(NULL) == 0 && ncclCommCount(NULL, &value) == 4);
    CHECK(used_of(1) == base + 2 * MIB);

    /* One rank gets what it gave, but for what an operation of its own makes of it. */
    CHECK(ncclGetUniqueId(&id) == 0 && ncclGetUniqueId(&other) == 0);
    CHECK(memcmp(&id, &other, sizeof id) != 0);
    cm_sim_set_current_device(1);
    CHECK(ncclCommInitRank(&alone, 1, id, 1) == 4);
    CHECK(ncclCommInitRank(&alone, 1, id, 0) == 0 && used_of(1) == base + 514 * (size_t)MIB);
    cm_sim_copy(memory[0], &nine, sizeof nine);
    CHECK(ncclAllReduce(memory[0], memory[0], 1, INT32, SUM, alone, NULL) == 0);
    CHECK(first_of(memory[0]) == 9 && right == 5 && met == 12);
    CHECK(ncclRedOpCreatePreMulSum(&operation, &nine, INT32, 1, alone) == 0 && operation > 4);
    CHECK(ncclAllReduce(memory[0], memory[0], 1, INT32, operation, alone, NULL) == 0);
    CHECK(first_of(memory[0]) == 0 && met == 16);
    CHECK(ncclCommSplit(alone, -1, 0, &split, NULL) == 0 && split == NULL);
    CHECK(ncclCommSplit(alone, 1, 0, &split, NULL) == 0 && ncclCommDestroy(split) == 0);

    /* In a group the ranks of this process find each other; else they are elsewhere. */
    CHECK(ncclCommInitRank(&comm[0], 2, id, 0) == 2 && comm[0] == NULL);
    for (int missing = 0; missing < 2; missing++) {
        CHECK(ncclGroupStart() == 0);
        for (int rank = 0; rank < 2 - missing; rank++) {
            cm_sim_set_current_device(rank);
            CHECK(ncclCommInitRank(&comm[rank], 2, id, rank) == 0 && comm[rank] == NULL);
        }
        CHECK(ncclGroupEnd() == (missing ? 2 : 0) && (comm[0] != NULL) == !missing);
        for (int rank = 0; !missing && rank < 2; rank++)
            CHECK(ncclCommDestroy(comm[rank]) == 0);
    }
    cm_sim_set_current_device(0);
    CHECK(ncclMemAlloc(&split, 3 * MIB) == 0 && used_of(0) >= base + 3 * MIB);
    CHECK(ncclMemFree(split) == 0 && ncclMemFree(NULL) == 0 && ncclMemFree(&split) == 1);
    CHECK(ncclCommDestroy(alone) == 0 && ncclPutSignal() == 5);
    for (int rank = 0; rank < 2; rank++)
        CHECK(cm_sim_free(memory[rank], NULL) == 0);
    CHECK(cm_sim_free(gathered, NULL) == 0);
}

/* --- refused ---------------------------------------------------------------------------------- */

int cublasXtCreate(any *), cudnnGetDropoutDescriptor(any), cufftPlan1d(int *, int, int, int),
    cusolverSpCreate(any *);

static void refused(void)
{
    any handle = NULL;
    int plan;
    CHECK(cublasXtCreate(&handle) == 15 && cublasXtCreate(&handle) == 15);
    CHECK(cusolverSpCreate(&handle) == 9 && handle == NULL);
    CHECK(cufftPlan1d(&plan, 1, 1, 1) == 16 && cudnnGetDropoutDescriptor(NULL) == 3000);
    CHECK(used() == 0);
}

int main(int count, char **argument)
{
    static const struct {
        const char *name;
        void (*run)(void);
    } cases[] = {{"handles", handles}, {"full", full},       {"blas", blas},
                 {"light", light},     {"tensors", tensors}, {"backend", backend},
                 {"passes", passes},   {"threads", threads}, {"rnn", rnn},
                 {"solver", solver},   {"sparse", sparse},   {"fourier", fourier},
                 {"refused", refused}, {"ranks", ranks}};
    for (size_t i = 0; count == 2 && i < sizeof cases / sizeof *cases; i++)
        if (strcmp(cases[i].name, argument[1]) == 0) {
            cases[i].run();
            return 0;
        }
    fprintf(stderr, "no such case\n");
    return 2;
}
