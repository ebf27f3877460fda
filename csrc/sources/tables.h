/* The symbols that each source hooks. A new source is one file, its
 * declaration here and one line in sources.c. */
#ifndef CM_SOURCES_TABLES_H
#define CM_SOURCES_TABLES_H

#include "slots.h"

extern cm_slot_symbol cm_allocator_symbols[];
extern const size_t cm_allocator_symbol_count;

extern cm_slot_symbol cm_autograd_symbols[];
extern const size_t cm_autograd_symbol_count;

extern cm_slot_symbol cm_workspace_symbols[];
extern const size_t cm_workspace_symbol_count;

extern cm_slot_symbol cm_autocast_symbols[];
extern const size_t cm_autocast_symbol_count;

extern cm_slot_symbol cm_cuda_symbols[];
extern const size_t cm_cuda_symbol_count;
extern cm_slot_symbol cm_host_allocator_symbols[];
extern const size_t cm_host_allocator_symbol_count;
/* CUDA allocations of any library, while CUPTI is not in use (cuda_slots.h). Registered last. */
extern cm_slot_symbol cm_cuda_slot_symbols[];
extern const size_t cm_cuda_slot_symbol_count;
/* Registered only if the cudaMallocAsync back end or cuda_slots.h is in use, for every operator
 * calls these. */
extern cm_slot_symbol cm_cuda_device_symbols[];
extern const size_t cm_cuda_device_symbol_count;
/* Registered only if kernels are recorded. */
extern cm_slot_symbol cm_cuda_event_symbols[];
extern const size_t cm_cuda_event_symbol_count;

extern cm_slot_symbol cm_cupti_symbols[];
extern const size_t cm_cupti_symbol_count;

/* at::RecordFunction::currentThreadId, or NULL: the id that a node stores for its creator's thread.
 * Safe wherever autograd creates or runs a node. */
typedef uint64_t (*cm_autograd_thread_id_fn)(void);
extern cm_autograd_thread_id_fn _Atomic cm_autograd_thread_id;
typedef bool (*cm_autograd_records_fn)(void);
extern cm_autograd_records_fn _Atomic cm_autograd_grad_mode;

/* Whether this torch destroys nodes through deleteNode: before 2.13. */
bool cm_autograd_has_deleter(void);
/* Records that this node is being destroyed. */
void cm_autograd_ends_hook(const void *node);

#endif
