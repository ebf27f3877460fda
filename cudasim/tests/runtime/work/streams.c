/* Streams, and functions that they call. */
#include "work.h"

int called;
void host_function(void *data)
{
    called += *(int *)data;
}

static void stream_callback(stream on, int status, void *data)
{
    CHECK(on != NULL && status == CM_CUDA_OK);
    called += *(int *)data;
}

static void streams(void)
{
    stream s, high, other;
    int priority = 9, device = 9, five = 5;
    unsigned flags = 9;
    OK(cudaStreamCreateWithPriority(&high, CM_CUDA_STREAM_NON_BLOCKING, -100));
    OK(cudaStreamGetPriority(high, &priority));
    EQUAL(priority, -5); /* the nearest there is */
    OK(cudaStreamGetFlags(high, &flags));
    EQUAL(flags, CM_CUDA_STREAM_NON_BLOCKING);
    OK(cudaStreamCreate(&s));
    OK(cudaStreamGetPriority(s, &priority));
    EQUAL(priority, 0);
    OK(cudaStreamGetDevice(s, &device));
    EQUAL(device, 0);
    EQUAL(cudaStreamCreateWithFlags(&other, 8), CM_CUDA_INVALID_VALUE);
    EQUAL(cudaStreamCreate(NULL), CM_CUDA_INVALID_VALUE);
    EQUAL(cudaStreamGetFlags(s, NULL), CM_CUDA_INVALID_VALUE);

    OK(cudaStreamSynchronize(s));
    OK(cudaStreamSynchronize(NULL));
    OK(cudaStreamSynchronize((stream)CM_CUDA_STREAM_LEGACY));
    OK(cudaStreamSynchronize((stream)CM_CUDA_STREAM_PER_THREAD));
    OK(cudaStreamQuery(s));
    OK(cudaLaunchHostFunc(s, host_function, &five));
    OK(cudaStreamAddCallback(s, stream_callback, &five, 0));
    EQUAL(called, 10);
    EQUAL(cudaLaunchHostFunc(s, NULL, NULL), CM_CUDA_INVALID_VALUE);
    EQUAL(cudaStreamAddCallback(s, stream_callback, &five, 1), CM_CUDA_INVALID_VALUE);

    EQUAL(cudaStreamDestroy(NULL), CM_CUDA_INVALID_HANDLE);
    EQUAL(cudaStreamDestroy((stream)&five), CM_CUDA_INVALID_HANDLE);
    EQUAL(cudaStreamDestroy((stream)((char *)s + 8)), CM_CUDA_INVALID_HANDLE);
    OK(cudaStreamDestroy(s));
    EQUAL(cudaStreamDestroy(s), CM_CUDA_INVALID_HANDLE);
    EQUAL(cudaStreamQuery(s), CM_CUDA_INVALID_HANDLE);
    EQUAL(cudaStreamSynchronize(s), CM_CUDA_INVALID_HANDLE);
    OK(cudaStreamDestroy(high));
    stream lots[500];
    for (int i = 0; i < 500; i++)
        OK(cudaStreamCreate(&lots[i]));
    for (int i = 0; i < 500; i++) {
        OK(cudaStreamQuery(lots[i]));
        OK(cudaStreamDestroy(lots[i]));
    }
}

const test_case stream_cases[] = {
    {"streams", streams},
    {NULL, NULL},
};
