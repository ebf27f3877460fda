/* Emitting events of the program's Python code on the calling thread. With the GIL. No-ops while
 * recording is off. */
#ifndef CM_PYTHON_PY_EVENTS_H
#define CM_PYTHON_PY_EVENTS_H

#include "module.h"

#include <stdbool.h>

#include "../base/event.h"

/* Emits a tick of a possible step clock (cm_tick_kind), with the caller's stack. */
void cm_py_tick(int kind, PyObject *object);
/* The same for a module that is about to be called, unless another module's call is on the stack.
 */
void cm_py_tick_outermost(PyObject *module);

/* Emits a new object (cm_object_kind). before_start: it was alive when recording began. */
void cm_py_object_new(int kind, PyObject *object, bool before_start);

#endif
