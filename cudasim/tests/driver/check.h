/* For the C clients of the driver: each is a program of named cases. */
#ifndef CHECK_H
#define CHECK_H

#include "../cases.h"
#include "cu.h"
#include "objects/devices.h"

/* Results, as the driver numbers them. */
enum {
    OK = 0,
    INVALID_VALUE = 1,
    OUT_OF_MEMORY = 2,
    NO_DEVICE = 100,
    INVALID_DEVICE = 101,
    INVALID_CONTEXT = 201,
    INVALID_HANDLE = 400,
    NOT_FOUND = 500,
    CONTEXT_DESTROYED = 709,
    TOO_LARGE = 720,
    NOT_SUPPORTED = 801
};

/* Ended by a case without name. */
extern const test_case memory_cases[], code_cases[], thread_cases[];

/* The primary context of a device, made current. */
static inline handle begin(int device)
{
    handle context = NULL;
    EQUAL(cuInit(0), OK);
    EQUAL(cuDevicePrimaryCtxRetain(&context, device), OK);
    EQUAL(cuCtxSetCurrent(context), OK);
    return context;
}

#endif
