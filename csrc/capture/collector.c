/* The collector's thread and its rounds. What happens to one ring is in ring_consumer.c. */
#define _GNU_SOURCE
#include "collector_parts.h"

#include <errno.h>
#include <limits.h>
#include <linux/futex.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "../base/clock.h"
#include "../base/helper_thread.h"
#include "bus_error.h"
#include "heap_sample.h"
#include "ring_consumer.h"
#include "ring_owner.h"
#include "ring_producer.h"
#include "ringfile.h"
#include "source_text.h"
#include "statm.h"
#include "tree_sample.h"
#include "wake.h"

enum {
    PENDING_EVENTS = 1 << 15, /* worth a chunk */
    SIDE_SHARE = 8,           /* of max_size: its content goes to the trace at the end */
    SIDE_LEAST = 1 << 20,
    WAIT_SHORT_MS = 20,
    WAIT_LONG_MS = 100,
    WAIT_QUIET_MS = 500,   /* at most twice a second ... */
    QUIET_AFTER_MS = 1000, /* ... once nothing was published for so long */
    CHUNK_MS = 400,
    QUIET_CHUNK_MS = 900, /* when there is nothing but samples */
    SAMPLE_MS = 100,
    SAMPLE_STEP = 64 * 1024, /* a change of resident memory worth an event */
    LOCK_MS = 1000,
    BATCH_BYTES = 3 << 19, /* a batch's tables, without what it encodes and the chunk */
    /* More than two cores' clocks and a core's reordering can differ by. */
    WATERMARK_SLACK = 4096
};

cm_collector_state cm_collector;
const cm_compactor *cm_collector_compactor;
static _Thread_local bool is_collector __attribute__((tls_model("initial-exec")));

static long futex(_Atomic uint32_t *word, int operation, uint32_t value,
                  const struct timespec *wait)
{
    return syscall(SYS_futex, word, operation | FUTEX_PRIVATE_FLAG, value, wait, NULL, 0);
}

bool cm_collector_failed(void)
{
    return atomic_load(&cm_collector.failed);
}

const char *cm_collector_warning(void)
{
    return atomic_load(&cm_collector.explained) ? cm_collector.warning : NULL;
}

void cm_collector_set_compactor(const cm_compactor *of)
{
    cm_collector_compactor = of;
}

void cm_collector_set_idle_callback(void (*callback)(void))
{
    atomic_store(&cm_collector.idle, callback);
}

cm_collector_counts cm_collector_get_counts(void)
{
    return (cm_collector_counts){
        .events = atomic_load(&cm_collector.events) + cm_ring_consumer_pending(),
        .lost_events = cm_collector_lost(),
        .lost_stacks = atomic_load(&cm_collector.seen_lost_stacks),
        .bytes_written = atomic_load(&cm_collector.bytes),
        .rings = cm_producers_in_use(),
        .wakes = atomic_load(&cm_collector.wakes),
        .memory = sizeof cm_collector + cm_ring_consumer_bytes() + BATCH_BYTES +
                  2 * atomic_load(&cm_collector.largest_chunk) + cm_collector_compactor->memory() +
                  cm_sourcetext_memory(),
    };
}

/* --- one round --------------------------------------------------------------------------- */

static void emit(uint32_t thread, cm_event event)
{
    event.time = cm_clock_now();
    event.device_index = -1;
    cm_collector.own[cm_collector.own_count++] = (cm_own_event){.thread = thread, .event = event};
}

static void sample_memory(uint64_t now)
{
    cm_statm size;

    if (now - cm_collector.sample_ns < SAMPLE_MS * UINT64_C(1000000) ||
        cm_collector.own_count >= CM_COLLECTOR_OWN / 2 || !cm_is_recording())
        return;
    cm_collector.sample_ns = now;
    if (!cm_statm_open() || !cm_statm_read(&size) ||
        llabs(size.resident - cm_collector.sampled_bytes) < SAMPLE_STEP)
        return;
    cm_collector.sampled_bytes = size.resident;
    emit(0, (cm_event){.kind = CM_EV_SAMPLE, .size = size.resident, .address = CM_SAMPLE_RSS});
}

static void sample_tree(uint64_t now)
{
    const void *chunk;
    size_t length;

    if (!cm_collector_failed() && cm_tree_sample_poll(now, &chunk, &length))
        cm_collector_write_tree(chunk, length);
}

static void report_unowned_losses(void)
{
    uint64_t lost = atomic_load(&cm_ringfile.unowned_lost);

    if (lost == cm_collector.unowned_reported || cm_collector.own_count == CM_COLLECTOR_OWN)
        return;
    emit(0,
         (cm_event){.kind = CM_EV_LOST, .size = (int64_t)(lost - cm_collector.unowned_reported)});
    cm_collector.unowned_reported = lost;
}

/* When the next poll of the rings is due. Few enough events come until then that producers keep
 * writing to blocks still in their cache. */
static int wait_after(uint64_t now, uint64_t heads)
{
    uint64_t elapsed = now - cm_collector.round_ns;
    uint64_t fresh = heads - cm_collector.last_heads;

    cm_collector.round_ns = now;
    cm_collector.last_heads = heads;
    if (fresh != 0)
        cm_collector.fresh_ns = now;
    if (fresh == 0 || elapsed == 0)
        return WAIT_LONG_MS;
    uint64_t until = PENDING_EVENTS / 2 * (elapsed / 1000) / fresh / 1000;
    return until < WAIT_SHORT_MS ? WAIT_SHORT_MS : until > WAIT_LONG_MS ? WAIT_LONG_MS : (int)until;
}

static bool is_due(uint64_t now, uint64_t pending, uint64_t log_pending)
{
    uint64_t worth = (uint64_t)cm_blockpool.count * CM_BLOCK_EVENTS / 8;
    uint64_t age = (now - cm_collector.chunk_ns) / 1000000;

    if (worth > PENDING_EVENTS)
        worth = PENDING_EVENTS;
    if (pending >= worth || log_pending >= cm_ringfile.log_bytes / 4 ||
        atomic_load(&cm_blockpool.used) >= cm_blockpool.wake_at ||
        cm_collector.own_count >= CM_COLLECTOR_OWN / 2)
        return true;
    if (pending > 0 || log_pending > 0)
        return age >= CHUNK_MS;
    return cm_collector.own_count > 0 && age >= QUIET_CHUNK_MS;
}

typedef enum urgency {
    WHEN_DUE,
    NOW,       /* all that is older than now */
    REGARDLESS /* also what claims to be younger: no thread records any more */
} urgency;

/* Takes events older than the clock read at first. A thread publishes its event before another
 * thread begins one that depends on it. If we see only the second, its time is past our clock. */
static void collect(urgency how)
{
    const cm_ringfile_state *file = &cm_ringfile;

    if (cm_collector_failed() || !cm_collector_check_ring())
        return;
    uint64_t watermark = how == REGARDLESS ? UINT64_MAX : cm_clock_now() - WATERMARK_SLACK;
    /* Enough: the slack covers what the processor reorders. */
    atomic_signal_fence(memory_order_seq_cst);
    uint64_t pending = cm_ring_consumer_poll();
    /* After the heads, to include the definitions of every event below them. */
    uint64_t log_end = atomic_load_explicit(&file->log_head, memory_order_acquire);
    uint64_t log_pending = log_end - atomic_load_explicit(&file->log_tail, memory_order_relaxed);

    uint64_t now = cm_clock_monotonic_ns();
    cm_collector.wait_ms = wait_after(now, cm_ring_consumer_published());
    report_unowned_losses();
    if (how == WHEN_DUE && !is_due(now, pending, log_pending))
        return;
    cm_collector.merge.watermark = watermark;
    cm_ring_consumer_begin_merge(&cm_collector.merge);
    if (cm_collector.merge.count == 0 && log_pending == 0 && cm_collector.own_count == 0)
        return;
    while (cm_collector_write_chunk(log_end))
        ;
}

static void check_files(uint64_t now)
{
    if (now - cm_collector.lock_ns < LOCK_MS * UINT64_C(1000000))
        return;
    cm_collector.lock_ns = now;
    if (!cm_collector_failed()) {
        cm_collector_check_trace();
        cm_bus_reinstall();
    } else if (cm_bus_is_replaced()) {
        cm_bus_unguard(); /* earlier faults were handled by now */
    }
    cm_bus_poll_in_thread();
    cm_ringfile_keep_lock();
    atomic_store_explicit(&cm_ringfile.header->alive_ns, cm_clock_sample().realtime_ns,
                          memory_order_relaxed);
}

static void round_of_work(void)
{
    uint64_t now = cm_clock_monotonic_ns();

    sample_memory(now);
    collect(WHEN_DUE);
    sample_tree(now);
    cm_collector_write_source_lines(false);
    if (!cm_collector_failed())
        cm_ring_consumer_reclaim(now);
    check_files(now);
    void (*idle)(void) = atomic_load(&cm_collector.idle);
    if (idle != NULL)
        idle();
}

/* --- sync -------------------------------------------------------------------------------- */

static void drain(void)
{
    const struct timespec pause = {.tv_nsec = 200000};

    cm_ring_consumer_mark();
    for (int tries = 0; tries < 50 && !cm_collector_failed(); tries++) {
        collect(NOW);
        if (cm_ring_consumer_reached_mark())
            return;
        nanosleep(&pause, NULL);
    }
    /* Only events with times far ahead of the clock can be left. */
    collect(REGARDLESS);
}

static void catch_up(void)
{
    drain();
    cm_collector_write_source_lines(true);
}

int cm_collector_sync(void)
{
    if (!cm_collector.running) {
        catch_up();
        return cm_collector_failed() ? -1 : 0;
    }
    uint32_t ticket = atomic_fetch_add(&cm_collector.asked, 1) + 1;
    cm_wake_collector_hook();
    for (;;) {
        uint32_t answered = atomic_load(&cm_collector.answered);
        if ((int32_t)(answered - ticket) >= 0)
            return cm_collector_failed() ? -1 : 0;
        futex(&cm_collector.answered, FUTEX_WAIT, answered, NULL);
    }
}

static void answer(void)
{
    uint32_t asked = atomic_load(&cm_collector.asked);

    if (asked == atomic_load(&cm_collector.answered))
        return;
    catch_up();
    atomic_store(&cm_collector.answered, asked);
    futex(&cm_collector.answered, FUTEX_WAKE, INT_MAX, NULL);
}

/* --- the thread -------------------------------------------------------------------------- */

static bool is_quiet(void)
{
    const cm_ringfile_state *file = &cm_ringfile;

    return cm_clock_monotonic_ns() - cm_collector.fresh_ns > QUIET_AFTER_MS * UINT64_C(1000000) &&
           cm_ring_consumer_pending() == 0 &&
           atomic_load(&file->log_head) == atomic_load(&file->log_tail);
}

/* When all is quiet no thread keeps a block: the next event takes one, which wakes us. */
static void release_idle_blocks(void)
{
    cm_ring_consumer_release_idle();
    atomic_store(&cm_blockpool.wake_at, atomic_load(&cm_blockpool.used) + 1);
}

static void sleep_until_needed(void)
{
    bool quiet = is_quiet();
    int wait_ms = quiet ? WAIT_QUIET_MS : cm_collector.wait_ms;

    if (quiet)
        release_idle_blocks();
    cm_wake_wait(wait_ms);
    if (quiet) {
        atomic_store(&cm_blockpool.wake_at, cm_blockpool.count / 2);
        if (cm_wake_is_pending()) /* by a thread that is about to publish */
            cm_collector.fresh_ns = cm_clock_monotonic_ns();
    }
    atomic_fetch_add(&cm_collector.wakes, 1);
}

static void *run(void *unused)
{
    (void)unused;
    pthread_setname_np(pthread_self(), "cuptimem");
    while (!atomic_load(&cm_collector.quit)) {
        sleep_until_needed();
        /* Before the rounds: what arrives during them wakes us again. */
        cm_wake_reset();
        answer();
        round_of_work();
    }
    answer();
    return NULL;
}

static void *begin(void *unused)
{
    cm_collector.tid = (int32_t)syscall(SYS_gettid);
    is_collector = true;
    cm_bus_enter_thread();
    return run(unused);
}

int cm_collector_resume(void)
{
    if (cm_collector.running || cm_collector.writer == NULL)
        return 0;
    atomic_store(&cm_collector.quit, 0);
    int status = cm_helper_start(&cm_collector.thread, begin, NULL, 512 << 10);
    cm_collector.running = status == 0;
    return status;
}

int cm_collector_pause(void)
{
    if (!cm_collector.running)
        return 0;
    atomic_store(&cm_collector.quit, 1);
    cm_wake_collector_hook();
    int status = cm_helper_join(cm_collector.thread, &cm_collector.tid);
    cm_tree_sample_pause();
    cm_collector.running = false;
    return status;
}

static uint64_t side_for(uint64_t max_size)
{
    uint64_t bytes = max_size / SIDE_SHARE;
    return bytes < SIDE_LEAST ? SIDE_LEAST : bytes;
}

static int prepare(void)
{
    cm_collector.batch = cm_batch_new();
    cm_collector.merge.heap = malloc(CM_RING_COUNT * sizeof *cm_collector.merge.heap);
    return cm_collector.batch == NULL || cm_collector.merge.heap == NULL ? -ENOMEM : 0;
}

static void clean_up(void)
{
    void (*idle)(void) = atomic_load(&cm_collector.idle);

    cm_batch_free(cm_collector.batch);
    free(cm_collector.merge.heap);
    cm_collector_compactor->finish(false);
    cm_sourcetext_end();
    memset(&cm_collector, 0, sizeof cm_collector);
    cm_wake_reset();
    atomic_store(&cm_collector.idle, idle);
}

int cm_collector_start(cm_writer *writer, const char *path, uint64_t max_size, uint64_t side_bytes,
                       const char *cache_tag)
{
    clean_up();
    cm_sourcetext_begin(max_size, cache_tag, cm_owner_began_ns(cm_ringfile.header));
    cm_collector.writer = writer;
    cm_collector.max_size = max_size;
    cm_collector.merge.refill = cm_ring_consumer_refill;
    cm_collector.merge.see = cm_collector_compactor->see;
    cm_collector.chunk_ns = cm_collector.round_ns = cm_collector.fresh_ns = cm_clock_monotonic_ns();
    cm_collector.wait_ms = WAIT_SHORT_MS;
    atomic_store(&cm_collector.bytes, cm_writer_size(writer));
    cm_heap_sample_begin();
    cm_tree_sample_begin();
    cm_ring_consumer_begin();
    int status = prepare();
    if (status == 0)
        status = cm_collector_compactor->begin(path, cm_ringfile.header->id,
                                               side_bytes != 0 ? side_bytes : side_for(max_size));
    if (status == 0)
        status = cm_collector_resume();
    if (status < 0)
        clean_up();
    return status;
}

bool cm_collector_is_this_thread(void)
{
    return is_collector;
}

int cm_collector_without_thread(int (*work)(void))
{
    bool running = cm_collector.running; /* false around a fork */

    cm_collector_pause();
    int status = work();
    int resumed = running ? cm_collector_resume() : 0;
    return status < 0 ? status : resumed;
}

static const char *const *to_note; /* under the session's mutex */

static int write_note(void)
{
    if (cm_collector.writer == NULL || cm_collector_failed())
        return 0;
    int status = cm_writer_meta(cm_collector.writer, to_note);
    if (status == -ESTALE && !cm_collector_check_trace())
        status = 0;
    atomic_store(&cm_collector.bytes, cm_writer_size(cm_collector.writer));
    return status;
}

int cm_collector_note(const char *const *notes)
{
    to_note = notes;
    return cm_collector_without_thread(write_note); /* its thread owns the writer */
}

int cm_collector_finish(const char *const *notes)
{
    cm_collector_pause();
    if (!cm_collector_failed())
        cm_collector_check_trace();
    /* Each turn frees the blocks that the next reports need; many threads need several. */
    bool all = false;
    for (int turn = 0; turn < 1000 && !all && !cm_collector_failed(); turn++) {
        collect(REGARDLESS);
        all = cm_collector_failed() || cm_ring_consumer_report_losses();
    }
    collect(REGARDLESS);
    cm_collector_write_source_lines(true);
    const void *tree;
    size_t length;
    if (!cm_collector_failed() && cm_tree_sample_last(&tree, &length))
        cm_collector_write_tree(tree, length);
    int status = 0;
    if (cm_collector_failed()) {
        status = cm_collector_write_end(cm_collector.warning, cm_ring_consumer_pending());
    } else {
        if (notes != NULL && notes[0] != NULL)
            status = cm_writer_meta(cm_collector.writer, notes);
        if (status == 0)
            status = cm_collector_write_end("", 0);
    }
    cm_batch_free(cm_collector.batch);
    free(cm_collector.merge.heap);
    cm_collector_compactor->finish(cm_collector.ended);
    cm_sourcetext_end();
    cm_collector.batch = NULL;
    cm_collector.merge.heap = NULL;
    cm_collector.writer = NULL;
    cm_statm_close();
    return status;
}

void cm_collector_forget(void)
{
    cm_statm_close();
    /* The parent's memory is not freed: its collector may have been inside the allocator. */
    void (*idle)(void) = atomic_load(&cm_collector.idle);
    cm_collector_compactor->forget();
    cm_sourcetext_forget();
    cm_tree_sample_forget();
    memset(&cm_collector, 0, sizeof cm_collector);
    cm_wake_reset();
    atomic_store(&cm_collector.idle, idle);
}
