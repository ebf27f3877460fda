#include "ring_consumer.h"

#include <errno.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "ring_producer.h"
#include "ringfile.h"

enum { BURY_MS = 250, TIDS = 2 * CM_RING_COUNT };

typedef struct lane {
    cm_lane walk; /* first: the merge hands back a pointer to it */
    uint64_t tail, mark;
    uint32_t block;  /* the block that holds tail + 1, or 0 */
    uint32_t cursor; /* the block that holds walk.position + 1 */
    bool retiring;   /* its block was taken away from the thread, which may not have noticed yet */
} lane;

static struct {
    lane of[CM_RING_COUNT];
    uint32_t high;
    uint64_t published, bury_ns;
    uint16_t by_tid[TIDS]; /* open addressing: slot + 1 */
} lanes;

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

void cm_lanes_begin(void)
{
    memset(&lanes, 0, sizeof lanes);
}

uint64_t cm_lanes_bytes(void)
{
    return (uint64_t)cm_threads_high() * sizeof(lane) + sizeof lanes.by_tid;
}

/* --- from ring to merge ------------------------------------------------------------------ */

uint64_t cm_lanes_look(void)
{
    uint64_t pending = 0;

    lanes.high = cm_threads_high();
    lanes.published = 0;
    for (uint32_t i = 0; i < lanes.high; i++) {
        lane *l = &lanes.of[i];
        l->walk.end = head_of(i);
        lanes.published += l->walk.end;
        pending += l->walk.end - l->tail;
    }
    return pending;
}

uint64_t cm_lanes_published(void)
{
    return lanes.published;
}

/* The block after this one, or 0. A thread whose block was taken away offers its next one through
 * restart; once it has, it never again looks at the old one, so that we may link them. */
static uint32_t next_block(lane *l, uint32_t block)
{
    uint32_t next = link_of(block);

    if (next == 0 && l->retiring) {
        cm_thread *t = cm_threads_at(l->walk.ring);
        next = atomic_exchange_explicit(&t->restart, 0, memory_order_acquire);
        if (next != 0)
            atomic_store_explicit(&cm_blockpool.link[block - 1], next, memory_order_relaxed);
    }
    if (next != 0)
        l->retiring = false;
    return next;
}

/* Points the walk to the run at its position. False: nothing published is there. */
static bool find_run(lane *l)
{
    if (l->cursor == 0) {
        cm_thread *t = cm_threads_at(l->walk.ring);
        l->block = l->cursor = atomic_exchange_explicit(&t->restart, 0, memory_order_acquire);
    }
    while (l->cursor != 0) {
        const cm_block *block = cm_blockpool_at(l->cursor);
        /* Only the last block of the chain can be retiring. */
        uint32_t next = next_block(l, l->cursor);
        /* A block that was taken away ends where the next begins, before it is full. */
        uint64_t base = base_of(l->cursor);
        uint64_t stop = next != 0 ? base_of(next) : base + CM_BLOCK_EVENTS;
        if (stop > l->walk.end)
            stop = l->walk.end;
        if (l->walk.position < stop) {
            l->walk.at = &block->events[l->walk.position - base];
            l->walk.stop = &block->events[stop - base];
            return true;
        }
        if (next == 0)
            break;
        l->cursor = next;
    }
    return false;
}

bool cm_lanes_refill(cm_merge *merge, cm_lane *walk)
{
    (void)merge;
    return find_run((lane *)walk);
}

void cm_lanes_open(cm_merge *merge)
{
    merge->count = 0;
    for (uint32_t i = 0; i < lanes.high; i++) {
        lane *l = &lanes.of[i];
        if (l->walk.end == l->tail)
            continue;
        l->walk.position = l->tail;
        l->walk.ring = i;
        l->walk.thread = cm_ringfile.rings[i].thread;
        if (find_run(l))
            cm_merge_add(merge, &l->walk);
    }
}

bool cm_lanes_cover(cm_batch *batch)
{
    for (uint32_t i = 0; i < lanes.high; i++) {
        const lane *l = &lanes.of[i];
        if (l->walk.position > l->tail && !cm_batch_add_cover(batch, i, l->walk.position))
            return false;
    }
    return true;
}

uint64_t cm_lanes_taken(void)
{
    uint64_t taken = 0;

    for (uint32_t i = 0; i < lanes.high; i++)
        taken += lanes.of[i].walk.position;
    return taken;
}

void cm_lanes_commit(void)
{
    for (uint32_t i = 0; i < lanes.high; i++) {
        lane *l = &lanes.of[i];
        if (l->walk.position > l->tail) {
            l->tail = l->walk.position;
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

void cm_lanes_mark(void)
{
    cm_lanes_look();
    for (uint32_t i = 0; i < lanes.high; i++)
        lanes.of[i].mark = lanes.of[i].walk.end;
}

bool cm_lanes_reached_mark(void)
{
    for (uint32_t i = 0; i < lanes.high; i++)
        if (lanes.of[i].tail < lanes.of[i].mark)
            return false;
    return true;
}

/* --- what comes back --------------------------------------------------------------------- */

/* Takes the block away from a thread that has none but this one, all of it written. */
static bool take_away(lane *l, uint32_t slot)
{
    if (l->block == 0 || l->retiring || l->tail != head_of(slot) || link_of(l->block) != 0)
        return false;
    cm_block *block = cm_blockpool_at(l->block);
    uintptr_t limit = (uintptr_t)(block->events + CM_BLOCK_EVENTS);
    /* If it has moved on to another block meanwhile, its limit is another one. */
    if (!atomic_compare_exchange_strong_explicit(&cm_threads_at(slot)->limit, &limit, 0,
                                                 memory_order_seq_cst, memory_order_relaxed))
        return false;
    l->walk.ring = slot;
    l->retiring = true;
    return true;
}

/* After a barrier: outside of its hooks the thread cannot be writing to its old block, and any
 * later hook finds that it has none. */
static void free_retired(lane *l, uint32_t slot)
{
    cm_thread *t = cm_threads_at(slot);

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

    for (uint32_t i = 0; i < lanes.high; i++) {
        lane *l = &lanes.of[i];
        any |= l->retiring;
        any |= take_away(l, i);
    }
    if (!any || !cm_threads_barrier())
        return;
    for (uint32_t i = 0; i < lanes.high; i++)
        if (lanes.of[i].retiring)
            free_retired(&lanes.of[i], i);
}

/* Of two states with the same kernel thread id only the younger one's thread can be alive. */
static void note_tids(void)
{
    memset(lanes.by_tid, 0, sizeof lanes.by_tid);
    for (uint32_t i = 0; i < lanes.high; i++) {
        const cm_thread *t = cm_threads_at(i);
        if (atomic_load_explicit(&t->state, memory_order_acquire) != CM_THREAD_LIVE)
            continue;
        int32_t tid = atomic_load_explicit(&t->tid, memory_order_relaxed);
        uint32_t at = (uint32_t)tid % TIDS;
        while (lanes.by_tid[at] != 0) {
            const cm_thread *other = cm_threads_at(lanes.by_tid[at] - 1u);
            if (atomic_load_explicit(&other->tid, memory_order_relaxed) == tid)
                break;
            at = (at + 1) % TIDS;
        }
        if (lanes.by_tid[at] == 0 ||
            (int32_t)(cm_thread_generation(t) -
                      cm_thread_generation(cm_threads_at(lanes.by_tid[at] - 1u))) > 0)
            lanes.by_tid[at] = (uint16_t)(i + 1);
    }
}

static bool is_gone(uint32_t slot)
{
    int32_t tid = atomic_load_explicit(&cm_threads_at(slot)->tid, memory_order_relaxed);
    uint32_t at = (uint32_t)tid % TIDS;

    while (lanes.by_tid[at] != 0 && atomic_load_explicit(&cm_threads_at(lanes.by_tid[at] - 1u)->tid,
                                                         memory_order_relaxed) != tid)
        at = (at + 1) % TIDS;
    if (lanes.by_tid[at] != 0 && lanes.by_tid[at] != slot + 1)
        return true;
    return syscall(SYS_tgkill, getpid(), tid, 0) < 0 && errno == ESRCH;
}

/* All that the ring has is in the trace, and its thread cannot be inside a hook: its blocks are
 * free, those too that it took and did not use. */
static void free_all(lane *l, uint32_t slot)
{
    l->walk.ring = slot;
    l->walk.end = l->walk.position = l->tail;
    l->retiring = l->block != 0;
    find_run(l);
    while (l->block != 0) {
        uint32_t next = link_of(l->block);
        cm_blockpool_give(l->block);
        l->block = next;
    }
    l->cursor = 0;
    l->retiring = false;
    atomic_store_explicit(&cm_threads_at(slot)->limit, 0, memory_order_relaxed);
}

static bool is_drained(const lane *l, uint32_t slot)
{
    const cm_thread *t = cm_threads_at(slot);
    /* busy last written by the thread: what it did in its hooks comes before. */
    return atomic_load_explicit(&t->state, memory_order_acquire) == CM_THREAD_LIVE &&
           atomic_load_explicit(&t->busy, memory_order_acquire) == 0 && l->tail == head_of(slot);
}

bool cm_lanes_confess(void)
{
    bool all = true;

    lanes.high = cm_threads_high();
    for (uint32_t i = 0; i < lanes.high; i++)
        if (is_drained(&lanes.of[i], i))
            free_all(&lanes.of[i], i);
    for (uint32_t i = 0; i < lanes.high; i++)
        if (is_drained(&lanes.of[i], i))
            all &= cm_threads_confess(i);
    return all;
}

/* A thread may free tensors until its very end, in destructors that run after all of ours could:
 * only when the kernel no longer knows it is its ring complete. */
static void bury(void)
{
    note_tids();
    for (uint32_t i = 0; i < lanes.high; i++) {
        lane *l = &lanes.of[i];
        if (!is_drained(l, i) || !is_gone(i) || l->tail != head_of(i))
            continue;
        free_all(l, i);
        /* Then its last words are still to be written. */
        if (cm_threads_confess(i) && l->tail == head_of(i))
            cm_threads_recycle(i);
    }
}

void cm_lanes_reclaim(uint64_t now_ns)
{
    bool scarce = atomic_load(&cm_blockpool.used) > cm_blockpool.count / 4;

    lanes.high = cm_threads_high();
    if (scarce || cm_threads_in_use() > CM_RING_COUNT / 4 ||
        now_ns - lanes.bury_ns > BURY_MS * UINT64_C(1000000)) {
        lanes.bury_ns = now_ns;
        bury();
    }
    if (scarce)
        retire_idle_blocks();
}

void cm_lanes_rest(void)
{
    lanes.high = cm_threads_high();
    retire_idle_blocks();
}

/* --- counts ------------------------------------------------------------------------------ */

uint64_t cm_lanes_pending(void)
{
    uint64_t pending = 0;

    for (uint32_t i = 0; i < cm_threads_high(); i++) {
        /* The tail first: the head is then not behind it. */
        uint64_t tail = atomic_load_explicit(&cm_ringfile.counts[i].tail, memory_order_acquire);
        pending += head_of(i) - tail;
    }
    return pending;
}

uint64_t cm_lanes_lost(void)
{
    uint64_t lost = 0;

    for (uint32_t i = 0; i < cm_threads_high(); i++)
        lost += atomic_load_explicit(&cm_ringfile.counts[i].lost, memory_order_relaxed);
    return lost;
}
