/* cuptimem._core: source lines that only Python can read (csrc/capture/source_text.h).
 *
 * def source_asked() -> list[tuple[tuple[int, ...], str, int, bytes | None, str]]
 *     For each: its key for the answer, file, line; and if only decoding is left, the line's bytes
 *     and its encoding.
 * def source_answer(asked: tuple[int, ...], text: str) -> None
 * def source_answered() -> bool
 *     Whether an answer has still to be written to the trace. */
#include "module.h"

#include <stdlib.h>

#include "../capture/source_text.h"

static PyObject *asked_tuple(const cm_asked *a)
{
    return Py_BuildValue(
        "((IIiiiii)NiNs)", (unsigned)a->capture, (unsigned)a->code, a->at.line, a->at.end_line,
        a->at.column, a->at.end_column, (int)a->ambiguous,
        PyUnicode_DecodeUTF8(a->file, (Py_ssize_t)strlen(a->file), "replace"), a->at.line,
        a->bytes == NULL ? Py_NewRef(Py_None)
                         : PyBytes_FromStringAndSize(a->bytes, (Py_ssize_t)a->length),
        a->encoding);
}

static PyObject *source_asked(PyObject *module, PyObject *unused)
{
    cm_asked *asked;
    size_t count = cm_sourcetext_take_asked(&asked);
    PyObject *list = PyList_New(0);

    for (size_t i = 0; i < count; i++) {
        PyObject *item = list == NULL ? NULL : asked_tuple(&asked[i]);
        if (list != NULL && (item == NULL || PyList_Append(list, item) < 0))
            Py_CLEAR(list);
        Py_XDECREF(item);
        free(asked[i].file);
        free(asked[i].bytes);
    }
    free(asked);
    return list;
}

static PyObject *source_answer(PyObject *module, PyObject *arguments)
{
    cm_asked asked = {0};
    int ambiguous;
    PyObject *text;

    if (!PyArg_ParseTuple(arguments, "(IIiiiii)U", &asked.capture, &asked.code, &asked.at.line,
                          &asked.at.end_line, &asked.at.column, &asked.at.end_column, &ambiguous,
                          &text))
        return NULL;
    asked.ambiguous = ambiguous != 0;
    PyObject *bytes = PyUnicode_AsEncodedString(text, "utf-8", "replace");
    if (bytes == NULL)
        return NULL;
    bool fine =
        cm_sourcetext_answer(&asked, PyBytes_AS_STRING(bytes), (size_t)PyBytes_GET_SIZE(bytes));
    Py_DECREF(bytes);
    if (!fine)
        return PyErr_NoMemory();
    Py_RETURN_NONE;
}

static PyObject *source_answered(PyObject *module, PyObject *unused)
{
    return PyBool_FromLong(cm_sourcetext_is_answered());
}

PyMethodDef cm_py_sourcetext_methods[] = {
    {"source_asked", source_asked, METH_NOARGS, NULL},
    {"source_answer", source_answer, METH_VARARGS, NULL},
    {"source_answered", source_answered, METH_NOARGS, NULL},
    {NULL, NULL, 0, NULL},
};
