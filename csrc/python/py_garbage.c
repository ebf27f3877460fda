/* Marking Python's garbage collections in the trace. Blocks that one frees were garbage; blocks
 * that survive many were not.
 *
 * The callback in gc.callbacks is in C, so it adds no frame to any stack. All functions run with
 * the GIL, which guards the state. */
#include "module.h"

#include <stdbool.h>

#include "../base/clock.h"
#include "../capture/ring_producer.h"

/* The collection by garbage_final, with its own marks. */
static enum { NOT_ASKED, ASKED, RUNNING, RAN } final;

static void mark(cm_mark_kind kind, uint64_t argument)
{
    cm_producer *t = cm_enter_hook();
    if (t == NULL)
        return;
    uint32_t stack = kind == CM_MARK_FINAL_COLLECT_BEGIN ? cm_walk_capture_hook(cm_producer_walk(t))
                                                         : CM_STACK_NONE;
    cm_event *slot = cm_reserve_hook(t);
    if (slot != NULL) {
        *slot = (cm_event){.time = cm_clock_now(),
                           .kind = CM_EV_MARK,
                           .size = kind,
                           .address = argument,
                           .stack = stack,
                           .device_index = -1};
        cm_commit_hook(t);
    }
    cm_leave_hook(t);
}

static void mark_final(bool begins)
{
    if (begins && final == ASKED) {
        final = RUNNING;
        mark(CM_MARK_FINAL_COLLECT_BEGIN, PyGC_IsEnabled() ? 1 : 0);
    } else if (!begins && final == RUNNING) {
        final = RAN;
        mark(CM_MARK_FINAL_COLLECT_END, 0);
    }
}

PyDoc_STRVAR(garbage_callback_doc,
             "garbage_callback(phase, info)\n\nFor gc.callbacks: marks a collection.");

static PyObject *garbage_callback(PyObject *module, PyObject *const *arguments, Py_ssize_t count)
{
    static PyObject *key; /* kept: making it would be an allocation in each collection */

    if (count != 2 || !PyUnicode_Check(arguments[0]) || !PyDict_Check(arguments[1])) {
        PyErr_SetString(PyExc_TypeError, "garbage_callback is called by the collector");
        return NULL;
    }
    bool begins = PyUnicode_CompareWithASCIIString(arguments[0], "start") == 0;
    if (final != NOT_ASKED) {
        mark_final(begins);
        Py_RETURN_NONE;
    }
    if (key == NULL && (key = PyUnicode_InternFromString("generation")) == NULL)
        return NULL;
    PyObject *generation = PyDict_GetItemWithError(arguments[1], key);
    long number = generation == NULL ? -1 : PyLong_AsLong(generation);
    if (PyErr_Occurred())
        return NULL;
    mark(begins ? CM_MARK_COLLECT_BEGIN : CM_MARK_COLLECT_END, (uint64_t)number);
    Py_RETURN_NONE;
}

/* Removes the program's callbacks, which must not see this collection. Callbacks that finalizers
 * add meanwhile stay. Returns a new reference to the removed ones. */
static PyObject *remove_callbacks(PyObject *gc)
{
    PyObject *list = PyObject_GetAttrString(gc, "callbacks"), *others = PyList_New(0);
    bool good = list != NULL && others != NULL && PyList_Check(list);

    for (Py_ssize_t i = 0; good && i < PyList_GET_SIZE(list);) {
        PyObject *callback = PyList_GET_ITEM(list, i);
        if (PyCFunction_CheckExact(callback) &&
            PyCFunction_GET_FUNCTION(callback) == (PyCFunction)(void (*)(void))garbage_callback)
            i++;
        else
            good = PyList_Append(others, callback) == 0 && PySequence_DelItem(list, i) == 0;
    }
    Py_XDECREF(list);
    if (!good)
        Py_CLEAR(others);
    return others;
}

static void restore_callbacks(PyObject *gc, PyObject *others)
{
    PyObject *type, *value, *traceback;

    PyErr_Fetch(&type, &value, &traceback);
    PyObject *list = PyObject_GetAttrString(gc, "callbacks");
    if (list == NULL || PyList_SetSlice(list, 0, 0, others) < 0)
        PyErr_WriteUnraisable(others);
    Py_XDECREF(list);
    Py_DECREF(others);
    PyErr_Restore(type, value, traceback);
}

/* From 3.14 on the youngest generation is not a list that objects are moved to. */
#define HAS_GENERATIONS (PY_VERSION_HEX < 0x030e0000)

/* Makes these the youngest objects, and empties the list: it must not hold them. */
static void make_youngest(PyObject *known)
{
    for (Py_ssize_t i = 0; i < PyList_GET_SIZE(known); i++) {
        PyObject *o = PyList_GET_ITEM(known, i);
        if (PyObject_GC_IsTracked(o)) {
            PyObject_GC_UnTrack(o);
            PyObject_GC_Track(o);
        }
    }
    PyList_SetSlice(known, 0, PyList_GET_SIZE(known), NULL);
}

PyDoc_STRVAR(
    garbage_final_doc,
    "garbage_final(enable, known) -> bool\n\n"
    "Runs a collection with marks of its own, automatic collection on or off;\n"
    "garbage_callback must be in gc.callbacks. enable: turns automatic collection on first, with\n"
    "no allocation in between that would start one. known: what graph_garbage has found, a list\n"
    "that is emptied; so only that and the youngest objects are read. None: all are.\n"
    "False where there was none: this is called from within a collection.");

static PyObject *garbage_final(PyObject *module, PyObject *arguments)
{
    PyObject *enable, *known;

    if (!PyArg_ParseTuple(arguments, "OO", &enable, &known))
        return NULL;
    if (final != NOT_ASKED)
        Py_RETURN_FALSE;
    PyObject *gc = PyImport_ImportModule("gc");
    if (gc == NULL)
        return NULL;
    PyObject *others = remove_callbacks(gc);
    if (others == NULL) {
        Py_DECREF(gc);
        return NULL;
    }
    bool is_known = HAS_GENERATIONS && PyList_CheckExact(known);
    if (PyList_CheckExact(known))
        make_youngest(known);
    final = ASKED;
    if (enable == Py_True)
        PyGC_Enable();
    /* Not PyGC_Collect, which does nothing while automatic collection is off. */
    PyObject *found = PyObject_CallMethod(gc, "collect", "i", is_known ? 0 : 2);
    bool ran = final == RAN;
    final = NOT_ASKED;
    restore_callbacks(gc, others);
    Py_DECREF(gc);
    if (found == NULL)
        return NULL;
    Py_DECREF(found);
    return PyBool_FromLong(ran);
}

PyDoc_STRVAR(garbage_forget_doc,
             "garbage_forget()\n\nIn a forked child: another thread's collection ended with it.");

static PyObject *garbage_forget(PyObject *module, PyObject *unused)
{
    final = NOT_ASKED;
    Py_RETURN_NONE;
}

PyMethodDef cm_py_garbage_methods[] = {
    {"garbage_callback", (PyCFunction)(void (*)(void))garbage_callback, METH_FASTCALL,
     garbage_callback_doc},
    {"garbage_final", garbage_final, METH_VARARGS, garbage_final_doc},
    {"garbage_forget", garbage_forget, METH_NOARGS, garbage_forget_doc},
    {NULL, NULL, 0, NULL},
};
