/* What the driver tells the CUPTI surface: kept here by doubles of its hooks (reported.c). */
#ifndef TOLD_H
#define TOLD_H

#include <stdint.h>

#include "objects/cupti_hooks.h"

typedef struct told_record {
    char kind; /* 'm'emory, 'k'ernel, 'c'opy, 's'et */
    int operation, what;
    uint64_t address;
    size_t bytes;
    void *stream;
    char name[64];
    unsigned grid, block, shared;
} told_record;

typedef struct told_call {
    uint32_t id;
    int device, entered, left, result;
    char name[64], symbol[64];
    unsigned char parameters[96]; /* as they were on entry */
    told_record record[4];
    int records;
} told_call;

/* Begins to be told, from nothing. */
void told_begin(void);
/* Of contexts: [1] made, [2] ended. */
extern unsigned told_contexts[3];
/* The only call that was told since; fails where there were others or none. Stops. */
const told_call *told_end(void);

#endif
