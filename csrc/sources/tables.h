/* What each source wants to intercept. A new source is one file and one line in sources.c. */
#ifndef CM_SOURCES_TABLES_H
#define CM_SOURCES_TABLES_H

#include "slots.h"

extern cm_slot_symbol cm_allocator_symbols[];
extern const size_t cm_allocator_symbol_count;

extern cm_slot_symbol cm_autograd_symbols[];
extern const size_t cm_autograd_symbol_count;

extern cm_slot_symbol cm_cuda_symbols[];
extern const size_t cm_cuda_symbol_count;
/* What CUDA gives to whomever, for where CUPTI does not tell (cuda_slots.h). After the others. */
extern cm_slot_symbol cm_cuda_slot_symbols[];
extern const size_t cm_cuda_slot_symbol_count;
/* Only while the cudaMallocAsync back end is in use, or slots are all that tells of the driver:
 * every operator asks for its device. */
extern cm_slot_symbol cm_cuda_device_symbols[];
extern const size_t cm_cuda_device_symbol_count;
/* Only while kernels are recorded. */
extern cm_slot_symbol cm_cuda_event_symbols[];
extern const size_t cm_cuda_event_symbol_count;

extern cm_slot_symbol cm_cupti_symbols[];
extern const size_t cm_cupti_symbol_count;

/* at::RecordFunction::currentThreadId, or NULL: the number that a node remembers of the thread that
 * created it. Safe wherever autograd itself creates or runs a node. */
typedef uint64_t (*cm_autograd_thread_id_fn)(void);
extern cm_autograd_thread_id_fn _Atomic cm_autograd_thread_id;

/* Whether nodes are destroyed through deleteNode here: torch before 2.13. */
bool cm_autograd_has_deleter(void);
/* This node is destroyed now. */
void cm_autograd_ends_hook(const void *node);

#endif
