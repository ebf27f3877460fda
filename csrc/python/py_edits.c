/* Replays of edited lives of blocks (replay_edit.h). */
#include "module.h"

#include <stdbool.h>

#include "../analysis/replay_edit.h"

static const char capsule_name[] = "cuptimem lives";

static void forget_base(PyObject *capsule)
{
    cm_edit_base_free(PyCapsule_GetPointer(capsule, capsule_name));
}

/* 64-bit integers of a buffer; the caller releases it. */
static bool get_numbers(PyObject *object, Py_buffer *view, size_t each)
{
    if (PyObject_GetBuffer(object, view, PyBUF_CONTIG_RO) < 0)
        return false;
    if (view->len % (Py_ssize_t)(each * sizeof(int64_t)) == 0)
        return true;
    PyErr_SetString(PyExc_ValueError, "not whole rows of 64-bit integers");
    PyBuffer_Release(view);
    return false;
}

PyDoc_STRVAR(edit_base_doc,
             "edit_base(births, ends, sizes) -> object\n\nLives of blocks for edit_peak(): "
             "array('q') each; end -1: it does not end.");

static PyObject *edit_base(PyObject *module, PyObject *arguments)
{
    PyObject *given[3], *capsule = NULL;
    Py_buffer view[3];
    size_t known = 0;
    if (!PyArg_ParseTuple(arguments, "OOO", &given[0], &given[1], &given[2]))
        return NULL;
    while (known < 3 && get_numbers(given[known], &view[known], 1))
        known++;
    if (known == 3 && (view[0].len != view[1].len || view[0].len != view[2].len)) {
        PyErr_SetString(PyExc_ValueError, "births, ends and sizes are not of one length");
    } else if (known == 3) {
        cm_edit_base *base = cm_edit_base_new(view[0].buf, view[1].buf, view[2].buf,
                                              (size_t)view[0].len / sizeof(int64_t));
        capsule = base == NULL ? PyErr_NoMemory() : PyCapsule_New(base, capsule_name, forget_base);
        if (capsule == NULL)
            cm_edit_base_free(base);
    }
    while (known > 0)
        PyBuffer_Release(&view[--known]);
    return capsule;
}

static bool are_indices(const Py_buffer *removed, size_t count)
{
    const int64_t *index = removed->buf;
    for (size_t i = 0; i < (size_t)removed->len / sizeof *index; i++)
        if (index[i] < 0 || (size_t)index[i] >= count)
            return false;
    return true;
}

PyDoc_STRVAR(
    edit_peak_doc,
    "edit_peak(base, removed, added) -> (bytes, position)\n\nThe highest sum, and where it "
    "is first reached, without the lives of these indices\nand with others: birth, end, "
    "bytes of each in one array('q').");

static PyObject *edit_peak(PyObject *module, PyObject *arguments)
{
    PyObject *capsule, *removed, *added, *result = NULL;
    Py_buffer gone, rows;
    if (!PyArg_ParseTuple(arguments, "OOO", &capsule, &removed, &added))
        return NULL;
    const cm_edit_base *base = PyCapsule_GetPointer(capsule, capsule_name);
    if (base == NULL || !get_numbers(removed, &gone, 1))
        return NULL;
    if (get_numbers(added, &rows, 3)) {
        cm_edit_peak peak;
        if (!are_indices(&gone, cm_edit_base_count(base)))
            PyErr_SetString(PyExc_IndexError, "no such life");
        else if (!cm_edit_replay(base, gone.buf, (size_t)gone.len / sizeof(int64_t), rows.buf,
                                 (size_t)rows.len / sizeof(cm_edit_life), &peak))
            PyErr_NoMemory();
        else
            result = Py_BuildValue("LL", (long long)peak.bytes, (long long)peak.position);
        PyBuffer_Release(&rows);
    }
    PyBuffer_Release(&gone);
    return result;
}

PyMethodDef cm_py_edits_methods[] = {
    {"edit_base", edit_base, METH_VARARGS, edit_base_doc},
    {"edit_peak", edit_peak, METH_VARARGS, edit_peak_doc},
    {NULL, NULL, 0, NULL},
};
