/* Reading objects without running any of their code: referrers by tp_traverse, the objects that the
 * collector tracks, the variables of a frame. */
#include "module.h"

#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>

#include "../frames/offsets.h"

typedef struct search {
    PyObject **slot; /* the objects searched for, by address; NULL: free */
    bool *referred;  /* tracked: whether an object refers to it, by place in slot */
    size_t mask;
    PyObject *referrer, *found;
    Py_ssize_t most, parts; /* parts: of the object that is read, how many more */
    Py_ssize_t left;        /* ... and of all */
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

static bool fill(search *s, PyObject *wanted)
{
    if (!make_room(s, (size_t)PyList_GET_SIZE(wanted)))
        return false;
    for (Py_ssize_t i = 0; i < PyList_GET_SIZE(wanted); i++) {
        PyObject *o = PyList_GET_ITEM(wanted, i);
        s->slot[place_of(s, o)] = o;
    }
    return true;
}

static int visit(PyObject *o, void *argument)
{
    search *s = argument;
    if (s->parts-- <= 0)
        return 1;
    if (s->slot[place_of(s, o)] == NULL)
        return 0;
    s->failed = PyList_Append(s->found, s->referrer) < 0 || PyList_Append(s->found, o) < 0;
    return s->failed || PyList_GET_SIZE(s->found) >= s->most;
}

PyDoc_STRVAR(referrers_doc,
             "referrers(objects, wanted, most, parts=0) -> list\n\n"
             "In turn, each object of the first list that refers to one of the second, and that "
             "one; `most` such pairs. parts: of one object that are visited; 0: all.");

static PyObject *referrers(PyObject *module, PyObject *arguments)
{
    PyObject *objects, *wanted;
    search s = {0};

    Py_ssize_t parts = 0;

    if (!PyArg_ParseTuple(arguments, "O!O!n|n", &PyList_Type, &objects, &PyList_Type, &wanted,
                          &s.most, &parts))
        return NULL;
    s.most *= 2;
    s.found = PyList_New(0);
    if (s.found == NULL)
        return NULL;
    if (!fill(&s, wanted)) {
        Py_DECREF(s.found);
        return PyErr_NoMemory();
    }
    for (Py_ssize_t i = 0; i < PyList_GET_SIZE(objects); i++) {
        s.referrer = PyList_GET_ITEM(objects, i);
        traverseproc traverse = Py_TYPE(s.referrer)->tp_traverse;
        if (!PyObject_IS_GC(s.referrer) || traverse == NULL)
            continue;
        s.parts = parts > 0 ? parts : PY_SSIZE_T_MAX;
        traverse(s.referrer, visit, &s);
        if (s.failed || PyList_GET_SIZE(s.found) >= s.most)
            break;
    }
    free(s.slot);
    if (s.failed)
        Py_CLEAR(s.found);
    return s.found;
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
    return PyType_Check(o) || PyModule_Check(o) || PyFrame_Check(o) || is_namespace(o);
}

/* Of one object, so that a large container leaves room; of all, for each object to be found. */
enum { PARTS_NEAR = 1 << 10, PARTS_EACH = 8 };

static int visit_near(PyObject *o, void *argument)
{
    search *s = argument;
    size_t at = place_of(s, o);
    if (s->parts-- <= 0 || s->left-- <= 0 || PyList_GET_SIZE(s->found) >= s->most)
        return 1;
    if (s->slot[at] != NULL || !PyObject_IS_GC(o) || leads_everywhere(o))
        return 0;
    s->slot[at] = o;
    s->failed = PyList_Append(s->found, o) < 0;
    return s->failed;
}

PyDoc_STRVAR(reachable_doc, "reachable(roots, without, most) -> list\n\nWhat objects lead to, "
                            "themselves included, the nearest first, `most` of it. Types, modules "
                            "and their namespaces, frames and the objects in `without` are not "
                            "entered. Ends after eight references for each of `most`.");

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
        if (Py_TYPE(o)->tp_traverse != NULL)
            Py_TYPE(o)->tp_traverse(o, visit_near, &s);
    }
    free(s.slot);
    if (s.failed)
        Py_CLEAR(s.found);
    return s.found;
}

/* --- what the collector tracks ------------------------------------------------------------------
 */

static int visit_tuple(PyObject *o, void *argument)
{
    search *s = argument;
    if (PyTuple_CheckExact(o)) {
        size_t at = place_of(s, o);
        s->referred[at] = s->slot[at] != NULL;
    }
    return 0;
}

/* Marks the tuples in the list that other objects in it refer to. Makes no Python object, so no
 * other thread runs meanwhile. */
static bool mark_tuples(search *s, PyObject *all)
{
    size_t count = 0;

    for (Py_ssize_t i = 0; i < PyList_GET_SIZE(all); i++)
        count += PyTuple_CheckExact(PyList_GET_ITEM(all, i));
    if (!make_room(s, count) || (s->referred = calloc(s->mask + 1, sizeof(bool))) == NULL)
        return false;
    for (Py_ssize_t i = 0; i < PyList_GET_SIZE(all); i++) {
        PyObject *o = PyList_GET_ITEM(all, i);
        if (PyTuple_CheckExact(o))
            s->slot[place_of(s, o)] = o;
    }
    for (Py_ssize_t i = 0; i < PyList_GET_SIZE(all); i++) {
        PyObject *o = PyList_GET_ITEM(all, i);
        if (PyObject_IS_GC(o) && Py_TYPE(o)->tp_traverse != NULL)
            Py_TYPE(o)->tp_traverse(o, visit_tuple, s);
    }
    return true;
}

PyDoc_STRVAR(tracked_doc,
             "tracked(get_objects, keep_tuples, *arguments) -> list\n\n"
             "What gc.get_objects(*arguments) gives, with None for each tuple; keep_tuples: for "
             "those that nothing in it refers to. A frame may still be filling such a tuple: "
             "it must have the only reference when the tuple grows.");

static PyObject *tracked(PyObject *module, PyObject *const *args, Py_ssize_t count)
{
    search s = {0};

    if (count < 2)
        return PyErr_Format(PyExc_TypeError, "expected a function and a truth value");
    PyObject *all = PyObject_Vectorcall(args[0], args + 2, (size_t)(count - 2), NULL);
    if (all == NULL || !PyList_CheckExact(all)) {
        Py_XDECREF(all);
        return PyErr_Occurred() ? NULL : PyErr_Format(PyExc_TypeError, "expected a list");
    }
    bool keep = args[1] == Py_True, good = !keep || mark_tuples(&s, all);
    for (Py_ssize_t i = 0; i < PyList_GET_SIZE(all); i++) {
        PyObject *o = PyList_GET_ITEM(all, i);
        if (PyTuple_CheckExact(o) && !(keep && good && s.referred[place_of(&s, o)])) {
            PyList_SET_ITEM(all, i, Py_NewRef(Py_None));
            Py_DECREF(o); /* never the last reference */
        }
    }
    free(s.slot);
    free(s.referred);
    if (!good)
        Py_CLEAR(all);
    return good ? all : PyErr_NoMemory();
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
    {"referrers", referrers, METH_VARARGS, referrers_doc},
    {"reachable", reachable, METH_VARARGS, reachable_doc},
    {"tracked", (PyCFunction)(void (*)(void))tracked, METH_FASTCALL, tracked_doc},
    {"frame_locals", frame_locals, METH_O, frame_locals_doc},
    {NULL, NULL, 0, NULL},
};
