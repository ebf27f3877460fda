/* Kernels loaded at run time, entry points by name, and what is refused by name. */
#include "runtime.h"
#include "../objects/table.h"

#include <stdlib.h>
#include <unistd.h>

/* --- libraries -------------------------------------------------------------------------------- */

struct __attribute__((aligned(32))) cm_sim_library {
    cm_sim_slot slot;
    cm_sim_function **kernels;
    size_t count;
};

static cm_sim_table libraries = CM_SIM_TABLE(cm_sim_library);

/* The code itself is not looked at: any kernel that is asked for by name is there. */
static int load(cm_sim_library **library)
{
    int device;
    int result = library ? cm_sim_device_ready(&device) : CM_CUDA_INVALID_VALUE;
    if (result)
        return result;
    *library = cm_sim_table_take(&libraries);
    return *library ? CM_CUDA_OK : CM_CUDA_OUT_OF_MEMORY;
}

CM_SIM_EXPORT int cudaLibraryLoadData(cm_sim_library **library, const void *code, int *jit_options,
                                      void **jit_values, unsigned jit_count, int *options,
                                      void **values, unsigned count)
{
    CM_RT_BEGIN(cudaLibraryLoadData, library, code, jit_options, jit_values, jit_count, options,
                values, count);
    CM_RT_END(code ? load(library) : CM_CUDA_INVALID_VALUE);
}

CM_SIM_EXPORT int cudaLibraryUnload(cm_sim_library *library)
{
    CM_RT_BEGIN(cudaLibraryUnload, library);
    if (!cm_sim_table_has(&libraries, library))
        CM_RT_END(CM_CUDA_INVALID_HANDLE);
    for (size_t i = 0; i < library->count; i++)
        cm_sim_function_delete(library->kernels[i]);
    free(library->kernels);
    CM_RT_END(cm_sim_table_drop(&libraries, library) ? CM_CUDA_OK : CM_CUDA_INVALID_HANDLE);
}

CM_SIM_EXPORT int cudaLibraryGetKernel(cm_sim_function **kernel, cm_sim_library *library,
                                       const char *name)
{
    CM_RT_BEGIN(cudaLibraryGetKernel, kernel, library, name);
    if (!kernel || !name)
        CM_RT_END(CM_CUDA_INVALID_VALUE);
    if (!cm_sim_table_has(&libraries, library))
        CM_RT_END(CM_CUDA_INVALID_HANDLE);
    for (size_t i = 0; i < library->count; i++)
        if (!strcmp(cm_sim_function_name(library->kernels[i]), name)) {
            *kernel = library->kernels[i];
            CM_RT_END(CM_CUDA_OK);
        }
    cm_sim_function **wider =
        realloc(library->kernels, (library->count + 1) * sizeof *library->kernels);
    if (wider)
        library->kernels = wider;
    cm_sim_function *made = wider ? cm_sim_function_new(name) : NULL;
    if (!made)
        CM_RT_END(CM_CUDA_OUT_OF_MEMORY);
    library->kernels[library->count++] = made;
    *kernel = made;
    CM_RT_END(CM_CUDA_OK);
}

/* --- the driver's entry points ---------------------------------------------------------------- */

int cuGetProcAddress_v2(const char *symbol, void **function, int version, uint64_t flags,
                        int *status);

static int entry_point(const char *symbol, void **function, unsigned version,
                       unsigned long long flags, int *status)
{
    int found = CM_CUDA_ENTRY_NOT_FOUND;
    if (!symbol || !function)
        return CM_CUDA_INVALID_VALUE;
    *function = NULL;
    /* Whether there is such a name is in `found`, or in the address. */
    (void)cuGetProcAddress_v2(symbol, function, (int)version, flags, &found);
    if (status)
        *status = found;
    return *function || status ? CM_CUDA_OK : CM_CUDA_SYMBOL_NOT_FOUND;
}

CM_SIM_EXPORT int cudaGetDriverEntryPointByVersion(const char *symbol, void **function,
                                                   unsigned version, unsigned long long flags,
                                                   int *status)
{
    CM_RT_BEGIN(cudaGetDriverEntryPointByVersion, symbol, function, version, flags, status);
    CM_RT_END(entry_point(symbol, function, version, flags, status));
}
CM_SIM_ALIAS(cudaGetDriverEntryPointByVersion, cudaGetDriverEntryPointByVersion_ptsz);

CM_SIM_EXPORT int cudaGetDriverEntryPoint(const char *symbol, void **function,
                                          unsigned long long flags, int *status)
{
    CM_RT_BEGIN(cudaGetDriverEntryPoint, symbol, function, flags, status);
    CM_RT_END(entry_point(symbol, function, (unsigned)cm_sim_config_get()->driver_version, flags,
                          status));
}
CM_SIM_ALIAS(cudaGetDriverEntryPoint, cudaGetDriverEntryPoint_ptsz);

/* --- profilers: what they switch on and off is CUPTI's, and not tied to these ----------------- */

CM_SIM_EXPORT int cudaProfilerStart(void)
{
    CM_RT_BEGIN_BARE(cudaProfilerStart);
    CM_RT_END(CM_CUDA_OK);
}

CM_SIM_EXPORT int cudaProfilerStop(void)
{
    CM_RT_BEGIN_BARE(cudaProfilerStop);
    CM_RT_END(CM_CUDA_OK);
}
