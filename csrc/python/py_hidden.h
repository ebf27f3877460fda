/* Calls of our own Python functions that the program's profilers and tracers do not see. */
#ifndef CM_PYTHON_PY_HIDDEN_H
#define CM_PYTHON_PY_HIDDEN_H

#include <stdbool.h>

#include "module.h"

/* With the GIL. An exception out of it has none of our frames at the front of its traceback. */
PyObject *cm_py_call_hidden(PyObject *function, PyObject *const *arguments, Py_ssize_t count);

/* Whether the exception that is set came out of a handler that the program has for a signal, and
 * which Python has called while code of ours ran. */
bool cm_py_is_of_a_handler(void);

/* 0, or -1 with an exception set. */
int cm_py_hidden_exec(PyObject *module);

#endif
