/* Callables that run cuptimem's Python functions inside the program unseen.
 *
 * The interpreter calls functions of ours in the program's threads: before a fork, at an import, at
 * exit. Profilers and tracers (sys.setprofile, cProfile, sys.settrace, sys.monitoring) would see
 * them. A hidden call suspends these, and removes our frames from the front of a traceback. The
 * callable itself is a C object, so it has no frame. */
#include "py_hidden.h"

#include <frameobject.h>
#include <signal.h>
#include <stdbool.h>
#include <string.h>

static PyObject *own_folder; /* of our Python files, with a slash at the end */

static bool is_ours(PyFrameObject *frame)
{
    PyCodeObject *code = PyFrame_GetCode(frame);
    bool ours = PyUnicode_Tailmatch(code->co_filename, own_folder, 0, PY_SSIZE_T_MAX, -1) > 0;

    Py_DECREF(code);
    return ours;
}

/* Removes our frames from an exception that leaves a hidden call, of a signal handler for example.
 */
static void cut_traceback(void)
{
    PyObject *type, *value, *traceback;

    PyErr_Fetch(&type, &value, &traceback);
    PyObject *rest = traceback;
    while (rest != NULL && is_ours(((PyTracebackObject *)rest)->tb_frame))
        rest = (PyObject *)((PyTracebackObject *)rest)->tb_next;
    Py_XINCREF(rest);
    Py_XDECREF(traceback);
    /* From 3.12 on only the value counts, before that the triple. */
    if (value != NULL && PyExceptionInstance_Check(value))
        PyException_SetTraceback(value, rest != NULL ? rest : Py_None);
    PyErr_Restore(type, value, rest);
}

static bool is_set_of_program(void);

static bool is_finalizing(void)
{
#if PY_VERSION_HEX >= 0x030d0000
    return Py_IsFinalizing();
#else
    return _Py_IsFinalizing();
#endif
}

/* was_of_program: set where it raises and is wanted. It has to be told from the whole traceback. */
static PyObject *call_hidden(PyObject *function, PyObject *const *arguments, Py_ssize_t count,
                             bool *was_of_program)
{
    PyThreadState *state = PyThreadState_Get();

    if (is_finalizing()) /* our modules are being cleared; all work was done at exit */
        Py_RETURN_NONE;
    PyThreadState_EnterTracing(state);
    PyObject *result = PyObject_Vectorcall(function, arguments, (size_t)count, NULL);
    PyThreadState_LeaveTracing(state);
    if (result == NULL) {
        if (was_of_program != NULL)
            *was_of_program = is_set_of_program();
        cut_traceback();
    }
    return result;
}

PyObject *cm_py_call_hidden(PyObject *function, PyObject *const *arguments, Py_ssize_t count)
{
    return call_hidden(function, arguments, count, NULL);
}

/* --- whose exception ----------------------------------------------------------------------------
 *
 * While code of ours runs, Python may call a signal handler of the program, or raise what another
 * thread has asked for (PyThreadState_SetAsyncExc). */

/* The Python code that a call of this runs; NULL: none. */
static PyObject *code_of(PyObject *callable)
{
    PyObject *inner = NULL;

    if (PyFunction_Check(callable))
        return Py_NewRef(PyFunction_GET_CODE(callable));
    if (PyMethod_Check(callable))
        inner = Py_NewRef(PyMethod_GET_FUNCTION(callable));
    else if ((inner = PyObject_GetAttrString(callable, "func")) == NULL) { /* functools.partial */
        PyErr_Clear();
        inner = PyObject_GetAttrString((PyObject *)Py_TYPE(callable), "__call__");
    }
    PyErr_Clear();
    PyObject *code =
        inner != NULL && PyFunction_Check(inner) ? Py_NewRef(PyFunction_GET_CODE(inner)) : NULL;
    Py_XDECREF(inner);
    return code;
}

static bool passes(PyTracebackObject *at, PyObject *code)
{
    for (; at != NULL; at = at->tb_next) {
        PyCodeObject *found = PyFrame_GetCode(at->tb_frame);
        Py_DECREF(found); /* the frame has it */
        if ((PyObject *)found == code)
            return true;
    }
    return false;
}

/* Whether the traceback passes a function that is a handler now. */
static bool passes_a_handler(PyTracebackObject *traceback)
{
    PyObject *module = PyImport_ImportModule("_signal");
    bool found = false;

    for (int number = 1; module != NULL && !found && number < NSIG; number++) {
        PyObject *handler = PyObject_CallMethod(module, "getsignal", "i", number);
        PyObject *code = handler != NULL && PyCallable_Check(handler) ? code_of(handler) : NULL;
        found = code != NULL && passes(traceback, code);
        Py_XDECREF(code);
        Py_XDECREF(handler);
        PyErr_Clear();
    }
    PyErr_Clear();
    Py_XDECREF(module);
    return found;
}

static bool is_or_has(PyObject *value, PyObject *item)
{
    if (value == item)
        return true;
    for (Py_ssize_t i = 0; PyTuple_CheckExact(value) && i < PyTuple_GET_SIZE(value); i++)
        if (PyTuple_GET_ITEM(value, i) == item)
            return true;
    return false;
}

/* Whether a call's arguments have that frame: a handler gets the frame that it interrupts. */
static bool got_frame(PyFrameObject *called, PyFrameObject *interrupted)
{
    PyCodeObject *code = PyFrame_GetCode(called);
    PyObject *names = PyCode_GetVarnames(code), *locals = PyFrame_GetLocals(called);
    Py_ssize_t most = code->co_argcount + code->co_kwonlyargcount + 1; /* and *args */
    bool found = false;

    for (Py_ssize_t i = 0; names != NULL && locals != NULL && !found && i < most; i++) {
        PyObject *value = i < PyTuple_GET_SIZE(names)
                              ? PyObject_GetItem(locals, PyTuple_GET_ITEM(names, i))
                              : NULL;
        found = value != NULL && is_or_has(value, (PyObject *)interrupted);
        Py_XDECREF(value);
    }
    PyErr_Clear();
    Py_XDECREF(names);
    Py_XDECREF(locals);
    Py_DECREF(code);
    return found;
}

/* The same for a handler that has given up its place: whether one of our frames, or of what it
 * calls, was interrupted. */
static bool interrupted_a_frame(PyTracebackObject *at)
{
    for (; at != NULL && at->tb_next != NULL; at = at->tb_next)
        if (got_frame(at->tb_next->tb_frame, at->tb_frame))
            return true;
    return false;
}

static bool has_only_our_frames(PyTracebackObject *at)
{
    for (; at != NULL; at = at->tb_next)
        if (!is_ours(at->tb_frame))
            return false;
    return true;
}

/* The package of a class, without what stands behind its first dot; NULL: unknown. */
static PyObject *package_of(PyTypeObject *class)
{
    PyObject *module = PyObject_GetAttrString((PyObject *)class, "__module__"), *package = NULL;

    if (module != NULL && PyUnicode_Check(module)) {
        Py_ssize_t length = PyUnicode_GET_LENGTH(module);
        Py_ssize_t dot = PyUnicode_FindChar(module, '.', 0, length, 1);
        package = PyUnicode_Substring(module, 0, dot < 0 ? length : dot);
    }
    PyErr_Clear();
    Py_XDECREF(module);
    return package;
}

static bool is_one_of_pythons(PyObject *package)
{
    PyObject *names = PySys_GetObject("stdlib_module_names"); /* borrowed */
    int found = names != NULL ? PySequence_Contains(names, package) : 0;

    PyErr_Clear();
    return found > 0;
}

/* Whether another thread has raised it here. That makes an exception without arguments; what our
 * code, and C code that it calls, raises has a message, except for these. */
static bool was_sent(PyObject *exception)
{
    PyTypeObject *class = Py_TYPE(exception);
    PyObject *const without[] = {PyExc_StopIteration, PyExc_StopAsyncIteration,
                                 PyExc_AssertionError, PyExc_MemoryError};
    PyObject *package = package_of(class);
    bool is_builtin = package != NULL && PyUnicode_CompareWithASCIIString(package, "builtins") == 0;
    bool is_known =
        package != NULL &&
        (PyUnicode_CompareWithASCIIString(package, "cuptimem") == 0 ||
         PyUnicode_CompareWithASCIIString(package, "torch") == 0 || is_one_of_pythons(package));

    Py_XDECREF(package);
    if (is_known && !is_builtin)
        return false;
    for (size_t i = 0; i < sizeof without / sizeof without[0]; i++)
        if ((PyObject *)class == without[i])
            return false;
    return PyTuple_GET_SIZE(((PyBaseExceptionObject *)exception)->args) == 0;
}

static bool is_of_program(PyObject *exception, PyObject *traceback)
{
    PyTracebackObject *at = (PyTracebackObject *)traceback;

    if (!PyErr_GivenExceptionMatches(exception, PyExc_Exception))
        return true; /* KeyboardInterrupt, SystemExit: never ours */
    if (has_only_our_frames(at))
        return was_sent(exception);
    return passes_a_handler(at) || interrupted_a_frame(at);
}

static bool is_set_of_program(void)
{
    PyObject *type, *value, *traceback;

    PyErr_Fetch(&type, &value, &traceback);
    PyErr_NormalizeException(&type, &value, &traceback);
    bool found = is_of_program(value, traceback);
    PyErr_Restore(type, value, traceback);
    return found;
}

PyDoc_STRVAR(
    of_program_doc,
    "of_program(exception) -> bool\n\nWhether the program raised it while code of ours ran: "
    "in a signal handler, or from another thread. KeyboardInterrupt and SystemExit are "
    "the program's.");

static PyObject *of_program(PyObject *module, PyObject *exception)
{
    PyObject *traceback = PyException_GetTraceback(exception);
    bool found = is_of_program(exception, traceback);

    Py_XDECREF(traceback);
    return PyBool_FromLong(found);
}

cm_py_end cm_py_run_hidden(PyObject *function)
{
    bool was_of_program = false;
    PyObject *value = call_hidden(function, NULL, 0, &was_of_program);

    Py_XDECREF(value);
    return value != NULL ? CM_PY_DONE : was_of_program ? CM_PY_RAISED : CM_PY_FAILED;
}

int cm_py_run_pending(PyObject *function)
{
    cm_py_end end = cm_py_run_hidden(function);

    if (end == CM_PY_FAILED)
        PyErr_WriteUnraisable(function);
    return end == CM_PY_RAISED ? -1 : end == CM_PY_FAILED;
}

/* --- the object ------------------------------------------------------------------------------ */

typedef struct hidden {
    PyObject_HEAD
    PyObject *before;   /* ours */
    PyObject *function; /* the program's; NULL: the result is that of `before` */
    PyObject *after;    /* ours, called unless the function raised */
} hidden;

static int traverse(PyObject *self, visitproc visit, void *arg)
{
    hidden *h = (hidden *)self;

    Py_VISIT(Py_TYPE(self));
    Py_VISIT(h->before);
    Py_VISIT(h->function);
    Py_VISIT(h->after);
    return 0;
}

static int clear(PyObject *self)
{
    hidden *h = (hidden *)self;

    Py_CLEAR(h->before);
    Py_CLEAR(h->function);
    Py_CLEAR(h->after);
    return 0;
}

static void dealloc(PyObject *self)
{
    PyTypeObject *type = Py_TYPE(self);

    PyObject_GC_UnTrack(self);
    clear(self);
    PyObject_GC_Del(self);
    Py_DECREF(type);
}

static PyObject *call(PyObject *self, PyObject *arguments, PyObject *keywords)
{
    hidden *h = (hidden *)self;
    PyObject *const *items = ((PyTupleObject *)arguments)->ob_item;
    Py_ssize_t count = PyTuple_GET_SIZE(arguments);

    if (h->function == NULL && keywords != NULL && PyDict_GET_SIZE(keywords) > 0)
        return PyErr_Format(PyExc_TypeError, "a hidden call takes no keywords");
    PyObject *result = cm_py_call_hidden(h->before, items, count);
    if (h->function == NULL || result == NULL)
        return result;
    Py_DECREF(result);
    result = PyObject_Call(h->function, arguments, keywords);
    if (result == NULL || h->after == NULL)
        return result;
    PyObject *nothing = cm_py_call_hidden(h->after, items, count);
    if (nothing == NULL)
        Py_CLEAR(result);
    Py_XDECREF(nothing);
    return result;
}

static PyType_Slot type_slots[] = {{Py_tp_traverse, traverse},
                                   {Py_tp_clear, clear},
                                   {Py_tp_dealloc, dealloc},
                                   {Py_tp_call, call},
                                   {0, NULL}};
static PyType_Spec type_spec = {
    .name = "cuptimem._core.HiddenCall",
    .basicsize = sizeof(hidden),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_DISALLOW_INSTANTIATION,
    .slots = type_slots,
};
static PyTypeObject *type;

/* --- functions ------------------------------------------------------------------------------- */

PyDoc_STRVAR(hidden_doc,
             "hidden(before, function=None, after=None)\n\n"
             "A callable without a frame. It calls before(*args) hidden from profilers and tracers "
             "and gives its result; with a function of the program's it calls that one next, as "
             "if it stood there by itself, then after(*args), hidden, and gives the function's "
             "result.");

static PyObject *make_hidden(PyObject *module, PyObject *const *arguments, Py_ssize_t count)
{
    if (count < 1 || count > 3)
        return PyErr_Format(PyExc_TypeError, "hidden() takes one to three callables");
    for (Py_ssize_t i = 0; i < count; i++)
        if (!PyCallable_Check(arguments[i]))
            return PyErr_Format(PyExc_TypeError, "hidden() takes callables");
    hidden *h = PyObject_GC_New(hidden, type);
    if (h == NULL)
        return NULL;
    h->before = Py_NewRef(arguments[0]);
    h->function = count > 1 ? Py_NewRef(arguments[1]) : NULL;
    h->after = count > 2 ? Py_NewRef(arguments[2]) : NULL;
    PyObject_GC_Track(h);
    return (PyObject *)h;
}

PyDoc_STRVAR(shown_doc, "shown(function, *args)\n\nInside a hidden call: a call of the program's "
                        "own, which profilers and tracers see as usual.");

static PyObject *call_shown(PyObject *module, PyObject *const *arguments, Py_ssize_t count)
{
    PyThreadState *state = PyThreadState_Get();

    if (count < 1)
        return PyErr_Format(PyExc_TypeError, "shown() takes a function and its arguments");
    PyThreadState_LeaveTracing(state);
    PyObject *result = PyObject_Vectorcall(arguments[0], arguments + 1, (size_t)(count - 1), NULL);
    PyThreadState_EnterTracing(state);
    return result;
}

int cm_py_hidden_exec(PyObject *module)
{
    PyObject *file = PyModule_GetFilenameObject(module);
    Py_ssize_t length = file == NULL ? -1 : PyUnicode_GET_LENGTH(file);
    Py_ssize_t slash = file == NULL ? -2 : PyUnicode_FindChar(file, '/', 0, length, -1);

    if (slash >= -1)
        Py_XSETREF(own_folder, PyUnicode_Substring(file, 0, slash + 1));
    Py_XDECREF(file);
    if (own_folder == NULL || slash == -2)
        return -1;
    Py_XSETREF(type, (PyTypeObject *)PyType_FromSpec(&type_spec));
    return type == NULL ? -1 : 0;
}

PyMethodDef cm_py_hidden_methods[] = {
    {"hidden", (PyCFunction)(void (*)(void))make_hidden, METH_FASTCALL, hidden_doc},
    {"shown", (PyCFunction)(void (*)(void))call_shown, METH_FASTCALL, shown_doc},
    {"of_program", of_program, METH_O, of_program_doc},
    {NULL, NULL, 0, NULL},
};
