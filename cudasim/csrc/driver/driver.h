/* What the driver's files share. Vendor names only where they are exported. */
#ifndef CM_SIM_DRIVER_H
#define CM_SIM_DRIVER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "../objects/cupti_hooks.h"
#include "../objects/devices.h"
#include "../objects/calls.h"
#include "../objects/objects.h"
#include "../core/sim.h"

/* What a pointer points to (CUmemorytype). */
enum { CM_CU_HOST = 1, CM_CU_DEVICE = 2, CM_CU_ARRAY = 3, CM_CU_UNIFIED = 4 };

/* --- driver_context.c ------------------------------------------------------------------------- */

typedef struct cm_cu_context cm_cu_context;

/* The device whose context is current; -1: none is, and the caller returns INVALID_CONTEXT. */
int cm_cu_device(void);
/* The primary context of a device, without retaining it. */
cm_cu_context *cm_cu_primary(int device);

/* --- driver_module.c -------------------------------------------------------------------------- */

/* The memory of modules' variables in a context is about to be given back. */
void cm_cu_modules_end(int device, unsigned context);

/* --- driver_copy.c ---------------------------------------------------------------------------- */

/* Whether CUDA knows every byte of the range, on the device or pinned. */
bool cm_cu_known(uint64_t address, size_t bytes);

/* --- calls that CUPTI reports ----------------------------------------------------------------- */

/* Stands first in an entry point that CUPTI knows: begins its time and notifies clients. */
#define CM_CU_BEGIN_KERNEL(function, symbol, ...)                                                  \
    CM_SIM_ENTRY;                                                                                  \
    const cm_##function##_params cm_parameters = {__VA_ARGS__};                                    \
    cm_sim_call cm_call = {.correlation = 0};                                                      \
    if (cm_sim_cupti_wanted())                                                                     \
    cm_cu_enter(&cm_call, CM_CBID_##function, #function, &cm_parameters,                           \
                cm_sim_driver_listens(CM_CBID_##function) ? (symbol) : NULL)
#define CM_CU_BEGIN(function, ...) CM_CU_BEGIN_KERNEL(function, NULL, __VA_ARGS__)
/* Between the two: whether activity records are worth writing. */
#define CM_CU_REPORTED __builtin_expect(cm_call.correlation != 0, 0)
#define CM_CU_END(result) return cm_cu_exit(&cm_call, (result))

/* CUpti_ActivityMemoryOperationType, CUpti_ActivityMemoryKind */
enum { CM_CU_ALLOCATED = 1, CM_CU_RELEASED = 2 };
enum { CM_CU_KIND_PINNED = 2, CM_CU_KIND_DEVICE = 3, CM_CU_KIND_ARRAY = 4, CM_CU_KIND_MANAGED = 5 };

/* The record of memory in stream order; pool NULL: a stream that is being captured allocates
 * nothing yet, and no call allocates for a graph. */
static inline void cm_cu_record_pooled(const cm_sim_call *call, int operation, const void *address,
                                       size_t bytes, const cm_sim_pool *pool, cm_sim_stream *stream)
{
    if (call->correlation && pool)
        cm_sim_record_memory(call, &(cm_sim_memory_event){.operation = operation,
                                                          .kind = CM_CU_KIND_DEVICE,
                                                          .device = cm_sim_pool_device(pool),
                                                          .address = address,
                                                          .bytes = bytes,
                                                          .pool = pool,
                                                          .stream = stream});
}

void cm_cu_enter(cm_sim_call *call, uint32_t id, const char *name, const void *parameters,
                 const char *symbol);
static inline int cm_cu_exit(cm_sim_call *call, int result)
{
    if (__builtin_expect(call->correlation != 0, 0))
        cm_sim_driver_exit(call, result);
    return result;
}

#endif
