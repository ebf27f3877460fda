/* Images that a program was linked with: the code that nvcc adds registers their kernels and
 * variables while the program is loaded. */
#include "../objects/objects_function.h"
#include "runtime.h"
#include "../objects/table.h"

#include <pthread.h>
#include <stdlib.h>

typedef struct variable {
    struct variable *next;
    struct image *image;
    const void *stub;
    size_t bytes;
    void **managed; /* where the host finds it; NULL: a plain variable */
    void *address[CM_SIM_DEVICES];
    unsigned context[CM_SIM_DEVICES]; /* where that lives */
} variable;

/* What __cudaRegisterFatBinary hands out is a pointer to one. */
typedef struct image {
    const void *binary;
    cm_sim_function *last;
} image;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static variable *variables; /* under the lock */

void cm_sim_symbols_lock(void)
{
    pthread_mutex_lock(&lock);
}

void cm_sim_symbols_unlock(void)
{
    pthread_mutex_unlock(&lock);
}

CM_SIM_EXPORT void **__cudaRegisterFatBinary(void *binary)
{
    image *made = calloc(1, sizeof *made);
    if (made)
        made->binary = binary;
    return (void **)made;
}

CM_SIM_EXPORT void __cudaRegisterFatBinaryEnd(void **handle)
{
    (void)handle; /* nothing is loaded before it is used, and nothing is used */
}

CM_SIM_EXPORT void __cudaUnregisterFatBinary(void **handle)
{
    image *gone = (image *)handle;
    if (!gone)
        return;
    cm_sim_function_unregister(gone->last);
    pthread_mutex_lock(&lock);
    for (variable **at = &variables; *at;) {
        variable *one = *at;
        if (one->image != gone) {
            at = &one->next;
            continue;
        }
        *at = one->next;
        for (int device = 0; device < CM_SIM_DEVICES; device++)
            if (one->address[device])
                (void)cm_sim_free(one->address[device], NULL); /* only this table frees it */
        free(one);
    }
    pthread_mutex_unlock(&lock);
    free(gone);
}

CM_SIM_EXPORT void __cudaRegisterFunction(void **handle, const char *stub, char *device_stub,
                                          const char *name, int threads, void *thread_id,
                                          void *block_id, void *block, void *grid, int *warp)
{
    (void)device_stub, (void)threads, (void)thread_id, (void)block_id, (void)block, (void)grid;
    (void)warp;
    image *of = (image *)handle;
    if (!of || !cm_sim_function_register(&of->last, stub, name))
        cm_sim_note(CM_SIM_NOTE_LIMIT, "host memory for kernel names", 0);
}

static void add_variable(void **handle, const void *stub, size_t bytes, void **managed)
{
    variable *made = handle ? calloc(1, sizeof *made) : NULL;
    if (!made) {
        cm_sim_note(CM_SIM_NOTE_LIMIT, "host memory for device variables", bytes);
        return;
    }
    made->image = (image *)handle;
    made->stub = stub;
    made->bytes = bytes;
    made->managed = managed;
    pthread_mutex_lock(&lock);
    made->next = variables;
    variables = made;
    pthread_mutex_unlock(&lock);
}

CM_SIM_EXPORT void __cudaRegisterVar(void **handle, char *stub, char *device_address,
                                     const char *name, int external, size_t bytes, int constant,
                                     int global)
{
    (void)device_address, (void)name, (void)external, (void)constant, (void)global;
    add_variable(handle, stub, bytes, NULL);
}

CM_SIM_EXPORT void __cudaRegisterManagedVar(void **handle, void **stub, char *device_address,
                                            const char *name, int external, size_t bytes,
                                            int constant, int global)
{
    (void)device_address, (void)name, (void)external, (void)constant, (void)global;
    add_variable(handle, stub, bytes, stub);
}

/* Under the lock. On a real device a module's variables are there once it is loaded, which is at
 * the first use of any of its kernels; here a variable is there once it is asked for. */
static int materialize(variable *one, int device)
{
    if (one->address[device])
        return CM_CUDA_OK;
    one->context[device] = cm_sim_current_context();
    return cm_sim_alloc(device, one->managed ? CM_SIM_MANAGED : CM_SIM_LIBRARY, one->bytes,
                        "variables of CUDA modules", &one->address[device]);
}

void cm_sim_symbols_end(int device, unsigned context)
{
    pthread_mutex_lock(&lock);
    for (variable *one = variables; one; one = one->next)
        if (one->address[device] && one->context[device] == context) {
            if (one->managed && *one->managed == one->address[device])
                *one->managed = NULL;
            one->address[device] = NULL;
        }
    pthread_mutex_unlock(&lock);
}

/* Called before the host first touches a managed variable. */
CM_SIM_EXPORT char __cudaInitModule(void **handle)
{
    CM_SIM_ENTRY;
    int device, result = CM_CUDA_OK;
    pthread_mutex_lock(&lock);
    for (variable *one = variables; !result && one; one = one->next) {
        if (one->image != (image *)handle || !one->managed || *one->managed)
            continue;
        result = cm_sim_device_ready(&device);
        if (!result)
            result = materialize(one, device);
        if (!result)
            *one->managed = one->address[device];
    }
    pthread_mutex_unlock(&lock);
    return (char)(result != CM_CUDA_OK);
}

int cm_rt_symbol(const void *symbol, void **address, size_t *bytes)
{
    int device;
    int result = cm_sim_device_ready(&device);
    if (result)
        return result;
    pthread_mutex_lock(&lock);
    variable *one = variables;
    while (one && one->stub != symbol)
        one = one->next;
    result = one ? materialize(one, device) : CM_CUDA_INVALID_SYMBOL;
    if (!result && address)
        *address = one->address[device];
    if (!result && bytes)
        *bytes = one->bytes;
    pthread_mutex_unlock(&lock);
    return result;
}

CM_SIM_EXPORT int cudaGetSymbolAddress(void **address, const void *symbol)
{
    CM_RT_BEGIN(cudaGetSymbolAddress, address, symbol);
    CM_RT_END(address ? cm_rt_symbol(symbol, address, NULL) : CM_CUDA_INVALID_VALUE);
}

CM_SIM_EXPORT int cudaGetSymbolSize(size_t *bytes, const void *symbol)
{
    CM_RT_BEGIN(cudaGetSymbolSize, bytes, symbol);
    CM_RT_END(bytes ? cm_rt_symbol(symbol, NULL, bytes) : CM_CUDA_INVALID_VALUE);
}
