/* Calls of our own Python functions that the program's profilers and tracers do not see. */
#ifndef CM_PYTHON_PY_HIDDEN_H
#define CM_PYTHON_PY_HIDDEN_H

#include "module.h"

/* With the GIL. An exception out of it has none of our frames at the front of its traceback. */
PyObject *cm_py_call_hidden(PyObject *function, PyObject *const *arguments, Py_ssize_t count);

/* 0, or -1 with an exception set. */
int cm_py_hidden_exec(PyObject *module);

#endif
