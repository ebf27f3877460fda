/* Launches, and the kernels that they name. */
#include "work.h"

#include <stdlib.h>
#include <unistd.h>

static void launches(void)
{
    const dim3 none = {0, 1, 1}, many = {33, 32, 1}, deep = {1, 1, 65}, high = {1, 65536, 1};
    stream s, gone, there;
    void **image = image_with_kernel();
    OK(cudaStreamCreate(&s));
    uint64_t before = cm_sim_launches(0);
    launch(NULL, 2);
    launch(s, 3);
    EQUAL(cm_sim_launches(0) - before, 5);
    EQUAL(cudaLaunchKernel(KERNEL, none, WARP, NULL, 0, s), CM_CUDA_INVALID_CONFIGURATION);
    EQUAL(cudaLaunchKernel(KERNEL, ONE, none, NULL, 0, s), CM_CUDA_INVALID_CONFIGURATION);
    EQUAL(cudaLaunchKernel(KERNEL, ONE, many, NULL, 0, s), CM_CUDA_INVALID_CONFIGURATION);
    EQUAL(cudaLaunchKernel(KERNEL, ONE, deep, NULL, 0, s), CM_CUDA_INVALID_CONFIGURATION);
    EQUAL(cudaLaunchKernel(KERNEL, high, WARP, NULL, 0, s), CM_CUDA_INVALID_CONFIGURATION);
    EQUAL(cudaLaunchKernel(KERNEL, ONE, WARP, NULL, MIB, s), CM_CUDA_INVALID_VALUE);
    EQUAL(cudaLaunchKernel(NULL, ONE, WARP, NULL, 0, s), CM_CUDA_INVALID_FUNCTION);
    EQUAL(cudaGetLastError(), CM_CUDA_INVALID_FUNCTION);
    OK(cudaStreamCreate(&gone));
    OK(cudaStreamDestroy(gone));
    EQUAL(cudaLaunchKernel(KERNEL, ONE, WARP, NULL, 0, gone), CM_CUDA_INVALID_HANDLE);
    OK(cudaSetDevice(1)); /* a stream of another device */
    EQUAL(cudaLaunchKernel(KERNEL, ONE, WARP, NULL, 0, s), CM_CUDA_INVALID_HANDLE);
    OK(cudaStreamCreate(&there));
    launch(there, 1);
    EQUAL(cm_sim_launches(1), 1);
    OK(cudaStreamDestroy(there));
    OK(cudaSetDevice(0));
    EQUAL(cm_sim_launches(0) - before, 5);

    cm_cuda_launch_attribute attributes[2] = {{.id = 8}} /* the priority */;
    attributes[1] =
        (cm_cuda_launch_attribute){.id = CM_CUDA_LAUNCH_CLUSTER, .val = {.clusterDim = {2, 1, 1}}};
    cm_cuda_launch_config config = {{4, 1, 1}, WARP, 0, s, attributes, 2};
    EQUAL(cudaLaunchKernelExC(&config, KERNEL, NULL), CM_CUDA_NOT_SUPPORTED); /* before 9.0 */
    config.numAttrs = 1;
    OK(cudaLaunchKernelExC(&config, KERNEL, NULL));
    config.attrs = NULL;
    EQUAL(cudaLaunchKernelExC(&config, KERNEL, NULL), CM_CUDA_INVALID_VALUE);
    EQUAL(cudaLaunchKernelExC(NULL, KERNEL, NULL), CM_CUDA_INVALID_VALUE);

    /* The brackets nest. */
    size_t shared = 0;
    dim3 grid, block;
    stream on = NULL;
    EQUAL(__cudaPushCallConfiguration(ONE, WARP, 64, s), 0);
    EQUAL(__cudaPushCallConfiguration(WARP, ONE, 0, NULL), 0);
    OK(__cudaPopCallConfiguration(&grid, &block, &shared, &on));
    CHECK(grid.x == 32 && block.x == 1 && shared == 0 && on == NULL);
    OK(__cudaPopCallConfiguration(&grid, &block, &shared, &on));
    CHECK(grid.x == 1 && block.x == 32 && shared == 64 && on == s);
    EQUAL(__cudaPopCallConfiguration(&grid, &block, &shared, &on), CM_CUDA_MISSING_CONFIGURATION);
    OK(cudaStreamDestroy(s));
    __cudaUnregisterFatBinary(image);
}

static void functions(void)
{
    static char unknown;
    cm_cuda_func_attributes a;
    function f, same, kernel;
    void **image = image_with_kernel();
    OK(__cudaGetKernel(&f, KERNEL));
    OK(cudaGetFuncBySymbol(&same, KERNEL));
    CHECK(f == same);
    EQUAL(__cudaGetKernel(&same, &unknown), CM_CUDA_INVALID_FUNCTION);
    OK(__cudaLaunchKernel(f, ONE, WARP, NULL, 0, NULL));
    OK(cudaFuncGetAttributes(&a, KERNEL));
    EQUAL(a.maxThreadsPerBlock, 1024);
    EQUAL(a.binaryVersion, 86); /* PyTorch has no image for 8.9: a card of it runs those for 8.6 */
    EQUAL(a.ptxVersion, 86);
    EQUAL(a.maxDynamicSharedSizeBytes, 48 << 10);
    CHECK(a.numRegs > 0);
    int optin = cm_sim_config_get()->device[0].shared_per_block_optin;
    OK(cudaFuncSetAttribute(KERNEL, CM_CUDA_FUNC_MAX_DYNAMIC_SHARED, optin));
    OK(cudaFuncGetAttributes(&a, KERNEL));
    EQUAL(a.maxDynamicSharedSizeBytes, optin);
    EQUAL(cudaFuncSetAttribute(KERNEL, CM_CUDA_FUNC_MAX_DYNAMIC_SHARED, optin + 1),
          CM_CUDA_INVALID_VALUE);
    EQUAL(cudaFuncSetAttribute(KERNEL, 99, 0), CM_CUDA_INVALID_VALUE);
    EQUAL(cudaFuncSetAttribute(&unknown, 8, 0), CM_CUDA_INVALID_FUNCTION);
    EQUAL(cudaFuncGetAttributes(&a, &unknown), CM_CUDA_INVALID_FUNCTION);
    EQUAL(cudaFuncGetAttributes(NULL, KERNEL), CM_CUDA_INVALID_VALUE);

    /* As many as threads, blocks and shared memory leave room for: 1536, 24 and 100 KiB on an L4.
     */
    int blocks = -1;
    OK(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, KERNEL, 256, 0));
    EQUAL(blocks, 6);
    OK(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, KERNEL, 32, 0));
    EQUAL(blocks, 24);
    OK(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, KERNEL, 32, 40 << 10));
    EQUAL(blocks, 2);
    EQUAL(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, KERNEL, 0, 0),
          CM_CUDA_INVALID_VALUE);
    int sms = cm_sim_config_get()->device[0].sms;
    OK(cudaLaunchCooperativeKernel(KERNEL, (dim3){(unsigned)sms * 6, 1, 1}, (dim3){256, 1, 1}, NULL,
                                   0, NULL));
    EQUAL(cudaLaunchCooperativeKernel(KERNEL, (dim3){(unsigned)sms * 6 + 1, 1, 1},
                                      (dim3){256, 1, 1}, NULL, 0, NULL),
          CM_CUDA_COOPERATIVE_TOO_LARGE);

    cm_sim_library *library;
    EQUAL(cudaLibraryLoadData(&library, NULL, NULL, NULL, 0, NULL, NULL, 0), CM_CUDA_INVALID_VALUE);
    OK(cudaLibraryLoadData(&library, "code", NULL, NULL, 0, NULL, NULL, 0));
    OK(cudaLibraryGetKernel(&kernel, library, "triton_"));
    OK(cudaLibraryGetKernel(&same, library, "triton_"));
    CHECK(kernel == same);
    OK(cudaKernelSetAttributeForDevice(kernel, CM_CUDA_FUNC_MAX_DYNAMIC_SHARED, 64 << 10, 0));
    EQUAL(cudaKernelSetAttributeForDevice(kernel, 8, 0, 5), CM_CUDA_INVALID_DEVICE);
    OK(cudaLaunchKernel(kernel, ONE, WARP, NULL, 0, NULL));
    OK(cudaLibraryUnload(library));
    EQUAL(cudaLibraryUnload(library), CM_CUDA_INVALID_HANDLE);
    __cudaUnregisterFatBinary(image);
    EQUAL(cudaFuncGetAttributes(&a, KERNEL), CM_CUDA_INVALID_FUNCTION);
}

static const char code[] = ".version 8.5\n.target sm_90\n.address_size 64\n"
                           ".global .align 4 .b8 table[4096];\n"
                           ".global .attribute(.managed) .align 4 .u32 both;\n"
                           ".global .attribute(.unified(19, 95), .managed) .u64 parts[2];\n"
                           ".visible .entry first()\n{ ret; }\n"
                           ".visible .entry second()\n{ ret; }\n";

/* What is in a library, whose text has names, sizes and which variables are managed. */
static void look_into(cm_sim_library *library)
{
    function first, second, all[3] = {NULL};
    unsigned count = 0;
    size_t bytes = 0;
    void *at = NULL, *again = NULL;
    cm_cuda_pointer_attributes a;
    cm_cuda_func_attributes about;
    OK(cudaLibraryGetKernelCount(&count, library));
    EQUAL(count, 2);
    OK(cudaLibraryGetKernel(&first, library, "first"));
    OK(cudaLibraryGetKernel(&second, library, "second"));
    EQUAL(cudaLibraryGetKernel(&first, library, "third"), CM_CUDA_SYMBOL_NOT_FOUND);
    OK(cudaLibraryEnumerateKernels(all, 1, library));
    CHECK(all[0] && !all[1]);
    OK(cudaLibraryEnumerateKernels(all, 3, library));
    CHECK(all[1] && !all[2] && (all[0] == first || all[1] == first) && all[0] != all[1]);
    OK(cudaFuncGetAttributes(&about, first));
    OK(cudaLaunchKernel(second, ONE, WARP, NULL, 0, NULL));
    OK(cudaLibraryGetGlobal(&at, &bytes, library, "table"));
    EQUAL(bytes, 4096);
    OK(cudaMemset(at, 0, bytes));
    OK(cudaLibraryGetGlobal(&again, NULL, library, "table"));
    CHECK(at == again);
    OK(cudaPointerGetAttributes(&a, at));
    EQUAL(a.type, CM_CUDA_MEMORY_DEVICE);
    EQUAL(cudaLibraryGetManaged(&at, &bytes, library, "table"), CM_CUDA_SYMBOL_NOT_FOUND);
    OK(cudaLibraryGetManaged(&at, &bytes, library, "both"));
    EQUAL(bytes, 4);
    *(int *)at = 7;
    OK(cudaPointerGetAttributes(&a, at));
    EQUAL(a.type, CM_CUDA_MEMORY_MANAGED);
    OK(cudaLibraryGetManaged(NULL, &bytes, library, "parts"));
    EQUAL(bytes, 16);
    EQUAL(cudaLibraryGetGlobal(&at, &bytes, library, "first"), CM_CUDA_SYMBOL_NOT_FOUND);
    EQUAL(cudaLibraryGetGlobal(NULL, NULL, library, "table"), CM_CUDA_INVALID_VALUE);
    EQUAL(cudaLibraryGetManaged(&at, &bytes, library, NULL), CM_CUDA_INVALID_VALUE);
    EQUAL(cudaLibraryGetUnifiedFunction(&at, library, "first"), CM_CUDA_SYMBOL_NOT_FOUND);
    EQUAL(cudaLibraryGetUnifiedFunction(NULL, library, "first"), CM_CUDA_INVALID_VALUE);
    EQUAL(cudaLibraryGetKernel(NULL, library, "first"), CM_CUDA_INVALID_VALUE);
    EQUAL(cudaLibraryGetKernelCount(NULL, library), CM_CUDA_INVALID_VALUE);
    EQUAL(cudaLibraryEnumerateKernels(NULL, 1, library), CM_CUDA_INVALID_VALUE);
    OK(cudaLibraryUnload(library));
    EQUAL(cudaFuncGetAttributes(&about, first), CM_CUDA_INVALID_FUNCTION);
    EQUAL(cudaLibraryGetKernelCount(&count, library), CM_CUDA_INVALID_HANDLE);
    EQUAL(cudaLibraryEnumerateKernels(all, 3, library), CM_CUDA_INVALID_HANDLE);
    EQUAL(cudaLibraryGetGlobal(&at, &bytes, library, "table"), CM_CUDA_INVALID_HANDLE);
    EQUAL(cudaLibraryGetManaged(&at, &bytes, library, "both"), CM_CUDA_INVALID_HANDLE);
    EQUAL(cudaLibraryGetUnifiedFunction(&at, library, "first"), CM_CUDA_INVALID_HANDLE);
    EQUAL(cudaGetLastError(), CM_CUDA_INVALID_HANDLE);
}

static void libraries(void)
{
    cm_sim_library *library;
    char path[] = "/tmp/library-XXXXXX";
    OK(cudaLibraryLoadData(&library, code, NULL, NULL, 0, NULL, NULL, 0));
    OK(cudaFree(NULL));
    size_t before, after;
    cm_sim_used(0, &before, NULL);
    look_into(library);
    cm_sim_used(0, &after, NULL);
    EQUAL(after, before); /* its variables went with it */
    int file = mkstemp(path);
    CHECK(file >= 0 && write(file, code, sizeof code - 1) == sizeof code - 1 && !close(file));
    OK(cudaLibraryLoadFromFile(&library, path, NULL, NULL, 0, NULL, NULL, 0));
    CHECK(!unlink(path));
    look_into(library);
    EQUAL(cudaLibraryLoadFromFile(&library, path, NULL, NULL, 0, NULL, NULL, 0),
          CM_CUDA_FILE_NOT_FOUND);
    EQUAL(cudaLibraryLoadFromFile(&library, NULL, NULL, NULL, 0, NULL, NULL, 0),
          CM_CUDA_INVALID_VALUE);
    EQUAL(cudaLibraryLoadFromFile(NULL, "/", NULL, NULL, 0, NULL, NULL, 0), CM_CUDA_FILE_NOT_FOUND);
}

/* Many kernels of several images, some of which go. */
static void many_functions(void)
{
    enum { IMAGES = 7, EACH = 900 };
    static char stubs[IMAGES][EACH];
    static char names[IMAGES][EACH][32];
    void **image[IMAGES];
    for (int i = 0; i < IMAGES; i++)
        image[i] = __cudaRegisterFatBinary(NULL);
    for (int j = 0; j < EACH; j++)
        for (int i = 0; i < IMAGES; i++) {
            snprintf(names[i][j], sizeof names[i][j], "k%d_%d", i, j);
            __cudaRegisterFunction(image[i], &stubs[i][j], NULL, names[i][j], -1, NULL, NULL, NULL,
                                   NULL, NULL);
        }
    for (int i = 0; i < IMAGES; i += 2)
        __cudaUnregisterFatBinary(image[i]);
    for (int i = 0; i < IMAGES; i++)
        for (int j = 0; j < EACH; j++) {
            const char *name = cm_sim_function_name(&stubs[i][j]);
            if (i % 2)
                CHECK(name && !strcmp(name, names[i][j]));
            else
                CHECK(name == NULL);
        }
    for (int i = 1; i < IMAGES; i += 2)
        __cudaUnregisterFatBinary(image[i]);
    __cudaUnregisterFatBinary(NULL);
}

const test_case kernel_cases[] = {
    {"launches", launches},
    {"functions", functions},
    {"many_functions", many_functions},
    {"libraries", libraries},
    {NULL, NULL},
};
