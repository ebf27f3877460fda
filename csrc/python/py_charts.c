/* Parses the spans of charts for analyze(). */
#include "py_build.h"

#include <string.h>

/* Unlike the formats of PyArg_ParseTuple, it refuses numbers that do not fit. */
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
