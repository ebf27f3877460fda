#include "reader_parts.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "format.h"

int cm_reader_fail(cm_reader *reader, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(reader->error, sizeof reader->error, format, arguments);
    va_end(arguments);
    return -1;
}

int cm_reader_out_of_memory(cm_reader *reader)
{
    return cm_reader_fail(reader, "out of memory while reading the trace");
}

/* --- chunks -------------------------------------------------------------------------------- */

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
        return cm_reader_fail(reader, "%s", reader->bad_error);
    if (!known) {
        if (reader->before_definitions != NULL)
            reader->before_definitions(reader->waiter);
        reader->defined = reader->chunks.position;
    }
    switch (reader->chunks.kind) {
    case CM_CHUNK_META:
        if (!known)
            status = cm_reader_read_meta(reader);
        break;
    case CM_CHUNK_BATCH:
        status = cm_reader_read_batch(reader, known);
        break;
    case CM_CHUNK_END:
        status = cm_reader_read_end(reader);
        break;
    case CM_CHUNK_LINES:
        if (!known)
            status = cm_reader_read_lines(reader);
        break;
    default: /* a tree sample, read by tree_chunk.c; or of a newer minor version */
        break;
    }
    return status;
}

/* Begins the chunk just fetched. 1: begun; 0: it ends the trace; -1: damaged. */
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

static void note_place(cm_reader *reader)
{
    reader->decoded += reader->begun.records;
    reader->begun = (cm_reader_place){.offset = reader->chunks.offset,
                                      .tail_offset = reader->chunks.tail_offset,
                                      .chunk = reader->chunks.position,
                                      .time = reader->time,
                                      .lost_events = reader->lost_events,
                                      .lost_stacks = reader->lost_stacks,
                                      .unknown_references = reader->unknown_references,
                                      .horizon = reader->horizon_next,
                                      .stacks = reader->stacks_seen,
                                      .names = reader->names_seen};
}

/* Begins the next chunk. 1: done; 0: the trace is over; -1: damaged. */
static int advance(cm_reader *reader)
{
    for (;;) {
        note_place(reader);
        cm_fetch got = cm_chunks_next(&reader->chunks);
        if (got == CM_FETCH_CHUNK) {
            int begun = begin_chunk(reader);
            return begun == 1 ? 1 : stop(reader, begun);
        }
        if (got != CM_FETCH_END)
            cm_reader_fail(reader, "%s", reader->chunks.error);
        if (got == CM_FETCH_DAMAGED || got == CM_FETCH_MEMORY) {
            reader->state = CM_TRACE_CUT;
            return stop(reader, got == CM_FETCH_MEMORY ? -1 : 0);
        }
        if (!cm_reader_find_more(reader, got == CM_FETCH_PARTIAL))
            return stop(reader, 0);
    }
}

/* --- records ------------------------------------------------------------------------------- */

/* Replaces undefined ids: an analysis may use ids as indices. */
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

/* Saturates at INT64_MAX: a hostile count that overflows could hide losses. */
static void count_lost(cm_reader *reader, int64_t events)
{
    uint64_t room = INT64_MAX - reader->lost_events;
    if (events > 0)
        reader->lost_events += (uint64_t)events < room ? (uint64_t)events : room;
}

/* Of the current chunk; as cm_decoder_next. */
static inline int decode(cm_reader *reader, cm_record *record)
{
    int got = cm_decoder_next(reader->decoder, &record->event, &record->thread);
    if (__builtin_expect(got != 1, 0))
        return got;
    check_references(reader, &record->event);
    record->time_ns = cm_timeline_at(&reader->time, record->event.time);
    reader->begun.records++;
    if (__builtin_expect(record->event.kind == CM_EV_LOST, 0))
        count_lost(reader, record->event.size);
    return 1;
}

int cm_reader_next(cm_reader *reader, cm_record *record)
{
    while (!reader->over) {
        int got = decode(reader, record);
        if (__builtin_expect(got == 1, 1))
            return 1;
        if (got < 0) {
            reader->state = CM_TRACE_CUT;
            cm_reader_fail(reader, "a batch has damaged events");
            return stop(reader, -1);
        }
        got = advance(reader);
        if (got <= 0)
            return got;
    }
    return reader->failed ? -1 : 0;
}

int cm_reader_next_few(cm_reader *reader, cm_record *records, size_t room, size_t *count)
{
    int got = cm_reader_next(reader, records);
    *count = got == 1;
    if (got == 1)
        while (*count < room && decode(reader, &records[*count]) == 1)
            ++*count;
    return got;
}

/* --- opening ------------------------------------------------------------------------------- */

/* O_NONBLOCK: opening a named pipe must not hang; it is refused later. */
static int open_file(const char *path)
{
    return open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
}

static const char *cannot_open(cm_reader *reader, const char *path, struct stat *st)
{
    reader->chunks.fd = open_file(path);
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
    reader->minor = bytes[10] | (unsigned)bytes[11] << 8;
    if (major != CM_FORMAT_MAJOR) {
        cm_reader_fail(
            reader,
            major > CM_FORMAT_MAJOR
                ? "has format version %u.%u, this cuptimem reads versions up to %u.%u: update "
                  "cuptimem to open it"
                : "is corrupt: it claims format version %u.%u, which never was (this cuptimem "
                  "reads %u.%u)",
            major, reader->minor, (unsigned)CM_FORMAT_MAJOR, (unsigned)CM_FORMAT_MINOR);
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
    if (got == CM_FETCH_CHUNK && reader->chunks.kind == CM_CHUNK_META && read_chunk(reader) == 0 &&
        cm_chunks_read_at(&reader->chunks, 0, reader->front, sizeof reader->front) == 1)
        return NULL;
    return "is corrupt: its description (the meta chunk behind the header) is cut off or damaged";
}

/* Cuts the front of a long path, never the reason. */
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
        note_place(reader);
        return reader;
    }
    explain(path, why, error, error_size);
    cm_reader_close(reader);
    return NULL;
}

void cm_reader_close_file(cm_reader *reader)
{
    if (reader->chunks.fd >= 0)
        close(reader->chunks.fd);
    reader->chunks.fd = -1;
}

bool cm_reader_reopen(cm_reader *reader)
{
    uint8_t front[sizeof reader->front];
    struct stat st;

    if (reader->chunks.fd < 0)
        reader->chunks.fd = open_file(reader->path);
    if (reader->chunks.fd >= 0 && fstat(reader->chunks.fd, &st) == 0 && S_ISREG(st.st_mode) &&
        (uint64_t)st.st_size >= reader->chunks.offset &&
        cm_chunks_read_at(&reader->chunks, 0, front, sizeof front) == 1 &&
        memcmp(front, reader->front, sizeof front) == 0)
        return true;
    cm_reader_close_file(reader);
    return false;
}

/* Goes to a place before a chunk. */
static void go_to(cm_reader *reader, const cm_reader_place *place)
{
    reader->chunks.offset = place->offset;
    reader->chunks.tail_offset = place->tail_offset;
    reader->chunks.position = place->chunk;
    reader->time = place->time;
    reader->lost_events = place->lost_events;
    reader->lost_stacks = place->lost_stacks;
    reader->unknown_references = place->unknown_references;
    reader->horizon_next = place->horizon;
    reader->stacks_seen = place->stacks;
    reader->names_seen = place->names;
    reader->ended = reader->over = reader->failed = false;
    reader->error[0] = '\0';
    cm_decoder_begin(reader->decoder, 0, NULL, 0, 0);
    note_place(reader);
}

void cm_reader_rewind(cm_reader *reader)
{
    const cm_reader_place start = {
        .offset = reader->second_chunk, .chunk = 1, .time = reader->time};
    go_to(reader, &start);
}

cm_reader_place cm_reader_tell(const cm_reader *reader)
{
    return reader->begun;
}

int cm_reader_seek(cm_reader *reader, const cm_reader_place *place)
{
    cm_record record;
    int got = 1;

    go_to(reader, place);
    while (got == 1 && reader->begun.records < place->records)
        got = cm_reader_next(reader, &record);
    return got;
}

bool cm_reader_follow(cm_reader *reader, bool *grew)
{
    *grew = false;
    if (reader->chunks.tail == NULL &&
        (!reader->tail_known || reader->state == CM_TRACE_RECORDING)) {
        *grew = cm_chunks_grown(&reader->chunks);
        reader->over = reader->over && !reader->tail_known;
        reader->tail_known = false;
        return true;
    }
    return reader->state == CM_TRACE_RECOVERED;
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

/* --- state --------------------------------------------------------------------------------- */

const char *cm_reader_error(const cm_reader *reader)
{
    return reader->error;
}

/* Whether the process ended by exec, which publishes all events first. */
static bool was_replaced(const cm_reader *reader)
{
    const char *program = cm_reader_meta(reader, "exec");

    return reader->state == CM_TRACE_RECOVERED && program != NULL && program[0] != '\0';
}

cm_reader_state cm_reader_get_state(const cm_reader *reader)
{
    return was_replaced(reader) ? CM_TRACE_COMPLETE : reader->state;
}

const char *cm_reader_end_reason(const cm_reader *reader)
{
    return reader->end_reason == NULL || was_replaced(reader) ? "" : reader->end_reason;
}

uint64_t cm_reader_decoded(const cm_reader *reader)
{
    return reader->decoded + reader->begun.records;
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

uint64_t cm_reader_lost_events(const cm_reader *reader)
{
    return reader->lost_events;
}

uint64_t cm_reader_lost_stacks(const cm_reader *reader)
{
    return reader->lost_stacks + reader->unknown_references;
}
