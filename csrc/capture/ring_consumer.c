#include "ring_consumer.h"

#include <errno.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "ring_producer.h"
#include "ringfile.h"

enum { ENDED_MS = 250, TIDS = 2 * CM_RING_COUNT };

typedef struct consumer {
    cm_merge_source source; /* first: the merge hands back a pointer to it */
    uint64_t tail, mark;
    uint32_t block;  /* the block that holds tail + 1, or 0 */
    uint32_t cursor; /* the block that holds source.position + 1 */
    bool retiring;   /* its block was taken away from the thread, which may not have noticed yet */
} consumer;

static struct {
    consumer of[CM_RING_COUNT];
    uint32_t high;
    uint64_t published, ended_ns;
    uint16_t by_tid[TIDS]; /* open addressing: slot + 1 */
} consumers;

static inline uint32_t link_of(uint32_t block)
{
    return atomic_load_explicit(&cm_blockpool.link[block - 1], memory_order_acquire);
}

static inline uint64_t base_of(uint32_t block)
{
    return cm_blockpool.base[block - 1];
}

static inline uint64_t head_of(uint32_t slot)
{
    return atomic_load_explicit(&cm_ringfile.counts[slot].head, memory_order_acquire);
}

void cm_ring_consumer_begin(void)
{
    memset(&consumers, 0, sizeof consumers);
}

uint64_t cm_ring_consumer_bytes(void)
{
    return (uint64_t)cm_producers_high() * sizeof(consumer) + sizeof consumers.by_tid;
}

/* --- from ring to merge ------------------------------------------------------------------ */

uint64_t cm_ring_consumer_poll(void)
{
    uint64_t pending = 0;

    consumers.high = cm_producers_high();
    consumers.published = 0;
    for (uint32_t i = 0; i < consumers.high; i++) {
        consumer *l = &consumers.of[i];
        l->source.end = head_of(i);
        consumers.published += l->source.end;
        pending += l->source.end - l->tail;
    }
    return pending;
}

uint64_t cm_ring_consumer_published(void)
{
    return consumers.published;
}

/* The block after this one, or 0. A thread whose block was taken away offers its next one through
 * restart; once it has, it never reads the old one again, so that we may link them. */
static uint32_t next_block(consumer *l, uint32_t block)
{
    uint32_t next = link_of(block);

    if (next == 0 && l->retiring) {
        cm_producer *t = cm_producers_at(l->source.ring);
        next = atomic_exchange_explicit(&t->restart, 0, memory_order_acquire);
        if (next != 0)
            atomic_store_explicit(&cm_blockpool.link[block - 1], next, memory_order_relaxed);
    }
    if (next != 0)
        l->retiring = false;
    return next;
}

/* Points the source to the run at its position. False: nothing published is there. */
static bool find_run(consumer *l)
{
    if (l->cursor == 0) {
        cm_producer *t = cm_producers_at(l->source.ring);
        l->block = l->cursor = atomic_exchange_explicit(&t->restart, 0, memory_order_acquire);
    }
    while (l->cursor != 0) {
        const cm_block *block = cm_blockpool_at(l->cursor);
        /* Only the last block of the chain can be retiring. */
        uint32_t next = next_block(l, l->cursor);
        /* A block that was taken away ends where the next begins, before it is full. */
        uint64_t base = base_of(l->cursor);
        uint64_t stop = next != 0 ? base_of(next) : base + CM_BLOCK_EVENTS;
        if (stop > l->source.end)
            stop = l->source.end;
        if (l->source.position < stop) {
            l->source.at = &block->events[l->source.position - base];
            l->source.stop = &block->events[stop - base];
            return true;
        }
        if (next == 0)
            break;
        l->cursor = next;
    }
    return false;
}

bool cm_ring_consumer_refill(cm_merge *merge, cm_merge_source *source)
{
    (void)merge;
    return find_run((consumer *)source);
}

void cm_ring_consumer_begin_merge(cm_merge *merge)
{
    merge->count = 0;
    for (uint32_t i = 0; i < consumers.high; i++) {
        consumer *l = &consumers.of[i];
        if (l->source.end == l->tail)
            continue;
        l->source.position = l->tail;
        l->source.ring = i;
        l->source.thread = cm_ringfile.rings[i].thread;
        if (find_run(l))
            cm_merge_add(merge, &l->source);
    }
}

bool cm_ring_consumer_add_covers(cm_batch *batch)
{
    for (uint32_t i = 0; i < consumers.high; i++) {
        const consumer *l = &consumers.of[i];
        if (l->source.position > l->tail && !cm_batch_add_cover(batch, i, l->source.position))
            return false;
    }
    return true;
}

uint64_t cm_ring_consumer_taken(void)
{
    uint64_t taken = 0;

    for (uint32_t i = 0; i < consumers.high; i++)
        taken += consumers.of[i].source.position;
    return taken;
}

void cm_ring_consumer_commit(void)
{
    for (uint32_t i = 0; i < consumers.high; i++) {
        consumer *l = &consumers.of[i];
        if (l->source.position > l->tail) {
            l->tail = l->source.position;
            atomic_store_explicit(&cm_ringfile.counts[i].tail, l->tail, memory_order_release);
            atomic_store_explicit(&cm_ringfile.rings[i].tail, l->tail, memory_order_release);
        }
        while (l->block != l->cursor) {
            uint32_t next = link_of(l->block);
            cm_blockpool_give(l->block);
            l->block = next;
        }
    }
}

void cm_ring_consumer_mark(void)
{
    cm_ring_consumer_poll();
    for (uint32_t i = 0; i < consumers.high; i++)
        consumers.of[i].mark = consumers.of[i].source.end;
}

bool cm_ring_consumer_reached_mark(void)
{
    for (uint32_t i = 0; i < consumers.high; i++)
        if (consumers.of[i].tail < consumers.of[i].mark)
            return false;
    return true;
}

/* --- what comes back --------------------------------------------------------------------- */

/* Takes the block away from a thread that has none but this one, all of it written. */
static bool take_away(consumer *l, uint32_t slot)
{
    if (l->block == 0 || l->retiring || l->tail != head_of(slot) || link_of(l->block) != 0)
        return false;
    cm_block *block = cm_blockpool_at(l->block);
    uintptr_t limit = (uintptr_t)(block->events + CM_BLOCK_EVENTS);
    /* If it has moved on to another block meanwhile, its limit is another one. */
    if (!atomic_compare_exchange_strong_explicit(&cm_producers_at(slot)->limit, &limit, 0,
                                                 memory_order_seq_cst, memory_order_relaxed))
        return false;
    l->source.ring = slot;
    l->retiring = true;
    return true;
}

/* After a barrier: outside of its hooks the thread cannot be writing to its old block, and any
 * later hook finds that it has none. */
static void free_retired(consumer *l, uint32_t slot)
{
    cm_producer *t = cm_producers_at(slot);

    if (atomic_load_explicit(&t->busy, memory_order_acquire) != 0)
        return; /* looked at again in the next round */
    if (link_of(l->block) != 0) {
        l->retiring = false; /* it had been on its way to the next block all along */
        return;
    }
    if (atomic_load_explicit(&t->restart, memory_order_acquire) != 0 || head_of(slot) != l->tail)
        return; /* read first what it wrote before it noticed */
    cm_blockpool_give(l->block);
    l->block = l->cursor = 0;
    l->retiring = false;
}

static void retire_idle_blocks(void)
{
    bool any = false;

    for (uint32_t i = 0; i < consumers.high; i++) {
        consumer *l = &consumers.of[i];
        any |= l->retiring;
        any |= take_away(l, i);
    }
    if (!any || !cm_producers_barrier())
        return;
    for (uint32_t i = 0; i < consumers.high; i++)
        if (consumers.of[i].retiring)
            free_retired(&consumers.of[i], i);
}

/* Of two states with the same kernel thread id only the younger one's thread can be alive. */
static void note_tids(void)
{
    memset(consumers.by_tid, 0, sizeof consumers.by_tid);
    for (uint32_t i = 0; i < consumers.high; i++) {
        const cm_producer *t = cm_producers_at(i);
        if (atomic_load_explicit(&t->state, memory_order_acquire) != CM_PRODUCER_LIVE)
            continue;
        int32_t tid = atomic_load_explicit(&t->tid, memory_order_relaxed);
        uint32_t at = (uint32_t)tid % TIDS;
        while (consumers.by_tid[at] != 0) {
            const cm_producer *other = cm_producers_at(consumers.by_tid[at] - 1u);
            if (atomic_load_explicit(&other->tid, memory_order_relaxed) == tid)
                break;
            at = (at + 1) % TIDS;
        }
        if (consumers.by_tid[at] == 0 ||
            (int32_t)(cm_producer_generation(t) -
                      cm_producer_generation(cm_producers_at(consumers.by_tid[at] - 1u))) > 0)
            consumers.by_tid[at] = (uint16_t)(i + 1);
    }
}

static bool is_gone(uint32_t slot)
{
    int32_t tid = atomic_load_explicit(&cm_producers_at(slot)->tid, memory_order_relaxed);
    uint32_t at = (uint32_t)tid % TIDS;

    while (consumers.by_tid[at] != 0 &&
           atomic_load_explicit(&cm_producers_at(consumers.by_tid[at] - 1u)->tid,
                                memory_order_relaxed) != tid)
        at = (at + 1) % TIDS;
    if (consumers.by_tid[at] != 0 && consumers.by_tid[at] != slot + 1)
        return true;
    return syscall(SYS_tgkill, getpid(), tid, 0) < 0 && errno == ESRCH;
}

/* All that the ring has is in the trace, and its thread cannot be inside a hook: its blocks are
 * free, those too that it took and did not use. */
static void free_all(consumer *l, uint32_t slot)
{
    l->source.ring = slot;
    l->source.end = l->source.position = l->tail;
    l->retiring = l->block != 0;
    find_run(l);
    while (l->block != 0) {
        uint32_t next = link_of(l->block);
        cm_blockpool_give(l->block);
        l->block = next;
    }
    l->cursor = 0;
    l->retiring = false;
    atomic_store_explicit(&cm_producers_at(slot)->limit, 0, memory_order_relaxed);
}

static bool is_drained(const consumer *l, uint32_t slot)
{
    const cm_producer *t = cm_producers_at(slot);
    /* busy last written by the thread: what it did in its hooks comes before. */
    return atomic_load_explicit(&t->state, memory_order_acquire) == CM_PRODUCER_LIVE &&
           atomic_load_explicit(&t->busy, memory_order_acquire) == 0 && l->tail == head_of(slot);
}

bool cm_ring_consumer_report_losses(void)
{
    bool all = true;

    consumers.high = cm_producers_high();
    for (uint32_t i = 0; i < consumers.high; i++)
        if (is_drained(&consumers.of[i], i))
            free_all(&consumers.of[i], i);
    for (uint32_t i = 0; i < consumers.high; i++)
        if (is_drained(&consumers.of[i], i))
            all &= cm_producers_report_losses(i);
    return all;
}

/* A thread may free tensors until its very end, in destructors that run after all of ours could:
 * only when the kernel no longer knows it is its ring complete. */
static void recycle_ended(void)
{
    note_tids();
    for (uint32_t i = 0; i < consumers.high; i++) {
        consumer *l = &consumers.of[i];
        if (!is_drained(l, i) || !is_gone(i) || l->tail != head_of(i))
            continue;
        free_all(l, i);
        /* Then its last words are still to be written. */
        if (cm_producers_report_losses(i) && l->tail == head_of(i))
            cm_producers_recycle(i);
    }
}

void cm_ring_consumer_reclaim(uint64_t now_ns)
{
    bool scarce = atomic_load(&cm_blockpool.used) > cm_blockpool.count / 4;

    consumers.high = cm_producers_high();
    if (scarce || cm_producers_in_use() > CM_RING_COUNT / 4 ||
        now_ns - consumers.ended_ns > ENDED_MS * UINT64_C(1000000)) {
        consumers.ended_ns = now_ns;
        recycle_ended();
    }
    if (scarce)
        retire_idle_blocks();
}

void cm_ring_consumer_release_idle(void)
{
    consumers.high = cm_producers_high();
    retire_idle_blocks();
}

/* --- counts ------------------------------------------------------------------------------ */

uint64_t cm_ring_consumer_pending(void)
{
    uint64_t pending = 0;

    for (uint32_t i = 0; i < cm_producers_high(); i++) {
        /* The tail first: the head is then not behind it. */
        uint64_t tail = atomic_load_explicit(&cm_ringfile.counts[i].tail, memory_order_acquire);
        pending += head_of(i) - tail;
    }
    return pending;
}

uint64_t cm_ring_consumer_lost(void)
{
    uint64_t lost = 0;

    for (uint32_t i = 0; i < cm_producers_high(); i++)
        lost += atomic_load_explicit(&cm_ringfile.counts[i].lost, memory_order_relaxed);
    return lost;
}
