/* For the C clients of the driver: each is a program of named cases. */
#ifndef CHECK_H
#define CHECK_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cu.h"
#include "objects/devices.h"
#include "core/report.h"

#define MIB ((size_t)1 << 20)
#define GIB ((size_t)1 << 30)

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

#define CHECK(condition)                                                                           \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #condition);                        \
            exit(1);                                                                               \
        }                                                                                          \
    } while (0)

#define EQUAL(actual, expected)                                                                    \
    do {                                                                                           \
        long long actual_ = (long long)(actual), expected_ = (long long)(expected);                \
        if (actual_ != expected_) {                                                                \
            fprintf(stderr, "%s:%d: %s is %lld, not %lld\n", __FILE__, __LINE__, #actual, actual_, \
                    expected_);                                                                    \
            exit(1);                                                                               \
        }                                                                                          \
    } while (0)

typedef struct test_case {
    const char *name;
    void (*run)(void);
} test_case;

/* Ended by a case without name. */
extern const test_case memory_cases[], code_cases[], thread_cases[];

static inline size_t used(int device)
{
    size_t now;
    cm_sim_used(device, &now, NULL);
    return now;
}

/* The primary context of a device, made current. */
static inline handle begin(int device)
{
    handle context = NULL;
    EQUAL(cuInit(0), OK);
    EQUAL(cuDevicePrimaryCtxRetain(&context, device), OK);
    EQUAL(cuCtxSetCurrent(context), OK);
    return context;
}

/* How often something was noted. */
static inline uint64_t noted(cm_sim_note_kind kind, const char *name)
{
    cm_sim_report *report = cm_sim_report_get();
    for (uint32_t i = 0; i < report->notes; i++)
        if (report->note[i].kind == (uint32_t)kind && !strcmp(report->note[i].name, name))
            return report->note[i].count;
    return 0;
}

#endif
