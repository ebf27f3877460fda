/* The chunks that the collector writes, and the trace's end. */
#include "collector_parts.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "../base/clock.h"
#include "bus_error.h"
#include "heap_sample.h"
#include "ring_consumer.h"
#include "ring_producer.h"
#include "ringfile.h"
#include "source_text.h"

enum {
    CHUNK_EVENTS = 1 << 17,
    EVENT_MOST = 64,        /* bytes of an event in a batch */
    SLICE_EVENTS = 1 << 10, /* merged between two checks of the batch's size */
    END_ROOM = 1200         /* bytes of the trace kept free for its end chunk */
};

uint64_t cm_collector_lost(void)
{
    return atomic_load(&cm_ringfile.unowned_lost) + cm_ring_consumer_lost();
}

/* --- the end ----------------------------------------------------------------------------- */

static void note_bytes(void)
{
    cm_collector_compactor->update_counts();
    atomic_store(&cm_collector.bytes,
                 cm_writer_size(cm_collector.writer) + cm_collector_compactor->side_used());
}

int cm_collector_write_end(const char *reason, uint64_t also_lost)
{
    if (cm_collector.ended)
        return 0;
    int status = cm_collector_compactor->flush(cm_collector.writer);
    if (status == 0)
        status = cm_writer_end(cm_collector.writer, atomic_load(&cm_collector.events),
                               cm_collector_lost() + also_lost, cm_collector.lost_stacks, reason);
    if (status == -ESTALE) /* its file is gone, so nothing needs the ring or the side file */
        status = 0;
    cm_collector.ended = status == 0;
    atomic_store(&cm_collector.bytes, cm_writer_size(cm_collector.writer));
    return status;
}

__attribute__((format(printf, 1, 2))) static void fail(const char *format, ...)
{
    va_list arguments;

    va_start(arguments, format);
    vsnprintf(cm_collector.warning, sizeof cm_collector.warning, format, arguments);
    va_end(arguments);
    atomic_store(&cm_collector.failed, true);
    cm_recording_set(0);
    cm_producers_wait_until_left(100);
    /* If even this finds no room, finish tries again, and the ring stays for the reader. */
    cm_collector_write_end(cm_collector.warning, cm_ring_consumer_pending());
    atomic_store(&cm_collector.explained, true);
}

/* --- one chunk --------------------------------------------------------------------------- */

static bool add_definitions(uint64_t from, uint64_t to)
{
    const cm_ringfile_state *file = &cm_ringfile;
    size_t at = (size_t)(from % file->log_bytes);
    size_t length = (size_t)(to - from);
    size_t first = file->log_bytes - at < length ? file->log_bytes - at : length;

    return cm_batch_add_definitions(cm_collector.batch, file->log + at, first) &&
           cm_batch_add_definitions(cm_collector.batch, file->log, length - first);
}

/* Valid once the whole chunk is written; the other totals are until then. */
static void announce_totals(uint64_t events, cm_clock_anchor anchor)
{
    cm_ring_totals *totals = &cm_ringfile.header->totals[++cm_collector.chunk_number & 1];

    /* An exchange keeps the next writes behind it. */
    atomic_exchange(&totals->events, UINT64_MAX);
    totals->lost_stacks = cm_collector.lost_stacks;
    totals->unowned_lost = cm_collector.unowned_reported;
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
    if (cm_collector.past_bound && slice > (int64_t)(bytes / EVENT_MOST))
        slice = (int64_t)(bytes / EVENT_MOST);
    do {
        int64_t n = cm_merge_run(&cm_collector.merge, cm_collector.batch, slice);
        if (n < 0)
            return false;
        moved += n;
        cm_heap_sample_saw(cm_collector.merge.pieces);
    } while (cm_collector.merge.count > 0 && moved < CHUNK_EVENTS &&
             cm_batch_size(cm_collector.batch) < bytes);
    return true;
}

/* What others did to the trace. */
bool cm_collector_check_trace(void)
{
    static const char *const what[] = {
        [CM_WRITER_REMOVED] = "its trace was removed",
        [CM_WRITER_REPLACED] = "its trace was replaced by another file",
        [CM_WRITER_TRUNCATED] = "its trace was truncated",
        [CM_WRITER_SHARED] = "another process writes to its trace",
    };
    cm_writer_state state = cm_writer_check(cm_collector.writer);

    if (state != CM_WRITER_SOUND)
        fail("recording ended: %s (%s)", what[state], cm_writer_path(cm_collector.writer));
    return state == CM_WRITER_SOUND;
}

bool cm_collector_check_ring(void)
{
    const cm_ringfile_state *file = &cm_ringfile;
    const char *harm = cm_ringfile_find_harm();

    if (harm == NULL && cm_bus_is_replaced())
        harm = "cannot be read any more";
    else if (harm == NULL && cm_collector.merge.damaged > 0)
        harm = "was written to by another process";
    if (harm == NULL)
        return true;
    cm_bus_replace(); /* first: what follows reads it */
    fail("recording ended: its ring file %s (%s)", harm, file->path);
    return false;
}

static void cannot_write(int status)
{
    if (status != -ESTALE || cm_collector_check_trace())
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
    const void *records = cm_batch_definitions(cm_collector.batch, &length);

    cm_sourcetext_add(records, length);
    atomic_store_explicit(&cm_ringfile.log_tail, end, memory_order_release);
    atomic_store_explicit(&cm_ringfile.header->log_tail, end, memory_order_release);
}

/* Past the bound definitions go to the trace at once, because none can be left out. */
static bool write_definitions(cm_clock_anchor anchor, uint64_t log_tail, uint64_t log_end)
{
    const void *bytes;
    size_t length;

    cm_batch_begin(cm_collector.batch, anchor);
    bool fits = add_definitions(log_tail, log_end);
    cm_batch_set_log_position(cm_collector.batch, log_end);
    cm_batch_set_side(cm_collector.batch, 1);
    if (!fits || !cm_batch_finish(cm_collector.batch, &bytes, &length)) {
        no_memory();
        return false;
    }
    int status = cm_writer_chunk(cm_collector.writer, bytes, length);
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
    int status = cm_collector_compactor->enter();
    if (status < 0) {
        fail(
            "recording ended: the trace has reached its bound of %.1f MiB (max_size), and its side "
            "file (.tail) cannot be made: %s",
            (double)cm_collector.max_size / (1 << 20), strerror(-status));
        return false;
    }
    cm_collector.past_bound = true;
    cm_collector.merge.see = NULL;
    return write_definitions(anchor, log_tail, log_tail);
}

static int put_chunk(const void *bytes, size_t length, uint64_t log_end)
{
    if (cm_collector.past_bound)
        return cm_collector_compactor->put(cm_collector.writer, bytes, length, log_end);
    return cm_writer_chunk(cm_collector.writer, bytes, length);
}

bool cm_collector_write_chunk(uint64_t log_end)
{
    uint64_t log_tail = atomic_load_explicit(&cm_ringfile.log_tail, memory_order_relaxed);
    cm_clock_anchor anchor = cm_clock_sample();
    uint64_t size = cm_writer_size(cm_collector.writer);
    const void *bytes;
    size_t length;

    if (!cm_collector.past_bound && size + END_ROOM >= cm_collector.max_size &&
        !pass_the_bound(anchor, log_tail))
        return false;
    if (cm_collector.past_bound && log_end > log_tail) {
        if (!write_definitions(anchor, log_tail, log_end))
            return false;
        log_tail = log_end;
    }
    size_t room = cm_collector.past_bound ? cm_collector_compactor->batch_bytes()
                                          : (size_t)(cm_collector.max_size - END_ROOM - size);
    cm_batch_begin(cm_collector.batch, anchor);
    bool fits = add_definitions(log_tail, log_end) && merge_events(room);
    for (uint32_t i = 0; fits && i < cm_collector.own_count; i++)
        fits = cm_batch_add_event(cm_collector.batch, cm_collector.own[i].thread,
                                  &cm_collector.own[i].event) &&
               (cm_collector.merge.see == NULL ||
                cm_collector.merge.see(cm_collector.own[i].thread, &cm_collector.own[i].event, 1));
    fits = fits && cm_ring_consumer_add_covers(cm_collector.batch);
    cm_batch_set_log_position(cm_collector.batch, log_end);
    if (cm_collector.past_bound)
        cm_batch_set_side(cm_collector.batch, cm_collector_compactor->serial() + 1);
    if (!fits || !cm_batch_finish(cm_collector.batch, &bytes, &length)) {
        no_memory();
        return false;
    }
    if (!cm_collector_check_ring())
        return false;
    cm_collector.lost_stacks += cm_collector.merge.lost_stacks;
    cm_collector.merge.lost_stacks = 0;
    announce_totals(cm_ring_consumer_taken(), anchor);
    int status = put_chunk(bytes, length, log_end);
    if (status < 0) {
        cannot_write(status);
        return false;
    }
    /* The rings free events only now that their chunk is in the file. */
    atomic_fetch_add(&cm_collector.events, cm_batch_events(cm_collector.batch));
    note_bytes();
    if (length > atomic_load(&cm_collector.largest_chunk))
        atomic_store(&cm_collector.largest_chunk, length);
    atomic_store(&cm_collector.seen_lost_stacks, cm_collector.lost_stacks);
    free_log(log_end);
    cm_ring_consumer_commit();
    cm_collector.own_count = 0;
    cm_collector.chunk_ns = cm_clock_monotonic_ns();
    return cm_collector.merge.count > 0;
}

void cm_collector_write_source_lines(bool all)
{
    const void *bytes;
    size_t length;

    while (!cm_collector_failed() && cm_sourcetext_next(all, &bytes, &length)) {
        int status = cm_writer_chunk(cm_collector.writer, bytes, length);
        if (status < 0)
            cannot_write(status);
        else
            note_bytes();
        if (!all)
            return;
    }
}

void cm_collector_write_tree(const void *chunk, size_t length)
{
    int status = cm_writer_chunk(cm_collector.writer, chunk, length);

    if (status < 0)
        cannot_write(status);
    else
        note_bytes();
}
