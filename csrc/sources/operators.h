/* Recording the operator that a thread runs, by callbacks of PyTorch's RecordFunction. */
#ifndef CM_SOURCES_OPERATORS_H
#define CM_SOURCES_OPERATORS_H

#include <stdatomic.h>
#include <stdbool.h>

#include "../capture/ring_producer.h"

extern atomic_bool cm_operators_recorded;

/* Registers the callbacks; PyTorch's libraries must be patched. Returns NULL, or the reason why
 * that is impossible. One thread at a time, not inside a hook. */
const char *cm_operators_start(void);
void cm_operators_stop(void);

/* Between the two calls the calling thread runs aten::empty as a test. true: the callbacks saw its
 * beginning and end. */
void cm_operators_begin_test(void);
bool cm_operators_end_test(void);

void cm_operators_emit_hook(cm_producer *t);

/* To be called before an allocation is recorded: emits the running operator, if it is not the one
 * of this thread's last allocation. */
static inline void cm_operators_hook(cm_producer *t)
{
    if (__builtin_expect(atomic_load_explicit(&cm_operators_recorded, memory_order_relaxed), 0))
        cm_operators_emit_hook(t);
}

#endif
