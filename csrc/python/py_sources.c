/* cuptimem._core: installing sources, calibration, and calls in the main thread.
 *
 * def sources_install() -> int
 *     The number of slots newly patched. Also sets the collector's callback.
 * def sources_remove() -> None
 * def sources_rescan() -> None
 *     As the collector does when idle.
 * def sources_driver(on: bool) -> None
 *     Records driver events from slots, as while CUPTI is not in use.
 * def sources_rows() -> list[tuple[str, str, str, str, int]]
 * def sources_lookup(name: str) -> int
 *     Address of a symbol in a patched library; 0: not found.
 * def autograd_calibrate(nodes: list[tuple[int, int]]) -> str | None
 * def autograd_own_nodes(own: bool) -> tuple[int, int]
 *     While on, nodes of this thread are not recorded. Returns how many creations and ends the
 *     hooks have counted since it was turned on.
 * def operators_start() -> str | None
 *     None, or the reason why operators cannot be recorded.
 * def operators_stop() -> None
 * def operators_test(begin: bool) -> bool
 *     Between two calls this thread runs aten::empty. The second returns whether it was recorded.
 * def autograd_unseen() -> str | None
 *     The mangled name of a node type with ends that are not recorded.
 * def storage_calibrate(samples: list[tuple[int, int, int]], slice: int, parent: int) -> str | None
 *     samples: (UntypedStorage._cdata, address, bytes) of fresh CPU storages; see storage.h
 * def storage_origin(cdata: int) -> tuple[int, int, int]
 *     (STORAGE_* or 0, address, bytes)
 * def sources_offsets() -> dict[str, int]
 *     The offsets that calibration found, by the field's readable name.
 * def main_thread_call(call: Callable[[], None] | None) -> None
 *     While a capture runs, call is called about once a second in the main thread, between two
 *     bytecodes, with the GIL; None ends that.
 * def main_thread_call_when_warned(call: Callable[[], None] | None) -> None
 *     The same, while capture_warning has a warning.
 * def main_thread_call_when_asked(call: Callable[[], None] | None) -> None
 *     The same, while source_asked has a request.
 * def main_thread_call_after_pass(call: Callable[[], None] | None) -> None
 *     The same, after the backward passes that py_walks.h selects.
 * def main_thread_call_soon(call: Callable[[], None] | None) -> None
 *     Once, as soon as the main thread comes to it, also while no capture runs.
 * def main_thread_call_when_grown(call: Callable[[], None] | None, bytes: int) -> None
 *     Once, after the allocation that brings a device's tensors to so many bytes or more.
 * def call_before(deadline: int, function: Callable, *arguments) -> object
 *     Calls a C function if the deadline (time.monotonic_ns) has not passed, else returns
 *     NotImplemented. Unlike with an `if` in Python, no other thread can take the GIL between the
 *     check and the call. */
#include "module.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>

#include "../base/clock.h"
#include "../capture/session.h"
#include "../capture/source_text.h"
#include "../capture/ring_producer.h"
#include "../sources/calibrate.h"
#include "../sources/cuda_slots.h"
#include "../sources/cupti/cupti.h"
#include "../sources/operators.h"
#include "../sources/slots.h"
#include "../sources/sources.h"
#include "../sources/storage.h"
#include "py_hidden.h"
#include "py_walks.h"

/* --- calls in the main thread --------------------------------------------------------------- */

static const uint64_t call_period_ns = 1000000000;

typedef struct main_call {
    PyObject *callable; /* guarded by the GIL */
    atomic_bool armed, pending;
} main_call;

static main_call once_a_second, when_warned, when_asked, after_pass, when_grown, soon;

static int run_pending_call(void *which)
{
    main_call *call = which;

    atomic_store(&call->pending, false);
    if (call->callable == NULL)
        return 0;
    PyObject *callable = Py_NewRef(call->callable);
    int status = cm_py_run_pending(callable);
    if (status > 0)
        atomic_store(&call->armed, false);
    Py_DECREF(callable);
    return status < 0 ? -1 : 0;
}

/* Before 3.13 the main thread notices the call when it next takes the GIL; torch's operators
 * release it often. */
static void ask_for(main_call *call)
{
    atomic_store(&call->pending, true);
    if (Py_AddPendingCall(run_pending_call, call) !=
        0) /* the queue is full: try in the next round */
        atomic_store(&call->pending, false);
}

static PyObject *set_call(main_call *call, PyObject *callable)
{
    if (callable != Py_None && !PyCallable_Check(callable))
        return PyErr_Format(PyExc_TypeError, "expected a callable or None");
    atomic_store(&call->armed, false);
    PyObject *old = call->callable;
    call->callable = callable == Py_None ? NULL : Py_NewRef(callable);
    Py_XDECREF(old);
    /* A forked child may have inherited "pending" without the call. */
    atomic_store(&call->pending, false);
    atomic_store(&call->armed, callable != Py_None);
    Py_RETURN_NONE;
}

static PyObject *main_thread_call(PyObject *self, PyObject *callable)
{
    return set_call(&once_a_second, callable);
}

static PyObject *main_thread_call_when_warned(PyObject *self, PyObject *callable)
{
    return set_call(&when_warned, callable);
}

static PyObject *main_thread_call_when_asked(PyObject *self, PyObject *callable)
{
    return set_call(&when_asked, callable);
}

static void on_pass(void)
{
    if (atomic_load(&after_pass.armed) && cm_py_walks_tick(true) &&
        !atomic_load(&after_pass.pending))
        ask_for(&after_pass);
}

static PyObject *main_thread_call_after_pass(PyObject *self, PyObject *callable)
{
    PyObject *result = set_call(&after_pass, callable);

    if (result != NULL)
        cm_autograd_set_pass_listener(callable == Py_None ? NULL : on_pass);
    return result;
}

static PyObject *main_thread_call_soon(PyObject *self, PyObject *callable)
{
    PyObject *result = set_call(&soon, callable);

    if (result != NULL && callable != Py_None)
        ask_for(&soon);
    return result;
}

/* In any thread, with or without the GIL. */
static void on_growth(void)
{
    if (atomic_load(&when_grown.armed) && !atomic_load(&when_grown.pending))
        ask_for(&when_grown);
}

static PyObject *main_thread_call_when_grown(PyObject *self, PyObject *arguments)
{
    PyObject *callable;
    Py_ssize_t bytes;

    if (!PyArg_ParseTuple(arguments, "On", &callable, &bytes))
        return NULL;
    PyObject *result = set_call(&when_grown, callable);
    if (result != NULL)
        cm_allocator_set_listener(callable == Py_None ? NULL : on_growth, (size_t)bytes);
    return result;
}

/* On the collector thread, without the GIL. */
static void when_idle(void)
{
    static uint64_t last, last_asked; /* of the one collector */
    uint64_t now = cm_clock_monotonic_ns();

    cm_sources_rescan();
    cm_cupti_poll();
    if (atomic_load(&when_warned.armed) && !atomic_load(&when_warned.pending) &&
        cm_session_has_warning())
        ask_for(&when_warned);
    if (atomic_load(&once_a_second.armed) && !atomic_load(&once_a_second.pending) &&
        now - last >= call_period_ns) {
        last = now;
        ask_for(&once_a_second);
    }
    if (atomic_load(&when_asked.armed) && !atomic_load(&when_asked.pending) &&
        now - last_asked >= call_period_ns && cm_sourcetext_asks()) {
        last_asked = now;
        ask_for(&when_asked);
    }
}

static PyObject *call_before(PyObject *self, PyObject *const *args, Py_ssize_t count)
{
    if (count < 2)
        return PyErr_Format(PyExc_TypeError, "expected a deadline and a function");
    unsigned long long deadline = PyLong_AsUnsignedLongLong(args[0]);
    if (PyErr_Occurred())
        return NULL;
    if (cm_clock_monotonic_ns() >= deadline)
        Py_RETURN_NOTIMPLEMENTED;
    return PyObject_Vectorcall(args[1], args + 2, (size_t)(count - 2), NULL);
}

/* --- slots ---------------------------------------------------------------------------------- */

/* Code that may wait for the loader's lock releases the GIL: the lock's holder may be importing an
 * extension module. */

static PyObject *sources_install(PyObject *self, PyObject *unused)
{
    int patched;

    cm_session_set_idle_callback(when_idle);
    cm_sources_read_environment();
    PyThreadState *state = PyEval_SaveThread();
    patched = cm_sources_install();
    PyEval_RestoreThread(state);
    return PyLong_FromLong(patched);
}

static PyObject *sources_remove(PyObject *self, PyObject *unused)
{
    PyThreadState *state = PyEval_SaveThread();
    cm_sources_remove();
    PyEval_RestoreThread(state);
    Py_RETURN_NONE;
}

static PyObject *sources_rescan(PyObject *self, PyObject *unused)
{
    PyThreadState *state = PyEval_SaveThread();
    cm_sources_rescan();
    PyEval_RestoreThread(state);
    Py_RETURN_NONE;
}

static PyObject *sources_driver(PyObject *self, PyObject *on)
{
    int record = PyObject_IsTrue(on);

    if (record < 0)
        return NULL;
    PyThreadState *state = PyEval_SaveThread();
    cm_cuda_slots_record(record != 0);
    PyEval_RestoreThread(state);
    Py_RETURN_NONE;
}

static PyObject *sources_lookup(PyObject *self, PyObject *name)
{
    const char *text = PyUnicode_AsUTF8(name);
    void *found;

    if (text == NULL)
        return NULL;
    PyThreadState *state = PyEval_SaveThread();
    found = cm_slots_find(text);
    PyEval_RestoreThread(state);
    return PyLong_FromVoidPtr(found);
}

static PyObject *sources_rows(PyObject *self, PyObject *unused)
{
    size_t count, room = 0;
    cm_slot_row *rows = NULL;

    do { /* a library may be loaded between counting and filling */
        size_t wanted = room + 64;
        cm_slot_row *larger = PyMem_RawRealloc(rows, wanted * sizeof *rows);
        if (larger == NULL) {
            PyMem_RawFree(rows);
            return PyErr_NoMemory();
        }
        rows = larger;
        room = wanted;
        PyThreadState *state = PyEval_SaveThread();
        count = cm_sources_rows(rows, room);
        PyEval_RestoreThread(state);
    } while (count > room);

    PyObject *list = PyList_New((Py_ssize_t)count);
    for (size_t i = 0; list != NULL && i < count; i++) {
        PyObject *row = Py_BuildValue("(ssssi)", rows[i].source, rows[i].symbol, rows[i].meaning,
                                      rows[i].library, rows[i].patched);
        if (row == NULL)
            Py_CLEAR(list);
        else
            PyList_SET_ITEM(list, (Py_ssize_t)i, row);
    }
    PyMem_RawFree(rows);
    return list;
}

/* --- calibration ---------------------------------------------------------------------------- */

static PyObject *autograd_calibrate(PyObject *self, PyObject *nodes)
{
    PyObject *items = PySequence_Fast(nodes, "expected a list of (address, sequence number)");
    if (items == NULL)
        return NULL;
    size_t count = (size_t)PySequence_Fast_GET_SIZE(items);
    cm_calibration_node *list = PyMem_Calloc(count + 1, sizeof *list);
    bool good = list != NULL;

    if (!good)
        PyErr_NoMemory();
    for (size_t i = 0; i < count && good; i++) {
        unsigned long long object, number;

        good = PyArg_ParseTuple(PySequence_Fast_GET_ITEM(items, (Py_ssize_t)i), "KK", &object,
                                &number) != 0;
        if (good)
            list[i] = (cm_calibration_node){(uintptr_t)object, number};
    }
    const char *why = NULL;
    if (good) /* keeps the GIL, so that the nodes' owners cannot run */
        why = cm_autograd_calibrate(list, count);
    PyMem_Free(list);
    Py_DECREF(items);
    if (!good)
        return NULL;
    if (why == NULL)
        Py_RETURN_NONE;
    return PyUnicode_FromString(why);
}

static PyObject *autograd_own_nodes(PyObject *self, PyObject *own)
{
    int on = PyObject_IsTrue(own);

    if (on < 0)
        return NULL;
    uint32_t made, ended;
    cm_autograd_own_nodes(on != 0);
    cm_autograd_own_counts(&made, &ended);
    return Py_BuildValue("(II)", (unsigned)made, (unsigned)ended);
}

static bool add_offset(PyObject *dict, const char *name, long offset)
{
    PyObject *value = offset > 0 ? PyLong_FromLong(offset) : NULL;

    if (offset > 0 && (value == NULL || PyDict_SetItemString(dict, name, value) < 0)) {
        Py_XDECREF(value);
        return false;
    }
    Py_XDECREF(value);
    return true;
}

static PyObject *sources_offsets(PyObject *self, PyObject *unused)
{
    cm_storage_offsets storage = cm_storage_get_offsets();
    PyObject *dict = PyDict_New();
    long number, thread;

    cm_autograd_get_offsets(&number, &thread);
    if (dict != NULL && add_offset(dict, "torch::autograd::Node::sequence_nr_", number) &&
        add_offset(dict, "torch::autograd::Node::thread_id_", thread) &&
        add_offset(dict, "c10::StorageImpl::data_ptr_ (address)", storage.data) &&
        add_offset(dict, "c10::StorageImpl::data_ptr_ (deleter)", storage.deleter) &&
        add_offset(dict, "c10::StorageImpl::data_ptr_ (context)", storage.context) &&
        add_offset(dict, "c10::StorageImpl::size_bytes_", storage.size))
        return dict;
    Py_XDECREF(dict);
    return NULL;
}

/* --- operators ------------------------------------------------------------------------------ */

/* torch_events.py calls these under the lock of the installed hooks. */
static PyObject *operators_start(PyObject *self, PyObject *unused)
{
    PyThreadState *state = PyEval_SaveThread();
    const char *why = cm_operators_start();
    PyEval_RestoreThread(state);

    if (why == NULL)
        Py_RETURN_NONE;
    return PyUnicode_FromString(why);
}

static PyObject *operators_stop(PyObject *self, PyObject *unused)
{
    PyThreadState *state = PyEval_SaveThread();
    cm_operators_stop();
    PyEval_RestoreThread(state);
    Py_RETURN_NONE;
}

static PyObject *operators_test(PyObject *self, PyObject *begin)
{
    int begins = PyObject_IsTrue(begin);

    if (begins < 0)
        return NULL;
    if (begins == 0)
        return PyBool_FromLong(cm_operators_end_test());
    cm_operators_begin_test();
    Py_RETURN_FALSE;
}

/* --- what is missing ------------------------------------------------------------------------ */

static PyObject *autograd_unseen(PyObject *self, PyObject *unused)
{
    const char *type = cm_autograd_unseen_type();

    if (type == NULL)
        Py_RETURN_NONE;
    return PyUnicode_FromString(type);
}

static PyObject *cuda_allocator(PyObject *self, PyObject *unused)
{
    PyThreadState *state = PyEval_SaveThread();
    cm_sources_cuda now = cm_sources_get_cuda();
    PyEval_RestoreThread(state);

    if (now.type == NULL)
        Py_RETURN_NONE;
    return Py_BuildValue("(sNkk)", now.type, PyBool_FromLong(now.sizes_seen), now.unseen,
                         now.untraced);
}

static PyObject *storage_calibrate(PyObject *self, PyObject *args)
{
    PyObject *samples;
    unsigned long long slice, parent;

    if (!PyArg_ParseTuple(args, "OKK", &samples, &slice, &parent))
        return NULL;
    PyObject *items = PySequence_Fast(samples, "expected a list of (object, address, bytes)");
    if (items == NULL)
        return NULL;
    size_t count = (size_t)PySequence_Fast_GET_SIZE(items);
    cm_storage_sample *list = PyMem_Calloc(count + 1, sizeof *list);
    bool good = list != NULL;

    if (!good)
        PyErr_NoMemory();
    for (size_t i = 0; i < count && good; i++) {
        unsigned long long object, address, size;

        good = PyArg_ParseTuple(PySequence_Fast_GET_ITEM(items, (Py_ssize_t)i), "KKK", &object,
                                &address, &size) != 0;
        if (good)
            list[i] = (cm_storage_sample){(uintptr_t)object, address, size};
    }
    const char *why = good ? cm_storage_calibrate(list, count, slice, parent) : NULL;
    PyMem_Free(list);
    Py_DECREF(items);
    if (!good)
        return NULL;
    if (why == NULL)
        Py_RETURN_NONE;
    return PyUnicode_FromString(why);
}

static PyObject *storage_origin(PyObject *self, PyObject *object)
{
    unsigned long long at = PyLong_AsUnsignedLongLong(object);
    uint64_t address = 0, size = 0;

    if (at == 0 || PyErr_Occurred())
        return PyErr_Occurred() ? NULL : PyErr_Format(PyExc_ValueError, "no storage at 0");
    cm_storage_origin origin = cm_storage_origin_of((uintptr_t)at, &address, &size);
    return Py_BuildValue("(iKK)", (int)origin, (unsigned long long)address,
                         (unsigned long long)size);
}

PyMethodDef cm_py_sources_methods[] = {
    {"sources_install", sources_install, METH_NOARGS, NULL},
    {"sources_remove", sources_remove, METH_NOARGS, NULL},
    {"sources_rescan", sources_rescan, METH_NOARGS, NULL},
    {"sources_driver", sources_driver, METH_O, NULL},
    {"sources_rows", sources_rows, METH_NOARGS, NULL},
    {"sources_lookup", sources_lookup, METH_O, NULL},
    {"autograd_calibrate", autograd_calibrate, METH_O, NULL},
    {"autograd_own_nodes", autograd_own_nodes, METH_O, NULL},
    {"operators_start", operators_start, METH_NOARGS, NULL},
    {"operators_stop", operators_stop, METH_NOARGS, NULL},
    {"operators_test", operators_test, METH_O, NULL},
    {"autograd_unseen", autograd_unseen, METH_NOARGS, NULL},
    {"sources_offsets", sources_offsets, METH_NOARGS, NULL},
    {"cuda_allocator", cuda_allocator, METH_NOARGS, NULL},
    {"storage_calibrate", storage_calibrate, METH_VARARGS, NULL},
    {"storage_origin", storage_origin, METH_O, NULL},
    {"main_thread_call", main_thread_call, METH_O, NULL},
    {"main_thread_call_when_warned", main_thread_call_when_warned, METH_O, NULL},
    {"main_thread_call_when_asked", main_thread_call_when_asked, METH_O, NULL},
    {"main_thread_call_after_pass", main_thread_call_after_pass, METH_O, NULL},
    {"main_thread_call_soon", main_thread_call_soon, METH_O, NULL},
    {"main_thread_call_when_grown", main_thread_call_when_grown, METH_VARARGS, NULL},
    {"call_before", (PyCFunction)(void (*)(void))call_before, METH_FASTCALL, NULL},
    {NULL, NULL, 0, NULL},
};
