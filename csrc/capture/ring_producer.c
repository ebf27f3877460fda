/* The producers' states: claimed in a hook, lock-free; recycled by the collector. */
#include "ring_producer.h"

#include <errno.h>
#include <linux/membarrier.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "../base/pages.h"
#include "../base/clock.h"
#include "ringfile.h"
#include "wake.h"

enum {
    SLOT_BYTES = (sizeof(cm_producer) + 4095) & ~4095,
    CHUNK_SLOTS = 64, /* mapped together: all of them would take 40 MiB of address space */
    CHUNKS = CM_RING_COUNT / CHUNK_SLOTS
};

_Thread_local cm_producer_self cm_self __attribute__((tls_model("initial-exec")));

/* The states stay in place for the life of the process: a thread keeps its own across captures, and
 * may read it at any time. */
static struct {
    _Atomic(unsigned char *) chunk[CHUNKS]; /* all below that of `high` are mapped */
    bool ready, has_barrier;
    cm_freelist free;
    _Atomic uint32_t next[CM_RING_COUNT];
    _Atomic uint32_t high, in_use;
    _Atomic uint32_t entering; /* threads entering their first hook of a capture */
    _Atomic uint32_t generation, thread_number;
} pool;

/* Any number of threads at once, in a hook. */
static bool map_chunk_hook(uint32_t number)
{
    unsigned char *none = NULL;
    int saved = errno;

    if (atomic_load_explicit(&pool.chunk[number], memory_order_acquire) != NULL)
        return true;
    void *made =
        cm_pages_map((size_t)CHUNK_SLOTS * SLOT_BYTES, PROT_READ | PROT_WRITE, MAP_NORESERVE);
    errno = saved;
    if (made == MAP_FAILED)
        return false;
    if (!atomic_compare_exchange_strong(&pool.chunk[number], &none, made))
        cm_pages_unmap(made, (size_t)CHUNK_SLOTS * SLOT_BYTES);
    return true;
}

int cm_producers_init(void)
{
    if (pool.ready)
        return 0;
    if (!map_chunk_hook(0))
        return -ENOMEM;
    pool.free.next = pool.next;
    pool.free.capacity = CM_RING_COUNT;
    pool.has_barrier =
        syscall(SYS_membarrier, MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED, 0, 0) == 0;
    int status = cm_recording_init();
    pool.ready = status == 0;
    return status;
}

void cm_producers_begin(void)
{
    atomic_store(&pool.thread_number, 0);
    for (uint32_t i = 0; i < cm_producers_high(); i++) {
        cm_producer *t = cm_producers_at(i);
        atomic_store(&t->limit, 0);
        atomic_store(&t->restart, 0);
    }
}

bool cm_producers_hold(int milliseconds)
{
    cm_recording_hold();
    return cm_producers_wait_until_left(milliseconds);
}

bool cm_producers_barrier(void)
{
    return pool.has_barrier && syscall(SYS_membarrier, MEMBARRIER_CMD_PRIVATE_EXPEDITED, 0, 0) == 0;
}

static bool is_any_inside(void)
{
    if (atomic_load(&pool.entering) != 0)
        return true;
    for (uint32_t i = 0; i < cm_producers_high(); i++) {
        cm_producer *t = cm_producers_at(i);
        if (t != cm_self.thread && atomic_load_explicit(&t->busy, memory_order_acquire) != 0)
            return true;
    }
    return false;
}

bool cm_producers_wait_until_left(int milliseconds)
{
    const struct timespec pause = {.tv_nsec = 20000};
    uint64_t deadline = cm_clock_monotonic_ns() + (uint64_t)milliseconds * 1000000u;

    if (!cm_producers_barrier())
        /* No core hides a store for a fraction of this time. */
        nanosleep(&(struct timespec){.tv_nsec = 10000000}, NULL);
    while (is_any_inside()) {
        if (cm_clock_monotonic_ns() > deadline)
            return false;
        nanosleep(&pause, NULL);
    }
    return true;
}

uint32_t cm_producers_high(void)
{
    return atomic_load_explicit(&pool.high, memory_order_acquire);
}

uint32_t cm_producers_in_use(void)
{
    return atomic_load_explicit(&pool.in_use, memory_order_relaxed);
}

cm_producer *cm_producers_at(uint32_t slot)
{
    unsigned char *chunk =
        atomic_load_explicit(&pool.chunk[slot / CHUNK_SLOTS], memory_order_acquire);
    return (cm_producer *)(chunk + (size_t)(slot % CHUNK_SLOTS) * SLOT_BYTES);
}

void cm_producers_recycle(uint32_t slot)
{
    cm_producer *t = cm_producers_at(slot);

    /* Zeroes it, and returns the pages of a burst of threads to the system. */
    atomic_store_explicit(&t->state, CM_PRODUCER_FREE, memory_order_relaxed);
    madvise(t, SLOT_BYTES, MADV_DONTNEED);
    atomic_fetch_sub_explicit(&pool.in_use, 1, memory_order_relaxed);
    cm_freelist_give(&pool.free, slot);
}

void cm_producers_forget(void)
{
    if (!pool.ready)
        return;
    cm_recording_forget();
    for (int i = 0; i < CHUNKS; i++)
        if (atomic_load(&pool.chunk[i]) != NULL)
            madvise(atomic_load(&pool.chunk[i]), (size_t)CHUNK_SLOTS * SLOT_BYTES, MADV_DONTNEED);
    atomic_store(&pool.free.top, 0);
    atomic_store(&pool.free.fresh, 0);
    atomic_store(&pool.high, 0);
    atomic_store(&pool.in_use, 0);
    atomic_store(&pool.entering, 0);
    cm_self = (cm_producer_self){0};
    /* Whether a child inherits the registration depends on the kernel. */
    pool.has_barrier =
        syscall(SYS_membarrier, MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED, 0, 0) == 0;
}

uint64_t cm_producers_bytes(void)
{
    return (uint64_t)cm_producers_in_use() * SLOT_BYTES;
}

static void renew_hook(cm_producer *t)
{
    uint32_t generation;
    do
        generation = atomic_fetch_add_explicit(&pool.generation, 1, memory_order_relaxed) + 1;
    while (generation == 0);
    atomic_store_explicit(&t->generation, generation, memory_order_relaxed);
}

/* Takes a state; its chunk and all before it are mapped. */
static uint32_t take_state_hook(void)
{
    uint32_t index = cm_freelist_take_hook(&pool.free);

    for (uint32_t i = 0; index != 0 && i <= (index - 1) / CHUNK_SLOTS; i++)
        if (!map_chunk_hook(i)) {
            cm_freelist_give(&pool.free, index - 1);
            return 0;
        }
    return index;
}

static cm_producer *claim_hook(int32_t tid)
{
    uint32_t index = take_state_hook();
    if (index == 0)
        return NULL;
    cm_producer *t = cm_producers_at(index - 1);
    t->slot = index - 1;
    atomic_store_explicit(&t->tid, tid, memory_order_relaxed);
    /* Before it counts as live: of two states with one thread id the collector recycles the
     * older. */
    renew_hook(t);
    atomic_store_explicit(&t->state, CM_PRODUCER_LIVE, memory_order_release);

    uint32_t high = atomic_load_explicit(&pool.high, memory_order_relaxed);
    while (high < index &&
           !atomic_compare_exchange_weak_explicit(&pool.high, &high, index, memory_order_release,
                                                  memory_order_relaxed))
        ;
    if (atomic_fetch_add_explicit(&pool.in_use, 1, memory_order_relaxed) >= CM_RING_COUNT / 2)
        cm_wake_collector_hook(); /* it recycles threads that have ended */
    return t;
}

static void prepare_hook(cm_producer *t)
{
    cm_ring *ring = &cm_ringfile.rings[t->slot];

    renew_hook(t);
    if (t->used)
        memset(&t->walk, 0, sizeof t->walk);
    t->used = true;
    t->announced = false;
    t->next = NULL;
    t->block = 0;
    atomic_store_explicit(&t->limit, 0, memory_order_relaxed);
    t->head = &ring->head;
    t->published = &cm_ringfile.counts[t->slot].head;
    ring->thread = atomic_fetch_add_explicit(&pool.thread_number, 1, memory_order_relaxed) + 1;
    ring->tid = atomic_load_explicit(&t->tid, memory_order_relaxed);
}

/* Waits until the threads are released; returns the word then. */
static uint32_t wait_hook(void)
{
    const struct timespec pause = {.tv_nsec = 20000};
    int saved = errno;
    uint32_t now;

    while ((now = atomic_load_explicit(cm_recording, memory_order_acquire)) == CM_RECORDING_HELD)
        nanosleep(&pause, NULL);
    errno = saved;
    return now;
}

/* Recording is on, and does not end meanwhile. */
static cm_producer *enter_hook(uint32_t capture)
{
    int32_t tid = (int32_t)syscall(SYS_gettid);
    cm_producer *t = cm_self.thread;

    /* Another id: a child forked without its handlers being run. */
    if (t == NULL || atomic_load_explicit(&t->tid, memory_order_relaxed) != tid)
        t = claim_hook(tid);
    if (t == NULL) {
        atomic_fetch_add_explicit(&cm_ringfile.unowned_lost, 1, memory_order_relaxed);
        atomic_fetch_add_explicit(&cm_ringfile.header->unowned_lost, 1, memory_order_relaxed);
        cm_wake_collector_hook();
        return NULL;
    }
    if (atomic_load_explicit(&t->busy, memory_order_relaxed) != 0)
        return NULL; /* still inside a hook of the last capture */
    if (t != cm_self.thread || cm_self.capture != capture) /* else it only waited */
        prepare_hook(t);
    atomic_store_explicit(&t->busy, 1, memory_order_relaxed);
    cm_self.thread = t;
    cm_self.capture = capture;
    return t;
}

/* A thread's first hook in this capture, or one that must wait. */
cm_producer *cm_enter_slow_hook(uint32_t capture)
{
    cm_producer *t = NULL;

    if (cm_self.entering)
        return NULL; /* a signal handler that allocates */
    if (capture == CM_RECORDING_HELD && cm_self.thread != NULL &&
        atomic_load_explicit(&cm_self.thread->busy, memory_order_relaxed) != 0)
        return NULL; /* the same: the holder waits for the hook that it interrupted */
    cm_self.entering = true;
    atomic_signal_fence(memory_order_seq_cst);
    while (capture != 0) {
        if (capture == CM_RECORDING_HELD && (capture = wait_hook()) == 0)
            break;
        /* The end of recording clears the word, then waits for this to be 0: we see the cleared
         * word, or it waits for us. */
        atomic_fetch_add_explicit(&pool.entering, 1, memory_order_seq_cst);
        uint32_t now = atomic_load_explicit(cm_recording, memory_order_seq_cst);
        if (now == capture)
            t = enter_hook(capture);
        atomic_fetch_sub_explicit(&pool.entering, 1, memory_order_seq_cst);
        capture = now == CM_RECORDING_HELD ? now : 0;
    }
    atomic_signal_fence(memory_order_seq_cst);
    cm_self.entering = false;
    return t;
}

static void announce_hook(cm_producer *t)
{
    *t->next = (cm_event){.time = cm_clock_now(),
                          .address = (uint64_t)atomic_load_explicit(&t->tid, memory_order_relaxed),
                          .kind = CM_EV_THREAD,
                          .device_index = -1};
    cm_commit_hook(t);
    t->announced = true;
}

static void report_losses_hook(cm_producer *t, cm_ring *ring, uint64_t lost)
{
    *t->next = (cm_event){
        .time = cm_clock_now(), .size = (int64_t)lost, .kind = CM_EV_LOST, .device_index = -1};
    /* After a kill a reader compares lost_at with head: were these reported? */
    uint64_t position = atomic_load_explicit(t->published, memory_order_relaxed);
    atomic_store_explicit(&ring->lost_at, position + 1, memory_order_relaxed);
    cm_commit_hook(t);
    atomic_store_explicit(&ring->lost, 0, memory_order_release);
    atomic_store_explicit(&ring->lost_at, 0, memory_order_release);
}

/* Gives the thread its next block, and puts its pending reports there first. */
static bool take_block_hook(cm_producer *t, cm_ring *ring)
{
    uint64_t lost = atomic_load_explicit(&ring->lost, memory_order_relaxed);
    /* If the collector has cleared the limit, it finds the new block through restart. If it clears
     * it later, the link below shows it that this was too late. */
    bool has_block = atomic_load_explicit(&t->limit, memory_order_relaxed) != 0;
    uint64_t position = atomic_load_explicit(t->published, memory_order_relaxed);
    uint32_t index = cm_blockpool_take_hook(t->slot, position, t->serial + 1);

    if (index == 0)
        return false;
    cm_ring_block *block = cm_blockpool_at(index);
    t->serial++;
    if (has_block)
        atomic_store_explicit(&cm_blockpool.link[t->block - 1], index, memory_order_release);
    else
        atomic_store_explicit(&t->restart, index, memory_order_release);
    t->block = index;
    t->next = block->events;
    atomic_store_explicit(&t->limit, (uintptr_t)(block->events + CM_BLOCK_EVENTS),
                          memory_order_relaxed);
    if (!t->announced)
        announce_hook(t);
    if (lost > 0)
        report_losses_hook(t, ring, lost);
    return true;
}

/* The thread has no block, or a full one. */
cm_event *cm_reserve_slow_hook(cm_producer *t)
{
    cm_ring *ring = &cm_ringfile.rings[t->slot];

    if (take_block_hook(t, ring))
        return t->next;
    uint64_t lost = atomic_load_explicit(&ring->lost, memory_order_relaxed);
    atomic_store_explicit(&ring->lost, lost + 1, memory_order_relaxed);
    atomic_fetch_add_explicit(&cm_ringfile.counts[t->slot].lost, 1, memory_order_relaxed);
    atomic_fetch_add_explicit(&ring->lost_total, 1, memory_order_relaxed);
    return NULL;
}

bool cm_producers_report_losses(uint32_t slot)
{
    cm_ring *ring = &cm_ringfile.rings[slot];

    /* A thread with losses has no block with room, so that its next begins with them. */
    return atomic_load_explicit(&ring->lost, memory_order_relaxed) == 0 ||
           take_block_hook(cm_producers_at(slot), ring);
}
