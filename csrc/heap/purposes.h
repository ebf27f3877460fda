/* What the blocks of one stack are for, as those say whose whole life is known. A block that is
 * alive at the window's end, or that outlived many steps alone, is for what its siblings are for:
 * a category depends neither on a block's age nor on its being the first of its kind. One owner. */
#ifndef CM_HEAP_PURPOSES_H
#define CM_HEAP_PURPOSES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "attribution.h"
#include "category.h"

enum {
    CM_PURPOSE_SIZES = 4,
    CM_PURPOSE_VOTES = 4,
    CM_PURPOSE_SMALL = 16 /* times as large is a stack's largest block: an operator's scratch */
};

typedef struct cm_purpose {
    uint32_t visit;                   /* number of turns of the program in which it made blocks */
    uint32_t turn;                    /* the last one */
    uint32_t in_turn, most;           /* blocks in it; the most in any turn */
    uint32_t cycle;                   /* the last one, see cm_birth */
    uint32_t firsts, late;            /* cycles with blocks; the first of them late */
    uint32_t votes[CM_PURPOSE_VOTES]; /* temporary, input, activation, kept */
    int64_t size[CM_PURPOSE_SIZES];   /* the first different ones; of inherited ones the least */
    int64_t largest;
    uint8_t sizes;
    bool copies, keeps; /* set by cm_purposes_end */
    bool waiting;       /* in wait below */
    /* Times that it was, less those that it was not: see cm_purposes_carried, cm_purposes_given,
     * cm_purposes_results. */
    int32_t carried, given, results;
    int32_t named; /* parameters that a walk found, less buffers: see cm_purposes_named */
} cm_purpose;

/* A cycle ends with each backward pass and update. */
typedef struct cm_birth {
    uint32_t turn, cycle;
    uint32_t count; /* of blocks */
    int64_t size;   /* of each; 0: of a data set */
    bool late;      /* after the cycle's first forward; returned: so are most of its stack */
    uint32_t visit; /* returned: the stack's */
} cm_birth;

/* Made after a backward pass or update, or late (no boundary), or after a call that recorded
 * nothing, until forward goes on. */
typedef struct cm_purpose_wait {
    uint32_t stack, boundary;
    bool call;
} cm_purpose_wait;

typedef struct cm_purposes {
    cm_purpose *of; /* by stack id */
    size_t capacity;
    int64_t *size; /* of parameters and buffers, after cm_purposes_end rising */
    size_t size_count, size_capacity;
    cm_purpose_wait *wait;
    size_t waits, wait_capacity;
    uint32_t temporary; /* stack of the last block that was */
    bool fetched;       /* a loader was asked since the last forward */
} cm_purposes;

void cm_purposes_clear(cm_purposes *purposes);
/* false: out of memory. */
bool cm_purposes_born(cm_purposes *purposes, uint32_t stack, cm_birth *birth);
/* The same of blocks that the window inherits, in any order. */
bool cm_purposes_inherit(cm_purposes *purposes, uint32_t stack, int64_t size, uint32_t count);
/* A block is carried over to the next iteration if the program's code has it after a backward pass
 * or update (boundary, a stack), and the forward that comes next before that: the loop has begun
 * again in between. It is a result of an evaluation's call (boundary; call) if the next one comes
 * before it in the code, and has a batch of its own. wait: it is born, of a stack that
 * cm_purposes_born knows; false: out of memory. forward: one begins, with this stack. */
bool cm_purposes_wait(cm_purposes *purposes, cm_attribution *attribution, uint32_t stack,
                      uint32_t boundary, bool call);
void cm_purposes_forward(cm_purposes *purposes, cm_attribution *attribution, uint32_t stack);
/* Whether most of its blocks were. */
bool cm_purposes_carried(const cm_purposes *purposes, uint32_t stack);
bool cm_purposes_results(const cm_purposes *purposes, uint32_t stack);
/* Of a stack that is late (boundary: CM_STACK_NONE): whether a module is called next in most cases,
 * and its line needed no temporary: another batch of the step, no mask and nothing computed. */
bool cm_purposes_given(const cm_purposes *purposes, uint32_t stack);
/* How many more turns the stack made blocks in since that visit. */
uint32_t cm_purposes_since(const cm_purposes *purposes, uint32_t stack, uint32_t visit);
/* Whether its blocks have one size, or two: those of the last batch may be smaller. A cache that
 * grows has more. */
bool cm_purposes_repeats(const cm_purposes *purposes, uint32_t stack);
/* The lives of so many blocks have decided their category. A small temporary says nothing about
 * larger blocks of the operator that made it. */
void cm_purposes_vote(cm_purposes *purposes, uint32_t stack, int64_t size, cm_category category,
                      uint32_t count);
/* A parameter or buffer has this size. false: out of memory. */
bool cm_purposes_parameter(cm_purposes *purposes, int64_t size);
/* A walk found this parameter (else buffer) of a module's constructor. */
void cm_purposes_named(cm_purposes *purposes, uint32_t stack, bool parameter);
/* All votes are there. */
void cm_purposes_end(cm_purposes *purposes);
/* The category of a block that by itself is `own`. What a constructor makes that no walk came to is
 * what the others of its stack are. A stack most of which blocks are kept makes
 * nothing else, nor does one that copies a model: it makes blocks of several sizes, all of them
 * parameters'. A small temporary is one whatever they are. open: the block's own life decides
 * nothing. */
cm_category cm_purposes_decide(const cm_purposes *purposes, uint32_t stack, int64_t size,
                               cm_category own, bool open);

#endif
