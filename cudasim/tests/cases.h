/* For the C clients of the simulated device: checks, and programs of named cases. */
#ifndef CASES_H
#define CASES_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../../tests/check.h"
#include "core/report.h"

#define MIB ((size_t)1 << 20)
#define GIB ((size_t)1 << 30)

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

/* Runs the case that the command line names; lists them without one. */
static inline int run_case(const test_case *cases, int count, int words, char **word)
{
    for (int i = 0; i < count; i++) {
        if (words < 2) {
            puts(cases[i].name);
        } else if (strcmp(word[1], cases[i].name) == 0) {
            cases[i].run();
            puts("done"); /* a case that leaves early by exit(0) does not pass */
            return 0;
        }
    }
    return words < 2 ? 0 : 2;
}

#define MAIN(cases)                                                                                \
    int main(int words, char **word)                                                               \
    {                                                                                              \
        return run_case(cases, (int)(sizeof cases / sizeof *cases), words, word);                  \
    }

/* The same for cases in several files. Each table is ended by a case without name. */
static inline int run_case_of(const test_case *const *tables, int words, char **word)
{
    int result = words < 2 ? 0 : 2;

    for (; *tables != NULL && (words < 2 || result != 0); tables++) {
        int count = 0;

        while ((*tables)[count].name != NULL)
            count++;
        result = run_case(*tables, count, words, word);
    }
    return result;
}

#define MAIN_OF(...)                                                                               \
    int main(int words, char **word)                                                               \
    {                                                                                              \
        return run_case_of((const test_case *const[]){__VA_ARGS__, NULL}, words, word);            \
    }

static inline size_t used(int device)
{
    size_t now;

    cm_sim_used(device, &now, NULL);
    EQUAL(now, cm_sim_report_get()->device[device].used);
    return now;
}

/* The note of a kind and name; NULL: none. */
static inline const cm_sim_report_note *note(cm_sim_note_kind kind, const char *name)
{
    cm_sim_report *report = cm_sim_report_get();

    for (uint32_t i = 0; i < report->notes; i++)
        if (report->note[i].kind == (uint32_t)kind && strcmp(report->note[i].name, name) == 0)
            return &report->note[i];
    return NULL;
}

/* How often something was noted. */
static inline uint64_t noted(cm_sim_note_kind kind, const char *name)
{
    const cm_sim_report_note *found = note(kind, name);
    return found == NULL ? 0 : found->count;
}

#endif
