/* The driver's initialization, errors, and cuGetProcAddress. */
#define _GNU_SOURCE
#include "driver.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* --- callers ---------------------------------------------------------------------------------- */

/* The name of its file, without the folder; "" where none is known. */
static const char *file_of(const void *caller)
{
    Dl_info from;
    if (!dladdr(caller, &from) || !from.dli_fname)
        return "";
    const char *slash = strrchr(from.dli_fname, '/');
    return slash ? slash + 1 : from.dli_fname;
}

static bool is_of(const void *caller, const char *library)
{
    return !strncmp(file_of(caller), library, strlen(library));
}

/* NCCL brings a runtime of its own, which needs private tables of the real driver. It is refused at
 * once, and the report names it. */
static bool is_nccl(const void *caller)
{
    if (!is_of(caller, "libnccl"))
        return false;
    cm_sim_note(CM_SIM_NOTE_REFUSED, "NCCL", 0);
    return true;
}

/* Compilers ask for private tables that they can do without. */
static bool is_compiler(const void *caller)
{
    return is_of(caller, "libnvrtc") || is_of(caller, "libnvJitLink") || is_of(caller, "libnvvm");
}

/* --- beginning -------------------------------------------------------------------------------- */

CM_SIM_EXPORT int cuInit(unsigned flags)
{
    CM_SIM_ENTRY;
    if (flags)
        return CM_SIM_INVALID_VALUE;
    if (is_nccl(__builtin_return_address(0)))
        return CM_SIM_NO_DEVICE;
    return cm_sim_config_get()->devices ? CM_SIM_OK : CM_SIM_NO_DEVICE;
}

CM_SIM_EXPORT int cuDriverGetVersion(int *version)
{
    CM_SIM_ENTRY;
    if (!version)
        return CM_SIM_INVALID_VALUE;
    *version = cm_sim_config_get()->driver_version;
    return CM_SIM_OK;
}

CM_SIM_EXPORT int cuGetErrorName(int error, const char **name)
{
    CM_SIM_ENTRY;
    const char *known = cm_sim_error_driver_name(error);
    if (name)
        *name = known;
    return known && name ? CM_SIM_OK : CM_SIM_INVALID_VALUE;
}

CM_SIM_EXPORT int cuGetErrorString(int error, const char **text)
{
    CM_SIM_ENTRY;
    const char *known = cm_sim_error_driver_name(error) ? cm_sim_error_text(error) : NULL;
    if (text)
        *text = known;
    return known && text ? CM_SIM_OK : CM_SIM_INVALID_VALUE;
}

/* --- looking up ------------------------------------------------------------------------------- */

/* This library, to look up its own exports only. */
static void *self(void)
{
    static _Atomic(void *) handle;
    void *known = atomic_load(&handle);
    Dl_info here;
    if (known)
        return known;
    if (dladdr((void *)cuInit, &here) && here.dli_fname)
        known = dlopen(here.dli_fname, RTLD_NOW | RTLD_NOLOAD);
    if (!known) /* a program that it is linked into has no such name */
        known = dlopen(NULL, RTLD_NOW);
    atomic_store(&handle, known);
    return known;
}

/* Sorted by name and version. */
static const struct {
    const char *name;
    int version; /* 1000 * major + 10 * minor */
    const char *symbol;
} functions[] = {
#include "generated/lookup.h"
};

/* Functions of CUDA that are not simulated are found, too, and name themselves when they are called
 * (tables/cuda.txt): programs look up many that they never use. */
static const char *exported(const char *name, int version, bool *too_old)
{
    const size_t count = sizeof functions / sizeof *functions;
    size_t low = 0, high = count;
    while (low < high) {
        size_t middle = (low + high) / 2;
        if (strcmp(functions[middle].name, name) < 0)
            low = middle + 1;
        else
            high = middle;
    }
    const char *found = NULL;
    *too_old = false;
    for (; low < count && !strcmp(functions[low].name, name); low++) {
        if (functions[low].version <= version)
            found = functions[low].symbol;
        else
            *too_old = !found;
    }
    return found;
}

static int look_up(const char *name, void **out, int version, unsigned long long flags, int *status)
{
    enum { FLAGS = 3 }; /* the thread's own default stream, or the one of all: the same here */
    if (!name || !*name || !out || flags & ~(unsigned long long)FLAGS ||
        version > cm_sim_config_get()->driver_version)
        return CM_SIM_INVALID_VALUE;
    bool too_old;
    const char *symbol = exported(name, version, &too_old);
    *out = symbol ? dlsym(self(), symbol) : NULL;
    int answer = *out      ? CM_CUDA_ENTRY_FOUND
                 : too_old ? CM_CUDA_ENTRY_VERSION
                           : CM_CUDA_ENTRY_NOT_FOUND;
    cm_sim_trace("cuGetProcAddress(%s, %d): %s", name, version, symbol ? symbol : "none");
    if (status) {
        *status = answer;
        return CM_SIM_OK;
    }
    return *out ? CM_SIM_OK : CM_SIM_NOT_FOUND;
}

CM_SIM_EXPORT int cuGetProcAddress_v2(const char *name, void **out, int version,
                                      unsigned long long flags, int *status)
{
    CM_SIM_ENTRY;
    is_nccl(__builtin_return_address(0));
    return look_up(name, out, version, flags, status);
}

/* Before 12.0 there was no status: what is missing is an error. */
CM_SIM_EXPORT int cuGetProcAddress(const char *name, void **out, int version,
                                   unsigned long long flags)
{
    CM_SIM_ENTRY;
    is_nccl(__builtin_return_address(0));
    return look_up(name, out, version, flags, NULL);
}

/* The tables of functions that NVIDIA's own libraries share, by undocumented identifiers. A runtime
 * that is linked into another library finds no device without them: the note names that library. */
CM_SIM_EXPORT int cuGetExportTable(const void **table, const uint8_t identifier[16])
{
    CM_SIM_ENTRY;
    const void *caller = __builtin_return_address(0);
    (void)identifier;
    if (table)
        *table = NULL;
    if (!is_nccl(caller) && !is_compiler(caller)) {
        char name[CM_SIM_NAME];
        snprintf(name, sizeof name, "cuGetExportTable for %s", file_of(caller));
        cm_sim_note(CM_SIM_NOTE_REFUSED, name, 0);
    }
    return CM_SIM_NOT_SUPPORTED;
}

/* --- callbacks for errors: a simulated device has none ---------------------------------------- */

CM_SIM_EXPORT int cuLogsRegisterCallback(void (*callback)(void *, int, char *, size_t), void *data,
                                         void **handle)
{
    static char registered;
    CM_SIM_ENTRY;
    (void)data;
    if (!callback)
        return CM_SIM_INVALID_VALUE;
    if (handle)
        *handle = &registered;
    return CM_SIM_OK;
}

CM_SIM_EXPORT int cuLogsUnregisterCallback(void *handle)
{
    CM_SIM_ENTRY;
    return handle ? CM_SIM_OK : CM_SIM_INVALID_VALUE;
}
