#include "overflow.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "../trace/decode.h"
#include "../trace/encode.h"
#include "../trace/side_file.h"
#include "../capture/ring_layout.h"
#include "compact.h"

enum { BATCHES_A_PART = 4 };

static struct {
    cm_compaction *compaction;
    cm_side *side;
    cm_batch *batch; /* of what was compacted */
    cm_decoder *decoder;
    uint8_t *section; /* a copy with padding, for the decoder */
    size_t section_capacity;
    char path[CM_RING_PATH_MAX];
    uint64_t ring_id, side_bytes, serial, compacted;
    uint64_t cover[CM_RING_COUNT]; /* of the part that is being compacted; 0 = none */
    _Atomic uint64_t memory, used;
} overflow;

static bool put_compacted(void *unused, uint32_t thread, const cm_event *event)
{
    (void)unused;
    return cm_batch_add_event(overflow.batch, thread, event);
}

static void finish(bool remove)
{
    if (overflow.side != NULL)
        cm_side_close(overflow.side, remove);
    cm_compact_free(overflow.compaction);
    cm_batch_free(overflow.batch);
    cm_decoder_free(overflow.decoder);
    free(overflow.section);
    memset(&overflow, 0, sizeof overflow);
}

static int begin(const char *trace_path, uint64_t ring_id, uint64_t side_bytes)
{
    finish(false);
    size_t length = strlen(trace_path);
    if (length >= sizeof overflow.path)
        return -ENAMETOOLONG;
    memcpy(overflow.path, trace_path, length + 1);
    overflow.ring_id = ring_id;
    overflow.side_bytes = side_bytes;
    overflow.compaction = cm_compact_new(put_compacted, NULL);
    return overflow.compaction == NULL ? -ENOMEM : 0;
}

static void update_counts(void)
{
    uint64_t memory = cm_compact_bytes(overflow.compaction);
    if (overflow.side != NULL)
        memory += cm_side_part_bytes(overflow.side) + overflow.section_capacity;
    atomic_store(&overflow.memory, memory);
    atomic_store(&overflow.used, overflow.side != NULL ? cm_side_used(overflow.side) : 0);
}

static bool see_events(uint32_t thread, const cm_event *events, size_t count)
{
    return cm_compact_see(overflow.compaction, thread, events, count);
}

static int enter(void)
{
    overflow.batch = cm_batch_new();
    overflow.decoder = cm_decoder_new();
    if (overflow.batch == NULL || overflow.decoder == NULL)
        return -ENOMEM;
    int status =
        cm_side_create(overflow.path, overflow.ring_id, overflow.side_bytes, &overflow.side);
    if (status == 0)
        overflow.serial = overflow.compacted = 1;
    return status;
}

static uint64_t newest_serial(void)
{
    return overflow.serial;
}

static size_t batch_bytes(void)
{
    return cm_side_part_bytes(overflow.side) / BATCHES_A_PART;
}

/* --- compaction ---------------------------------------------------------------------------- */

/* The decoder reads a little beyond its input's end. */
static int copy_section(const cm_batch_parts *parts)
{
    size_t need = parts->section_length + CM_DECODE_PADDING;
    if (need > overflow.section_capacity) {
        uint8_t *grown = realloc(overflow.section, need);
        if (grown == NULL)
            return -ENOMEM;
        overflow.section = grown;
        overflow.section_capacity = need;
    }
    if (parts->section_length > 0)
        memcpy(overflow.section, parts->section, parts->section_length);
    memset(overflow.section + parts->section_length, 0, CM_DECODE_PADDING);
    return 0;
}

static int compact_batch(const cm_batch_parts *parts)
{
    cm_event event;
    uint32_t thread;
    int status = copy_section(parts), got;
    if (status < 0)
        return status;
    if (cm_decoder_begin(overflow.decoder, parts->anchor.ticks, overflow.section,
                         parts->section_length, parts->events) < 0)
        return -EBADMSG;
    while ((got = cm_decoder_next(overflow.decoder, &event, &thread)) == 1)
        if (!cm_compact_add(overflow.compaction, thread, &event))
            return -ENOMEM;
    cm_cursor covers = parts->covers;
    for (uint64_t i = 0; i < parts->cover_count; i++) {
        uint64_t ring = cm_cursor_varint(&covers), position = cm_cursor_varint(&covers);
        if (ring < CM_RING_COUNT)
            overflow.cover[ring] = position;
    }
    return got < 0 ? -EBADMSG : 0;
}

static bool add_covers(void)
{
    for (uint32_t i = 0; i < CM_RING_COUNT; i++)
        if (overflow.cover[i] != 0 && !cm_batch_add_cover(overflow.batch, i, overflow.cover[i]))
            return false;
    memset(overflow.cover, 0, sizeof overflow.cover);
    return true;
}

static int compact_chunks(const uint8_t *chunks, size_t length, uint64_t *serial)
{
    cm_batch_parts parts;
    int status = 0;
    for (bool first = true; length > 0 && status == 0; first = false) {
        if (!cm_batch_next(&chunks, &length, &parts))
            return -EBADMSG;
        if (first)
            cm_batch_begin(overflow.batch, parts.anchor);
        status = compact_batch(&parts);
        *serial = parts.side;
    }
    return status;
}

static int compact_oldest(cm_writer *writer, uint64_t log_position)
{
    const uint8_t *chunks;
    const void *bytes;
    size_t length;
    uint64_t serial = overflow.compacted;

    int status = cm_side_oldest(overflow.side, &chunks, &length);
    if (status == 0)
        status = compact_chunks(chunks, length, &serial);
    if (status < 0)
        return status;
    if (!cm_compact_flush(overflow.compaction) || !add_covers())
        return -ENOMEM;
    cm_batch_set_log_position(overflow.batch, log_position);
    cm_batch_set_side(overflow.batch, serial);
    if (!cm_batch_finish(overflow.batch, &bytes, &length))
        return -ENOMEM;
    status = cm_writer_chunk(writer, bytes, length);
    if (status == 0) {
        overflow.compacted = serial;
        cm_side_release(overflow.side);
    }
    return status;
}

static int put_batch(cm_writer *writer, const void *chunk, size_t length, uint64_t log_position)
{
    int status;
    while ((status = cm_side_append(overflow.side, chunk, length)) == -ENOBUFS) {
        status = compact_oldest(writer, log_position);
        if (status < 0)
            return status;
    }
    if (status == 0)
        overflow.serial++;
    return status;
}

/* --- the end ------------------------------------------------------------------------------- */

static int flush(cm_writer *writer)
{
    const uint8_t *chunks;
    size_t length;

    while (overflow.side != NULL && cm_side_used(overflow.side) > 0) {
        int status = cm_side_oldest(overflow.side, &chunks, &length);
        if (status == 0 && length > 0)
            status = cm_writer_chunk(writer, chunks, length);
        if (status < 0)
            return status;
        cm_side_release(overflow.side);
    }
    return 0;
}

static void forget(void)
{
    cm_side_forget(overflow.side);
    memset(&overflow, 0, sizeof overflow);
}

static uint64_t side_used(void)
{
    return atomic_load(&overflow.used);
}

static uint64_t memory_used(void)
{
    return atomic_load(&overflow.memory);
}

const cm_compactor cm_overflow = {
    .begin = begin,
    .see = see_events,
    .enter = enter,
    .serial = newest_serial,
    .batch_bytes = batch_bytes,
    .put = put_batch,
    .flush = flush,
    .finish = finish,
    .forget = forget,
    .update_counts = update_counts,
    .side_used = side_used,
    .memory = memory_used,
};
