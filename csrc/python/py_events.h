/* What happens in the program's Python, as events of the calling thread. With the GIL; nothing
 * happens while nothing records. */
#ifndef CM_PYTHON_PY_EVENTS_H
#define CM_PYTHON_PY_EVENTS_H

#include "module.h"

#include <stdbool.h>

#include "../base/event.h"

/* A candidate step clock (cm_tick_kind) ticked; the event has the caller's stack. */
void cm_py_tick(int kind, PyObject *object);
/* The same of a module that is about to be called, unless the stack has another one's call. */
void cm_py_tick_outermost(PyObject *module);

/* A cm_object_kind was created at this address, or before_start: was alive when recording began. */
void cm_py_object_new(int kind, PyObject *object, bool before_start);

#endif
