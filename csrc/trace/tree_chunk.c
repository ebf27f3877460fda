#include "tree_chunk.h"

#include <stdlib.h>
#include <string.h>

#include "chunks.h"
#include "crc32c.h"
#include "encode.h"
#include "format.h"
#include "reader_parts.h"

#define KIB_MOST (UINT64_C(1) << 40) /* bytes must fit into 63 bits, also summed */

/* Of each: numbers, a text, numbers. A length stands before it, so that later versions may append
 * fields. */
enum {
    PROCESS_MOST = 10 * (CM_PROCESS_SIZES + 6) + 2 + CM_TREE_NAME,
    FILE_MOST = 31 + 2 + CM_TREE_PATH
};

static bool is_known(const cm_process *process, int size)
{
    return process->known & (size < CM_PROCESS_STATUS_SIZES ? CM_KNOWN_STATUS : CM_KNOWN_ROLLUP);
}

static uint8_t *put_process(uint8_t *to, const cm_process *process)
{
    uint8_t bytes[PROCESS_MOST], *p = bytes;

    p = cm_put_varint(p, (uint32_t)process->pid);
    p = cm_put_varint(p, (uint32_t)process->parent);
    p = cm_put_varint(p, process->started);
    p = cm_put_varint(p, process->role);
    p = cm_put_bytes(p, process->name, strlen(process->name));
    p = cm_put_varint(p, process->known);
    for (int i = 0; i < CM_PROCESS_SIZES; i++)
        if (is_known(process, i))
            p = cm_put_varint(p, process->kib[i]);
    p = cm_put_varint(p, process->queued_kib);
    return cm_put_bytes(to, bytes, (size_t)(p - bytes));
}

static uint8_t *put_file(uint8_t *to, const cm_mapped_file *file)
{
    uint8_t bytes[FILE_MOST], *p = bytes;

    p = cm_put_varint(p, (uint32_t)file->pid);
    p = cm_put_varint(p, file->bytes);
    p = cm_put_bytes(p, file->path, strlen(file->path));
    p = cm_put_varint(p, file->copied);
    p = cm_put_varint(p, file->code);
    return cm_put_bytes(to, bytes, (size_t)(p - bytes));
}

size_t cm_tree_encode(const cm_process_tree *tree, uint8_t *chunk)
{
    uint8_t *p = cm_put_fixed(chunk + CM_CHUNK_HEADER_SIZE, tree->realtime_ns, 8);

    p = cm_put_varint(p, tree->cpu_ns);
    p = cm_put_varint(p, tree->shm_bytes);
    p = cm_put_varint(p, tree->shm_used);
    p = cm_put_varint(p, tree->left_out);
    p = cm_put_varint(p, tree->count);
    for (uint32_t i = 0; i < tree->count; i++)
        p = put_process(p, &tree->process[i]);
    p = cm_put_varint(p, tree->has_files ? tree->files + 1u : 0);
    for (uint32_t i = 0; i < tree->files && tree->has_files; i++)
        p = put_file(p, &tree->file[i]);
    p = cm_put_varint(p, tree->opens);
    for (uint32_t i = 0; i < tree->opens; i++)
        p = put_file(p, &tree->open[i]);
    p = cm_put_varint(p, tree->unseen);
    size_t length = (size_t)(p - chunk);
    cm_chunk_seal(chunk, CM_CHUNK_TREE, length - CM_CHUNK_HEADER_SIZE);
    return length;
}

static void get_text(cm_cursor *c, char *text, size_t room)
{
    size_t length;
    const uint8_t *bytes = cm_cursor_bytes(c, &length);

    if (length > room - 1)
        length = room - 1;
    if (length > 0)
        memcpy(text, bytes, length);
    text[length] = '\0';
}

static cm_cursor record(cm_cursor *c)
{
    size_t length;
    const uint8_t *bytes = cm_cursor_bytes(c, &length);

    return (cm_cursor){bytes, bytes == NULL ? NULL : bytes + length, c->bad};
}

/* A field that was appended: 0 in an older file. */
static uint64_t later(cm_cursor *c)
{
    return cm_cursor_left(c) > 0 ? cm_cursor_varint(c) : 0;
}

static bool get_process(cm_cursor *payload, cm_process *process)
{
    cm_cursor c = record(payload);

    process->pid = (int32_t)cm_cursor_varint32(&c);
    process->parent = (int32_t)cm_cursor_varint32(&c);
    process->started = cm_cursor_varint(&c);
    process->role = cm_cursor_varint32(&c);
    get_text(&c, process->name, sizeof process->name);
    process->known = cm_cursor_varint32(&c);
    for (int i = 0; i < CM_PROCESS_SIZES; i++) {
        process->kib[i] = is_known(process, i) ? cm_cursor_varint(&c) : 0;
        if (process->kib[i] > KIB_MOST)
            c.bad = true;
    }
    process->queued_kib = later(&c);
    return !c.bad && process->queued_kib <= KIB_MOST;
}

static bool get_file(cm_cursor *payload, cm_mapped_file *file)
{
    cm_cursor c = record(payload);

    file->pid = (int32_t)cm_cursor_varint32(&c);
    file->bytes = cm_cursor_varint(&c);
    get_text(&c, file->path, sizeof file->path);
    file->copied = later(&c);
    file->code = later(&c) != 0;
    return !c.bad && file->bytes <= KIB_MOST << 10 && file->copied <= KIB_MOST << 10;
}

bool cm_tree_decode(cm_cursor *c, cm_process_tree *tree)
{
    cm_process process;
    cm_mapped_file file;

    tree->realtime_ns = cm_cursor_fixed(c, 8);
    tree->cpu_ns = cm_cursor_varint(c);
    tree->shm_bytes = cm_cursor_varint(c);
    tree->shm_used = cm_cursor_varint(c);
    tree->left_out = cm_cursor_varint32(c);
    tree->count = tree->files = tree->opens = 0;
    for (uint64_t n = cm_cursor_varint(c); n > 0 && !c->bad; n--) {
        if (!get_process(c, &process))
            return false;
        if (tree->count < CM_TREE_PROCESSES)
            tree->process[tree->count++] = process;
        else if (tree->left_out < UINT32_MAX)
            tree->left_out++;
    }
    uint64_t n = cm_cursor_varint(c);
    tree->has_files = n > 0;
    for (; n > 1 && !c->bad; n--) {
        if (!get_file(c, &file))
            return false;
        if (tree->files <= CM_TREE_FILES)
            tree->file[tree->files++] = file;
    }
    for (n = later(c); n > 0 && !c->bad; n--) {
        if (!get_file(c, &file))
            return false;
        if (tree->opens < CM_TREE_OPEN)
            tree->open[tree->opens++] = file;
    }
    uint64_t unseen = later(c);
    tree->unseen = unseen > UINT32_MAX ? UINT32_MAX : (uint32_t)unseen;
    return !c->bad && tree->realtime_ns <= INT64_MAX && tree->cpu_ns <= INT64_MAX &&
           tree->shm_bytes <= INT64_MAX && tree->shm_used <= INT64_MAX;
}

static const char *read_one(cm_reader *reader, uint64_t at, const uint8_t *head_bytes,
                            const cm_chunk_head *head, cm_process_tree *into)
{
    uint8_t *payload = malloc((size_t)head->length + 1);
    const char *wrong = NULL;

    if (payload == NULL)
        return "out of memory while reading the trace";
    cm_cursor c = {payload, payload + head->length, false};
    if (cm_chunks_read_at(&reader->chunks, at, payload, (size_t)head->length) != 1 ||
        cm_crc32c(cm_crc32c(0, head_bytes, 12), payload, (size_t)head->length) != head->checksum)
        wrong = ""; /* the trace is cut here: what follows is none of it */
    else if (!cm_tree_decode(&c, into))
        wrong = "a tree sample is damaged";
    free(payload);
    return wrong;
}

const char *cm_tree_read_all(cm_reader *reader, cm_process_tree *into,
                             bool (*see)(void *context, const cm_process_tree *tree), void *context)
{
    uint64_t at = CM_HEADER_SIZE;
    uint8_t bytes[CM_CHUNK_HEADER_SIZE];
    cm_chunk_head head;

    while (at <= reader->chunks.size && reader->chunks.size - at >= sizeof bytes &&
           cm_chunks_read_at(&reader->chunks, at, bytes, sizeof bytes) == 1 &&
           cm_chunk_parse_head(bytes, &head) &&
           head.length <= reader->chunks.size - at - sizeof bytes) {
        at += sizeof bytes;
        const char *wrong =
            head.kind == CM_CHUNK_TREE ? read_one(reader, at, bytes, &head, into) : NULL;
        if (wrong != NULL)
            return wrong[0] == '\0' ? NULL : wrong;
        if (head.kind == CM_CHUNK_TREE && !see(context, into))
            return NULL;
        at += head.length;
    }
    return NULL;
}
