#include "fake.h"

#include <stdio.h>
#include <string.h>

fake_nvml fake_the_nvml;
static char handles[FAKE_DEVICES];

enum { OK = 0, NOT_FOUND = 6, INSUFFICIENT_SIZE = 7, VERSION_MISMATCH = 25 };
#define F fake_the_nvml

int nvmlInit_v2(void)
{
    return F.init_result;
}

static int find(unsigned number, void **handle)
{
    for (int i = 0; i < FAKE_DEVICES; i++)
        if (number != 0 && F.uuid[i] == number) {
            *handle = &handles[i];
            return OK;
        }
    return NOT_FOUND;
}

int nvmlDeviceGetHandleByUUID(const char *uuid, void **handle)
{
    unsigned number;

    if (sscanf(uuid,
               F.mig ? "MIG-00000000-0000-0000-0000-%12x" : "GPU-00000000-0000-0000-0000-%12x",
               &number) != 1)
        return NOT_FOUND;
    return find(number, handle);
}

int nvmlDeviceGetHandleByPciBusId_v2(const char *bus, void **handle)
{
    unsigned number;

    return sscanf(bus, "0000:%2x", &number) == 1 ? find(number, handle) : NOT_FOUND;
}

typedef struct memory {
    unsigned long long total, free, used;
} memory;

int nvmlDeviceGetMemoryInfo(void *handle, memory *out)
{
    *out = (memory){.total = F.total[(char *)handle - handles]};
    return F.v1_result;
}

typedef struct memory_v2 {
    unsigned version;
    unsigned long long total, reserved, free, used;
} memory_v2;

int nvmlDeviceGetMemoryInfo_v2(void *handle, memory_v2 *out)
{
    long i = (char *)handle - handles;

    if (out->version != (sizeof *out | 2u << 24))
        return VERSION_MISMATCH;
    *out = (memory_v2){.total = F.total[i], .reserved = F.reserved[i]};
    return F.v2_result;
}

typedef struct process {
    unsigned pid;
    unsigned long long bytes;
    unsigned instance, compute_instance;
} process;

static int list(unsigned *count, process *out, const fake_process *from, unsigned there, int result)
{
    F.asked++;
    if (*count < there)
        return INSUFFICIENT_SIZE;
    for (unsigned i = 0; i < there; i++)
        out[i] = (process){from[i].pid, from[i].bytes, ~0u, ~0u};
    *count = there;
    return result;
}

int nvmlDeviceGetComputeRunningProcesses_v3(void *handle, unsigned *count, process *out)
{
    (void)handle;
    return list(count, out, F.compute, F.computes, F.compute_result);
}

int nvmlDeviceGetGraphicsRunningProcesses_v2(void *handle, unsigned *count, process *out)
{
    (void)handle;
    return list(count, out, F.graphic, F.graphics, F.graphics_result);
}
