/* Calling this package's Python functions unseen by the program's profilers and tracers. */
#ifndef CM_PYTHON_PY_HIDDEN_H
#define CM_PYTHON_PY_HIDDEN_H

#include <stdbool.h>

#include "module.h"

/* With the GIL. An exception that it raises has none of our frames at the front of its traceback.
 */
PyObject *cm_py_call_hidden(PyObject *function, PyObject *const *arguments, Py_ssize_t count);

/* Whether the exception set was raised by a signal handler of the program, which Python called
 * while code of ours ran. */
bool cm_py_is_of_a_handler(void);

/* 0, or -1 with an exception set. */
int cm_py_hidden_exec(PyObject *module);

#endif
