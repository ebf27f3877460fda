/* Analyses as plain Python objects: one dict of numbers, tuples and strings per trace. */
#include "py_fields.h"

#include <stdbool.h>
#include <string.h>

#include "../analysis/analysis.h"
#include "../heap/node_name.h"
#include "../base/library.h"
#include "../base/clock.h"

typedef cm_py_builder builder;

static PyObject *build(const cm_reader *reader, const cm_analysis *analysis, uint32_t tables)
{
    builder b = {.reader = reader,
                 .analysis = analysis,
                 .tables = tables,
                 .stacks = PyDict_New(),
                 .frames = PyDict_New(),
                 .names = PyDict_New(),
                 .strings = PyDict_New()};
    PyObject *dict = NULL;
    cm_py_allow(&b);
    if (b.stacks != NULL && b.frames != NULL && b.names != NULL && b.strings != NULL &&
        cm_py_sort_holders(&b))
        dict = cm_py_build(&b, &cm_py_report_fields, analysis, analysis);
    Py_XDECREF(b.stacks);
    Py_XDECREF(b.frames);
    PyMem_Free(b.holders);
    Py_XDECREF(b.names);
    Py_XDECREF(b.strings);
    return dict;
}

/* --- a trace that is read repeatedly --------------------------------------------------------- */

static const char capsule_name[] = "cuptimem trace";

/* Guarded by the GIL, except reader, engine and before while one thread has it `used`. */
typedef struct source {
    cm_reader *reader; /* NULL: to be opened */
    cm_engine *engine;
    uint64_t before, decoded; /* records: by earlier readers; in all, when last used */
    bool used;
    char path[];
} source;

static void close_source(source *s)
{
    cm_engine_free(s->engine);
    if (s->reader != NULL)
        s->before += cm_reader_decoded(s->reader);
    cm_reader_close(s->reader);
    s->engine = NULL;
    s->reader = NULL;
}

static void forget_source(PyObject *capsule)
{
    source *s = PyCapsule_GetPointer(capsule, capsule_name);
    close_source(s);
    PyMem_Free(s);
}

PyDoc_STRVAR(trace_doc,
             "trace(path) -> object\n\n"
             "A trace for analyze() and extract(): what they have read of it is not read "
             "again, also\nwhen the file grows. Windows that are asked for in their order "
             "cost one reading\nof it together.");

static PyObject *new_source(PyObject *module, PyObject *path)
{
    PyObject *bytes;
    if (!PyUnicode_FSConverter(path, &bytes))
        return NULL;
    size_t size = (size_t)PyBytes_GET_SIZE(bytes) + 1;
    source *s = PyMem_Malloc(sizeof *s + size);
    if (s == NULL) {
        Py_DECREF(bytes);
        return PyErr_NoMemory();
    }
    *s = (source){0};
    memcpy(s->path, PyBytes_AS_STRING(bytes), size);
    Py_DECREF(bytes);
    PyObject *capsule = PyCapsule_New(s, capsule_name, forget_source);
    if (capsule == NULL)
        PyMem_Free(s);
    return capsule;
}

PyDoc_STRVAR(trace_decoded_doc,
             "trace_decoded(trace) -> int\n\n"
             "Records that were decoded, those that were read twice counted twice.");

static PyObject *trace_decoded(PyObject *module, PyObject *capsule)
{
    source *s = PyCapsule_GetPointer(capsule, capsule_name);
    if (s == NULL)
        return NULL;
    return PyLong_FromUnsignedLongLong(s->decoded);
}

/* The source of a trace or a path; the caller releases the object. If another thread, or the code
 * that a signal handler interrupted, uses it, the result is a source of its own. */
static PyObject *use_source(PyObject *named, source **out)
{
    if (!PyCapsule_IsValid(named, capsule_name)) {
        named = new_source(NULL, named);
    } else {
        *out = PyCapsule_GetPointer(named, capsule_name);
        if (!(*out)->used) {
            Py_INCREF(named);
        } else {
            PyObject *path = PyUnicode_DecodeFSDefault((*out)->path);
            named = path == NULL ? NULL : new_source(NULL, path);
            Py_XDECREF(path);
        }
    }
    if (named != NULL) {
        *out = PyCapsule_GetPointer(named, capsule_name);
        (*out)->used = true;
    }
    return named;
}

/* Without the GIL. */
static bool open_source(source *s, char *error, size_t error_size)
{
    if (s->reader != NULL &&
        (!cm_reader_reopen(s->reader) || (s->engine != NULL && !cm_engine_follow(s->engine))))
        close_source(s);
    if (s->reader == NULL)
        s->reader = cm_reader_open(s->path, error, error_size);
    if (s->reader == NULL)
        return false;
    if (s->engine == NULL)
        s->engine = cm_engine_new(s->reader);
    if (s->engine == NULL)
        snprintf(error, error_size, "out of memory");
    return s->engine != NULL;
}

static void leave_source(source *s)
{
    if (s->reader != NULL)
        cm_reader_close_file(s->reader);
    s->decoded = s->before + (s->reader != NULL ? cm_reader_decoded(s->reader) : 0);
    s->used = false;
}

PyDoc_STRVAR(
    analyze_doc,
    "analyze(path, *, window=0, step=None, points=0, ledger_at_ns=-1, min_rate=-1.0,\n"
    "        progress=None, code=None, tables=(), again=False, charts=(),\n"
    "        lives=False) -> dict\n\n"
    "What the trace (a path, or trace(path)) says, as plain numbers (bytes, nanoseconds since\n"
    "its start). With\n"
    "`window` only that window; with `step` (-1 is the last) the devices' contributors, and the\n"
    "`tables` that were named, are those of that step; with `ledger_at_ns` there is a ledger of\n"
    "the moment nearest to it, too; with `min_rate` what grows by fewer bytes a step is\n"
    "negligible; with `again` the same window is soon asked for once more. code: packages that "
    "count as the user's own, with commas\n"
    "between them (None: those that the trace names). charts: spans to draw, (begin ns, end ns,\n"
    "intervals, entries, blocks[, device]) each, cuptimem/report/chart.py. lives: with single "
    "blocks around the peaks.\n"
    "progress(share) is called at most ten times a second; False cancels\n"
    "with KeyboardInterrupt. Raises Error with one line for what cannot be read.");

static bool find_tables(PyObject *names, uint32_t *wanted)
{
    PyObject *list = names == NULL ? PyTuple_New(0) : PySequence_Fast(names, "tables is a list");
    bool fine = list != NULL;
    for (Py_ssize_t i = 0; fine && i < PySequence_Fast_GET_SIZE(list); i++) {
        PyObject *name = PySequence_Fast_GET_ITEM(list, i);
        uint32_t found = 0;
        for (size_t kind = 0; kind < CM_TABLES && PyUnicode_Check(name); kind++)
            if (PyUnicode_CompareWithASCIIString(name, cm_py_tables[kind]) == 0)
                found = CM_TABLE(kind);
        *wanted |= found;
        fine = found != 0;
        if (!fine)
            PyErr_Format(PyExc_ValueError, "no table %R", name);
    }
    Py_XDECREF(list);
    return fine;
}

static PyObject *analyze(PyObject *module, PyObject *arguments, PyObject *keywords)
{
    static char *names[] = {"path",     "window",   "step", "points", "ledger_at_ns",
                            "min_rate", "progress", "code", "tables", "again",
                            "charts",   "lives",    NULL};
    PyObject *named, *progress = Py_None;
    PyObject *step = Py_None, *tables = NULL, *charts = NULL;
    unsigned long long window = 0;
    long long ledger_at = -1;
    double min_rate = -1;
    Py_ssize_t points = 0;
    int again = 0, lives = 0;
    const char *code = NULL;
    if (!PyArg_ParseTupleAndKeywords(arguments, keywords, "O|$KOnLdOzOpOp", names, &named, &window,
                                     &step, &points, &ledger_at, &min_rate, &progress, &code,
                                     &tables, &again, &charts, &lives))
        return NULL;
    if (points < 0 || points > 1 << 24) {
        PyErr_SetString(PyExc_ValueError, "points is out of range");
        return NULL;
    }
    bool of_step = step != Py_None;
    long long number = of_step ? PyLong_AsLongLong(step) : 0;
    uint32_t wanted = 0;
    cm_chart_span spans[CM_CHART_SPANS_MAX];
    size_t span_count = 0;
    source *s;
    if ((of_step && number == -1 && PyErr_Occurred()) || !find_tables(tables, &wanted) ||
        !cm_py_chart_spans(charts, spans, &span_count) || (named = use_source(named, &s)) == NULL)
        return NULL;
    char error[512] = "";
    cm_py_watcher w = cm_py_watch(progress);
    cm_analysis_options options = {.window = window,
                                   .again = again != 0,
                                   .of_step = of_step,
                                   .step = number,
                                   .tables = wanted,
                                   .charts = spans,
                                   .chart_count = span_count,
                                   .lives = lives != 0,
                                   .timeline_points = (size_t)points,
                                   .ledger_at_ns = ledger_at,
                                   .code = code,
                                   .has_min_rate = min_rate >= 0,
                                   .min_rate = min_rate,
                                   .progress = cm_py_watched,
                                   .progress_context = &w};
    cm_analysis *analysis = NULL;
    PyObject *result = NULL;

    PyThreadState *saved = PyEval_SaveThread();
    if (open_source(s, error, sizeof error))
        analysis = cm_engine_analyze(s->engine, &options, error, sizeof error);
    PyEval_RestoreThread(saved);

    if (analysis != NULL)
        result = build(s->reader, analysis, options.tables);
    else if (!PyErr_Occurred())
        cm_py_fail(error);
    cm_analysis_free(analysis);
    leave_source(s);
    Py_DECREF(named);
    return result;
}

PyDoc_STRVAR(
    extract_doc,
    "extract(source, target, window, code=\"\", title=\"\")\n\nWrites what that window "
    "saw as a trace of its own, "
    "with what was alive when it\nopened; `code` is what it names as the "
    "user's own, `title` what views call it. Raises Error with one line, and leaves no file "
    "then; the target must not exist.");

static PyObject *extract(PyObject *module, PyObject *arguments, PyObject *keywords)
{
    static char *names[] = {"source", "target", "window", "code", "title", NULL};
    PyObject *named, *target;
    unsigned long long window;
    const char *code = "", *title = "";
    if (!PyArg_ParseTupleAndKeywords(arguments, keywords, "OO&K|ss", names, &named,
                                     PyUnicode_FSConverter, &target, &window, &code, &title))
        return NULL;
    char error[512] = "";
    source *s;
    named = use_source(named, &s);
    if (named == NULL) {
        Py_DECREF(target);
        return NULL;
    }
    PyThreadState *saved = PyEval_SaveThread();
    bool fine = open_source(s, error, sizeof error) &&
                cm_engine_extract(s->engine, PyBytes_AS_STRING(target), window, code, title, error,
                                  sizeof error);
    PyEval_RestoreThread(saved);

    leave_source(s);
    Py_DECREF(named);
    Py_DECREF(target);
    if (!fine)
        return cm_py_fail(error);
    Py_RETURN_NONE;
}

PyDoc_STRVAR(
    is_library_doc,
    "is_library(file, code=\"\", script=\"\") -> bool\n\nWhether code in this file belongs "
    "to an installed package that is not among those\nof `code` (with commas between them) "
    "or to Python, or was generated by a library of\nthe program `script`.");

static PyObject *is_library(PyObject *module, PyObject *arguments)
{
    PyObject *file, *script = NULL;
    const char *code = "";
    if (!PyArg_ParseTuple(arguments, "U|sO&", &file, &code, PyUnicode_FSConverter, &script))
        return NULL;
    PyObject *found = NULL, *bytes = PyUnicode_AsEncodedString(file, "utf-8", "replace");
    if (bytes != NULL) {
        const char *path = script != NULL ? PyBytes_AS_STRING(script) : NULL;
        cm_library *library = cm_library_new(code, path, NULL);
        found = library == NULL
                    ? PyErr_NoMemory()
                    : PyBool_FromLong(cm_library_has(library, PyBytes_AS_STRING(bytes)));
        cm_library_free(library);
    }
    Py_XDECREF(bytes);
    Py_XDECREF(script);
    return found;
}

PyMethodDef cm_py_analysis_methods[] = {
    {"analyze", (PyCFunction)(void (*)(void))analyze, METH_VARARGS | METH_KEYWORDS, analyze_doc},
    {"extract", (PyCFunction)(void (*)(void))extract, METH_VARARGS | METH_KEYWORDS, extract_doc},
    {"trace", new_source, METH_O, trace_doc},
    {"trace_decoded", trace_decoded, METH_O, trace_decoded_doc},
    {"is_library", is_library, METH_VARARGS, is_library_doc},
    {NULL, NULL, 0, NULL},
};
