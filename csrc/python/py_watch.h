/* Watching calls of the program's functions in place.
 *
 * A Python or C function object is called through its vectorcall pointer. Only that pointer is
 * replaced, by a function that forwards. The object's identity, name, code, hash and type stay, and
 * the watching function has no frame. So programs, debuggers, profilers and graph compilers see no
 * difference. With the GIL, which guards the state. */
#ifndef CM_PYTHON_PY_WATCH_H
#define CM_PYTHON_PY_WATCH_H

#include "module.h"

/* Gets positional arguments only. result is NULL if the call raised; the exception is saved
 * meanwhile. `before` must not raise. An exception of `after` replaces the result, unless the call
 * raised. Each may be NULL. */
typedef struct cm_py_watch {
    void (*before)(PyObject *const *arguments, Py_ssize_t count);
    void (*after)(PyObject *const *arguments, Py_ssize_t count, PyObject *result);
} cm_py_watch;

/* Watches a builtin or a Python function. Before 3.12, only calls of a Python function from C are
 * seen, for the interpreter does not use the pointer in calls from Python. The watch is never
 * freed. NULL, or the reason why it is impossible (static string). Repeatable. */
const char *cm_py_watch_calls(const cm_py_watch *watch, PyObject *function);

/* Removes the watch from all functions. If another tool has replaced the pointer since, the watch
 * stays and only forwards. */
void cm_py_unwatch_calls(const cm_py_watch *watch);

#endif
