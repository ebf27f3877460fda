#include "source_line.h"

#include <ctype.h>
#include <string.h>

static const char replacement[] = "\xef\xbf\xbd", ellipsis[] = "\xe2\x80\xa6";

cm_source_lines cm_source_lines_of(const uint8_t *bytes, size_t length)
{
    bool mark = length >= 3 && memcmp(bytes, "\xef\xbb\xbf", 3) == 0;
    return (cm_source_lines){bytes, length, mark ? 3 : 0, 1};
}

/* Where the line that begins at `at` ends; *next: where the next one begins. As Python has it: \n,
 * \r\n, or \r. */
static size_t find_end(const uint8_t *bytes, size_t length, size_t at, size_t *next)
{
    const uint8_t *feed = memchr(bytes + at, '\n', length - at);
    size_t end = feed != NULL ? (size_t)(feed - bytes) : length;
    const uint8_t *back = memchr(bytes + at, '\r', end - at);
    if (back == NULL) {
        *next = end + 1;
        return end;
    }
    size_t r = (size_t)(back - bytes);
    *next = r + (r + 1 < length && bytes[r + 1] == '\n' ? 2 : 1);
    return r;
}

const uint8_t *cm_source_lines_find(cm_source_lines *lines, uint32_t line, size_t *length)
{
    while (lines->at < lines->length && lines->line <= line) {
        size_t next, end = find_end(lines->bytes, lines->length, lines->at, &next);
        if (lines->line == line) {
            *length = end - lines->at;
            return lines->bytes + lines->at;
        }
        lines->at = next;
        lines->line++;
    }
    return NULL;
}

/* --- encodings ------------------------------------------------------------------------------ */

static bool is_name(uint8_t c)
{
    return isalnum(c) || c == '-' || c == '_' || c == '.';
}

/* A comment that has "coding:" or "coding=" and a name after it; blank: nothing but a comment. */
static bool find_coding(const uint8_t *text, size_t length, char out[CM_SOURCE_ENCODING],
                        bool *blank)
{
    static const char word[] = "coding";
    size_t i = 0, n = 0;

    while (i < length && (text[i] == ' ' || text[i] == '\t' || text[i] == '\f'))
        i++;
    *blank = i == length || text[i] == '#';
    if (i == length || text[i] != '#')
        return false;
    for (; i + sizeof word < length; i++) {
        if (memcmp(text + i, word, sizeof word - 1) != 0 ||
            (text[i + sizeof word - 1] != ':' && text[i + sizeof word - 1] != '='))
            continue;
        size_t at = i + sizeof word;
        while (at < length && (text[at] == ' ' || text[at] == '\t'))
            at++;
        for (; at < length && is_name(text[at]) && n + 1 < CM_SOURCE_ENCODING; at++)
            out[n++] = text[at] == '_' ? '-' : (char)tolower(text[at]);
        out[n] = '\0';
        if (n > 0)
            return true;
    }
    return false;
}

void cm_source_encoding(const uint8_t *bytes, size_t length, char out[CM_SOURCE_ENCODING])
{
    cm_source_lines lines = cm_source_lines_of(bytes, length);
    bool marked = lines.at != 0, blank = true;
    size_t n;

    for (uint32_t line = 1; line <= 2 && blank && !marked; line++) {
        const uint8_t *text = cm_source_lines_find(&lines, line, &n);
        if (text == NULL)
            break;
        if (find_coding(text, n, out, &blank))
            return;
    }
    strcpy(out, "utf-8");
}

bool cm_source_is_utf8(const char *encoding)
{
    return strncmp(encoding, "utf-8", 5) == 0 || strcmp(encoding, "utf8") == 0 ||
           strcmp(encoding, "ascii") == 0 || strcmp(encoding, "us-ascii") == 0;
}

/* Bytes of the character at p; 0: it is not valid. */
static size_t measure_character(const uint8_t *p, size_t left)
{
    size_t length = p[0] < 0x80 ? 1 : p[0] < 0xc2 ? 0 : p[0] < 0xe0 ? 2 : p[0] < 0xf0 ? 3 : 4;
    if (length == 0 || length > left || p[0] > 0xf4)
        return 0;
    for (size_t i = 1; i < length; i++)
        if ((p[i] & 0xc0) != 0x80)
            return 0;
    bool wrong = (p[0] == 0xe0 && p[1] < 0xa0) || (p[0] == 0xed && p[1] > 0x9f) ||
                 (p[0] == 0xf0 && p[1] < 0x90) || (p[0] == 0xf4 && p[1] > 0x8f);
    return wrong ? 0 : length;
}

size_t cm_source_copy(const uint8_t *bytes, size_t length, char *out, size_t room)
{
    size_t n = 0, whole = 0; /* whole: up to where an ellipsis still fits */
    for (size_t i = 0; i < length;) {
        size_t character = measure_character(bytes + i, length - i);
        size_t put = character != 0 && bytes[i] != 0 ? character : sizeof replacement - 1;
        if (n + put > room) {
            memcpy(out + whole, ellipsis, sizeof ellipsis - 1);
            return whole + sizeof ellipsis - 1;
        }
        memcpy(out + n, put == character ? (const char *)bytes + i : replacement, put);
        n += put;
        i += character != 0 ? character : 1;
        if (n + sizeof ellipsis - 1 <= room)
            whole = n;
    }
    return n;
}

/* --- columns -------------------------------------------------------------------------------- */

static bool is_word(uint8_t c)
{
    return isalnum(c) || c == '_' || c >= 0x80;
}

static bool is_between_words(const uint8_t *text, size_t length, size_t at)
{
    return at == 0 || at == length || !is_word(text[at - 1]) || !is_word(text[at]);
}

bool cm_source_fits(const uint8_t *text, size_t length, const cm_position *at)
{
    if (at->column < 0 || at->end_column < 0)
        return true;
    size_t from = (size_t)at->column, to = (size_t)at->end_column;
    if (from >= length || isspace(text[from]) || !is_between_words(text, length, from))
        return false;
    if (at->end_line != at->line)
        return true;
    return to > from && to <= length && !isspace(text[to - 1]) &&
           is_between_words(text, length, to);
}
