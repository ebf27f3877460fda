/* cuptimem._core.Reader: a trace's contents in batches of plain tuples, in bounded memory. */
#include "py_reader.h"

#include "py_build.h"

#include <stdlib.h>
#include <string.h>

#include "../exports/live.h"

enum { BATCH = 4096 };

static const char *const kind_names[] = {
    [CM_ITEM_START] = "start",
    [CM_ITEM_ALLOC] = "alloc",
    [CM_ITEM_FREE] = "free",
    [CM_ITEM_REQUESTED] = "requested",
    [CM_ITEM_RESERVED] = "reserved",
    [CM_ITEM_SEGMENT_NEW] = "segment_new",
    [CM_ITEM_SEGMENT_FREE] = "segment_free",
    [CM_ITEM_OOM] = "oom",
    [CM_ITEM_STEP] = "step",
    [CM_ITEM_LAUNCH] = "launch",
    [CM_ITEM_WORK] = "work",
    [CM_ITEM_RESIDENT] = "resident",
    [CM_ITEM_COMPACTED] = "compacted",
    [CM_ITEM_LEFT_OUT] = "left_out",
    [CM_ITEM_LOST] = "lost",
    [CM_ITEM_MAPPED] = "mapped",
    [CM_ITEM_UNMAPPED] = "unmapped",
};
enum { KINDS = sizeof kind_names / sizeof kind_names[0], PHASES = CM_PHASE_BEFORE_START + 1 };
static const char *const work_names[] = {
    [0] = "work",          [CM_WORK_KERNEL] = "kernel", [CM_WORK_COPY] = "copy",
    [CM_WORK_SET] = "set", [CM_WORK_GRAPH] = "graph",
};

/* Guarded by the GIL, except stream and item while one thread has it `used`. That lasts until the
 * objects are made, because making them may run finalizers and other threads. */
typedef struct reader {
    PyObject_HEAD
    cm_reader *reader;
    cm_stream *stream;
    cm_item *item; /* BATCH of them */
    bool used, over;
    bool lent; /* to an export, which formats the items: stacks may be asked for meanwhile */
    cm_py_builder build;
    PyObject *kind[KINDS], *phase[PHASES], *category[CM_CATEGORIES]; /* their names, made once */
    PyObject *devices;                                               /* number -> str */
} reader;

static const char in_use[] = "this Reader is being read by another thread, or further out";

/* Whether it may move on, or end. */
static bool is_at_rest(const reader *r)
{
    if (r->used || r->lent)
        PyErr_SetString(PyExc_RuntimeError, in_use);
    return !r->used && !r->lent;
}

static bool is_free(const reader *r)
{
    if (r->used)
        PyErr_SetString(PyExc_RuntimeError, in_use);
    else if (r->stream == NULL)
        PyErr_SetString(PyExc_ValueError, "this Reader is closed");
    return !r->used && r->stream != NULL;
}

/* --- opening and closing -------------------------------------------------------------------- */

static void release(reader *r)
{
    cm_stream_close(r->stream);
    cm_reader_close(r->reader);
    free(r->item);
    r->stream = NULL;
    r->reader = NULL;
    r->item = NULL;
    r->over = true;
}

static void reader_dealloc(PyObject *self)
{
    reader *r = (reader *)self;
    PyTypeObject *type = Py_TYPE(self);
    release(r);
    Py_CLEAR(r->build.stacks);
    Py_CLEAR(r->build.frames);
    Py_CLEAR(r->build.names);
    Py_CLEAR(r->build.strings);
    Py_CLEAR(r->devices);
    for (size_t i = 0; i < KINDS; i++)
        Py_CLEAR(r->kind[i]);
    for (size_t i = 0; i < PHASES; i++)
        Py_CLEAR(r->phase[i]);
    for (size_t i = 0; i < CM_CATEGORIES; i++)
        Py_CLEAR(r->category[i]);
    type->tp_free(self);
    Py_DECREF(type);
}

static bool make_objects(reader *r)
{
    r->build.stacks = PyDict_New();
    r->build.frames = PyDict_New();
    r->build.names = PyDict_New();
    r->build.strings = PyDict_New();
    r->devices = PyDict_New();
    bool fine = r->build.stacks != NULL && r->build.frames != NULL && r->build.names != NULL &&
                r->build.strings != NULL && r->devices != NULL;
    for (size_t i = 0; fine && i < KINDS; i++)
        fine = (r->kind[i] = PyUnicode_InternFromString(kind_names[i])) != NULL;
    for (size_t i = 0; fine && i < PHASES; i++)
        fine = (r->phase[i] = PyUnicode_InternFromString(cm_py_phases[i])) != NULL;
    for (size_t i = 0; fine && i < CM_CATEGORIES; i++)
        fine = (r->category[i] = PyUnicode_InternFromString(cm_py_categories[i])) != NULL;
    if (fine && (r->item = malloc(BATCH * sizeof *r->item)) == NULL) {
        PyErr_NoMemory();
        fine = false;
    }
    return fine;
}

static PyObject *reader_new(PyTypeObject *type, PyObject *arguments, PyObject *keywords)
{
    static char *names[] = {"path", "window", "code", "progress", NULL};
    PyObject *path, *progress = Py_None;
    unsigned long long window = 0;
    const char *code = NULL;
    if (!PyArg_ParseTupleAndKeywords(arguments, keywords, "O&|KzO", names, PyUnicode_FSConverter,
                                     &path, &window, &code, &progress))
        return NULL;
    reader *r = (reader *)type->tp_alloc(type, 0);
    if (r == NULL || !make_objects(r)) {
        Py_DECREF(path);
        Py_XDECREF(r);
        return NULL;
    }
    char error[512] = "";
    cm_py_watcher watcher = cm_py_watch(progress);
    cm_analysis_options options = {
        .window = window, .code = code, .progress = cm_py_watched, .progress_context = &watcher};
    PyThreadState *saved = PyEval_SaveThread();
    r->reader = cm_reader_open(PyBytes_AS_STRING(path), error, sizeof error);
    if (r->reader != NULL)
        r->stream = cm_stream_open(r->reader, &options, error, sizeof error);
    PyEval_RestoreThread(saved);

    Py_DECREF(path);
    if (r->stream != NULL) {
        r->build.reader = r->reader;
        cm_py_allow(&r->build);
        return (PyObject *)r;
    }
    if (!PyErr_Occurred())
        cm_py_fail(error);
    Py_DECREF(r);
    return NULL;
}

/* --- items as tuples ------------------------------------------------------------------------ */

/* A device's name is made once, because the replay may move its table. */
static PyObject *device_name(reader *r, int number)
{
    const cm_replay *replay = cm_stream_replay(r->stream);
    if (number < 0 || (size_t)number >= replay->device_count)
        Py_RETURN_NONE;
    PyObject *key = PyLong_FromLong(number);
    PyObject *name = key == NULL ? NULL : Py_XNewRef(PyDict_GetItemWithError(r->devices, key));
    if (key != NULL && name == NULL && !PyErr_Occurred()) {
        name = cm_py_text(replay->device[number].name);
        if (name != NULL && PyDict_SetItem(r->devices, key, name) < 0)
            Py_CLEAR(name);
    }
    Py_XDECREF(key);
    return name;
}

static PyObject *none_without_step(int32_t step)
{
    if (step < 0)
        Py_RETURN_NONE;
    return PyLong_FromLong(step);
}

static PyObject *requested(const cm_replay *replay, const cm_item *item)
{
    int64_t bytes;
    if (!cm_live_requested(replay, item, &bytes))
        Py_RETURN_NONE;
    return PyLong_FromLongLong(bytes);
}

static PyObject *block_tuple(reader *r, const cm_item *item)
{
    const cm_replay *replay = cm_stream_replay(r->stream);
    const cm_origin *o = &replay->origin[item->origin];
    PyObject *fields[] = {
        Py_NewRef(r->kind[item->kind]),         PyLong_FromUnsignedLongLong(item->time_ns),
        device_name(r, item->device),           PyLong_FromUnsignedLongLong(item->address),
        PyLong_FromLongLong(item->bytes),       PyLong_FromUnsignedLong(item->thread),
        PyLong_FromUnsignedLong(o->stack),      PyLong_FromUnsignedLong(o->own),
        Py_NewRef(r->phase[o->phase]),          cm_py_node_name(&r->build, o->name),
        none_without_step(item->step),          requested(replay, item),
        PyBool_FromLong(item->reported),        PyLong_FromLongLong(item->live),
        Py_NewRef(r->category[o->category]),    cm_py_label(&r->build, o->module),
        cm_py_node_name(&r->build, o->saved_by)};
    enum { FIELDS = sizeof fields / sizeof fields[0] };
    bool fine = true;
    for (size_t i = 0; i < FIELDS; i++)
        fine = fine && fields[i] != NULL;
    PyObject *tuple = fine ? PyTuple_New(FIELDS) : NULL;
    for (size_t i = 0; i < FIELDS; i++)
        if (tuple != NULL)
            PyTuple_SET_ITEM(tuple, (Py_ssize_t)i, fields[i]);
        else
            Py_XDECREF(fields[i]);
    return tuple;
}

static PyObject *step_tuple(reader *r, const cm_item *item)
{
    const cm_steps *steps = &cm_stream_plan(r->stream)->steps;
    int32_t next = item->step + 1;
    return Py_BuildValue("(OKNN)", r->kind[item->kind], (unsigned long long)item->time_ns,
                         none_without_step(item->step),
                         none_without_step((size_t)next < steps->count ? next : -1));
}

static const char *work_name(uint8_t kind)
{
    return kind < sizeof work_names / sizeof work_names[0] ? work_names[kind] : work_names[0];
}

static PyObject *item_tuple(reader *r, const cm_item *item)
{
    PyObject *kind = r->kind[item->kind];
    unsigned long long time_ns = item->time_ns, address = item->address;
    long long bytes = item->bytes;
    switch (item->kind) {
    case CM_ITEM_START:
    case CM_ITEM_ALLOC:
    case CM_ITEM_FREE:
        return block_tuple(r, item);
    case CM_ITEM_REQUESTED:
        return Py_BuildValue("(OKNKL)", kind, time_ns, device_name(r, item->device), address,
                             bytes);
    case CM_ITEM_RESERVED:
        return Py_BuildValue("(OKNL)", kind, time_ns, device_name(r, item->device), bytes);
    case CM_ITEM_SEGMENT_NEW:
    case CM_ITEM_SEGMENT_FREE:
    case CM_ITEM_MAPPED:
    case CM_ITEM_UNMAPPED:
        return Py_BuildValue("(OKNKLIN)", kind, time_ns, device_name(r, item->device), address,
                             bytes, item->stack, PyBool_FromLong(item->reported));
    case CM_ITEM_OOM:
        return Py_BuildValue("(OKNLLIN)", kind, time_ns, device_name(r, item->device), bytes,
                             (long long)item->live, item->stack, none_without_step(item->step));
    case CM_ITEM_STEP:
        return step_tuple(r, item);
    case CM_ITEM_LAUNCH:
        return Py_BuildValue("(OKNLKsII)", kind, time_ns,
                             PyUnicode_FromFormat("cuda:%d", item->device), bytes, address,
                             work_name(item->flags), item->stack, item->thread);
    case CM_ITEM_WORK:
        return Py_BuildValue(
            "(OKNLKsN)", kind, time_ns, PyUnicode_FromFormat("cuda:%d", item->device), bytes,
            address, work_name(item->flags), cm_py_text(cm_reader_name(r->reader, item->stack)));
    case CM_ITEM_RESIDENT:
        return Py_BuildValue("(OKL)", kind, time_ns, bytes);
    case CM_ITEM_COMPACTED:
        return Py_BuildValue("(OKNKLI)", kind, time_ns, device_name(r, item->device), address,
                             bytes, item->thread);
    case CM_ITEM_LEFT_OUT:
        return Py_BuildValue("(OKK)", kind, time_ns, address);
    case CM_ITEM_LOST:
        return Py_BuildValue("(OKIL)", kind, time_ns, item->thread, bytes);
    }
    Py_UNREACHABLE();
}

static PyObject *batch_list(reader *r, size_t count)
{
    PyObject *list = PyList_New((Py_ssize_t)count);
    for (size_t i = 0; list != NULL && i < count; i++) {
        PyObject *tuple = item_tuple(r, &r->item[i]);
        if (tuple == NULL)
            Py_CLEAR(list);
        else
            PyList_SET_ITEM(list, (Py_ssize_t)i, tuple);
    }
    return list;
}

/* The next items. Their number; 0: there are no more; -1: an exception is set. */
static Py_ssize_t read_batch(reader *r)
{
    while (!r->over) {
        char error[512] = "";
        size_t count;
        bool fine, over = false;
        r->used = true;
        PyThreadState *saved = PyEval_SaveThread();
        fine = cm_stream_read(r->stream, r->item, BATCH, &count, &over, error, sizeof error);
        PyEval_RestoreThread(saved);
        r->over = over || !fine;
        r->used = false;
        if (!fine) {
            cm_py_fail(error);
            return -1;
        }
        if (count > 0)
            return (Py_ssize_t)count;
        if (PyErr_CheckSignals() < 0)
            return -1;
    }
    return 0;
}

static PyObject *reader_next(PyObject *self)
{
    reader *r = (reader *)self;
    if (!is_at_rest(r))
        return NULL;
    Py_ssize_t count = read_batch(r);
    if (count <= 0)
        return NULL;
    r->used = true;
    PyObject *list = batch_list(r, (size_t)count);
    r->used = false;
    return list;
}

/* --- lent to an export ---------------------------------------------------------------------- */

bool cm_py_reader_lend(PyObject *self, cm_py_batch *batch)
{
    reader *r = (reader *)self;
    if (!is_at_rest(r) || !is_free(r))
        return false;
    Py_ssize_t count = read_batch(r);
    if (count < 0)
        return false;
    r->lent = true;
    *batch = (cm_py_batch){.item = r->item,
                           .count = (size_t)count,
                           .replay = cm_stream_replay(r->stream),
                           .steps = cm_stream_plan(r->stream)->steps.count};
    return true;
}

void cm_py_reader_return(PyObject *self)
{
    ((reader *)self)->lent = false;
}

PyObject *cm_py_reader_device(PyObject *self, uint16_t device)
{
    return device_name((reader *)self, device);
}

PyObject *cm_py_reader_origin(PyObject *self, uint32_t origin)
{
    reader *r = (reader *)self;
    const cm_origin *o = &cm_stream_replay(r->stream)->origin[origin];
    return Py_BuildValue("(NIIONONN)", device_name(r, o->device), o->stack, o->own,
                         r->phase[o->phase], cm_py_node_name(&r->build, o->name),
                         r->category[o->category], cm_py_label(&r->build, o->module),
                         cm_py_node_name(&r->build, o->saved_by));
}

/* --- properties of the trace ---------------------------------------------------------------- */

PyDoc_STRVAR(stack_doc, "stack(id) -> list\n\nIts frames, innermost first, each (file, function, "
                        "line, end line, column, end\ncolumn, module class, module address, text "
                        "of the line); empty for an unknown id.");

static PyObject *reader_stack(PyObject *self, PyObject *id)
{
    reader *r = (reader *)self;
    unsigned long stack = PyLong_AsUnsignedLong(id);
    if ((stack == (unsigned long)-1 && PyErr_Occurred()) || !is_free(r))
        return NULL;
    r->used = true;
    PyObject *frames =
        cm_py_stack(&r->build, stack <= UINT32_MAX ? (uint32_t)stack : CM_STACK_NONE);
    r->used = false;
    return frames;
}

PyDoc_STRVAR(close_doc, "close()\n\nCloses the file. What comes after it raises ValueError.");

static PyObject *reader_close(PyObject *self, PyObject *ignored)
{
    reader *r = (reader *)self;
    if (!is_at_rest(r))
        return NULL;
    release(r);
    Py_RETURN_NONE;
}

static PyObject *get_meta(PyObject *self, void *ignored)
{
    reader *r = (reader *)self;
    if (!is_free(r))
        return NULL;
    r->used = true;
    PyObject *meta = cm_py_meta(r->reader);
    r->used = false;
    return meta;
}

static PyObject *get_code(PyObject *self, void *ignored)
{
    reader *r = (reader *)self;
    return is_free(r) ? cm_py_text(cm_stream_code(r->stream)) : NULL;
}

static PyObject *get_devices(PyObject *self, void *ignored)
{
    reader *r = (reader *)self;
    if (!is_free(r))
        return NULL;
    r->used = true;
    PyObject *list = PyList_New(0);
    for (size_t i = 0; list != NULL && i < cm_stream_replay(r->stream)->device_count; i++)
        if (cm_py_append(list, device_name(r, (int)i)) < 0)
            Py_CLEAR(list);
    r->used = false;
    return list;
}

static unsigned long long since(uint64_t begin_ns, uint64_t time_ns)
{
    return time_ns > begin_ns ? time_ns - begin_ns : 0;
}

static PyObject *get_steps(PyObject *self, void *ignored)
{
    reader *r = (reader *)self;
    if (!is_free(r))
        return NULL;
    r->used = true;
    PyObject *list = PyList_New(0);
    const cm_plan *plan = cm_stream_plan(r->stream);
    const cm_steps *steps = &plan->steps;
    uint64_t begin = steps->begin.time_ns;
    for (size_t i = 0; list != NULL && i < steps->count; i++) {
        const cm_clock_step *s = &steps->step[i];
        if (cm_py_append(list, Py_BuildValue("(nNKK)", (Py_ssize_t)i,
                                             cm_py_text(steps->loop[s->loop].name),
                                             since(plan->begin_ns, begin),
                                             since(plan->begin_ns, s->end.time_ns))) < 0)
            Py_CLEAR(list);
        begin = s->end.time_ns;
    }
    r->used = false;
    return list;
}

static PyObject *get_clock(PyObject *self, void *ignored)
{
    static const char *const ticks[] = {NULL, "step", "optimizer", "data", "module", "backward"};
    reader *r = (reader *)self;
    if (!is_free(r))
        return NULL;
    uint32_t kind = cm_stream_plan(r->stream)->steps.kind;
    return cm_py_text(kind < sizeof ticks / sizeof ticks[0] ? ticks[kind] : NULL);
}

static PyObject *get_state(PyObject *self, void *ignored)
{
    reader *r = (reader *)self;
    return is_free(r) ? cm_py_text(cm_py_states[cm_stream_plan(r->stream)->state]) : NULL;
}

static PyObject *get_reason(PyObject *self, void *ignored)
{
    reader *r = (reader *)self;
    return is_free(r) ? cm_py_text(cm_stream_plan(r->stream)->reason) : NULL;
}

static PyObject *get_start(PyObject *self, void *ignored)
{
    reader *r = (reader *)self;
    return is_free(r) ? PyLong_FromUnsignedLongLong(cm_reader_start_realtime_ns(r->reader) +
                                                    cm_stream_plan(r->stream)->begin_ns)
                      : NULL;
}

static PyObject *get_duration(PyObject *self, void *ignored)
{
    reader *r = (reader *)self;
    if (!is_free(r))
        return NULL;
    const cm_plan *plan = cm_stream_plan(r->stream);
    return PyLong_FromUnsignedLongLong(since(plan->begin_ns, plan->end_ns));
}

/* Unknown frees and replaced blocks count up to the last batch read. */
static PyObject *get_lost(PyObject *self, void *ignored)
{
    reader *r = (reader *)self;
    if (!is_free(r))
        return NULL;
    const cm_plan *plan = cm_stream_plan(r->stream);
    const cm_replay *replay = cm_stream_replay(r->stream);
    return Py_BuildValue(
        "{s:K,s:K,s:K,s:K,s:K,s:K,s:K}", "events", (unsigned long long)plan->lost_events, "stacks",
        (unsigned long long)plan->lost_stacks, "unknown_frees",
        (unsigned long long)replay->unknown_frees, "replaced", (unsigned long long)replay->replaced,
        "seeds_skipped", (unsigned long long)plan->seeds_skipped, "cut",
        (unsigned long long)(cm_reader_cut_stacks(r->reader) + cm_reader_cut_texts(r->reader)),
        "unshown", (unsigned long long)r->build.unshown);
}

static PyObject *get_progress(PyObject *self, void *ignored)
{
    reader *r = (reader *)self;
    return is_free(r) ? PyFloat_FromDouble(r->over ? 1.0 : cm_stream_progress(r->stream)) : NULL;
}

PyDoc_STRVAR(
    reader_doc,
    "Reader(path, window=0, code=None, progress=None)\n\n"
    "What happened in a trace, or in one window of it: an iterator over batches (lists of at most\n"
    "4096 tuples), in the order of the trace. Memory grows with live blocks, stacks and steps, "
    "not with\nevents. The file is read twice: once here, for the steps, once while iterating. "
    "progress as in\nanalyze(), of the first time. Raises Error for what cannot be read.\n\n"
    "Times are nanoseconds since the window began. A block's tuple is\n"
    "    (kind, time, device, address, bytes, thread, stack, own stack, phase, operator,\n"
    "     step of birth or None, requested bytes or None, reported, live bytes of the device "
    "then,\n     category, module or None, saved by or None)\n"
    "with kind 'start' (alive when the window began; live is 0), 'alloc' or 'free'; reported: the "
    "program's own event,\nnot a correction. The others are\n"
    "    ('requested', time, device, address, bytes)     of the block allocated just before\n"
    "    ('reserved', time, device, bytes)\n"
    "    ('segment_new' or 'segment_free', time, device, address, bytes, stack, reported)\n"
    "    ('oom', time, device, requested, allocated, stack, step)\n"
    "    ('step', time, the one that ended or None, the one that begins or None)\n"
    "    ('launch', time, device, correlation, stream, what, stack, thread)\n"
    "    ('work', time, device, nanoseconds, correlation, what, name)\n"
    "    ('resident', time, bytes)\n"
    "    ('compacted', time, device, blocks, bytes, thread)  only counted: the trace is past its "
    "bound\n"
    "    ('left_out', time, events)\n"
    "    ('lost', time, thread, events)");

PyDoc_STRVAR(arrow_doc, "arrow_stream(names, device=None)\n\nEvery allocation as a row, in a "
                        "capsule of an Arrow C stream. names(device, "
                        "stack,\nown stack, phase, operator, category, module, saved by) gives the "
                        "row's texts (or None):\ndevice, phase, "
                        "operator, category, module, saved by, file, function, where, stack, "
                        "origin;\nand a line. Of counted blocks it is "
                        "called with the device alone.");

static PyMethodDef reader_methods[] = {
    {"arrow_stream", cm_py_arrow_stream, METH_VARARGS, arrow_doc},
    {"stack", reader_stack, METH_O, stack_doc},
    {"close", reader_close, METH_NOARGS, close_doc},
    {NULL, NULL, 0, NULL},
};

static PyGetSetDef reader_attributes[] = {
    {"meta", get_meta, NULL, "what the trace says about its process", NULL},
    {"code", get_code, NULL, "packages that count as the user's own, with commas", NULL},
    {"devices", get_devices, NULL, "names of those that were met so far", NULL},
    {"steps", get_steps, NULL, "[(index, loop, begin, end), ...]", NULL},
    {"clock", get_clock, NULL, "what counts the steps, or None", NULL},
    {"state", get_state, NULL, "complete, recording, recovered or cut", NULL},
    {"reason", get_reason, NULL, "why it ended early, or what the file lacks; else ''", NULL},
    {"start_realtime_ns", get_start, NULL, "when the window began, since 1970", NULL},
    {"duration_ns", get_duration, NULL, "of the window", NULL},
    {"lost", get_lost, NULL, "what the recording misses, in counts", NULL},
    {"progress", get_progress, NULL, "share that was read, 0 to 1", NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

static PyType_Slot reader_slots[] = {
    {Py_tp_doc, (void *)reader_doc},         {Py_tp_new, (void *)reader_new},
    {Py_tp_dealloc, (void *)reader_dealloc}, {Py_tp_iter, (void *)PyObject_SelfIter},
    {Py_tp_iternext, (void *)reader_next},   {Py_tp_methods, reader_methods},
    {Py_tp_getset, reader_attributes},       {0, NULL},
};

static PyType_Spec reader_spec = {.name = "cuptimem._core.Reader",
                                  .basicsize = sizeof(reader),
                                  .flags = Py_TPFLAGS_DEFAULT,
                                  .slots = reader_slots};

int cm_py_reader_exec(PyObject *module)
{
    PyObject *type = PyType_FromSpec(&reader_spec);
    if (type == NULL)
        return -1;
    int status = PyModule_AddObjectRef(module, "Reader", type);
    if (status == 0)
        status = cm_py_export_exec(module, type);
    Py_DECREF(type);
    return status;
}
