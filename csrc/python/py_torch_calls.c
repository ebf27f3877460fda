/* Noticing steps and new objects by PyTorch's own calls.
 *
 * Module.__init__, Optimizer.__init__, a data loader's __next__ and an optimizer's step each call a
 * C function of PyTorch with an argument that identifies the caller:
 *
 *     torch._C._log_api_usage_once("python.nn_module" or "python.optimizer")
 *     torch.ops.profiler._record_function_enter_new("enumerate(DataLoader)#...", ...)
 *     torch.ops.profiler._record_function_enter_new("Optimizer.step#...", ...) -> record
 *     torch.ops.profiler._record_function_exit(record)
 *
 * These are watched in place (py_watch.h), and so are Python functions that C calls: a module's
 * call, and __setstate__ at unpickling. The object is an argument or read from the caller's frame.
 * Nothing of PyTorch is wrapped and no hook is registered, so functions, tracebacks, profiles and
 * compiled graphs are unchanged. All with the GIL, which guards the state. */
#include "module.h"

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#include "../base/event.h"
#include "../capture/ring_producer.h"
#include "../frames/offsets.h"
#include "../sources/sources.h"
#include "py_events.h"
#include "py_hidden.h"
#include "py_walks.h"
#include "py_watch.h"

/* --- the caller's frame ------------------------------------------------------------------------
 */

typedef enum role { MODULE_INIT, OPTIMIZER_INIT, ITERATOR_NEXT, OPTIMIZER_STEP, ROLES } role;
static const char *const role_names[ROLES] = {"module_init", "optimizer_init", "iterator_next",
                                              "optimizer_step"};

static struct caller {
    PyCodeObject *code; /* kept alive */
    int self;           /* index of the local variable that is the object */
} callers[ROLES];

enum {
    NEAREST = 8 /* frames between the C function and its caller: record_function's, torch.ops' */
};

/* A borrowed reference, or NULL: the caller is not among the nearest frames. */
static PyObject *object_of(role who)
{
    const struct caller *caller = &callers[who];
    const char *frame = cm_frame_top();

    for (int i = 0; caller->code != NULL && frame != NULL && i < NEAREST;
         frame = cm_frame_previous(frame)) {
        PyCodeObject *code = cm_frame_code(frame);
        if (code == caller->code)
            return (PyObject *)cm_frame_untag(
                CM_FRAME_FIELD(uint64_t, frame, CM_OFFSET_LOCALS + 8 * caller->self));
        i += code != NULL;
    }
    return NULL;
}

static bool begins_with(PyObject *text, const char *prefix)
{
    Py_ssize_t length = (Py_ssize_t)strlen(prefix);

    return PyUnicode_Check(text) && PyUnicode_IS_COMPACT_ASCII(text) &&
           PyUnicode_GET_LENGTH(text) >= length &&
           memcmp(PyUnicode_1BYTE_DATA(text), prefix, (size_t)length) == 0;
}

/* --- new objects --------------------------------------------------------------------------------
 */

static void on_usage(PyObject *const *arguments, Py_ssize_t count, PyObject *result)
{
    static const struct {
        const char *name;
        role who;
        cm_object_kind kind;
    } kinds[] = {{"python.nn_module", MODULE_INIT, CM_OBJECT_MODULE},
                 {"python.optimizer", OPTIMIZER_INIT, CM_OBJECT_OPTIMIZER}};

    for (size_t i = 0; i < sizeof kinds / sizeof kinds[0] && count == 1 && result != NULL; i++) {
        PyObject *object = NULL;
        if (begins_with(arguments[0], kinds[i].name))
            object = object_of(kinds[i].who);
        if (object != NULL)
            cm_py_object_new((int)kinds[i].kind, object, false);
    }
}

/* --- steps --------------------------------------------------------------------------------------
 */

/* Optimizer steps that have begun. A step's end may never be seen, so records are only compared. */
enum { STEPS = 16 };
static struct begun {
    PyObject *record, *optimizer; /* NULL: free; borrowed: the frame inside the step holds both */
    PyObject *handled;            /* the exception being handled at the beginning */
} begun[STEPS];

static PyObject *handled_exception(void)
{
    PyObject *handled = PyErr_GetHandledException();

    Py_XDECREF(handled); /* the interpreter holds it; only its address is used */
    return handled;
}

static struct begun *find_begun(const PyObject *record)
{
    for (unsigned i = 0; i < STEPS; i++)
        if (begun[i].record == record)
            return &begun[i];
    return NULL;
}

/* The attribute counts the batches of this epoch that the iterator has returned. */
static bool is_at_its_first_batch(PyObject *iterator)
{
    PyObject *given = PyObject_GetAttrString(iterator, "_num_yielded");
    bool first = given != NULL && PyLong_CheckExact(given) && PyLong_AsLong(given) == 0;

    Py_XDECREF(given);
    PyErr_Clear();
    return first;
}

/* Gets each iterator of a DataLoader before its first batch. */
static PyObject *iterators_call;
static PyObject *new_iterator; /* of the call that is under way in this thread; only compared: */
static const PyThreadState *new_iterator_thread;

static void see_enter(PyObject *const *arguments, Py_ssize_t count)
{
    if (count < 1 || !begins_with(arguments[0], "enumerate(DataLoader)#"))
        return;
    PyObject *iterator = object_of(ITERATOR_NEXT);
    if (iterator == NULL)
        return;
    /* The next epoch's iterator often has the address of the last one, or is the same object with
     * persistent workers. Without this event its first batch would seem to belong to that epoch. */
    if (is_at_its_first_batch(iterator)) {
        cm_py_object_new(CM_OBJECT_ITERATOR, iterator, false);
        if (iterators_call != NULL && cm_is_recording()) {
            Py_XSETREF(new_iterator, Py_NewRef(iterator));
            new_iterator_thread = PyThreadState_Get();
        }
    }
    cm_py_tick(CM_TICK_DATA, iterator);
}

static void see_entered(PyObject *const *arguments, Py_ssize_t count, PyObject *record)
{
    struct begun *old = record != NULL ? find_begun(record) : NULL;

    if (old != NULL) /* its end was not seen, and the address was reused */
        old->record = NULL;
    if (new_iterator_thread == PyThreadState_Get()) {
        new_iterator_thread = NULL;
        PyObject *callable = Py_XNewRef(iterators_call);
        if (callable != NULL && record != NULL)
            cm_py_run_pending(callable);
        Py_XDECREF(callable);
        Py_CLEAR(new_iterator);
    }
    if (count < 1 || record == NULL || !begins_with(arguments[0], "Optimizer.step#"))
        return;
    PyObject *optimizer = object_of(OPTIMIZER_STEP);
    if (optimizer == NULL)
        return;
    struct begun *room = find_begun(NULL);
    if (room == NULL) /* replaces a step that never ended, at random */
        room = &begun[(uintptr_t)record / 64 % STEPS];
    *room = (struct begun){record, optimizer, handled_exception()};
}

/* The thread in which a walk is due after the record's end; only compared. */
static const PyThreadState *walks_next;

static void on_record_exit(PyObject *const *arguments, Py_ssize_t count)
{
    struct begun *step = count > 0 ? find_begun(arguments[0]) : NULL;

    if (step == NULL)
        return;
    step->record = NULL;
    if (step->handled != handled_exception()) /* the step raised an exception: no tick */
        return;
    cm_py_tick(CM_TICK_OPTIMIZER, step->optimizer);
    if (cm_is_recording() && cm_py_walks_tick(false))
        walks_next = PyThreadState_Get();
}

static void see_exited(PyObject *const *arguments, Py_ssize_t count, PyObject *result)
{
    if (walks_next != PyThreadState_Get())
        return;
    walks_next = NULL;
    if (result != NULL)
        cm_py_walks_make();
}

/* --- calls of modules ---------------------------------------------------------------------------
 */

/* Module calls that this thread is in, so that an inner one costs no stack walk. Initial-exec: any
 * other model may call malloc. */
static __thread unsigned depth __attribute__((tls_model("initial-exec")));

/* Calls that the interpreter makes without the vectorcall pointer are not counted in `depth`, so
 * the tick checks the stack, too. Calls inside a node (a checkpoint's recomputation) belong to the
 * pass. */
static void on_module_call(PyObject *const *arguments, Py_ssize_t count)
{
    if (depth++ == 0 && count > 0 && cm_is_recording() && !cm_autograd_in_node())
        cm_py_tick_outermost(arguments[0]);
}

static void see_module_return(PyObject *const *arguments, Py_ssize_t count, PyObject *result)
{
    bool outermost = --depth == 0;
    if (result != NULL && cm_is_recording() && cm_py_walks_call(outermost) &&
        (outermost || !cm_autograd_in_node()))
        cm_py_walks_make();
}

/* --- what is watched
 * ------------------------------------------------------------------------------ */

static void on_module_loaded(PyObject *const *arguments, Py_ssize_t count, PyObject *result)
{
    if (count > 0 && result != NULL)
        cm_py_object_new(CM_OBJECT_MODULE, arguments[0], false);
}

static void see_optimizer_loaded(PyObject *const *arguments, Py_ssize_t count, PyObject *result)
{
    if (count > 0 && result != NULL)
        cm_py_object_new(CM_OBJECT_OPTIMIZER, arguments[0], false);
}

static const struct {
    const char *name;
    cm_py_watch watch;
} calls[] = {{"usage", {NULL, on_usage}},
             {"enter", {see_enter, see_entered}},
             {"exit", {on_record_exit, see_exited}},
             {"module_setstate", {NULL, on_module_loaded}},
             {"optimizer_setstate", {NULL, see_optimizer_loaded}},
             {"module_call", {on_module_call, see_module_return}}};
enum { CALLS = sizeof calls / sizeof calls[0] };

/* --- from Python ---------------------------------------------------------------------------------
 */

PyDoc_STRVAR(watch_doc, "torch_watch(name, function)\n\n"
                        "Watches a function of PyTorch: usage, enter, exit (see this file's first "
                        "comment), module_setstate, optimizer_setstate, module_call. Repeatable. "
                        "ValueError: it cannot be watched.");

static PyObject *torch_watch(PyObject *module, PyObject *arguments)
{
    const char *name, *why = cm_offsets_check();
    PyObject *function;
    int i = 0;

    if (!PyArg_ParseTuple(arguments, "sO", &name, &function))
        return NULL;
    while (i < CALLS && strcmp(name, calls[i].name) != 0)
        i++;
    if (why == NULL)
        why = i == CALLS ? "no such call" : cm_py_watch_calls(&calls[i].watch, function);
    if (why != NULL)
        return PyErr_Format(PyExc_ValueError, "%s: %s", name, why);
    Py_RETURN_NONE;
}

PyDoc_STRVAR(
    caller_doc,
    "torch_caller(role, code)\n\nThe code of one of PyTorch's functions that calls what is "
    "watched: module_init, optimizer_init, iterator_next, optimizer_step. Its variable "
    "`self` is the object. ValueError: it has none that can be read from its frame.");

static PyObject *torch_caller(PyObject *module, PyObject *arguments)
{
    const char *name;
    PyObject *code;
    int who = 0;

    if (!PyArg_ParseTuple(arguments, "sO!", &name, &PyCode_Type, &code))
        return NULL;
    while (who < ROLES && strcmp(name, role_names[who]) != 0)
        who++;
    PyObject *self = PyUnicode_FromString("self");
    PyObject *names = PyCode_GetVarnames((PyCodeObject *)code);
    PyObject *cells = PyCode_GetCellvars((PyCodeObject *)code);
    Py_ssize_t at = -1;
    /* A variable that an inner function uses is in a cell. */
    if (self != NULL && names != NULL && cells != NULL && PySequence_Contains(cells, self) == 0)
        at = PySequence_Index(names, self);
    Py_XDECREF(self);
    Py_XDECREF(names);
    Py_XDECREF(cells);
    PyErr_Clear();
    if (who == ROLES || at < 0)
        return PyErr_Format(PyExc_ValueError, "%s: no object can be read from its frame", name);
    PyCodeObject *old = callers[who].code;
    callers[who] = (struct caller){(PyCodeObject *)Py_NewRef(code), (int)at};
    Py_XDECREF(old);
    Py_RETURN_NONE;
}

PyDoc_STRVAR(iterators_doc,
             "torch_iterators(callable)\n\nCalls this before the first batch of each iterator of a "
             "DataLoader; torch_iterator() is that one meanwhile. None: no more.");

static PyObject *torch_iterators(PyObject *module, PyObject *callable)
{
    Py_XSETREF(iterators_call, callable == Py_None ? NULL : Py_NewRef(callable));
    Py_RETURN_NONE;
}

static PyObject *torch_iterator(PyObject *module, PyObject *unused)
{
    return Py_NewRef(new_iterator == NULL ? Py_None : new_iterator);
}

PyDoc_STRVAR(unwatch_doc, "torch_unwatch()\n\nTakes out all that was put in. Repeatable.");

static PyObject *torch_unwatch(PyObject *module, PyObject *unused)
{
    for (int i = 0; i < CALLS; i++)
        cm_py_unwatch_calls(&calls[i].watch);
    memset(begun, 0, sizeof begun);
    Py_CLEAR(iterators_call);
    Py_CLEAR(new_iterator);
    new_iterator_thread = NULL;
    Py_RETURN_NONE;
}

PyMethodDef cm_py_torch_calls_methods[] = {
    {"torch_watch", torch_watch, METH_VARARGS, watch_doc},
    {"torch_caller", torch_caller, METH_VARARGS, caller_doc},
    {"torch_iterators", torch_iterators, METH_O, iterators_doc},
    {"torch_iterator", torch_iterator, METH_NOARGS, iterators_doc},
    {"torch_unwatch", torch_unwatch, METH_NOARGS, unwatch_doc},
    {NULL, NULL, 0, NULL},
};
