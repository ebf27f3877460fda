/* Finds the covers of a trace's last chunk without reading the events. */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "../base/bytes.h"
#include "../base/file_range.h"
#include "../trace/format.h"
#include "recover.h"

enum { META_MAX = 1 << 20 };

typedef struct scan {
    int fd;
    uint64_t at, size, ring_id;
    cm_trace_end *out;
} scan;

/* Reads a varint at *at, and moves past it. */
static bool varint_at(const scan *s, uint64_t *at, uint64_t end, uint64_t *value)
{
    uint8_t bytes[10];
    uint64_t left = end - *at;
    size_t length = left < sizeof bytes ? (size_t)left : sizeof bytes;

    if (cm_read_at(s->fd, *at, bytes, length) < 0)
        return false;
    cm_cursor cursor = {.at = bytes, .end = bytes + length};
    *value = cm_cursor_varint(&cursor);
    *at += (uint64_t)(cursor.at - bytes);
    return !cursor.bad;
}

static bool skip(uint64_t *at, uint64_t end, uint64_t length)
{
    if (length > end - *at)
        return false;
    *at += length;
    return true;
}

static bool read_covers(scan *s, cm_cursor *cursor)
{
    for (uint64_t n = cm_cursor_varint(cursor); n > 0 && !cursor->bad; n--) {
        uint64_t ring = cm_cursor_varint(cursor), position = cm_cursor_varint(cursor);
        if (!cursor->bad && ring < CM_RING_COUNT) {
            if (position > s->out->ring[ring]) /* as in reader_batch.c */
                s->out->ring[ring] = position;
            if (ring >= s->out->covers.count)
                s->out->covers.count = (size_t)ring + 1;
        }
    }
    uint64_t log = cm_cursor_varint(cursor);
    uint64_t side = !cursor->bad && cm_cursor_left(cursor) > 0 ? cm_cursor_varint(cursor) : 0;
    if (log > s->out->covers.log)
        s->out->covers.log = log;
    if (side > s->out->side)
        s->out->side = side;
    return !cursor->bad;
}

static bool read_batch(scan *s, uint64_t end)
{
    uint64_t at = s->at, definitions, events, bytes;

    if (!skip(&at, end, 24) || !varint_at(s, &at, end, &definitions) ||
        !skip(&at, end, definitions) || !varint_at(s, &at, end, &events) ||
        !varint_at(s, &at, end, &bytes) || !skip(&at, end, bytes))
        return false;
    size_t length = (size_t)(end - at);
    uint8_t *covers = malloc(length + 1);
    if (covers == NULL)
        return false;
    cm_cursor cursor = {.at = covers, .end = covers + length};
    bool good = cm_read_at(s->fd, at, covers, length) == 0 && read_covers(s, &cursor);
    free(covers);
    s->out->events += events;
    return good;
}

static bool read_meta(scan *s, uint64_t end)
{
    static const char key[] = "ring.id";
    size_t length = (size_t)(end - s->at);

    if (length > META_MAX)
        return false;
    uint8_t *meta = malloc(length + 1);
    if (meta == NULL)
        return false;
    cm_cursor cursor = {.at = meta, .end = meta + length};
    bool good = cm_read_at(s->fd, s->at, meta, length) == 0;
    for (uint64_t n = good ? cm_cursor_varint(&cursor) : 0; n > 0 && !cursor.bad; n--) {
        size_t name_length, value_length;
        char text[32] = {0};
        const uint8_t *name = cm_cursor_bytes(&cursor, &name_length);
        const uint8_t *value = cm_cursor_bytes(&cursor, &value_length);
        if (value == NULL || name_length != sizeof key - 1 ||
            memcmp(name, key, sizeof key - 1) != 0 || value_length >= sizeof text)
            continue;
        memcpy(text, value, value_length);
        s->out->ring_id = strtoull(text, NULL, 0);
    }
    free(meta);
    /* At once, not after another capture's events. */
    bool other = s->ring_id != 0 && s->out->ring_id != 0 && s->out->ring_id != s->ring_id;
    return good && !cursor.bad && !other;
}

static uint32_t u32_at(const uint8_t *p)
{
    return (uint32_t)p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24;
}

static bool read_chunks(scan *s)
{
    uint8_t header[CM_CHUNK_HEADER_SIZE];

    if (s->size < CM_HEADER_SIZE || cm_read_at(s->fd, 0, header, CM_HEADER_SIZE) < 0 ||
        memcmp(header, CM_FORMAT_MAGIC, 8) != 0 || (header[8] | header[9] << 8) != CM_FORMAT_MAJOR)
        return false;
    s->at = CM_HEADER_SIZE;
    while (s->size - s->at >= sizeof header && !s->out->ended) {
        if (cm_read_at(s->fd, s->at, header, sizeof header) < 0)
            return false;
        uint64_t length = u32_at(header + 8);
        if (u32_at(header) != CM_CHUNK_MAGIC || length > CM_CHUNK_MAX)
            return false;
        s->at += sizeof header;
        if (length > s->size - s->at)
            break; /* the chunk that was being written */
        uint64_t end = s->at + length;
        if (header[4] == CM_CHUNK_END)
            s->out->ended = true;
        if ((header[4] == CM_CHUNK_BATCH && !read_batch(s, end)) ||
            (header[4] == CM_CHUNK_META && !read_meta(s, end)))
            return false;
        s->at = end;
    }
    return true;
}

bool cm_trace_end_read(const char *path, uint64_t ring_id, cm_trace_end *out)
{
    scan s = {.out = out, .ring_id = ring_id};
    struct stat st;

    memset(out, 0, sizeof *out);
    /* The path comes from a ring file, which may be in a copied folder. */
    if (stat(path, &st) < 0 || !S_ISREG(st.st_mode))
        return false;
    s.fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (s.fd < 0)
        return false;
    out->ring = calloc(CM_RING_COUNT, sizeof *out->ring);
    out->covers.ring = out->ring;
    bool good = out->ring != NULL && fstat(s.fd, &st) == 0 && S_ISREG(st.st_mode);
    if (good) {
        s.size = (uint64_t)st.st_size;
        good = read_chunks(&s) && (ring_id == 0 || out->ring_id == ring_id);
    }
    close(s.fd);
    if (!good) {
        free(out->ring);
        memset(out, 0, sizeof *out);
    }
    return good;
}
