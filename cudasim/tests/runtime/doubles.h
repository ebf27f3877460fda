#ifndef DOUBLES_H
#define DOUBLES_H

#include <stdio.h>
#include <string.h>

#include "objects/cupti_hooks.h"

enum { HISTORY = 64 };

/* One thing that CUPTI was told. */
typedef struct told {
    char what[64];
    uint32_t correlation, id;
    int result, device;
    const void *parameters, *address;
    const char *symbol;
    size_t bytes;
    uint64_t first; /* the first parameter, at the exit */
    void *stream;
} told;

extern told history[HISTORY];
extern int history_count;

#endif
