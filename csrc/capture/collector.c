/* The collector's thread and its rounds. What happens to one ring is in ring_consumer.c. */
#define _GNU_SOURCE
#include "collector.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/futex.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "../base/clock.h"
#include "../base/descriptor.h"
#include "../base/helper_thread.h"
#include "../trace/encode.h"
#include "bus_error.h"
#include "heap_sample.h"
#include "merge.h"
#include "ring_consumer.h"
#include "ring_owner.h"
#include "ring_producer.h"
#include "ringfile.h"
#include "source_text.h"
#include "statm.h"
#include "wake.h"

enum {
    CHUNK_EVENTS = 1 << 17,
    EVENT_MOST = 64,          /* bytes of an event in a batch */
    SLICE_EVENTS = 1 << 10,   /* merged between two checks of the batch's size */
    PENDING_EVENTS = 1 << 15, /* worth a chunk */
    OWN_EVENTS = 64,
    SIDE_SHARE = 8, /* of max_size: its content goes to the trace at the end */
    SIDE_LEAST = 1 << 20,
    END_ROOM = 1200, /* bytes of the trace kept free for its end chunk */
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

typedef struct own_event {
    uint32_t thread;
    cm_event event;
} own_event;

static struct {
    cm_writer *writer;
    uint64_t max_size;
    cm_batch *batch;
    cm_merge merge;
    pthread_t thread;
    int32_t tid;
    bool running;
    _Atomic uint32_t quit;
    _Atomic uint32_t asked, answered; /* futex answered: sync requests */
    _Atomic bool failed, explained; /* explained: the file's end is written, warning may be read */
    bool past_bound;                /* the compactor has a side file */
    bool ended;                     /* the end chunk is written */
    char warning[512];
    void (*_Atomic idle)(void);
    own_event own[OWN_EVENTS];
    uint32_t own_count;
    uint64_t unowned_reported, lost_stacks;
    int64_t sampled_bytes;
    uint64_t chunk_ns, sample_ns, lock_ns, round_ns, last_heads;
    uint64_t fresh_ns; /* when published events were last found */
    int wait_ms;
    _Atomic uint64_t wakes;
    unsigned chunk_number;
    _Atomic uint64_t events, bytes, seen_lost_stacks, largest_chunk;
} collector;

static const cm_compactor *compactor;
static _Thread_local bool is_collector __attribute__((tls_model("initial-exec")));

static long futex(_Atomic uint32_t *word, int operation, uint32_t value,
                  const struct timespec *wait)
{
    return syscall(SYS_futex, word, operation | FUTEX_PRIVATE_FLAG, value, wait, NULL, 0);
}

bool cm_collector_failed(void)
{
    return atomic_load(&collector.failed);
}

const char *cm_collector_warning(void)
{
    return atomic_load(&collector.explained) ? collector.warning : NULL;
}

void cm_collector_set_compactor(const cm_compactor *of)
{
    compactor = of;
}

void cm_collector_set_idle_callback(void (*callback)(void))
{
    atomic_store(&collector.idle, callback);
}

static uint64_t lost_events(void)
{
    return atomic_load(&cm_ringfile.unowned_lost) + cm_ring_consumer_lost();
}

cm_collector_counts cm_collector_get_counts(void)
{
    return (cm_collector_counts){
        .events = atomic_load(&collector.events) + cm_ring_consumer_pending(),
        .lost_events = lost_events(),
        .lost_stacks = atomic_load(&collector.seen_lost_stacks),
        .bytes_written = atomic_load(&collector.bytes),
        .rings = cm_producers_in_use(),
        .wakes = atomic_load(&collector.wakes),
        .memory = sizeof collector + cm_ring_consumer_bytes() + BATCH_BYTES +
                  2 * atomic_load(&collector.largest_chunk) + compactor->memory() +
                  cm_sourcetext_memory(),
    };
}

/* --- the end ----------------------------------------------------------------------------- */

static void note_bytes(void)
{
    compactor->update_counts();
    atomic_store(&collector.bytes, cm_writer_size(collector.writer) + compactor->side_used());
}

static int write_end(const char *reason, uint64_t also_lost)
{
    if (collector.ended)
        return 0;
    int status = compactor->flush(collector.writer);
    if (status == 0)
        status = cm_writer_end(collector.writer, atomic_load(&collector.events),
                               lost_events() + also_lost, collector.lost_stacks, reason);
    if (status == -ESTALE) /* its file is gone, so nothing needs the ring or the side file */
        status = 0;
    collector.ended = status == 0;
    atomic_store(&collector.bytes, cm_writer_size(collector.writer));
    return status;
}

__attribute__((format(printf, 1, 2))) static void fail(const char *format, ...)
{
    va_list arguments;

    va_start(arguments, format);
    vsnprintf(collector.warning, sizeof collector.warning, format, arguments);
    va_end(arguments);
    atomic_store(&collector.failed, true);
    cm_recording_set(0);
    cm_producers_wait_until_left(100);
    /* If even this finds no room, finish tries again, and the ring stays for the reader. */
    write_end(collector.warning, cm_ring_consumer_pending());
    atomic_store(&collector.explained, true);
}

/* --- one chunk --------------------------------------------------------------------------- */

static void emit_collector_event(uint32_t thread, cm_event event)
{
    event.time = cm_clock_now();
    event.device_index = -1;
    collector.own[collector.own_count++] = (own_event){.thread = thread, .event = event};
}

static bool add_definitions(uint64_t from, uint64_t to)
{
    const cm_ringfile_state *file = &cm_ringfile;
    size_t at = (size_t)(from % file->log_bytes);
    size_t length = (size_t)(to - from);
    size_t first = file->log_bytes - at < length ? file->log_bytes - at : length;

    return cm_batch_add_definitions(collector.batch, file->log + at, first) &&
           cm_batch_add_definitions(collector.batch, file->log, length - first);
}

/* Valid once the whole chunk is written; the other totals are until then. */
static void announce_totals(uint64_t events, cm_clock_anchor anchor)
{
    cm_ring_totals *totals = &cm_ringfile.header->totals[++collector.chunk_number & 1];

    /* An exchange keeps the next writes behind it. */
    atomic_exchange(&totals->events, UINT64_MAX);
    totals->lost_stacks = collector.lost_stacks;
    totals->unowned_lost = collector.unowned_reported;
    totals->ticks = anchor.ticks;
    totals->monotonic_ns = anchor.monotonic_ns;
    totals->realtime_ns = anchor.realtime_ns;
    atomic_store_explicit(&totals->events, events, memory_order_release);
}

/* Merges what there is, up to about so many bytes; at least a slice. */
static bool merge_events(size_t bytes)
{
    int64_t moved = 0, slice = SLICE_EVENTS;

    /* A slice must fit into a part of the side file, even with the largest events. */
    if (collector.past_bound && slice > (int64_t)(bytes / EVENT_MOST))
        slice = (int64_t)(bytes / EVENT_MOST);
    do {
        int64_t n = cm_merge_run(&collector.merge, collector.batch, slice);
        if (n < 0)
            return false;
        moved += n;
        cm_heap_sample_saw(collector.merge.pieces);
    } while (collector.merge.count > 0 && moved < CHUNK_EVENTS &&
             cm_batch_size(collector.batch) < bytes);
    return true;
}

/* Detects what others did to the trace. False: recording has ended over it. */
static bool check_trace(void)
{
    static const char *const what[] = {
        [CM_WRITER_REMOVED] = "its trace was removed",
        [CM_WRITER_REPLACED] = "its trace was replaced by another file",
        [CM_WRITER_TRUNCATED] = "its trace was truncated",
        [CM_WRITER_SHARED] = "another process writes to its trace",
    };
    cm_writer_state state = cm_writer_check(collector.writer);

    if (state != CM_WRITER_SOUND)
        fail("recording ended: %s (%s)", what[state], cm_writer_path(collector.writer));
    return state == CM_WRITER_SOUND;
}

/* Detects what others did to the ring's file. False: recording has ended over it. Events read since
 * the last check are then lost, like all that the rings hold. */
static bool check_ring(void)
{
    const cm_ringfile_state *file = &cm_ringfile;
    const char *harm = cm_ringfile_find_harm();

    if (harm == NULL && cm_bus_is_replaced())
        harm = "cannot be read any more";
    else if (harm == NULL && collector.merge.damaged > 0)
        harm = "was written to by another process";
    if (harm == NULL)
        return true;
    cm_bus_replace(); /* first: what follows reads it */
    fail("recording ended: its ring file %s (%s)", harm, file->path);
    return false;
}

static void cannot_write(int status)
{
    if (status != -ESTALE || check_trace())
        fail("recording ended: the trace cannot be written (%s)", strerror(-status));
}

static void no_memory(void)
{
    fail("recording ended: out of memory for the trace's next chunk");
}

/* Frees the log up to here: the trace has its definitions. */
static void free_log(uint64_t end)
{
    size_t length;
    const void *records = cm_batch_definitions(collector.batch, &length);

    cm_sourcetext_add(records, length);
    atomic_store_explicit(&cm_ringfile.log_tail, end, memory_order_release);
    atomic_store_explicit(&cm_ringfile.header->log_tail, end, memory_order_release);
}

/* Past the bound definitions go to the trace at once, because none can be left out. */
static bool write_definitions(cm_clock_anchor anchor, uint64_t log_tail, uint64_t log_end)
{
    const void *bytes;
    size_t length;

    cm_batch_begin(collector.batch, anchor);
    bool fits = add_definitions(log_tail, log_end);
    cm_batch_set_log_position(collector.batch, log_end);
    cm_batch_set_side(collector.batch, 1);
    if (!fits || !cm_batch_finish(collector.batch, &bytes, &length)) {
        no_memory();
        return false;
    }
    int status = cm_writer_chunk(collector.writer, bytes, length);
    if (status < 0) {
        cannot_write(status);
        return false;
    }
    free_log(log_end);
    return true;
}

/* The trace has reached max_size: from here on batches go to the side file. */
static bool pass_the_bound(cm_clock_anchor anchor, uint64_t log_tail)
{
    int status = compactor->enter();
    if (status < 0) {
        fail(
            "recording ended: the trace has reached its bound of %.1f MiB (max_size), and its side "
            "file (.tail) cannot be made: %s",
            (double)collector.max_size / (1 << 20), strerror(-status));
        return false;
    }
    collector.past_bound = true;
    collector.merge.see = NULL;
    return write_definitions(anchor, log_tail, log_tail);
}

static int put_chunk(const void *bytes, size_t length, uint64_t log_end)
{
    if (collector.past_bound)
        return compactor->put(collector.writer, bytes, length, log_end);
    return cm_writer_chunk(collector.writer, bytes, length);
}

/* Returns whether there is more to take. */
static bool write_chunk(uint64_t log_end)
{
    uint64_t log_tail = atomic_load_explicit(&cm_ringfile.log_tail, memory_order_relaxed);
    cm_clock_anchor anchor = cm_clock_sample();
    uint64_t size = cm_writer_size(collector.writer);
    const void *bytes;
    size_t length;

    if (!collector.past_bound && size + END_ROOM >= collector.max_size &&
        !pass_the_bound(anchor, log_tail))
        return false;
    if (collector.past_bound && log_end > log_tail) {
        if (!write_definitions(anchor, log_tail, log_end))
            return false;
        log_tail = log_end;
    }
    size_t room = collector.past_bound ? compactor->batch_bytes()
                                       : (size_t)(collector.max_size - END_ROOM - size);
    cm_batch_begin(collector.batch, anchor);
    bool fits = add_definitions(log_tail, log_end) && merge_events(room);
    for (uint32_t i = 0; fits && i < collector.own_count; i++)
        fits =
            cm_batch_add_event(collector.batch, collector.own[i].thread, &collector.own[i].event) &&
            (collector.merge.see == NULL ||
             collector.merge.see(collector.own[i].thread, &collector.own[i].event, 1));
    fits = fits && cm_ring_consumer_add_covers(collector.batch);
    cm_batch_set_log_position(collector.batch, log_end);
    if (collector.past_bound)
        cm_batch_set_side(collector.batch, compactor->serial() + 1);
    if (!fits || !cm_batch_finish(collector.batch, &bytes, &length)) {
        no_memory();
        return false;
    }
    if (!check_ring())
        return false;
    collector.lost_stacks += collector.merge.lost_stacks;
    collector.merge.lost_stacks = 0;
    announce_totals(cm_ring_consumer_taken(), anchor);
    int status = put_chunk(bytes, length, log_end);
    if (status < 0) {
        cannot_write(status);
        return false;
    }
    /* The rings free events only now that their chunk is in the file. */
    atomic_fetch_add(&collector.events, cm_batch_events(collector.batch));
    note_bytes();
    if (length > atomic_load(&collector.largest_chunk))
        atomic_store(&collector.largest_chunk, length);
    atomic_store(&collector.seen_lost_stacks, collector.lost_stacks);
    free_log(log_end);
    cm_ring_consumer_commit();
    collector.own_count = 0;
    collector.chunk_ns = cm_clock_monotonic_ns();
    return collector.merge.count > 0;
}

/* After the definitions that they belong to. */
static void write_source_lines(bool all)
{
    const void *bytes;
    size_t length;

    while (!cm_collector_failed() && cm_sourcetext_next(all, &bytes, &length)) {
        int status = cm_writer_chunk(collector.writer, bytes, length);
        if (status < 0)
            cannot_write(status);
        else
            note_bytes();
        if (!all)
            return;
    }
}

/* --- one round --------------------------------------------------------------------------- */

static void sample_memory(uint64_t now)
{
    cm_statm size;

    if (now - collector.sample_ns < SAMPLE_MS * UINT64_C(1000000) ||
        collector.own_count >= OWN_EVENTS / 2 || !cm_is_recording())
        return;
    collector.sample_ns = now;
    if (!cm_statm_open() || !cm_statm_read(&size) ||
        llabs(size.resident - collector.sampled_bytes) < SAMPLE_STEP)
        return;
    collector.sampled_bytes = size.resident;
    emit_collector_event(
        0, (cm_event){.kind = CM_EV_SAMPLE, .size = size.resident, .address = CM_SAMPLE_RSS});
}

static void report_unowned_losses(void)
{
    uint64_t lost = atomic_load(&cm_ringfile.unowned_lost);

    if (lost == collector.unowned_reported || collector.own_count == OWN_EVENTS)
        return;
    emit_collector_event(
        0, (cm_event){.kind = CM_EV_LOST, .size = (int64_t)(lost - collector.unowned_reported)});
    collector.unowned_reported = lost;
}

/* When the next poll of the rings is due. Few enough events come until then that producers keep
 * writing to blocks still in their cache. */
static int wait_after(uint64_t now, uint64_t heads)
{
    uint64_t elapsed = now - collector.round_ns;
    uint64_t fresh = heads - collector.last_heads;

    collector.round_ns = now;
    collector.last_heads = heads;
    if (fresh != 0)
        collector.fresh_ns = now;
    if (fresh == 0 || elapsed == 0)
        return WAIT_LONG_MS;
    uint64_t until = PENDING_EVENTS / 2 * (elapsed / 1000) / fresh / 1000;
    return until < WAIT_SHORT_MS ? WAIT_SHORT_MS : until > WAIT_LONG_MS ? WAIT_LONG_MS : (int)until;
}

static bool is_due(uint64_t now, uint64_t pending, uint64_t log_pending)
{
    uint64_t worth = (uint64_t)cm_blockpool.count * CM_BLOCK_EVENTS / 8;
    uint64_t age = (now - collector.chunk_ns) / 1000000;

    if (worth > PENDING_EVENTS)
        worth = PENDING_EVENTS;
    if (pending >= worth || log_pending >= cm_ringfile.log_bytes / 4 ||
        atomic_load(&cm_blockpool.used) >= cm_blockpool.wake_at ||
        collector.own_count >= OWN_EVENTS / 2)
        return true;
    if (pending > 0 || log_pending > 0)
        return age >= CHUNK_MS;
    return collector.own_count > 0 && age >= QUIET_CHUNK_MS;
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

    if (cm_collector_failed() || !check_ring())
        return;
    uint64_t watermark = how == REGARDLESS ? UINT64_MAX : cm_clock_now() - WATERMARK_SLACK;
    /* Enough: the slack covers what the processor reorders. */
    atomic_signal_fence(memory_order_seq_cst);
    uint64_t pending = cm_ring_consumer_poll();
    /* After the heads, to include the definitions of every event below them. */
    uint64_t log_end = atomic_load_explicit(&file->log_head, memory_order_acquire);
    uint64_t log_pending = log_end - atomic_load_explicit(&file->log_tail, memory_order_relaxed);

    uint64_t now = cm_clock_monotonic_ns();
    collector.wait_ms = wait_after(now, cm_ring_consumer_published());
    report_unowned_losses();
    if (how == WHEN_DUE && !is_due(now, pending, log_pending))
        return;
    collector.merge.watermark = watermark;
    cm_ring_consumer_begin_merge(&collector.merge);
    if (collector.merge.count == 0 && log_pending == 0 && collector.own_count == 0)
        return;
    while (write_chunk(log_end))
        ;
}

static void check_files(uint64_t now)
{
    if (now - collector.lock_ns < LOCK_MS * UINT64_C(1000000))
        return;
    collector.lock_ns = now;
    if (!cm_collector_failed()) {
        check_trace();
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
    write_source_lines(false);
    if (!cm_collector_failed())
        cm_ring_consumer_reclaim(now);
    check_files(now);
    void (*idle)(void) = atomic_load(&collector.idle);
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
    write_source_lines(true);
}

int cm_collector_sync(void)
{
    if (!collector.running) {
        catch_up();
        return cm_collector_failed() ? -1 : 0;
    }
    uint32_t ticket = atomic_fetch_add(&collector.asked, 1) + 1;
    cm_wake_collector_hook();
    for (;;) {
        uint32_t answered = atomic_load(&collector.answered);
        if ((int32_t)(answered - ticket) >= 0)
            return cm_collector_failed() ? -1 : 0;
        futex(&collector.answered, FUTEX_WAIT, answered, NULL);
    }
}

static void answer(void)
{
    uint32_t asked = atomic_load(&collector.asked);

    if (asked == atomic_load(&collector.answered))
        return;
    catch_up();
    atomic_store(&collector.answered, asked);
    futex(&collector.answered, FUTEX_WAKE, INT_MAX, NULL);
}

/* --- the thread -------------------------------------------------------------------------- */

static bool is_quiet(void)
{
    const cm_ringfile_state *file = &cm_ringfile;

    return cm_clock_monotonic_ns() - collector.fresh_ns > QUIET_AFTER_MS * UINT64_C(1000000) &&
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
    int wait_ms = quiet ? WAIT_QUIET_MS : collector.wait_ms;

    if (quiet)
        release_idle_blocks();
    cm_wake_wait(wait_ms);
    if (quiet) {
        atomic_store(&cm_blockpool.wake_at, cm_blockpool.count / 2);
        if (cm_wake_is_pending()) /* by a thread that is about to publish */
            collector.fresh_ns = cm_clock_monotonic_ns();
    }
    atomic_fetch_add(&collector.wakes, 1);
}

static void *run(void *unused)
{
    (void)unused;
    pthread_setname_np(pthread_self(), "cuptimem");
    while (!atomic_load(&collector.quit)) {
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
    collector.tid = (int32_t)syscall(SYS_gettid);
    is_collector = true;
    cm_bus_enter_thread();
    return run(unused);
}

int cm_collector_resume(void)
{
    if (collector.running || collector.writer == NULL)
        return 0;
    atomic_store(&collector.quit, 0);
    int status = cm_helper_start(&collector.thread, begin, NULL, 512 << 10);
    collector.running = status == 0;
    return status;
}

int cm_collector_pause(void)
{
    if (!collector.running)
        return 0;
    atomic_store(&collector.quit, 1);
    cm_wake_collector_hook();
    int status = cm_helper_join(collector.thread, &collector.tid);
    collector.running = false;
    return status;
}

static uint64_t side_for(uint64_t max_size)
{
    uint64_t bytes = max_size / SIDE_SHARE;
    return bytes < SIDE_LEAST ? SIDE_LEAST : bytes;
}

static int prepare(void)
{
    collector.batch = cm_batch_new();
    collector.merge.heap = malloc(CM_RING_COUNT * sizeof *collector.merge.heap);
    return collector.batch == NULL || collector.merge.heap == NULL ? -ENOMEM : 0;
}

static void clean_up(void)
{
    void (*idle)(void) = atomic_load(&collector.idle);

    cm_batch_free(collector.batch);
    free(collector.merge.heap);
    compactor->finish(false);
    cm_sourcetext_end();
    memset(&collector, 0, sizeof collector);
    cm_wake_reset();
    atomic_store(&collector.idle, idle);
}

int cm_collector_start(cm_writer *writer, const char *path, uint64_t max_size, uint64_t side_bytes,
                       const char *cache_tag)
{
    clean_up();
    cm_sourcetext_begin(max_size, cache_tag, cm_owner_began_ns(cm_ringfile.header));
    collector.writer = writer;
    collector.max_size = max_size;
    collector.merge.refill = cm_ring_consumer_refill;
    collector.merge.see = compactor->see;
    collector.chunk_ns = collector.round_ns = collector.fresh_ns = cm_clock_monotonic_ns();
    collector.wait_ms = WAIT_SHORT_MS;
    atomic_store(&collector.bytes, cm_writer_size(writer));
    cm_heap_sample_begin();
    cm_ring_consumer_begin();
    int status = prepare();
    if (status == 0)
        status = compactor->begin(path, cm_ringfile.header->id,
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
    bool running = collector.running; /* false around a fork */

    cm_collector_pause();
    int status = work();
    int resumed = running ? cm_collector_resume() : 0;
    return status < 0 ? status : resumed;
}

static const char *const *to_note; /* under the session's mutex */

static int write_note(void)
{
    if (collector.writer == NULL || cm_collector_failed())
        return 0;
    int status = cm_writer_meta(collector.writer, to_note);
    if (status == -ESTALE && !check_trace())
        status = 0;
    atomic_store(&collector.bytes, cm_writer_size(collector.writer));
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
        check_trace();
    /* Each turn frees the blocks that the next reports need; many threads need several. */
    bool all = false;
    for (int turn = 0; turn < 1000 && !all && !cm_collector_failed(); turn++) {
        collect(REGARDLESS);
        all = cm_collector_failed() || cm_ring_consumer_report_losses();
    }
    collect(REGARDLESS);
    write_source_lines(true);
    int status = 0;
    if (cm_collector_failed()) {
        status = write_end(collector.warning, cm_ring_consumer_pending());
    } else {
        if (notes != NULL && notes[0] != NULL)
            status = cm_writer_meta(collector.writer, notes);
        if (status == 0)
            status = write_end("", 0);
    }
    cm_batch_free(collector.batch);
    free(collector.merge.heap);
    compactor->finish(collector.ended);
    cm_sourcetext_end();
    collector.batch = NULL;
    collector.merge.heap = NULL;
    collector.writer = NULL;
    cm_statm_close();
    return status;
}

void cm_collector_forget(void)
{
    cm_statm_close();
    /* The parent's memory is not freed: its collector may have been inside the allocator. */
    void (*idle)(void) = atomic_load(&collector.idle);
    compactor->forget();
    cm_sourcetext_forget();
    memset(&collector, 0, sizeof collector);
    cm_wake_reset();
    atomic_store(&collector.idle, idle);
}
