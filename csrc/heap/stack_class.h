/* Classes of stacks with the same file, function and line in every frame. The same stack may be
 * defined several times (once per module that is called on it, and again when code is loaded
 * again); it has one class. And the user's line of a stack, as report.user_frame finds it: its
 * innermost frame that is no library's (library.h), else its innermost frame. One owner. */
#ifndef CM_HEAP_STACK_CLASS_H
#define CM_HEAP_STACK_CLASS_H

#include <stdbool.h>
#include <stdint.h>

#include "../trace/reader.h"
#include "library.h"

typedef struct cm_stack_classes cm_stack_classes;

/* NULL: out of memory. The library is to outlive it. */
cm_stack_classes *cm_stack_classes_new(const cm_reader *reader, const cm_library *library);
void cm_stack_classes_free(cm_stack_classes *fold);

/* The number of a stack's class; reserved and unknown stacks are their own. false: out of memory.
 */
bool cm_stack_class_of(cm_stack_classes *fold, uint32_t stack, uint32_t *number);
/* A stack that has this number: the first that was asked for. */
uint32_t cm_stack_class_example(const cm_stack_classes *fold, uint32_t number);
/* Number of the user's line of a class; equal file and line have equal numbers. A stack
 * without frames has the line 0. */
uint32_t cm_stack_class_line(const cm_stack_classes *fold, uint32_t number);

#endif
