#include "text.h"

#include <string.h>

uint64_t cm_text_hash(const void *bytes, size_t length)
{
    const unsigned char *p = bytes;
    uint64_t hash = length * 0x9e3779b97f4a7c15u + 0x2545f4914f6cdd1du;

    while (length > 0) {
        uint64_t word = 0;
        size_t n = length < sizeof word ? length : sizeof word;
        memcpy(&word, p, n);
        hash = (hash ^ word) * 0x9fb21c651e98df25u;
        hash ^= hash >> 35;
        p += n;
        length -= n;
    }
    hash *= 0xd6e8feb86659fd93u;
    hash ^= hash >> 32;
    return hash | (hash == 0);
}

/* Cuts before a character that does not fit whole. */
static uint32_t whole_characters(const char *bytes, size_t length)
{
    if (length <= CM_TEXT_MAX)
        return (uint32_t)length;
    uint32_t cut = CM_TEXT_MAX;
    while (cut > 0 && ((unsigned char)bytes[cut] & 0xc0) == 0x80)
        cut--;
    return cut;
}

static void finish(cm_text *text, uint32_t length)
{
    text->length = length;
    text->hash = cm_text_hash(text->bytes, length);
}

void cm_text_copy(cm_text *text, const char *source)
{
    uint32_t length = whole_characters(source, strlen(source));

    memcpy(text->bytes, source, length);
    finish(text, length);
}

static uint32_t encode(char *out, uint32_t c)
{
    if (c >= 0xd800 && c < 0xe000)
        c = 0xfffd;
    if (c < 0x80) {
        out[0] = (char)c;
        return 1;
    }
    if (c < 0x800) {
        out[0] = (char)(0xc0 | c >> 6);
        out[1] = (char)(0x80 | (c & 63));
        return 2;
    }
    if (c < 0x10000) {
        out[0] = (char)(0xe0 | c >> 12);
        out[1] = (char)(0x80 | (c >> 6 & 63));
        out[2] = (char)(0x80 | (c & 63));
        return 3;
    }
    out[0] = (char)(0xf0 | c >> 18);
    out[1] = (char)(0x80 | (c >> 12 & 63));
    out[2] = (char)(0x80 | (c >> 6 & 63));
    out[3] = (char)(0x80 | (c & 63));
    return 4;
}

void cm_text_copy_str(cm_text *text, PyObject *str)
{
    if (str == NULL || !PyUnicode_CheckExact(str) || !PyUnicode_IS_COMPACT(str)) {
        text->bytes[0] = '?';
        finish(text, 1);
        return;
    }
    size_t length = (size_t)PyUnicode_GET_LENGTH(str);
    if (PyUnicode_IS_COMPACT_ASCII(str)) {
        uint32_t kept = (uint32_t)(length < CM_TEXT_MAX ? length : CM_TEXT_MAX);
        memcpy(text->bytes, (const char *)str + sizeof(PyASCIIObject), kept);
        finish(text, kept);
        return;
    }
    const void *data = (const char *)str + sizeof(PyCompactUnicodeObject);
    int kind = (int)PyUnicode_KIND(str);
    uint32_t used = 0;
    for (size_t i = 0; i < length; i++) {
        uint32_t c = kind == PyUnicode_1BYTE_KIND   ? ((const uint8_t *)data)[i]
                     : kind == PyUnicode_2BYTE_KIND ? ((const uint16_t *)data)[i]
                                                    : ((const uint32_t *)data)[i];
        char character[4];
        uint32_t n = encode(character, c);
        if (used + n > CM_TEXT_MAX)
            break;
        memcpy(text->bytes + used, character, n);
        used += n;
    }
    finish(text, used);
}
