/* Kernels loaded at run time, entry points by name, and what is refused by name. */
#include "runtime.h"

/* --- libraries: the driver's ------------------------------------------------------------------ */

int cuLibraryLoadData(cm_sim_library **library, const void *code, int *jit_options,
                      void **jit_values, unsigned jit_count, int *options, void **values,
                      unsigned count);
int cuLibraryLoadFromFile(cm_sim_library **library, const char *path, int *jit_options,
                          void **jit_values, unsigned jit_count, int *options, void **values,
                          unsigned count);
int cuLibraryUnload(cm_sim_library *library);
int cuLibraryGetKernel(cm_sim_function **kernel, cm_sim_library *library, const char *name);
int cuLibraryGetKernelCount(unsigned *count, cm_sim_library *library);
int cuLibraryEnumerateKernels(cm_sim_function **kernels, unsigned room, cm_sim_library *library);
int cuLibraryGetGlobal(uint64_t *address, size_t *bytes, cm_sim_library *library, const char *name);
int cuLibraryGetManaged(uint64_t *address, size_t *bytes, cm_sim_library *library,
                        const char *name);
int cuLibraryGetUnifiedFunction(void **function, cm_sim_library *library, const char *name);

CM_SIM_EXPORT int cudaLibraryLoadData(cm_sim_library **library, const void *code, int *jit_options,
                                      void **jit_values, unsigned jit_count, int *options,
                                      void **values, unsigned count)
{
    CM_RT_BEGIN(cudaLibraryLoadData, library, code, jit_options, jit_values, jit_count, options,
                values, count);
    CM_RT_END(cuLibraryLoadData(library, code, jit_options, jit_values, jit_count, options, values,
                                count));
}

CM_SIM_EXPORT int cudaLibraryLoadFromFile(cm_sim_library **library, const char *path,
                                          int *jit_options, void **jit_values, unsigned jit_count,
                                          int *options, void **values, unsigned count)
{
    CM_RT_BEGIN(cudaLibraryLoadFromFile, library, path, jit_options, jit_values, jit_count, options,
                values, count);
    CM_RT_END(cuLibraryLoadFromFile(library, path, jit_options, jit_values, jit_count, options,
                                    values, count));
}

CM_SIM_EXPORT int cudaLibraryUnload(cm_sim_library *library)
{
    CM_RT_BEGIN(cudaLibraryUnload, library);
    CM_RT_END(cuLibraryUnload(library));
}

CM_SIM_EXPORT int cudaLibraryGetKernel(cm_sim_function **kernel, cm_sim_library *library,
                                       const char *name)
{
    CM_RT_BEGIN(cudaLibraryGetKernel, kernel, library, name);
    CM_RT_END(kernel ? cuLibraryGetKernel(kernel, library, name) : CM_CUDA_INVALID_VALUE);
}

CM_SIM_EXPORT int cudaLibraryGetKernelCount(unsigned *count, cm_sim_library *library)
{
    CM_RT_BEGIN(cudaLibraryGetKernelCount, count, library);
    CM_RT_END(count ? cuLibraryGetKernelCount(count, library) : CM_CUDA_INVALID_VALUE);
}

CM_SIM_EXPORT int cudaLibraryEnumerateKernels(cm_sim_function **kernels, unsigned room,
                                              cm_sim_library *library)
{
    CM_RT_BEGIN(cudaLibraryEnumerateKernels, kernels, room, library);
    CM_RT_END(kernels ? cuLibraryEnumerateKernels(kernels, room, library) : CM_CUDA_INVALID_VALUE);
}

/* Either output may be left out, not both. */
static int find(int (*get)(uint64_t *, size_t *, cm_sim_library *, const char *), void **address,
                size_t *bytes, cm_sim_library *library, const char *name)
{
    uint64_t found = 0;
    if (!address && !bytes)
        return CM_CUDA_INVALID_VALUE;
    int result = get(&found, bytes, library, name);
    if (!result && address)
        *address = (void *)(uintptr_t)found;
    return result;
}

CM_SIM_EXPORT int cudaLibraryGetGlobal(void **address, size_t *bytes, cm_sim_library *library,
                                       const char *name)
{
    CM_RT_BEGIN(cudaLibraryGetGlobal, address, bytes, library, name);
    CM_RT_END(find(cuLibraryGetGlobal, address, bytes, library, name));
}

CM_SIM_EXPORT int cudaLibraryGetManaged(void **address, size_t *bytes, cm_sim_library *library,
                                        const char *name)
{
    CM_RT_BEGIN(cudaLibraryGetManaged, address, bytes, library, name);
    CM_RT_END(find(cuLibraryGetManaged, address, bytes, library, name));
}

CM_SIM_EXPORT int cudaLibraryGetUnifiedFunction(void **function, cm_sim_library *library,
                                                const char *name)
{
    CM_RT_BEGIN(cudaLibraryGetUnifiedFunction, function, library, name);
    CM_RT_END(cuLibraryGetUnifiedFunction(function, library, name));
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
