/* Modules, libraries and the linker. Code is never run: what counts are the names of its kernels,
 * and its variables, which take memory of the device. */
#define _GNU_SOURCE
#include "driver.h"
#include "driver_image.h"
#include "../objects/table.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* A kernel or a variable of a module. */
typedef struct symbol {
    struct symbol *next;
    cm_cu_symbol_kind kind;
    cm_sim_function *function; /* made when first asked for */
    void *memory;              /* the same */
    unsigned context;          /* where that lives */
    size_t bytes;
    char name[];
} symbol;

/* CUmodule and CUlibrary: kept in a list, so that a stale handle is an error. */
typedef struct module {
    struct module *next;
    int device;
    bool opaque; /* any kernel may be in it */
    symbol *symbols;
} module;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static module *modules;

/* fork() finds the lock free. Handlers run in the reverse order of their registration: those of the
 * locks that are taken below this one (memory's, kernels') come first. */
static void before_fork(void)
{
    pthread_mutex_lock(&lock);
}

static void after_fork(void)
{
    pthread_mutex_unlock(&lock);
}

static void watch(void)
{
    cm_sim_objects_lock(); /* its first use has it watched */
    cm_sim_objects_unlock();
    /* Refused for want of memory: then fork() is as unsafe as with any library that has locks. */
    pthread_atfork(before_fork, after_fork, after_fork);
}

static pthread_once_t watched = PTHREAD_ONCE_INIT;

static module **find(const module *handle)
{
    module **at = &modules;
    while (*at && *at != handle)
        at = &(*at)->next;
    return at;
}

static bool is_module(const module *handle)
{
    return handle && *find(handle);
}

static symbol *find_symbol(const module *in, cm_cu_symbol_kind kind, const char *name)
{
    for (symbol *at = in->symbols; at; at = at->next)
        if (at->kind == kind && !strcmp(at->name, name))
            return at;
    return NULL;
}

typedef struct loading {
    module *into;
    bool failed;
} loading;

static symbol *add(module *into, cm_cu_symbol_kind kind, const char *name, size_t length,
                   size_t bytes)
{
    symbol *made = calloc(1, sizeof *made + length + 1);
    if (!made)
        return NULL;
    made->kind = kind;
    made->bytes = bytes;
    memcpy(made->name, name, length);
    made->next = into->symbols;
    into->symbols = made;
    return made;
}

static bool visit(void *context, cm_cu_symbol_kind kind, const char *name, size_t length,
                  size_t bytes)
{
    loading *now = context;
    now->failed = length && !add(now->into, kind, name, length, bytes);
    return !now->failed;
}

/* A variable's memory is given back with its module; so is what knows a kernel by name. */
static void destroy(module *gone)
{
    for (symbol *at = gone->symbols, *next; at; at = next) {
        next = at->next;
        if (at->function)
            cm_sim_function_delete(at->function);
        if (at->memory)
            cm_sim_free(at->memory, NULL);
        free(at);
    }
    free(gone);
}

void cm_cu_modules_end(int device, unsigned context)
{
    pthread_mutex_lock(&lock);
    for (module *one = modules; one; one = one->next)
        if (one->device == device)
            for (symbol *at = one->symbols; at; at = at->next)
                if (at->memory && at->context == context)
                    at->memory = NULL;
    pthread_mutex_unlock(&lock);
}

static int load(const void *image, size_t limit, module **out)
{
    if (!image || !out)
        return CM_SIM_INVALID_VALUE;
    int device = cm_cu_device();
    if (device < 0)
        return CM_SIM_INVALID_CONTEXT;
    module *made = calloc(1, sizeof *made);
    if (!made)
        return CM_SIM_OUT_OF_MEMORY;
    loading now = {.into = made};
    made->device = device;
    made->opaque = cm_cu_image_read(image, limit, visit, &now) == CM_CU_IMAGE_OPAQUE;
    if (now.failed) {
        destroy(made);
        return CM_SIM_OUT_OF_MEMORY;
    }
    pthread_once(&watched, watch);
    pthread_mutex_lock(&lock);
    made->next = modules;
    modules = made;
    pthread_mutex_unlock(&lock);
    *out = made;
    return CM_SIM_OK;
}

/* The whole file, with a zero behind it. */
static int read_file(const char *path, char **out, size_t *bytes)
{
    if (!path)
        return CM_SIM_INVALID_VALUE;
    int file = open(path, O_RDONLY | O_CLOEXEC);
    if (file < 0)
        return CM_CUDA_FILE_NOT_FOUND;
    struct stat about;
    char *text = NULL;
    int result = CM_CUDA_FILE_NOT_FOUND;
    if (!fstat(file, &about) && S_ISREG(about.st_mode)) {
        size_t size = (size_t)about.st_size, done = 0;
        text = malloc(size + 1);
        result = text ? CM_SIM_OK : CM_SIM_OUT_OF_MEMORY;
        while (!result && done < size) {
            ssize_t got = read(file, text + done, size - done);
            if (got < 0 && errno == EINTR)
                continue;
            if (got <= 0)
                break;
            done += (size_t)got;
        }
        if (!result) {
            text[done] = 0;
            *bytes = done;
            *out = text;
        }
    }
    close(file);
    return result;
}

static int load_file(const char *path, module **out)
{
    char *image;
    size_t bytes;
    int result = read_file(path, &image, &bytes);
    if (result)
        return result;
    result = load(image, bytes + 1, out);
    free(image);
    return result;
}

static int unload(module *handle)
{
    pthread_mutex_lock(&lock);
    module **at = find(handle);
    bool known = handle && *at;
    if (known)
        *at = handle->next;
    pthread_mutex_unlock(&lock);
    if (known)
        destroy(handle);
    return known ? CM_SIM_OK : CM_SIM_INVALID_HANDLE;
}

/* Needs the lock. */
static cm_sim_function *function_of(symbol *of)
{
    if (!of->function)
        of->function = cm_sim_function_new(of->name);
    return of->function;
}

static int get_function(cm_sim_function **out, module *handle, const char *name)
{
    if (!name)
        return CM_SIM_INVALID_VALUE;
    pthread_mutex_lock(&lock);
    int result = is_module(handle) ? CM_SIM_OK : CM_SIM_INVALID_HANDLE;
    symbol *found = result ? NULL : find_symbol(handle, CM_CU_KERNEL, name);
    if (!result && !found && handle->opaque)
        found = add(handle, CM_CU_KERNEL, name, strlen(name), 0);
    else if (!result && !found)
        result = CM_SIM_NOT_FOUND;
    cm_sim_function *function = found ? function_of(found) : NULL;
    if (!result && !function)
        result = CM_SIM_OUT_OF_MEMORY;
    pthread_mutex_unlock(&lock);
    if (!result && out)
        *out = function;
    return result;
}

/* Of an image that cannot be read no variable's size is known: none is found in it. A managed
 * variable is found as any other, too. */
static int get_variable(uint64_t *address, size_t *bytes, module *handle, const char *name,
                        bool managed)
{
    if (!name)
        return CM_SIM_INVALID_VALUE;
    pthread_mutex_lock(&lock);
    int result = is_module(handle) ? CM_SIM_OK : CM_SIM_INVALID_HANDLE;
    symbol *found = result ? NULL : find_symbol(handle, CM_CU_MANAGED_VARIABLE, name);
    if (!result && !found && !managed)
        found = find_symbol(handle, CM_CU_VARIABLE, name);
    if (!result && !found)
        result = CM_SIM_NOT_FOUND;
    if (!result && !found->memory) {
        bool here = handle->device == cm_sim_current_device();
        found->context = here ? cm_sim_current_context() : 0;
        int kind = found->kind == CM_CU_MANAGED_VARIABLE ? CM_SIM_MANAGED : CM_SIM_DEVICE;
        result = cm_sim_alloc(handle->device, kind, found->bytes ? found->bytes : 1, NULL,
                              &found->memory);
    }
    if (!result && address)
        *address = (uintptr_t)found->memory;
    if (!result && bytes)
        *bytes = found->bytes;
    pthread_mutex_unlock(&lock);
    return result;
}

static int count_functions(unsigned *count, module *handle, cm_sim_function **out, unsigned room)
{
    pthread_mutex_lock(&lock);
    int result = is_module(handle) ? CM_SIM_OK : CM_SIM_INVALID_HANDLE;
    unsigned n = 0;
    for (symbol *at = result ? NULL : handle->symbols; at; at = at->next) {
        if (at->kind != CM_CU_KERNEL)
            continue;
        if (out && n < room && !(out[n] = function_of(at)))
            result = CM_SIM_OUT_OF_MEMORY;
        n++;
    }
    pthread_mutex_unlock(&lock);
    if (!result && count)
        *count = n;
    return result;
}

/* --- modules ---------------------------------------------------------------------------------- */

CM_SIM_EXPORT int cuModuleLoad(module **handle, const char *path)
{
    CM_CU_BEGIN(cuModuleLoad, (void **)handle, path);
    CM_CU_END(load_file(path, handle));
}

CM_SIM_EXPORT int cuModuleLoadData(module **handle, const void *image)
{
    CM_CU_BEGIN(cuModuleLoadData, (void **)handle, image);
    CM_CU_END(load(image, SIZE_MAX, handle));
}

CM_SIM_EXPORT int cuModuleLoadFatBinary(module **handle, const void *image)
{
    CM_CU_BEGIN(cuModuleLoadFatBinary, (void **)handle, image);
    CM_CU_END(load(image, SIZE_MAX, handle));
}

/* Options: JIT settings, of which those that are answers (times, logs) stay as they were but for
 * the sizes of the logs, which are empty. */
static void answer_options(unsigned count, const int *options, void **values)
{
    enum { INFO_LOG_SIZE = 4, ERROR_LOG_SIZE = 6 };
    for (unsigned i = 0; options && values && i < count; i++)
        if (options[i] == INFO_LOG_SIZE || options[i] == ERROR_LOG_SIZE)
            values[i] = NULL;
}

CM_SIM_EXPORT int cuModuleLoadDataEx(module **handle, const void *image, unsigned count,
                                     int *options, void **values)
{
    CM_CU_BEGIN(cuModuleLoadDataEx, (void **)handle, image, count, options, values);
    int result = load(image, SIZE_MAX, handle);
    if (!result)
        answer_options(count, options, values);
    CM_CU_END(result);
}

CM_SIM_EXPORT int cuModuleUnload(module *handle)
{
    CM_CU_BEGIN(cuModuleUnload, handle);
    CM_CU_END(unload(handle));
}

CM_SIM_EXPORT int cuModuleGetFunction(cm_sim_function **function, module *handle, const char *name)
{
    CM_SIM_ENTRY;
    return get_function(function, handle, name);
}

CM_SIM_EXPORT int cuModuleGetFunctionCount(unsigned *count, module *handle)
{
    CM_SIM_ENTRY;
    return count_functions(count, handle, NULL, 0);
}

CM_SIM_EXPORT int cuModuleGetGlobal_v2(uint64_t *address, size_t *bytes, module *handle,
                                       const char *name)
{
    CM_SIM_ENTRY;
    return get_variable(address, bytes, handle, name, false);
}

/* --- libraries: modules that need no context -------------------------------------------------- */

/* A library is loaded before there is a context; its variables go to the device in use then. */
static int ready(void)
{
    int device;
    return cm_cu_device() >= 0 ? CM_SIM_OK : cm_sim_device_ready(&device);
}

CM_SIM_EXPORT int cuLibraryLoadData(module **library, const void *code, int *jit_options,
                                    void **jit_values, unsigned jit_count, int *options,
                                    void **values, unsigned count)
{
    CM_CU_BEGIN(cuLibraryLoadData, (void **)library, code, jit_options, jit_values, jit_count,
                options, values, count);
    int result = ready();
    if (!result)
        result = load(code, SIZE_MAX, library);
    if (!result)
        answer_options(jit_count, jit_options, jit_values);
    CM_CU_END(result);
}

CM_SIM_EXPORT int cuLibraryLoadFromFile(module **library, const char *path, int *jit_options,
                                        void **jit_values, unsigned jit_count, int *options,
                                        void **values, unsigned count)
{
    CM_CU_BEGIN(cuLibraryLoadFromFile, (void **)library, path, jit_options, jit_values, jit_count,
                options, values, count);
    int result = ready();
    if (!result)
        result = load_file(path, library);
    if (!result)
        answer_options(jit_count, jit_options, jit_values);
    CM_CU_END(result);
}

CM_SIM_EXPORT int cuLibraryUnload(module *library)
{
    CM_CU_BEGIN(cuLibraryUnload, library);
    CM_CU_END(unload(library));
}

CM_SIM_EXPORT int cuLibraryGetKernel(cm_sim_function **kernel, module *library, const char *name)
{
    CM_SIM_ENTRY;
    return get_function(kernel, library, name);
}

CM_SIM_EXPORT int cuLibraryGetKernelCount(unsigned *count, module *library)
{
    CM_SIM_ENTRY;
    return count_functions(count, library, NULL, 0);
}

CM_SIM_EXPORT int cuLibraryEnumerateKernels(cm_sim_function **out, unsigned room, module *library)
{
    CM_SIM_ENTRY;
    return count_functions(NULL, library, out, room);
}

CM_SIM_EXPORT int cuLibraryGetGlobal(uint64_t *address, size_t *bytes, module *library,
                                     const char *name)
{
    CM_SIM_ENTRY;
    return get_variable(address, bytes, library, name, false);
}

CM_SIM_EXPORT int cuLibraryGetManaged(uint64_t *address, size_t *bytes, module *library,
                                      const char *name)
{
    CM_SIM_ENTRY;
    return get_variable(address, bytes, library, name, true);
}

/* No device here has functions that the host can call as well (attribute 129): none is found. */
CM_SIM_EXPORT int cuLibraryGetUnifiedFunction(void **function, module *library, const char *name)
{
    CM_SIM_ENTRY;
    if (!function || !name)
        return CM_SIM_INVALID_VALUE;
    pthread_mutex_lock(&lock);
    int result = is_module(library) ? CM_SIM_NOT_FOUND : CM_SIM_INVALID_HANDLE;
    pthread_mutex_unlock(&lock);
    return result;
}

/* --- the linker ------------------------------------------------------------------------------- */

/* CUlinkState: the image it makes, growing (driver_image.h). */
typedef struct linker {
    struct linker *next;
    cm_cu_linked *image;
    size_t room;
} linker;

static linker *linkers;

static linker **find_linker(const linker *handle)
{
    linker **at = &linkers;
    while (*at && *at != handle)
        at = &(*at)->next;
    return at;
}

CM_SIM_EXPORT int cuLinkCreate_v2(unsigned count, int *options, void **values, linker **state)
{
    CM_SIM_ENTRY;
    if (!state)
        return CM_SIM_INVALID_VALUE;
    linker *made = calloc(1, sizeof *made);
    cm_cu_linked *image = calloc(1, sizeof *image);
    if (!made || !image) {
        free(made);
        free(image);
        return CM_SIM_OUT_OF_MEMORY;
    }
    memcpy(image->magic, CM_CU_LINKED, sizeof image->magic);
    made->image = image;
    answer_options(count, options, values);
    pthread_mutex_lock(&lock);
    made->next = linkers;
    linkers = made;
    pthread_mutex_unlock(&lock);
    *state = made;
    return CM_SIM_OK;
}
CM_SIM_ALIAS(cuLinkCreate_v2, cuLinkCreate);

static int append(linker *state, const void *data, size_t bytes)
{
    if (!data || !bytes)
        return CM_SIM_INVALID_VALUE;
    pthread_mutex_lock(&lock);
    int result = state && *find_linker(state) ? CM_SIM_OK : CM_SIM_INVALID_HANDLE;
    if (!result) {
        size_t used = sizeof(cm_cu_linked) + state->image->bytes;
        cm_cu_linked *grown = realloc(state->image, used + sizeof bytes + bytes);
        if (grown) {
            memcpy((char *)grown + used, &bytes, sizeof bytes);
            memcpy((char *)grown + used + sizeof bytes, data, bytes);
            grown->bytes += sizeof bytes + bytes;
            state->image = grown;
        } else {
            result = CM_SIM_OUT_OF_MEMORY;
        }
    }
    pthread_mutex_unlock(&lock);
    return result;
}

CM_SIM_EXPORT int cuLinkAddData_v2(linker *state, int type, void *data, size_t bytes,
                                   const char *name, unsigned count, int *options, void **values)
{
    CM_SIM_ENTRY;
    (void)type, (void)name;
    answer_options(count, options, values);
    return append(state, data, bytes);
}
CM_SIM_ALIAS(cuLinkAddData_v2, cuLinkAddData);

CM_SIM_EXPORT int cuLinkAddFile_v2(linker *state, int type, const char *path, unsigned count,
                                   int *options, void **values)
{
    CM_SIM_ENTRY;
    (void)type;
    char *text;
    size_t bytes;
    int result = read_file(path, &text, &bytes);
    if (result)
        return result;
    answer_options(count, options, values);
    result = append(state, text, bytes);
    free(text);
    return result;
}
CM_SIM_ALIAS(cuLinkAddFile_v2, cuLinkAddFile);

/* The image belongs to the linker and goes with it. */
CM_SIM_EXPORT int cuLinkComplete(linker *state, void **cubin, size_t *bytes)
{
    CM_SIM_ENTRY;
    pthread_mutex_lock(&lock);
    int result = state && *find_linker(state) ? CM_SIM_OK : CM_SIM_INVALID_HANDLE;
    if (!result && cubin)
        *cubin = state->image;
    if (!result && bytes)
        *bytes = sizeof(cm_cu_linked) + state->image->bytes;
    pthread_mutex_unlock(&lock);
    return result;
}

CM_SIM_EXPORT int cuLinkDestroy(linker *state)
{
    CM_SIM_ENTRY;
    pthread_mutex_lock(&lock);
    linker **at = find_linker(state);
    bool known = state && *at;
    if (known)
        *at = state->next;
    pthread_mutex_unlock(&lock);
    if (!known)
        return CM_SIM_INVALID_HANDLE;
    free(state->image);
    free(state);
    return CM_SIM_OK;
}
