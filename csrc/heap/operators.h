/* The operator that each thread runs, if recorded (CM_EV_OPERATOR). One owner, any thread. */
#ifndef CM_HEAP_OPERATORS_H
#define CM_HEAP_OPERATORS_H

#include <stdbool.h>
#include <stdint.h>

#include "../trace/reader.h"
#include "../base/idmap.h"

/* All zero is empty. */
typedef struct cm_operators {
    cm_idmap running; /* thread -> name id */
} cm_operators;

bool cm_operators_copy(cm_operators *copy, const cm_operators *operators);
void cm_operators_clear(cm_operators *operators);

/* false: out of memory. */
static inline bool cm_operators_apply(cm_operators *operators, const cm_record *record)
{
    return record->event.kind != CM_EV_OPERATOR ||
           cm_idmap_put(&operators->running, record->thread, record->event.stack);
}
/* The name id of this thread's operator; 0: none or unknown. */
uint32_t cm_operators_find(const cm_operators *operators, uint32_t thread);

/* Called for each thread with an operator, until it returns false. */
typedef bool (*cm_operators_visit_fn)(void *context, uint32_t thread, uint32_t name);
bool cm_operators_visit(const cm_operators *operators, cm_operators_visit_fn visit, void *context);

#endif
