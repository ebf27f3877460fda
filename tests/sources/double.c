/* A capture that fits on one page, for tests of the sources alone: every event of every thread goes
 * into one growing array under a mutex. Stacks are walked with CPython 3.11's layout; on other
 * versions there are none. Compiled by build.py together with csrc/sources and csrc/python. */
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "capture/clock.h"
#include "capture/session.h"
#include "capture/thread.h"
#include "python/module.h"
#include "sources/tables.h"

enum { DEPTH = 48, STACKS = 1 << 16, NAMES = 4096 };

int cm_clock_uses_counter = 0;
static _Atomic uint32_t recording, capture_number = 1;
const _Atomic uint32_t *cm_recording = &recording;

struct cm_thread {
    int busy;
    uint32_t generation, id;
    cm_event slot;
    cm_walk walk;
};

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static cm_event *events;
static uint32_t *event_threads;
static size_t event_count, event_room;
static _Atomic uint32_t thread_count;
static __thread cm_thread *self __attribute__((tls_model("initial-exec")));

static void lock_before_fork(void)
{
    pthread_mutex_lock(&mutex);
}

static void unlock_in_parent(void)
{
    pthread_mutex_unlock(&mutex);
}

static void off_in_child(void)
{
    pthread_mutex_unlock(&mutex);
    atomic_store(&recording, 0);
    event_count = 0;
}

cm_thread *cm_enter_hook(void)
{
    if (!cm_is_recording())
        return NULL;
    if (self == NULL) {
        self = calloc(1, sizeof *self);
        self->id = atomic_fetch_add(&thread_count, 1) + 1;
    }
    if (self->busy)
        return NULL;
    self->busy = 1;
    self->generation = atomic_load(&capture_number);
    return self;
}

cm_event *cm_reserve_hook(cm_thread *t)
{
    return &t->slot;
}

void cm_commit_hook(cm_thread *t)
{
    pthread_mutex_lock(&mutex);
    if (event_count == event_room) {
        event_room = event_room ? event_room * 2 : 1 << 16;
        events = realloc(events, event_room * sizeof *events);
        event_threads = realloc(event_threads, event_room * sizeof *event_threads);
    }
    event_threads[event_count] = t->id;
    events[event_count++] = t->slot;
    pthread_mutex_unlock(&mutex);
}

void cm_leave_hook(cm_thread *t)
{
    t->busy = 0;
}

cm_walk *cm_thread_walk(cm_thread *t)
{
    return &t->walk;
}

uint32_t cm_thread_generation(const cm_thread *t)
{
    return t->generation;
}

/* --- stacks and names ----------------------------------------------------------------------- */

typedef struct stack {
    int depth;
    PyCodeObject *code[DEPTH];
    int lasti[DEPTH];
} stack;

static stack *stacks;
static uint32_t stack_count = CM_STACK_FIRST;

#if PY_VERSION_HEX >= 0x030b0000 && PY_VERSION_HEX < 0x030c0000
#define LOAD(type, base, offset) (*(type const *)((const char *)(base) + (offset)))
static const void *top_frame(void)
{
    const void *ts = PyGILState_GetThisThreadState();
    const void *cframe = ts != NULL ? LOAD(void *, ts, 56) : NULL;
    return cframe != NULL ? LOAD(void *, cframe, 8) : NULL;
}

static stack walk(void)
{
    stack s;
    memset(&s, 0, sizeof s);
    for (const void *f = top_frame(); f != NULL && s.depth < DEPTH; f = LOAD(void *, f, 48)) {
        s.code[s.depth] = LOAD(PyCodeObject *, f, 32);
        s.lasti[s.depth] = (int)(LOAD(char *, f, 56) - (char *)_PyCode_CODE(s.code[s.depth]));
        s.depth++;
    }
    return s;
}

cm_walk_top cm_walk_top_hook(void)
{
    const void *f = top_frame();
    return f == NULL ? (cm_walk_top){0, 0}
                     : (cm_walk_top){(uint64_t)(uintptr_t)f, LOAD(uint64_t, f, 56)};
}
#else
static stack walk(void)
{
    return (stack){0};
}

cm_walk_top cm_walk_top_hook(void)
{
    return (cm_walk_top){0, 0};
}
#endif

uint32_t cm_walk_capture_hook(cm_walk *unused)
{
    stack s = walk();
    uint32_t found = CM_STACK_NONE;

    if (s.depth == 0)
        return CM_STACK_NONE;
    pthread_mutex_lock(&mutex);
    for (uint32_t i = stack_count; i > CM_STACK_FIRST && found == CM_STACK_NONE; i--)
        if (memcmp(&stacks[i - 1], &s, sizeof s) == 0)
            found = i - 1;
    if (found == CM_STACK_NONE && stack_count < STACKS) {
        if (stacks == NULL)
            stacks = calloc(STACKS, sizeof *stacks);
        found = stack_count++;
        stacks[found] = s;
    }
    pthread_mutex_unlock(&mutex);
    return found;
}

static const char *names[NAMES];
static uint32_t name_count = 1;

uint32_t cm_name_intern_hook(const char *name)
{
    uint32_t id = 0;

    pthread_mutex_lock(&mutex);
    for (uint32_t i = 1; i < name_count && id == 0; i++)
        if (names[i] == name)
            id = i;
    if (id == 0 && name_count < NAMES) {
        id = name_count++;
        names[id] = name;
    }
    pthread_mutex_unlock(&mutex);
    return id;
}

/* --- Python ---------------------------------------------------------------------------------- */

static void (*idle_callback)(void);

void cm_session_set_idle_callback(void (*callback)(void))
{
    idle_callback = callback;
}

static PyObject *py_record(PyObject *module, PyObject *on)
{
    atomic_store(&recording, PyObject_IsTrue(on) ? atomic_load(&capture_number) : 0);
    Py_RETURN_NONE;
}

/* A new capture: events are forgotten, generations change. */
static PyObject *py_reset(PyObject *module, PyObject *unused)
{
    pthread_mutex_lock(&mutex);
    event_count = 0;
    atomic_fetch_add(&capture_number, 1);
    if (cm_is_recording())
        atomic_store(&recording, atomic_load(&capture_number));
    pthread_mutex_unlock(&mutex);
    Py_RETURN_NONE;
}

static PyObject *py_events(PyObject *module, PyObject *unused)
{
    uint32_t was = atomic_exchange(&recording, 0);
    pthread_mutex_lock(&mutex);
    size_t count = event_count;
    cm_event *copy = malloc((count + 1) * sizeof *copy);
    uint32_t *threads = malloc((count + 1) * sizeof *threads);
    memcpy(copy, events, count * sizeof *copy);
    memcpy(threads, event_threads, count * sizeof *threads);
    pthread_mutex_unlock(&mutex);
    PyObject *list = PyList_New((Py_ssize_t)count);
    for (size_t i = 0; i < count; i++)
        PyList_SET_ITEM(list, (Py_ssize_t)i,
                        Py_BuildValue("(iKLIiiiI)", copy[i].kind,
                                      (unsigned long long)copy[i].address, (long long)copy[i].size,
                                      copy[i].stack, copy[i].flags, copy[i].device_type,
                                      copy[i].device_index, threads[i]));
    free(copy);
    free(threads);
    atomic_store(&recording, was);
    return list;
}

static PyObject *py_stack(PyObject *module, PyObject *id)
{
    unsigned long at = PyLong_AsUnsignedLong(id);
    PyObject *list = PyList_New(0);

    for (int i = 0; at >= CM_STACK_FIRST && at < stack_count && i < stacks[at].depth; i++) {
        PyCodeObject *code = stacks[at].code[i];
        PyObject *row = Py_BuildValue("(OOi)", code->co_filename, code->co_qualname,
                                      PyCode_Addr2Line(code, stacks[at].lasti[i]));
        PyList_Append(list, row);
        Py_DECREF(row);
    }
    return list;
}

static PyObject *py_name(PyObject *module, PyObject *id)
{
    unsigned long at = PyLong_AsUnsignedLong(id);
    return PyUnicode_FromString(at > 0 && at < name_count ? names[at] : "");
}

static PyObject *py_idle(PyObject *module, PyObject *unused)
{
    Py_BEGIN_ALLOW_THREADS if (idle_callback != NULL) idle_callback();
    Py_END_ALLOW_THREADS Py_RETURN_NONE;
}

static void put(int kind, uint64_t address, int64_t size, int flags, int type, int index)
{
    cm_thread *t = cm_enter_hook();
    if (t == NULL)
        return;
    uint32_t stack = kind == CM_EV_TICK ? cm_walk_capture_hook(&t->walk) : 0;
    t->slot = (cm_event){.address = address,
                         .size = size,
                         .stack = stack,
                         .kind = (uint8_t)kind,
                         .flags = (uint8_t)flags,
                         .device_type = (uint8_t)type,
                         .device_index = (int8_t)index};
    cm_commit_hook(t);
    cm_leave_hook(t);
}

static PyObject *py_tick(PyObject *module, PyObject *args)
{
    int kind;
    PyObject *object;
    if (!PyArg_ParseTuple(args, "iO", &kind, &object))
        return NULL;
    put(CM_EV_TICK, (uint64_t)(uintptr_t)object, kind, 0, 0, -1);
    Py_RETURN_NONE;
}

static PyObject *py_mark(PyObject *module, PyObject *args)
{
    int kind;
    unsigned long long argument = 0;
    if (!PyArg_ParseTuple(args, "i|K", &kind, &argument))
        return NULL;
    put(CM_EV_MARK, argument, kind, 0, 0, -1);
    Py_RETURN_NONE;
}

static PyObject *py_object_new(PyObject *module, PyObject *args)
{
    int kind, before = 0;
    PyObject *object;
    if (!PyArg_ParseTuple(args, "iO|p", &kind, &object, &before))
        return NULL;
    put(CM_EV_OBJECT_NEW, (uint64_t)(uintptr_t)object, kind, before ? CM_EVF_BEFORE_START : 0, 0,
        -1);
    Py_RETURN_NONE;
}

static PyObject *py_seed(PyObject *module, PyObject *args)
{
    unsigned long long address;
    long long size;
    int type, index;
    if (!PyArg_ParseTuple(args, "KLii", &address, &size, &type, &index))
        return NULL;
    put(CM_EV_SEED, address, size, 0, type, index);
    Py_RETURN_NONE;
}

static PyObject *py_nothing(PyObject *module, PyObject *unused)
{
    Py_RETURN_NONE;
}

/* The address of our hook for the symbol with this meaning: to be called as a library would. */
static PyObject *py_hook(PyObject *module, PyObject *meaning)
{
    for (size_t i = 0; i < cm_allocator_symbol_count; i++)
        if (PyUnicode_CompareWithASCIIString(meaning, cm_allocator_symbols[i].meaning) == 0)
            return PyLong_FromVoidPtr(cm_allocator_symbols[i].hooks[0]);
    return PyErr_Format(PyExc_KeyError, "%R", meaning);
}

static PyObject *py_fork_handlers(PyObject *module, PyObject *unused)
{
    static int once;
    if (!once++)
        pthread_atfork(lock_before_fork, unlock_in_parent, off_in_child);
    Py_RETURN_NONE;
}

PyMethodDef cm_py_capture_methods[] = {
    {"capture_record", py_record, METH_O, NULL},
    {"tick", py_tick, METH_VARARGS, NULL},
    {"mark", py_mark, METH_VARARGS, NULL},
    {"object_new", py_object_new, METH_VARARGS, NULL},
    {"seed", py_seed, METH_VARARGS, NULL},
    {"frames_module_call", py_nothing, METH_O, NULL},
    {"frames_hide", py_nothing, METH_O, NULL},
    {"double_reset", py_reset, METH_NOARGS, NULL},
    {"double_events", py_events, METH_NOARGS, NULL},
    {"double_stack", py_stack, METH_O, NULL},
    {"double_name", py_name, METH_O, NULL},
    {"double_idle", py_idle, METH_NOARGS, NULL},
    {"double_hook", py_hook, METH_O, NULL},
    {"double_fork_handlers", py_fork_handlers, METH_NOARGS, NULL},
    {NULL, NULL, 0, NULL},
};
