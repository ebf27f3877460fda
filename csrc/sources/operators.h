/* Which operator a thread runs, as PyTorch's RecordFunction reports it. */
#ifndef CM_SOURCES_OPERATORS_H
#define CM_SOURCES_OPERATORS_H

#include <stdatomic.h>
#include <stdbool.h>

#include "../capture/ring_producer.h"

extern atomic_bool cm_operators_recorded;

/* Registers for PyTorch's operators, once its libraries are patched. NULL, or why it is impossible.
 * Control: one thread at a time, not inside a hook. */
const char *cm_operators_start(void);
void cm_operators_stop(void);

/* What the calling thread runs between the two calls is a test. True: `empty` was seen to begin and
 * to end. */
void cm_operators_begin_test(void);
bool cm_operators_end_test(void);

void cm_operators_emit_hook(cm_thread *t);

/* Before an allocation is recorded: names the operator that makes it, where that is not the one of
 * this thread's allocation before. */
static inline void cm_operators_hook(cm_thread *t)
{
    if (__builtin_expect(atomic_load_explicit(&cm_operators_recorded, memory_order_relaxed), 0))
        cm_operators_emit_hook(t);
}

#endif
