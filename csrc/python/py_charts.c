/* Charts as columns of 64-bit integers in bytes objects, for array.frombytes. */
#include "py_build.h"

#include <string.h>

/* Unlike the formats of PyArg_ParseTuple, it refuses what does not fit. */
static int to_number(PyObject *object, void *number)
{
    unsigned long long *out = number;
    *out = PyLong_AsUnsignedLongLong(object);
    return *out != (unsigned long long)-1 || !PyErr_Occurred();
}

static bool read_span(PyObject *row, cm_chart_span *span)
{
    unsigned long long begin, end, intervals, entries, blocks;
    const char *device = NULL;
    if (!PyTuple_Check(row)) {
        PyErr_SetString(PyExc_TypeError, "a span of a chart is a tuple");
        return false;
    }
    if (!PyArg_ParseTuple(row, "O&O&O&O&O&|z", to_number, &begin, to_number, &end, to_number,
                          &intervals, to_number, &entries, to_number, &blocks, &device))
        return false;
    if (intervals < 1 || intervals > CM_CHART_INTERVALS_MAX || begin > end || entries > 1u << 28 ||
        blocks > 1u << 28 || (device != NULL && strlen(device) >= sizeof span->device)) {
        PyErr_SetString(PyExc_ValueError, "a span of a chart is out of range");
        return false;
    }
    *span =
        (cm_chart_span){begin, end, (uint32_t)intervals, (uint32_t)entries, (uint32_t)blocks, ""};
    if (device != NULL)
        memcpy(span->device, device, strlen(device) + 1);
    return true;
}

bool cm_py_chart_spans(PyObject *rows, cm_chart_span *spans, size_t *count)
{
    PyObject *list = rows == NULL ? PyTuple_New(0) : PySequence_Fast(rows, "charts is a list");
    bool fine = list != NULL;
    if (fine && PySequence_Fast_GET_SIZE(list) > CM_CHART_SPANS_MAX) {
        PyErr_Format(PyExc_ValueError, "at most %d spans of charts", (int)CM_CHART_SPANS_MAX);
        fine = false;
    }
    for (Py_ssize_t i = 0; fine && i < PySequence_Fast_GET_SIZE(list); i++)
        fine = read_span(PySequence_Fast_GET_ITEM(list, i), &spans[(*count)++]);
    Py_XDECREF(list);
    return fine;
}

/* The integer of `width` bytes (4 or 8) at `offset` of each of `count` elements of `size` bytes. */
static PyObject *column(const void *array, size_t count, size_t size, size_t offset, size_t width)
{
    PyObject *bytes = PyBytes_FromStringAndSize(NULL, (Py_ssize_t)(count * sizeof(int64_t)));
    if (bytes == NULL)
        return NULL;
    char *to = PyBytes_AS_STRING(bytes);
    const char *from = (const char *)array + offset;
    for (size_t i = 0; i < count; i++) {
        int32_t narrow;
        int64_t wide;
        if (width == sizeof narrow) {
            memcpy(&narrow, from + i * size, sizeof narrow);
            wide = narrow;
        } else {
            memcpy(&wide, from + i * size, sizeof wide);
        }
        memcpy(to + i * sizeof wide, &wide, sizeof wide);
    }
    return bytes;
}

#define COLUMN(array, count, field)                                                                \
    column(array, count, sizeof *(array), offsetof(__typeof__(*(array)), field),                   \
           sizeof((array)->field))
#define OF_INTERVALS(field) COLUMN(c->interval, c->interval_count, field)
#define OF_ENTRIES(field) COLUMN(c->entry, c->entry_count, field)
#define OF_BLOCKS(field) COLUMN(c->block, c->block_count, field)

static PyObject *phase_columns(const cm_chart *c)
{
    PyObject *list = PyList_New(0);
    for (size_t i = 0; list != NULL && i < CM_CHART_PHASES; i++)
        if (cm_py_append(list, OF_INTERVALS(allocations[i])) < 0)
            Py_CLEAR(list);
    return list;
}

static PyObject *chart_dict(cm_py_builder *b, const cm_chart *c)
{
    PyObject *intervals = Py_BuildValue(
        "{s:N,s:N,s:N,s:N,s:N,s:N,s:N,s:N}", "begin_ns", OF_INTERVALS(begin_ns), "high_ns",
        OF_INTERVALS(high_ns), "low", OF_INTERVALS(low), "high", OF_INTERVALS(high), "reserved",
        OF_INTERVALS(reserved), "allocated", OF_INTERVALS(allocated), "freed", OF_INTERVALS(freed),
        "phases", phase_columns(c));
    PyObject *entries = Py_BuildValue("{s:N,s:N,s:N,s:N,s:N,s:N}", "contributor",
                                      OF_ENTRIES(contributor), "interval", OF_ENTRIES(interval),
                                      "high", OF_ENTRIES(high), "end", OF_ENTRIES(end), "allocated",
                                      OF_ENTRIES(allocated), "freed", OF_ENTRIES(freed));
    PyObject *blocks = Py_BuildValue(
        "{s:N,s:N,s:N,s:N,s:N,s:N,s:N}", "address", OF_BLOCKS(address), "bytes", OF_BLOCKS(bytes),
        "begin_ns", OF_BLOCKS(begin_ns), "end_ns", OF_BLOCKS(end_ns), "contributor",
        OF_BLOCKS(contributor), "step", OF_BLOCKS(step), "end_step", OF_BLOCKS(end_step));
    return Py_BuildValue("{s:s,s:I,s:L,s:L,s:N,s:N,s:N,s:N,s:L,s:L,s:L}", "device",
                         b->analysis->device[c->device].name, "span", c->span, "begin_ns",
                         (long long)c->begin_ns, "end_ns", (long long)c->end_ns, "intervals",
                         intervals, "contributors",
                         cm_py_contributors(b, c->contributor, c->contributor_count), "entries",
                         entries, "blocks", blocks, "hidden", (long long)c->hidden, "least_block",
                         (long long)c->least_block, "least_survivor", (long long)c->least_survivor);
}

PyObject *cm_py_charts(cm_py_builder *b)
{
    PyObject *list = PyList_New(0);
    for (size_t i = 0; list != NULL && i < b->analysis->chart_count; i++)
        if (cm_py_append(list, chart_dict(b, &b->analysis->charts[i])) < 0)
            Py_CLEAR(list);
    return list;
}
