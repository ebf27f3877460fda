/* Events, and when they are done. */
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>

#include "work.h"

static void events(void)
{
    event a, b, silent;
    stream s;
    float ms = -1;
    OK(cudaStreamCreate(&s));
    OK(cudaEventCreate(&a));
    OK(cudaEventCreate(&b));
    OK(cudaEventCreateWithFlags(&silent, CM_CUDA_EVENT_DISABLE_TIMING));
    OK(cudaEventQuery(a)); /* never recorded: done */
    OK(cudaEventSynchronize(a));
    EQUAL(cudaEventElapsedTime(&ms, a, b), CM_CUDA_INVALID_HANDLE);
    OK(cudaEventRecord(a, s));
    OK(cudaEventRecord(b, s));
    OK(cudaEventQuery(b));
    OK(cudaEventElapsedTime(&ms, a, b));
    CHECK(ms == 0);
    launch(s, 2);
    OK(cudaEventRecord(b, s));
    OK(cudaEventElapsedTime(&ms, a, b));
    CHECK(ms == 0.02f);
    OK(cudaEventElapsedTime(&ms, b, a));
    CHECK(ms == -0.02f);
    OK(cudaEventRecord(silent, s));
    EQUAL(cudaEventElapsedTime(&ms, a, silent), CM_CUDA_INVALID_HANDLE);
    EQUAL(cudaEventElapsedTime(NULL, a, b), CM_CUDA_INVALID_VALUE);
    OK(cudaStreamWaitEvent(s, a, 0));
    OK(cudaStreamWaitEvent(NULL, silent, 0));
    EQUAL(cudaStreamWaitEvent(s, NULL, 0), CM_CUDA_INVALID_HANDLE);
    EQUAL(cudaStreamWaitEvent(s, a, 77), CM_CUDA_INVALID_VALUE);
    EQUAL(cudaEventCreateWithFlags(&b, 64), CM_CUDA_INVALID_VALUE);
    EQUAL(cudaEventCreateWithFlags(&b, CM_CUDA_EVENT_INTERPROCESS), CM_CUDA_INVALID_VALUE);
    EQUAL(cudaEventRecord(a, (stream)a), CM_CUDA_INVALID_HANDLE);
    event there;
    OK(cudaSetDevice(1));
    OK(cudaEventCreate(&there));
    OK(cudaSetDevice(0));
    EQUAL(cudaEventRecord(there, s), CM_CUDA_INVALID_HANDLE);
    OK(cudaEventDestroy(there));
    OK(cudaEventDestroy(a));
    EQUAL(cudaEventDestroy(a), CM_CUDA_INVALID_HANDLE);
    EQUAL(cudaEventQuery(a), CM_CUDA_INVALID_HANDLE);
    EQUAL(cudaEventRecord(a, s), CM_CUDA_INVALID_HANDLE);
    OK(cudaEventDestroy(b));
    OK(cudaEventDestroy(silent));
    OK(cudaStreamDestroy(s));
}

/* CUPTIMEM_SIM_EVENT_LAG=3 */
static void lag(void)
{
    event e, later;
    stream s, other;
    OK(cudaStreamCreate(&s));
    OK(cudaStreamCreate(&other));
    OK(cudaEventCreate(&e));
    OK(cudaEventCreate(&later));
    launch(s, 1);
    EQUAL(cudaStreamQuery(s), CM_CUDA_NOT_READY);
    OK(cudaEventRecord(e, s));
    EQUAL(cudaEventQuery(e), CM_CUDA_NOT_READY);
    EQUAL(cudaGetLastError(), CM_CUDA_NOT_READY); /* as CUDA does: whoever polls clears it */
    launch(other, 2);
    EQUAL(cudaEventQuery(e), CM_CUDA_NOT_READY);
    launch(other, 1); /* three launches on the device since */
    OK(cudaEventQuery(e));
    OK(cudaStreamQuery(s));
    EQUAL(cudaStreamQuery(other), CM_CUDA_NOT_READY);

    launch(s, 1);
    OK(cudaEventRecord(e, s));
    OK(cudaEventRecord(later, other));
    float ms;
    EQUAL(cudaEventElapsedTime(&ms, e, later), CM_CUDA_NOT_READY);
    OK(cudaStreamSynchronize(s)); /* or the host waits: for the stream, */
    OK(cudaEventQuery(e));
    EQUAL(cudaEventQuery(later), CM_CUDA_NOT_READY);
    OK(cudaEventSynchronize(later)); /* the event, */
    OK(cudaEventQuery(later));
    OK(cudaEventElapsedTime(&ms, e, later));
    launch(s, 1);
    OK(cudaEventRecord(e, s));
    OK(cudaDeviceSynchronize()); /* the device, */
    OK(cudaEventQuery(e));
    launch(s, 1);
    OK(cudaEventRecord(e, s));
    void *address;
    OK(cudaMalloc(&address, 64));
    OK(cudaFree(address)); /* which is also what this does */
    OK(cudaEventQuery(e));
    launch(s, 1);
    OK(cudaEventRecord(e, s));
    OK(cudaStreamDestroy(s)); /* the stream goes, the event remembers */
    EQUAL(cudaEventQuery(e), CM_CUDA_NOT_READY);
    launch(other, 3);
    OK(cudaEventQuery(e));
    OK(cudaEventDestroy(e));
    OK(cudaEventDestroy(later));
    OK(cudaStreamDestroy(other));
}

/* The same lag; nothing is launched while somebody polls. */
static void polling(void)
{
    event e;
    stream s;
    OK(cudaStreamCreate(&s));
    OK(cudaEventCreate(&e));
    launch(s, 1);
    for (int round = 0; round < 2; round++) { /* recorded anew it starts anew */
        int asked = 1;
        OK(cudaEventRecord(e, s));
        while (cudaEventQuery(e) && asked < 100)
            asked++;
        EQUAL(asked,
              1 + 3 * 4 + 1); /* the first is not idle, four count as a launch, then it is done */
        OK(cudaEventQuery(e));
    }
    for (int round = 0; round < 2; round++) {
        int asked = 1;
        while (cudaStreamQuery(s) && asked < 100)
            asked++;
        EQUAL(asked, 1 + 3 * 4 + 1);
        OK(cudaStreamQuery(s));
        launch(s, 1);
    }
    OK(cudaEventRecord(e, s));
    for (int i = 0; i < 2; i++) { /* who asks between launches does not hurry it */
        EQUAL(cudaEventQuery(e), CM_CUDA_NOT_READY);
        EQUAL(cudaStreamQuery(s), CM_CUDA_NOT_READY);
        launch(NULL, 1);
    }
    EQUAL(cudaEventQuery(e), CM_CUDA_NOT_READY);
    launch(NULL, 1);
    OK(cudaEventQuery(e));
    (void)cudaGetLastError();
    OK(cudaEventDestroy(e));
    OK(cudaStreamDestroy(s));
}

/* One thread records an event, in captures and outside, while another asks for it. */
static atomic_bool asking;

static void *asker(void *e)
{
    while (atomic_load(&asking)) {
        int result = cudaEventQuery(e);
        CHECK(!result || result == CM_CUDA_NOT_READY || result == CM_CUDA_CAPTURED_EVENT);
        (void)cudaEventElapsedTime(&(float){0}, e, e);
        sched_yield();
    }
    return NULL;
}

static void shared_event(void)
{
    pthread_t thread;
    event e;
    stream s;
    OK(cudaStreamCreateWithFlags(&s, CM_CUDA_STREAM_NON_BLOCKING));
    OK(cudaEventCreate(&e));
    atomic_store(&asking, true);
    EQUAL(pthread_create(&thread, NULL, asker, e), 0);
    for (int i = 0; i < 2000; i++) {
        graph g;
        launch(s, 1);
        OK(cudaEventRecord(e, s));
        OK(cudaStreamBeginCapture(s, CM_CUDA_CAPTURE_RELAXED));
        launch(s, 1);
        OK(cudaEventRecord(e, s));
        OK(cudaStreamWaitEvent(s, e, 0));
        OK(cudaStreamEndCapture(s, &g));
        OK(cudaGraphDestroy(g));
    }
    atomic_store(&asking, false);
    EQUAL(pthread_join(thread, NULL), 0);
    OK(cudaEventDestroy(e));
    OK(cudaStreamDestroy(s));
}

const test_case event_cases[] = {
    {"events", events}, {"lag", lag}, {"polling", polling}, {"shared_event", shared_event},
    {NULL, NULL},
};
