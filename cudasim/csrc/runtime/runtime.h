/* How an entry point of the runtime begins and ends.
 *
 * An entry point is CM_RT_BEGIN(name, its parameters...), what it does, and CM_RT_END(error): its
 * time is counted, CUPTI is notified if it listens, a failure becomes the thread's last error. The
 * driver call that a real runtime would make is reported the same way, inside of it. */
#ifndef CM_SIM_RUNTIME_H
#define CM_SIM_RUNTIME_H

#include "../objects/cupti_hooks.h"
#include "../objects/devices.h"
#include "../objects/calls.h"
#include "../objects/objects.h"
#include "../core/sim.h"

#include <string.h>

/* What cudaGetLastError gives; all failures but those of cudaGetLastError itself set it. */
extern _Thread_local int cm_rt_last_error __attribute__((tls_model("initial-exec")));

void cm_rt_enter(cm_sim_call *call, uint32_t id, const char *name, const void *parameters,
                 const char *symbol);
void cm_rt_exit(cm_sim_call *call, int result);

#define CM_RT_BEGIN_CALL(function, parameters, symbol)                                             \
    CM_SIM_ENTRY;                                                                                  \
    cm_sim_call cm_call = {0};                                                                     \
    if (cm_sim_cupti_wanted())                                                                     \
    cm_rt_enter(&cm_call, CM_CBID_##function, #function, parameters, symbol)

#define CM_RT_BEGIN(function, ...)                                                                 \
    const cm_##function##_params cm_parameters = {__VA_ARGS__};                                    \
    CM_RT_BEGIN_CALL(function, &cm_parameters, NULL)
/* A call without parameters. */
#define CM_RT_BEGIN_BARE(function) CM_RT_BEGIN_CALL(function, NULL, NULL)
/* A launch: the kernel's name is looked up only if CUPTI listens. */
#define CM_RT_BEGIN_KERNEL(function, kernel, ...)                                                  \
    const cm_##function##_params cm_parameters = {__VA_ARGS__};                                    \
    CM_RT_BEGIN_CALL(function, &cm_parameters,                                                     \
                     cm_sim_runtime_listens(CM_CBID_##function) ? cm_sim_function_name(kernel)     \
                                                                : NULL)

#define CM_RT_REPORTED __builtin_expect(cm_call.correlation != 0, 0)
#define CM_RT_END(result) return cm_rt_end(&cm_call, (result))

static inline int cm_rt_end(cm_sim_call *call, int result)
{
    if (__builtin_expect(result != CM_CUDA_OK, 0))
        cm_rt_last_error = result;
    if (__builtin_expect(call->correlation != 0, 0))
        cm_rt_exit(call, result);
    return result;
}

/* The driver call inside. Parameters lie in a variable of their own, as an output among them may
 * still be filled in before CM_RT_DRIVER_END. */
#define CM_RT_DRIVER_SYMBOL(function, symbol, ...)                                                 \
    cm_##function##_params cm_driver_parameters = {__VA_ARGS__};                                   \
    if (CM_RT_REPORTED)                                                                            \
    cm_sim_driver_enter(&cm_call, cm_sim_current_device(), CM_CBID_##function, #function,          \
                        &cm_driver_parameters, symbol)
#define CM_RT_DRIVER(function, ...) CM_RT_DRIVER_SYMBOL(function, NULL, __VA_ARGS__)
#define CM_RT_DRIVER_END(result)                                                                   \
    do {                                                                                           \
        if (CM_RT_REPORTED)                                                                        \
            cm_sim_driver_exit(&cm_call, (result));                                                \
    } while (0)

/* CUPTI's numbers in the records of memory and copies. */
enum { CM_RT_ALLOCATION = 1, CM_RT_RELEASE = 2 };
enum { CM_RT_MEMORY_PINNED = 2, CM_RT_MEMORY_DEVICE = 3, CM_RT_MEMORY_MANAGED = 5 };

/* Something that is not simulated: an error, and a line in the report. */
static inline int cm_rt_refuse(const char *what)
{
    cm_sim_note(CM_SIM_NOTE_REFUSED, what, 0);
    return CM_CUDA_NOT_SUPPORTED;
}

/* runtime_symbol.c: the memory of a __device__ variable on the current device. */
int cm_rt_symbol(const void *symbol, void **address, size_t *bytes);

#endif
