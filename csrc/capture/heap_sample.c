#define _GNU_SOURCE
#include "heap_sample.h"

#include <dlfcn.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../base/clock.h"
#include "ring_consumer.h"
#include "ring_producer.h"
#include "statm.h"

enum {
    GAP_NS = 10 * 1000 * 1000,  /* at least, between two samples */
    FREE_NS = 10 * 1000 * 1000, /* all of them may take so long ... */
    FREE_SHARE = 100,           /* ... at one in so many parts of the time */
    SHARE = 1000,               /* then one in so many */
    MOST_NS = 5 * 1000 * 1000,  /* a sample that takes longer is the last one */
    PIECES = 50 * 1000,         /* that malloc looks at; 0.15 us each */
    SCRAPS = 6,                 /* of so many pieces in use one is left free between them */
    UNSEEN = 4000               /* events that the collector may be behind */
};

/* As in malloc.h of glibc 2.33. Older ones have none, whose int counts overflow. */
struct mallinfo2 {
    size_t arena, ordblks, smblks, hblks, hblkhd, usmblks, fsmblks, uordblks, fordblks, keepcost;
};
typedef struct mallinfo2 (*mallinfo2_fn)(void);

static mallinfo2_fn ask_malloc;
static atomic_bool too_slow;    /* for the life of the process: malloc looks at every free piece */
static _Atomic uint64_t due_ns; /* UINT64_MAX: no more, or a thread takes one */
static uint64_t spent_ns;       /* of the thread that takes one */
static _Atomic uint64_t ticks;  /* of the process's life */
/* When malloc was last asked: free pieces, in use, freed since the peak. */
static int64_t pieces, used, freed;
/* By what the collector has seen; the peak since malloc was asked. */
static _Atomic int64_t in_use, peak;

static void emit(cm_sample_kind kind, int64_t bytes)
{
    cm_producer *t = cm_enter_hook();

    if (t == NULL)
        return;
    cm_event *slot = cm_reserve_hook(t);
    if (slot != NULL) {
        *slot = (cm_event){.time = cm_clock_now(),
                           .kind = CM_EV_SAMPLE,
                           .size = bytes,
                           .address = kind,
                           .device_index = -1};
        cm_commit_hook(t);
    }
    cm_leave_hook(t);
}

static int64_t freed_since_peak(void)
{
    return atomic_load_explicit(&peak, memory_order_relaxed) -
           atomic_load_explicit(&in_use, memory_order_relaxed);
}

static struct mallinfo2 ask(void)
{
    struct mallinfo2 of_malloc = ask_malloc();

    pieces = (int64_t)(of_malloc.ordblks + of_malloc.smblks);
    freed = freed_since_peak();
    used = atomic_load_explicit(&in_use, memory_order_relaxed);
    atomic_store_explicit(&peak, used, memory_order_relaxed);
    return of_malloc;
}

static int64_t above_zero(int64_t number)
{
    return number > 0 ? number : 0;
}

/* Events that the collector has not seen. Inside a hook: rings go when no thread is in one. */
static uint64_t unseen(void)
{
    cm_producer *t = cm_enter_hook();

    if (t == NULL)
        return UINT64_MAX;
    uint64_t pending = cm_ring_consumer_pending();
    cm_leave_hook(t);
    return pending;
}

/* Whether malloc has few free pieces: those it had, for what a step frees the next one takes
 * again; what was freed beyond that; and scraps between those that came. */
static bool is_quick(void)
{
    int64_t more = above_zero(freed_since_peak() - freed);
    int64_t scraps =
        above_zero(atomic_load_explicit(&in_use, memory_order_relaxed) - used) / SCRAPS;

    return pieces + more + scraps <= PIECES && unseen() <= UNSEEN;
}

/* What malloc keeps free is address space of the process, but not in use. */
static void take_sample(void)
{
    cm_statm now;

    if (!cm_statm_read(&now))
        return;
    struct mallinfo2 of_malloc = ask();
    emit(CM_SAMPLE_RSS, now.resident);
    emit(CM_SAMPLE_USED, now.writable - (int64_t)of_malloc.fordblks);
    emit(CM_SAMPLE_MALLOC, (int64_t)(of_malloc.uordblks + of_malloc.hblkhd));
}

/* Of the processor: another program's turn in between is no cost of ours. */
static uint64_t used_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

uint64_t cm_heap_sample_ticks(void)
{
    return atomic_load_explicit(&ticks, memory_order_relaxed);
}

void cm_heap_sample(void)
{
    atomic_fetch_add_explicit(&ticks, 1, memory_order_relaxed);
    uint64_t due = atomic_load_explicit(&due_ns, memory_order_relaxed);

    if (cm_clock_monotonic_ns() < due || !cm_is_recording() ||
        !atomic_compare_exchange_strong(&due_ns, &due, UINT64_MAX))
        return;
    uint64_t begin = used_ns(), took = 0;
    if (is_quick()) {
        take_sample();
        took = used_ns() - begin;
        spent_ns += took;
    }
    uint64_t gap = took * (spent_ns < FREE_NS ? FREE_SHARE : SHARE);
    if (took >= MOST_NS)
        atomic_store(&too_slow, true);
    else
        atomic_store(&due_ns, cm_clock_monotonic_ns() + (gap < GAP_NS ? GAP_NS : gap));
}

void cm_heap_sample_begin(void)
{
    void *found = dlsym(RTLD_DEFAULT, "mallinfo2");

    ask_malloc = found == NULL ? NULL : (mallinfo2_fn)(uintptr_t)found;
    spent_ns = 0;
    atomic_store(&in_use, 0);
    atomic_store(&peak, 0);
    uint64_t begin = used_ns();
    if (ask_malloc != NULL && !atomic_load(&too_slow))
        ask();
    if (used_ns() - begin >= MOST_NS)
        atomic_store(&too_slow, true);
    atomic_store(&due_ns, ask_malloc == NULL || atomic_load(&too_slow) ? UINT64_MAX : 0);
}

/* Of each arena malloc_info tells what is free, in its second "total". The first arena is brk's. */
static void read_arenas(const char *text, cm_heap_trimmed *out)
{
    long number;
    long long bytes;

    while ((text = strstr(text, "<heap nr=\"")) != NULL) {
        const char *rest = strstr(text, "<total type=\"rest\"");
        if (rest == NULL || sscanf(text, "<heap nr=\"%ld", &number) != 1 ||
            sscanf(rest, "<total type=\"rest\" count=\"%*u\" size=\"%lld", &bytes) != 1)
            return;
        out->arenas += number > 0;
        out->in_arenas += number > 0 ? bytes : 0;
        text = rest;
    }
}

/* Whether malloc is of the same library: another one may have been preloaded. */
static bool is_mallocs_own(const void *function)
{
    Dl_info one, other;
    const void *allocate = dlsym(RTLD_DEFAULT, "malloc");

    return function != NULL && allocate != NULL && dladdr(function, &one) != 0 &&
           dladdr(allocate, &other) != 0 && one.dli_fbase == other.dli_fbase;
}

bool cm_heap_trim(cm_heap_trimmed *out)
{
    int (*trim)(size_t) = (int (*)(size_t))(uintptr_t)dlsym(RTLD_DEFAULT, "malloc_trim");
    int (*info)(int, FILE *) = (int (*)(int, FILE *))(uintptr_t)dlsym(RTLD_DEFAULT, "malloc_info");
    cm_statm before, after;
    char *text = NULL;
    size_t length;
    FILE *file;

    if (ask_malloc == NULL || !is_mallocs_own((const void *)(uintptr_t)trim) || info == NULL ||
        !cm_statm_read(&before) || (file = open_memstream(&text, &length)) == NULL)
        return false;
    *out = (cm_heap_trimmed){.free = (int64_t)ask_malloc().fordblks};
    info(0, file);
    fclose(file);
    if (text != NULL)
        read_arenas(text, out);
    free(text);
    trim(0);
    if (!cm_statm_read(&after))
        return false;
    out->returned = above_zero(before.resident - after.resident);
    return true;
}

void cm_heap_sample_saw(int64_t now)
{
    atomic_store_explicit(&in_use, now, memory_order_relaxed);
    if (now > atomic_load_explicit(&peak, memory_order_relaxed))
        atomic_store_explicit(&peak, now, memory_order_relaxed);
}
