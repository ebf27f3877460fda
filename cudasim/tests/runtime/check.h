/* For the C clients of the runtime: each is a program of named cases. */
#ifndef CHECK_H
#define CHECK_H

#include "../cases.h"
#include "objects/objects.h"
#include "rt.h"

#define OK(call) EQUAL(call, CM_CUDA_OK)

/* A kernel that an image registers, and what to launch it with. */
static inline void kernel_stub(void)
{
}
#define KERNEL ((const void *)(uintptr_t)kernel_stub)
static const dim3 ONE = {1, 1, 1}, WARP = {32, 1, 1};

static inline void **image_with_kernel(void)
{
    void **image = __cudaRegisterFatBinary(NULL);
    __cudaRegisterFunction(image, (const char *)KERNEL, NULL, "_Z6kernelv", -1, NULL, NULL, NULL,
                           NULL, NULL);
    __cudaRegisterFatBinaryEnd(image);
    return image;
}

static inline void launch(stream on, int times)
{
    while (times--)
        OK(cudaLaunchKernel(KERNEL, ONE, WARP, NULL, 0, on));
}

#endif
