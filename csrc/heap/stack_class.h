/* Classes of stacks with the same file, function and line in every frame, and the user line of a
 * class. One stack may have several definitions (per called module, and when code is loaded again)
 * but has one class. The user line is that of the innermost frame outside of libraries (library.h),
 * else of the innermost frame, as in report.user_frame. One owner. */
#ifndef CM_HEAP_STACK_CLASS_H
#define CM_HEAP_STACK_CLASS_H

#include <stdbool.h>
#include <stdint.h>

#include "../trace/reader.h"
#include "../base/library.h"

typedef struct cm_stack_classes cm_stack_classes;

/* NULL: out of memory. The library is to outlive it. */
cm_stack_classes *cm_stack_classes_new(const cm_reader *reader, const cm_library *library);
void cm_stack_classes_free(cm_stack_classes *classes);

/* The number of a stack's class; reserved and unknown stacks are their own. false: out of memory.
 */
bool cm_stack_class_of(cm_stack_classes *classes, uint32_t stack, uint32_t *number);
/* A stack of this class: the first that was numbered. */
uint32_t cm_stack_class_example(const cm_stack_classes *classes, uint32_t number);
/* Number of the user line of a class, equal for equal file and line; 0 without frames. */
uint32_t cm_stack_class_line(const cm_stack_classes *classes, uint32_t number);

#endif
