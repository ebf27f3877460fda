#include "lines.h"

#include <stdlib.h>
#include <string.h>

#include "../base/bytes.h"
#include "../base/table.h"
#include "crc32c.h"
#include "format.h"

enum { HEADER = CM_CHUNK_HEADER_SIZE + 10, NUMBERS = 4 * 10 };

typedef struct known_text {
    uint64_t hash; /* 0: an empty slot */
    uint32_t length, number;
} known_text;

struct cm_lines {
    uint8_t *bytes; /* behind HEADER bytes: the entries */
    size_t length, capacity;
    uint64_t entries;
    known_text *slot;
    size_t slots; /* 0 or a power of two */
    uint32_t texts;
};

cm_lines *cm_lines_new(void)
{
    return calloc(1, sizeof(cm_lines));
}

void cm_lines_free(cm_lines *lines)
{
    if (lines == NULL)
        return;
    free(lines->bytes);
    free(lines->slot);
    free(lines);
}

/* FNV-1a, and length: two texts that agree in both would be shown as one. */
static uint64_t hash_text(const char *text, size_t length)
{
    uint64_t h = 0xcbf29ce484222325u;
    for (size_t i = 0; i < length; i++)
        h = (h ^ (uint8_t)text[i]) * 0x100000001b3u;
    h ^= h >> 32;
    return h != 0 ? h : 1;
}

static bool is_taken(const void *entry)
{
    return ((const known_text *)entry)->hash != 0;
}

static uint64_t hash_of(const void *owner, const void *entry)
{
    (void)owner;
    return ((const known_text *)entry)->hash;
}

static bool same_text(const void *owner, const void *entry, const void *wanted)
{
    (void)owner;
    const known_text *a = entry, *b = wanted;
    return a->hash == b->hash && a->length == b->length;
}

static const cm_table_kind by_text = {sizeof(known_text), 256, 3, is_taken, hash_of, same_text};

static bool make_room(cm_lines *lines, size_t length)
{
    size_t need = (lines->length != 0 ? lines->length : HEADER) + NUMBERS + length;
    if (need > CM_CHUNK_MAX)
        return false;
    if (need > lines->capacity) {
        size_t capacity = 2 * need;
        uint8_t *bytes = realloc(lines->bytes, capacity);
        if (bytes == NULL)
            return false;
        lines->bytes = bytes;
        lines->capacity = capacity;
    }
    if (lines->length == 0)
        lines->length = HEADER;
    return true;
}

size_t cm_lines_add(cm_lines *lines, uint32_t code, uint32_t line, const char *text, size_t length)
{
    if (!cm_table_make_room(&by_text, NULL, (void **)&lines->slot, &lines->slots, lines->texts) ||
        !make_room(lines, length))
        return 0;
    const known_text wanted = {hash_text(text, length), (uint32_t)length, lines->texts + 1};
    known_text *known =
        &lines
             ->slot[cm_table_find(&by_text, NULL, lines->slot, lines->slots, wanted.hash, &wanted)];
    bool fresh = known->hash == 0;
    if (fresh) {
        *known = wanted;
        lines->texts++;
    }
    uint8_t *begin = lines->bytes + lines->length, *p = begin;
    p = cm_put_varint(p, code);
    p = cm_put_varint(p, line);
    p = cm_put_varint(p, known->number);
    if (fresh)
        p = cm_put_bytes(p, text, length);
    lines->length += (size_t)(p - begin);
    lines->entries++;
    return (size_t)(p - begin);
}

bool cm_lines_finish(cm_lines *lines, const void **chunk, size_t *length)
{
    uint8_t count[10];
    if (lines->entries == 0)
        return false;
    size_t digits = (size_t)(cm_put_varint(count, lines->entries) - count);
    uint8_t *at = lines->bytes + HEADER - digits - CM_CHUNK_HEADER_SIZE;
    memcpy(at + CM_CHUNK_HEADER_SIZE, count, digits);
    *chunk = at;
    *length = (size_t)(lines->bytes + lines->length - at);
    cm_chunk_seal(at, CM_CHUNK_LINES, *length - CM_CHUNK_HEADER_SIZE);
    lines->length = 0;
    lines->entries = 0;
    return true;
}
