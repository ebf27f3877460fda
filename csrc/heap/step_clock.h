/* The step clock: which of the recorded ticks end a step. Pure: no trace, no Python, no locks; the
 * reader feeds it from a file and the collector can feed it while recording. One owner.
 *
 * The rules, in the order in which they apply:
 *
 *  1. Ticks of one kind form groups; a group is what one step ticked. A tick belongs to the group
 *     before it unless its object has ticked in that group, or was created after the group's first
 *     tick: then it begins the next. (`for o in opts: o.step()`, one optimizer per parameter, a
 *     generator and a discriminator: one group an iteration. A new optimizer in every
 *     iteration: one group each. An object whose creation was not seen counts as old.) The object
 *     of a backward pass is the code line that asked for it.
 *     A group in which a second object took over from the first for good is cut where it did: two
 *     phases with an optimizer each, both made up front, do not share a step.
 *     Data iterators differ: a new one shares the group of the last tick of the one before, which
 *     only found out that there was nothing more, unless a node ran in between. One that is asked
 *     from another code line counts as new, because addresses are reused.
 *  2. The clock is the first of: explicit, optimizer, backward, data that has CM_CLOCK_ENOUGH
 *     groups; else the first of these and module that ticked at all. With explicit ticks, however
 *     few, nothing below applies: the program has said what a step is. (Calls of a module are no
 *     way out of too few better ticks: they lie within a step whose graph is still needed.)
 *  3. Optimizers and backward passes that tick at two rates: where there are two to eight groups
 *     from one tick of an object to its next, the same number three times in four, and it ticked
 *     CM_CLOCK_JOINED times, those groups are one: an iteration of five critic updates and one of
 *     the generator's. Fewer iterations than that leave the groups, and their number is reported.
 *  4. Explicit, optimizer and backward ticks end a step (behind the last tick of their group); data
 *     and module ticks begin one (at the first of their group), so their last one opens what is
 *     only a tail.
 *  5. Between two ticks of the clock the steps of a lower one count where the program does
 * something else there: for the optimizer three times as many backward passes as usual, and three
 * at least (a scaler that skips; those inside the optimizer's own step do not count); else data or
 *     module steps without a backward pass (evaluation, sampling): two on code lines that usual
 *     steps do not have, or three on any line if usual steps have no such step at all. A line is
 *     usual if it is in more than two of three steps from its first to its last. The last backward
 *     passes before the clock goes on are left to its own step: as many as a usual step has.
 *  6. A clock is a code line. Another line of that kind begins a new stretch, unless the two
 *     alternate: the first comes back, and one of them mostly ticks at most three times in a row
 *     (a prefill and its decoding steps, a warm-up line). Stretches of the same lines that do the
 *     same are one loop.
 *
 * No rule looks at a time: the same ticks are the same steps on any machine.
 *
 * Steps tile the time from the first one's start to the last one's end; what follows is the tail.
 * A first step that is ended by a tick has no tick to start it. It starts at the first data tick
 * before that end; else at the first autograd node, because building a model makes none; so that
 * what was set up before is not part of a step. Where nothing was set up while recording (objects
 * were found alive, none was created), it starts with the recording. */
#ifndef CM_HEAP_STEP_CLOCK_H
#define CM_HEAP_STEP_CLOCK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct cm_moment {
    uint64_t position; /* records of the trace before it */
    uint64_t time_ns;
} cm_moment;

typedef struct cm_tick {
    cm_moment at; /* of the tick's own record */
    uint64_t object;
    uint64_t backward; /* autograd nodes started so far */
    uint32_t line;     /* small number of the code line that steps; equal = same line */
    uint32_t kind;     /* cm_tick_kind */
    bool inside;       /* of an optimizer's step: a closure's backward pass */
} cm_tick;

typedef struct cm_clock_step {
    cm_moment end; /* the first record behind the step; it began where the one before ended */
    uint32_t loop; /* index into loops */
} cm_clock_step;

typedef struct cm_clock_loop {
    char name[32]; /* training, evaluation, inference; "training 2" for another line */
    uint32_t kind, line;
    uint64_t steps;
} cm_clock_loop;

typedef struct cm_clock_change {
    uint32_t step, loop; /* from this step on */
    uint32_t kind, line;
} cm_clock_change;

typedef struct cm_steps {
    uint32_t kind, line; /* the clock of rule 2, 0 without any tick; its most frequent line */
    cm_moment begin;     /* of the first step; where setup ends */
    cm_clock_step *step;
    size_t count;
    cm_clock_loop *loop;
    size_t loop_count;
    cm_clock_change *change; /* every stretch but the first */
    size_t change_count;
    uint32_t passed_kind, passed_line; /* a better clock that ticked too rarely (rule 2), or 0 */
    uint32_t passed_steps;             /* ... so many times */
    uint32_t updates, updates_line;    /* rule 3: of the clock to each tick of this line, or 0 */
    bool joined;                       /* ... and a step is all of them */
} cm_steps;

typedef struct cm_clock cm_clock;

cm_clock *cm_clock_new(void); /* NULL: out of memory */
void cm_clock_free(cm_clock *clock);

/* In the order of the trace. false: out of memory, the clock is as before. */
bool cm_clock_tick(cm_clock *clock, const cm_tick *tick);
/* An object that may tick was created here, or (before_start) found alive. */
bool cm_clock_object(cm_clock *clock, uint64_t object, cm_moment at, bool before_start);
/* Another object lives at this address now, and its creation sets nothing up (a data iterator). */
bool cm_clock_renew(cm_clock *clock, uint64_t object);
/* An autograd node was created; only the first counts. */
void cm_clock_node(cm_clock *clock, cm_moment at);

/* What the ticks so far amount to, between the two ends of the recording. May be called again
 * after more ticks. Linear in their number. false: out of memory. */
bool cm_clock_choose(const cm_clock *clock, cm_moment begin, cm_moment end, cm_steps *out);
void cm_steps_free(cm_steps *steps);

#endif
