/* How calls of the runtime and of the driver reach CUPTI: cupti/ implements what is declared here.
 *
 * An entry point asks cm_sim_cupti_wanted() first (one load); only where it is true does it fill
 * the parameter structure and call enter and exit. A runtime call encloses its driver call; both
 * carry one correlation id. Callback ids and parameter structures: objects/calls.h. */
#ifndef CM_SIM_CUPTI_HOOKS_H
#define CM_SIM_CUPTI_HOOKS_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

extern atomic_bool cm_sim_cupti_on;
static inline bool cm_sim_cupti_wanted(void)
{
    return __builtin_expect(atomic_load_explicit(&cm_sim_cupti_on, memory_order_relaxed), 0);
}

typedef struct cm_sim_call {
    uint32_t correlation; /* 0: no client listened when it began */
    bool runtime;         /* a runtime call is around the driver call */
    int device;
    uint32_t runtime_id, driver_id;
    const char *runtime_name, *driver_name;
    const void *runtime_parameters, *driver_parameters;
    uint64_t runtime_begin, driver_begin;
    int runtime_result, driver_result;
    const char *symbol;         /* set by enter: the kernel that is launched */
    struct cm_sim_call *around; /* set by enter: this one is made in a callback of that call */
} cm_sim_call;

/* symbol: the mangled name of the kernel that is launched, else NULL. */
void cm_sim_runtime_enter(cm_sim_call *call, int device, uint32_t id, const char *name,
                          const void *parameters, const char *symbol);
void cm_sim_runtime_exit(cm_sim_call *call, int result);
void cm_sim_driver_enter(cm_sim_call *call, int device, uint32_t id, const char *name,
                         const void *parameters, const char *symbol);
void cm_sim_driver_exit(cm_sim_call *call, int result);

/* Whether a client listens to this launch, or to the kernels that run on the device: only then is a
 * kernel's name looked up. */
bool cm_sim_runtime_listens(uint32_t id);
bool cm_sim_driver_listens(uint32_t id);
bool cm_sim_kernels_reported(int device);

/* A context was made, or is about to end. CUpti_CallbackIdResource. */
enum { CM_SIM_CONTEXT_MADE = 1, CM_SIM_CONTEXT_ENDS = 2 };
void cm_sim_notify_context(int what, void *context);

/* Activity records; between enter and exit of their call. Kinds and operations are CUPTI's.
 *
 * MEMORY2 there is of what lies at an address from the call that gives it out to the call that
 * takes it back: device, managed and page-locked memory, and of pools. As far as is known there is
 * none of physical memory and its mappings, of registered host memory, of arrays (cupti_hostile.c
 * has a release that writes them), and of what a captured call will allocate at each launch. */
typedef struct cm_sim_memory_event {
    int operation, kind, device; /* device: of the memory, wherever the call was made */
    const void *address;
    size_t bytes;
    const void *pool; /* of memory in stream order: which one; else NULL */
    void *stream;
} cm_sim_memory_event;
void cm_sim_record_memory(const cm_sim_call *call, const cm_sim_memory_event *what);
/* Of the call that this thread is in. Does nothing if there is none, or if it was not reported. */
void cm_sim_record_pool(int operation, const void *pool, int device, size_t bytes);
void cm_sim_record_kernel(const cm_sim_call *call, const char *name, const unsigned grid[3],
                          const unsigned block[3], unsigned shared, void *stream);
void cm_sim_record_copy(const cm_sim_call *call, int kind, size_t bytes, void *stream);
void cm_sim_record_set(const cm_sim_call *call, int value, size_t bytes, void *stream);

#endif
