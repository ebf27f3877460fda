/* Beginning a batch: its definitions, the ring positions that it covers, its times. */
#include "reader_parts.h"

#include <stdlib.h>
#include <string.h>

#include "../base/clock.h"
#include "format.h"

int cm_reader_add_covers(cm_reader *reader, cm_cursor *c, uint64_t n)
{
    if (n > cm_cursor_left(c) / 2)
        return cm_reader_fail(reader, "a batch has more covers than bytes");
    for (uint64_t i = 0; i < n; i++) {
        uint64_t ring = cm_cursor_varint(c);
        uint64_t position = cm_cursor_varint(c);
        if (c->bad || ring > CM_COVER_RING_MAX)
            return cm_reader_fail(reader, "a batch has a damaged cover");
        if (ring >= reader->cover_count) {
            size_t count = ring + 1 > reader->cover_count * 2 ? ring + 1 : reader->cover_count * 2;
            uint64_t *cover = realloc(reader->cover, count * sizeof *cover);
            if (cover == NULL)
                return cm_reader_out_of_memory(reader);
            memset(cover + reader->cover_count, 0, (count - reader->cover_count) * sizeof *cover);
            reader->cover = cover;
            reader->cover_count = count;
        }
        /* A compacted trace may repeat older batches. */
        if (position > reader->cover[ring])
            reader->cover[ring] = position;
    }
    return 0;
}

/* Searches the following chunks' headers for a second anchor. The first batch's events precede the
 * first anchor, and one anchor does not give a tick's length. */
static void find_second_anchor(cm_reader *reader)
{
    uint64_t at = reader->chunks.offset;
    uint8_t bytes[CM_CHUNK_HEADER_SIZE + 24];

    for (int chunks = 0; chunks < 256; chunks++) {
        if (at > reader->chunks.size || reader->chunks.size - at < sizeof bytes ||
            cm_chunks_read_at(&reader->chunks, at, bytes, sizeof bytes) != 1)
            return;
        cm_chunk_head head;
        if (!cm_chunk_parse_head(bytes, &head))
            return;
        if (head.kind == CM_CHUNK_BATCH && head.length >= 24) {
            cm_cursor c = {bytes + CM_CHUNK_HEADER_SIZE, bytes + sizeof bytes, false};
            cm_clock_anchor anchor;
            anchor.ticks = cm_cursor_fixed(&c, 8);
            anchor.monotonic_ns = cm_cursor_fixed(&c, 8);
            anchor.realtime_ns = cm_cursor_fixed(&c, 8);
            if (cm_timeline_preview(&reader->time, anchor))
                return;
        }
        at += CM_CHUNK_HEADER_SIZE + head.length;
    }
}

static int add_horizon(cm_reader *reader)
{
    if (reader->horizon_count == reader->horizon_capacity) {
        size_t capacity = reader->horizon_capacity ? reader->horizon_capacity * 2 : 32;
        cm_reader_horizon *more = realloc(reader->horizons, capacity * sizeof *more);
        if (more == NULL)
            return cm_reader_out_of_memory(reader);
        reader->horizons = more;
        reader->horizon_capacity = capacity;
    }
    reader->horizons[reader->horizon_count++] =
        (cm_reader_horizon){reader->chunks.position, cm_defs_stack_count(reader->defs),
                            cm_defs_name_count(reader->defs)};
    return 0;
}

static void pass_horizons(cm_reader *reader)
{
    while (reader->horizon_next < reader->horizon_count &&
           reader->horizons[reader->horizon_next].position <= reader->chunks.position) {
        reader->stacks_seen = reader->horizons[reader->horizon_next].stacks;
        reader->names_seen = reader->horizons[reader->horizon_next++].names;
    }
}

int cm_reader_read_batch(cm_reader *reader, bool known)
{
    cm_cursor c = {reader->chunks.payload, reader->chunks.payload + reader->chunks.length, false};
    cm_clock_anchor anchor;
    size_t length, events_length;

    anchor.ticks = cm_cursor_fixed(&c, 8);
    anchor.monotonic_ns = cm_cursor_fixed(&c, 8);
    anchor.realtime_ns = cm_cursor_fixed(&c, 8);
    const uint8_t *definitions = cm_cursor_bytes(&c, &length);
    uint64_t events = cm_cursor_varint(&c);
    const uint8_t *section = cm_cursor_bytes(&c, &events_length);
    if (c.bad)
        return cm_reader_fail(reader, "a batch is damaged");
    if (!known) {
        const char *wrong = cm_defs_add(reader->defs, definitions, length);
        if (wrong != NULL)
            return cm_reader_fail(reader, "%s", wrong);
        if (length > 0 && add_horizon(reader) < 0)
            return -1;
    }
    pass_horizons(reader);
    if (cm_reader_add_covers(reader, &c, cm_cursor_varint(&c)) < 0)
        return -1;
    uint64_t log_position = cm_cursor_varint(&c);
    uint64_t side = !c.bad && cm_cursor_left(&c) > 0 ? cm_cursor_varint(&c) : 0;
    if (c.bad)
        return cm_reader_fail(reader, "a batch is damaged behind its events");
    if (log_position > reader->log_position)
        reader->log_position = log_position;
    if (side > reader->side)
        reader->side = side;

    bool first = reader->first_batch == 0;
    if (first) {
        reader->first_batch = reader->chunks.position;
        cm_timeline_anchor(&reader->time, anchor);
        find_second_anchor(reader);
    } else if (reader->chunks.position == reader->first_batch) { /* a second pass */
        reader->time = reader->first_time;
    } else {
        cm_timeline_anchor(&reader->time, anchor);
    }
    if (cm_decoder_begin(reader->decoder, anchor.ticks, section, events_length, events) < 0)
        return cm_reader_fail(reader, "a batch has a damaged events section");
    if (first) {
        /* Time 0 moves back to the earliest event before the first anchor. */
        cm_event event;
        uint32_t thread;
        while (cm_decoder_next(reader->decoder, &event, &thread) == 1)
            cm_timeline_reach_back(&reader->time, event.time);
        cm_decoder_begin(reader->decoder, anchor.ticks, section, events_length, events);
        reader->first_time = reader->time;
    }
    return 0;
}
