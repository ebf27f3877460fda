/* cuptimem._core: the events that Python code emits. */
#include "py_events.h"

#include "../base/clock.h"
#include "../capture/heap_sample.h"
#include "../capture/ring_producer.h"
#include "../sources/device_totals.h"
#include "../sources/sources.h"
#include "py_capture_emit.h"
#include "py_walks.h"

/* Fills in the time and, with_stack, the caller's stack. */
static void emit(cm_producer *t, cm_event event, bool with_stack)
{
    if (with_stack)
        event.stack = cm_walk_capture_hook(cm_producer_walk(t));
    cm_event *slot = cm_reserve_hook(t);
    if (slot != NULL) {
        event.time = cm_clock_now();
        *slot = event;
        cm_commit_hook(t);
    }
}

void cm_py_tick(int kind, PyObject *object)
{
    cm_producer *t = cm_enter_hook();

    if (t == NULL)
        return;
    emit(t,
         (cm_event){
             .kind = CM_EV_TICK, .size = kind, .address = (uintptr_t)object, .device_index = -1},
         true);
    cm_leave_hook(t);
    cm_heap_sample();
}

/* Whether the module's own `training` is False. Runs no code of the program's. */
static bool is_in_eval_mode(PyObject *module)
{
    PyObject *names = PyObject_GenericGetDict(module, NULL);
    PyObject *training = names != NULL ? PyDict_GetItemString(names, "training") : NULL;
    bool evaluates = training == Py_False;

    Py_XDECREF(names);
    PyErr_Clear();
    return evaluates;
}

void cm_py_tick_outermost(PyObject *module)
{
    bool evaluates = is_in_eval_mode(module);
    cm_producer *t = cm_enter_hook();

    if (t == NULL)
        return;
    uint32_t stack = cm_walk_capture_hook(cm_producer_walk(t));
    bool outermost = cm_producer_walk(t)->modules == 0;
    cm_event *slot = outermost ? cm_reserve_hook(t) : NULL;
    if (slot != NULL) {
        *slot = (cm_event){.time = cm_clock_now(),
                           .kind = CM_EV_TICK,
                           .flags = (cm_autograd_records() ? 0 : CM_EVF_NO_GRAD) |
                                    (evaluates ? CM_EVF_EVAL_MODE : 0),
                           .size = CM_TICK_MODULE,
                           .address = (uintptr_t)module,
                           .stack = stack,
                           .device_index = -1};
        cm_commit_hook(t);
    }
    cm_leave_hook(t);
    if (outermost)
        cm_heap_sample();
}

PyDoc_STRVAR(tick_doc, "tick(kind, obj)\n\nA candidate step clock ticked, here.");

static PyObject *tick(PyObject *module, PyObject *arguments)
{
    PyObject *object;
    int kind;

    if (!PyArg_ParseTuple(arguments, "iO", &kind, &object))
        return NULL;
    cm_py_tick(kind, object);
    Py_RETURN_NONE;
}

PyDoc_STRVAR(mark_doc, "mark(kind, argument=0)");

static PyObject *mark(PyObject *module, PyObject *arguments)
{
    unsigned long long argument = 0;
    int kind;

    if (!PyArg_ParseTuple(arguments, "i|K", &kind, &argument))
        return NULL;
    cm_producer *t = cm_enter_hook();
    if (t != NULL) {
        emit(t,
             (cm_event){.kind = CM_EV_MARK, .size = kind, .address = argument, .device_index = -1},
             false);
        cm_leave_hook(t);
    }
    if (kind == CM_MARK_WINDOW_OPEN)
        cm_device_totals_write_next();
    Py_RETURN_NONE;
}

void cm_py_object_new(int kind, PyObject *object, bool before_start)
{
    cm_producer *t = cm_enter_hook();

    if (t == NULL)
        return;
    /* By content, for a class's name is freed with the class. */
    uint32_t name = cm_name_intern_text_hook(Py_TYPE(object)->tp_name);
    emit(t,
         (cm_event){.kind = CM_EV_OBJECT_NEW,
                    .size = kind,
                    .address = (uintptr_t)object,
                    .stack = name,
                    .flags = before_start ? CM_EVF_BEFORE_START : 0,
                    .device_index = -1},
         false);
    cm_leave_hook(t);
    cm_py_walks_see_object(kind, object);
}

PyDoc_STRVAR(
    object_new_doc,
    "object_new(kind, obj, before_start=False)\n\nThis address is a new object from now on.");

static PyObject *object_new(PyObject *module, PyObject *arguments)
{
    PyObject *object;
    int kind, before_start = 0;

    if (!PyArg_ParseTuple(arguments, "iO|p", &kind, &object, &before_start))
        return NULL;
    cm_py_object_new(kind, object, before_start != 0);
    Py_RETURN_NONE;
}

PyDoc_STRVAR(seed_doc,
             "seed(address, size, device_type, device_index, requested=-1, direct=False)"
             "\n\nA block that was alive before; requested: of it, if that is known; direct: "
             "taken from CUDA for itself.");

static PyObject *seed(PyObject *module, PyObject *arguments)
{
    unsigned long long address;
    long long size, requested = -1;
    int type, index, direct = 0;

    if (!PyArg_ParseTuple(arguments, "KLii|Lp", &address, &size, &type, &index, &requested,
                          &direct))
        return NULL;
    cm_event event = {.kind = CM_EV_SEED,
                      .size = size,
                      .address = address,
                      .flags = direct ? CM_EVF_DIRECT : 0,
                      .device_type = (uint8_t)type,
                      .device_index = (int8_t)index};
    cm_producer *t = cm_enter_hook();
    if (t != NULL) {
        emit(t, event, false);
        if (requested >= 0 && requested < size) {
            event.kind = CM_EV_REQUESTED;
            event.size = requested;
            event.flags = CM_EVF_BEFORE_START;
            emit(t, event, false);
        }
        cm_leave_hook(t);
    }
    Py_RETURN_NONE;
}

PyDoc_STRVAR(
    label_doc,
    "label(kind, address, owner, text, device_type=0, device_index=-1)\n\nWhat a walk over living "
    "objects says of a block, or of a module object: kind is a cm_label_kind, owner the address "
    "of\n"
    "the module that owns it or 0, text a name, a tab, a dtype and a shape.");

static PyObject *label(PyObject *module, PyObject *arguments)
{
    int kind, type = 0, index = -1;
    unsigned long long address, owner;
    const char *text;

    if (!PyArg_ParseTuple(arguments, "iKKs|ii", &kind, &address, &owner, &text, &type, &index))
        return NULL;
    cm_producer *t = cm_enter_hook();
    if (t != NULL) {
        cm_event event = {.kind = CM_EV_LABEL,
                          .flags = (uint8_t)kind,
                          .address = address,
                          .size = (int64_t)owner,
                          .stack = cm_name_intern_text_hook(text),
                          .device_type = (uint8_t)type,
                          .device_index = (int8_t)index};
        emit(t, event, false);
        cm_leave_hook(t);
    }
    Py_RETURN_NONE;
}

PyDoc_STRVAR(holder_doc,
             "holder(stack, of, device_type, device_index, paths)\n\nWho holds the leak of this "
             "stack id (of: 0; 1: its graph nodes), or what is alive of its line (4). paths: "
             "(text, count, bytes) of each referrer path. They replace those recorded before, or "
             "say more of them (+ 8).");

static PyObject *holder(PyObject *module, PyObject *arguments)
{
    unsigned int stack;
    int of, type, index;
    PyObject *paths;

    if (!PyArg_ParseTuple(arguments, "IiiiO!", &stack, &of, &type, &index, &PyList_Type, &paths))
        return NULL;
    for (Py_ssize_t i = 0; i < PyList_GET_SIZE(paths); i++) {
        const char *text;
        unsigned long long count;
        long long bytes;
        if (!PyArg_ParseTuple(PyList_GET_ITEM(paths, i), "sKL", &text, &count, &bytes))
            return NULL;
        cm_producer *t = cm_enter_hook();
        if (t == NULL)
            continue;
        cm_event event = {
            .kind = CM_EV_HOLDER,
            .flags = (uint8_t)(of | (i == 0 && !(of & CM_HOLDER_MORE) ? CM_HOLDER_FIRST : 0)),
            .stack = stack,
            .device_type = (uint8_t)type,
            .device_index = (int8_t)index};
        emit(t, event, false);
        event.kind = CM_EV_HOLDER_PATH;
        event.flags = 0;
        event.stack = cm_name_intern_text_hook(text);
        event.address = count;
        event.size = bytes;
        emit(t, event, false);
        cm_leave_hook(t);
    }
    Py_RETURN_NONE;
}

PyDoc_STRVAR(seed_segment_doc,
             "seed_segment(address, size, device_type, device_index)\n\nA segment that was there.");

static PyObject *seed_segment(PyObject *module, PyObject *arguments)
{
    unsigned long long address;
    long long size;
    int type, index;

    if (!PyArg_ParseTuple(arguments, "KLii", &address, &size, &type, &index))
        return NULL;
    cm_producer *t = cm_enter_hook();
    if (t != NULL) {
        emit(t,
             (cm_event){.kind = CM_EV_SEGMENT_NEW,
                        .size = size,
                        .address = address,
                        .flags = CM_EVF_BEFORE_START,
                        .device_type = (uint8_t)type,
                        .device_index = (int8_t)index},
             false);
        cm_leave_hook(t);
    }
    Py_RETURN_NONE;
}

PyDoc_STRVAR(
    seed_mapped_doc,
    "seed_mapped(address, size, handle, device_index)\n\nMemory that PyTorch had mapped into "
    "an expandable segment,\nin handles of so many bytes. Only where its end will be seen.");

static PyObject *seed_mapped(PyObject *module, PyObject *arguments)
{
    unsigned long long address;
    long long size, handle;
    int index;

    if (!PyArg_ParseTuple(arguments, "KLLi", &address, &size, &handle, &index))
        return NULL;
    if (handle <= 0)
        return PyErr_Format(PyExc_ValueError, "a handle of %lld bytes", handle);
    cm_producer *t = cm_enter_hook();
    for (long long at = 0; t != NULL && at < size; at += handle) {
        emit(t,
             (cm_event){.kind = CM_EV_DRIVER_NEW,
                        .size = size - at < handle ? size - at : handle,
                        .address = address + (uint64_t)at,
                        .flags = CM_DRIVER_MAPPED | CM_EVF_ALREADY,
                        .device_type = CM_DEVICE_CUDA,
                        .device_index = (int8_t)index},
             false);
        emit(t,
             (cm_event){
                 .kind = CM_EV_DRIVER_MORE, .size = CM_DRIVER_MORE_TORCH, .flags = CM_EVF_ALREADY},
             false);
    }
    if (t != NULL)
        cm_leave_hook(t);
    Py_RETURN_NONE;
}

PyMethodDef cm_py_events_methods[] = {
    {"tick", tick, METH_VARARGS, tick_doc},
    {"mark", mark, METH_VARARGS, mark_doc},
    {"object_new", object_new, METH_VARARGS, object_new_doc},
    {"seed", seed, METH_VARARGS, seed_doc},
    {"label", label, METH_VARARGS, label_doc},
    {"holder", holder, METH_VARARGS, holder_doc},
    {"seed_segment", seed_segment, METH_VARARGS, seed_segment_doc},
    {"seed_mapped", seed_mapped, METH_VARARGS, seed_mapped_doc},
    {"capture_emit", (PyCFunction)(void (*)(void))cm_py_capture_emit, METH_VARARGS | METH_KEYWORDS,
     cm_py_capture_emit_doc},
    {NULL, NULL, 0, NULL},
};
