/* cuptimem._core.trace_rewrite: copies a trace with its texts replaced. */
#include "py_build.h"

#include <string.h>

#include "../trace/rewrite.h"

typedef struct asking {
    PyObject *function;
    PyObject *answer; /* bytes: of the last text */
} asking;

static const char *const kinds[] = {[CM_TEXT_META] = "meta",
                                    [CM_TEXT_STRING] = "string",
                                    [CM_TEXT_NAME] = "name",
                                    [CM_TEXT_LINE] = "line",
                                    [CM_TEXT_END] = "end"};

static cm_rewritten ask(void *context, cm_text kind, const char *key, size_t key_length,
                        const char **text, size_t *length)
{
    asking *a = context;
    PyObject *name = key == NULL ? PyUnicode_FromString("")
                                 : PyUnicode_DecodeUTF8(key, (Py_ssize_t)key_length, "replace");
    PyObject *given = PyUnicode_DecodeUTF8(*text, (Py_ssize_t)*length, "surrogateescape");
    PyObject *got = name == NULL || given == NULL
                        ? NULL
                        : PyObject_CallFunction(a->function, "sOO", kinds[kind], name, given);
    cm_rewritten result = CM_REWRITTEN_FAILED;

    Py_XDECREF(name);
    Py_XDECREF(given);
    Py_CLEAR(a->answer);
    if (got == Py_None && kind == CM_TEXT_META) {
        result = CM_REWRITTEN_DROP;
    } else if (got != NULL) {
        a->answer = PyUnicode_AsEncodedString(got, "utf-8", "surrogateescape");
        if (a->answer != NULL) {
            *text = PyBytes_AS_STRING(a->answer);
            *length = (size_t)PyBytes_GET_SIZE(a->answer);
            result = CM_REWRITTEN_TEXT;
        }
    }
    Py_XDECREF(got);
    return result;
}

PyDoc_STRVAR(
    trace_rewrite_doc,
    "trace_rewrite(source, target, replace, lines=True)\n\n"
    "Writes a copy of a trace that differs in its text alone. replace(kind, key, text) gives the\n"
    "text in the place of one; kind is 'meta' (of this key; None: without it), 'string' (a file,\n"
    "function or class), 'name', 'line' (of source) or 'end'. lines=False: without source lines.\n"
    "target=None: nothing is written. Raises Error with one line, and there is no copy.");

static PyObject *trace_rewrite(PyObject *module, PyObject *arguments, PyObject *keywords)
{
    static char *names[] = {"source", "target", "replace", "lines", NULL};
    PyObject *source, *target_object, *target = NULL;
    asking a = {0};
    int lines = 1;
    char error[512] = "";

    if (!PyArg_ParseTupleAndKeywords(arguments, keywords, "O&OO|p", names, PyUnicode_FSConverter,
                                     &source, &target_object, &a.function, &lines))
        return NULL;
    if (target_object != Py_None && !PyUnicode_FSConverter(target_object, &target)) {
        Py_DECREF(source);
        return NULL;
    }
    const cm_rewriter rewriter = {.replace = ask, .context = &a, .lines = lines != 0};
    cm_reader *reader = cm_reader_open(PyBytes_AS_STRING(source), error, sizeof error);
    const char *to = target != NULL ? PyBytes_AS_STRING(target) : NULL;
    bool fine = reader != NULL && cm_rewrite(reader, to, &rewriter, error, sizeof error);
    if (!fine && !PyErr_Occurred()) {
        if (reader == NULL) /* the error names the file */
            cm_py_fail(error);
        else
            PyErr_Format(cm_py_error, "%s: %s", PyBytes_AS_STRING(source),
                         error[0] != '\0' ? error : "a chunk is damaged");
    }
    cm_reader_close(reader);
    Py_XDECREF(a.answer);
    Py_DECREF(source);
    Py_XDECREF(target);
    if (!fine)
        return NULL;
    Py_RETURN_NONE;
}

PyMethodDef cm_py_rewrite_methods[] = {
    {"trace_rewrite", (PyCFunction)(void (*)(void))trace_rewrite, METH_VARARGS | METH_KEYWORDS,
     trace_rewrite_doc},
    {NULL, NULL, 0, NULL},
};
