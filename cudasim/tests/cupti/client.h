/* A CUPTI client, as its own declarations see the library; and a checking main program's tools. */
#ifndef CUPTI_CLIENT_H
#define CUPTI_CLIENT_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cupti/cupti_records.h"

typedef void (*callback_function)(void *userdata, int domain, uint32_t id, const void *data);
typedef void (*request_function)(uint8_t **buffer, size_t *size, size_t *max_records);
typedef void (*complete_function)(void *context, uint32_t stream, uint8_t *buffer, size_t size,
                                  size_t valid);

int cuptiSubscribe(void **, callback_function, void *);
int cuptiSubscribe_v2(void **, callback_function, void *, cm_cupti_subscriber_params *);
int cuptiUnsubscribe(void *);
int cuptiEnableCallback(uint32_t, void *, int, uint32_t);
int cuptiEnableDomain(uint32_t, void *, int);
int cuptiGetCallbackName(int, uint32_t, const char **);
int cuptiActivityRegisterCallbacks(request_function, complete_function);
int cuptiActivityEnable(uint32_t);
int cuptiActivityDisable(uint32_t);
int cuptiActivityEnableContext(void *, uint32_t);
int cuptiActivityDisableContext(void *, uint32_t);
int cuptiActivityFlushAll(uint32_t);
int cuptiActivityFlushPeriod(uint32_t);
int cuptiActivityGetNextRecord(uint8_t *, size_t, cm_cupti_record **);
int cuptiActivityGetNumDroppedRecords(void *, uint32_t, size_t *);
int cuptiActivityGetAttribute(uint32_t, size_t *, void *);
int cuptiActivitySetAttribute(uint32_t, size_t *, const void *);
int cuptiActivityRegisterTimestampCallback(uint64_t (*)(void));
int cuptiActivityEnableRuntimeApi(uint32_t, uint8_t);
int cuptiActivityEnableDriverApi(uint32_t, uint8_t);
int cuptiActivityConfigureUnifiedMemoryCounter(const void *, uint32_t);
int cuptiActivityPushExternalCorrelationId(uint32_t, uint64_t);
int cuptiActivityPopExternalCorrelationId(uint32_t, uint64_t *);
int cuptiSetThreadIdType(uint32_t);
int cuptiGetVersion(uint32_t *);
int cuptiGetTimestamp(uint64_t *);
int cuptiGetResultString(uint32_t, const char **);
int cuptiGetStreamIdEx(void *, void *, uint8_t, uint32_t *);
int cuptiGetContextId(void *, uint32_t *);
int cuptiGetDeviceId(void *, uint32_t *);
int cuptiFinalize(void);

enum { DRIVER_API = 1, RUNTIME_API = 2 };
enum { CUDA_MALLOC = 20, CUDA_LAUNCH = 211, CU_MALLOC = 243, CU_FREE = 245, CU_LAUNCH = 307 };
enum { FORCED = 1 };
enum {
    OK = 0,
    INVALID_PARAMETER = 1,
    INVALID_CONTEXT = 3,
    INVALID_OPERATION = 7,
    SIZE_NOT_SUFFICIENT = 10,
    MAX_LIMIT_REACHED = 12,
    NOT_READY = 13,
    NOT_COMPATIBLE = 14,
    QUEUE_EMPTY = 18,
    INVALID_KIND = 21,
    MULTIPLE_SUBSCRIBERS = 39
};

#define CHECK(condition)                                                                           \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            fprintf(stderr, "%s:%d: not so: %s\n", __FILE__, __LINE__, #condition);                \
            _exit(1);                                                                              \
        }                                                                                          \
    } while (0)
#define EQUAL(is, expected)                                                                        \
    do {                                                                                           \
        long long is_ = (long long)(is), expected_ = (long long)(expected);                        \
        if (is_ != expected_) {                                                                    \
            fprintf(stderr, "%s:%d: %s is %lld, not %lld\n", __FILE__, __LINE__, #is, is_,         \
                    expected_);                                                                    \
            _exit(1);                                                                              \
        }                                                                                          \
    } while (0)

/* A program of named units, of which the command line names one. */
typedef struct unit {
    const char *name;
    void (*run)(void);
} unit;

static inline int run_unit(const unit *units, size_t count, int words, char **word)
{
    for (size_t i = 0; i < count; i++)
        if (words == 2 && !strcmp(units[i].name, word[1])) {
            units[i].run();
            return 0;
        }
    fprintf(stderr, "which one?\n");
    return 2;
}

#define UNITS(units)                                                                               \
    int main(int words, char **word)                                                               \
    {                                                                                              \
        return run_unit(units, sizeof units / sizeof *units, words, word);                         \
    }

#endif
