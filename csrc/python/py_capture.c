/* cuptimem._core: the capture. All functions that may wait for the collector release the GIL. */
#include "module.h"

#include <stdbool.h>
#include <stdlib.h>

#include "../capture/heap_sample.h"
#include "../capture/session.h"

static PyObject *fail(const char *message)
{
    PyObject *text = PyUnicode_DecodeFSDefault(message);
    if (text != NULL) {
        PyErr_SetObject(cm_py_error, text);
        Py_DECREF(text);
    }
    return NULL;
}

/* --- control ------------------------------------------------------------------------------- */

/* key, value, ..., NULL. The strings belong to the dict, which the caller holds. */
static const char **meta_pairs(PyObject *meta)
{
    const char **pairs = PyMem_Calloc((size_t)PyDict_GET_SIZE(meta) * 2 + 1, sizeof *pairs);
    PyObject *key, *value;
    Py_ssize_t at = 0;
    size_t n = 0;

    if (pairs == NULL) {
        PyErr_NoMemory();
        return NULL;
    }
    while (PyDict_Next(meta, &at, &key, &value)) {
        if (!PyUnicode_Check(key) || !PyUnicode_Check(value)) {
            PyErr_SetString(PyExc_TypeError, "meta must map str to str");
            goto failed;
        }
        if ((pairs[n++] = PyUnicode_AsUTF8(key)) == NULL ||
            (pairs[n++] = PyUnicode_AsUTF8(value)) == NULL)
            goto failed;
    }
    return pairs;
failed:
    PyMem_Free(pairs);
    return NULL;
}

PyDoc_STRVAR(
    capture_start_doc,
    "capture_start(path, meta, *, overwrite=False, max_size=0, ring_bytes=0, "
    "ring_dir=None, shared_dir=None, later=False, cache_tag=None, private=False)\n\n"
    "Creates trace and rings and starts the collector; nothing records yet. Sizes in bytes, "
    "0 = default. later: the rings get their file when hooks go in. private: the trace has mode "
    "0600. Raises Error with one line.");

static PyObject *capture_start(PyObject *module, PyObject *arguments, PyObject *keywords)
{
    static char *names[] = {"path",       "meta",     "overwrite",  "max_size",
                            "ring_bytes", "ring_dir", "shared_dir", "later",
                            "cache_tag",  "private",  NULL};
    PyObject *path = NULL, *meta, *folder_object = Py_None, *folder = NULL;
    const char *shared = NULL, *cache_tag = NULL;
    unsigned long long max_size = 0, ring_bytes = 0;
    int overwrite = 0, later = 0, private = 0, status = -1;
    char error[CM_SESSION_ERROR_SIZE];

    if (!PyArg_ParseTupleAndKeywords(arguments, keywords, "O&O!|$pKKOzpzp", names,
                                     PyUnicode_FSConverter, &path, &PyDict_Type, &meta, &overwrite,
                                     &max_size, &ring_bytes, &folder_object, &shared, &later,
                                     &cache_tag, &private))
        return NULL;
    const char **pairs = NULL;
    if (folder_object == Py_None || PyUnicode_FSConverter(folder_object, &folder))
        pairs = meta_pairs(meta);
    if (pairs != NULL) {
        const cm_session_options options = {.path = PyBytes_AS_STRING(path),
                                            .overwrite = overwrite,
                                            .private = private != 0,
                                            .max_size = max_size,
                                            .ring_bytes = ring_bytes,
                                            .ring_dir = folder ? PyBytes_AS_STRING(folder) : NULL,
                                            .shared_dir = shared,
                                            .later = later != 0,
                                            .cache_tag = cache_tag,
                                            .meta = pairs};
        Py_BEGIN_ALLOW_THREADS;
        cm_session_sweep(&options);
        Py_END_ALLOW_THREADS;
        status = cm_session_start(&options, error, sizeof error);
        if (status < 0)
            fail(error);
        PyMem_Free(pairs);
    }
    Py_DECREF(path);
    Py_XDECREF(folder);
    if (status < 0)
        return NULL;
    Py_RETURN_NONE;
}

PyDoc_STRVAR(capture_share_doc,
             "capture_share()\n\nThe rings of a capture that was started with later=True get their "
             "file now. Raises OSError.");

static PyObject *capture_share(PyObject *module, PyObject *unused)
{
    int status;

    Py_BEGIN_ALLOW_THREADS;
    status = cm_session_share();
    Py_END_ALLOW_THREADS;
    if (status < 0) {
        errno = -status;
        return PyErr_SetFromErrno(PyExc_OSError);
    }
    Py_RETURN_NONE;
}

PyDoc_STRVAR(capture_sweep_doc,
             "capture_sweep(path)\n\nWhat killed processes left in rings goes into their traces, "
             "and the rings away, wherever a capture of the trace at `path` would have its own.");

static PyObject *capture_sweep(PyObject *module, PyObject *argument)
{
    PyObject *path = NULL;

    if (!PyUnicode_FSConverter(argument, &path))
        return NULL;
    /* The trace exists and must not be overwritten. */
    const cm_session_options options = {.path = PyBytes_AS_STRING(path), .overwrite = true};
    Py_BEGIN_ALLOW_THREADS;
    cm_session_sweep(&options);
    Py_END_ALLOW_THREADS;
    Py_DECREF(path);
    Py_RETURN_NONE;
}

PyDoc_STRVAR(capture_record_doc,
             "capture_record(on)\n\nOff returns after every thread has left its hook.");

static PyObject *capture_record(PyObject *module, PyObject *argument)
{
    int on = PyObject_IsTrue(argument);
    if (on < 0)
        return NULL;
    Py_BEGIN_ALLOW_THREADS;
    cm_session_record(on);
    Py_END_ALLOW_THREADS;
    Py_RETURN_NONE;
}

PyDoc_STRVAR(capture_sync_doc,
             "capture_sync()\n\nEverything recorded before the call is then in the file. Raises "
             "Error when the recording has ended by itself (capture_warning says why).");

static PyObject *capture_sync(PyObject *module, PyObject *unused)
{
    int status;

    Py_BEGIN_ALLOW_THREADS;
    status = cm_session_sync();
    Py_END_ALLOW_THREADS;
    if (status < 0)
        return fail("the recording has ended by itself");
    Py_RETURN_NONE;
}

PyDoc_STRVAR(capture_stop_doc,
             "capture_stop(notes={}) -> str\n\nEnds the capture; notes (str to str) join its meta. "
             "Returns a line for the user, or ''.");

static PyObject *capture_stop(PyObject *module, PyObject *arguments)
{
    char warning[CM_SESSION_ERROR_SIZE];
    PyObject *notes = NULL;
    const char **pairs = NULL;

    if (!PyArg_ParseTuple(arguments, "|O!", &PyDict_Type, &notes))
        return NULL;
    if (notes != NULL && (pairs = meta_pairs(notes)) == NULL)
        return NULL;
    /* The warning reports a failure, too. */
    Py_BEGIN_ALLOW_THREADS;
    cm_session_stop(pairs, warning, sizeof warning);
    Py_END_ALLOW_THREADS;
    PyMem_Free(pairs);
    return PyUnicode_DecodeFSDefault(warning);
}

PyDoc_STRVAR(capture_note_doc,
             "capture_note(notes)\n\nNotes (str to str) join the meta of the running capture now; "
             "nothing happens without one. Raises OSError.");

static PyObject *capture_note(PyObject *module, PyObject *notes)
{
    int status;

    if (!PyDict_Check(notes))
        return PyErr_Format(PyExc_TypeError, "expected a dict");
    const char **pairs = meta_pairs(notes);
    if (pairs == NULL)
        return NULL;
    Py_BEGIN_ALLOW_THREADS;
    status = cm_session_note(pairs);
    Py_END_ALLOW_THREADS;
    PyMem_Free(pairs);
    if (status < 0) {
        errno = -status;
        return PyErr_SetFromErrno(PyExc_OSError);
    }
    Py_RETURN_NONE;
}

PyDoc_STRVAR(capture_active_doc, "capture_active() -> bool\n\nBetween start and stop.");

static PyObject *capture_active(PyObject *module, PyObject *unused)
{
    bool active;

    Py_BEGIN_ALLOW_THREADS;
    active = cm_session_active();
    Py_END_ALLOW_THREADS;
    return PyBool_FromLong(active);
}

PyDoc_STRVAR(capture_counts_doc,
             "capture_counts() -> dict\n\nOf the running capture, else of the last one.");

static PyObject *capture_counts(PyObject *module, PyObject *unused)
{
    cm_session_counts c;

    Py_BEGIN_ALLOW_THREADS;
    c = cm_session_get_counts();
    Py_END_ALLOW_THREADS;
    return Py_BuildValue(
        "{sKsKsKsKsKsKsKsKsKsKsKsK}", "events", (unsigned long long)c.events, "lost_events",
        (unsigned long long)c.lost_events, "lost_stacks", (unsigned long long)c.lost_stacks,
        "bytes_written", (unsigned long long)c.bytes_written, "stacks",
        (unsigned long long)c.stacks, "codes", (unsigned long long)c.codes, "rings",
        (unsigned long long)c.rings, "ring_blocks_used", (unsigned long long)c.ring_blocks_used,
        "profiler_bytes", (unsigned long long)c.profiler_bytes, "wakes",
        (unsigned long long)c.wakes, "foreign", (unsigned long long)c.foreign, "ticks",
        (unsigned long long)cm_heap_sample_ticks());
}

PyDoc_STRVAR(capture_warning_doc,
             "capture_warning() -> str | None\n\nWhy recording ended by itself, once.");

static PyObject *capture_warning(PyObject *module, PyObject *unused)
{
    const char *warning;

    Py_BEGIN_ALLOW_THREADS;
    warning = cm_session_take_warning();
    Py_END_ALLOW_THREADS;
    if (warning == NULL)
        Py_RETURN_NONE;
    return PyUnicode_DecodeFSDefault(warning);
}

PyMethodDef cm_py_capture_methods[] = {
    {"capture_start", (PyCFunction)(void (*)(void))capture_start, METH_VARARGS | METH_KEYWORDS,
     capture_start_doc},
    {"capture_share", capture_share, METH_NOARGS, capture_share_doc},
    {"capture_sweep", capture_sweep, METH_O, capture_sweep_doc},
    {"capture_record", capture_record, METH_O, capture_record_doc},
    {"capture_sync", capture_sync, METH_NOARGS, capture_sync_doc},
    {"capture_stop", capture_stop, METH_VARARGS, capture_stop_doc},
    {"capture_note", capture_note, METH_O, capture_note_doc},
    {"capture_active", capture_active, METH_NOARGS, capture_active_doc},
    {"capture_counts", capture_counts, METH_NOARGS, capture_counts_doc},
    {"capture_warning", capture_warning, METH_NOARGS, capture_warning_doc},
    {NULL, NULL, 0, NULL},
};
