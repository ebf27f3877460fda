/* Bytes that an export is made of: an array that grows. Running out of memory is kept in `failed`,
 * so that it is checked once for many pieces. One owner, any thread. */
#ifndef CM_EXPORTS_TEXT_H
#define CM_EXPORTS_TEXT_H

#include <stdint.h>

#include "../base/grow.h"

typedef struct cm_text {
    char *bytes;
    size_t length, capacity;
    bool failed;
} cm_text;

/* Borrowed bytes: the caller keeps them. */
typedef struct cm_piece {
    const char *bytes;
    size_t length;
} cm_piece;

static inline void cm_text_put(cm_text *t, const void *bytes, size_t length)
{
    if (length > SIZE_MAX - t->length ||
        !cm_grow((void **)&t->bytes, &t->capacity, t->length + length, 1)) {
        t->failed = true;
        return;
    }
    if (length > 0)
        memcpy(t->bytes + t->length, bytes, length);
    t->length += length;
}

static inline void cm_text_piece(cm_text *t, cm_piece piece)
{
    cm_text_put(t, piece.bytes, piece.length);
}

static inline void cm_text_byte(cm_text *t, char byte)
{
    cm_text_put(t, &byte, 1);
}

static inline void cm_text_decimal(cm_text *t, uint64_t value)
{
    char digits[20];
    size_t at = sizeof digits;
    do
        digits[--at] = (char)('0' + value % 10);
    while ((value /= 10) > 0);
    cm_text_put(t, digits + at, sizeof digits - at);
}

static inline void cm_text_signed(cm_text *t, int64_t value)
{
    if (value < 0)
        cm_text_byte(t, '-');
    cm_text_decimal(t, value < 0 ? 0 - (uint64_t)value : (uint64_t)value);
}

#endif
