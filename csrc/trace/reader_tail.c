/* The continuation of a file without an end: its side file's batches, then its ring's. */
#include "reader_parts.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../base/file_range.h"
#include "format.h"
#include "side_file.h"
#include "tail.h"

static const cm_tail_source *source; /* NULL: there are no rings */

void cm_tail_set_source(const cm_tail_source *of)
{
    source = of;
}

static uint64_t ring_id(cm_reader *reader)
{
    const char *text = cm_reader_meta(reader, "ring.id");
    return text == NULL ? 0 : strtoull(text, NULL, 0);
}

static bool is_place(cm_reader *reader, const char *name)
{
    const char *place = cm_reader_meta(reader, "ring.place");
    return place != NULL && strcmp(place, name) == 0;
}

static cm_owner find_owner(cm_reader *reader, uint64_t id)
{
    const char *owner = cm_reader_meta(reader, "ring.owner");
    return owner == NULL || source == NULL ? CM_OWNER_UNKNOWN : source->find_owner(id, owner);
}

static cm_tail ask_ring(cm_reader *reader, uint64_t id, unsigned char **tail, size_t *length)
{
    const char *path = cm_reader_meta(reader, "ring.path");
    cm_covers covers = {reader->cover, reader->cover_count, reader->log_position};

    *tail = NULL;
    *length = 0;
    if (path == NULL || id == 0)
        return CM_TAIL_NONE;
    if (path[0] == '\0') {
        cm_owner owner = find_owner(reader, id);
        if (owner == CM_OWNER_GONE && is_place(reader, "none"))
            return CM_TAIL_FOUND; /* recording had not begun: the file has all */
        return owner == CM_OWNER_RUNS ? CM_TAIL_ALIVE : CM_TAIL_NONE;
    }
    return source == NULL ? CM_TAIL_NONE : source->read(path, id, &covers, tail, length);
}

/* The side file comes between the trace and the ring, part of which it may contain. */
static int count_side_covers(cm_reader *reader, const uint8_t *chunks, size_t length)
{
    cm_batch_parts parts;

    while (cm_batch_next(&chunks, &length, &parts)) {
        if (cm_reader_add_covers(reader, &parts.covers, parts.cover_count) < 0)
            return -1;
        if (parts.log_position > reader->log_position)
            reader->log_position = parts.log_position;
    }
    return 0;
}

static bool join(uint8_t **head, size_t *head_length, const uint8_t *tail, size_t length)
{
    if (length == 0)
        return true;
    uint8_t *grown = realloc(*head, *head_length + length);
    if (grown == NULL)
        return false;
    memcpy(grown + *head_length, tail, length);
    *head = grown;
    *head_length += length;
    return true;
}

typedef enum rest { REST_IS_HERE, REST_IN_FILE, REST_INCOMPLETE } rest;

/* Gathers the chunks after the file's last whole one: the side file's batches, then the ring's. */
static rest find_rest(cm_reader *reader, cm_tail *found, uint8_t **chunks, size_t *length)
{
    uint64_t id = ring_id(reader);
    uint64_t side = reader->side;
    uint8_t *tail;
    size_t tail_length;

    *chunks = NULL;
    *length = 0;
    /* Check the process first: a dead one writes no more. */
    *found = ask_ring(reader, id, &tail, &tail_length);
    if (side > 0) {
        reader->file_side = side;
        reader->side_place = (cm_side_place){0};
        cm_side_found got =
            cm_side_read_on(reader->path, id, &reader->side_place, &side, chunks, length);
        free(tail);
        tail = NULL;
        tail_length = 0;
        if (got != CM_SIDE_READ) {
            free(*chunks);
            *chunks = NULL;
            *length = 0;
            if (cm_chunks_grown(&reader->chunks)) /* compacted or recovered meanwhile */
                return REST_IN_FILE;
            if (got == CM_SIDE_MEMORY)
                cm_reader_out_of_memory(reader);
            else
                cm_reader_fail(
                    reader,
                    "the trace has no end, and its side file (its name with " CM_SIDE_SUFFIX
                    ") is %s: its last steps are missing",
                    got == CM_SIDE_MISSING ? "not here" : "damaged");
            return REST_INCOMPLETE;
        }
        reader->side_last = side;
        reader->file_next = reader->chunks.offset;
        if (count_side_covers(reader, *chunks, *length) < 0)
            return REST_INCOMPLETE;
        if (*found == CM_TAIL_FOUND)
            *found = ask_ring(reader, id, &tail, &tail_length);
    }
    /* The process may have written more, or even ended, since the file's end was reached. */
    bool grown = *found != CM_TAIL_ALIVE && cm_chunks_grown(&reader->chunks);
    bool joined = grown || join(chunks, length, tail, tail_length);
    free(tail);
    if (grown) {
        free(*chunks);
        *chunks = NULL;
        return REST_IN_FILE;
    }
    if (!joined)
        cm_reader_out_of_memory(reader);
    return joined ? REST_IS_HERE : REST_INCOMPLETE;
}

/* Sets the error: why the file has no continuation. */
static const char *why_no_tail(cm_reader *reader, uint64_t id)
{
    bool in_memory = is_place(reader, "none") || is_place(reader, "private");

    if (in_memory && find_owner(reader, id) == CM_OWNER_UNKNOWN)
        return "whether its process still records cannot be told from here";
    if (in_memory)
        return "its process was killed, and its rings were in private memory";
    return "its process was killed, and its ring file is not here";
}

bool cm_reader_find_more(cm_reader *reader, bool partial)
{
    cm_tail found;
    uint8_t *chunks;
    size_t length;

    if (reader->tail_known) { /* at the tail's end, or in a second pass */
        if (partial && reader->state == CM_TRACE_RECOVERED)
            reader->state = CM_TRACE_CUT;
        if (!partial && reader->state == CM_TRACE_CUT)
            cm_reader_fail(reader, "%s", reader->no_end); /* as in the pass that searched for it */
        return false;
    }
    reader->state = CM_TRACE_CUT;
    switch (find_rest(reader, &found, &chunks, &length)) {
    case REST_IN_FILE:
        return true;
    case REST_INCOMPLETE:
        free(chunks);
        reader->tail_known = true;
        memcpy(reader->no_end, reader->error, sizeof reader->no_end);
        return false;
    case REST_IS_HERE:
        break;
    }
    reader->tail_known = true;
    reader->chunks.tail = chunks;
    reader->chunks.tail_size = length;
    if (found == CM_TAIL_NONE) {
        snprintf(reader->no_end, sizeof reader->no_end, "the trace has no end: %s",
                 why_no_tail(reader, ring_id(reader)));
        if (!partial || length > 0)
            cm_reader_fail(reader, "%s", reader->no_end);
        /* A partial last chunk loses nothing: its contents are in the side file. */
        if (length > 0)
            reader->chunks.size = reader->chunks.offset;
        return length > 0;
    }
    reader->state = found == CM_TAIL_ALIVE ? CM_TRACE_RECORDING : CM_TRACE_RECOVERED;
    if (found == CM_TAIL_FOUND || length > 0)
        reader->chunks.size =
            reader->chunks.offset; /* without a partial last chunk: the rest contains it */
    reader->error[0] = '\0';       /* a half-written chunk is no error */
    return length > 0;
}

/* --- going on past the bound ---------------------------------------------------------------- */

/* Whether the file's chunk is to be read; *joins: it does not begin amid what was read. */
static bool is_new(cm_reader *reader, const cm_chunks *file, bool *joins)
{
    cm_batch_parts batch;
    if (file->kind != CM_CHUNK_BATCH)
        return true;
    if (!cm_batch_parse(file->payload, file->length, &batch))
        return true; /* the reader says what is wrong with it */
    uint64_t before = reader->file_side;
    if (batch.side > before)
        reader->file_side = batch.side;
    if (batch.events == 0) /* definitions */
        return true;
    if (batch.side <= reader->side_last) /* compacted: its whole batches were read */
        return false;
    *joins = before >= reader->side_last;
    reader->side_last = batch.side;
    return true;
}

/* Appends the file's chunks behind those that were read. false: they do not join, or there is no
 * memory. */
static bool add_file_chunks(cm_reader *reader, uint8_t **chunks, size_t *length)
{
    cm_chunks file = {.fd = reader->chunks.fd, .offset = reader->file_next};
    bool joins = true;
    cm_chunks_grown(&file);
    while (joins) {
        uint64_t at = file.offset;
        cm_fetch got = cm_chunks_next(&file);
        if (got != CM_FETCH_CHUNK) {
            joins = got == CM_FETCH_END || got == CM_FETCH_PARTIAL;
            break;
        }
        reader->file_next = file.offset;
        if (!is_new(reader, &file, &joins) || !joins)
            continue;
        size_t size = (size_t)(file.offset - at);
        uint8_t *grown = realloc(*chunks, *length + size);
        joins = grown != NULL;
        if (!joins)
            break;
        *chunks = grown;
        joins = cm_read_at(file.fd, at, grown + *length, size) == 0;
        *length += size;
    }
    free(file.memory);
    return joins;
}

/* What has come in the file and in the side file. The definitions of the side file's batches are in
 * the file. */
static bool find_news(cm_reader *reader, cm_tail *found, uint8_t **chunks, size_t *length)
{
    uint64_t id = ring_id(reader), last;
    uint8_t *side = NULL, *tail = NULL;
    size_t side_length = 0, tail_length = 0;

    /* Check the process first: a dead one writes no more. */
    *found = ask_ring(reader, id, &tail, &tail_length);
    free(tail);
    if (!add_file_chunks(reader, chunks, length))
        return false;
    last = reader->side_last;
    cm_side_found got =
        cm_side_read_on(reader->path, id, &reader->side_place, &last, &side, &side_length);
    /* It is gone once the trace has its end, which then is among the new chunks. */
    bool fine = (got == CM_SIDE_READ || got == CM_SIDE_MISSING) &&
                count_side_covers(reader, side, side_length) == 0 &&
                join(chunks, length, side, side_length);
    free(side);
    reader->side_last = last;
    if (!fine || *found != CM_TAIL_FOUND)
        return fine;
    *found = ask_ring(reader, id, &tail, &tail_length);
    fine = join(chunks, length, tail, tail_length);
    free(tail);
    return fine;
}

bool cm_reader_go_on(cm_reader *reader)
{
    cm_tail found;
    uint8_t *chunks = NULL;
    size_t length = 0;
    bool grew;

    if (reader->chunks.tail == NULL || reader->state != CM_TRACE_RECORDING)
        return cm_reader_follow(reader, &grew);
    if (!reader->over)
        return true;
    if (!find_news(reader, &found, &chunks, &length)) {
        free(chunks);
        return false;
    }
    if (length > 0) {
        free(reader->chunks.tail);
        reader->chunks.tail = chunks;
        reader->chunks.tail_size = length;
        reader->chunks.tail_offset = 0;
        reader->over = false;
    }
    if (found == CM_TAIL_FOUND)
        reader->state = CM_TRACE_RECOVERED;
    else if (found == CM_TAIL_NONE && length == 0)
        reader->state = CM_TRACE_CUT;
    return true;
}
