/* Front to back through the chunks of a file, then through what its ring file still holds. */
#include "reader.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "../capture/clock.h"
#include "../capture/orphan.h"
#include "bytes.h"
#include "chunks.h"
#include "decode.h"
#include "defs.h"
#include "format.h"
#include "linetable.h"
#include "side.h"
#include "timeline.h"

/* A build that only reads (a unit test, a fuzzer) has no capture part: then there are no rings. */
#pragma weak cm_orphan_read

typedef struct pair {
    char *key, *value;
} pair;

/* How many definitions there were behind a chunk that had some. A second pass knows them all, and
 * must not make more of an event than the first one did. */
typedef struct horizon {
    uint64_t position;
    uint32_t stacks, names;
} horizon;

struct cm_reader {
    cm_chunks chunks;
    char *path;
    uint64_t second_chunk; /* where a second pass begins: the first chunk is meta, and known */
    uint64_t defined;      /* position of the last chunk whose definitions and meta are known */
    bool tail_known; /* the ring file was asked: never again, so that a second pass sees the same */
    uint64_t bad_chunk;  /* the one that is damaged behind its checksum, 0 = none: a second */
    char bad_error[256]; /* pass ends there too, though it skips what it knows */

    cm_defs *defs;
    horizon *horizons;
    size_t horizon_count, horizon_capacity, horizon_next;
    uint32_t stacks_seen, names_seen; /* by the present chunk */
    pair *meta;
    size_t meta_count, meta_capacity;
    uint64_t *cover;
    size_t cover_count;
    uint64_t log_position;
    uint64_t side; /* up to which batch of the side file the trace is complete; 0 = it has none */

    cm_decoder *decoder;
    cm_timeline time, first_time; /* now; and after the first batch was begun */
    uint64_t first_batch;         /* its position, 0 = not seen yet */
    uint64_t lost_events, lost_stacks, unknown_references;
    char *end_reason;
    bool ended, over, failed;
    cm_reader_state state;
    char error[256];
    char no_end[256]; /* why there is no end, for the passes after the one that found out */
};

/* --- errors -------------------------------------------------------------------------------- */

__attribute__((format(printf, 2, 3))) static int say(cm_reader *reader, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(reader->error, sizeof reader->error, format, arguments);
    va_end(arguments);
    return -1;
}

static int out_of_memory(cm_reader *reader)
{
    return say(reader, "out of memory while reading the trace");
}

/* --- meta and end -------------------------------------------------------------------------- */

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
        return out_of_memory(reader);
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
        pair *meta = realloc(reader->meta, capacity * sizeof *meta);
        if (meta == NULL) {
            free(key);
            free(value);
            return out_of_memory(reader);
        }
        reader->meta = meta;
        reader->meta_capacity = capacity;
    }
    reader->meta[reader->meta_count++] = (pair){key, value};
    return 0;
}

static int read_meta(cm_reader *reader)
{
    cm_cursor c = {reader->chunks.payload, reader->chunks.payload + reader->chunks.length, false};
    uint64_t n = cm_cursor_varint(&c);

    /* Keys are looked up one by one: a bound on their number bounds the time as well. */
    if (n > CM_META_MAX)
        return say(reader, "a meta chunk has too many entries");
    for (uint64_t i = 0; i < n; i++) {
        size_t key_length, value_length;
        const uint8_t *key = cm_cursor_bytes(&c, &key_length);
        const uint8_t *value = cm_cursor_bytes(&c, &value_length);
        if (c.bad)
            return say(reader, "a meta chunk ends inside an entry");
        if (reader->meta_count >= CM_META_MAX)
            return say(reader, "the trace has too many meta entries");
        if (set_meta(reader, copy_text(key, key_length), copy_text(value, value_length)) < 0)
            return -1;
    }
    return c.bad ? say(reader, "a meta chunk is damaged") : 0;
}

static int read_end(cm_reader *reader)
{
    cm_cursor c = {reader->chunks.payload, reader->chunks.payload + reader->chunks.length, false};
    size_t length;

    cm_cursor_varint(&c); /* events: for people with a hex dump; nothing depends on it */
    uint64_t lost_events = cm_cursor_varint(&c);
    uint64_t lost_stacks = cm_cursor_varint(&c);
    const uint8_t *reason = cm_cursor_bytes(&c, &length);
    if (c.bad)
        return say(reader, "the end chunk is damaged");
    free(reader->end_reason);
    reader->end_reason = copy_text(reason, length);
    if (reader->end_reason == NULL)
        return out_of_memory(reader);
    reader->lost_events = lost_events;
    reader->lost_stacks = lost_stacks;
    reader->ended = true;
    return 0;
}

/* --- batches ------------------------------------------------------------------------------- */

static int read_covers(cm_reader *reader, cm_cursor *c, uint64_t n)
{
    if (n > cm_cursor_left(c) / 2)
        return say(reader, "a batch has more covers than bytes");
    for (uint64_t i = 0; i < n; i++) {
        uint64_t ring = cm_cursor_varint(c);
        uint64_t position = cm_cursor_varint(c);
        if (c->bad || ring > CM_COVER_RING_MAX)
            return say(reader, "a batch has a damaged cover");
        if (ring >= reader->cover_count) {
            size_t count = ring + 1 > reader->cover_count * 2 ? ring + 1 : reader->cover_count * 2;
            uint64_t *cover = realloc(reader->cover, count * sizeof *cover);
            if (cover == NULL)
                return out_of_memory(reader);
            memset(cover + reader->cover_count, 0, (count - reader->cover_count) * sizeof *cover);
            reader->cover = cover;
            reader->cover_count = count;
        }
        /* Past its bound a trace may tell of older batches once more, folded. */
        if (position > reader->cover[ring])
            reader->cover[ring] = position;
    }
    return 0;
}

/* Looks ahead, through the headers of the chunks that follow, for a second anchor: the first
 * batch's events lie before the first one, and one anchor does not say how long a tick is. */
static void look_for_second_anchor(cm_reader *reader)
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
        horizon *more = realloc(reader->horizons, capacity * sizeof *more);
        if (more == NULL)
            return out_of_memory(reader);
        reader->horizons = more;
        reader->horizon_capacity = capacity;
    }
    reader->horizons[reader->horizon_count++] =
        (horizon){reader->chunks.position, cm_defs_stack_count(reader->defs),
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

static int read_batch(cm_reader *reader, bool known)
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
        return say(reader, "a batch is damaged");
    if (!known) {
        const char *wrong = cm_defs_add(reader->defs, definitions, length);
        if (wrong != NULL)
            return say(reader, "%s", wrong);
        if (length > 0 && add_horizon(reader) < 0)
            return -1;
    }
    pass_horizons(reader);
    if (read_covers(reader, &c, cm_cursor_varint(&c)) < 0)
        return -1;
    uint64_t log_position = cm_cursor_varint(&c);
    uint64_t side = !c.bad && cm_cursor_left(&c) > 0 ? cm_cursor_varint(&c) : 0;
    if (c.bad)
        return say(reader, "a batch is damaged behind its events");
    if (log_position > reader->log_position)
        reader->log_position = log_position;
    if (side > reader->side)
        reader->side = side;

    bool first = reader->first_batch == 0;
    if (first) {
        reader->first_batch = reader->chunks.position;
        cm_timeline_anchor(&reader->time, anchor);
        look_for_second_anchor(reader);
    } else if (reader->chunks.position == reader->first_batch) { /* a second pass */
        reader->time = reader->first_time;
    } else {
        cm_timeline_anchor(&reader->time, anchor);
    }
    if (cm_decoder_begin(reader->decoder, anchor.ticks, section, events_length, events) < 0)
        return say(reader, "a batch has a damaged events section");
    if (first) {
        /* What happened before the first anchor was taken counts from the start, too. */
        cm_event event;
        uint32_t thread;
        while (cm_decoder_next(reader->decoder, &event, &thread) == 1)
            cm_timeline_reach_back(&reader->time, event.time);
        cm_decoder_begin(reader->decoder, anchor.ticks, section, events_length, events);
        reader->first_time = reader->time;
    }
    return 0;
}

/* --- the end of the file ------------------------------------------------------------------- */

static cm_tail ask_ring(cm_reader *reader, uint64_t id, unsigned char **tail, size_t *length)
{
    const char *path = cm_reader_meta(reader, "ring.path");
    cm_covers covers = {reader->cover, reader->cover_count, reader->log_position};

    *tail = NULL;
    *length = 0;
    if (path == NULL || id == 0 || cm_orphan_read == NULL)
        return CM_TAIL_NONE;
    return cm_orphan_read(path, id, &covers, tail, length);
}

/* What the side file has comes between the trace and the ring, whose rest it may have told of. */
static int count_side_covers(cm_reader *reader, const uint8_t *chunks, size_t length)
{
    cm_batch_parts parts;

    while (cm_batch_next(&chunks, &length, &parts)) {
        if (read_covers(reader, &parts.covers, parts.cover_count) < 0)
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

/* Gathers what follows the file's last whole chunk: the side file's batches, then the ring's. */
static rest find_rest(cm_reader *reader, cm_tail *found, uint8_t **chunks, size_t *length)
{
    const char *text = cm_reader_meta(reader, "ring.id");
    uint64_t id = text == NULL ? 0 : strtoull(text, NULL, 0);
    uint64_t side = reader->side;
    uint8_t *tail;
    size_t tail_length;

    *chunks = NULL;
    *length = 0;
    /* First, so that a process found dead has written all that it ever will. */
    *found = ask_ring(reader, id, &tail, &tail_length);
    if (side > 0) {
        cm_side_found got = cm_side_read(reader->path, id, &side, chunks, length);
        free(tail);
        tail = NULL;
        tail_length = 0;
        if (got != CM_SIDE_READ) {
            free(*chunks);
            *chunks = NULL;
            *length = 0;
            if (cm_chunks_grown(&reader->chunks)) /* it was folded, or brought home, meanwhile */
                return REST_IN_FILE;
            if (got == CM_SIDE_MEMORY)
                out_of_memory(reader);
            else
                say(reader,
                    "the trace has no end, and its side file (its name with " CM_SIDE_SUFFIX
                    ") is %s: its last steps are missing",
                    got == CM_SIDE_MISSING ? "not here" : "damaged");
            return REST_INCOMPLETE;
        }
        if (count_side_covers(reader, *chunks, *length) < 0)
            return REST_INCOMPLETE;
        if (*found == CM_TAIL_FOUND)
            *found = ask_ring(reader, id, &tail, &tail_length);
    }
    /* The process may have written on, and even ended well, since the file's end was reached. */
    bool grown = *found != CM_TAIL_ALIVE && cm_chunks_grown(&reader->chunks);
    bool joined = grown || join(chunks, length, tail, tail_length);
    free(tail);
    if (grown) {
        free(*chunks);
        *chunks = NULL;
        return REST_IN_FILE;
    }
    if (!joined)
        out_of_memory(reader);
    return joined ? REST_IS_HERE : REST_INCOMPLETE;
}

/* There is no end chunk. True: there are more chunks to read, of the file, its side file or the
 * ring. */
static bool find_more(cm_reader *reader, bool partial)
{
    cm_tail found;
    uint8_t *chunks;
    size_t length;

    if (reader->tail_known) { /* this is the tail's end, or a second pass */
        if (partial && reader->state == CM_TRACE_RECOVERED)
            reader->state = CM_TRACE_CUT;
        if (!partial && reader->state == CM_TRACE_CUT)
            say(reader, "%s", reader->no_end); /* as in the pass that looked for it */
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
        snprintf(reader->no_end, sizeof reader->no_end,
                 "the trace has no end: its process was killed, and its ring file is not here");
        if (!partial || length > 0)
            say(reader, "%s", reader->no_end);
        /* A partial last chunk hides nothing: what it was to say is in the side file. */
        if (length > 0)
            reader->chunks.size = reader->chunks.offset;
        return length > 0;
    }
    reader->state = found == CM_TAIL_ALIVE ? CM_TRACE_RECORDING : CM_TRACE_RECOVERED;
    if (found == CM_TAIL_FOUND || length > 0)
        reader->chunks.size =
            reader->chunks.offset; /* not a partial last chunk: the rest has what it held */
    reader->error[0] = '\0';       /* a chunk that is half written is no fault */
    return length > 0;
}

static int stop(cm_reader *reader, int result)
{
    reader->over = true;
    reader->failed = result < 0;
    return result;
}

static int read_chunk(cm_reader *reader)
{
    bool known = reader->chunks.position <= reader->defined;
    int status = 0;

    if (reader->chunks.position == reader->bad_chunk)
        return say(reader, "%s", reader->bad_error);
    if (!known)
        reader->defined = reader->chunks.position;
    switch (reader->chunks.kind) {
    case CM_CHUNK_META:
        if (!known)
            status = read_meta(reader);
        break;
    case CM_CHUNK_BATCH:
        status = read_batch(reader, known);
        break;
    case CM_CHUNK_END:
        status = read_end(reader);
        break;
    default: /* from a newer minor version */
        break;
    }
    return status;
}

/* The chunk that was just fetched. 1: begun; 0: it ends the trace; -1: damaged. */
static int begin_chunk(cm_reader *reader)
{
    if (read_chunk(reader) < 0) {
        reader->bad_chunk = reader->chunks.position;
        memcpy(reader->bad_error, reader->error, sizeof reader->bad_error);
        reader->state = CM_TRACE_CUT;
        return -1;
    }
    if (!reader->ended)
        return 1;
    bool recovered = strcmp(reader->end_reason, CM_END_RECOVERED) == 0;
    reader->state = recovered ? CM_TRACE_RECOVERED : CM_TRACE_COMPLETE;
    return 0;
}

/* Begins the next chunk. 1: done; 0: the trace is over; -1: damaged. */
static int advance(cm_reader *reader)
{
    for (;;) {
        cm_fetch got = cm_chunks_next(&reader->chunks);
        if (got == CM_FETCH_CHUNK) {
            int begun = begin_chunk(reader);
            return begun == 1 ? 1 : stop(reader, begun);
        }
        if (got != CM_FETCH_END)
            say(reader, "%s", reader->chunks.error);
        if (got == CM_FETCH_DAMAGED || got == CM_FETCH_MEMORY) {
            reader->state = CM_TRACE_CUT;
            return stop(reader, got == CM_FETCH_MEMORY ? -1 : 0);
        }
        if (!find_more(reader, got == CM_FETCH_PARTIAL))
            return stop(reader, 0);
    }
}

/* --- records ------------------------------------------------------------------------------- */

/* Nothing outside the definitions leaves the reader: an analysis may use ids as indices. */
static void check_references(cm_reader *reader, cm_event *event)
{
    if (cm_event_names_stack(event->kind)) {
        if (event->stack >= CM_STACK_FIRST &&
            event->stack - CM_STACK_FIRST >= reader->stacks_seen) {
            event->stack = CM_STACK_LOST;
            reader->unknown_references++;
        }
    } else if (cm_event_names_name(event->kind) && event->stack > reader->names_seen) {
        event->stack = 0;
        reader->unknown_references++;
    }
}

int cm_reader_next(cm_reader *reader, cm_record *record)
{
    while (!reader->over) {
        int got = cm_decoder_next(reader->decoder, &record->event, &record->thread);
        if (__builtin_expect(got == 1, 1)) {
            check_references(reader, &record->event);
            record->time_ns = cm_timeline_at(&reader->time, record->event.time);
            if (__builtin_expect(record->event.kind == CM_EV_LOST, 0) && record->event.size > 0)
                reader->lost_events += (uint64_t)record->event.size;
            return 1;
        }
        if (got < 0) {
            reader->state = CM_TRACE_CUT;
            say(reader, "a batch has damaged events");
            return stop(reader, -1);
        }
        got = advance(reader);
        if (got <= 0)
            return got;
    }
    return reader->failed ? -1 : 0;
}

/* --- opening ------------------------------------------------------------------------------- */

static const char *cannot_open(cm_reader *reader, const char *path, struct stat *st)
{
    /* O_NONBLOCK: a named pipe must not hang; it is refused below. */
    reader->chunks.fd = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
    if (reader->chunks.fd < 0 || fstat(reader->chunks.fd, st) < 0)
        return strerror(errno);
    if (S_ISDIR(st->st_mode))
        return "is a directory, not a trace";
    if (!S_ISREG(st->st_mode))
        return "is not a regular file";
    if (st->st_size == 0)
        return "is empty, not a trace";
    reader->chunks.size = (uint64_t)st->st_size;
    return NULL;
}

static const char *bad_header(cm_reader *reader)
{
    uint8_t bytes[CM_HEADER_SIZE];
    size_t length = reader->chunks.size < sizeof bytes ? (size_t)reader->chunks.size : sizeof bytes;

    int got = cm_chunks_read_at(&reader->chunks, 0, bytes, length);
    if (got < 0)
        return strerror(errno);
    if (got == 0 || memcmp(bytes, CM_FORMAT_MAGIC, length < 8 ? length : 8) != 0)
        return "is not a cuptimem trace";
    if (length < sizeof bytes)
        return "is corrupt: it ends inside its header";
    unsigned major = bytes[8] | (unsigned)bytes[9] << 8;
    unsigned minor = bytes[10] | (unsigned)bytes[11] << 8;
    if (major != CM_FORMAT_MAJOR) {
        say(reader,
            major > CM_FORMAT_MAJOR
                ? "has format version %u.%u, this cuptimem reads versions up to %u.%u: update "
                  "cuptimem to open it"
                : "is corrupt: it claims format version %u.%u, which never was (this cuptimem "
                  "reads %u.%u)",
            major, minor, (unsigned)CM_FORMAT_MAJOR, (unsigned)CM_FORMAT_MINOR);
        return reader->error;
    }
    reader->chunks.offset = CM_HEADER_SIZE;
    return NULL;
}

static const char *bad_meta(cm_reader *reader)
{
    cm_fetch got = cm_chunks_next(&reader->chunks);
    if (got == CM_FETCH_MEMORY)
        return reader->chunks.error;
    if (got == CM_FETCH_CHUNK && reader->chunks.kind == CM_CHUNK_META && read_chunk(reader) == 0)
        return NULL;
    return "is corrupt: its description (the meta chunk behind the header) is cut off or damaged";
}

/* A path that is too long loses its front, never the reason its end. */
static void explain(const char *path, const char *why, char *error, size_t error_size)
{
    const size_t room = strlen(why) + sizeof ": ...";
    size_t skip = 0;
    if (error_size > room && strlen(path) > error_size - room)
        skip = strlen(path) - (error_size - room);
    if (error_size > 0)
        snprintf(error, error_size, "%s%s: %s", skip > 0 ? "..." : "", path + skip, why);
}

cm_reader *cm_reader_open(const char *path, char *error, size_t error_size)
{
    struct stat st;
    cm_reader *reader = calloc(1, sizeof *reader);
    const char *why = "out of memory";

    if (reader != NULL) {
        reader->chunks.fd = -1;
        reader->state = CM_TRACE_CUT;
        reader->defs = cm_defs_new();
        reader->decoder = cm_decoder_new();
        reader->path = strdup(path);
        if (reader->defs != NULL && reader->decoder != NULL && reader->path != NULL) {
            why = cannot_open(reader, path, &st);
            if (why == NULL)
                why = bad_header(reader);
            if (why == NULL)
                why = bad_meta(reader);
        }
    }
    if (why == NULL) {
        reader->error[0] = '\0';
        reader->second_chunk = reader->chunks.offset;
        return reader;
    }
    explain(path, why, error, error_size);
    cm_reader_close(reader);
    return NULL;
}

void cm_reader_rewind(cm_reader *reader)
{
    reader->chunks.offset = reader->second_chunk;
    reader->chunks.tail_offset = 0;
    reader->chunks.position = 1;
    reader->lost_events = reader->lost_stacks = reader->unknown_references = 0;
    reader->horizon_next = 0;
    reader->stacks_seen = reader->names_seen = 0;
    reader->ended = reader->over = reader->failed = false;
    reader->error[0] = '\0';
    cm_decoder_begin(reader->decoder, 0, NULL, 0, 0);
}

void cm_reader_close(cm_reader *reader)
{
    if (reader == NULL)
        return;
    cm_chunks_free(&reader->chunks);
    for (size_t i = 0; i < reader->meta_count; i++) {
        free(reader->meta[i].key);
        free(reader->meta[i].value);
    }
    free(reader->meta);
    free(reader->horizons);
    free(reader->path);
    free(reader->cover);
    free(reader->end_reason);
    cm_decoder_free(reader->decoder);
    cm_defs_free(reader->defs);
    free(reader);
}

/* --- what is known ------------------------------------------------------------------------- */

const char *cm_reader_error(const cm_reader *reader)
{
    return reader->error;
}

cm_reader_state cm_reader_get_state(const cm_reader *reader)
{
    return reader->state;
}

const char *cm_reader_end_reason(const cm_reader *reader)
{
    return reader->end_reason == NULL ? "" : reader->end_reason;
}

double cm_reader_progress(const cm_reader *reader)
{
    if (reader->over)
        return 1;
    double all = (double)reader->chunks.size + (double)reader->chunks.tail_size;
    return ((double)reader->chunks.offset + (double)reader->chunks.tail_offset) / all;
}

uint64_t cm_reader_start_realtime_ns(const cm_reader *reader)
{
    return cm_timeline_realtime_at_zero(&reader->time);
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

uint64_t cm_reader_lost_events(const cm_reader *reader)
{
    return reader->lost_events;
}

uint64_t cm_reader_lost_stacks(const cm_reader *reader)
{
    return reader->lost_stacks + reader->unknown_references;
}

uint32_t cm_reader_stack_count(const cm_reader *reader)
{
    return cm_defs_stack_count(reader->defs);
}

uint32_t cm_reader_stack_parent(const cm_reader *reader, uint32_t stack)
{
    const cm_stack_def *def = cm_defs_stack(reader->defs, stack);
    return def == NULL ? CM_STACK_NONE : def->parent;
}

bool cm_reader_stack_frame(const cm_reader *reader, uint32_t stack, cm_frame *out)
{
    const cm_stack_def *def = cm_defs_stack(reader->defs, stack);
    cm_position at = {-1, -1, -1, -1};

    *out = (cm_frame){.line = -1, .end_line = -1, .column = -1, .end_column = -1};
    if (def == NULL)
        return false;
    const cm_code_def *code = cm_defs_code(reader->defs, def->code);
    if (code != NULL) {
        cm_linetable_find(code->line_table, code->line_table_length, code->first_line, def->offset,
                          &at);
        out->file = code->file;
        out->function = code->function;
        out->first_line = code->first_line;
    }
    out->line = at.line;
    out->end_line = at.end_line;
    out->column = at.column;
    out->end_column = at.end_column;
    out->code = def->code;
    out->module = def->module;
    out->module_class = cm_defs_string(reader->defs, def->class_name);
    out->truncated = (def->flags & CM_DEFF_TRUNCATED) != 0;
    return true;
}

const char *cm_reader_name(const cm_reader *reader, uint32_t name)
{
    return cm_defs_name(reader->defs, name);
}
