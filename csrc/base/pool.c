#define _GNU_SOURCE /* mremap */
#include "pool.h"

#include <sys/mman.h>

bool cm_pool_map(cm_pool *pool, size_t bytes)
{
    void *there = pool->mapped > 0 ? mremap(pool->object, pool->mapped, bytes, MREMAP_MAYMOVE)
                                   : mmap(NULL, bytes, PROT_READ | PROT_WRITE,
                                          MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (there == MAP_FAILED)
        return false;
    pool->object = there;
    pool->mapped = bytes;
    return true;
}

void cm_pool_clear(cm_pool *pool)
{
    if (pool->mapped > 0)
        munmap(pool->object, pool->mapped);
    *pool = (cm_pool){0};
}

bool cm_pool_copy(cm_pool *copy, const cm_pool *pool, size_t bytes)
{
    *copy = (cm_pool){0};
    if (pool->mapped > 0 && !cm_pool_map(copy, pool->mapped))
        return false;
    if (pool->highest > 0)
        memcpy(copy->object, pool->object, (pool->highest + (size_t)1) * bytes);
    copy->highest = pool->highest;
    copy->free = pool->free;
    return true;
}
