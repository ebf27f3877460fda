#include "py_watch.h"

#include <stdbool.h>

enum { PLACES = 16 };

static struct watched {
    const cm_py_watch *watch; /* NULL: free, or only forwarding */
    PyObject *function;       /* kept alive */
    vectorcallfunc original;  /* NULL: the function takes a tuple and a dict */
    PyMethodDef *definition;  /* a builtin's own, while a copy replaces it; else NULL */
} watched[PLACES];

/* --- calling ------------------------------------------------------------------------------------
 */

/* Calls a builtin of the old convention, without vectorcall, as the interpreter does. */
static PyObject *call_with_tuple(PyObject *function, PyObject *const *arguments, size_t flags,
                                 PyObject *names)
{
    Py_ssize_t count = PyVectorcall_NARGS(flags),
               named = names == NULL ? 0 : PyTuple_GET_SIZE(names);
    PyObject *tuple = PyTuple_New(count), *dict = named > 0 ? PyDict_New() : NULL;
    PyObject *result = NULL;
    bool good = tuple != NULL && (named == 0 || dict != NULL);

    for (Py_ssize_t i = 0; good && i < count; i++)
        PyTuple_SET_ITEM(tuple, i, Py_NewRef(arguments[i]));
    for (Py_ssize_t i = 0; good && i < named; i++)
        good = PyDict_SetItem(dict, PyTuple_GET_ITEM(names, i), arguments[count + i]) == 0;
    if (good)
        result = Py_TYPE(function)->tp_call(function, tuple, dict);
    Py_XDECREF(tuple);
    Py_XDECREF(dict);
    return result;
}

static struct watched *find(const PyObject *function)
{
    for (int i = 0; i < PLACES; i++)
        if (watched[i].function == function)
            return &watched[i];
    return NULL;
}

static PyObject *call_watched(PyObject *function, PyObject *const *arguments, size_t flags,
                              PyObject *names)
{
    const struct watched w = *find(function); /* a copy, because the call may outlast the watch */
    Py_ssize_t count = PyVectorcall_NARGS(flags);

    if (w.watch != NULL && w.watch->before != NULL)
        w.watch->before(arguments, count);
    PyObject *result = w.original != NULL ? w.original(function, arguments, flags, names)
                                          : call_with_tuple(function, arguments, flags, names);
    if (w.watch != NULL && w.watch->after != NULL) {
        PyObject *type, *value, *traceback;

        PyErr_Fetch(&type, &value, &traceback);
        w.watch->after(arguments, count, result);
        if (type != NULL || !PyErr_Occurred())
            PyErr_Restore(type, value, traceback);
        else
            Py_CLEAR(result);
    }
    return result;
}

/* --- putting in and taking out ------------------------------------------------------------------
 */

static vectorcallfunc pointer_of(PyObject *function)
{
    return PyFunction_Check(function) ? ((PyFunctionObject *)function)->vectorcall
                                      : ((PyCFunctionObject *)function)->vectorcall;
}

static void set_pointer(PyObject *function, vectorcallfunc call)
{
    if (!PyFunction_Check(function)) {
        ((PyCFunctionObject *)function)->vectorcall = call;
        return;
    }
#if PY_VERSION_HEX >= 0x030c0000
    PyFunction_SetVectorcall((PyFunctionObject *)function,
                             call); /* what was specialized is undone */
#else
    ((PyFunctionObject *)function)->vectorcall = call;
#endif
}

/* The interpreter and Cython bypass the pointer of a builtin if its flags give a known signature.
 * So a copy replaces the builtin's definition, with two flags that exclude each other and have no
 * such shortcut. It keeps the C function, on which hash and equality depend. */
static bool disable_shortcuts(struct watched *w)
{
    PyCFunctionObject *function = (PyCFunctionObject *)w->function;
    const int signature = METH_VARARGS | METH_KEYWORDS | METH_NOARGS | METH_O | METH_FASTCALL;
    PyMethodDef *copy;

    if (function->m_ml->ml_flags & METH_VARARGS) /* these have no shortcut */
        return true;
    copy = PyMem_RawMalloc(sizeof *copy);
    if (copy == NULL)
        return false;
    *copy = *function->m_ml;
    copy->ml_flags = (copy->ml_flags & ~signature) | METH_VARARGS | METH_FASTCALL;
    w->definition = function->m_ml;
    function->m_ml = copy; /* never freed: a call may have read the pointer */
    return true;
}

const char *cm_py_watch_calls(const cm_py_watch *watch, PyObject *function)
{
    struct watched *w = find(function);

    if (w != NULL) { /* installed already, perhaps below another tool's */
        w->watch = watch;
        return NULL;
    }
    if (!PyFunction_Check(function) && !PyCFunction_CheckExact(function))
        return "it is no plain function";
    w = find(NULL);
    if (w == NULL)
        return "too many functions are watched";
    *w = (struct watched){watch, Py_NewRef(function), pointer_of(function), NULL};
    if (PyCFunction_CheckExact(function) && !disable_shortcuts(w)) {
        *w = (struct watched){0};
        Py_DECREF(function);
        return "out of memory";
    }
    set_pointer(function, call_watched);
    return NULL;
}

void cm_py_unwatch_calls(const cm_py_watch *watch)
{
    for (int i = 0; i < PLACES; i++) {
        struct watched *w = &watched[i];
        if (w->function == NULL || w->watch != watch)
            continue;
        w->watch = NULL;
        if (pointer_of(w->function) != call_watched)
            continue; /* another tool's function forwards to ours */
        PyObject *function = w->function;
        set_pointer(function, w->original);
        if (w->definition != NULL)
            ((PyCFunctionObject *)function)->m_ml = w->definition;
        *w = (struct watched){0};
        Py_DECREF(function);
    }
}
