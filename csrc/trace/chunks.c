#include "chunks.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "../base/bytes.h"
#include "../base/file_range.h"
#include "crc32c.h"
#include "decode.h"
#include "format.h"

int cm_chunks_read_at(cm_chunks *chunks, uint64_t offset, void *bytes, size_t length)
{
    int status = cm_read_at(chunks->fd, offset, bytes, length);
    return status == 0 ? 1 : status == -ENODATA ? 0 : -1;
}

bool cm_chunks_grown(cm_chunks *chunks)
{
    struct stat st;
    if (fstat(chunks->fd, &st) < 0 || st.st_size < 0 || (uint64_t)st.st_size <= chunks->size)
        return false;
    chunks->size = (uint64_t)st.st_size;
    return true;
}

bool cm_chunk_parse_head(const uint8_t *bytes, cm_chunk_head *head)
{
    cm_cursor c = {bytes, bytes + CM_CHUNK_HEADER_SIZE, false};
    uint64_t magic = cm_cursor_fixed(&c, 4);
    head->kind = (uint32_t)cm_cursor_fixed(&c, 4) & 0xff;
    head->length = cm_cursor_fixed(&c, 4);
    head->checksum = (uint32_t)cm_cursor_fixed(&c, 4);
    return magic == CM_CHUNK_MAGIC && head->length <= CM_CHUNK_MAX;
}

static bool make_room(cm_chunks *chunks, size_t length)
{
    if (chunks->capacity >= length)
        return true;
    size_t capacity = length < (1u << 16) ? (1u << 16) : length;
    uint8_t *memory = realloc(chunks->memory, capacity);
    if (memory == NULL)
        return false;
    chunks->memory = memory;
    chunks->capacity = capacity;
    return true;
}

static cm_fetch wrong(cm_chunks *chunks, cm_fetch answer, const char *format, bool in_tail,
                      uint64_t at)
{
    snprintf(chunks->error, sizeof chunks->error, format, in_tail ? "ring file's tail" : "file",
             (unsigned long long)at);
    return answer;
}

static cm_fetch could_not_read(cm_chunks *chunks, int got)
{
    if (got == 0) {
        snprintf(chunks->error, sizeof chunks->error, "the file became shorter while it was read");
        return CM_FETCH_PARTIAL;
    }
    snprintf(chunks->error, sizeof chunks->error, "cannot read at byte %llu: %s",
             (unsigned long long)chunks->offset, strerror(errno));
    return CM_FETCH_DAMAGED;
}

static int copy_at(cm_chunks *chunks, bool in_tail, uint64_t at, void *bytes, size_t length)
{
    if (!in_tail)
        return cm_chunks_read_at(chunks, at, bytes, length);
    memcpy(bytes, chunks->tail + at, length);
    return 1;
}

cm_fetch cm_chunks_next(cm_chunks *chunks)
{
    const bool in_tail = chunks->offset >= chunks->size && chunks->tail != NULL;
    const uint64_t at = in_tail ? chunks->tail_offset : chunks->offset;
    const uint64_t left = (in_tail ? chunks->tail_size : chunks->size) - at;
    uint8_t bytes[CM_CHUNK_HEADER_SIZE];
    cm_chunk_head head;

    if (left == 0)
        return CM_FETCH_END;
    if (left < sizeof bytes)
        return wrong(chunks, CM_FETCH_PARTIAL, "the %s ends inside a chunk header at byte %llu",
                     in_tail, at);
    int got = copy_at(chunks, in_tail, at, bytes, sizeof bytes);
    if (got <= 0)
        return could_not_read(chunks, got);
    if (!cm_chunk_parse_head(bytes, &head))
        return wrong(chunks, CM_FETCH_DAMAGED,
                     "the %s is damaged: at byte %llu no chunk begins there", in_tail, at);
    if (head.length > left - sizeof bytes)
        return wrong(chunks, CM_FETCH_PARTIAL, "the %s ends inside the chunk at byte %llu", in_tail,
                     at);
    /* The file has this many bytes, so they may be allocated. */
    if (!make_room(chunks, head.length + CM_DECODE_PADDING)) {
        snprintf(chunks->error, sizeof chunks->error, "out of memory while reading the trace");
        return CM_FETCH_MEMORY;
    }
    got = copy_at(chunks, in_tail, at + sizeof bytes, chunks->memory, head.length);
    if (got <= 0)
        return could_not_read(chunks, got);
    memset(chunks->memory + head.length, 0, CM_DECODE_PADDING);
    if (cm_crc32c(cm_crc32c(0, bytes, 12), chunks->memory, head.length) != head.checksum)
        return wrong(chunks, CM_FETCH_DAMAGED,
                     "the %s is damaged: the chunk at byte %llu has a wrong checksum", in_tail, at);
    chunks->kind = (int)head.kind;
    chunks->payload = chunks->memory;
    chunks->length = head.length;
    chunks->position++;
    if (in_tail)
        chunks->tail_offset += sizeof bytes + head.length;
    else
        chunks->offset += sizeof bytes + head.length;
    return CM_FETCH_CHUNK;
}

void cm_chunks_free(cm_chunks *chunks)
{
    if (chunks->fd >= 0)
        close(chunks->fd);
    free(chunks->memory);
    free(chunks->tail);
}
