/* The step clock: which of the recorded ticks end a step. Pure: no trace, no Python, no locks. One
 * owner.
 *
 * The rules, in the order in which they apply:
 *
 *  1. Ticks of one kind form groups, one per step. A tick belongs to the previous group unless its
 *     object has ticked in that group, or was created after the group's first tick: then it begins
 *     the next. (`for o in opts: o.step()`, one optimizer per parameter, a generator and a
 *     discriminator: one group an iteration. A new optimizer in every iteration: one group each. An
 *     object without a recorded creation counts as old.) The object of a backward pass is the code
 *     line that called it. A group is cut where a second object took over from the first for good:
 *     two phases with an optimizer each, both made up front, do not share a step. Data iterators
 *     differ: the last tick of an exhausted iterator returned no batch, so the next iterator shares
 *     its group, unless a node ran or a module was called in between. An iterator called from
 *     another code line counts as new, because addresses are reused. Calls of modules before and
 *     after a backward pass share no group, nor do one without gradient and the next with one. A
 *     module that another one leads may tick as often in a group without gradient as in a step
 *     with one: a decoder of two sets of pairs.
 *  2. The clock is the first of: explicit, optimizer, backward, data that has CM_CLOCK_ENOUGH
 *     groups; else the first of these and module that ticked at all. With explicit ticks, however
 *     few, nothing below applies, because the program defines its steps. (Calls of a module never
 *     replace better ticks that are too few: they lie inside a step that still needs its graph.)
 *  3. Optimizers and backward passes may tick at two rates. If there are two to eight groups
 *     between ticks of one object, the same number three times in four, and it ticked
 *     CM_CLOCK_JOINED times, those groups become one: an iteration of five critic updates and one
 *     generator update. With fewer iterations the groups stay, and their number is reported.
 *  4. Explicit, optimizer and backward ticks end a step, after the last tick of their group; of the
 *     latter two with what trails it, a metric: stacks that allocate behind it whatever call or
 *     batch comes next, or not before the first one of these, and lead to none. Data and module
 *     ticks begin one, with what leads to the first of their group: what was allocated just before
 *     it by a stack that comes before this tick whatever the tick before was (both:
 *     step_clock_leads.c). The last of them ends where a stack allocates that never did so before,
 *     or with the recording. A loader's last tick that no call follows returned no batch.
 *  5. Between two ticks of the clock, steps of a lower clock count if the program does something
 *     else there. For the optimizer: three times as many backward passes as usual, and at least
 *     three (a scaler that skips; passes inside the optimizer's own step do not count). Otherwise
 *     data or module steps without a backward pass (evaluation, sampling): at a site that usual
 *     steps lack one batch, one call without gradient, or two calls; three at any site if usual
 *     steps have no such step. A site is the whole stack of a tick, and whether gradients are
 *     recorded. It is usual if it is in more than two of three steps from its first to its last,
 *     unless it evaluates: calls without gradient, in evaluation mode, a module that is trained, or
 *     a loader with most batches for such calls. A usual site of calls that is first and last seen
 *     one step later than others is behind the clock's tick: a part of the step that ends there,
 *     however evaluation goes on. What ticks behind the first usual site of a step is a part of
 *     that step. The last backward passes before the clock continues belong to its own step: as
 *     many as a usual step has. Evaluation begins with what leads to its first step, if more
 *     follow: what is before belongs to the step that ended. It ends where the clock's own step
 *     begins, with what leads to it.
 *  6. A clock is a code line. Another line of that kind begins a new stretch, unless the two
 *     alternate: the first returns, and one of them mostly ticks at most three times in a row (a
 *     prefill and its decoding steps, a warm-up line). Stretches of the same lines and activity are
 *     one loop.
 *
 *  7. Behind the last tick that ends a step the next one has begun if a module is called at a usual
 *     site there. It counts as no step, unless an exception ended the recording: then it is the
 *     tail, said to be incomplete. A step that a tick begins is so if a request refused in it was
 *     the end.
 *
 * No rule uses time: the same ticks are the same steps on any machine.
 *
 * Steps tile the time from the first one's start to the last one's end; the tail follows. A first
 * step that a tick ends has no tick to start it. It starts with what leads to the first batch or
 * call of a site that later steps have, too, or else to the first backward pass; with the first
 * autograd node where nothing leads there, because building a model makes none: setup is not part
 * of a step. If objects were found alive and none was created, there was no setup, and it starts
 * with the recording. */
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
    uint32_t line;     /* small number of the code line that ticks; equal = same line */
    uint32_t stack;    /* number of all of its frames' lines; equal = same call */
    uint32_t thread;
    uint32_t kind;  /* cm_tick_kind */
    bool inside;    /* of an optimizer's step: a closure's backward pass */
    bool no_grad;   /* of a module: no gradient is recorded */
    bool sanity;    /* a trainer tries its evaluation before it trains */
    bool eval_mode; /* of a module: it is not in training mode */
} cm_tick;

typedef struct cm_clock_step {
    cm_moment end; /* the first record after the step; it begins at the previous one's end */
    uint32_t loop; /* index into loops */
} cm_clock_step;

typedef struct cm_clock_loop {
    char name[32]; /* training, evaluation, sanity check; "training 2" for another line */
    uint32_t kind, line;
    uint64_t steps;
    bool trailed; /* a step has what was allocated behind its last tick */
} cm_clock_loop;

typedef struct cm_clock_change {
    uint32_t step, loop; /* from this step on */
    uint32_t kind, line;
} cm_clock_change;

typedef struct cm_steps {
    uint32_t kind, line; /* the clock of rule 2, 0 without ticks; its most frequent line */
    cm_moment begin;     /* of the first step; the end of setup */
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
    bool begun;                        /* behind the last step's end one began: the tail */
    uint32_t begun_loop;               /* ... of this loop */
    bool cut; /* the last step did not end; set by the scan, as `begun` is cleared by it */
} cm_steps;

/* Steps that ended, and the one that began behind them. */
static inline int64_t cm_steps_number(const cm_steps *steps, int64_t step)
{
    return step < (int64_t)steps->count + steps->begun ? step : -1;
}

static inline bool cm_steps_is_cut(const cm_steps *steps, int64_t step)
{
    return step == (int64_t)steps->count - !steps->begun && (steps->begun || steps->cut);
}

typedef struct cm_clock cm_clock;

cm_clock *cm_clock_new(void); /* NULL: out of memory */
void cm_clock_free(cm_clock *clock);

/* In the order of the trace. false: out of memory, the clock is as before. */
bool cm_clock_tick(cm_clock *clock, const cm_tick *tick);
/* An object that may tick was created, or (before_start) found alive. */
bool cm_clock_object(cm_clock *clock, uint64_t object, cm_moment at, bool before_start);
/* The address was reused by an object whose creation is not set-up work (a data iterator). */
bool cm_clock_renew(cm_clock *clock, uint64_t object);
/* A block was allocated by this stack, numbered like a tick's. */
bool cm_clock_block(cm_clock *clock, uint32_t stack, uint32_t thread, cm_moment at);
/* Blocks were left out since the last tick by a compaction that kept no leads: only ticks divide
 * steps there. */
void cm_clock_compacted(cm_clock *clock);
/* The recording ends by itself from here on: no part of the last step. */
void cm_clock_close(cm_clock *clock, cm_moment at);
/* An autograd node was created; only the first counts. */
void cm_clock_node(cm_clock *clock, cm_moment at);

/* The steps by the ticks so far, between the two ends of the recording. May be called again after
 * more ticks. Linear in their number. false: out of memory. */
bool cm_clock_choose(const cm_clock *clock, cm_moment begin, cm_moment end, cm_steps *out);
void cm_steps_free(cm_steps *steps);

#endif
