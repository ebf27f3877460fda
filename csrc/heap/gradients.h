/* Names for the gradients of passes without a walk. The blocks that a backward pass leaves alive
 * are a sequence of sizes on each device. A walk names those of the last pass; every later pass
 * with the same sequence gets the same names in the same order. One owner. */
#ifndef CM_HEAP_GRADIENTS_H
#define CM_HEAP_GRADIENTS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "../base/idmap.h"

enum { CM_GRADIENT_DEVICES = 16 }; /* of one pass; gradients on further ones have no names */

typedef struct cm_gradient {
    uint32_t birth;
    uint64_t device; /* any number, one for each device */
    int64_t size;
} cm_gradient;

typedef struct cm_gradients {
    cm_gradient *made; /* in the running pass */
    size_t count, capacity;
    struct cm_gradient_sequence {
        uint64_t signature; /* of device and sizes; 0 = none */
        uint32_t *birth;    /* rising */
        size_t count, capacity;
    } last[CM_GRADIENT_DEVICES];
    cm_idmap learnt; /* signature -> the first of its names */
    uint32_t *name;  /* label + 1, 0 = none */
    size_t names, name_capacity;
} cm_gradients;

/* All zero is empty. All functions that return bool: false = out of memory. */
void cm_gradients_clear(cm_gradients *gradients);
bool cm_gradients_add(cm_gradients *gradients, const cm_gradient *made);
/* The pass returned. is_alive: of a birth. Calls `name` for each gradient with one. */
bool cm_gradients_end_pass(cm_gradients *gradients, bool (*is_alive)(void *context, uint32_t birth),
                           bool (*name)(void *context, uint32_t birth, uint32_t label),
                           void *context);
/* A walk has labelled a block; no effect if the last pass did not make it. */
bool cm_gradients_learn(cm_gradients *gradients, uint32_t birth, uint32_t label);

#endif
