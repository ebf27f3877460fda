/* cuptimem._core: a PyTorch kernel followed by a Python function, for cuptimem/simulation.
 *
 * The dispatcher passes numbers to Python kernels in place of tensors that wrap one, but the real
 * kernel needs the tensors. CPU memory of the function that follows is not the program's. */
#include "py_hidden.h"

#include <stddef.h>
#include <structmember.h>

#include "../capture/ring_producer.h"

typedef struct followed {
    PyObject_HEAD
    vectorcallfunc vectorcall;
    PyObject *kernel; /* takes the dispatch key set, then the operator's arguments */
    PyObject *tensor; /* (number, the operator's positional arguments) -> tensor */
    PyObject *after;  /* (result, arguments, keywords) -> None, or what to return instead */
    uint64_t tensors; /* bit i: positional argument i is a tensor */
} followed;

/* Like cm_py_call_hidden, but records nothing. Garbage collection is off meanwhile: it could free
 * tensors of the program, and that must be recorded. */
static PyObject *call_unrecorded(PyObject *function, PyObject *const *arguments, Py_ssize_t count)
{
    cm_producer *t = cm_enter_hook();
    int collects = PyGC_Disable();
    PyObject *result = cm_py_call_hidden(function, arguments, count);

    if (collects)
        PyGC_Enable();
    if (t != NULL)
        cm_leave_hook(t);
    return result;
}

/* The arguments after the key set as a tuple, with tensors for numbers. */
static PyObject *with_tensors(followed *self, PyObject *const *arguments, Py_ssize_t count)
{
    PyObject *all = PyTuple_New(count);

    for (Py_ssize_t i = 0; all != NULL && i < count; i++) {
        PyObject *one = arguments[i];
        bool number = PyFloat_Check(one) || PyLong_Check(one) || PyComplex_Check(one);
        if (number && i < 64 && self->tensors >> i & 1) {
            PyObject *rest = PyTuple_New(count);
            for (Py_ssize_t j = 0; rest != NULL && j < count; j++)
                PyTuple_SET_ITEM(rest, j, Py_NewRef(arguments[j]));
            PyObject *pair[] = {one, rest};
            PyObject *made = rest == NULL ? NULL : call_unrecorded(self->tensor, pair, 2);
            Py_XDECREF(rest);
            if (made == NULL)
                Py_CLEAR(all);
            else
                PyTuple_SET_ITEM(all, i, made);
        } else {
            PyTuple_SET_ITEM(all, i, Py_NewRef(one));
        }
    }
    return all;
}

static PyObject *keywords_of(PyObject *const *values, PyObject *names)
{
    PyObject *all = PyDict_New();

    for (Py_ssize_t i = 0; all != NULL && names != NULL && i < PyTuple_GET_SIZE(names); i++)
        if (PyDict_SetItem(all, PyTuple_GET_ITEM(names, i), values[i]) < 0)
            Py_CLEAR(all);
    return all;
}

static PyObject *run_kernel(followed *self, PyObject *keys, PyObject *all, PyObject *keywords)
{
    Py_ssize_t count = PyTuple_GET_SIZE(all);
    PyObject *with_keys = PyTuple_New(count + 1);

    if (with_keys == NULL)
        return NULL;
    PyTuple_SET_ITEM(with_keys, 0, Py_NewRef(keys));
    for (Py_ssize_t i = 0; i < count; i++)
        PyTuple_SET_ITEM(with_keys, i + 1, Py_NewRef(PyTuple_GET_ITEM(all, i)));
    PyObject *result = PyObject_Call(self->kernel, with_keys, keywords);
    Py_DECREF(with_keys);
    return result;
}

/* Steals the reference to `result`. */
static PyObject *follow(followed *self, PyObject *result, PyObject *all, PyObject *keywords)
{
    PyObject *arguments[] = {result, all, keywords};
    PyObject *other = call_unrecorded(self->after, arguments, 3);

    if (other == Py_None) {
        Py_DECREF(other);
        return result;
    }
    Py_DECREF(result);
    return other;
}

static PyObject *followed_call(PyObject *object, PyObject *const *arguments, size_t flagged,
                               PyObject *names)
{
    followed *self = (followed *)object;
    Py_ssize_t count = PyVectorcall_NARGS(flagged);

    if (count < 1) {
        PyErr_SetString(PyExc_TypeError, "the key set is missing");
        return NULL;
    }
    PyObject *all = with_tensors(self, arguments + 1, count - 1);
    PyObject *keywords = all == NULL ? NULL : keywords_of(arguments + count, names);
    PyObject *result = NULL;
    if (keywords != NULL)
        result = run_kernel(self, arguments[0], all, keywords);
    if (result != NULL)
        result = follow(self, result, all, keywords);
    Py_XDECREF(all);
    Py_XDECREF(keywords);
    return result;
}

static int followed_traverse(PyObject *object, visitproc visit, void *arg)
{
    followed *self = (followed *)object;

    Py_VISIT(Py_TYPE(object));
    Py_VISIT(self->kernel);
    Py_VISIT(self->tensor);
    Py_VISIT(self->after);
    return 0;
}

static void followed_dealloc(PyObject *object)
{
    followed *self = (followed *)object;
    PyTypeObject *type = Py_TYPE(object);

    PyObject_GC_UnTrack(object);
    Py_XDECREF(self->kernel);
    Py_XDECREF(self->tensor);
    Py_XDECREF(self->after);
    type->tp_free(object);
    Py_DECREF(type);
}

static PyMemberDef followed_members[] = {
    {"__vectorcalloffset__", T_PYSSIZET, offsetof(followed, vectorcall), READONLY, NULL}, {0}};

static PyType_Slot followed_slots[] = {{Py_tp_call, PyVectorcall_Call},
                                       {Py_tp_traverse, followed_traverse},
                                       {Py_tp_dealloc, followed_dealloc},
                                       {Py_tp_members, followed_members},
                                       {0, NULL}};

static PyType_Spec followed_spec = {
    .name = "cuptimem._core.FollowedKernel",
    .basicsize = sizeof(followed),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_HAVE_VECTORCALL |
             Py_TPFLAGS_DISALLOW_INSTANTIATION,
    .slots = followed_slots,
};

PyDoc_STRVAR(followed_kernel_doc,
             "followed_kernel(kernel, tensor, after, tensors)\n\n"
             "A kernel for torch.library with its key set: calls `kernel`, then after(result, "
             "arguments, keywords), of which nothing is recorded. Bit i of `tensors`: a number in "
             "the place of argument i becomes tensor(number, arguments).");

static PyObject *followed_kernel(PyObject *module, PyObject *arguments)
{
    static PyObject *type;
    PyObject *kernel, *tensor, *after;
    unsigned long long tensors;

    if (!PyArg_ParseTuple(arguments, "OOOK", &kernel, &tensor, &after, &tensors))
        return NULL;
    if (type == NULL && (type = PyType_FromSpec(&followed_spec)) == NULL)
        return NULL;
    followed *made = PyObject_GC_New(followed, (PyTypeObject *)type);
    if (made == NULL)
        return NULL;
    made->vectorcall = followed_call;
    made->kernel = Py_NewRef(kernel);
    made->tensor = Py_NewRef(tensor);
    made->after = Py_NewRef(after);
    made->tensors = tensors;
    PyObject_GC_Track((PyObject *)made);
    return (PyObject *)made;
}

PyDoc_STRVAR(call_unrecorded_doc,
             "call_unrecorded(function, *arguments)\n\nCalls it; nothing in it is recorded.");

static PyObject *call_unrecorded_here(PyObject *module, PyObject *const *arguments,
                                      Py_ssize_t count)
{
    if (count < 1) {
        PyErr_SetString(PyExc_TypeError, "a function is missing");
        return NULL;
    }
    return call_unrecorded(arguments[0], arguments + 1, count - 1);
}

PyMethodDef cm_py_values_methods[] = {
    {"call_unrecorded", (PyCFunction)(void (*)(void))call_unrecorded_here, METH_FASTCALL,
     call_unrecorded_doc},
    {"followed_kernel", followed_kernel, METH_VARARGS, followed_kernel_doc},
    {0}};
