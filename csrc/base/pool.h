/* Objects of one size by number, in pieces that never move: it grows without a copy of what is
 * there, and pointers into it stay valid. Numbers of removed objects are used again. One owner.
 *
 * The size is a constant of the caller, so that it is inlined into the code here. */
#ifndef CM_BASE_POOL_H
#define CM_BASE_POOL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "grow.h"

enum { CM_POOL_PIECE = 1024 }; /* objects */

typedef struct cm_pool {
    char **piece;
    size_t pieces, capacity;
    uint32_t highest; /* number used so far */
    uint32_t free;    /* the first removed number, which has the next one in its object; 0: none */
} cm_pool;

static inline void *cm_pool_at(const cm_pool *pool, size_t bytes, uint32_t number)
{
    return pool->piece[number / CM_POOL_PIECE] + number % CM_POOL_PIECE * bytes;
}

static inline bool cm_pool_grow(cm_pool *pool, size_t bytes)
{
    if (pool->highest >= UINT32_MAX - 1 ||
        !cm_grow((void **)&pool->piece, &pool->capacity, pool->pieces + 1, sizeof *pool->piece))
        return false;
    pool->piece[pool->pieces] = malloc(CM_POOL_PIECE * bytes);
    if (pool->piece[pool->pieces] == NULL)
        return false;
    pool->pieces++;
    return true;
}

/* A number from 1 on, whose object has no content yet. 0: out of memory. */
static inline uint32_t cm_pool_add(cm_pool *pool, size_t bytes)
{
    uint32_t number = pool->free;
    if (number != 0) {
        memcpy(&pool->free, cm_pool_at(pool, bytes, number), sizeof pool->free);
        return number;
    }
    if ((pool->highest + 1) / CM_POOL_PIECE == pool->pieces && !cm_pool_grow(pool, bytes))
        return 0;
    return ++pool->highest;
}

static inline void cm_pool_remove(cm_pool *pool, size_t bytes, uint32_t number)
{
    memcpy(cm_pool_at(pool, bytes, number), &pool->free, sizeof pool->free);
    pool->free = number;
}

/* All zero is an empty pool. */
static inline void cm_pool_clear(cm_pool *pool)
{
    for (size_t i = 0; i < pool->pieces; i++)
        free(pool->piece[i]);
    free(pool->piece);
    *pool = (cm_pool){0};
}

/* false: out of memory, the copy is empty. */
static inline bool cm_pool_copy(cm_pool *copy, const cm_pool *pool, size_t bytes)
{
    *copy = (cm_pool){0};
    while (copy->pieces < pool->pieces) {
        if (!cm_pool_grow(copy, bytes)) {
            cm_pool_clear(copy);
            return false;
        }
        size_t last = copy->pieces - 1, used = pool->highest + 1 - last * CM_POOL_PIECE;
        memcpy(copy->piece[last], pool->piece[last],
               (used < CM_POOL_PIECE ? used : CM_POOL_PIECE) * bytes);
    }
    copy->highest = pool->highest;
    copy->free = pool->free;
    return true;
}

#endif
