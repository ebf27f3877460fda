/* What tests see of csrc/frames: built by build.py together with the sources under test. */
#include "python/module.h"

#include <pthread.h>
#include <stdlib.h>
#include <time.h>

#include "deflog_memory.h"
#include "frames/walk.h"

PyObject *cm_py_error;

static __thread cm_walk *own_walk;

static cm_walk *walk(void)
{
    if (own_walk == NULL)
        own_walk = calloc(1, sizeof *own_walk);
    return own_walk;
}

static uint32_t capture_afresh(void)
{
    cm_walk *fresh = calloc(1, sizeof *fresh);
    uint32_t id = cm_walk_capture_hook(fresh);
    free(fresh);
    return id;
}

static PyObject *begin(PyObject *module, PyObject *unused)
{
    deflog_memory_clear();
    if (cm_frames_begin() < 0)
        return PyErr_NoMemory();
    Py_RETURN_NONE;
}

static PyObject *capture(PyObject *module, PyObject *unused)
{
    return PyLong_FromUnsignedLong(cm_walk_capture_hook(walk()));
}

static PyObject *capture_without_gil(PyObject *module, PyObject *unused)
{
    uint32_t id;

    Py_BEGIN_ALLOW_THREADS id = cm_walk_capture_hook(walk());
    Py_END_ALLOW_THREADS return PyLong_FromUnsignedLong(id);
}

/* What the public API says of the running thread: [(file, function, line, f_lasti)], outermost
 * last. */
static PyObject *public_stack(void)
{
    PyObject *list = PyList_New(0);
    PyFrameObject *frame = PyThreadState_GetFrame(PyThreadState_Get());

    while (frame != NULL && list != NULL) {
        PyCodeObject *code = PyFrame_GetCode(frame);
        int offset = PyFrame_GetLasti(frame);
        PyObject *row = Py_BuildValue("(OOii)", code->co_filename, code->co_qualname,
                                      PyCode_Addr2Line(code, offset), offset);
        if (row == NULL || PyList_Append(list, row) < 0)
            Py_CLEAR(list);
        Py_XDECREF(row);
        Py_DECREF(code);
        PyFrameObject *back = PyFrame_GetBack(frame);
        Py_DECREF(frame);
        frame = back;
    }
    Py_XDECREF(frame);
    return list;
}

/* (id by the predicted walk, id by a walk that remembers nothing, the public stack), all at one
 * instruction. The public part comes last: making its objects can run a collection. */
static PyObject *snapshot(PyObject *module, PyObject *unused)
{
    uint32_t predicted, afresh;

    Py_BEGIN_ALLOW_THREADS predicted = cm_walk_capture_hook(walk());
    afresh = capture_afresh();
    Py_END_ALLOW_THREADS PyObject *stack = public_stack();
    return stack == NULL ? NULL : Py_BuildValue("(IIN)", predicted, afresh, stack);
}

static PyObject *top(PyObject *module, PyObject *unused)
{
    cm_walk_top t = cm_walk_top_hook();
    return Py_BuildValue("(KK)", (unsigned long long)t.frame, (unsigned long long)t.ip);
}

static PyObject *log_bytes(PyObject *module, PyObject *unused)
{
    size_t length;
    const unsigned char *bytes = deflog_memory_bytes(&length);
    return PyBytes_FromStringAndSize((const char *)bytes, (Py_ssize_t)length);
}

static PyObject *log_room(PyObject *module, PyObject *argument)
{
    long long room = PyLong_AsLongLong(argument);
    size_t length;

    if (room == -1 && PyErr_Occurred())
        return NULL;
    deflog_memory_bytes(&length);
    deflog_memory_set_capacity(room < 0 ? SIZE_MAX : length + (size_t)room);
    Py_RETURN_NONE;
}

static PyObject *log_longest(PyObject *module, PyObject *unused)
{
    return PyLong_FromSize_t(deflog_memory_longest());
}

static PyObject *counts(PyObject *module, PyObject *unused)
{
    cm_frames_counts c = cm_frames_get_counts();
    return Py_BuildValue("{s:K,s:K,s:K,s:K,s:K,s:K}", "stacks", c.stacks, "codes", c.codes, "names",
                         c.names, "lost", c.lost, "epochs", c.epochs, "mapped_bytes",
                         c.mapped_bytes);
}

/* Addresses that live for ever; 0 and 1 hold the same text. */
static const char *const NAMES[] = {"N5torch8autograd9AddBackwardE", "same", "other"};
static char name_copy[] = "N5torch8autograd9AddBackwardE";
static char many_names[20000][8];

static PyObject *name(PyObject *module, PyObject *argument)
{
    long i = PyLong_AsLong(argument);
    const char *pointer = i == 0 ? NAMES[0] : i == 1 ? name_copy : i < 4 ? NAMES[i - 1] : NULL;

    if (i == -1 && PyErr_Occurred())
        return NULL;
    if (pointer == NULL) {
        i %= 20000;
        snprintf(many_names[i], sizeof many_names[i], "n%ld", i);
        pointer = many_names[i];
    }
    return PyLong_FromUnsignedLong(cm_name_intern_hook(pointer));
}

static PyObject *name_text(PyObject *module, PyObject *argument)
{
    const char *text = PyUnicode_AsUTF8(argument);
    return text == NULL ? NULL : PyLong_FromUnsignedLong(cm_name_intern_text_hook(text));
}

static double nanoseconds(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e9 + (double)t.tv_nsec;
}

/* bench(n): nanoseconds per capture of the caller's stack, GIL released. */
static PyObject *bench(PyObject *module, PyObject *argument)
{
    long n = PyLong_AsLong(argument);
    double start, end;

    if (n <= 0)
        return PyErr_Occurred() ? NULL : PyFloat_FromDouble(0);
    Py_BEGIN_ALLOW_THREADS cm_walk *w = walk();
    for (int i = 0; i < 100; i++)
        cm_walk_capture_hook(w);
    start = nanoseconds();
    for (long i = 0; i < n; i++) {
        uint32_t id = cm_walk_capture_hook(w);
        __asm__ volatile("" ::"r"(id) : "memory");
    }
    end = nanoseconds();
    Py_END_ALLOW_THREADS return PyFloat_FromDouble((end - start) / (double)n);
}

/* hit(): one capture timed by itself; hit_mean() gives (mean ns, count) and starts again. */
static double hit_total, hit_empty;
static long hit_count;

static PyObject *hit(PyObject *module, PyObject *const *arguments, Py_ssize_t n)
{
    cm_walk *w = walk();
    double a = nanoseconds(), b = nanoseconds();
    uint32_t id = cm_walk_capture_hook(w);
    double c = nanoseconds();

    hit_empty += b - a;
    hit_total += c - b;
    hit_count++;
    return PyLong_FromUnsignedLong(id);
}

static PyObject *hit_mean(PyObject *module, PyObject *unused)
{
    PyObject *result =
        Py_BuildValue("(dl)", (hit_total - hit_empty) / (double)hit_count, hit_count);
    hit_total = hit_empty = 0;
    hit_count = 0;
    return result;
}

/* A thread that Python does not know. */
static void *foreign_thread(void *result)
{
    *(uint32_t *)result = capture_afresh();
    return NULL;
}

static PyObject *capture_in_foreign_thread(PyObject *module, PyObject *unused)
{
    pthread_t thread;
    uint32_t id = UINT32_MAX;

    if (pthread_create(&thread, NULL, foreign_thread, &id) != 0)
        return PyErr_SetFromErrno(PyExc_OSError);
    Py_BEGIN_ALLOW_THREADS pthread_join(thread, NULL);
    Py_END_ALLOW_THREADS return PyLong_FromUnsignedLong(id);
}

/* hold_gil() keeps the GIL in a C loop until a capture_while_gil_is_held(n) of another thread is
 * through (True), or a minute has passed (False: the captures waited for the GIL).
 * thread_is_ready() says when there is such a thread: one that could not start without the GIL
 * would be mistaken for one that waits. */
static _Atomic int thread_ready, gil_is_held, captures_done;

static PyObject *thread_is_ready(PyObject *module, PyObject *unused)
{
    return PyBool_FromLong(thread_ready);
}

static PyObject *hold_gil(PyObject *module, PyObject *unused)
{
    double end = nanoseconds() + 60e9;

    gil_is_held = 1;
    while (!captures_done && nanoseconds() < end)
        ;
    gil_is_held = 0;
    return PyBool_FromLong(captures_done);
}

static PyObject *capture_while_gil_is_held(PyObject *module, PyObject *argument)
{
    long n = PyLong_AsLong(argument);
    uint32_t first = 0, id = 0;
    long different = 0;

    if (n == -1 && PyErr_Occurred())
        return NULL;
    captures_done = 0;
    Py_BEGIN_ALLOW_THREADS thread_ready = 1;
    while (!gil_is_held)
        ;
    thread_ready = 0;
    first = capture_afresh(); /* also the slow path */
    for (long i = 0; i < n; i++) {
        id = cm_walk_capture_hook(walk());
        different += id != first;
    }
    captures_done = 1;
    Py_END_ALLOW_THREADS return Py_BuildValue("(Il)", id, different);
}

/* Uses up what cm_frames_init needs on 3.12+; how many were free. */
#if PY_VERSION_HEX >= 0x030c0000
static int idle_watcher(PyCodeEvent event, PyCodeObject *code)
{
    return 0;
}
#endif

static PyObject *take_all_watchers(PyObject *module, PyObject *unused)
{
    long taken = 0;
#if PY_VERSION_HEX >= 0x030c0000
    while (PyCode_AddWatcher(idle_watcher) >= 0)
        taken++;
    PyErr_Clear();
#endif
    return PyLong_FromLong(taken);
}

static PyMethodDef methods[] = {
    {"take_all_watchers", take_all_watchers, METH_NOARGS, NULL},
    {"begin", begin, METH_NOARGS, NULL},
    {"capture", capture, METH_NOARGS, NULL},
    {"capture_without_gil", capture_without_gil, METH_NOARGS, NULL},
    {"snapshot", snapshot, METH_NOARGS, NULL},
    {"top", top, METH_NOARGS, NULL},
    {"log_bytes", log_bytes, METH_NOARGS, NULL},
    {"log_room", log_room, METH_O, NULL},
    {"log_longest", log_longest, METH_NOARGS, NULL},
    {"counts", counts, METH_NOARGS, NULL},
    {"name", name, METH_O, NULL},
    {"name_text", name_text, METH_O, NULL},
    {"bench", bench, METH_O, NULL},
    {"hit", (PyCFunction)(void *)hit, METH_FASTCALL, NULL},
    {"hit_mean", hit_mean, METH_NOARGS, NULL},
    {"capture_in_foreign_thread", capture_in_foreign_thread, METH_NOARGS, NULL},
    {"thread_is_ready", thread_is_ready, METH_NOARGS, NULL},
    {"hold_gil", hold_gil, METH_NOARGS, NULL},
    {"capture_while_gil_is_held", capture_while_gil_is_held, METH_O, NULL},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef definition = {PyModuleDef_HEAD_INIT, .m_name = MODULE_NAME, .m_size = -1,
                                        .m_methods = methods};

#define JOIN(a, b) a##b
#define INIT(name) JOIN(PyInit_, name)

PyMODINIT_FUNC INIT(MODULE_SYMBOL)(void)
{
    PyObject *module = PyModule_Create(&definition);

    if (pthread_atfork(cm_frames_before_fork, cm_frames_after_fork, cm_frames_after_fork) != 0)
        return PyErr_NoMemory();

    cm_py_error = PyErr_NewException(MODULE_NAME ".Error", PyExc_RuntimeError, NULL);
    if (module == NULL || cm_py_error == NULL ||
        PyModule_AddObjectRef(module, "Error", cm_py_error) < 0 ||
        PyModule_AddFunctions(module, cm_py_frames_methods) < 0)
        return NULL;
    return module;
}
