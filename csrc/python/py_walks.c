/* The C part of the walk over living objects: its schedule, and steps that must be fast or keep the
 * GIL. cuptimem/objects/walks.py and living.py are the Python part. */
#include "py_walks.h"

#include <opcode.h>
#include <stdatomic.h>
#include <stdint.h>
#include <string.h>

#include "../base/clock.h"
#include "../base/event.h"
#include "py_hidden.h"

/* --- when ------------------------------------------------------------------------------------ */

static PyObject *walk; /* guarded by the GIL */

/* Passes tick without the GIL. A race only adds or omits a walk. */
static struct {
    atomic_bool on;
    atomic_ulong ticks, passes, calls;
    atomic_int due;                             /* bits of walks_due */
    atomic_bool more;                           /* slices are left: due at any tick */
    atomic_ulong modules, optimizers;           /* made so far */
    atomic_ulong walks, last;                   /* last: the tick of the latest walk */
    atomic_ulong modules_then, optimizers_then; /* made by then */
    atomic_ullong inner_ns;                     /* before it no inner call goes on with slices */
} counts;

/* INNER_EVERY_NS: a forward of many modules is to be paused once in that time. */
enum { FEWEST_MADE = 1 << 10, MOST_MADE = 1 << 17, INNER_EVERY_NS = 20000000 };

static PyObject *made; /* weak references in the order of making, and their kinds; by the GIL */
static Py_ssize_t made_bound;

/* A new reference; NULL: it has died. */
static PyObject *object_of(PyObject *reference)
{
#if PY_VERSION_HEX >= 0x030d0000
    PyObject *object = NULL;
    return PyWeakref_GetRef(reference, &object) == 1 ? object : NULL;
#else
    PyObject *object = PyWeakref_GET_OBJECT(reference);
    return object == Py_None ? NULL : Py_NewRef(object);
#endif
}

static bool is_alive(PyObject *reference)
{
    PyObject *object = object_of(reference);

    Py_XDECREF(object); /* never the last one */
    return object != NULL;
}

/* Drops what has died, each time that the list has doubled. */
static void tidy_made(void)
{
    Py_ssize_t kept = 0, count = PyList_GET_SIZE(made);

    if (count < made_bound)
        return;
    for (Py_ssize_t i = 0; i < count; i += 2) {
        PyObject *reference = PyList_GET_ITEM(made, i), *kind = PyList_GET_ITEM(made, i + 1);
        if (!is_alive(reference))
            continue;
        PyList_SET_ITEM(made, i, PyList_GET_ITEM(made, kept));
        PyList_SET_ITEM(made, i + 1, PyList_GET_ITEM(made, kept + 1));
        PyList_SET_ITEM(made, kept, reference);
        PyList_SET_ITEM(made, kept + 1, kind);
        kept += 2;
    }
    PyList_SetSlice(made, kept, count, NULL);
    made_bound = kept * 2 < FEWEST_MADE ? FEWEST_MADE : kept * 2;
}

static void remember(int kind, PyObject *object)
{
    PyObject *type, *value, *traceback, *reference, *number;

    if (made == NULL)
        return;
    PyErr_Fetch(&type, &value, &traceback);
    tidy_made();
    reference = PyWeakref_NewRef(object, NULL);
    number = PyLong_FromLong(kind);
    if (reference != NULL && number != NULL && PyList_GET_SIZE(made) < MOST_MADE &&
        PyList_Append(made, reference) == 0 && PyList_Append(made, number) != 0)
        PyList_SetSlice(made, PyList_GET_SIZE(made) - 1, PyList_GET_SIZE(made), NULL);
    Py_XDECREF(reference);
    Py_XDECREF(number);
    PyErr_Restore(type, value, traceback);
}

void cm_py_walks_see_object(int kind, PyObject *object)
{
    if (kind == CM_OBJECT_MODULE)
        atomic_fetch_add(&counts.modules, 1);
    else if (kind == CM_OBJECT_OPTIMIZER)
        atomic_fetch_add(&counts.optimizers, 1);
    else
        return;
    remember(kind, object);
}

static bool is_due(unsigned long tick)
{
    bool optimizers = counts.optimizers != counts.optimizers_then;
    bool made = optimizers || counts.modules != counts.modules_then;

    if (tick <= 2 || (made && (tick & (tick - 1)) == 0))
        return true;
    return optimizers && tick - counts.last >= counts.walks * counts.walks;
}

/* 24, 36, 72, 144, ...; 12: sooner. */
static int search_due(unsigned long tick)
{
    if (tick == 12)
        return CM_DUE_LOOK_SOONER;
    bool due = tick == 24 || (tick % 36 == 0 && (tick / 36 & (tick / 36 - 1)) == 0);
    return due ? CM_DUE_LOOK : 0;
}

static void walk_at(unsigned long tick)
{
    atomic_fetch_or(&counts.due, CM_DUE_WALK);
    counts.walks++;
    counts.last = tick;
    counts.modules_then = counts.modules;
    counts.optimizers_then = counts.optimizers;
}

bool cm_py_walks_call(bool outermost)
{
    if (!counts.on || counts.ticks > 0 || counts.passes > 0)
        return false;
    if (!outermost) {
        if (!counts.more || counts.optimizers > 0 || cm_clock_monotonic_ns() < counts.inner_ns)
            return false;
        counts.inner_ns = cm_clock_monotonic_ns() + INNER_EVERY_NS;
        return true;
    }
    unsigned long call = atomic_fetch_add(&counts.calls, 1) + 1;
    int search = search_due(call);
    atomic_fetch_or(&counts.due, search);
    bool made = counts.modules != counts.modules_then;
    if (counts.optimizers > 0 || (call & (call - 1)) != 0 || (call > 1 && !made))
        return search != 0 || counts.more;
    walk_at(call);
    return true;
}

bool cm_py_walks_tick(bool pass)
{
    if (!counts.on)
        return false;
    unsigned long tick = atomic_fetch_add(pass ? &counts.passes : &counts.ticks, 1) + 1;
    if (tick == 1) /* those so far followed calls */
        counts.last = counts.walks = 0;
    /* Passes are ignored if there is an optimizer, whose first step follows the first pass. */
    if (pass && (counts.ticks > 0 || (tick == 1 && counts.optimizers > 0)))
        return false;
    int search = search_due(tick);
    atomic_fetch_or(&counts.due, search);
    if (!is_due(tick))
        return search != 0 || counts.more;
    walk_at(tick);
    return true;
}

void cm_py_walks_make(void)
{
    PyObject *callable = Py_XNewRef(walk);

    if (callable != NULL)
        cm_py_run_pending(callable);
    Py_XDECREF(callable);
}

PyDoc_STRVAR(walks_call_doc,
             "walks_call(callable)\n\nCalls this after steps of optimizers from now on, as often "
             "by the rules of py_walks.h. None: no more.");

static PyObject *walks_call(PyObject *module, PyObject *callable)
{
    counts.on = counts.more = false;
    counts.ticks = counts.passes = counts.calls = counts.modules = counts.optimizers = 0;
    counts.due = 0;
    counts.walks = counts.last = counts.modules_then = counts.optimizers_then = 0;
    Py_XSETREF(walk, callable == Py_None ? NULL : Py_NewRef(callable));
    Py_XSETREF(made, callable == Py_None ? NULL : PyList_New(0));
    made_bound = FEWEST_MADE;
    counts.on = callable != Py_None;
    Py_RETURN_NONE;
}

PyDoc_STRVAR(walks_due_doc, "walks_due() -> int\n\nWhat is due: 1 a walk, 2 a search for holders, "
                            "4 one for long recordings, 8 what walks_more asked for. Then nothing "
                            "is, until another tick.");

static PyObject *walks_due(PyObject *module, PyObject *nothing)
{
    int more = atomic_exchange(&counts.more, false) ? CM_DUE_SLICE : 0;

    return PyLong_FromLong(atomic_exchange(&counts.due, 0) | more);
}

PyDoc_STRVAR(walks_more_doc, "walks_more()\n\nThe next tick calls, too, for what is left to do.");

static PyObject *walks_more(PyObject *module, PyObject *nothing)
{
    counts.more = true;
    Py_RETURN_NONE;
}

PyDoc_STRVAR(walks_made_doc,
             "walks_made(kind) -> list\n\nWeak references to the modules, or optimizers, "
             "made or found since walks_call, in their order.");

static PyObject *walks_made(PyObject *module, PyObject *kind)
{
    PyObject *found = PyList_New(0);

    for (Py_ssize_t i = 0; found != NULL && made != NULL && i < PyList_GET_SIZE(made); i += 2)
        if (PyObject_RichCompareBool(PyList_GET_ITEM(made, i + 1), kind, Py_EQ) == 1 &&
            PyList_Append(found, PyList_GET_ITEM(made, i)) != 0)
            Py_CLEAR(found);
    return found;
}

/* --- choosing objects --------------------------------------------------------------------------
 */

enum { CLASSES = 1024 };
typedef struct classes {
    struct {
        PyTypeObject *type; /* borrowed: the list's objects keep their classes alive */
        long kind;
    } recent[CLASSES];
    PyObject *all; /* address of a class -> kind */
} classes;

/* -1 with an exception set. */
static long ask(classes *c, PyTypeObject *type, PyObject *kind_of)
{
    PyObject *key = PyLong_FromVoidPtr(type), *known;

    if (key == NULL)
        return -1;
    known = Py_XNewRef(PyDict_GetItemWithError(c->all, key));
    if (known == NULL && !PyErr_Occurred()) {
        known = PyObject_CallOneArg(kind_of, (PyObject *)type);
        if (known != NULL && PyDict_SetItem(c->all, key, known) != 0)
            Py_CLEAR(known);
    }
    long kind = known == NULL ? -1 : PyLong_AsLong(known);
    Py_DECREF(key);
    Py_XDECREF(known);
    return kind;
}

static long kind_of_type(classes *c, PyTypeObject *type, PyObject *kind_of)
{
    size_t i = ((uintptr_t)type >> 5) * 0x9e3779b97f4a7c15u >> 54;

    if (c->recent[i].type != type) {
        long kind = ask(c, type, kind_of);
        if (kind < 0)
            return -1;
        c->recent[i].type = type;
        c->recent[i].kind = kind;
    }
    return c->recent[i].kind;
}

PyDoc_STRVAR(select_doc, "select(objects, kind_of)\n\n(kind, object) of each object in the list "
                         "that kind_of(its class), asked once for a class, is not 0 for.");

static PyObject *select_objects(PyObject *module, PyObject *arguments)
{
    PyObject *objects, *kind_of, *found = PyList_New(0);
    classes *c = PyMem_Calloc(1, sizeof *c);
    bool good = found != NULL && c != NULL && (c->all = PyDict_New()) != NULL &&
                PyArg_ParseTuple(arguments, "O!O", &PyList_Type, &objects, &kind_of);

    for (Py_ssize_t i = 0; good && i < PyList_GET_SIZE(objects); i++) {
        PyObject *object = PyList_GET_ITEM(objects, i);
        long kind = kind_of_type(c, Py_TYPE(object), kind_of);
        good = kind >= 0;
        if (kind > 0) {
            PyObject *pair = Py_BuildValue("(lO)", kind, object);
            good = pair != NULL && PyList_Append(found, pair) == 0;
            Py_XDECREF(pair);
        }
    }
    if (c != NULL)
        Py_XDECREF(c->all);
    PyMem_Free(c);
    if (!good)
        Py_CLEAR(found);
    return found != NULL || PyErr_Occurred() ? found : PyErr_NoMemory();
}

/* --- while no thread runs ------------------------------------------------------------------------
 */

static bool runs(PyThreadState *state, PyObject *code)
{
    PyFrameObject *frame = PyThreadState_GetFrame(state);
    bool found = false;

    while (frame != NULL && !found) {
        PyCodeObject *own = PyFrame_GetCode(frame);
        found = (PyObject *)own == code;
        Py_DECREF(own); /* the frame has it */
        PyFrameObject *back = PyFrame_GetBack(frame);
        Py_DECREF(frame);
        frame = back;
    }
    Py_XDECREF(frame);
    return found;
}

static bool names_grad(PyObject *tuple)
{
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(tuple); i++) {
        PyObject *one = PyTuple_GET_ITEM(tuple, i);
        if (PyUnicode_Check(one) && PyUnicode_CompareWithASCIIString(one, "grad") == 0)
            return true;
    }
    return false;
}

/* At `tensor.grad = None`: PyTorch lets the GIL go while it frees the old gradient, to which the
 * tensor still points then. Also true at other attributes that such a function sets, and where it
 * names the attribute by a string (setattr). */
static bool exchanges_gradient(PyThreadState *state)
{
    PyFrameObject *frame = PyThreadState_GetFrame(state);
    if (frame == NULL)
        return false;
    PyCodeObject *code = PyFrame_GetCode(frame);
    Py_ssize_t at = PyFrame_GetLasti(frame);
    bool found = names_grad(code->co_consts);

    if (!found && at >= 0 && names_grad(code->co_names)) {
        PyObject *bytes = PyCode_GetCode(code);
        int opcode = bytes == NULL ? STORE_ATTR : (unsigned char)PyBytes_AS_STRING(bytes)[at];
        found = opcode == STORE_ATTR || opcode == DELETE_ATTR;
        if (bytes == NULL)
            PyErr_Clear();
        Py_XDECREF(bytes);
    }
    Py_DECREF(code);
    Py_DECREF(frame);
    return found;
}

static bool gradients_are_exchanged(void)
{
    PyThreadState *me = PyThreadState_Get();
    PyThreadState *state = PyInterpreterState_ThreadHead(PyInterpreterState_Get());

    for (; state != NULL; state = PyThreadState_Next(state))
        if (state != me && exchanges_gradient(state))
            return true;
    return false;
}

PyDoc_STRVAR(gradients_exchanged_doc,
             "gradients_exchanged() -> bool\n\nWhether another thread may be setting a tensor's "
             "gradient, which then must not be read: it may be freed memory.");

static PyObject *gradients_exchanged(PyObject *module, PyObject *nothing)
{
    return PyBool_FromLong(gradients_are_exchanged());
}

PyDoc_STRVAR(call_unless_running_doc,
             "call_unless_running(code, function, *arguments)\n\nThe result of a function of C, "
             "NotImplemented while a thread is inside this code, or while another one may be "
             "exchanging a tensor's gradient. No other thread can get the GIL between the check of "
             "the threads and the call.");

static PyObject *call_unless_running(PyObject *module, PyObject *const *args, Py_ssize_t count)
{
    if (count < 2 || !PyCode_Check(args[0]))
        return PyErr_Format(PyExc_TypeError, "expected a code object and a function");
    PyThreadState *state = PyInterpreterState_ThreadHead(PyInterpreterState_Get());
    for (; state != NULL; state = PyThreadState_Next(state))
        if (runs(state, args[0]))
            Py_RETURN_NOTIMPLEMENTED;
    if (gradients_are_exchanged())
        Py_RETURN_NOTIMPLEMENTED;
    return PyObject_Vectorcall(args[1], args + 2, (size_t)(count - 2), NULL);
}

PyMethodDef cm_py_walks_methods[] = {
    {"walks_call", walks_call, METH_O, walks_call_doc},
    {"walks_due", walks_due, METH_NOARGS, walks_due_doc},
    {"walks_more", walks_more, METH_NOARGS, walks_more_doc},
    {"walks_made", walks_made, METH_O, walks_made_doc},
    {"select", select_objects, METH_VARARGS, select_doc},
    {"gradients_exchanged", gradients_exchanged, METH_NOARGS, gradients_exchanged_doc},
    {"call_unless_running", (PyCFunction)(void (*)(void))call_unless_running, METH_FASTCALL,
     call_unless_running_doc},
    {NULL, NULL, 0, NULL},
};
