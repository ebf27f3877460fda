/* Kernels: those of __cudaRegisterFunction, and those that modules gave by name.
 *
 * PyTorch registers tens of thousands while its libraries are loaded, so an entry is small;
 * launches name the host stub and do nothing with it. The name is looked up only where it is
 * needed. */
#include "objects_function.h"
#include "devices.h"
#include "../core/sim.h"
#include "table.h"

#include <stdlib.h>
#include <string.h>

struct cm_sim_function {
    cm_sim_slot slot;
    const void *stub; /* NULL: it came from a module, and the name is ours */
    const char *name;
    int dynamic_shared; /* as the program allowed it; 0: what every kernel may have */
    uint32_t before;    /* registered before it for the same image, by number; 0: none */
};
_Static_assert(sizeof(cm_sim_function) == 32, "there are tens of thousands");

enum { SHARED_ALWAYS = 48 << 10, CARVEOUT_DEFAULT = -1, CARVEOUT_MAX = 100 };

static cm_sim_table functions = CM_SIM_TABLE(cm_sim_function);
static cm_sim_dictionary stubs; /* under the objects' lock */

bool cm_sim_function_register(cm_sim_function **last, const void *stub, const char *name)
{
    cm_sim_function *made = cm_sim_table_take(&functions);
    if (!made)
        return false;
    made->stub = stub;
    made->name = name;
    cm_sim_objects_lock();
    bool known = cm_sim_dictionary_put(&stubs, stub, made);
    if (known)
        made->before = *last ? cm_sim_table_number(&functions, *last) : 0;
    cm_sim_objects_unlock();
    if (!known)
        return cm_sim_table_drop(&functions, made) && false;
    *last = made;
    return true;
}

void cm_sim_function_unregister(cm_sim_function *last)
{
    while (last) {
        cm_sim_function *gone = last;
        last = gone->before ? cm_sim_table_at(&functions, gone->before) : NULL;
        cm_sim_objects_lock();
        if (cm_sim_dictionary_get(&stubs, gone->stub) == gone)
            cm_sim_dictionary_remove(&stubs, gone->stub);
        cm_sim_objects_unlock();
        cm_sim_table_drop(&functions, gone);
    }
}

cm_sim_function *cm_sim_function_find(const void *function)
{
    if (!function)
        return NULL;
    if (cm_sim_table_has(&functions, function))
        return (cm_sim_function *)(uintptr_t)function;
    cm_sim_objects_lock();
    cm_sim_function *found = cm_sim_dictionary_get(&stubs, function);
    cm_sim_objects_unlock();
    return found;
}

const char *cm_sim_function_name(const void *function)
{
    const cm_sim_function *found = cm_sim_function_find(function);
    return found ? found->name : NULL;
}

cm_sim_function *cm_sim_function_new(const char *name)
{
    char *copy = strdup(name);
    cm_sim_function *made = copy ? cm_sim_table_take(&functions) : NULL;
    if (!made) {
        free(copy);
        return NULL;
    }
    made->name = copy;
    return made;
}

void cm_sim_function_delete(cm_sim_function *function)
{
    char *name = cm_sim_table_has(&functions, function) && !function->stub
                     ? (char *)(uintptr_t)function->name
                     : NULL;
    /* Only a function with a name of its own. A caller may still read a name that it got, so only
     * the slot is reused. */
    if (name && cm_sim_table_drop(&functions, function))
        free(name);
}

int cm_sim_function_dynamic_shared(const cm_sim_function *function)
{
    return function && function->dynamic_shared ? function->dynamic_shared : SHARED_ALWAYS;
}

int cm_sim_function_set(cm_sim_function *function, int attribute, int value)
{
    int optin = 0;
    switch (attribute) {
    case CM_CUDA_FUNC_MAX_DYNAMIC_SHARED: {
        int result = cm_sim_device_attribute(cm_sim_current_device(),
                                             CM_CUDA_ATTR_SHARED_PER_BLOCK_OPTIN, &optin);
        if (result)
            return result;
        if (value < 0 || value > optin)
            return CM_CUDA_INVALID_VALUE;
        function->dynamic_shared = value;
        return CM_CUDA_OK;
    }
    case CM_CUDA_FUNC_CARVEOUT: /* a hint: nothing follows from it here */
        return value < CARVEOUT_DEFAULT || value > CARVEOUT_MAX ? CM_CUDA_INVALID_VALUE
                                                                : CM_CUDA_OK;
    case CM_CUDA_FUNC_CLUSTER_WIDTH:
    case CM_CUDA_FUNC_CLUSTER_HEIGHT:
    case CM_CUDA_FUNC_CLUSTER_DEPTH:
        return value < 0 ? CM_CUDA_INVALID_VALUE : CM_CUDA_OK;
    case CM_CUDA_FUNC_CLUSTER_REQUIRED:
    case CM_CUDA_FUNC_NON_PORTABLE_CLUSTER:
    case CM_CUDA_FUNC_CLUSTER_POLICY:
        return CM_CUDA_OK;
    default:
        return CM_CUDA_INVALID_VALUE;
    }
}

/* The image that runs on a device is the newest that its kernels were compiled for. 8.9 runs the
 * one for 8.6, and 12.1 the one for 12.0 (that is how PyTorch is built), and CUB, which picks its
 * policy by this number among those that it was compiled for, refuses any other. */
static int image(int major, int minor)
{
    int version = 10 * major + minor;
    return version == 89 ? 86 : version == 121 ? 120 : version;
}

/* Libraries size their scratch memory by these on the host. What a compiler would know (registers,
 * static shared memory) is assumed the same for every kernel. */
int cm_sim_function_attributes(const cm_sim_function *function, int device,
                               cm_cuda_func_attributes *attributes)
{
    int major, minor;
    int result = cm_sim_device_attribute(device, CM_CUDA_ATTR_MAJOR, &major);
    if (!result)
        result = cm_sim_device_attribute(device, CM_CUDA_ATTR_MINOR, &minor);
    if (result)
        return result;
    *attributes = (cm_cuda_func_attributes){
        .maxThreadsPerBlock = 1024,
        .numRegs = CM_SIM_FUNCTION_REGISTERS,
        .ptxVersion = image(major, minor),
        .binaryVersion = image(major, minor),
        .maxDynamicSharedSizeBytes = cm_sim_function_dynamic_shared(function),
        .preferredShmemCarveout = CARVEOUT_DEFAULT,
    };
    return CM_CUDA_OK;
}
