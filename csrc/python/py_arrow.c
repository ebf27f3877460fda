/* cuptimem._core.Reader.arrow_stream: a Reader's rows as an Arrow C stream. Consumers call it from
 * any thread, with or without the GIL: each call takes it. */
#include "py_rows.h"

#include <errno.h>

#include "../exports/row_arrow.h"

typedef struct stream {
    PyObject *reader, *names;
    PyObject *device;                /* bytes, or NULL: all */
    PyObject *known[CM_ARROW_TEXTS]; /* dicts: number by text */
    cm_rows rows;
    cm_arrow arrow;
    bool busy, over, failed;
    char error[512];
} stream;

/* The number of a text that names() gave, -1: None. false: an exception is set. */
static bool number_of(stream *s, size_t column, PyObject *text, int32_t *number)
{
    *number = -1;
    if (text == Py_None)
        return true;
    PyObject *known = PyDict_GetItemWithError(s->known[column], text);
    if (known != NULL || PyErr_Occurred()) {
        *number = known == NULL ? -1 : (int32_t)PyLong_AsLong(known);
        return known != NULL;
    }
    PyObject *bytes = PyUnicode_AsEncodedString(text, "utf-8", "backslashreplace");
    if (bytes == NULL)
        return false;
    *number = cm_arrow_text_add(&s->arrow, column, PyBytes_AS_STRING(bytes),
                                (size_t)PyBytes_GET_SIZE(bytes));
    Py_DECREF(bytes);
    if (*number < 0) {
        PyErr_NoMemory();
        return false;
    }
    PyObject *value = PyLong_FromLong(*number);
    bool fine = value != NULL && PyDict_SetItem(s->known[column], text, value) == 0;
    Py_XDECREF(value);
    return fine;
}

static bool read_names(stream *s, PyObject *answer, cm_arrow_name *name)
{
    if (!PyTuple_Check(answer) || PyTuple_GET_SIZE(answer) != CM_ARROW_TEXTS + 1) {
        PyErr_Format(PyExc_TypeError, "names() gives a tuple of %d", CM_ARROW_TEXTS + 1);
        return false;
    }
    for (size_t i = 0; i < CM_ARROW_TEXTS; i++)
        if (!number_of(s, i, PyTuple_GET_ITEM(answer, (Py_ssize_t)i), &name->text[i]))
            return false;
    PyObject *line = PyTuple_GET_ITEM(answer, CM_ARROW_TEXTS);
    name->line = line == Py_None ? -1 : (int32_t)PyLong_AsLong(line);
    return !PyErr_Occurred();
}

static bool name_row(void *context, uint16_t device, uint32_t origin, cm_arrow_name *name)
{
    stream *s = context;
    PyObject *of = origin == CM_ROW_COUNTED
                       ? Py_BuildValue("(N)", cm_py_reader_device(s->reader, device))
                       : cm_py_reader_origin(s->reader, origin);
    PyObject *answer = of == NULL ? NULL : PyObject_Call(s->names, of, NULL);
    Py_XDECREF(of);
    bool fine = answer != NULL && read_names(s, answer, name);
    Py_XDECREF(answer);
    return fine;
}

/* Adds the next items of the reader. false: an exception may be set; else out of memory. */
static bool advance(stream *s)
{
    cm_py_batch batch;
    if (!cm_py_reader_lend(s->reader, &batch))
        return false;
    size_t before = s->arrow.rows;
    bool fine = cm_py_add_rows(&s->rows, &batch, s->device);
    s->over = fine && batch.count == 0 && s->arrow.rows == before;
    cm_py_reader_return(s->reader);
    return fine;
}

/* Keeps the exception's text for get_last_error. */
static int fail(stream *s)
{
    if (!PyErr_Occurred())
        PyErr_NoMemory();
    PyObject *kind, *value, *trace;
    PyErr_Fetch(&kind, &value, &trace);
    PyErr_NormalizeException(&kind, &value, &trace);
    PyObject *text = value == NULL ? NULL : PyObject_Str(value);
    const char *said = text == NULL ? NULL : PyUnicode_AsUTF8(text);
    snprintf(s->error, sizeof s->error, "%s", said == NULL || *said == 0 ? "out of memory" : said);
    PyErr_Clear();
    Py_XDECREF(text);
    Py_XDECREF(kind);
    Py_XDECREF(value);
    Py_XDECREF(trace);
    s->over = s->failed = true;
    return EIO;
}

static int next_batch(stream *s, struct ArrowArray *out)
{
    if (s->busy) /* names() runs Python, which may let another thread in: its reading goes on */
        return EBUSY;
    if (s->failed) /* with rows that are not whole */
        return EIO;
    s->busy = true;
    bool fine = true;
    while (fine && !s->over && !cm_arrow_is_full(&s->arrow))
        fine = advance(s);
    if (fine && s->arrow.rows > 0)
        fine = cm_arrow_take(&s->arrow, out);
    s->busy = false;
    return fine ? 0 : fail(s);
}

static int get_schema(struct ArrowArrayStream *self, struct ArrowSchema *out)
{
    out->release = NULL;
    return cm_arrow_schema(out) ? 0 : ENOMEM;
}

static int get_next(struct ArrowArrayStream *self, struct ArrowArray *out)
{
    PyGILState_STATE state = PyGILState_Ensure();
    out->release = NULL; /* the end of the stream */
    int status = next_batch(self->private_data, out);
    PyGILState_Release(state);
    return status;
}

static const char *get_last_error(struct ArrowArrayStream *self)
{
    const stream *s = self->private_data;
    return s->error[0] == 0 ? NULL : s->error;
}

static void free_stream(stream *s)
{
    Py_XDECREF(s->reader);
    Py_XDECREF(s->names);
    Py_XDECREF(s->device);
    for (size_t i = 0; i < CM_ARROW_TEXTS; i++)
        Py_XDECREF(s->known[i]);
    cm_rows_clear(&s->rows);
    cm_arrow_clear(&s->arrow);
    free(s);
}

static void release(struct ArrowArrayStream *self)
{
    self->release = NULL;
    if (!Py_IsInitialized()) /* a consumer outlives Python: the memory goes with the process */
        return;
    PyGILState_STATE state = PyGILState_Ensure();
    free_stream(self->private_data);
    PyGILState_Release(state);
}

static void destroy_capsule(PyObject *capsule)
{
    struct ArrowArrayStream *one = PyCapsule_GetPointer(capsule, "arrow_array_stream");
    if (one->release != NULL) /* no consumer has taken it */
        one->release(one);
    free(one);
}

static stream *new_stream(PyObject *reader, PyObject *names, PyObject *device)
{
    stream *s = calloc(1, sizeof *s);
    if (s == NULL) {
        PyErr_NoMemory();
        return NULL;
    }
    s->reader = Py_NewRef(reader);
    s->names = Py_NewRef(names);
    s->device = device == Py_None ? NULL : PyUnicode_AsUTF8String(device);
    bool fine = device == Py_None || s->device != NULL;
    for (size_t i = 0; fine && i < CM_ARROW_TEXTS; i++)
        fine = (s->known[i] = PyDict_New()) != NULL;
    s->arrow = (cm_arrow){.namer = name_row, .context = s, .batch = 1};
    s->rows = (cm_rows){.put = cm_arrow_put, .context = &s->arrow, .step = -1};
    if (fine)
        return s;
    free_stream(s);
    return NULL;
}

PyObject *cm_py_arrow_stream(PyObject *reader, PyObject *arguments)
{
    PyObject *names, *device = Py_None;
    if (!PyArg_ParseTuple(arguments, "O|O", &names, &device))
        return NULL;
    struct ArrowArrayStream *one = malloc(sizeof *one);
    if (one == NULL)
        return PyErr_NoMemory();
    *one = (struct ArrowArrayStream){.get_schema = get_schema,
                                     .get_next = get_next,
                                     .get_last_error = get_last_error,
                                     .private_data = new_stream(reader, names, device)};
    if (one->private_data == NULL) {
        free(one);
        return NULL;
    }
    one->release = release;
    PyObject *capsule = PyCapsule_New(one, "arrow_array_stream", destroy_capsule);
    if (capsule == NULL) {
        release(one);
        free(one);
    }
    return capsule;
}
