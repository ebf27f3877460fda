/* A trace followed while its process writes it: what is alive, and the peaks of the last steps.
 *
 * Every record is read once, so nothing is known that needs the future: a block's category is what
 * a walk said of it, else unknown. Steps are those of the step clock over the last CM_FOLLOW_KEPT
 * steps or more. A trace that was replaced is read again from its start. Memory grows with live
 * blocks and stacks. One owner, any thread. */
#ifndef CM_ANALYSIS_FOLLOW_H
#define CM_ANALYSIS_FOLLOW_H

#include "../heap/replay.h"
#include "../heap/snapshot.h"
#include "../heap/step_clock.h"

enum {
    CM_FOLLOW_KEPT = 64,        /* steps that the clock looks back, or up to three times as many */
    CM_FOLLOW_STEPS = 128,      /* that have a row */
    CM_FOLLOW_CHANGES = 1 << 16 /* of a step that ends: in a longer one bounds are inexact */
};

/* An ended step on one device. A row is missing where the step's records are gone. */
typedef struct cm_follow_step {
    int64_t number;
    uint16_t device;
    char loop[32];
    cm_moment begin, end;
    int64_t peak, left; /* left: alive at its end */
} cm_follow_step;

typedef struct cm_follow cm_follow;

/* code: packages that count as user code; NULL: those that the trace names. NULL: error has one
 * line. */
cm_follow *cm_follow_open(const char *path, const char *code, char *error, size_t error_size);
void cm_follow_close(cm_follow *follow);

typedef enum cm_follow_got {
    CM_FOLLOW_MORE,   /* there may be more to read */
    CM_FOLLOW_AT_END, /* of what is written by now */
    CM_FOLLOW_AGAIN,  /* another trace has its name: nothing of it is read yet */
    CM_FOLLOW_FAILED  /* error has one line; nothing but close may follow */
} cm_follow_got;

/* Reads at most `most` records of what has come. */
cm_follow_got cm_follow_read(cm_follow *follow, size_t most, size_t *count, char *error,
                             size_t error_size);

/* After the records so far; valid until the next call. */
const cm_reader *cm_follow_reader(const cm_follow *follow);
const cm_replay *cm_follow_replay(const cm_follow *follow);
/* Alive, by origin. */
const cm_amounts *cm_follow_live(const cm_follow *follow);
/* The highest live bytes of a device so far. */
int64_t cm_follow_peak(const cm_follow *follow, uint16_t device);

typedef struct cm_follow_totals {
    uint64_t records, newest_ns; /* newest_ns: of the last record that is no sample of totals */
    int64_t resident;            /* of the process, at the last sample; -1 unknown */
    uint64_t refused;            /* requests */
    int64_t steps;               /* that ended */
    uint32_t step_kind;          /* of the clock, 0: there is none */
} cm_follow_totals;
cm_follow_totals cm_follow_totals_of(const cm_follow *follow);
/* Oldest first. */
const cm_follow_step *cm_follow_steps(const cm_follow *follow, size_t *count);

#endif
