#include "fake.h"

#include <stdio.h>
#include <string.h>

fake_cuda fake_the_cuda;
static int current = -1;
static char contexts[FAKE_DEVICES];

enum { OK = 0, INVALID_VALUE = 1, NOT_INITIALIZED = 3, INVALID_CONTEXT = 201 };
#define F fake_the_cuda

int cuInit(unsigned flags)
{
    (void)flags;
    __builtin_trap(); /* nobody may */
}

int cuDeviceGetCount(int *count)
{
    *count = F.count;
    return F.initialized ? OK : NOT_INITIALIZED;
}

int cuDeviceGetUuid_v2(uint8_t uuid[16], int device)
{
    memset(uuid, 0, 16);
    uuid[15] = F.device[device].uuid;
    return F.uuid_result;
}

int cuDeviceGetPCIBusId(char *text, int size, int device)
{
    snprintf(text, (size_t)size, "0000:%02x:00.0", F.device[device].uuid);
    return F.bus_result;
}

int cuDevicePrimaryCtxGetState(int device, unsigned *flags, int *active)
{
    *flags = 0;
    *active = F.device[device].active;
    return OK;
}

int cuDevicePrimaryCtxRetain(void **context, int device)
{
    if (!F.device[device].active)
        __builtin_trap(); /* that would make one */
    F.device[device].references++;
    F.retains++;
    *context = &contexts[device];
    return OK;
}

int cuDevicePrimaryCtxRelease_v2(int device)
{
    F.device[device].references--;
    return OK;
}

int cuCtxPushCurrent_v2(void *context)
{
    if (F.push_result)
        return F.push_result;
    current = -1;
    for (int i = 0; i < FAKE_DEVICES; i++)
        if (context == &contexts[i] ||
            (F.device[i].context != NULL && context == F.device[i].context))
            current = i;
    if (current < 0)
        return INVALID_CONTEXT;
    F.device[current].current++;
    return OK;
}

int cuCtxPopCurrent_v2(void **context)
{
    *context = &contexts[current];
    F.device[current].current--;
    current = -1;
    return OK;
}

int cuDeviceGetAttribute(int *value, int attribute, int device)
{
    (void)device;
    *value = attribute == 18 ? F.integrated : 0;
    return OK;
}

int cuMemGetInfo_v2(size_t *free_bytes, size_t *total)
{
    F.infos++;
    F.modes_while_asked |= 1 << F.capture_mode;
    if (current < 0)
        return INVALID_CONTEXT;
    *free_bytes = F.device[current].free;
    *total = F.device[current].total;
    return F.info_result;
}

int cuDeviceGetDefaultMemPool(void **pool, int device)
{
    *pool = &F.device[device].pooled;
    return F.pool_result;
}

int cuMemPoolGetAttribute(void *pool, int attribute, void *value)
{
    if (attribute != 5)
        return INVALID_VALUE;
    memcpy(value, pool, sizeof(uint64_t));
    return OK;
}

int cuThreadExchangeStreamCaptureMode(int *mode)
{
    int before = F.capture_mode;

    F.capture_mode = *mode;
    *mode = before;
    return OK;
}
