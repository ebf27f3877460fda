/* Looking at the events that came, one after the other. */
#ifndef CM_TESTS_CALLBACKS_EVENTS_H
#define CM_TESTS_CALLBACKS_EVENTS_H

#include <stdio.h>
#include <stdlib.h>

#include "../ring_double.h"
#include "play.h"

void show(void); /* all there are */

#define CHECK(condition)                                                                           \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #condition);                        \
            show();                                                                                \
            exit(1);                                                                               \
        }                                                                                          \
    } while (0)

void start_over(void);
const cm_event *next(void);
const cm_event *last(void); /* that was looked at */
bool none_left(void);
extern bool see_contexts;  /* also those that were there before */
extern bool see_libraries; /* else they are passed over: this program's caller is the C library */

void expect(int kind, int flags, uint64_t address, int64_t size);
void expect_more(cm_driver_more what, uint64_t value);
void expect_library(const char *name);
void expect_lost(void);

#define NEW(kind, address, size) expect(CM_EV_DRIVER_NEW, CM_DRIVER_##kind, address, size)
/* A context that was seen in use, and not being made. */
#define FOUND(address) expect(CM_EV_DRIVER_NEW, CM_DRIVER_CONTEXT | CM_EVF_ALREADY, address, 0)
#define FREE(kind, address, size) expect(CM_EV_DRIVER_FREE, kind, address, size)
#define CORRELATED expect_more(CM_DRIVER_MORE_CORRELATION, correlation)

/* One call of the driver that gives something, without a record: what it gave and how large. */
void gives(const char *name, const void *parameters, int kind, uint64_t address, int64_t size);

#endif
