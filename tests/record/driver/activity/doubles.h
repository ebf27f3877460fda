/* What the parts under test are linked with in place of the capture and of the other sources: a
 * ring that is an array, names that are kept as texts, and what they were told. */
#ifndef DOUBLES_H
#define DOUBLES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../../../../csrc/base/event.h"
#include "../../../../csrc/sources/cupti/activity.h"
#include "../../../../csrc/sources/cupti/callbacks.h"
#include "../../../../csrc/sources/device_totals.h"
#include "../../../../csrc/sources/libraries.h"

#define CHECK(condition)                                                                           \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            fprintf(stderr, "%s:%d: not so: %s\n", __FILE__, __LINE__, #condition);                \
            _Exit(1);                                                                              \
        }                                                                                          \
    } while (0)
#define EQUAL(is, expected)                                                                        \
    do {                                                                                           \
        long long is_ = (long long)(is), expected_ = (long long)(expected);                        \
        if (is_ != expected_) {                                                                    \
            fprintf(stderr, "%s:%d: %s is %lld, not %lld\n", __FILE__, __LINE__, #is, is_,         \
                    expected_);                                                                    \
            _Exit(1);                                                                              \
        }                                                                                          \
    } while (0)

/* One thread emits. */
size_t double_event_count(void);
const cm_event *double_event(size_t number);
void double_forget_events(void);
void double_record(bool on);
/* So many events more find room, and none after them. */
void double_room(size_t events);
const char *double_name(uint32_t id); /* "" for 0 */
void double_forget_names(void);
extern uint64_t double_moves[4]; /* what cm_inflight_state says, in turn, then the last */
extern unsigned double_moves_asked;
extern bool double_context_ends; /* what cm_cupti_context_ends says */
extern void *double_context[4];  /* what cm_cupti_context_on says */
extern int double_held;          /* 1, 0; -1: cm_cuda_watch_deferred was not called */

typedef struct double_case {
    const char *name;
    void (*run)(void);
} double_case;

/* Runs the case that the command line names; lists them without one. */
static inline int double_main(const double_case *cases, size_t count, int words, char **word)
{
    for (size_t i = 0; i < count; i++) {
        if (words < 2) {
            puts(cases[i].name);
        } else if (strcmp(word[1], cases[i].name) == 0) {
            cases[i].run();
            puts("done"); /* a case that leaves early does not pass */
            return 0;
        }
    }
    return words < 2 ? 0 : 2;
}

#endif
