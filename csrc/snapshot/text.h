/* Comparisons of texts that have a length. */
#ifndef CM_SNAPSHOT_TEXT_H
#define CM_SNAPSHOT_TEXT_H

#include <stdbool.h>
#include <stddef.h>
#include <string.h>

static inline bool cm_begins(const char *text, size_t length, const char *with)
{
    size_t n = strlen(with);
    return length >= n && memcmp(text, with, n) == 0;
}

static inline bool cm_ends(const char *text, size_t length, const char *with)
{
    size_t n = strlen(with);
    return length >= n && memcmp(text + length - n, with, n) == 0;
}

static inline bool cm_contains(const char *text, size_t length, const char *what)
{
    for (size_t i = 0; i < length; i++)
        if (text[i] == what[0] && cm_begins(text + i, length - i, what))
            return true;
    return false;
}

#endif
