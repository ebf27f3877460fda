/* Which object refers to which, read once: all of them, or those in a list. A search by levels asks
 * it as often as it has levels, and a collection is told what it would free. Objects are read by
 * tp_traverse, as the collector does; none of their code runs. */
#include "module.h"

#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>

#include "../base/grow.h"
#include "py_arrays.h"

typedef struct graph {
    PyObject *objects;  /* list: what is read, None for each tuple that was left out */
    PyObject **address; /* of each, those left out, too: not to be read */
    uint32_t *referred; /* by how many objects that are not in it; without its list */
    uint32_t count;
    uint32_t *slot; /* one more than a place in the list, by address; 0: free */
    size_t mask;
    uint32_t *child; /* places of what is referred to, those of one referrer in a row */
    size_t room;
    uint32_t edges;
    uint32_t *first; /* of each referrer in child; one more than there are. Until it is read, 1: it
                        refers to nothing that counts */
    uint32_t *back;  /* the same edges by what is referred to ... */
    uint32_t *first_back;
    PyTypeObject *array; /* numpy.ndarray; NULL: not imported */
    PyObject **added;    /* untracked containers of arrays, which are to be read, too */
    size_t added_count, added_room;
    Py_ssize_t parts; /* of the object that is read, how many more */
    bool of_array;    /* that is an array of objects, into which a collection does not look */
    bool is_whole;    /* has all objects of the collector */
    bool failed;
} graph;

enum { AHEAD = 8 }; /* objects that are on their way into the cache */

static const char capsule_name[] = "cuptimem._core.object_graph";

static void forget_all_but_objects(graph *g)
{
    free(g->address);
    free(g->referred);
    free(g->slot);
    free(g->child);
    free(g->first);
    free(g->back);
    free(g->first_back);
    free(g->added);
    *g = (graph){.objects = g->objects, .is_whole = g->is_whole};
}

static void forget_graph(graph *g)
{
    Py_XDECREF(g->objects);
    forget_all_but_objects(g);
    free(g);
}

static void destroy(PyObject *capsule)
{
    forget_graph(PyCapsule_GetPointer(capsule, capsule_name));
}

/* Objects of one page of memory have neighbouring slots: they are made, and mostly referred to,
 * one after the other. */
static uint32_t *place_of(const graph *g, const PyObject *o)
{
    enum { PAGE = 12, ALIGNED = 4 };
    size_t page = (size_t)cm_mix((uintptr_t)o >> PAGE) << (PAGE - ALIGNED);
    size_t at = (page + ((uintptr_t)o >> ALIGNED) % (1 << (PAGE - ALIGNED))) & g->mask;
    while (g->slot[at] != 0 && g->address[g->slot[at] - 1] != o)
        at = (at + 1) & g->mask;
    return &g->slot[at];
}

static bool make_room(graph *g)
{
    size_t size = 64;
    while (size < (size_t)g->count * 3)
        size *= 2;
    g->mask = size - 1;
    g->slot = calloc(size, sizeof *g->slot);
    g->address = malloc(((size_t)g->count + 1) * sizeof *g->address);
    g->referred = calloc((size_t)g->count + 1, sizeof *g->referred);
    g->first = calloc((size_t)g->count + 1, sizeof *g->first);
    g->first_back = calloc((size_t)g->count + 2, sizeof *g->first_back);
    return g->slot != NULL && g->address != NULL && g->referred != NULL && g->first != NULL &&
           g->first_back != NULL;
}

static int add_container(graph *g, PyObject *o)
{
    g->failed =
        !cm_grow((void **)&g->added, &g->added_room, g->added_count + 1, sizeof(PyObject *));
    if (!g->failed)
        g->added[g->added_count++] = o;
    return g->failed;
}

static int visit(PyObject *o, void *argument)
{
    graph *g = argument;
    if (g->parts-- <= 0)
        return 1;
    uint32_t place = *place_of(g, o);
    if (place == 0 && g->array != NULL) {
        if (Py_TYPE(o) == g->array) {
            o = cm_py_array_owner(g->array, o);
            place = *place_of(g, o);
            if (place != 0)
                g->referred[place - 1]++; /* by the array, which is not in the graph */
        }
        if (place == 0 && g->is_whole && cm_py_leads_to_tensor(g->array, o))
            return add_container(g, o);
    }
    if (place == 0)
        return 0;
    g->referred[place - 1] += g->of_array;
    if (g->edges == UINT32_MAX ||
        !cm_grow((void **)&g->child, &g->room, (size_t)g->edges + 1, sizeof *g->child)) {
        g->failed = true;
        return 1;
    }
    g->child[g->edges++] = place - 1;
    return 0;
}

static void read_object(graph *g, uint32_t at, Py_ssize_t parts)
{
    PyObject *o = g->address[at];
    Py_ssize_t count = Py_REFCNT(o) - 1 + g->referred[at]; /* without the list's */
    bool counts = g->first[at] == 0;

    g->first[at] = g->edges;
    g->referred[at] = count > UINT32_MAX ? UINT32_MAX : (uint32_t)count;
    if (!counts)
        return;
    g->parts = parts > 0 ? parts : PY_SSIZE_T_MAX;
    g->of_array = Py_TYPE(o) == g->array;
    cm_py_traverse(g->array, o, visit, g);
}

/* Sorts the edges by what is referred to, in each of these in the order of referrers. */
static bool turn_round(graph *g)
{
    g->back = malloc(((size_t)g->edges + 1) * sizeof *g->back);
    if (g->back == NULL)
        return false;
    uint32_t *next = g->first_back + 1; /* becomes first_back as it is filled */
    for (uint32_t e = 0; e < g->edges; e++)
        next[g->child[e] + 1]++;
    for (uint32_t i = 1; i <= g->count; i++)
        next[i] += next[i - 1];
    for (uint32_t e = 0; e < g->edges; e++)
        g->back[next[g->child[e]]++] = e;
    return true;
}

static bool read_all(graph *g, Py_ssize_t parts)
{
    g->count = (uint32_t)PyList_GET_SIZE(g->objects);
    g->array = cm_py_array_type();
    if (!make_room(g))
        return false;
    for (uint32_t i = 0; i < g->count; i++) {
        PyObject *o = g->address[i] = PyList_GET_ITEM(g->objects, i);
        uint32_t *place = place_of(g, o);
        /* Or it comes twice. */
        g->first[i] = *place != 0 || !(PyObject_IS_GC(o) || Py_TYPE(o) == g->array);
        if (g->first[i] == 0)
            *place = i + 1;
    }
    for (uint32_t i = 0; i < g->count && !g->failed; i++) {
        if (i + AHEAD < g->count)
            __builtin_prefetch(g->address[i + AHEAD]);
        read_object(g, i, parts);
    }
    g->first[g->count] = g->edges;
    if (g->failed || !turn_round(g))
        return false;
    for (uint32_t i = 0; i < g->count; i++) {
        uint32_t inside = g->first_back[i + 1] - g->first_back[i];
        g->referred[i] -= inside < g->referred[i] ? inside : g->referred[i];
    }
    return true;
}

static int compare_addresses(const void *a, const void *b)
{
    const PyObject *one = *(PyObject *const *)a, *other = *(PyObject *const *)b;
    return (one > other) - (one < other);
}

/* All objects again, until no untracked container is found that leads to a tensor, or there are as
 * many as may be. */
static bool read_with_arrays(graph *g, Py_ssize_t parts, Py_ssize_t most)
{
    for (bool good = true;;) {
        if (!read_all(g, parts))
            return false;
        Py_ssize_t count = PyList_GET_SIZE(g->objects) + (Py_ssize_t)g->added_count;
        if (g->added_count == 0 || (most > 0 && count > most))
            return true;
        cm_sort(g->added, g->added_count, sizeof *g->added, compare_addresses);
        for (size_t i = 0; good && i < g->added_count; i++)
            if (i == 0 || g->added[i] != g->added[i - 1])
                good = PyList_Append(g->objects, g->added[i]) == 0;
        if (!good)
            return false;
        forget_all_but_objects(g);
    }
}

/* A frame may still be filling such a tuple: it must have the only reference when that grows. */
static void leave_tuples_out(graph *g)
{
    for (uint32_t i = 0; i < g->count; i++) {
        PyObject *o = g->address[i];
        if (PyTuple_CheckExact(o) && g->first_back[i] == g->first_back[i + 1]) {
            PyList_SET_ITEM(g->objects, i, Py_NewRef(Py_None));
            Py_DECREF(o); /* never the last reference */
        }
    }
}

PyDoc_STRVAR(object_graph_doc,
             "object_graph(objects, parts=0, most=0) -> capsule or None\n\n"
             "What refers to what among these objects: a list, or gc.get_objects, for all but "
             "tuples that none of them refers to. parts: of one object that are read; 0: all. "
             "None: there are more than `most`, which is not 0.");

static PyObject *object_graph(PyObject *module, PyObject *arguments)
{
    PyObject *source, *capsule = NULL;
    Py_ssize_t parts = 0, most = 0;

    if (!PyArg_ParseTuple(arguments, "O|nn", &source, &parts, &most))
        return NULL;
    graph *g = calloc(1, sizeof *g);
    if (g == NULL)
        return PyErr_NoMemory();
    g->is_whole = !PyList_CheckExact(source);
    g->objects = g->is_whole ? PyObject_CallNoArgs(source) : Py_NewRef(source);
    if (g->objects != NULL && !PyList_CheckExact(g->objects))
        PyErr_SetString(PyExc_TypeError, "expected a list");
    else if (g->objects != NULL && most > 0 && PyList_GET_SIZE(g->objects) > most) {
        forget_graph(g);
        Py_RETURN_NONE;
    }
    /* From here to the last tuple no object of the collector's is made, so no other thread runs. */
    else if (g->objects != NULL &&
             (PyList_GET_SIZE(g->objects) >= UINT32_MAX || !read_with_arrays(g, parts, most)))
        PyErr_NoMemory();
    else if (g->objects != NULL) {
        if (g->is_whole)
            leave_tuples_out(g);
        capsule = PyCapsule_New(g, capsule_name, destroy);
    }
    if (capsule == NULL)
        forget_graph(g);
    return capsule;
}

PyDoc_STRVAR(graph_objects_doc, "graph_objects(graph) -> list\n\nThe objects: not to be changed.");

static PyObject *graph_objects(PyObject *module, PyObject *capsule)
{
    const graph *g = PyCapsule_GetPointer(capsule, capsule_name);
    return g == NULL ? NULL : Py_NewRef(g->objects);
}

PyDoc_STRVAR(graph_restore_doc, "graph_restore(graph, tuples)\n\nPuts those of the list back that "
                                "were left out: variables have them, so they are whole.");

static PyObject *graph_restore(PyObject *module, PyObject *arguments)
{
    PyObject *capsule, *tuples;
    if (!PyArg_ParseTuple(arguments, "OO!", &capsule, &PyList_Type, &tuples))
        return NULL;
    const graph *g = PyCapsule_GetPointer(capsule, capsule_name);
    if (g == NULL)
        return NULL;
    for (Py_ssize_t i = 0; i < PyList_GET_SIZE(tuples); i++) {
        PyObject *o = PyList_GET_ITEM(tuples, i);
        uint32_t place = *place_of(g, o);
        if (place != 0 && PyList_GET_ITEM(g->objects, place - 1) == Py_None)
            PyList_SetItem(g->objects, place - 1, Py_NewRef(o));
    }
    Py_RETURN_NONE;
}

static uint32_t referrer_of(const graph *g, uint32_t edge)
{
    uint32_t low = 0, high = g->count; /* first[low] <= edge < first[high] */
    while (high - low > 1) {
        uint32_t middle = low + (high - low) / 2;
        if (g->first[middle] <= edge)
            low = middle;
        else
            high = middle;
    }
    return low;
}

static int compare_edges(const void *a, const void *b)
{
    uint32_t one = *(const uint32_t *)a, other = *(const uint32_t *)b;
    return (one > other) - (one < other);
}

/* The edges that lead to these objects, in the order of referrers. false: no memory. */
static bool edges_to(const graph *g, PyObject *wanted, uint32_t **edges, size_t *count)
{
    size_t room = 0;
    bool *done = calloc((size_t)g->count + 1, sizeof *done), good = done != NULL;

    for (Py_ssize_t i = 0; good && i < PyList_GET_SIZE(wanted); i++) {
        uint32_t place = *place_of(g, PyList_GET_ITEM(wanted, i));
        if (place == 0 || done[place - 1])
            continue;
        done[place - 1] = true;
        const uint32_t *range = &g->first_back[place - 1];
        size_t more = range[1] - range[0];
        good = cm_grow((void **)edges, &room, *count + more, sizeof **edges);
        if (good && more > 0)
            memcpy(*edges + *count, g->back + range[0], more * sizeof **edges);
        *count += more;
    }
    free(done);
    cm_sort(*edges, good ? *count : 0, sizeof **edges, compare_edges);
    return good;
}

PyDoc_STRVAR(graph_referrers_doc,
             "graph_referrers(graph, wanted, most) -> list\n\n"
             "In turn, each object that refers to one of this list, and that one; `most` such "
             "pairs.");

static PyObject *graph_referrers(PyObject *module, PyObject *arguments)
{
    PyObject *capsule, *wanted;
    Py_ssize_t most;
    uint32_t *edges = NULL;
    size_t count = 0;

    if (!PyArg_ParseTuple(arguments, "OO!n", &capsule, &PyList_Type, &wanted, &most))
        return NULL;
    const graph *g = PyCapsule_GetPointer(capsule, capsule_name);
    if (g == NULL)
        return NULL;
    if (!edges_to(g, wanted, &edges, &count)) {
        free(edges);
        return PyErr_NoMemory();
    }
    PyObject *found = PyList_New(0);
    for (size_t i = 0; found != NULL && i < count && PyList_GET_SIZE(found) < most * 2; i++) {
        PyObject *referrer = PyList_GET_ITEM(g->objects, referrer_of(g, edges[i]));
        if (referrer != Py_None && (PyList_Append(found, referrer) < 0 ||
                                    PyList_Append(found, g->address[g->child[edges[i]]]) < 0))
            Py_CLEAR(found);
    }
    free(edges);
    return found;
}

/* Marks what objects outside of the graph refer to, and what that leads to. false: no memory. */
static bool mark_reached(const graph *g, bool *reached)
{
    uint32_t *pending = malloc(((size_t)g->count + 1) * sizeof *pending), left = 0;

    for (uint32_t i = 0; pending != NULL && i < g->count; i++)
        if (g->referred[i] > 0) {
            reached[i] = true;
            pending[left++] = i;
        }
    while (left > 0) {
        uint32_t one = pending[--left];
        for (uint32_t e = g->first[one]; e < g->first[one + 1]; e++)
            if (!reached[g->child[e]]) {
                reached[g->child[e]] = true;
                pending[left++] = g->child[e];
            }
    }
    free(pending);
    return pending != NULL;
}

PyDoc_STRVAR(graph_garbage_doc,
             "graph_garbage(graph) -> list or None\n\n"
             "The objects that nothing outside of the graph led to when it was read: what a "
             "collection would have freed. None: it has not all objects of the collector.");

static PyObject *graph_garbage(PyObject *module, PyObject *capsule)
{
    const graph *g = PyCapsule_GetPointer(capsule, capsule_name);
    if (g == NULL)
        return NULL;
    if (!g->is_whole)
        Py_RETURN_NONE;
    bool *reached = calloc((size_t)g->count + 1, sizeof *reached);
    if (reached == NULL || !mark_reached(g, reached)) {
        free(reached);
        return PyErr_NoMemory();
    }
    PyObject *found = PyList_New(0);
    for (uint32_t i = 0; found != NULL && i < g->count; i++)
        if (!reached[i] && PyObject_IS_GC(g->address[i]) &&
            PyList_Append(found, PyList_GET_ITEM(g->objects, i)) < 0)
            Py_CLEAR(found);
    free(reached);
    return found;
}

PyMethodDef cm_py_object_graph_methods[] = {
    {"object_graph", object_graph, METH_VARARGS, object_graph_doc},
    {"graph_objects", graph_objects, METH_O, graph_objects_doc},
    {"graph_restore", graph_restore, METH_VARARGS, graph_restore_doc},
    {"graph_referrers", graph_referrers, METH_VARARGS, graph_referrers_doc},
    {"graph_garbage", graph_garbage, METH_O, graph_garbage_doc},
    {NULL, NULL, 0, NULL},
};
