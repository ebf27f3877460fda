/* Reading objects without running any of their code: what names lead to, the objects that the
 * collector tracks, the variables of a frame. */
#include "module.h"

#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>

#include "../frames/offsets.h"
#include "py_arrays.h"

typedef struct search {
    PyObject **slot; /* what was found, by address; NULL: free */
    size_t mask;
    PyObject *found;
    Py_ssize_t most, parts; /* parts: of the object that is read, how many more */
    Py_ssize_t left;        /* ... and of all */
    PyTypeObject *array;    /* numpy.ndarray; NULL: not imported */
    bool failed;
} search;

static size_t hash(const PyObject *o)
{
    return (size_t)(((uintptr_t)o >> 4) * UINT64_C(0x9e3779b97f4a7c15) >> 20);
}

static bool make_room(search *s, size_t count)
{
    size_t size = 64;
    while (size < count * 4)
        size *= 2;
    s->mask = size - 1;
    s->slot = calloc(size, sizeof(PyObject *));
    return s->slot != NULL;
}

/* The object's place, or the free one for it. */
static size_t place_of(const search *s, const PyObject *o)
{
    size_t at = hash(o) & s->mask;
    while (s->slot[at] != NULL && s->slot[at] != o)
        at = (at + 1) & s->mask;
    return at;
}

/* --- what names lead to --------------------------------------------------------------------------
 */

/* Whether it is a dict that only a module has. */
static bool is_namespace(PyObject *o)
{
    static PyObject *key; /* of str, as all keys that it is compared with */

    if (!PyDict_CheckExact(o))
        return false;
    if (key == NULL)
        key = PyUnicode_InternFromString("__spec__");
    return key != NULL && PyDict_GetItem(o, key) != NULL;
}

static bool leads_everywhere(PyObject *o)
{
    return PyType_Check(o) || PyModule_Check(o) || is_namespace(o);
}

/* Empty containers, of which each nn.Module has a dozen, and what the collector does not track. */
static bool leads_nowhere(const search *s, PyObject *o)
{
    if (PyDict_CheckExact(o) || PyODict_CheckExact(o))
        return PyDict_GET_SIZE(o) == 0;
    if (PyAnySet_CheckExact(o))
        return PySet_GET_SIZE(o) == 0;
    return !PyObject_GC_IsTracked(o) && !cm_py_leads_to_tensor(s->array, o);
}

/* Of one object, so that a large container leaves room; of all, for each object to be found. */
enum { PARTS_NEAR = 1 << 10, PARTS_EACH = 8 };

static int visit_near(PyObject *part, void *argument)
{
    search *s = argument;
    PyObject *o = cm_py_array_owner(s->array, part);
    size_t at = place_of(s, o);
    if (s->parts-- <= 0 || s->left-- <= 0 || PyList_GET_SIZE(s->found) >= s->most)
        return 1;
    bool is_read = PyObject_IS_GC(o) || Py_TYPE(o) == s->array;
    if (s->slot[at] != NULL || !is_read || leads_nowhere(s, o) || leads_everywhere(o))
        return 0;
    s->slot[at] = o;
    s->failed = PyList_Append(s->found, o) < 0;
    return s->failed;
}

PyDoc_STRVAR(reachable_doc,
             "reachable(roots, without, most) -> list\n\nWhat objects lead to, "
             "themselves included, the nearest first, `most` of it. Types, modules "
             "and their namespaces, and the objects in `without` are not "
             "entered, empty containers left out. Ends after eight references for each of `most`.");

static PyObject *reachable(PyObject *module, PyObject *arguments)
{
    PyObject *roots, *without;
    search s = {0};

    if (!PyArg_ParseTuple(arguments, "O!O!n", &PyList_Type, &roots, &PyList_Type, &without,
                          &s.most))
        return NULL;
    if (s.most < 0 || !make_room(&s, (size_t)s.most + (size_t)PyList_GET_SIZE(without)))
        return PyErr_NoMemory();
    s.found = PyList_New(0);
    s.array = cm_py_array_type();
    for (Py_ssize_t i = 0; i < PyList_GET_SIZE(without); i++) {
        PyObject *o = PyList_GET_ITEM(without, i);
        s.slot[place_of(&s, o)] = o;
    }
    s.parts = s.left = PY_SSIZE_T_MAX;
    for (Py_ssize_t i = 0; s.found != NULL && !s.failed && i < PyList_GET_SIZE(roots); i++)
        visit_near(PyList_GET_ITEM(roots, i), &s);
    s.left = s.most <= PY_SSIZE_T_MAX / PARTS_EACH ? s.most * PARTS_EACH : PY_SSIZE_T_MAX;
    for (Py_ssize_t i = 0; s.found != NULL && !s.failed && i < PyList_GET_SIZE(s.found); i++) {
        PyObject *o = PyList_GET_ITEM(s.found, i);
        s.parts = PARTS_NEAR;
        cm_py_traverse(s.array, o, visit_near, &s);
    }
    free(s.slot);
    if (s.failed)
        Py_CLEAR(s.found);
    return s.found;
}

/* --- what the collector does not list ------------------------------------------------------------
 */

static bool grow(search *s)
{
    size_t count = (size_t)PyList_GET_SIZE(s->found);
    if (count * 2 <= s->mask)
        return true;
    PyObject **old = s->slot;
    size_t slots = s->mask + 1;
    if (!make_room(s, count)) {
        s->slot = old;
        s->mask = slots - 1;
        return false;
    }
    for (size_t i = 0; i < slots; i++)
        if (old[i] != NULL)
            s->slot[place_of(s, old[i])] = old[i];
    free(old);
    return true;
}

static int visit_tracked(PyObject *part, void *argument)
{
    search *s = argument;
    PyObject *o = cm_py_array_owner(s->array, part);
    if (!PyObject_IS_GC(o) || !PyObject_GC_IsTracked(o))
        return 0;
    size_t at = place_of(s, o);
    if (s->slot[at] != NULL)
        return 0;
    s->slot[at] = o;
    s->failed = PyList_Append(s->found, o) < 0 || !grow(s);
    return s->failed;
}

PyDoc_STRVAR(with_reached_doc, "with_reached(objects, others) -> list\n\nThe objects, and all "
                               "tracked ones that they and the others lead to.");

static PyObject *with_reached(PyObject *module, PyObject *arguments)
{
    PyObject *objects, *others;
    search s = {0};

    if (!PyArg_ParseTuple(arguments, "O!O!", &PyList_Type, &objects, &PyList_Type, &others))
        return NULL;
    s.array = cm_py_array_type();
    s.found = PyList_GetSlice(objects, 0, PyList_GET_SIZE(objects));
    s.failed = s.found == NULL || !make_room(&s, (size_t)PyList_GET_SIZE(objects));
    for (Py_ssize_t i = 0; !s.failed && i < PyList_GET_SIZE(objects); i++)
        s.slot[place_of(&s, PyList_GET_ITEM(s.found, i))] = PyList_GET_ITEM(s.found, i);
    for (Py_ssize_t i = 0; !s.failed && i < PyList_GET_SIZE(others); i++)
        visit_tracked(PyList_GET_ITEM(others, i), &s);
    for (Py_ssize_t i = 0; !s.failed && i < PyList_GET_SIZE(s.found); i++) {
        PyObject *o = PyList_GET_ITEM(s.found, i);
        if (Py_TYPE(o)->tp_traverse != NULL)
            Py_TYPE(o)->tp_traverse(o, visit_tracked, &s);
    }
    free(s.slot);
    if (s.failed) {
        Py_CLEAR(s.found);
        if (!PyErr_Occurred())
            PyErr_NoMemory();
    }
    return s.found;
}

/* --- what the collector tracks ------------------------------------------------------------------
 */

PyDoc_STRVAR(tracked_doc,
             "tracked(get_objects, *arguments) -> list\n\n"
             "What gc.get_objects(*arguments) gives, with None for each tuple: a frame may still "
             "be filling it, and must have the only reference when the tuple grows.");

static PyObject *tracked(PyObject *module, PyObject *const *args, Py_ssize_t count)
{
    if (count < 1)
        return PyErr_Format(PyExc_TypeError, "expected a function");
    PyObject *all = PyObject_Vectorcall(args[0], args + 1, (size_t)(count - 1), NULL);
    if (all == NULL || !PyList_CheckExact(all)) {
        Py_XDECREF(all);
        return PyErr_Occurred() ? NULL : PyErr_Format(PyExc_TypeError, "expected a list");
    }
    for (Py_ssize_t i = 0; i < PyList_GET_SIZE(all); i++) {
        PyObject *o = PyList_GET_ITEM(all, i);
        if (PyTuple_CheckExact(o)) {
            PyList_SET_ITEM(all, i, Py_NewRef(Py_None));
            Py_DECREF(o); /* never the last reference */
        }
    }
    return all;
}

/* --- the variables of a frame -------------------------------------------------------------------
 */

/* Copies a namespace if it is a dict. Only str keys, for others may run code of the program. */
static bool copy_names(PyObject *into, PyObject *from)
{
    PyObject *key, *value;
    Py_ssize_t at = 0;
    bool good = true;

    while (good && from != NULL && PyDict_Check(from) && PyDict_Next(from, &at, &key, &value)) {
        Py_INCREF(key);
        Py_INCREF(value);
        good = !PyUnicode_CheckExact(key) || PyDict_SetItem(into, key, value) == 0;
        Py_DECREF(value);
        Py_DECREF(key);
    }
    return good;
}

#if PY_VERSION_HEX < 0x030d0000

/* Not f_locals, which would change the dict that an earlier call of locals() returned. */
static bool copy_variables(PyObject *into, const char *frame, const PyCodeObject *code)
{
    PyObject *const *value = (PyObject *const *)(frame + CM_OFFSET_LOCALS);
    const char *kinds = PyBytes_AS_STRING(code->co_localspluskinds);
    bool good = true;

    for (int i = 0; good && i < code->co_nlocalsplus; i++) {
        PyObject *one = value[i];
        if (one != NULL && (kinds[i] & 0xc0) != 0 && PyCell_Check(one)) /* CO_FAST_CELL, _FREE */
            one = PyCell_GET(one);
        if (one == NULL)
            continue;
        Py_INCREF(one);
        good = PyDict_SetItem(into, PyTuple_GET_ITEM(code->co_localsplusnames, i), one) == 0;
        Py_DECREF(one);
    }
    return good;
}

static bool copy_locals(PyObject *into, PyFrameObject *frame, PyCodeObject *code)
{
    const char *inner = CM_FRAME_FIELD(char *, frame, CM_OFFSET_OF_OBJECT);

    if (cm_offsets_check() != NULL || inner == NULL || cm_frame_code(inner) != code)
        return true;
    if (code->co_flags & CO_OPTIMIZED)
        return copy_variables(into, inner, code);
    PyObject *space = CM_FRAME_FIELD(PyObject *, inner, CM_OFFSET_NAMESPACE);
    return space == CM_FRAME_FIELD(PyObject *, inner, CM_OFFSET_GLOBALS) || copy_names(into, space);
}

#else

/* f_locals of a function's frame is a proxy, so reading it changes nothing. */
static bool copy_locals(PyObject *into, PyFrameObject *frame, PyCodeObject *code)
{
    PyObject *space = PyFrame_GetLocals(frame), *globals = PyFrame_GetGlobals(frame);
    bool good = space != NULL;

    if (good && code->co_flags & CO_OPTIMIZED)
        good = PyDict_Update(into, space) == 0;
    else if (good && space != globals)
        good = copy_names(into, space);
    Py_XDECREF(space);
    Py_XDECREF(globals);
    return good;
}

#endif

PyDoc_STRVAR(frame_locals_doc,
             "frame_locals(frame) -> dict\n\nThe variables of a function or a class body that "
             "runs, in a dictionary of their own. Empty for a module, which has globals.");

static PyObject *frame_locals(PyObject *module, PyObject *frame)
{
    PyObject *found;

    if (!PyFrame_Check(frame))
        return PyErr_Format(PyExc_TypeError, "expected a frame");
    if ((found = PyDict_New()) == NULL)
        return NULL;
    PyCodeObject *code = PyFrame_GetCode((PyFrameObject *)frame);
    if (!copy_locals(found, (PyFrameObject *)frame, code))
        Py_CLEAR(found);
    Py_DECREF(code);
    return found;
}

PyMethodDef cm_py_referrers_methods[] = {
    {"reachable", reachable, METH_VARARGS, reachable_doc},
    {"with_reached", with_reached, METH_VARARGS, with_reached_doc},
    {"tracked", (PyCFunction)(void (*)(void))tracked, METH_FASTCALL, tracked_doc},
    {"frame_locals", frame_locals, METH_O, frame_locals_doc},
    {NULL, NULL, 0, NULL},
};
