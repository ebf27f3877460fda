/* The loops of a run, for judging leaks: the place of each step in its loop, each loop's progress,
 * and the epochs of its data iterators. One owner. */
#ifndef CM_ANALYSIS_LOOPS_H
#define CM_ANALYSIS_LOOPS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "../trace/reader.h"
#include "../heap/step_clock.h"
#include "../heap/attribution.h"

enum {
    CM_LOOPS_MAX = 64,       /* judged; programs have one to three */
    CM_LOOP_STEPS_MIN = 8,   /* shorter ones have no rate, and prove nothing */
    CM_LOOP_THREADS = 32,    /* that make its steps; programs have one, servers some */
    CM_LOOP_CALL = 8,        /* steps of each thread that a call of one may outlive */
    CM_LOOP_NONE = UINT8_MAX /* a step outside of the judged loops */
};

/* A thread that makes steps: boundaries that had passed at its last tick and at the one before, in
 * another step; each + 1, 0: none. */
typedef struct cm_loop_thread {
    uint32_t thread, last, before;
} cm_loop_thread;

typedef struct cm_loop {
    uint32_t number;        /* index into cm_steps.loop */
    uint32_t steps, passed; /* all of them, and those that have ended */
    uint32_t *global;       /* its steps' numbers in the trace */
    uint32_t *epoch;        /* after cm_loops_finish: first steps of its epochs */
    size_t epochs;          /* 0: no data iterators */
    cm_loop_thread ticked[CM_LOOP_THREADS];
    size_t threads;
} cm_loop;

typedef struct cm_loops cm_loops;
struct cm_loops {
    cm_loop loop[CM_LOOPS_MAX];
    size_t count;
    const cm_steps *steps;
    uint8_t *loop_of; /* by step: index into loop, or CM_LOOP_NONE */
    uint32_t *index;  /* by step: its number within that loop */
    struct cm_loops_iterators *iterators;
};

cm_loops *cm_loops_new(const cm_steps *steps); /* NULL: out of memory */
void cm_loops_free(cm_loops *loops);

/* The loop of a step of the trace and its number there; NULL: not judged. */
static inline cm_loop *cm_loops_find(cm_loops *loops, int64_t step, uint32_t *index)
{
    if (step < 0 || (size_t)step >= loops->steps->count || loops->loop_of[step] == CM_LOOP_NONE)
        return NULL;
    *index = loops->index[step];
    return &loops->loop[loops->loop_of[step]];
}

/* Whether the loop's steps train. */
bool cm_loops_trains(const cm_loops *loops, const cm_loop *loop);

/* Whether a block of this step that this thread frees now has outlived CM_GROWTH_OLD boundaries of
 * its loop. Where several threads make its steps side by side, those of the others do not count: a
 * call of one outlives many of their steps. A thread that has made none for a while, as one that
 * takes results out of a queue, is in no call. */
bool cm_loops_is_old(const cm_loops *loops, const cm_loop *loop, uint32_t step, uint32_t thread);

/* A step's tick, or a data iterator was made, restarted, or asked for a batch in this step (-1:
 * before the first). false: out of memory. */
bool cm_loops_event(cm_loops *loops, const cm_record *record, int64_t step,
                    cm_attribution *attribution);

/* Counts epochs: the successive iterators of the code line that asks for data in most of a loop's
 * steps (at least half). Without such a line: the stretches of calls between the steps of another
 * loop. false: out of memory. */
bool cm_loops_finish(cm_loops *loops);

#endif
