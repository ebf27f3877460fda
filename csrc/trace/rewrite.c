#include "rewrite.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "../base/grow.h"
#include "../base/bytes.h"
#include "crc32c.h"
#include "format.h"
#include "reader_parts.h"
#include "side_file.h"
#include "tree_chunk.h"
#include "writer.h"

enum { ANCHOR = 24, VARINT = 10 };

typedef struct rewrite {
    const cm_rewriter *rewriter;
    cm_writer *writer; /* NULL: nothing is written */
    uint8_t *bytes;    /* of the chunk being built, with room for its header */
    size_t length, capacity;
    uint64_t events;
    char *error;
    size_t error_size;
} rewrite;

static bool fail(rewrite *w, const char *what, const char *why)
{
    snprintf(w->error, w->error_size, "%s%s", what, why);
    return false;
}

/* --- building a chunk ------------------------------------------------------------------------ */

static uint8_t *make_room(rewrite *w, size_t length)
{
    if (!cm_grow((void **)&w->bytes, &w->capacity, w->length + length, 1)) {
        fail(w, "out of memory", "");
        return NULL;
    }
    return w->bytes + w->length;
}

static bool put(rewrite *w, const void *bytes, size_t length)
{
    uint8_t *to = make_room(w, length);
    if (to == NULL)
        return false;
    memcpy(to, bytes, length);
    w->length += length;
    return true;
}

static bool put_varint(rewrite *w, uint64_t value)
{
    uint8_t *to = make_room(w, VARINT);
    if (to == NULL)
        return false;
    w->length = (size_t)(cm_put_varint(to, value) - w->bytes);
    return true;
}

static bool put_string(rewrite *w, const void *text, size_t length)
{
    return put_varint(w, length) && put(w, text, length);
}

/* Copies the string at the cursor, replaced. */
static bool put_replaced(rewrite *w, cm_text kind, cm_cursor *c)
{
    size_t length;
    const char *text = (const char *)cm_cursor_bytes(c, &length);
    return !c->bad &&
           w->rewriter->replace(w->rewriter->context, kind, NULL, 0, &text, &length) ==
               CM_REWRITTEN_TEXT &&
           put_string(w, text, length);
}

/* --- chunks --------------------------------------------------------------------------------- */

static bool rewrite_meta(rewrite *w, cm_cursor *c)
{
    uint64_t n = cm_cursor_varint(c), kept = 0;
    uint8_t number[VARINT];
    size_t begin = w->length, key_length, length;

    for (; n > 0; n--) {
        const char *key = (const char *)cm_cursor_bytes(c, &key_length);
        const char *text = (const char *)cm_cursor_bytes(c, &length);
        if (c->bad)
            return false;
        cm_rewritten got = w->rewriter->replace(w->rewriter->context, CM_TEXT_META, key, key_length,
                                                &text, &length);
        if (got == CM_REWRITTEN_FAILED)
            return false;
        if (got == CM_REWRITTEN_DROP)
            continue;
        if (!put_string(w, key, key_length) || !put_string(w, text, length))
            return false;
        kept++;
    }
    size_t digits = (size_t)(cm_put_varint(number, kept) - number);
    uint8_t *room = make_room(w, digits);
    if (room == NULL)
        return false;
    memmove(w->bytes + begin + digits, w->bytes + begin, w->length - begin);
    memcpy(w->bytes + begin, number, digits);
    w->length += digits;
    return true;
}

/* Moves the cursor to the end of a record whose kind was read. */
static bool skip_record(cm_cursor *c, uint8_t kind)
{
    size_t length;
    for (int fields = kind == CM_DEF_CODE ? 3 : 6; fields > 0; fields--)
        cm_cursor_varint(c);
    if (kind == CM_DEF_CODE)
        cm_cursor_bytes(c, &length);
    return !c->bad;
}

static bool rewrite_definitions(rewrite *w, cm_cursor *c)
{
    while (cm_cursor_left(c) > 0) {
        const uint8_t *begin = c->at;
        uint8_t kind = (uint8_t)cm_cursor_fixed(c, 1);
        if (kind == CM_DEF_STRING || kind == CM_DEF_NAME) {
            cm_text text = kind == CM_DEF_STRING ? CM_TEXT_STRING : CM_TEXT_NAME;
            if (!put(w, &kind, 1) || !put_replaced(w, text, c))
                return false;
        } else if (!skip_record(c, kind) || !put(w, begin, (size_t)(c->at - begin))) {
            return false;
        }
    }
    return true;
}

static bool rewrite_batch(rewrite *w, cm_cursor *c)
{
    cm_batch_parts parts;
    size_t length, begin;

    if (!cm_batch_parse(c->at, cm_cursor_left(c), &parts) || !put(w, c->at, ANCHOR))
        return false;
    w->events += parts.events;
    c->at += ANCHOR;
    const uint8_t *records = cm_cursor_bytes(c, &length);
    cm_cursor definitions = {records, records + length, false};
    begin = w->length;
    /* The length precedes the definitions and is known after them. */
    if (make_room(w, VARINT) == NULL)
        return false;
    w->length += VARINT;
    if (!rewrite_definitions(w, &definitions))
        return false;
    size_t bytes = w->length - begin - VARINT;
    size_t digits = (size_t)(cm_put_varint(w->bytes + begin, bytes) - (w->bytes + begin));
    memmove(w->bytes + begin + digits, w->bytes + begin + VARINT, bytes);
    w->length = begin + digits + bytes;
    return put(w, c->at, cm_cursor_left(c));
}

static bool rewrite_lines(rewrite *w, cm_cursor *c, uint64_t *texts)
{
    uint64_t n = cm_cursor_varint(c);
    bool fine = put_varint(w, n);

    for (; fine && n > 0; n--) {
        uint64_t code = cm_cursor_varint(c), line = cm_cursor_varint(c);
        uint64_t text = cm_cursor_varint(c);
        fine = !c->bad && put_varint(w, code) && put_varint(w, line) && put_varint(w, text);
        if (fine && text == *texts + 1) {
            *texts = text;
            fine = put_replaced(w, CM_TEXT_LINE, c);
        }
    }
    return fine;
}

/* Into text, which has room bytes. */
static bool replace_in_place(rewrite *w, cm_text kind, char *text, size_t room)
{
    const char *now = text;
    size_t length = strlen(text);

    if (w->rewriter->replace(w->rewriter->context, kind, NULL, 0, &now, &length) !=
        CM_REWRITTEN_TEXT)
        return false;
    if (length >= room)
        length = room - 1;
    memmove(text, now, length);
    text[length] = '\0';
    return true;
}

/* Builds the whole chunk again. */
static bool rewrite_tree(rewrite *w, cm_cursor *c)
{
    cm_process_tree *tree = malloc(sizeof *tree);
    bool fine = tree != NULL || fail(w, "out of memory", "");

    fine = fine && (cm_tree_decode(c, tree) || fail(w, "a tree sample is damaged", ""));
    for (uint32_t i = 0; fine && i < tree->count; i++)
        fine = replace_in_place(w, CM_TEXT_NAME, tree->process[i].name, CM_TREE_NAME);
    for (uint32_t i = 0; fine && tree->has_files && i < tree->files; i++)
        fine = replace_in_place(w, CM_TEXT_STRING, tree->file[i].path, CM_TREE_PATH);
    for (uint32_t i = 0; fine && i < tree->opens; i++)
        fine = replace_in_place(w, CM_TEXT_STRING, tree->open[i].path, CM_TREE_PATH);
    w->length = 0;
    fine = fine && make_room(w, CM_TREE_CHUNK_MOST) != NULL;
    if (fine)
        w->length = cm_tree_encode(tree, w->bytes);
    free(tree);
    return fine;
}

static bool rewrite_end(rewrite *w, cm_cursor *c)
{
    for (int i = 0; i < 3; i++)
        if (!put_varint(w, cm_cursor_varint(c)))
            return false;
    return put_replaced(w, CM_TEXT_END, c);
}

static bool write_chunk(rewrite *w, int kind)
{
    size_t payload = w->length - CM_CHUNK_HEADER_SIZE;
    if (payload > CM_CHUNK_MAX)
        return fail(w, "its text is too long to be rewritten", "");
    if (w->writer == NULL)
        return true;
    cm_chunk_seal(w->bytes, kind, payload);
    int status = cm_writer_chunk(w->writer, w->bytes, w->length);
    return status == 0 || fail(w, "cannot write the copy: ", strerror(-status));
}

/* Copies one chunk. An unknown kind is dropped, for its texts could not be replaced. */
static bool copy_chunk(rewrite *w, const cm_chunks *chunks, uint64_t *texts)
{
    cm_cursor c = {chunks->payload, chunks->payload + chunks->length, false};
    bool fine = true;

    w->length = 0;
    if (make_room(w, CM_CHUNK_HEADER_SIZE) == NULL)
        return false;
    w->length = CM_CHUNK_HEADER_SIZE;
    switch (chunks->kind) {
    case CM_CHUNK_META:
        fine = rewrite_meta(w, &c);
        break;
    case CM_CHUNK_BATCH:
        fine = rewrite_batch(w, &c);
        break;
    case CM_CHUNK_END:
        fine = rewrite_end(w, &c);
        break;
    case CM_CHUNK_LINES:
        if (!w->rewriter->lines)
            return true;
        fine = rewrite_lines(w, &c, texts);
        break;
    case CM_CHUNK_TREE:
        fine = rewrite_tree(w, &c);
        break;
    default:
        return true;
    }
    return fine && write_chunk(w, chunks->kind);
}

/* --- the whole trace ------------------------------------------------------------------------- */

static bool copy_chunks(rewrite *w, cm_reader *reader)
{
    cm_chunks *chunks = &reader->chunks;
    uint64_t texts = 0;
    bool ended = false;
    cm_fetch got = CM_FETCH_CHUNK;

    chunks->offset = CM_HEADER_SIZE;
    chunks->tail_offset = 0;
    while (!ended && (got = cm_chunks_next(chunks)) == CM_FETCH_CHUNK) {
        ended = chunks->kind == CM_CHUNK_END;
        if (!copy_chunk(w, chunks, &texts))
            return false;
    }
    if (got == CM_FETCH_MEMORY)
        return fail(w, chunks->error, "");
    if (ended || w->writer == NULL || reader->state == CM_TRACE_COMPLETE)
        return true;
    /* A recovered trace ends as recover/sweep.c ends one. Any other trace without an end gets the
     * error as reason: damage is not copied, and without an end a reader would read the ring that
     * the meta names. */
    bool recovered = reader->state == CM_TRACE_RECOVERED;
    int status = cm_writer_end(w->writer, w->events, reader->lost_events, reader->lost_stacks,
                               recovered ? CM_END_RECOVERED : cm_reader_error(reader));
    return status == 0 || fail(w, "cannot write the copy: ", strerror(-status));
}

bool cm_rewrite(cm_reader *reader, const char *target, const cm_rewriter *rewriter, char *error,
                size_t error_size)
{
    rewrite w = {.rewriter = rewriter, .error = error, .error_size = error_size};
    cm_record record;
    int got;

    error[0] = '\0';
    if (reader->minor > CM_FORMAT_MINOR)
        return fail(&w, "a newer cuptimem wrote it: ", "update cuptimem to rewrite it");
    while ((got = cm_reader_next(reader, &record)) == 1)
        ;
    if (got < 0)
        return fail(&w, cm_reader_error(reader), "");
    if (reader->state == CM_TRACE_RECORDING)
        return fail(&w, "it is being recorded: ", "wait for the end of its program");
    int status = target == NULL ? 0 : cm_writer_create(target, false, CM_WRITER_NAMED, &w.writer);
    if (status < 0)
        return fail(&w, "cannot make the copy: ", strerror(-status));
    bool fine = copy_chunks(&w, reader);
    int closed = cm_writer_close(w.writer);
    if (fine && closed < 0)
        fine = fail(&w, "cannot write the copy: ", strerror(-closed));
    if (!fine && target != NULL)
        unlink(target);
    free(w.bytes);
    return fine;
}
