/* Arrays of the runtime. */
#include "work.h"

static void array_of_the_runtime(size_t bytes, cm_cuda_channels format, cm_cuda_extent extent,
                                 unsigned levels, unsigned flags)
{
    void *array = NULL;
    cm_sim_block block;
    size_t before = used(0);
    if (levels)
        OK(cudaMallocMipmappedArray(&array, &format, extent, levels, flags));
    else
        OK(cudaMalloc3DArray(&array, &format, extent, flags));
    CHECK(cm_sim_find(array, &block));
    EQUAL(block.bytes, bytes);
    OK(levels ? cudaFreeMipmappedArray(array) : cudaFreeArray(array));
    EQUAL(used(0), before);
}

static void arrays(void)
{
    enum { SIGNED, UNSIGNED, FLOAT, NONE, NV12, NORMALIZED_8X2 = 6, NORMALIZED_16X4 = 16 };
    enum { BC1 = 17, BC6 = 27, PACKED = 31, LAYERED = 1, SPARSE = 0x40 };
    const cm_cuda_channels odd = {8, 16, 0, 0, UNSIGNED}, none = {0},
                           half = {16, 16, 16, 16, FLOAT};
    void *array = NULL, *level = NULL;
    OK(cudaFree(NULL));
    array_of_the_runtime(100 * 8, half, (cm_cuda_extent){100, 0, 0}, 0, 0);
    array_of_the_runtime(10 * 20 * 30, (cm_cuda_channels){8, 0, 0, 0, SIGNED},
                         (cm_cuda_extent){10, 20, 30}, 0, 0);
    array_of_the_runtime(10 * 6 * 8, (cm_cuda_channels){32, 32, 0, 0, UNSIGNED},
                         (cm_cuda_extent){10, 0, 6}, 0, LAYERED);
    array_of_the_runtime(10 * 2, (cm_cuda_channels){8, 8, 0, 0, NORMALIZED_8X2},
                         (cm_cuda_extent){10, 0, 0}, 0, 0);
    array_of_the_runtime(10 * 8, (cm_cuda_channels){16, 16, 16, 16, NORMALIZED_16X4},
                         (cm_cuda_extent){10, 0, 0}, 0, 0);
    array_of_the_runtime(10 * 4, (cm_cuda_channels){10, 10, 10, 2, PACKED},
                         (cm_cuda_extent){10, 0, 0}, 0, 0);
    array_of_the_runtime((4 * 2 + 2 + 1) * 8, (cm_cuda_channels){8, 8, 8, 8, BC1},
                         (cm_cuda_extent){16, 8, 0}, 3, 0);
    array_of_the_runtime(4 * 16, (cm_cuda_channels){16, 16, 16, 0, BC6}, (cm_cuda_extent){7, 5, 0},
                         0, 0);
    EQUAL(cudaMallocArray(&array, &odd, 10, 0, 0), CM_CUDA_INVALID_VALUE);
    EQUAL(cudaMallocArray(&array, &none, 10, 0, 0), CM_CUDA_INVALID_VALUE);
    EQUAL(cudaMallocArray(&array, NULL, 10, 0, 0), CM_CUDA_INVALID_VALUE);
    EQUAL(cudaMallocArray(NULL, &half, 10, 0, 0), CM_CUDA_INVALID_VALUE);
    EQUAL(cudaMallocArray(&array, &half, 0, 0, 0), CM_CUDA_INVALID_VALUE);
    EQUAL(cudaMallocArray(&array, &half, 10, 0, SPARSE), CM_CUDA_NOT_SUPPORTED);
    EQUAL(noted(CM_SIM_NOTE_REFUSED, "CUDA arrays without memory of their own"), 1);
    EQUAL(cudaMallocMipmappedArray(&array, &half, (cm_cuda_extent){4, 4, 0}, 0, 0),
          CM_CUDA_INVALID_VALUE);
    OK(cudaMallocMipmappedArray(&array, &half, (cm_cuda_extent){4, 4, 0}, 2, 0));
    OK(cudaGetMipmappedArrayLevel(&level, array, 1));
    EQUAL(cudaGetMipmappedArrayLevel(&level, array, 2), CM_CUDA_INVALID_VALUE);
    EQUAL(cudaFreeArray(level), CM_SIM_INVALID_HANDLE);
    EQUAL(cudaFreeArray(array), CM_SIM_INVALID_HANDLE);
    OK(cudaFreeMipmappedArray(array));
    OK(cudaFreeArray(NULL));
    OK(cudaFreeMipmappedArray(NULL));
}

const test_case array_cases[] = {
    {"arrays", arrays},
    {NULL, NULL},
};
