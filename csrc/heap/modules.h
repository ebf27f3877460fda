/* Names of module objects. A walk names them by address (CM_EV_LABEL). A name holds until a new
 * object is made at its address (CM_EV_OBJECT_NEW). A stack belongs to the innermost module call on
 * it. One owner, any thread. */
#ifndef CM_HEAP_MODULES_H
#define CM_HEAP_MODULES_H

#include <stdbool.h>
#include <stdint.h>

#include "../trace/reader.h"

typedef struct cm_modules cm_modules;

cm_modules *cm_modules_new(const cm_reader *reader); /* NULL: out of memory, as below */
cm_modules *cm_modules_copy(const cm_modules *modules);
void cm_modules_free(cm_modules *modules);

bool cm_modules_apply_object(cm_modules *modules, uint64_t position, const cm_event *event);
/* Every record, in order; a repeated one changes nothing. false: out of memory. */
static inline bool cm_modules_apply(cm_modules *modules, uint64_t position, const cm_event *event)
{
    return (event->kind != CM_EV_LABEL && event->kind != CM_EV_OBJECT_NEW) ||
           cm_modules_apply_object(modules, position, event);
}
/* The name id of the module at this address at that record, 0 = unknown. */
uint32_t cm_modules_at(const cm_modules *modules, uint64_t address, uint64_t position);
/* Of the innermost module on a stack; unknown also when out of memory. */
uint32_t cm_modules_of_stack(cm_modules *modules, uint32_t stack, uint64_t position);
/* Every module with a name at that record. false as soon as the callback returns it. */
bool cm_modules_each(const cm_modules *modules, uint64_t position,
                     bool (*visit)(void *context, uint64_t address, uint32_t name), void *context);

#endif
