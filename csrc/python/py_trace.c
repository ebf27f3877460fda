/* cuptimem._core: a trace as Python objects, for tests and inspection. Reports come from
 * csrc/analysis. */
#include "py_build.h"

#include <stdbool.h>
#include <string.h>

#include "../base/event.h"
#include "../trace/reader.h"

#define KIND_NAME(kind, name, is) [CM_EV_##kind] = name,
static const char *const kind_names[CM_EVENT_KINDS] = {CM_EVENT_TABLE(KIND_NAME)};
static const char *const state_names[] = {"complete", "recording", "recovered", "cut"};

static cm_reader *open_reader(PyObject *path)
{
    char error[512];
    cm_reader *reader = cm_reader_open(PyBytes_AS_STRING(path), error, sizeof error);
    if (reader == NULL)
        cm_py_fail(error);
    return reader;
}

PyDoc_STRVAR(trace_meta_doc,
             "trace_meta(path) -> dict\n\nWhat the trace says about its process, from all its meta "
             "chunks: the whole file is read.");

static PyObject *trace_meta(PyObject *module, PyObject *arguments)
{
    PyObject *path;
    if (!PyArg_ParseTuple(arguments, "O&", PyUnicode_FSConverter, &path))
        return NULL;
    cm_reader *reader = open_reader(path);
    Py_DECREF(path);
    if (reader == NULL)
        return NULL;
    /* A later chunk may add to it. Later damage does not invalidate earlier entries. */
    cm_record record;
    Py_BEGIN_ALLOW_THREADS while (cm_reader_next(reader, &record) == 1);
    Py_END_ALLOW_THREADS PyObject *dict = cm_py_meta(reader);
    cm_reader_close(reader);
    return dict;
}

/* --- dump ---------------------------------------------------------------------------------- */

static PyObject *frame_tuple(const cm_frame *frame)
{
    if (frame->truncated)
        return Py_BuildValue("(NiNiiiKN)", cm_py_text(NULL), -1, cm_py_text("..."), -1, -1, -1,
                             0ULL, cm_py_text(NULL));
    return Py_BuildValue("(NiNiiiKN)", cm_py_text(frame->file), frame->line,
                         cm_py_text(frame->function), frame->end_line, frame->column,
                         frame->end_column, (unsigned long long)frame->module,
                         cm_py_text(frame->module_class));
}

static PyObject *make_stack(const cm_reader *reader, uint32_t stack)
{
    PyObject *list = PyList_New(0);
    cm_frame frame;
    while (list != NULL && cm_reader_stack_frame(reader, stack, &frame)) {
        PyObject *item = frame_tuple(&frame);
        if (item == NULL || PyList_Append(list, item) < 0)
            Py_CLEAR(list);
        Py_XDECREF(item);
        stack = cm_reader_stack_parent(reader, stack);
    }
    PyObject *frames = list == NULL ? NULL : PyList_AsTuple(list);
    Py_XDECREF(list);
    return frames;
}

/* The frames of a stack, innermost first: one tuple per stack, however many events share it. */
static PyObject *stack_tuple(const cm_reader *reader, PyObject *cache, uint32_t stack)
{
    PyObject *key = PyLong_FromUnsignedLong(stack);
    if (key == NULL)
        return NULL;
    PyObject *frames = PyDict_GetItemWithError(cache, key);
    if (frames != NULL) {
        Py_INCREF(frames);
    } else if (!PyErr_Occurred()) {
        frames = make_stack(reader, stack);
        if (frames != NULL && PyDict_SetItem(cache, key, frames) < 0)
            Py_CLEAR(frames);
    }
    Py_DECREF(key);
    return frames;
}

static PyObject *origin(const cm_reader *reader, PyObject *cache, const cm_event *event)
{
    if (cm_event_names_stack(event->kind)) {
        if (event->stack == CM_STACK_LOST)
            Py_RETURN_NONE;
        return stack_tuple(reader, cache, event->stack);
    }
    if (cm_event_names_name(event->kind))
        return cm_py_text(cm_reader_name(reader, event->stack));
    return PyLong_FromUnsignedLong(event->stack);
}

static PyObject *event_tuple(const cm_reader *reader, PyObject *cache, const cm_record *record)
{
    const cm_event *event = &record->event;
    PyObject *kind = event->kind < CM_EVENT_KINDS ? cm_py_text(kind_names[event->kind])
                                                  : PyLong_FromLong(event->kind);
    return Py_BuildValue("(NKIKLNiii)", kind, (unsigned long long)record->time_ns,
                         (unsigned int)record->thread, (unsigned long long)event->address,
                         (long long)event->size, origin(reader, cache, event), (int)event->flags,
                         (int)event->device_type, (int)event->device_index);
}

static PyObject *end_tuple(const cm_reader *reader)
{
    return Py_BuildValue(
        "(NNNNKKK)", cm_py_text("end"), cm_py_text(state_names[cm_reader_get_state(reader)]),
        cm_py_text(cm_reader_end_reason(reader)), cm_py_text(cm_reader_error(reader)),
        (unsigned long long)cm_reader_lost_events(reader),
        (unsigned long long)cm_reader_lost_stacks(reader),
        (unsigned long long)cm_reader_start_realtime_ns(reader));
}

PyDoc_STRVAR(
    trace_dump_doc,
    "trace_dump(path, limit=0) -> list of tuples\n\n"
    "One tuple per event in the order of the file (the first `limit` of them, 0 = all):\n"
    "    (kind, time in ns, thread, address, size, origin, flags, device type, device index)\n"
    "`origin` is, for kinds with a stack (base/event.h), the tuple of frames, innermost first, "
    "each\n"
    "    (file, line, function, end line, column, end column, module address, module class),\n"
    "empty without Python frames and None where it was lost; for kinds with a name the name; else\n"
    "the plain number. Then, unless the limit was reached, one tuple\n"
    "    ('end', state, end reason, what is wrong, lost events, lost stacks, start realtime ns)\n"
    "with state 'complete', 'recording', 'recovered' or 'cut'. Raises Error when the file is no "
    "trace or is damaged inside a chunk.");

static PyObject *trace_dump(PyObject *module, PyObject *arguments, PyObject *keywords)
{
    static char *names[] = {"path", "limit", NULL};
    PyObject *path;
    Py_ssize_t limit = 0;
    if (!PyArg_ParseTupleAndKeywords(arguments, keywords, "O&|n", names, PyUnicode_FSConverter,
                                     &path, &limit))
        return NULL;
    cm_reader *reader = open_reader(path);
    Py_DECREF(path);
    if (reader == NULL)
        return NULL;
    PyObject *list = PyList_New(0);
    PyObject *cache = PyDict_New();
    bool good = list != NULL && cache != NULL;
    int got = 0;
    cm_record record;
    while (good && (limit <= 0 || PyList_GET_SIZE(list) < limit)) {
        got = cm_reader_next(reader, &record);
        if (got != 1)
            break;
        good = cm_py_append(list, event_tuple(reader, cache, &record)) == 0 &&
               ((PyList_GET_SIZE(list) & 0xffff) != 0 || PyErr_CheckSignals() == 0);
    }
    if (good && got < 0) {
        cm_py_fail(cm_reader_error(reader));
        good = false;
    } else if (good && (limit <= 0 || PyList_GET_SIZE(list) < limit)) {
        good = cm_py_append(list, end_tuple(reader)) == 0;
    }
    if (!good)
        Py_CLEAR(list);
    Py_XDECREF(cache);
    cm_reader_close(reader);
    return list;
}

PyMethodDef cm_py_trace_methods[] = {
    {"trace_meta", trace_meta, METH_VARARGS, trace_meta_doc},
    {"trace_dump", (PyCFunction)(void (*)(void))trace_dump, METH_VARARGS | METH_KEYWORDS,
     trace_dump_doc},
    {NULL, NULL, 0, NULL},
};
