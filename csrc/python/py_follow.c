/* cuptimem._core.Follower: a trace followed while its process writes it. */
#include "py_build.h"

#include <stdbool.h>

#include "../analysis/follow.h"
#include "../heap/stack_class.h"

/* Guarded by the GIL, except follow while one thread has it `used`. */
typedef struct follower {
    PyObject_HEAD
    cm_follow *follow;         /* NULL: closed, or it failed */
    cm_stack_classes *classes; /* of its stacks, or NULL */
    bool used;
    cm_py_builder build;
} follower;

static bool is_free(const follower *f)
{
    if (f->used)
        PyErr_SetString(PyExc_RuntimeError, "this Follower is being read by another thread");
    else if (f->follow == NULL)
        PyErr_SetString(PyExc_ValueError, "this Follower is closed");
    return !f->used && f->follow != NULL;
}

static void drop_classes(follower *f)
{
    cm_stack_classes_free(f->classes);
    f->classes = NULL;
}

static void drop_texts(follower *f)
{
    Py_CLEAR(f->build.stacks);
    Py_CLEAR(f->build.frames);
    Py_CLEAR(f->build.names);
    Py_CLEAR(f->build.strings);
}

/* A new reader's strings may lie where those of the one before did, and lines get their text after
 * the stacks that name them. */
static bool begin_texts(follower *f)
{
    const cm_reader *reader = cm_follow_reader(f->follow);
    drop_texts(f);
    f->build = (cm_py_builder){.reader = reader,
                               .stacks = PyDict_New(),
                               .frames = PyDict_New(),
                               .names = PyDict_New(),
                               .strings = PyDict_New()};
    cm_py_allow(&f->build);
    return f->build.stacks != NULL && f->build.frames != NULL && f->build.names != NULL &&
           f->build.strings != NULL;
}

static void follower_dealloc(PyObject *self)
{
    follower *f = (follower *)self;
    PyTypeObject *type = Py_TYPE(self);
    drop_classes(f);
    cm_follow_close(f->follow);
    drop_texts(f);
    type->tp_free(self);
    Py_DECREF(type);
}

static PyObject *follower_new(PyTypeObject *type, PyObject *arguments, PyObject *keywords)
{
    static char *names[] = {"path", "code", NULL};
    PyObject *path;
    const char *code = NULL;
    if (!PyArg_ParseTupleAndKeywords(arguments, keywords, "O&|z", names, PyUnicode_FSConverter,
                                     &path, &code))
        return NULL;
    follower *f = (follower *)type->tp_alloc(type, 0);
    if (f == NULL) {
        Py_DECREF(path);
        return NULL;
    }
    char error[512] = "";
    PyThreadState *saved = PyEval_SaveThread();
    f->follow = cm_follow_open(PyBytes_AS_STRING(path), code, error, sizeof error);
    PyEval_RestoreThread(saved);
    Py_DECREF(path);
    if (f->follow != NULL && begin_texts(f))
        return (PyObject *)f;
    if (f->follow == NULL)
        cm_py_fail(error);
    Py_DECREF(f);
    return NULL;
}

PyDoc_STRVAR(
    read_doc,
    "read(most) -> (str, int)\n\nReads at most so many records of what has come: \"more\", "
    "\"end\" or \"again\" (another\ntrace has its name, of which nothing was read), and how "
    "many. Raises Error, after which\nit is closed.");

static PyObject *follower_read(PyObject *self, PyObject *most)
{
    static const char *const words[] = {
        [CM_FOLLOW_MORE] = "more", [CM_FOLLOW_AT_END] = "end", [CM_FOLLOW_AGAIN] = "again"};
    follower *f = (follower *)self;
    size_t records = PyLong_AsSize_t(most), count = 0;
    char error[512] = "";
    if ((records == (size_t)-1 && PyErr_Occurred()) || !is_free(f))
        return NULL;
    f->used = true;
    PyThreadState *saved = PyEval_SaveThread();
    cm_follow_got got = cm_follow_read(f->follow, records, &count, error, sizeof error);
    PyEval_RestoreThread(saved);
    f->used = false;
    if (got == CM_FOLLOW_FAILED || got == CM_FOLLOW_AGAIN)
        drop_classes(f); /* of a reader that is gone */
    if (got == CM_FOLLOW_FAILED) {
        cm_follow_close(f->follow);
        f->follow = NULL;
        return cm_py_fail(error);
    }
    if ((count > 0 || got == CM_FOLLOW_AGAIN) && !begin_texts(f))
        return NULL;
    return Py_BuildValue("(sn)", words[got], (Py_ssize_t)count);
}

static PyObject *none_if_negative(int64_t value)
{
    if (value < 0)
        Py_RETURN_NONE;
    return PyLong_FromLongLong(value);
}

static PyObject *device_tuple(const cm_follow *follow, uint16_t number)
{
    const cm_replay *replay = cm_follow_replay(follow);
    const cm_device *d = &replay->device[number];
    cm_driver_moment none = {.used = -1, .total = -1, .own = -1, .others = -1};
    const cm_driver_moment *last = &none;
    if (d->type == CM_DEVICE_CUDA && replay->driver != NULL &&
        replay->driver->device[cm_driver_map_place(d->index)].last.used >= 0)
        last = &replay->driver->device[cm_driver_map_place(d->index)].last;
    return Py_BuildValue("(NLKLNNNNN)", cm_py_text(d->name), (long long)d->live,
                         (unsigned long long)d->blocks, (long long)cm_follow_peak(follow, number),
                         none_if_negative(d->reserved), none_if_negative(last->used),
                         none_if_negative(last->total), none_if_negative(last->own),
                         none_if_negative(last->others));
}

PyDoc_STRVAR(devices_doc,
             "devices() -> list\n\n(name, live bytes, blocks, highest live bytes, reserved, used, "
             "total, used by this process,\nby others) each; None is unknown. Of the device's own "
             "memory: the driver's last answer.");

static PyObject *follower_devices(PyObject *self, PyObject *ignored)
{
    follower *f = (follower *)self;
    if (!is_free(f))
        return NULL;
    size_t count = cm_follow_replay(f->follow)->device_count;
    PyObject *list = PyList_New(0);
    for (size_t i = 0; list != NULL && i < count; i++)
        if (cm_py_append(list, device_tuple(f->follow, (uint16_t)i)) < 0)
            Py_CLEAR(list);
    return list;
}

PyDoc_STRVAR(live_doc, "live() -> list\n\n(origin, bytes, blocks) of all that is alive.");

static PyObject *follower_live(PyObject *self, PyObject *ignored)
{
    follower *f = (follower *)self;
    if (!is_free(f))
        return NULL;
    const cm_amounts *live = cm_follow_live(f->follow);
    size_t origins = cm_follow_replay(f->follow)->origin_count;
    PyObject *list = PyList_New(0);
    for (size_t i = 0; list != NULL && i < live->capacity && i < origins; i++)
        if (live->of[i].count != 0 &&
            cm_py_append(list, Py_BuildValue("(nLK)", (Py_ssize_t)i, (long long)live->of[i].bytes,
                                             (unsigned long long)live->of[i].count)) < 0)
            Py_CLEAR(list);
    return list;
}

enum { LISTED = 1 << 14 }; /* blocks */

/* By origin: the place in `stacks`, from 1, of a stack with the lines of the one that it is charged
 * to; 0: none. Without the GIL. */
static bool find_origins(follower *f, const uint32_t *stacks, size_t count, uint32_t *place)
{
    const cm_replay *replay = cm_follow_replay(f->follow);
    if (f->classes == NULL)
        f->classes = cm_stack_classes_new(cm_follow_reader(f->follow), replay->library);
    bool fine = f->classes != NULL;
    for (size_t i = 0; fine && i < count; i++) {
        uint32_t own, other;
        fine = cm_stack_class_of(f->classes, stacks[i], &own);
        for (size_t o = 0; fine && o < replay->origin_count; o++) {
            fine = cm_stack_class_of(f->classes, replay->origin[o].stack, &other);
            if (fine && own == other && place[o] == 0)
                place[o] = (uint32_t)i + 1;
        }
    }
    return fine;
}

static PyObject *list_blocks(const cm_replay *replay, PyObject *stacks, const uint32_t *place)
{
    PyObject *list = PyList_New(0);
    const cm_block *b;
    size_t at = 0;
    while (list != NULL && PyList_GET_SIZE(list) < LISTED &&
           (b = cm_blocks_next(&replay->blocks, &at)) != NULL) {
        uint32_t origin = cm_replay_origin(replay, b);
        if (place[origin] == 0)
            continue;
        bool backward = replay->origin[origin].phase == CM_PHASE_BACKWARD;
        PyObject *row = Py_BuildValue("(KLNOO)", (unsigned long long)b->address, (long long)b->size,
                                      cm_py_text(replay->device[b->device].name),
                                      PyTuple_GET_ITEM(stacks, place[origin] - 1),
                                      backward ? Py_True : Py_False);
        if (cm_py_append(list, row) < 0)
            Py_CLEAR(list);
    }
    return list;
}

PyDoc_STRVAR(
    blocks_doc,
    "blocks(*stack ids) -> list\n\n(address, bytes, device, stack id of these, whether made "
    "in backward) of what is alive and\ncharged to the lines of one of these stacks, at most "
    "16,384. The first call numbers all stacks.");

static PyObject *follower_blocks(PyObject *self, PyObject *stacks)
{
    follower *f = (follower *)self;
    if (!is_free(f))
        return NULL;
    const cm_replay *replay = cm_follow_replay(f->follow);
    size_t count = (size_t)PyTuple_GET_SIZE(stacks);
    uint32_t *ids = PyMem_Calloc(count + 1, sizeof *ids);
    uint32_t *place = PyMem_Calloc(replay->origin_count + 1, sizeof *place);
    PyObject *list = NULL;
    bool fine = ids != NULL && place != NULL;
    for (size_t i = 0; fine && i < count; i++) {
        unsigned long id = PyLong_AsUnsignedLong(PyTuple_GET_ITEM(stacks, (Py_ssize_t)i));
        fine = !PyErr_Occurred();
        ids[i] = id <= UINT32_MAX ? (uint32_t)id : CM_STACK_NONE;
    }
    if (fine) {
        f->used = true;
        PyThreadState *saved = PyEval_SaveThread();
        fine = find_origins(f, ids, count, place);
        PyEval_RestoreThread(saved);
        f->used = false;
    }
    if (fine)
        list = list_blocks(replay, stacks, place);
    else if (!PyErr_Occurred())
        PyErr_NoMemory();
    PyMem_Free(ids);
    PyMem_Free(place);
    return list;
}

PyDoc_STRVAR(origin_doc,
             "origin(number) -> tuple\n\n(device, stack id, its own stack id, phase, node or "
             "operator, category, module): what the\nblocks of an origin have in common. The "
             "category is \"unknown\" where no walk has said it.");

static PyObject *follower_origin(PyObject *self, PyObject *number)
{
    follower *f = (follower *)self;
    size_t at = PyLong_AsSize_t(number);
    if ((at == (size_t)-1 && PyErr_Occurred()) || !is_free(f))
        return NULL;
    const cm_replay *replay = cm_follow_replay(f->follow);
    if (at >= replay->origin_count) {
        PyErr_SetString(PyExc_IndexError, "no such origin");
        return NULL;
    }
    const cm_origin *o = &replay->origin[at];
    return Py_BuildValue("(NIIsNsN)", cm_py_text(replay->device[o->device].name), o->stack, o->own,
                         cm_py_phases[o->phase], cm_py_node_name(&f->build, o->name),
                         cm_py_categories[o->category], cm_py_label(&f->build, o->module));
}

PyDoc_STRVAR(stack_doc, "stack(id) -> list\n\nIts frames, as those of Reader.");

static PyObject *follower_stack(PyObject *self, PyObject *id)
{
    follower *f = (follower *)self;
    unsigned long stack = PyLong_AsUnsignedLong(id);
    if ((stack == (unsigned long)-1 && PyErr_Occurred()) || !is_free(f))
        return NULL;
    return cm_py_stack(&f->build, stack <= UINT32_MAX ? (uint32_t)stack : CM_STACK_NONE);
}

PyDoc_STRVAR(
    steps_doc,
    "steps() -> list\n\n(number, device, loop, begin ns, end ns, peak, bytes at its end) of "
    "the last steps that\nended, oldest first.");

static PyObject *follower_steps(PyObject *self, PyObject *ignored)
{
    follower *f = (follower *)self;
    size_t count;
    if (!is_free(f))
        return NULL;
    const cm_follow_step *step = cm_follow_steps(f->follow, &count);
    const cm_replay *replay = cm_follow_replay(f->follow);
    PyObject *list = PyList_New(0);
    for (size_t i = 0; list != NULL && i < count; i++)
        if (cm_py_append(list, Py_BuildValue("(LNNKKLL)", (long long)step[i].number,
                                             cm_py_text(replay->device[step[i].device].name),
                                             cm_py_text(step[i].loop),
                                             (unsigned long long)step[i].begin.time_ns,
                                             (unsigned long long)step[i].end.time_ns,
                                             (long long)step[i].peak, (long long)step[i].left)) < 0)
            Py_CLEAR(list);
    return list;
}

PyDoc_STRVAR(totals_doc,
             "totals() -> dict\n\nrecords read, ns of the newest since the start, the start's wall "
             "clock in ns, resident bytes\nof the process (None: unknown), refused requests, steps "
             "that ended, lost events.");

static PyObject *follower_totals(PyObject *self, PyObject *ignored)
{
    follower *f = (follower *)self;
    if (!is_free(f))
        return NULL;
    const cm_follow_totals t = cm_follow_totals_of(f->follow);
    const cm_reader *reader = cm_follow_reader(f->follow);
    return Py_BuildValue("{sKsKsKsNsKsLsOsK}", "records", (unsigned long long)t.records,
                         "newest_ns", (unsigned long long)t.newest_ns, "start_realtime_ns",
                         (unsigned long long)cm_reader_start_realtime_ns(reader), "resident",
                         none_if_negative(t.resident), "refused", (unsigned long long)t.refused,
                         "steps", (long long)t.steps, "has_clock",
                         t.step_kind != 0 ? Py_True : Py_False, "lost",
                         (unsigned long long)cm_reader_lost_events(reader));
}

static PyObject *get_state(PyObject *self, void *ignored)
{
    follower *f = (follower *)self;
    return is_free(f) ? cm_py_text(cm_py_states[cm_reader_get_state(cm_follow_reader(f->follow))])
                      : NULL;
}

static PyObject *get_reason(PyObject *self, void *ignored)
{
    follower *f = (follower *)self;
    if (!is_free(f))
        return NULL;
    const cm_reader *reader = cm_follow_reader(f->follow);
    const char *reason = cm_reader_end_reason(reader);
    bool whole = cm_reader_get_state(reader) == CM_TRACE_COMPLETE;
    return cm_py_text(*reason == '\0' && !whole ? cm_reader_error(reader) : reason);
}

static PyObject *get_meta(PyObject *self, void *ignored)
{
    follower *f = (follower *)self;
    return is_free(f) ? cm_py_meta(cm_follow_reader(f->follow)) : NULL;
}

static PyMethodDef follower_methods[] = {
    {"read", follower_read, METH_O, read_doc},
    {"devices", follower_devices, METH_NOARGS, devices_doc},
    {"live", follower_live, METH_NOARGS, live_doc},
    {"blocks", follower_blocks, METH_VARARGS, blocks_doc},
    {"origin", follower_origin, METH_O, origin_doc},
    {"stack", follower_stack, METH_O, stack_doc},
    {"steps", follower_steps, METH_NOARGS, steps_doc},
    {"totals", follower_totals, METH_NOARGS, totals_doc},
    {NULL, NULL, 0, NULL},
};

static PyGetSetDef follower_attributes[] = {
    {"state", get_state, NULL, "Of the trace, when its end was last reached.", NULL},
    {"reason", get_reason, NULL, "Why it ended early, or what it lacks; else \"\".", NULL},
    {"meta", get_meta, NULL, "What the trace says of its process.", NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

PyDoc_STRVAR(follower_doc,
             "Follower(path, code=None)\n\nA trace followed while its process writes it: read() "
             "reads what has come, the rest says\nwhat is alive then. code: as of analyze().");

static PyType_Slot follower_slots[] = {
    {Py_tp_doc, (void *)follower_doc},         {Py_tp_new, (void *)follower_new},
    {Py_tp_dealloc, (void *)follower_dealloc}, {Py_tp_methods, follower_methods},
    {Py_tp_getset, follower_attributes},       {0, NULL},
};

static PyType_Spec follower_spec = {.name = "cuptimem._core.Follower",
                                    .basicsize = sizeof(follower),
                                    .flags = Py_TPFLAGS_DEFAULT,
                                    .slots = follower_slots};

int cm_py_follow_exec(PyObject *module)
{
    PyObject *type = PyType_FromSpec(&follower_spec);
    if (type == NULL)
        return -1;
    int status = PyModule_AddObjectRef(module, "Follower", type);
    Py_DECREF(type);
    return status;
}
