/* cuptimem._core.snapshot_convert: writes a memory snapshot of PyTorch's as a trace. */
#include "py_build.h"

#include <string.h>

#include "../base/grow.h"
#include "../snapshot/convert.h"
#include "../snapshot/definitions.h"
#include "../snapshot/pickle.h"
#include "../trace/writer.h"

typedef struct conversion {
    cm_snap snapshot;
    cm_pickle pickle;
    uint8_t *window; /* what no whole instruction was made of, then the next piece */
    size_t held, capacity;
} conversion;

/* Without the GIL. false: out of memory. */
static bool feed(conversion *c, const uint8_t *bytes, size_t length)
{
    if (!cm_grow((void **)&c->window, &c->capacity, c->held + length, 1))
        return false;
    memcpy(c->window + c->held, bytes, length);
    size_t all = c->held + length;
    size_t taken = cm_pickle_feed(&c->pickle, c->window, all);
    c->held = all - taken;
    memmove(c->window, c->window + taken, c->held);
    return true;
}

/* Reads pieces until there is an empty one, or enough was read. */
static bool read_all(conversion *c, PyObject *read)
{
    for (;;) {
        PyObject *piece = PyObject_CallNoArgs(read);
        if (piece == NULL)
            return false;
        if (!PyBytes_Check(piece)) {
            Py_DECREF(piece);
            PyErr_SetString(PyExc_TypeError, "read() gives bytes");
            return false;
        }
        size_t length = (size_t)PyBytes_GET_SIZE(piece);
        bool fine = true;
        Py_BEGIN_ALLOW_THREADS fine =
            length == 0 || feed(c, (const uint8_t *)PyBytes_AS_STRING(piece), length);
        Py_END_ALLOW_THREADS Py_DECREF(piece);
        if (!fine) {
            PyErr_NoMemory();
            return false;
        }
        if (length == 0 || c->pickle.over || c->pickle.error[0] != '\0')
            return PyErr_CheckSignals() == 0;
    }
}

static PyObject *text_of(const cm_snap *s, uint32_t text)
{
    size_t length = 0;
    const char *bytes = text == 0 ? "" : cm_snap_text(s, text, &length);
    return PyUnicode_DecodeUTF8(bytes, (Py_ssize_t)length, "replace");
}

static PyObject *about(const cm_snap *s)
{
    PyObject *unknown = PyList_New(0);
    for (size_t i = 0; unknown != NULL && i < s->unknown_count; i++)
        if (cm_py_append(unknown, text_of(s, s->unknown[i])) < 0)
            Py_CLEAR(unknown);
    return Py_BuildValue("{sNsNsNsNsnsnsnsO}", "unknown", unknown, "settings",
                         text_of(s, s->settings), "exporter", text_of(s, s->exporter), "missing",
                         text_of(s, s->missing), "events", (Py_ssize_t)s->events, "segments",
                         (Py_ssize_t)s->segments, "notes", (Py_ssize_t)s->notes, "history",
                         s->events > 0 ? Py_True : Py_False);
}

/* key, value, ..., NULL, out of a dict of strings, which must live as long. */
static const char **pairs_of(PyObject *meta)
{
    if (meta == NULL)
        return NULL;
    if (!PyDict_Check(meta)) {
        PyErr_SetString(PyExc_TypeError, "describe() gives a dict");
        return NULL;
    }
    const char **pairs = PyMem_Calloc(2 * (size_t)PyDict_GET_SIZE(meta) + 1, sizeof *pairs);
    PyObject *key, *value;
    Py_ssize_t position = 0;
    size_t count = 0;
    if (pairs == NULL)
        PyErr_NoMemory();
    while (pairs != NULL && PyDict_Next(meta, &position, &key, &value)) {
        pairs[count] = PyUnicode_AsUTF8(key);
        pairs[count + 1] = pairs[count] == NULL ? NULL : PyUnicode_AsUTF8(value);
        if (pairs[count + 1] == NULL) {
            PyMem_Free((void *)pairs);
            return NULL;
        }
        count += 2;
    }
    return pairs;
}

static bool write_trace(conversion *c, PyObject *describe, const char *target, bool private)
{
    char error[512] = "";
    PyObject *said = about(&c->snapshot);
    PyObject *meta = said == NULL ? NULL : PyObject_CallOneArg(describe, said);
    const char **pairs = pairs_of(meta);
    bool fine = pairs != NULL;
    Py_XDECREF(said);
    if (fine) {
        Py_BEGIN_ALLOW_THREADS fine =
            cm_snap_convert(&c->snapshot, target, private ? CM_WRITER_PRIVATE : CM_WRITER_NAMED,
                            pairs, error, sizeof error);
        Py_END_ALLOW_THREADS if (!fine) cm_py_fail(error);
    }
    PyMem_Free((void *)pairs);
    Py_XDECREF(meta);
    return fine;
}

PyDoc_STRVAR(
    snapshot_convert_doc,
    "snapshot_convert(read, describe, target, private=False)\n\n"
    "Writes a pickled memory snapshot of PyTorch's as a trace, which must not exist. Nothing "
    "is\nunpickled. read() -> bytes gives the next piece, empty at the end. describe(said) "
    "-> dict\nof str gives the trace's meta. Raises Error with one line, and there is no "
    "trace.");

static PyObject *snapshot_convert(PyObject *module, PyObject *arguments, PyObject *keywords)
{
    static char *names[] = {"read", "describe", "target", "private", NULL};
    PyObject *read, *describe, *target;
    int private = 0;
    if (!PyArg_ParseTupleAndKeywords(arguments, keywords, "OOO&|p", names, &read, &describe,
                                     PyUnicode_FSConverter, &target, &private))
        return NULL;
    conversion c = {0};
    c.pickle.snapshot = &c.snapshot;
    bool fine = cm_snap_init(&c.snapshot);
    if (!fine)
        PyErr_NoMemory();
    fine = fine && read_all(&c, read);
    if (fine && !cm_pickle_end(&c.pickle)) {
        cm_py_fail(c.pickle.error);
        fine = false;
    }
    free(c.window);
    cm_pickle_clear(&c.pickle);
    fine = fine && write_trace(&c, describe, PyBytes_AS_STRING(target), private != 0);
    cm_snap_clear(&c.snapshot);
    Py_DECREF(target);
    if (!fine)
        return NULL;
    Py_RETURN_NONE;
}

PyMethodDef cm_py_snapshot_methods[] = {
    {"snapshot_convert", (PyCFunction)(void (*)(void))snapshot_convert,
     METH_VARARGS | METH_KEYWORDS, snapshot_convert_doc},
    {NULL, NULL, 0, NULL},
};
