/* Calls of the program's own functions, watched in place.
 *
 * A function object of Python or C is called through a pointer of its own, its vectorcall pointer.
 * Only that pointer is replaced, by a function that forwards. Identity, name, code, hash and type
 * of the object stay, and what watches in between has no frame: neither the program nor a
 * debugger, a profiler or a compiler of graphs can tell. With the GIL, which guards the state. */
#ifndef CM_PYTHON_PY_WATCH_H
#define CM_PYTHON_PY_WATCH_H

#include "module.h"

/* Positional arguments only. result is NULL where the call raised; the exception is put aside
 * meanwhile. `before` must not raise; what `after` raises takes the place of the result, unless the
 * call raised. Each may be NULL. */
typedef struct cm_py_watch {
    void (*before)(PyObject *const *arguments, Py_ssize_t count);
    void (*after)(PyObject *const *arguments, Py_ssize_t count, PyObject *result);
} cm_py_watch;

/* Watches a builtin function, or a Python function: of that one, before 3.12, calls that C makes
 * only, for the interpreter enters it without a look at the pointer where Python code calls it. The
 * watch lives for ever. NULL, or why that cannot be (static string). Repeatable. */
const char *cm_py_watch_calls(const cm_py_watch *watch, PyObject *function);

/* Takes the watch out of all functions; one over which somebody else has put theirs forwards only.
 */
void cm_py_unwatch_calls(const cm_py_watch *watch);

#endif
