/* cuptimem._core: settings for stacks. */
#include "module.h"

#include <stdbool.h>

#include "../frames/control.h"
#include "../frames/offsets.h"
#include "../frames/walk.h"

static PyObject *frames_init(PyObject *module, PyObject *unused)
{
    const char *why;

    if (cm_frames_init(&why) == 0)
        Py_RETURN_NONE;
    return PyUnicode_FromString(why);
}

static PyObject *frames_offsets(PyObject *module, PyObject *unused)
{
#if PY_VERSION_HEX < 0x030d0000
    return Py_BuildValue(
        "{sisisisisisisi}", "PyThreadState.cframe", (int)CM_OFFSET_CFRAME,
        "_PyCFrame.current_frame", (int)CM_OFFSET_CFRAME_FRAME, "_PyInterpreterFrame.f_code",
        (int)CM_OFFSET_EXECUTABLE, "_PyInterpreterFrame.previous", (int)CM_OFFSET_PREVIOUS,
        "_PyInterpreterFrame.prev_instr", (int)CM_OFFSET_IP, "_PyInterpreterFrame.owner",
        (int)CM_OFFSET_OWNER, "_PyInterpreterFrame.localsplus", (int)CM_OFFSET_LOCALS);
#elif PY_VERSION_HEX < CM_OFFSETS_END && !defined(Py_GIL_DISABLED)
    return Py_BuildValue("{sisisisisisi}", "PyThreadState.current_frame", (int)CM_OFFSET_FRAME,
                         "_PyInterpreterFrame.f_executable", (int)CM_OFFSET_EXECUTABLE,
                         "_PyInterpreterFrame.previous", (int)CM_OFFSET_PREVIOUS,
                         "_PyInterpreterFrame.instr_ptr", (int)CM_OFFSET_IP,
                         "_PyInterpreterFrame.owner", (int)CM_OFFSET_OWNER,
                         "_PyInterpreterFrame.localsplus", (int)CM_OFFSET_LOCALS);
#else
    return PyDict_New();
#endif
}

static PyObject *frames_hide(PyObject *module, PyObject *argument)
{
    const char *prefix = PyUnicode_Check(argument) ? PyUnicode_AsUTF8(argument) : NULL;

    if (prefix == NULL) {
        if (!PyErr_Occurred())
            PyErr_SetString(PyExc_TypeError, "frames_hide() takes a path as str");
        return NULL;
    }
    if (prefix[0] == '\0') {
        PyErr_SetString(PyExc_ValueError, "frames_hide(): an empty path would hide everything");
        return NULL;
    }
    if (cm_frames_hide(prefix) < 0) {
        PyErr_SetString(cm_py_error, "frames_hide(): too many paths are hidden already");
        return NULL;
    }
    Py_RETURN_NONE;
}

static bool is_code(PyObject *argument, const char *function)
{
    if (PyCode_Check(argument))
        return true;
    PyErr_Format(PyExc_TypeError, "%s() takes a code object, not %.100s", function,
                 Py_TYPE(argument)->tp_name);
    return false;
}

static PyObject *frames_barrier(PyObject *module, PyObject *argument)
{
    if (!is_code(argument, "frames_barrier"))
        return NULL;
    if (cm_frames_barrier((PyCodeObject *)argument) < 0) {
        PyErr_SetString(cm_py_error, "frames_barrier(): too many barriers are set already");
        return NULL;
    }
    Py_RETURN_NONE;
}

static PyObject *frames_module_call(PyObject *module, PyObject *argument)
{
    if (argument != Py_None && !is_code(argument, "frames_module_call"))
        return NULL;
    if (cm_frames_module_call(argument == Py_None ? NULL : (PyCodeObject *)argument) < 0) {
        PyErr_SetString(cm_py_error,
                        "frames_module_call(): the function's first argument cannot be read from "
                        "its frame, so stacks will not tell modules apart");
        return NULL;
    }
    Py_RETURN_NONE;
}

PyMethodDef cm_py_frames_methods[] = {
    {"frames_init", frames_init, METH_NOARGS, "None when stacks work, else why not."},
    {"frames_offsets", frames_offsets, METH_NOARGS,
     "Field -> bytes from its struct's start, as the walk reads them; of this Python's version."},
    {"frames_hide", frames_hide, METH_O, "Files under this path never show in a stack."},
    {"frames_barrier", frames_barrier, METH_O,
     "This code's frames and all outside them never show in a stack."},
    {"frames_module_call", frames_module_call, METH_O,
     "Tells which code runs a module, e.g. torch.nn.Module._wrapped_call_impl.__code__."},
    {NULL, NULL, 0, NULL},
};
