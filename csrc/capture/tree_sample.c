#define _GNU_SOURCE
#include "tree_sample.h"

#include <pthread.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "../base/clock.h"
#include "../base/helper_thread.h"
#include "../trace/tree_chunk.h"
#include "process_tree.h"
#include "recording.h"

enum {
    GAP_MS = 500, /* at least, between two samples */
    SHARE = 1000, /* those of each kind take one in so many parts of the time ... */
    /* ... but at first one in FREE_SHARE: those without a rollup for so long, and those with one of
     * several processes, for workers may live shortly. */
    FREE_SHARE = 20,
    FREE_STATUS_MS = 100,
    FREE_ROLLUP_MS = 400,
    LAST_MS = 50,      /* the last sample may take so long */
    EVENLY = 4096,     /* after so many gaps they grow with the recording: its samples stay few */
    NS_OF_MIB = 65000, /* of a rollup, with pages of 4 KiB, until one was made */
    FILES_RISE = 4,    /* resident memory rose by one in so many parts ... */
    FILES_LEAST_KIB = 8 << 10, /* ... and by so much: files are looked at again */
    STACK = 128 << 10
};
#define MS UINT64_C(1000000)

static atomic_bool refused; /* an own descriptor table: not tried again */

static struct {
    pthread_t thread;
    int32_t id;
    bool running, good; /* good: the tree was read */
    cm_tree_depth depth;
    atomic_bool stop, over;
    uint64_t began_ns, due_ns, started; /* samples started so far */
    uint64_t rollup_ns, ns_of_mib;      /* when the last one ended; what it took */
    uint64_t spent_ns[2];               /* by samples without and with a rollup, of the free time */
    uint64_t resident_mib, looked_kib;  /* of the tree, now; when files were looked at */
    bool files_due;
    cm_process_tree tree;
    uint8_t chunk[CM_TREE_CHUNK_MOST];
} sample;

static void *read_tree(void *unused)
{
    (void)unused;
    sample.id = (int32_t)syscall(SYS_gettid);
    if (cm_helper_own_descriptors())
        sample.good = cm_process_tree_read(getpid(), sample.depth, &sample.stop, &sample.tree);
    else
        atomic_store(&refused, true);
    atomic_store(&sample.over, true);
    return NULL;
}

static bool start(cm_tree_depth depth)
{
    sample.depth = depth;
    sample.good = false;
    atomic_store(&sample.stop, false);
    atomic_store(&sample.over, false);
    sample.running =
        !atomic_load(&refused) && cm_helper_start(&sample.thread, read_tree, NULL, STACK) == 0;
    sample.started += sample.running;
    return sample.running;
}

/* The time after a sample that takes ns, until the next one of its kind. */
static uint64_t gap_after(uint64_t ns, bool rollup)
{
    uint64_t free_ms = !rollup ? FREE_STATUS_MS : sample.tree.count > 1 ? FREE_ROLLUP_MS : 0;

    return ns * (sample.spent_ns[rollup] + ns <= free_ms * MS ? FREE_SHARE : SHARE);
}

/* Of the next rollup: a page takes as long as those of the last one. */
static uint64_t expected_ns(void)
{
    return sample.resident_mib * sample.ns_of_mib;
}

static bool rollup_is_due(uint64_t now)
{
    return sample.resident_mib > 0 && now - sample.rollup_ns >= gap_after(expected_ns(), true);
}

static uint64_t sum_of(cm_process_size first, cm_process_size last)
{
    uint64_t kib = 0;

    for (uint32_t i = 0; i < sample.tree.count; i++)
        for (int size = (int)first; size <= (int)last; size++)
            kib += sample.tree.process[i].kib[size];
    return kib;
}

static void learn(uint64_t now)
{
    uint64_t resident = sum_of(CM_SIZE_RSS_ANON, CM_SIZE_RSS_SHMEM);

    sample.resident_mib = (resident >> 10) + 1;
    if (sample.depth == CM_TREE_STATUS || sample.tree.count > 1)
        sample.spent_ns[sample.depth != CM_TREE_STATUS] += sample.tree.cpu_ns;
    if (sample.depth >= CM_TREE_ROLLUP) {
        sample.rollup_ns = now;
        sample.ns_of_mib = sample.tree.cpu_ns / sample.resident_mib;
    }
    if (sample.depth == CM_TREE_MAPPED)
        sample.looked_kib = resident;
    sample.files_due =
        resident > sample.looked_kib + sample.looked_kib / FILES_RISE + FILES_LEAST_KIB;
}

/* Joins the thread. true: there is a chunk. */
static bool finish(uint64_t now, const void **chunk, size_t *length)
{
    uint64_t gap = GAP_MS * MS, evenly = (now - sample.began_ns) / EVENLY;

    cm_helper_join(sample.thread, &sample.id);
    sample.running = false;
    if (evenly > gap)
        gap = evenly;
    if (sample.good && sample.depth == CM_TREE_STATUS && gap_after(sample.tree.cpu_ns, false) > gap)
        gap = gap_after(sample.tree.cpu_ns, false);
    sample.due_ns = now + gap;
    if (!sample.good)
        return false;
    learn(now);
    *length = cm_tree_encode(&sample.tree, sample.chunk);
    *chunk = sample.chunk;
    return true;
}

static cm_tree_depth depth_now(uint64_t now)
{
    if (!rollup_is_due(now))
        return CM_TREE_STATUS;
    return sample.files_due ? CM_TREE_MAPPED : CM_TREE_ROLLUP;
}

void cm_tree_sample_begin(void)
{
    sample.began_ns = sample.rollup_ns = cm_clock_monotonic_ns();
    sample.due_ns = sample.began_ns + GAP_MS * MS;
    sample.started = sample.spent_ns[0] = sample.spent_ns[1] = sample.resident_mib =
        sample.looked_kib = 0;
    sample.ns_of_mib = NS_OF_MIB;
    sample.files_due = true;
}

bool cm_tree_sample_poll(uint64_t now, const void **chunk, size_t *length)
{
    if (sample.running)
        return atomic_load(&sample.over) && finish(now, chunk, length);
    if (now >= sample.due_ns && cm_is_recording() && !start(depth_now(now)))
        sample.due_ns = UINT64_MAX;
    return false;
}

void cm_tree_sample_pause(void)
{
    const void *chunk;
    size_t length;

    if (!sample.running)
        return;
    atomic_store(&sample.stop, true);
    finish(cm_clock_monotonic_ns(), &chunk, &length);
}

bool cm_tree_sample_last(const void **chunk, size_t *length)
{
    cm_tree_sample_pause();
    if (sample.started == 0)
        return false;
    cm_tree_depth depth = expected_ns() <= LAST_MS * MS ? CM_TREE_MAPPED : CM_TREE_STATUS;
    return start(depth) && finish(cm_clock_monotonic_ns(), chunk, length);
}

void cm_tree_sample_forget(void)
{
    sample.running = false;
    sample.due_ns = UINT64_MAX;
}
