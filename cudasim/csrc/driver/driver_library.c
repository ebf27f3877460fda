/* The memory that a library's handle takes of the device for itself.
 *
 * A real cuBLAS asks the driver for it from its own code (a static runtime is inside), so a client
 * of CUPTI finds cuBLAS on the stack and at a record's PC. Here all code is in one file, so the
 * call goes through the few instructions that the alias of the library has (setup.py:
 * describe_alias). A program that was linked with this library alone has no aliases and calls
 * directly. */
#define _GNU_SOURCE
#include "driver.h"

#include <dlfcn.h>
#include <string.h>

typedef void (*passage)(void (*work)(void *), void *argument);

static struct {
    const char *library, *file, *file_12; /* file_12: of CUDA 12, where its number is another */
    _Atomic(passage) way;
} ways[] = {
    {"cuBLAS", "libcublas.so.13", "libcublas.so.12", NULL},
    {"cuBLASLt", "libcublasLt.so.13", "libcublasLt.so.12", NULL},
    {"cuDNN", "libcudnn.so.9", NULL, NULL},
    {"cuFFT", "libcufft.so.12", "libcufft.so.11", NULL},
    {"cuSOLVER", "libcusolver.so.12", "libcusolver.so.11", NULL},
    {"cuSPARSE", "libcusparse.so.12", NULL, NULL},
    {"cuSPARSELt", "libcusparseLt.so.0", NULL, NULL},
    {"NCCL communicators", "libnccl.so.2", NULL, NULL},
};

/* The file stays mapped: the process was started with it. */
static passage through(const char *library)
{
    for (size_t i = 0; i < sizeof ways / sizeof *ways; i++) {
        if (strcmp(ways[i].library, library) != 0)
            continue;
        passage way = atomic_load(&ways[i].way);
        bool old = ways[i].file_12 && cm_sim_cuda_major() == 12;
        void *file =
            way ? NULL : dlopen(old ? ways[i].file_12 : ways[i].file, RTLD_NOW | RTLD_NOLOAD);
        if (file) {
            *(void **)&way = dlsym(file, "cm_sim_from");
            atomic_store(&ways[i].way, way);
            dlclose(file);
        }
        return way;
    }
    return NULL;
}

static void pass(const char *library, void (*work)(void *), void *argument)
{
    passage way = through(library);
    if (way)
        way(work, argument);
    else
        work(argument);
}

typedef struct request {
    const char *library;
    size_t bytes;
    uint64_t address;
    int result;
} request;

static int reported_take(request *asked)
{
    CM_CU_BEGIN(cuMemAlloc_v2, &asked->address, asked->bytes);
    void *memory;
    int device = cm_sim_current_device();
    int result = cm_sim_alloc(device, CM_SIM_LIBRARY, asked->bytes, asked->library, &memory);
    asked->address = result ? 0 : (uintptr_t)memory;
    if (CM_CU_REPORTED && !result)
        cm_sim_record_memory(&cm_call, &(cm_sim_memory_event){.operation = CM_CU_ALLOCATED,
                                                              .kind = CM_CU_KIND_DEVICE,
                                                              .device = device,
                                                              .address = memory,
                                                              .bytes = asked->bytes});
    CM_CU_END(result);
}

static void take(void *argument)
{
    request *asked = argument;
    asked->result = reported_take(asked);
}

static int reported_give(const request *asked)
{
    CM_CU_BEGIN(cuMemFree_v2, asked->address);
    cm_sim_block block;
    int result = cm_sim_free((void *)asked->address, &block);
    if (CM_CU_REPORTED && !result)
        cm_sim_record_memory(&cm_call, &(cm_sim_memory_event){.operation = CM_CU_RELEASED,
                                                              .kind = CM_CU_KIND_DEVICE,
                                                              .device = block.device,
                                                              .address = (void *)block.address,
                                                              .bytes = block.bytes});
    CM_CU_END(result);
}

static void give(void *argument)
{
    request *asked = argument;
    asked->result = reported_give(asked);
}

int cm_sim_library_take(const char *library, size_t bytes, void **memory)
{
    request asked = {library, bytes, 0, CM_SIM_OK};
    *memory = NULL;
    /* First, as in any library: the allocation is reported with its context. There is a runtime in
     * it. */
    int result = cm_sim_device_hold(cm_sim_current_device());
    if (result || !bytes)
        return result;
    pass(library, take, &asked);
    *memory = (void *)asked.address;
    return asked.result;
}

/* What cannot be given back any more went with its context. */
void cm_sim_library_give(const char *library, void *memory)
{
    request asked = {library, 0, (uintptr_t)memory, CM_SIM_OK};
    if (memory)
        pass(library, give, &asked);
}
