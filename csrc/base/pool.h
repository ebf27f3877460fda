/* Objects of one size by number, in pages of its own: it grows without a copy of what is there, and
 * room that is not used yet takes no memory. Numbers of removed objects are used again. One owner;
 * a pointer to an object is valid until the next one is added.
 *
 * The size is a constant of the caller, so that it is inlined into the code here. */
#ifndef CM_BASE_POOL_H
#define CM_BASE_POOL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

enum { CM_POOL_LEAST = 1 << 16 }; /* bytes */

typedef struct cm_pool {
    char *object;
    size_t mapped;    /* bytes */
    uint32_t highest; /* number used so far */
    uint32_t free;    /* the first removed number, which has the next one in its object; 0: none */
} cm_pool;

static inline void *cm_pool_at(const cm_pool *pool, size_t bytes, uint32_t number)
{
    return pool->object + number * bytes;
}

/* Room for so many bytes. false: out of memory, nothing changed. */
bool cm_pool_map(cm_pool *pool, size_t bytes);

/* A number from 1 on, whose object has no content yet. 0: out of memory. */
static inline uint32_t cm_pool_add(cm_pool *pool, size_t bytes)
{
    uint32_t number = pool->free;
    if (number != 0) {
        memcpy(&pool->free, cm_pool_at(pool, bytes, number), sizeof pool->free);
        return number;
    }
    if (pool->highest >= UINT32_MAX - 1 ||
        ((pool->highest + (size_t)2) * bytes > pool->mapped &&
         !cm_pool_map(pool, pool->mapped > 0 ? pool->mapped * 2 : CM_POOL_LEAST)))
        return 0;
    return ++pool->highest;
}

static inline void cm_pool_remove(cm_pool *pool, size_t bytes, uint32_t number)
{
    memcpy(cm_pool_at(pool, bytes, number), &pool->free, sizeof pool->free);
    pool->free = number;
}

/* All zero is an empty pool. */
void cm_pool_clear(cm_pool *pool);
bool cm_pool_copy(cm_pool *copy, const cm_pool *pool, size_t bytes); /* false: out of memory */

#endif
