#include "selftest.h"

#include <stdbool.h>
#include <string.h>

#include "offsets.h"
#include "text.h"

static const char PROGRAM[] = "def plain(check):\n"
                              "    return check()\n"
                              "def generator(check):\n"
                              "    yield check()\n"
                              "def closure(check):\n"
                              "    def inner():\n"
                              "        return check()\n"
                              "    return inner\n"
                              "def from_c(check):\n"
                              "    return max((1,), key=lambda _: check())\n"
                              "def method(self, check):\n"
                              "    return check(self)\n"
                              "plain(check)\n"
                              "next(generator(check))\n"
                              "closure(check)()\n"
                              "from_c(check)\n"
                              "method(object(), check)\n";
enum { CHECKS = 5 };

static int checks_done;
static const char *difference;

static bool same_text(PyObject *str)
{
    static cm_text text; /* GIL held */
    Py_ssize_t length;
    const char *utf8 = PyUnicode_AsUTF8AndSize(str, &length);

    cm_text_copy_str(&text, str);
    return utf8 != NULL && (size_t)length == text.length && memcmp(utf8, text.bytes, length) == 0;
}

static const char *skip_to_visible(const char *frame)
{
    for (; frame != NULL; frame = cm_frame_previous(frame)) {
        const PyCodeObject *code = cm_frame_code(frame);
        if (code != NULL &&
            cm_frame_is_complete(frame, code, cm_frame_offset(code, cm_frame_ip(frame))))
            break;
    }
    return frame;
}

/* Compares the raw chain with the frame objects. */
static const char *compare_chains(void)
{
    const char *raw = skip_to_visible(cm_frame_top());
    PyFrameObject *frame = PyThreadState_GetFrame(PyThreadState_Get());
    const char *why = NULL;

    while (frame != NULL && raw != NULL && why == NULL) {
        PyCodeObject *code = PyFrame_GetCode(frame);
        if (cm_frame_code(raw) != code)
            why = "self-test: the frame chain holds other functions than Python reports";
        else if (cm_frame_offset(code, cm_frame_ip(raw)) * 2 != PyFrame_GetLasti(frame))
            why = "self-test: a frame stands at another instruction than Python reports";
#if PY_VERSION_HEX < 0x030d0000
        else if (CM_FRAME_FIELD(char *, frame, CM_OFFSET_OF_OBJECT) != raw)
            why = "self-test: a frame object stands for another frame than Python reports";
#endif
        Py_DECREF(code);
        PyFrameObject *back = PyFrame_GetBack(frame);
        Py_DECREF(frame);
        frame = back;
        raw = skip_to_visible(cm_frame_previous(raw));
    }
    if (why == NULL && (frame != NULL || raw != NULL))
        why = "self-test: the frame chain has another length than Python reports";
    Py_XDECREF(frame);
    return why;
}

static PyObject *check(PyObject *module, PyObject *arguments)
{
    const char *why = compare_chains();
    const char *raw = skip_to_visible(cm_frame_top());
    const PyCodeObject *code = raw == NULL ? NULL : cm_frame_code(raw);

    if (why == NULL && (code == NULL || !same_text(code->co_filename) ||
                        !same_text(code->co_qualname) || !PyBytes_CheckExact(code->co_linetable)))
        why = "self-test: the strings of a code object are not where they should be";
    if (why == NULL && PyTuple_GET_SIZE(arguments) == 1 &&
        cm_frame_first_local(raw) != (uint64_t)PyTuple_GET_ITEM(arguments, 0))
        why = "self-test: a method's self is not where it should be";
    if (difference == NULL)
        difference = why;
    checks_done++;
    Py_RETURN_NONE;
}

static PyMethodDef check_method = {"check", check, METH_VARARGS, NULL};

static bool run_program(void)
{
    PyObject *globals = PyDict_New(), *function = PyCFunction_New(&check_method, NULL);
    PyObject *code = Py_CompileString(PROGRAM, "<cuptimem self-test>", Py_file_input);
    PyObject *result = NULL;

    if (globals != NULL && function != NULL && code != NULL &&
        PyDict_SetItemString(globals, "__builtins__", PyEval_GetBuiltins()) == 0 &&
        PyDict_SetItemString(globals, "check", function) == 0)
        result = PyEval_EvalCode(code, globals, globals);
    if (globals != NULL)
        PyDict_Clear(globals); /* its functions hold it */
    Py_XDECREF(code);
    Py_XDECREF(function);
    Py_XDECREF(globals);
    Py_XDECREF(result);
    return result != NULL;
}

const char *cm_selftest_run(void)
{
    PyObject *type, *value, *traceback;

    PyErr_Fetch(&type, &value, &traceback);
    checks_done = 0;
    difference = NULL;
    bool ran = run_program();
    if (!ran && PyErr_ExceptionMatches(PyExc_KeyboardInterrupt))
        PyErr_SetInterrupt(); /* it is meant for the program */
    PyErr_Clear();
    PyErr_Restore(type, value, traceback);
    if (difference != NULL)
        return difference;
    return ran && checks_done == CHECKS ? NULL : "self-test: its program could not be run";
}
