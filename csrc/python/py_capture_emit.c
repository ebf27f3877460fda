#include "py_capture_emit.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <unistd.h>

#include "../base/clock.h"
#include "../capture/ring_producer.h"

const char cm_py_capture_emit_doc[] =
    "capture_emit(threads, pairs, first=0, counter=None, pause_us=0) -> int\n\n"
    "Starts this many threads without Python; each emits `pairs` allocations, each with its free.\n"
    "Thread i's pair j has the address (first + i) << 32 | (j + 1) << 6 and the size j + 1 bytes.\n"
    "counter: a writable buffer of at least threads * 8 bytes; its i-th native 64-bit number "
    "counts\n"
    "the events of thread i, after each one is published. Returns how many events were published\n"
    "(fewer when recording is off or rings are full).";

typedef struct producer {
    pthread_t thread;
    uint64_t number, pairs, published;
    _Atomic uint64_t *counter;
    unsigned pause_us;
} producer;

static void publish(producer *p, cm_event event)
{
    cm_producer *t = cm_enter_hook();
    if (t == NULL)
        return;
    cm_event *slot = cm_reserve_hook(t);
    if (slot != NULL) {
        event.time = cm_clock_now();
        *slot = event;
        cm_commit_hook(t);
        p->published++;
        if (p->counter != NULL)
            atomic_store_explicit(p->counter, p->published, memory_order_release);
    }
    cm_leave_hook(t);
}

static void *produce(void *argument)
{
    producer *p = argument;
    for (uint64_t j = 0; j < p->pairs; j++) {
        cm_event event = {
            .address = p->number << 32 | (j + 1) << 6, .size = (int64_t)j + 1, .device_index = -1};
        event.kind = CM_EV_ALLOC;
        publish(p, event);
        event.kind = CM_EV_FREE;
        publish(p, event);
        if (p->pause_us != 0)
            usleep(p->pause_us);
    }
    return NULL;
}

/* 0, or the error of the first thread that did not start; the others have ended. */
static int produce_all(producer *producers, unsigned threads)
{
    unsigned started = 0;
    int status = 0;

    while (started < threads && status == 0) {
        status = pthread_create(&producers[started].thread, NULL, produce, &producers[started]);
        if (status == 0)
            started++;
    }
    for (unsigned i = 0; i < started; i++)
        pthread_join(producers[i].thread, NULL);
    return status;
}

PyObject *cm_py_capture_emit(PyObject *module, PyObject *arguments, PyObject *keywords)
{
    static char *names[] = {"threads", "pairs", "first", "counter", "pause_us", NULL};
    unsigned threads, pause_us = 0;
    unsigned long long pairs, first = 0, published = 0;
    PyObject *counter = Py_None;
    Py_buffer buffer = {0};
    int status;

    if (!PyArg_ParseTupleAndKeywords(arguments, keywords, "IK|KOI", names, &threads, &pairs, &first,
                                     &counter, &pause_us))
        return NULL;
    if (counter != Py_None && PyObject_GetBuffer(counter, &buffer, PyBUF_WRITABLE) < 0)
        return NULL;
    producer *producers = NULL;
    if (counter != Py_None && (size_t)buffer.len < threads * sizeof(uint64_t))
        PyErr_SetString(PyExc_ValueError, "the counter needs 8 bytes for each thread");
    else if ((producers = PyMem_Calloc(threads, sizeof *producers)) == NULL)
        PyErr_NoMemory();
    if (producers != NULL) {
        for (unsigned i = 0; i < threads; i++) {
            producers[i].number = first + i;
            producers[i].pairs = pairs;
            producers[i].pause_us = pause_us;
            if (counter != Py_None)
                producers[i].counter = (_Atomic uint64_t *)buffer.buf + i;
        }
        Py_BEGIN_ALLOW_THREADS;
        status = produce_all(producers, threads);
        Py_END_ALLOW_THREADS;
        for (unsigned i = 0; i < threads; i++)
            published += producers[i].published;
        if (status != 0) {
            errno = status;
            PyErr_SetFromErrno(PyExc_OSError);
        }
    }
    PyMem_Free(producers);
    if (counter != Py_None)
        PyBuffer_Release(&buffer);
    return PyErr_Occurred() ? NULL : PyLong_FromUnsignedLongLong(published);
}
