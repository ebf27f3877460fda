/* What the blocks of one stack are for, as those say whose whole life is known. A block that is
 * alive at the window's end, or that outlived many steps alone, is for what its siblings are for:
 * a category depends neither on a block's age nor on its being the first of its kind. One owner. */
#ifndef CM_HEAP_PURPOSES_H
#define CM_HEAP_PURPOSES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "category.h"

enum { CM_PURPOSE_SIZES = 4, CM_PURPOSE_VOTES = 4 };

typedef struct cm_purpose {
    uint32_t visit;                   /* number of turns of the program in which it made blocks */
    uint32_t turn;                    /* the last one */
    uint32_t votes[CM_PURPOSE_VOTES]; /* temporary, input, activation, kept */
    int64_t size[CM_PURPOSE_SIZES];   /* the first different ones */
    uint8_t sizes;
    bool copies, keeps; /* set by cm_purposes_end */
} cm_purpose;

typedef struct cm_purposes {
    cm_purpose *of; /* by stack id */
    size_t capacity;
    int64_t *size; /* of parameters and buffers, after cm_purposes_end rising */
    size_t size_count, size_capacity;
} cm_purposes;

void cm_purposes_clear(cm_purposes *purposes);
/* A block is born in this turn of the program. Returns the stack's visit; false: out of memory. */
bool cm_purposes_born(cm_purposes *purposes, uint32_t stack, uint32_t turn, int64_t size,
                      uint32_t *visit);
/* How many more turns the stack made blocks in since that visit. */
uint32_t cm_purposes_since(const cm_purposes *purposes, uint32_t stack, uint32_t visit);
/* A block's life has decided its category. */
void cm_purposes_vote(cm_purposes *purposes, uint32_t stack, cm_category category);
/* A parameter or buffer has this size. false: out of memory. */
bool cm_purposes_parameter(cm_purposes *purposes, int64_t size);
/* All votes are there. */
void cm_purposes_end(cm_purposes *purposes);
/* The category of a block that by itself is `own`. A stack most of which blocks are kept makes
 * nothing else, nor does one that copies a model: it makes blocks of several sizes, all of them
 * parameters'. open: the block's own life decides nothing. */
cm_category cm_purposes_decide(const cm_purposes *purposes, uint32_t stack, cm_category own,
                               bool open);

#endif
