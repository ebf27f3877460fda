/* cuptimem._core: recording the driver level with CUPTI.
 *
 * def cupti_start(kernels: bool, activity: bool, period_ms: int, wait_ms: int,
 *                 changed: Callable[[], None] | None) -> None
 *     Waits at most wait_ms for the subscription, if CUDA is already in use. changed is called soon
 *     after mode or reason have changed, in the main thread, between two bytecodes. Raises OSError.
 * def cupti_flush(last: bool) -> None     events so far are published when this returns
 * def cupti_stop() -> None
 * def cupti_forget() -> None               in a forked child
 * def cupti_state() -> dict[str, object]   of the running or the last session */
#include "module.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "../sources/cupti/api.h"
#include "../sources/cupti/cupti.h"
#include "py_hidden.h"

static PyObject *on_change; /* guarded by the GIL */
static atomic_bool pending;

static int run_change(void *unused)
{
    atomic_store(&pending, false);
    if (on_change == NULL)
        return 0;
    PyObject *call = Py_NewRef(on_change);
    int status = cm_py_run_pending(call);
    Py_DECREF(call);
    return status < 0 ? -1 : 0;
}

/* On the CUPTI thread, without the GIL. If the queue is full, the change is reported at stop. */
static void changed(void)
{
    if (!atomic_exchange(&pending, true) && Py_AddPendingCall(run_change, NULL) != 0)
        atomic_store(&pending, false);
}

static void set_on_change(PyObject *call)
{
    PyObject *old = on_change;

    on_change = Py_XNewRef(call);
    Py_XDECREF(old);
    atomic_store(&pending, false); /* a child may have inherited it without the call */
    cm_cupti_set_changed(call != NULL ? changed : NULL);
}

static PyObject *cupti_start(PyObject *self, PyObject *arguments)
{
    int kernels, activity, status;
    unsigned period_ms, wait_ms;
    PyObject *call;

    if (!PyArg_ParseTuple(arguments, "ppIIO", &kernels, &activity, &period_ms, &wait_ms, &call))
        return NULL;
    if (call != Py_None && !PyCallable_Check(call))
        return PyErr_Format(PyExc_TypeError, "expected a callable or None");
    cm_cupti_options options = {
        .kernels = kernels != 0, .activity = activity != 0, .period_ms = period_ms};
    set_on_change(call != Py_None ? call : NULL);
    cm_cupti_read_environment();
    Py_BEGIN_ALLOW_THREADS;
    status = cm_cupti_start(&options, wait_ms);
    Py_END_ALLOW_THREADS;
    if (status < 0) {
        set_on_change(NULL); /* the exception reports it */
        errno = -status;
        return PyErr_SetFromErrno(PyExc_OSError);
    }
    Py_RETURN_NONE;
}

static PyObject *cupti_flush(PyObject *self, PyObject *last)
{
    int is_last = PyObject_IsTrue(last);

    if (is_last < 0)
        return NULL;
    Py_BEGIN_ALLOW_THREADS;
    cm_cupti_flush(is_last != 0);
    Py_END_ALLOW_THREADS;
    Py_RETURN_NONE;
}

static PyObject *cupti_stop(PyObject *self, PyObject *unused)
{
    set_on_change(NULL);
    Py_BEGIN_ALLOW_THREADS;
    cm_cupti_stop();
    Py_END_ALLOW_THREADS;
    Py_RETURN_NONE;
}

static PyObject *cupti_forget(PyObject *self, PyObject *unused)
{
    set_on_change(NULL);
    cm_cupti_forget();
    Py_RETURN_NONE;
}

static const char *name_of(cm_cupti_mode mode)
{
    switch (mode) {
    case CM_CUPTI_OFF:
        return "off";
    case CM_CUPTI_WAITING:
        return "waiting";
    case CM_CUPTI_STARTING:
        return "starting";
    case CM_CUPTI_CALLBACKS:
        return "callbacks";
    case CM_CUPTI_SLOTS:
        return "slots";
    case CM_CUPTI_NONE:
        break;
    }
    return "none";
}

/* Texts of CUPTI and paths may be invalid UTF-8, or cut inside a character; a trace needs valid
 * UTF-8. */
static PyObject *text_of(const char *bytes)
{
    return PyUnicode_DecodeUTF8(bytes, (Py_ssize_t)strlen(bytes), "backslashreplace");
}

static PyObject *cupti_state(PyObject *self, PyObject *unused)
{
    cm_cupti_state s;

    Py_BEGIN_ALLOW_THREADS;
    cm_cupti_get_state(&s);
    Py_END_ALLOW_THREADS;
    return Py_BuildValue("{ss sN sN sI sN sN sN sK sK sK sK sK sN}", "mode", name_of(s.mode),
                         "path", text_of(s.path), "reason", text_of(s.reason), "version",
                         (unsigned)s.version, "v2", PyBool_FromLong(s.v2), "activity",
                         PyBool_FromLong(s.activity), "kernels", PyBool_FromLong(s.kernels),
                         "callbacks", (unsigned long long)s.callbacks, "records",
                         (unsigned long long)s.records, "dropped", (unsigned long long)s.dropped,
                         "foreign_buffers", (unsigned long long)s.foreign_buffers,
                         "unknown_records", (unsigned long long)s.unknown_records,
                         "time_base_changed", PyBool_FromLong(s.time_base_changed));
}

PyMethodDef cm_py_cupti_methods[] = {
    {"cupti_start", cupti_start, METH_VARARGS, NULL},
    {"cupti_flush", cupti_flush, METH_O, NULL},
    {"cupti_stop", cupti_stop, METH_NOARGS, NULL},
    {"cupti_forget", cupti_forget, METH_NOARGS, NULL},
    {"cupti_state", cupti_state, METH_NOARGS, NULL},
    {NULL, NULL, 0, NULL},
};
