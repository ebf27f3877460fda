/* The producer's side of a ring: this thread's recording state, as a hook uses it.
 *
 * Use, always in this order:
 *
 *     cm_producer *t = cm_enter_hook();        // NULL: not recording, or already inside a hook
 *     if (t) {
 *         cm_event *e = cm_reserve_hook(t);  // NULL: no room, counted as lost
 *         if (e) { ...fill every field...; cm_commit_hook(t); }
 *         cm_leave_hook(t);
 *     }
 *
 * Every function here runs on the calling thread inside a hook: the GIL and the allocator's mutex
 * may or may not be held, so nothing here takes a lock, calls malloc, or waits for the collector.
 */
#ifndef CM_CAPTURE_RING_PRODUCER_H
#define CM_CAPTURE_RING_PRODUCER_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "../frames/walk.h"
#include "../base/event.h"
#include "recording.h"

/* Belongs to one kernel thread until that ends, over any number of captures. Only its owner writes
 * it, except limit (the collector clears it to take an idle thread's block), restart (the collector
 * clears it) and state. */
typedef struct cm_producer {
    _Atomic uint32_t busy; /* inside a hook */
    _Atomic uint32_t generation;
    cm_event *next;                        /* where the next event goes ... */
    _Atomic uintptr_t limit;               /* ... if below; 0: the thread has no block */
    _Atomic uint64_t *published;           /* event count: cm_ring_counts.head, */
    _Atomic uint64_t *head;                /* and its copy in the ring's file */
    uint32_t slot;                         /* number of this state and of its ring */
    uint32_t block, serial;                /* current block + 1, blocks taken */
    bool announced, used;                  /* CM_EV_THREAD is out; the walk memory was used */
    _Alignas(64) _Atomic uint32_t restart; /* a block that no link leads to + 1 */
    _Atomic uint32_t state;                /* cm_producer_state */
    _Atomic int32_t tid;
    _Alignas(64) cm_walk walk;
} cm_producer;

typedef enum cm_producer_state { CM_PRODUCER_FREE = 0, CM_PRODUCER_LIVE = 1 } cm_producer_state;

typedef struct cm_producer_self {
    cm_producer *thread;
    uint32_t capture; /* the one that thread is prepared for */
    bool entering;
} cm_producer_self;
extern _Thread_local cm_producer_self cm_self __attribute__((tls_model("initial-exec")));

cm_producer *cm_enter_slow_hook(uint32_t capture);
cm_event *cm_reserve_slow_hook(cm_producer *t);

static inline cm_producer *cm_enter_hook(void)
{
    uint32_t capture = atomic_load_explicit(cm_recording, memory_order_relaxed);

    if (capture == 0)
        return NULL;
    if (__builtin_expect(cm_self.capture != capture, 0))
        return cm_enter_slow_hook(capture);
    cm_producer *t = cm_self.thread;
    if (__builtin_expect(atomic_load_explicit(&t->busy, memory_order_relaxed), 0))
        return NULL;
    atomic_store_explicit(&t->busy, 1, memory_order_relaxed);
    /* A thread that clears the recording word or this limit calls membarrier() before it reads
     * busy, so that ordering the compiler is enough here. */
    atomic_signal_fence(memory_order_seq_cst);
    /* Acquire: pairs with cm_recording_release. */
    uint32_t now = atomic_load_explicit(cm_recording, memory_order_acquire);
    if (__builtin_expect(now != capture, 0)) {
        atomic_store_explicit(&t->busy, 0, memory_order_release);
        return now == CM_RECORDING_HELD ? cm_enter_slow_hook(now) : NULL;
    }
    return t;
}

static inline cm_event *cm_reserve_hook(cm_producer *t)
{
    if (__builtin_expect((uintptr_t)t->next < atomic_load_explicit(&t->limit, memory_order_relaxed),
                         1))
        return t->next;
    return cm_reserve_slow_hook(t);
}

static inline void cm_commit_hook(cm_producer *t)
{
    uint64_t count = atomic_load_explicit(t->published, memory_order_relaxed) + 1;

    t->next++;
    /* Release: whoever sees the count, in this process or in the file after it was killed, sees
     * the event. */
    atomic_store_explicit(t->published, count, memory_order_release);
    atomic_store_explicit(t->head, count, memory_order_release);
}

static inline void cm_leave_hook(cm_producer *t)
{
    atomic_store_explicit(&t->busy, 0, memory_order_release);
}

/* This thread's walk memory for cm_walk_capture_hook. */
static inline cm_walk *cm_producer_walk(cm_producer *t)
{
    return &t->walk;
}

/* Changes whenever this state starts to serve another capture or thread: what a source remembers
 * per thread is stale when it differs. Never 0. */
static inline uint32_t cm_producer_generation(const cm_producer *t)
{
    return atomic_load_explicit(&t->generation, memory_order_relaxed);
}

/* --- control: session and collector ------------------------------------------------------ */

/* Once per process; 0 or a negative errno. */
int cm_producers_init(void);
/* A new capture, while nothing records and no thread is inside a hook. */
void cm_producers_begin(void);
/* Makes every thread wait before its hooks, without losing events, until cm_recording_release.
 * False: one stays in a hook for longer than this. The caller uses nothing that a waiting thread
 * may hold: no allocator, no GIL. It must release them in any case. */
bool cm_producers_hold(int milliseconds);
/* After the word was cleared: true once every thread has left its hook, false if one stays in it
 * for longer than this. */
bool cm_producers_wait_until_left(int milliseconds);
/* Slots below this number may be in use. */
uint32_t cm_producers_high(void);
cm_producer *cm_producers_at(uint32_t slot);
uint32_t cm_producers_in_use(void);
/* Offers the slot to new threads: its thread is gone and its ring is empty. */
void cm_producers_recycle(uint32_t slot);
/* Publishes the unreported losses of the slot's thread, which is gone, or outside its hooks with
 * recording off. False: there is no block for that now. */
bool cm_producers_report_losses(uint32_t slot);
/* Every running thread passes a full barrier before this returns. False: the kernel has none. */
bool cm_producers_barrier(void);
/* In a forked child. */
void cm_producers_forget(void);
/* Bytes that the thread states take up now. */
uint64_t cm_producers_bytes(void);

#endif
