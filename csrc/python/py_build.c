/* What the files that build Python objects share: py_build.h says what each function guarantees. */
#include "py_build.h"

#include <string.h>

#include "../base/clock.h"
#include "../heap/node_name.h"

typedef cm_py_builder builder;

/* Text from a file may be invalid UTF-8, which must not fail here. */
PyObject *cm_py_text(const char *bytes)
{
    if (bytes == NULL)
        Py_RETURN_NONE;
    return PyUnicode_DecodeUTF8(bytes, (Py_ssize_t)strlen(bytes), "replace");
}

/* The same object for the same string of the reader: file names occur in every frame. */
PyObject *cm_py_shared_text(builder *b, const char *bytes)
{
    if (bytes == NULL)
        Py_RETURN_NONE;
    PyObject *key = PyLong_FromVoidPtr((void *)bytes);
    if (key == NULL)
        return NULL;
    PyObject *found = Py_XNewRef(PyDict_GetItemWithError(b->strings, key));
    if (found == NULL && !PyErr_Occurred()) {
        found = cm_py_text(bytes);
        if (found != NULL && PyDict_SetItem(b->strings, key, found) < 0)
            Py_CLEAR(found);
    }
    Py_DECREF(key);
    return found;
}

PyObject *cm_py_fail(const char *message)
{
    PyObject *reason = cm_py_text(message);
    if (reason != NULL) {
        PyErr_SetObject(cm_py_error, reason);
        Py_DECREF(reason);
    }
    return NULL;
}

int cm_py_append(PyObject *list, PyObject *item)
{
    int status = item == NULL ? -1 : PyList_Append(list, item);
    Py_XDECREF(item);
    return status;
}

int cm_py_put(PyObject *dict, const char *key, PyObject *value)
{
    int status = value == NULL ? -1 : PyDict_SetItemString(dict, key, value);
    Py_XDECREF(value);
    return status;
}

static PyObject *finish_list(PyObject *list, bool fine)
{
    if (!fine)
        Py_CLEAR(list);
    return list;
}

static PyObject *frame_tuple(builder *b, const cm_frame *frame)
{
    if (frame->truncated)
        return Py_BuildValue("(OsiiiiOKs)", Py_None, "...", -1, -1, -1, -1, Py_None, 0ULL, "");
    return Py_BuildValue(
        "(NNiiiiNKN)", cm_py_shared_text(b, frame->file), cm_py_shared_text(b, frame->function),
        frame->line, frame->end_line, frame->column, frame->end_column,
        cm_py_shared_text(b, frame->module_class), (unsigned long long)frame->module,
        cm_py_shared_text(b, frame->text != NULL ? frame->text : ""));
}

/* The innermost frame of a stack, made once, because stacks share outer frames. NULL without an
 * exception: none. */
static PyObject *innermost(builder *b, uint32_t stack)
{
    cm_frame frame;
    PyObject *key = PyLong_FromUnsignedLong(stack);
    if (key == NULL)
        return NULL;
    PyObject *found = Py_XNewRef(PyDict_GetItemWithError(b->frames, key));
    if (found == NULL && !PyErr_Occurred() && cm_reader_stack_frame(b->reader, stack, &frame)) {
        found = frame_tuple(b, &frame);
        if (found != NULL && PyDict_SetItem(b->frames, key, found) < 0)
            Py_CLEAR(found);
    }
    Py_DECREF(key);
    return found;
}

void cm_py_allow(builder *b)
{
    /* A quarter of a million frames for the smallest trace, and eight for each byte. */
    b->left = ((uint64_t)64 << 20) + 2048 * cm_reader_bytes(b->reader);
    b->unshown = 0;
}

static uint32_t allowed(builder *b, uint32_t stack)
{
    uint32_t cost = cm_reader_stack_cost(b->reader, stack);
    if (cost > b->left) {
        b->unshown++;
        return CM_STACK_LOST;
    }
    b->left -= cost;
    return stack;
}

static PyObject *frame_list(builder *b, uint32_t stack)
{
    PyObject *frames = PyList_New(0), *frame = NULL;
    while (frames != NULL && (frame = innermost(b, stack)) != NULL) {
        if (cm_py_append(frames, frame) < 0)
            Py_CLEAR(frames);
        stack = cm_reader_stack_parent(b->reader, stack);
    }
    return finish_list(frames, frames != NULL && !PyErr_Occurred());
}

PyObject *cm_py_stack(builder *b, uint32_t stack)
{
    return frame_list(b, allowed(b, stack));
}

PyObject *cm_py_stack_id(builder *b, uint32_t stack)
{
    stack = allowed(b, stack);
    PyObject *key = PyLong_FromUnsignedLong(stack);
    if (key == NULL)
        return NULL;
    int there = PyDict_Contains(b->stacks, key);
    if (there == 0) {
        PyObject *frames = frame_list(b, stack);
        there = frames == NULL ? -1 : PyDict_SetItem(b->stacks, key, frames);
        Py_XDECREF(frames);
    }
    if (there < 0)
        Py_CLEAR(key);
    return key;
}

PyObject *cm_py_node_name(builder *b, uint32_t name)
{
    if (name == 0)
        Py_RETURN_NONE;
    PyObject *key = PyLong_FromUnsignedLong(name);
    if (key == NULL)
        return NULL;
    PyObject *found = Py_XNewRef(PyDict_GetItemWithError(b->names, key));
    if (found == NULL && !PyErr_Occurred()) {
        char label[256];
        const char *rtti =
            name == CM_NAME_ACCUMULATION ? "AccumulateGrad" : cm_reader_name(b->reader, name);
        cm_node_name(rtti != NULL ? rtti : "", label, sizeof label);
        found = cm_py_text(label);
        if (found != NULL && PyDict_SetItem(b->names, key, found) < 0)
            Py_CLEAR(found);
    }
    Py_DECREF(key);
    return found;
}

PyObject *cm_py_label(cm_py_builder *b, uint32_t name)
{
    return cm_py_shared_text(b, name == 0 ? NULL : cm_reader_name(b->reader, name));
}

PyObject *cm_py_name(builder *b, uint32_t name)
{
    const char *found = name != 0 ? cm_reader_name(b->reader, name) : NULL;
    return cm_py_shared_text(b, found != NULL ? found : "");
}

PyObject *cm_py_device_name(builder *b, uint32_t device)
{
    return cm_py_shared_text(b, b->analysis->device[device].name);
}

PyObject *cm_py_clock_line(builder *b, uint32_t line)
{
    cm_frame frame;
    uint32_t stack = line < b->analysis->line_count ? b->analysis->line_stack[line] : CM_STACK_NONE;
    if (!cm_reader_stack_frame(b->reader, stack, &frame))
        Py_RETURN_NONE;
    return Py_BuildValue("(NiN)", cm_py_shared_text(b, frame.file), frame.line,
                         cm_py_shared_text(b, frame.function));
}

PyObject *cm_py_meta(const cm_reader *reader)
{
    PyObject *dict = PyDict_New();
    for (size_t i = 0; dict != NULL && i < cm_reader_meta_count(reader); i++) {
        const char *key, *value;
        cm_reader_meta_at(reader, i, &key, &value);
        PyObject *name = cm_py_text(key), *what = cm_py_text(value);
        if (name == NULL || what == NULL || PyDict_SetItem(dict, name, what) < 0)
            Py_CLEAR(dict);
        Py_XDECREF(name);
        Py_XDECREF(what);
    }
    return dict;
}

/* --- progress and interruption ------------------------------------------------------------- */

enum { ASK_EVERY_NS = 100000000 }; /* ten times a second */

cm_py_watcher cm_py_watch(PyObject *callback)
{
    return (cm_py_watcher){callback == Py_None ? NULL : callback,
                           cm_clock_monotonic_ns() + ASK_EVERY_NS};
}

/* Called without the GIL. false with an exception set, or because the callback returned false. */
bool cm_py_watched(double share, void *context)
{
    cm_py_watcher *w = context;
    uint64_t now = cm_clock_monotonic_ns();
    if (now < w->next_ns)
        return true;
    w->next_ns = now + ASK_EVERY_NS;
    PyGILState_STATE state = PyGILState_Ensure();
    bool go_on = PyErr_CheckSignals() == 0;
    if (go_on && w->callback != NULL) {
        PyObject *answer = PyObject_CallFunction(w->callback, "d", share < 1 ? share : 1.0);
        /* A callback that returns None does not cancel. */
        int truth = answer == NULL ? -1 : answer == Py_None ? 1 : PyObject_IsTrue(answer);
        Py_XDECREF(answer);
        go_on = truth > 0;
        if (truth == 0)
            PyErr_SetNone(PyExc_KeyboardInterrupt);
    }
    PyGILState_Release(state);
    return go_on;
}
