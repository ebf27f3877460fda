/* How the runtime and driver surfaces tell the CUPTI surface what they do.
 *
 * An entry point asks cm_sim_cupti_wanted() first (one load); only where it is true does it fill
 * the parameter structure and call enter and exit. A runtime call encloses its driver call; both
 * carry one correlation id. Callback ids and parameter structures: cupti_ids.h, cuda_params.h (own
 * declarations, compared with the vendor's headers by a test). */
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
    uint32_t correlation; /* 0: nobody wanted to know when it began */
    bool runtime;         /* a runtime call is around the driver call */
    int device;
    uint32_t runtime_id, driver_id;
    const char *runtime_name, *driver_name;
    const void *runtime_parameters, *driver_parameters;
    uint64_t runtime_begin, driver_begin;
    uint64_t runtime_data, driver_data; /* the subscriber's correlationData */
    int runtime_result, driver_result;
    const char *symbol; /* set by enter: the kernel that is launched */
} cm_sim_call;

/* symbol: the mangled name of the kernel that is launched, else NULL. */
void cm_sim_runtime_enter(cm_sim_call *call, int device, uint32_t id, const char *name,
                          const void *parameters, const char *symbol);
void cm_sim_runtime_exit(cm_sim_call *call, int result);
void cm_sim_driver_enter(cm_sim_call *call, int device, uint32_t id, const char *name,
                         const void *parameters, const char *symbol);
void cm_sim_driver_exit(cm_sim_call *call, int result);

/* Activity records; between enter and exit of their call. Kinds and operations are CUPTI's. */
void cm_sim_record_memory(const cm_sim_call *call, int operation, int kind, const void *address,
                          size_t bytes, void *stream);
void cm_sim_record_pool(const cm_sim_call *call, int operation, const void *pool, size_t bytes);
void cm_sim_record_kernel(const cm_sim_call *call, const char *name, const unsigned grid[3],
                          const unsigned block[3], unsigned shared, void *stream);
void cm_sim_record_copy(const cm_sim_call *call, int kind, size_t bytes, void *stream);
void cm_sim_record_set(const cm_sim_call *call, int value, size_t bytes, void *stream);

#endif
