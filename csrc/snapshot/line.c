#include "line.h"

#include <stdbool.h>

static uint8_t *put_character(uint8_t *p, uint32_t c)
{
    if (c < 0x80) {
        *p++ = (uint8_t)c;
    } else if (c < 0x800) {
        *p++ = (uint8_t)(0xc0 | c >> 6);
        *p++ = (uint8_t)(0x80 | (c & 0x3f));
    } else if (c < 0x10000) {
        *p++ = (uint8_t)(0xe0 | c >> 12);
        *p++ = (uint8_t)(0x80 | (c >> 6 & 0x3f));
        *p++ = (uint8_t)(0x80 | (c & 0x3f));
    } else {
        *p++ = (uint8_t)(0xf0 | (c >> 18 & 7));
        *p++ = (uint8_t)(0x80 | (c >> 12 & 0x3f));
        *p++ = (uint8_t)(0x80 | (c >> 6 & 0x3f));
        *p++ = (uint8_t)(0x80 | (c & 0x3f));
    }
    return p;
}

static int digit(uint8_t c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    c |= 0x20;
    return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

/* So many hexadecimal digits. */
static bool hexadecimal(const uint8_t *text, size_t left, size_t digits, uint32_t *value)
{
    uint32_t x = 0;
    if (left < digits)
        return false;
    for (size_t i = 0; i < digits; i++) {
        int one = digit(text[i]);
        if (one < 0)
            return false;
        x = x << 4 | (uint32_t)one;
    }
    *value = x;
    return true;
}

size_t cm_line_unicode(const uint8_t *text, size_t length, uint8_t *out)
{
    uint8_t *p = out;
    for (size_t i = 0; i < length;) {
        uint32_t c = text[i];
        size_t left = length - i, digits = 0;
        if (c == '\\' && left > 1)
            digits = text[i + 1] == 'u' ? 4 : text[i + 1] == 'U' ? 8 : 0;
        if (digits > 0 && hexadecimal(text + i + 2, left - 2, digits, &c))
            i += 2 + digits;
        else
            i++;
        p = put_character(p, c);
    }
    return (size_t)(p - out);
}

size_t cm_line_quoted(const uint8_t *text, size_t length, uint8_t *out)
{
    uint8_t *p = out;
    size_t end = length > 1 ? length - 1 : length;
    for (size_t i = length > 1; i < end;) {
        uint32_t c = text[i++];
        if (c == '\\' && i < end) {
            c = text[i++];
            if (c == 'x' && hexadecimal(text + i, end - i, 2, &c))
                i += 2;
            else if (c == 'n')
                c = '\n';
            else if (c == 't')
                c = '\t';
            else if (c == 'r')
                c = '\r';
        }
        *p++ = (uint8_t)c;
    }
    return (size_t)(p - out);
}
