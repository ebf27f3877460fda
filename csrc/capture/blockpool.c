#include "blockpool.h"

#include "wake.h"

cm_blockpool_state cm_blockpool;

/* --- free lists -------------------------------------------------------------------------- */

uint32_t cm_freelist_take_hook(cm_freelist *list)
{
    uint64_t top = atomic_load_explicit(&list->top, memory_order_acquire);

    while ((uint32_t)top != 0) {
        uint32_t next = atomic_load_explicit(&list->next[(uint32_t)top - 1], memory_order_relaxed);
        uint64_t rest = ((top >> 32) + 1) << 32 | next;
        /* Acquire: what the giver did with the index happens before what the taker does. */
        if (atomic_compare_exchange_weak_explicit(&list->top, &top, rest, memory_order_acq_rel,
                                                  memory_order_acquire))
            return (uint32_t)top;
    }
    uint32_t fresh = atomic_load_explicit(&list->fresh, memory_order_relaxed);
    while (fresh < list->capacity)
        if (atomic_compare_exchange_weak_explicit(&list->fresh, &fresh, fresh + 1,
                                                  memory_order_relaxed, memory_order_relaxed))
            return fresh + 1;
    return 0;
}

void cm_freelist_give(cm_freelist *list, uint32_t index)
{
    uint64_t top = atomic_load_explicit(&list->top, memory_order_relaxed);
    uint64_t with;

    do {
        atomic_store_explicit(&list->next[index], (uint32_t)top, memory_order_relaxed);
        with = ((top >> 32) + 1) << 32 | (index + 1);
    } while (!atomic_compare_exchange_weak_explicit(&list->top, &top, with, memory_order_acq_rel,
                                                    memory_order_relaxed));
}

/* --- blocks ------------------------------------------------------------------------------ */

size_t cm_blockpool_table_bytes(uint32_t count)
{
    const cm_blockpool_state *pool = &cm_blockpool;
    return count * (sizeof *pool->base + sizeof *pool->link + sizeof *pool->free.next);
}

void cm_blockpool_begin(cm_ring_block *blocks, uint32_t count, void *tables)
{
    cm_blockpool_state *pool = &cm_blockpool;

    pool->blocks = blocks;
    pool->base = tables;
    pool->link = (_Atomic uint32_t *)(pool->base + count);
    pool->free.next = pool->link + count;
    atomic_store(&pool->free.top, 0);
    atomic_store(&pool->free.fresh, 0);
    atomic_store(&pool->used, 0);
    cm_blockpool_limit(count);
}

void cm_blockpool_limit(uint32_t count)
{
    cm_blockpool.count = cm_blockpool.free.capacity = count;
    atomic_store(&cm_blockpool.wake_at, count / 2);
}

uint32_t cm_blockpool_touched(void)
{
    return atomic_load(&cm_blockpool.free.fresh);
}

uint32_t cm_blockpool_take_hook(uint32_t ring, uint64_t base, uint32_t serial)
{
    cm_blockpool_state *pool = &cm_blockpool;
    uint32_t index = cm_freelist_take_hook(&pool->free);

    if (index == 0) {
        cm_wake_collector_hook();
        return 0;
    }
    cm_ring_block *block = cm_blockpool_at(index);
    block->serial = serial;
    block->base = pool->base[index - 1] = base;
    atomic_store_explicit(&pool->link[index - 1], 0, memory_order_relaxed);
    /* Release: whoever finds this owner, even in the file of a killed process, finds its base. */
    atomic_store_explicit(&block->owner, ring + 1, memory_order_release);
    if (atomic_fetch_add_explicit(&pool->used, 1, memory_order_relaxed) + 1 >=
        atomic_load_explicit(&pool->wake_at, memory_order_relaxed))
        cm_wake_collector_hook();
    return index;
}

void cm_blockpool_give(uint32_t index)
{
    atomic_store_explicit(&cm_blockpool_at(index)->owner, 0, memory_order_release);
    atomic_fetch_sub_explicit(&cm_blockpool.used, 1, memory_order_relaxed);
    cm_freelist_give(&cm_blockpool.free, index - 1);
}
