/* Finds numpy.ndarray without importing it, and reads `base`, which is a getter of C. */
#include "py_arrays.h"

PyTypeObject *cm_py_array_type(void)
{
    PyObject *modules = PySys_GetObject("modules");
    PyObject *numpy =
        modules != NULL && PyDict_Check(modules) ? PyDict_GetItemString(modules, "numpy") : NULL;
    if (numpy == NULL || !PyModule_CheckExact(numpy))
        return NULL;
    PyObject *type = PyDict_GetItemString(PyModule_GetDict(numpy), "ndarray");
    /* A class of the program with that name could have a property. */
    bool is_numpys = type != NULL && PyType_Check(type) &&
                     !PyType_HasFeature((PyTypeObject *)type, Py_TPFLAGS_HEAPTYPE);
    return is_numpys ? (PyTypeObject *)type : NULL;
}

PyObject *cm_py_array_owner(PyTypeObject *array, PyObject *o)
{
    static PyObject *name;

    if (name == NULL && (name = PyUnicode_InternFromString("base")) == NULL)
        PyErr_Clear();
    while (name != NULL && array != NULL && Py_TYPE(o) == array) {
        PyObject *base = PyObject_GetAttr(o, name);
        if (base == NULL) {
            PyErr_Clear();
            break;
        }
        Py_DECREF(base);
        if (base == Py_None)
            break;
        o = base;
    }
    return o;
}

static bool has_objects(PyObject *array)
{
    static PyObject *names[2];

    if (names[0] == NULL)
        names[0] = PyUnicode_InternFromString("dtype");
    if (names[1] == NULL)
        names[1] = PyUnicode_InternFromString("char");
    PyObject *kind = names[0] != NULL ? PyObject_GetAttr(array, names[0]) : NULL;
    PyObject *letter = kind != NULL && names[1] != NULL ? PyObject_GetAttr(kind, names[1]) : NULL;
    bool found = letter != NULL && PyUnicode_Check(letter) &&
                 PyUnicode_CompareWithASCIIString(letter, "O") == 0;
    PyErr_Clear();
    Py_XDECREF(letter);
    Py_XDECREF(kind);
    return found;
}

int cm_py_traverse(PyTypeObject *array, PyObject *o, visitproc visit, void *argument)
{
    Py_buffer view;
    int result = 0;

    if (Py_TYPE(o)->tp_traverse != NULL)
        return Py_TYPE(o)->tp_traverse(o, visit, argument);
    if (Py_TYPE(o) != array || !has_objects(o))
        return 0;
    if (PyObject_GetBuffer(o, &view, PyBUF_ANY_CONTIGUOUS) < 0) {
        PyErr_Clear(); /* one in several pieces of memory is a view, or made of one by hand */
        return 0;
    }
    PyObject *const *element = view.buf;
    for (Py_ssize_t left = view.len / (Py_ssize_t)sizeof *element; result == 0 && left > 0; left--)
        if (*element++ != NULL)
            result = visit(element[-1], argument);
    PyBuffer_Release(&view);
    return result;
}

enum {
    DEPTH = 3,
    PARTS = 32
}; /* of untracked containers in one another; of all of them together */

static int find_tracked(PyObject *o, void *argument)
{
    int *left = argument;
    return PyObject_IS_GC(o) || --*left <= 0;
}

static bool leads_to_tracked(PyTypeObject *array, PyObject *o)
{
    int left = PARTS;
    return cm_py_traverse(array, o, find_tracked, &left) != 0 && left > 0;
}

static bool leads(PyTypeObject *array, PyObject *o, int depth, int *left)
{
    PyObject *value;
    Py_ssize_t at = 0;
    bool found = false;

    if (Py_TYPE(o) == array) {
        PyObject *owner = cm_py_array_owner(array, o);
        return owner != o && PyObject_IS_GC(owner) ? true : leads_to_tracked(array, owner);
    }
    if (depth == 0 || PyObject_GC_IsTracked(o))
        return false;
    if (PyTuple_CheckExact(o)) {
        while (!found && at < PyTuple_GET_SIZE(o) && (*left)-- > 0) {
            value = PyTuple_GET_ITEM(o, at++); /* NULL: it is being made */
            found = value != NULL && leads(array, value, depth - 1, left);
        }
    } else if (PyDict_CheckExact(o)) {
        while (!found && (*left)-- > 0 && PyDict_Next(o, &at, NULL, &value))
            found = leads(array, value, depth - 1, left);
    }
    return found;
}

bool cm_py_leads_to_tensor(PyTypeObject *array, PyObject *o)
{
    int left = PARTS;
    return array != NULL &&
           (PyDict_CheckExact(o) || PyTuple_CheckExact(o) || Py_TYPE(o) == array) &&
           leads(array, o, DEPTH, &left);
}

PyDoc_STRVAR(array_type_doc, "array_type() -> numpy.ndarray, None where numpy is not imported");

static PyObject *array_type(PyObject *module, PyObject *unused)
{
    PyTypeObject *type = cm_py_array_type();
    return Py_NewRef(type != NULL ? (PyObject *)type : Py_None);
}

PyDoc_STRVAR(array_owner_doc,
             "array_owner(o) -> object\n\nWhat has the memory of a numpy array, such as the tensor "
             "that it was made of. The object itself, if that is none or has its own.");

static PyObject *array_owner(PyObject *module, PyObject *o)
{
    return Py_NewRef(cm_py_array_owner(cm_py_array_type(), o));
}

PyMethodDef cm_py_arrays_methods[] = {
    {"array_type", array_type, METH_NOARGS, array_type_doc},
    {"array_owner", array_owner, METH_O, array_owner_doc},
    {NULL, NULL, 0, NULL},
};
