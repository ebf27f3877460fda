/* The integers of format.h. Writers need room (a varint takes at most 10 bytes) and return the
 * position after. Readers accept any bytes: every step checks what is left, and the first error
 * sets `bad` for good. */
#ifndef CM_BASE_BYTES_H
#define CM_BASE_BYTES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

static inline uint8_t *cm_put_varint(uint8_t *p, uint64_t value)
{
    while (value >= 0x80) {
        *p++ = (uint8_t)value | 0x80;
        value >>= 7;
    }
    *p++ = (uint8_t)value;
    return p;
}

static inline uint8_t *cm_put_fixed(uint8_t *p, uint64_t value, int bytes)
{
    for (int i = 0; i < bytes; i++)
        *p++ = (uint8_t)(value >> 8 * i);
    return p;
}

/* A varint length and that many bytes. */
static inline uint8_t *cm_put_bytes(uint8_t *p, const void *bytes, size_t length)
{
    p = cm_put_varint(p, length);
    if (length > 0)
        memcpy(p, bytes, length);
    return p + length;
}

typedef struct cm_cursor {
    const uint8_t *at, *end;
    bool bad;
} cm_cursor;

static inline size_t cm_cursor_left(const cm_cursor *c)
{
    return (size_t)(c->end - c->at);
}

static inline uint64_t cm_cursor_fixed(cm_cursor *c, size_t bytes)
{
    uint64_t value = 0;
    if (cm_cursor_left(c) < bytes) {
        c->bad = true;
        c->at = c->end;
        return 0;
    }
    for (size_t i = 0; i < bytes; i++)
        value |= (uint64_t)c->at[i] << 8 * i;
    c->at += bytes;
    return value;
}

static inline uint64_t cm_cursor_varint(cm_cursor *c)
{
    uint64_t value = 0;
    for (int shift = 0; shift < 70 && c->at < c->end; shift += 7) {
        uint64_t byte = *c->at++;
        if (shift == 63 && byte > 1)
            break;
        value |= (byte & 0x7f) << shift;
        if (byte < 0x80)
            return value;
    }
    c->bad = true;
    c->at = c->end;
    return 0;
}

/* For numbers that are ids or lines: more than 32 bits is damage. */
static inline uint32_t cm_cursor_varint32(cm_cursor *c)
{
    uint64_t value = cm_cursor_varint(c);
    if (value > UINT32_MAX) {
        c->bad = true;
        return 0;
    }
    return (uint32_t)value;
}

/* A varint length and that many bytes; NULL with length 0 when they are not there. */
static inline const uint8_t *cm_cursor_bytes(cm_cursor *c, size_t *length)
{
    uint64_t n = cm_cursor_varint(c);
    if (c->bad || n > cm_cursor_left(c)) {
        c->bad = true;
        c->at = c->end;
        *length = 0;
        return NULL;
    }
    const uint8_t *bytes = c->at;
    c->at += n;
    *length = (size_t)n;
    return bytes;
}

#endif
