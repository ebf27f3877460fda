/* Reading a trace's meta entries and its end chunk. */
#include "reader_parts.h"

#include <stdlib.h>
#include <string.h>

#include "crc32c.h"
#include "format.h"

static char *copy_text(const uint8_t *bytes, size_t length)
{
    char *text = malloc(length + 1);
    if (text != NULL) {
        memcpy(text, bytes, length);
        text[length] = '\0';
    }
    return text;
}

static int set_meta(cm_reader *reader, char *key, char *value)
{
    if (key == NULL || value == NULL) {
        free(key);
        free(value);
        return cm_reader_out_of_memory(reader);
    }
    for (size_t i = 0; i < reader->meta_count; i++) {
        if (strcmp(reader->meta[i].key, key) == 0) {
            free(key);
            free(reader->meta[i].value);
            reader->meta[i].value = value;
            return 0;
        }
    }
    if (reader->meta_count == reader->meta_capacity) {
        size_t capacity = reader->meta_capacity ? reader->meta_capacity * 2 : 32;
        cm_reader_pair *meta = realloc(reader->meta, capacity * sizeof *meta);
        if (meta == NULL) {
            free(key);
            free(value);
            return cm_reader_out_of_memory(reader);
        }
        reader->meta = meta;
        reader->meta_capacity = capacity;
    }
    reader->meta[reader->meta_count++] = (cm_reader_pair){key, value};
    return 0;
}

static int read_meta(cm_reader *reader, const uint8_t *payload, size_t length)
{
    cm_cursor c = {payload, payload + length, false};
    uint64_t n = cm_cursor_varint(&c);

    /* The search for a key is linear, so a bound on their number bounds the time. */
    if (n > CM_META_MAX)
        return cm_reader_fail(reader, "a meta chunk has too many entries");
    for (uint64_t i = 0; i < n; i++) {
        size_t key_length, value_length;
        const uint8_t *key = cm_cursor_bytes(&c, &key_length);
        const uint8_t *value = cm_cursor_bytes(&c, &value_length);
        if (c.bad)
            return cm_reader_fail(reader, "a meta chunk ends inside an entry");
        if (reader->meta_count >= CM_META_MAX)
            return cm_reader_fail(reader, "the trace has too many meta entries");
        if (set_meta(reader, copy_text(key, key_length), copy_text(value, value_length)) < 0)
            return -1;
    }
    return c.bad ? cm_reader_fail(reader, "a meta chunk is damaged") : 0;
}

int cm_reader_read_meta(cm_reader *reader)
{
    if (cm_reader_was_read_ahead(reader)) /* reading it again could overwrite later entries */
        return 0;
    return read_meta(reader, reader->chunks.payload, reader->chunks.length);
}

bool cm_reader_was_read_ahead(const cm_reader *reader)
{
    return reader->chunks.tail_offset == 0 && reader->chunks.offset <= reader->ahead;
}

/* Reads a chunk of meta or lines ahead. false: it is damaged, which a later pass will report. */
static bool read_at(cm_reader *reader, uint64_t at, const uint8_t *head, size_t length)
{
    uint8_t *payload = malloc(length + 1);
    char error[sizeof reader->error];
    cm_chunk_head parsed;

    memcpy(error, reader->error, sizeof error);
    bool fine = payload != NULL && cm_chunk_parse_head(head, &parsed) &&
                cm_chunks_read_at(&reader->chunks, at, payload, length) == 1 &&
                cm_crc32c(cm_crc32c(0, head, 12), payload, length) == parsed.checksum;
    if (fine && parsed.kind == CM_CHUNK_META)
        fine = read_meta(reader, payload, length) == 0;
    else if (fine)
        fine = cm_defs_add_lines(reader->defs, payload, length, true) == NULL;
    memcpy(reader->error, error, sizeof error);
    free(payload);
    return fine;
}

void cm_reader_read_ahead(cm_reader *reader)
{
    uint64_t at = reader->chunks.offset > reader->ahead ? reader->chunks.offset : reader->ahead;
    uint8_t bytes[CM_CHUNK_HEADER_SIZE];
    cm_chunk_head head;

    while (!reader->ahead_damaged && reader->chunks.size - at >= sizeof bytes &&
           at <= reader->chunks.size &&
           cm_chunks_read_at(&reader->chunks, at, bytes, sizeof bytes) == 1 &&
           cm_chunk_parse_head(bytes, &head) &&
           head.length <= reader->chunks.size - at - sizeof bytes) {
        bool wanted = head.kind == CM_CHUNK_META || head.kind == CM_CHUNK_LINES;
        reader->ahead_damaged = wanted && !read_at(reader, at + sizeof bytes, bytes, head.length);
        if (reader->ahead_damaged)
            return;
        at += sizeof bytes + head.length;
        reader->ahead = at;
    }
}

int cm_reader_read_end(cm_reader *reader)
{
    cm_cursor c = {reader->chunks.payload, reader->chunks.payload + reader->chunks.length, false};
    size_t length;

    cm_cursor_varint(&c); /* the number of events is only informative */
    uint64_t lost_events = cm_cursor_varint(&c);
    uint64_t lost_stacks = cm_cursor_varint(&c);
    const uint8_t *reason = cm_cursor_bytes(&c, &length);
    if (c.bad)
        return cm_reader_fail(reader, "the end chunk is damaged");
    free(reader->end_reason);
    reader->end_reason = copy_text(reason, length);
    if (reader->end_reason == NULL)
        return cm_reader_out_of_memory(reader);
    reader->lost_events = lost_events < INT64_MAX ? lost_events : INT64_MAX;
    reader->lost_stacks = lost_stacks;
    reader->ended = true;
    return 0;
}

const char *cm_reader_meta(const cm_reader *reader, const char *key)
{
    for (size_t i = 0; i < reader->meta_count; i++)
        if (strcmp(reader->meta[i].key, key) == 0)
            return reader->meta[i].value;
    return NULL;
}

size_t cm_reader_meta_count(const cm_reader *reader)
{
    return reader->meta_count;
}

void cm_reader_meta_at(const cm_reader *reader, size_t i, const char **key, const char **value)
{
    bool there = i < reader->meta_count;
    *key = there ? reader->meta[i].key : NULL;
    *value = there ? reader->meta[i].value : NULL;
}
