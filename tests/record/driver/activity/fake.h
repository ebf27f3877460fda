/* A driver and an NVML of which the test decides everything (fake_cuda.c, fake_nvml.c). */
#ifndef FAKE_H
#define FAKE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { FAKE_DEVICES = 4, FAKE_PROCESSES = 4 };

typedef struct fake_cuda {
    bool initialized;
    int count;
    struct {
        bool active;
        size_t free, total;
        uint64_t pooled;
        uint8_t uuid;
        void *context;           /* of the program's own; NULL: none */
        int references, current; /* retained, pushed: by us */
    } device[FAKE_DEVICES];
    int integrated; /* of all devices */
    int info_result, uuid_result, pool_result, push_result, bus_result;
    int capture_mode; /* of the thread */
    unsigned infos, retains;
    int modes_while_asked; /* of captures: or'ed */
} fake_cuda;

typedef struct fake_process {
    unsigned pid;
    unsigned long long bytes;
} fake_process;

typedef struct fake_nvml {
    int init_result, v2_result, v1_result, compute_result, graphics_result;
    bool mig;                   /* devices are known by the instance's name only */
    uint8_t uuid[FAKE_DEVICES]; /* 0: there is none */
    unsigned long long total[FAKE_DEVICES], reserved[FAKE_DEVICES];
    unsigned computes, graphics;
    fake_process compute[FAKE_PROCESSES], graphic[FAKE_PROCESSES];
    unsigned asked;
    unsigned delay_ms; /* of a list, as the program counts time */
} fake_nvml;

#endif
