/* cuptimem._core.Rows and MemoryViz: a Reader's items as bytes of a file, batch by batch. Python
 * gives the texts, once for all blocks of one origin; csrc/exports writes what lies between. */
#include "py_reader.h"
#include "py_rows.h"

#include "../exports/row_text.h"
#include "../exports/memory_viz.h"

/* What both types have. Guarded by the GIL; `busy` while one thread is in a read, because that
 * calls Python. */
typedef struct source {
    PyObject_HEAD
    PyObject *reader, *names;
    PyObject *kept;   /* the texts that pieces point into */
    PyObject *device; /* bytes: only this one's items; NULL: all */
    bool busy, over;  /* over: the reader has no more items */
} source;

static PyTypeObject *reader_type;

static bool open_source(source *s, PyObject *reader, PyObject *names, PyObject *device)
{
    s->reader = Py_NewRef(reader);
    s->names = Py_NewRef(names);
    s->kept = PyList_New(0);
    s->device = device == Py_None ? NULL : PyUnicode_AsUTF8String(device);
    return s->kept != NULL && (device == Py_None || s->device != NULL);
}

static void close_source(source *s)
{
    Py_CLEAR(s->reader);
    Py_CLEAR(s->names);
    Py_CLEAR(s->kept);
    Py_CLEAR(s->device);
}

static bool begin(source *s, cm_py_batch *batch)
{
    if (s->busy) {
        PyErr_SetString(PyExc_RuntimeError, "this export is being read by another thread, or "
                                            "further out");
        return false;
    }
    s->busy = true;
    if (PyErr_CheckSignals() == 0 && cm_py_reader_lend(s->reader, batch)) {
        s->over = batch->count == 0;
        return true;
    }
    s->busy = false;
    return false;
}

static void end(source *s)
{
    cm_py_reader_return(s->reader);
    s->busy = false;
}

/* Calls `names` with the arguments, which it steals; the answer, a tuple of three bytes (or None).
 */
static PyObject *ask(source *s, PyObject *arguments)
{
    PyObject *answer = arguments == NULL ? NULL : PyObject_Call(s->names, arguments, NULL);
    Py_XDECREF(arguments);
    bool fine = answer != NULL && PyTuple_Check(answer) && PyTuple_GET_SIZE(answer) == 3;
    for (Py_ssize_t i = 0; fine && i < 3; i++) {
        PyObject *one = PyTuple_GET_ITEM(answer, i);
        fine = one == Py_None || PyBytes_Check(one);
    }
    if (answer != NULL && !fine) {
        PyErr_SetString(PyExc_TypeError, "names() gives three bytes objects, or None for them");
        Py_CLEAR(answer);
    }
    return answer;
}

/* Valid as long as the answer is. */
static cm_piece piece_of(PyObject *answer, Py_ssize_t i)
{
    PyObject *one = PyTuple_GET_ITEM(answer, i);
    if (one == Py_None)
        return (cm_piece){NULL, 0};
    return (cm_piece){PyBytes_AS_STRING(one), (size_t)PyBytes_GET_SIZE(one)};
}

/* Keeps an answer but for its first text, which may be long and is needed once. */
static bool keep_later(source *s, PyObject *answer)
{
    PyObject *later = PyTuple_GetSlice(answer, 1, 3);
    bool fine = later != NULL && PyList_Append(s->kept, later) == 0;
    Py_XDECREF(later);
    return fine;
}

static PyObject *failed(void)
{
    return PyErr_Occurred() ? NULL : PyErr_NoMemory();
}

/* What was written since the last time. */
static PyObject *take(cm_text *text)
{
    PyObject *bytes = PyBytes_FromStringAndSize(text->bytes, (Py_ssize_t)text->length);
    text->length = 0;
    return bytes;
}

/* --- rows ----------------------------------------------------------------------------------- */

typedef struct rows {
    source source;
    cm_row_format format;
    cm_rows rows;
    cm_row_text text;
    PyObject *gaps, *none, *ends; /* of the format */
    PyObject *answer;             /* the last one */
} rows;

static bool name_row(void *context, cm_text *out, uint16_t device, uint32_t origin,
                     cm_row_name *name)
{
    rows *r = context;
    bool counted = origin == CM_ROW_COUNTED;
    PyObject *of = counted ? Py_BuildValue("(N)", cm_py_reader_device(r->source.reader, device))
                           : cm_py_reader_origin(r->source.reader, origin);
    PyObject *answer = ask(&r->source, of);
    if (answer == NULL)
        return false;
    if (!counted && !keep_later(&r->source, answer)) {
        Py_DECREF(answer);
        return false;
    }
    cm_text_piece(out, piece_of(answer, 0));
    *name = (cm_row_name){piece_of(answer, 1), piece_of(answer, 2)};
    Py_XSETREF(r->answer, answer);
    return true;
}

static void rows_dealloc(PyObject *self)
{
    rows *r = (rows *)self;
    PyTypeObject *type = Py_TYPE(self);
    cm_rows_clear(&r->rows);
    cm_row_text_clear(&r->text);
    Py_CLEAR(r->gaps);
    Py_CLEAR(r->none);
    Py_CLEAR(r->ends);
    Py_CLEAR(r->answer);
    close_source(&r->source);
    type->tp_free(self);
    Py_DECREF(type);
}

static bool pieces_of(PyObject *tuple, cm_piece *piece, Py_ssize_t count)
{
    bool fine = PyTuple_GET_SIZE(tuple) == count;
    for (Py_ssize_t i = 0; fine && i < count; i++) {
        fine = PyBytes_Check(PyTuple_GET_ITEM(tuple, i));
        if (fine)
            piece[i] = piece_of(tuple, i);
    }
    if (!fine)
        PyErr_Format(PyExc_TypeError, "%zd bytes objects are needed here", count);
    return fine;
}

static PyObject *rows_new(PyTypeObject *type, PyObject *arguments, PyObject *keywords)
{
    static char *names[] = {"reader", "names", "gaps", "none", "ends", "device", NULL};
    PyObject *reader, *namer, *gaps, *none, *ends, *device = Py_None;
    if (!PyArg_ParseTupleAndKeywords(arguments, keywords, "O!OO!SO!|O", names, reader_type, &reader,
                                     &namer, &PyTuple_Type, &gaps, &none, &PyTuple_Type, &ends,
                                     &device))
        return NULL;
    rows *r = (rows *)type->tp_alloc(type, 0);
    if (r == NULL)
        return NULL;
    r->gaps = Py_NewRef(gaps);
    r->none = Py_NewRef(none);
    r->ends = Py_NewRef(ends);
    r->format.none = (cm_piece){PyBytes_AS_STRING(none), (size_t)PyBytes_GET_SIZE(none)};
    r->text = (cm_row_text){.format = &r->format, .namer = name_row, .context = r};
    r->rows = (cm_rows){.put = cm_row_text_put, .context = &r->text, .step = -1};
    if (open_source(&r->source, reader, namer, device) &&
        pieces_of(gaps, r->format.gap, CM_ROW_GAPS) && pieces_of(ends, r->format.end, CM_ROW_WHENS))
        return (PyObject *)r;
    Py_DECREF(r);
    return NULL;
}

PyDoc_STRVAR(rows_read_doc, "read() -> bytes or None\n\nMore rows, none at times; None: no more.");

static PyObject *rows_read(PyObject *self, PyObject *ignored)
{
    rows *r = (rows *)self;
    cm_py_batch batch;
    if (!begin(&r->source, &batch))
        return NULL;
    bool fine = cm_py_add_rows(&r->rows, &batch, r->source.device);
    end(&r->source);
    if (!fine)
        return failed();
    if (r->source.over && r->text.out.length == 0)
        Py_RETURN_NONE;
    return take(&r->text.out);
}

static PyObject *rows_count(PyObject *self, void *ignored)
{
    return PyLong_FromUnsignedLongLong(((rows *)self)->rows.count);
}

PyDoc_STRVAR(
    rows_doc,
    "Rows(reader, names, gaps, none, ends, device=None)\n\n"
    "Every allocation of a Reader as a row of bytes: when it is freed, or at the end. A row is\n"
    "head, bytes, gaps[0], requested, gaps[1], count, gaps[2], address, gaps[3], time, gaps[4],\n"
    "time of free, gaps[5], step, gaps[6], step of free, about, thread, an end. none: in the "
    "place\n"
    "of a number that is not known. ends: of blocks that were allocated, found alive at a later\n"
    "start, alive before the window, only counted. names(device, stack, own stack, phase,\n"
    "operator, category, module, saved by) gives what comes before the first row that has all\n"
    "these, head and about; of counted blocks it is called with the device alone.");

static PyMethodDef rows_methods[] = {
    {"read", rows_read, METH_NOARGS, rows_read_doc},
    {NULL, NULL, 0, NULL},
};

static PyGetSetDef rows_attributes[] = {
    {"count", rows_count, NULL, "rows so far", NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

static PyType_Slot rows_slots[] = {
    {Py_tp_doc, (void *)rows_doc},         {Py_tp_new, (void *)rows_new},
    {Py_tp_dealloc, (void *)rows_dealloc}, {Py_tp_methods, rows_methods},
    {Py_tp_getset, rows_attributes},       {0, NULL},
};

static PyType_Spec rows_spec = {.name = "cuptimem._core.Rows",
                                .basicsize = sizeof(rows),
                                .flags = Py_TPFLAGS_DEFAULT,
                                .slots = rows_slots};

/* --- memory_viz ----------------------------------------------------------------------------- */

typedef struct memory_viz {
    source source;
    cm_viz viz;
    size_t ended;                       /* devices whose entries are complete */
    uint64_t listed;                    /* segments so far */
    PyObject *answer[CM_VIZ_STACK + 1]; /* the last one of each kind */
} memory_viz;

static bool name_piece(void *context, uint16_t device, cm_viz_what what, uint32_t number,
                       cm_viz_name *name)
{
    memory_viz *s = context;
    PyObject *of = what == CM_VIZ_WORD     ? PyUnicode_FromString(cm_words[number])
                   : what == CM_VIZ_ORIGIN ? cm_py_reader_origin(s->source.reader, number)
                                           : PyLong_FromUnsignedLong(number);
    PyObject *answer =
        ask(&s->source,
            Py_BuildValue("(NiN)", cm_py_reader_device(s->source.reader, device), (int)what, of));
    if (answer == NULL)
        return false;
    bool keep = PyTuple_GET_ITEM(answer, 1) != Py_None;
    if (keep && !keep_later(&s->source, answer)) {
        Py_DECREF(answer);
        return false;
    }
    *name = (cm_viz_name){piece_of(answer, 0), piece_of(answer, 1), piece_of(answer, 2)};
    Py_XSETREF(s->answer[what], answer);
    return true;
}

static void viz_dealloc(PyObject *self)
{
    memory_viz *s = (memory_viz *)self;
    PyTypeObject *type = Py_TYPE(self);
    cm_viz_clear(&s->viz);
    for (size_t i = 0; i <= CM_VIZ_STACK; i++)
        Py_CLEAR(s->answer[i]);
    close_source(&s->source);
    type->tp_free(self);
    Py_DECREF(type);
}

static PyObject *viz_new(PyTypeObject *type, PyObject *arguments, PyObject *keywords)
{
    static char *names[] = {"reader", "names", "start_us", "newest", "device", NULL};
    PyObject *reader, *namer, *device = Py_None;
    unsigned long long start_us, newest = 0;
    if (!PyArg_ParseTupleAndKeywords(arguments, keywords, "O!OK|KO", names, reader_type, &reader,
                                     &namer, &start_us, &newest, &device))
        return NULL;
    memory_viz *s = (memory_viz *)type->tp_alloc(type, 0);
    if (s == NULL)
        return NULL;
    s->viz = (cm_viz){.namer = name_piece, .context = s, .start_us = start_us, .newest = newest};
    if (open_source(&s->source, reader, namer, device))
        return (PyObject *)s;
    Py_DECREF(s);
    return NULL;
}

static bool add_entries(memory_viz *s, const cm_py_batch *batch)
{
    for (size_t i = 0; i < batch->count; i++) {
        const cm_item *item = &batch->item[i];
        if (cm_py_is_asked_for(s->source.device, batch, item) &&
            !cm_viz_add(&s->viz, item, batch->replay))
            return false;
    }
    bool over = false;
    if (batch->count == 0 && s->ended < s->viz.devices) {
        if (!cm_viz_end_entries(&s->viz, s->ended, CM_PY_ENDS_A_READ, &over))
            return false;
        s->ended += over;
    }
    return true;
}

PyDoc_STRVAR(viz_read_doc,
             "read() -> [bytes, ...] or None\n\nMore entries of each device that was met so far, "
             "in the order of `devices`; None: no more.");

static PyObject *viz_read(PyObject *self, PyObject *ignored)
{
    memory_viz *s = (memory_viz *)self;
    cm_py_batch batch;
    if (!begin(&s->source, &batch))
        return NULL;
    bool over = batch.count == 0 && s->ended == s->viz.devices;
    bool fine = add_entries(s, &batch);
    end(&s->source);
    if (!fine)
        return failed();
    if (over)
        Py_RETURN_NONE;
    PyObject *list = PyList_New((Py_ssize_t)s->viz.devices);
    for (size_t i = 0; list != NULL && i < s->viz.devices; i++) {
        PyObject *bytes = take(cm_viz_text(&s->viz, i));
        if (bytes == NULL)
            Py_CLEAR(list);
        else
            PyList_SET_ITEM(list, (Py_ssize_t)i, bytes);
    }
    return list;
}

PyDoc_STRVAR(viz_segments_doc,
             "segments(device, number) -> bytes or None\n\nMore segments of a device, counted as "
             "in `devices`, with its number in the file; None: no more.\nAll entries must have "
             "been read before.");

static PyObject *viz_segments(PyObject *self, PyObject *arguments)
{
    memory_viz *s = (memory_viz *)self;
    Py_ssize_t device;
    unsigned int number;
    cm_py_batch batch;
    if (!PyArg_ParseTuple(arguments, "nI", &device, &number))
        return NULL;
    if (!s->source.over || s->ended < s->viz.devices) {
        PyErr_SetString(PyExc_ValueError, "its entries come before");
        return NULL;
    }
    if (device < 0 || (size_t)device >= s->viz.devices) {
        PyErr_SetString(PyExc_IndexError, "no such device");
        return NULL;
    }
    if (!begin(&s->source, &batch))
        return NULL;
    bool over, fine = cm_viz_segments(&s->viz, (size_t)device, number, &s->listed, &over);
    end(&s->source);
    if (!fine)
        return failed();
    cm_text *text = cm_viz_text(&s->viz, (size_t)device);
    if (text->length == 0)
        Py_RETURN_NONE;
    return take(text);
}

static PyObject *viz_devices(PyObject *self, void *ignored)
{
    memory_viz *s = (memory_viz *)self;
    PyObject *list = PyList_New((Py_ssize_t)s->viz.devices);
    for (size_t i = 0; list != NULL && i < s->viz.devices; i++) {
        PyObject *name = cm_py_reader_device(s->source.reader, cm_viz_number(&s->viz, i));
        if (name == NULL)
            Py_CLEAR(list);
        else
            PyList_SET_ITEM(list, (Py_ssize_t)i, name);
    }
    return list;
}

static PyObject *viz_entries(PyObject *self, void *ignored)
{
    return PyLong_FromUnsignedLongLong(((memory_viz *)self)->viz.entries);
}

static PyObject *viz_overlapping(PyObject *self, void *ignored)
{
    return PyLong_FromUnsignedLongLong(((memory_viz *)self)->viz.overlapping);
}

PyDoc_STRVAR(
    viz_doc,
    "MemoryViz(reader, names, start_us, newest=0, device=None)\n\n"
    "A Reader's items as pickled entries and segments, as memory_viz reads them. start_us: added "
    "to\n"
    "all times. newest: only so many entries of each device (0: all). names(device, what, of)\n"
    "gives a text whole, as a reference to it (None: it is asked for again) and, of an origin, "
    "what\n"
    "is known of its blocks. what and of: 0, a word; 1, (device, stack, own stack, phase,\n"
    "operator, category, module, saved by); 2, a stack.");

static PyMethodDef viz_methods[] = {
    {"read", viz_read, METH_NOARGS, viz_read_doc},
    {"segments", viz_segments, METH_VARARGS, viz_segments_doc},
    {NULL, NULL, 0, NULL},
};

static PyGetSetDef viz_attributes[] = {
    {"devices", viz_devices, NULL, "names of those that were met so far", NULL},
    {"entries", viz_entries, NULL, "of all devices so far, also of those not kept", NULL},
    {"overlapping", viz_overlapping, NULL, "segments left out so far: they overlap others", NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

static PyType_Slot viz_slots[] = {
    {Py_tp_doc, (void *)viz_doc},         {Py_tp_new, (void *)viz_new},
    {Py_tp_dealloc, (void *)viz_dealloc}, {Py_tp_methods, viz_methods},
    {Py_tp_getset, viz_attributes},       {0, NULL},
};

static PyType_Spec viz_spec = {.name = "cuptimem._core.MemoryViz",
                               .basicsize = sizeof(memory_viz),
                               .flags = Py_TPFLAGS_DEFAULT,
                               .slots = viz_slots};

static int add_type(PyObject *module, const char *name, PyType_Spec *spec)
{
    PyObject *type = PyType_FromSpec(spec);
    int status = type == NULL ? -1 : PyModule_AddObjectRef(module, name, type);
    Py_XDECREF(type);
    return status;
}

int cm_py_export_exec(PyObject *module, PyObject *type)
{
    Py_XSETREF(reader_type, (PyTypeObject *)Py_NewRef(type));
    return add_type(module, "Rows", &rows_spec) < 0 ? -1 : add_type(module, "MemoryViz", &viz_spec);
}
