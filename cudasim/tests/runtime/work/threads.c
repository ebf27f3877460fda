/* All of it in several threads at once. */
#include <pthread.h>
#include <stdint.h>

#include "work.h"

static void *worker(void *number)
{
    enum { ROUNDS = 300 };
    unsigned seed = (unsigned)(uintptr_t)number;
    OK(cudaSetDevice((int)(seed % 2)));
    stream s;
    event e;
    OK(cudaStreamCreateWithFlags(&s, CM_CUDA_STREAM_NON_BLOCKING));
    OK(cudaEventCreate(&e));
    for (int i = 0; i < ROUNDS; i++) {
        void *a, *b;
        char bytes[64];
        graph g;
        exec x;
        size_t size = 1 + (size_t)rand_r(&seed) % (4 * MIB);
        OK(cudaMallocAsync(&a, size, s));
        OK(cudaMalloc(&b, size));
        launch(s, 3);
        OK(cudaMemcpyAsync(b, bytes, size < 64 ? size : 64, 1, s));
        OK(cudaEventRecord(e, s));
        OK(cudaEventQuery(e));
        OK(cudaFreeAsync(a, s));
        OK(cudaFree(b));
        OK(cudaStreamBeginCapture(s, CM_CUDA_CAPTURE_RELAXED));
        launch(s, 2);
        OK(cudaStreamEndCapture(s, &g));
        OK(cudaGraphInstantiate(&x, g, 0));
        OK(cudaGraphLaunch(x, s));
        OK(cudaGraphDestroy(g));
        OK(cudaGraphExecDestroy(x));
        OK(cudaStreamSynchronize(s));
        CHECK(cm_sim_function_name(KERNEL) != NULL);
    }
    OK(cudaEventDestroy(e));
    OK(cudaStreamDestroy(s));
    OK(cudaGetLastError());
    return NULL;
}

static void threads(void)
{
    enum { THREADS = 4 };
    pthread_t thread[THREADS];
    void **image = image_with_kernel();
    for (uintptr_t i = 0; i < THREADS; i++)
        EQUAL(pthread_create(&thread[i], NULL, worker, (void *)i), 0);
    for (int i = 0; i < THREADS; i++)
        EQUAL(pthread_join(thread[i], NULL), 0);
    EQUAL(cm_sim_launches(0) + cm_sim_launches(1), THREADS * 300 * 5);
    for (int i = 0; i < 2; i++)
        EQUAL(used(i), cm_sim_config_get()->device[i].context);
    __cudaUnregisterFatBinary(image);
}

const test_case thread_cases[] = {
    {"threads", threads},
    {NULL, NULL},
};
