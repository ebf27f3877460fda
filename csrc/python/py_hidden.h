/* Calling this package's Python functions unseen by the program's profilers and tracers. */
#ifndef CM_PYTHON_PY_HIDDEN_H
#define CM_PYTHON_PY_HIDDEN_H

#include <stdbool.h>

#include "module.h"

/* With the GIL. An exception that it raises has none of our frames at the front of its traceback.
 */
PyObject *cm_py_call_hidden(PyObject *function, PyObject *const *arguments, Py_ssize_t count);

/* How a hidden call ended. What the program raised while code of ours ran came from a signal
 * handler or another thread; KeyboardInterrupt and SystemExit are always the program's. */
typedef enum cm_py_end {
    CM_PY_DONE,
    CM_PY_FAILED, /* with an exception of ours set */
    CM_PY_RAISED  /* with one of the program's */
} cm_py_end;

cm_py_end cm_py_run_hidden(PyObject *function);

/* Runs a function of ours between two instructions of the program. 0; 1: it failed, which is
 * written to sys.unraisablehook; -1 with an exception of the program's set. */
int cm_py_run_pending(PyObject *function);

/* 0, or -1 with an exception set. */
int cm_py_hidden_exec(PyObject *module);

#endif
