/* A whole device: its reset, and its memory for other processes, which is refused. */
#include "work.h"

static void refused(void)
{
    cm_cuda_ipc_handle handle;
    void *address;
    event e;
    OK(cudaMalloc(&address, 64));
    OK(cudaEventCreate(&e));
    EQUAL(cudaIpcGetMemHandle(&handle, address), CM_CUDA_NOT_SUPPORTED);
    memset(&handle, 0, sizeof handle);
    EQUAL(cudaIpcOpenMemHandle(&address, handle, 1), CM_CUDA_NOT_SUPPORTED);
    EQUAL(cudaIpcGetEventHandle(&handle, e), CM_CUDA_NOT_SUPPORTED);
    EQUAL(noted(CM_SIM_NOTE_REFUSED, "CUDA IPC"), 3);
    EQUAL(cudaGetLastError(), CM_CUDA_NOT_SUPPORTED);
    OK(cudaEventDestroy(e));
    OK(cudaFree(address));
}

static int *variable_of_managed;

/* Memory of every kind on the device, and who keeps its addresses. */
static void resets(void)
{
    static char stub;
    cm_cuda_channels format = {32, 0, 0, 0, 2};
    void **image = __cudaRegisterFatBinary(NULL), *block, *small, *pooled, *variable, *other;
    void *array, *mipmapped, *elsewhere;
    stream s;
    graph g;
    __cudaRegisterVar(image, &stub, &stub, "variable", 0, 400, 0, 0);
    __cudaRegisterManagedVar(image, (void **)&variable_of_managed, NULL, "m", 0, 64, 0, 0);
    OK(cudaSetDevice(1));
    OK(cudaMalloc(&elsewhere, 4 * MIB));
    size_t second = used(1);
    OK(cudaSetDevice(0));
    OK(cudaMalloc(&block, 64 * MIB));
    OK(cudaMalloc(&small, 100));
    OK(cudaMallocManaged(&other, 4 * MIB, CM_CUDA_ATTACH_GLOBAL));
    OK(cudaMallocArray(&array, &format, 1024, 1024, 0));
    OK(cudaMallocMipmappedArray(&mipmapped, &format, (cm_cuda_extent){64, 64, 0}, 3, 0));
    OK(cudaStreamCreate(&s));
    OK(cudaMallocAsync(&pooled, 8 * MIB, s));
    OK(cudaMallocAsync(&other, 16 * MIB, s));
    OK(cudaFreeAsync(other, s)); /* kept */
    OK(cudaGetSymbolAddress(&variable, &stub));
    EQUAL(__cudaInitModule(image), 0);
    CHECK(variable_of_managed != NULL);
    OK(cudaStreamBeginCapture(s, 0));
    OK(cudaMallocAsync(&other, 32 * MIB, s));
    OK(cudaStreamEndCapture(s, &g));
    CHECK(used(0) > cm_sim_config_get()->device[0].context + 128 * MIB);

    OK(cudaDeviceReset());
    EQUAL(used(0), 0);
    EQUAL(used(1), second);
    CHECK(!cm_sim_has_context(0));
    CHECK(variable_of_managed == NULL);
    EQUAL(graph_memory(CM_CUDA_GRAPH_MEM_RESERVED_CURRENT), 0);
    OK(cudaDeviceReset()); /* of nothing */
    CHECK(!cm_sim_has_context(0));

    EQUAL(cudaFree(block), CM_CUDA_INVALID_VALUE);
    EQUAL(used(0), cm_sim_config_get()->device[0].context); /* it was made anew for that */
    EQUAL(cudaFree(small), CM_CUDA_INVALID_VALUE);
    EQUAL(cudaFreeAsync(pooled, s), CM_CUDA_INVALID_VALUE);
    EQUAL(cudaFreeArray(array), CM_SIM_INVALID_HANDLE);
    EQUAL(cudaFreeMipmappedArray(mipmapped), CM_SIM_INVALID_HANDLE);
    OK(cudaGraphDestroy(g));
    OK(cudaMallocAsync(&pooled, 8 * MIB, s));
    EQUAL(used(0), cm_sim_config_get()->device[0].context + 8 * MIB);
    OK(cudaFreeAsync(pooled, s));
    OK(cudaDeviceSynchronize());
    OK(cudaGetSymbolAddress(&variable, &stub));
    CHECK(used(0) > cm_sim_config_get()->device[0].context);
    __cudaUnregisterFatBinary(image);
    EQUAL(used(0), cm_sim_config_get()->device[0].context);
    OK(cudaStreamDestroy(s));
    OK(cudaMemcpy(elsewhere, &second, sizeof second, CM_CUDA_COPY_DEFAULT));
    OK(cudaFree(elsewhere));
}

const test_case device_cases[] = {
    {"refused", refused},
    {"resets", resets},
    {NULL, NULL},
};
