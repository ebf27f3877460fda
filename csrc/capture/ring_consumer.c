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
        consumer *c = &consumers.of[i];
        c->source.end = head_of(i);
        consumers.published += c->source.end;
        pending += c->source.end - c->tail;
    }
    return pending;
}

uint64_t cm_ring_consumer_published(void)
{
    return consumers.published;
}

/* The block after this one, or 0. A thread that lost its block offers the next one through restart.
 * It never reads the old one afterwards, so that we may link them. */
static uint32_t next_block(consumer *c, uint32_t block)
{
    uint32_t next = link_of(block);

    if (next == 0 && c->retiring) {
        cm_producer *t = cm_producers_at(c->source.ring);
        next = atomic_exchange_explicit(&t->restart, 0, memory_order_acquire);
        if (next != 0)
            atomic_store_explicit(&cm_blockpool.link[block - 1], next, memory_order_relaxed);
    }
    if (next != 0)
        c->retiring = false;
    return next;
}

/* Points the source to the run at its position. False: nothing published is there. */
static bool find_run(consumer *c)
{
    if (c->cursor == 0) {
        cm_producer *t = cm_producers_at(c->source.ring);
        c->block = c->cursor = atomic_exchange_explicit(&t->restart, 0, memory_order_acquire);
    }
    while (c->cursor != 0) {
        const cm_ring_block *block = cm_blockpool_at(c->cursor);
        /* Only the last block of the chain can be retiring. */
        uint32_t next = next_block(c, c->cursor);
        /* A block taken away ends before it is full, where the next begins. */
        uint64_t base = base_of(c->cursor);
        uint64_t stop = next != 0 ? base_of(next) : base + CM_BLOCK_EVENTS;
        if (stop > c->source.end)
            stop = c->source.end;
        if (c->source.position < stop) {
            c->source.at = &block->events[c->source.position - base];
            c->source.stop = &block->events[stop - base];
            return true;
        }
        if (next == 0)
            break;
        c->cursor = next;
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
        consumer *c = &consumers.of[i];
        if (c->source.end == c->tail)
            continue;
        c->source.position = c->tail;
        c->source.ring = i;
        c->source.thread = cm_ringfile.rings[i].thread;
        if (find_run(c))
            cm_merge_add(merge, &c->source);
    }
}

bool cm_ring_consumer_add_covers(cm_batch *batch)
{
    for (uint32_t i = 0; i < consumers.high; i++) {
        const consumer *c = &consumers.of[i];
        if (c->source.position > c->tail && !cm_batch_add_cover(batch, i, c->source.position))
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
        consumer *c = &consumers.of[i];
        if (c->source.position > c->tail) {
            c->tail = c->source.position;
            atomic_store_explicit(&cm_ringfile.counts[i].tail, c->tail, memory_order_release);
            atomic_store_explicit(&cm_ringfile.rings[i].tail, c->tail, memory_order_release);
        }
        while (c->block != c->cursor) {
            uint32_t next = link_of(c->block);
            cm_blockpool_give(c->block);
            c->block = next;
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

/* --- what is taken back ------------------------------------------------------------------ */

/* Takes away a thread's only block once all of it is written. */
static bool take_away(consumer *c, uint32_t slot)
{
    if (c->block == 0 || c->retiring || c->tail != head_of(slot) || link_of(c->block) != 0)
        return false;
    cm_ring_block *block = cm_blockpool_at(c->block);
    uintptr_t limit = (uintptr_t)(block->events + CM_BLOCK_EVENTS);
    /* If the thread has moved on to another block, its limit differs. */
    if (!atomic_compare_exchange_strong_explicit(&cm_producers_at(slot)->limit, &limit, 0,
                                                 memory_order_seq_cst, memory_order_relaxed))
        return false;
    c->source.ring = slot;
    c->retiring = true;
    return true;
}

/* After a barrier a thread outside its hooks cannot write to its old block, and its next hook finds
 * that it has none. */
static void free_retired(consumer *c, uint32_t slot)
{
    cm_producer *t = cm_producers_at(slot);

    if (atomic_load_explicit(&t->busy, memory_order_acquire) != 0)
        return; /* checked again in the next round */
    if (link_of(c->block) != 0) {
        c->retiring = false; /* it was already moving to its next block */
        return;
    }
    if (atomic_load_explicit(&t->restart, memory_order_acquire) != 0 || head_of(slot) != c->tail)
        return; /* first read what it wrote before it noticed */
    cm_blockpool_give(c->block);
    c->block = c->cursor = 0;
    c->retiring = false;
}

static void retire_idle_blocks(void)
{
    bool any = false;

    for (uint32_t i = 0; i < consumers.high; i++) {
        consumer *c = &consumers.of[i];
        any |= c->retiring;
        any |= take_away(c, i);
    }
    if (!any || !cm_producers_barrier())
        return;
    for (uint32_t i = 0; i < consumers.high; i++)
        if (consumers.of[i].retiring)
            free_retired(&consumers.of[i], i);
}

/* Of two states with one kernel thread id only the younger can have a live thread. */
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

/* Frees all blocks of a ring, unused ones too. Its events are in the trace, and its thread cannot
 * be inside a hook. */
static void free_all(consumer *c, uint32_t slot)
{
    c->source.ring = slot;
    c->source.end = c->source.position = c->tail;
    c->retiring = c->block != 0;
    find_run(c);
    while (c->block != 0) {
        uint32_t next = link_of(c->block);
        cm_blockpool_give(c->block);
        c->block = next;
    }
    c->cursor = 0;
    c->retiring = false;
    atomic_store_explicit(&cm_producers_at(slot)->limit, 0, memory_order_relaxed);
}

static bool is_drained(const consumer *c, uint32_t slot)
{
    const cm_producer *t = cm_producers_at(slot);
    /* The thread writes busy last, after all that it did in its hooks. */
    return atomic_load_explicit(&t->state, memory_order_acquire) == CM_PRODUCER_LIVE &&
           atomic_load_explicit(&t->busy, memory_order_acquire) == 0 && c->tail == head_of(slot);
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

/* A thread may free tensors in destructors that run after all of ours. Its ring is complete only
 * when the kernel no longer knows it. */
static void recycle_ended(void)
{
    note_tids();
    for (uint32_t i = 0; i < consumers.high; i++) {
        consumer *c = &consumers.of[i];
        if (!is_drained(c, i) || !is_gone(i) || c->tail != head_of(i))
            continue;
        free_all(c, i);
        /* A loss reported here must be written first. */
        if (cm_producers_report_losses(i) && c->tail == head_of(i))
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
        /* The tail first, so that the head is not behind it. */
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
