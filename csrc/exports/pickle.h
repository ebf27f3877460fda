/* The few instructions of a pickle (protocol 4) that an export writes and MemoryViz.js reads. */
#ifndef CM_EXPORTS_PICKLE_H
#define CM_EXPORTS_PICKLE_H

#include "text.h"

#define CM_PICKLE_DICT '}'
#define CM_PICKLE_LIST ']'
#define CM_PICKLE_MARK '('
#define CM_PICKLE_SETITEMS 'u'
#define CM_PICKLE_APPENDS 'e'
enum { CM_PICKLE_APPENDS_MOST = 1000 }; /* MemoryViz.js spreads them onto its stack */

static inline void cm_pickle_little(cm_text *t, uint64_t value, size_t bytes, char fill)
{
    char little[9] = {0};
    for (size_t i = 0; i < bytes; i++)
        little[i] = i < 8 ? (char)(value >> 8 * i) : fill;
    cm_text_put(t, little, bytes);
}

/* negative: its sign, which fills a ninth byte. */
static inline void cm_pickle_long(cm_text *t, uint64_t value, uint64_t magnitude, bool negative)
{
    size_t bits = 0;
    while (bits < 64 && magnitude >> bits != 0)
        bits++;
    size_t bytes = (bits >> 3) + 1;
    cm_text_put(t, "\x8a", 1);
    cm_text_byte(t, (char)bytes);
    cm_pickle_little(t, value, bytes, negative ? '\xff' : '\0');
}

static inline void cm_pickle_unsigned(cm_text *t, uint64_t value)
{
    if (value > INT32_MAX && value < 0x7fffffffffffu) { /* an address, a time: the most frequent */
        cm_text_put(t, "\x8a\x06", 2);
        cm_pickle_little(t, value, 6, '\0');
    } else if (value < 256) {
        cm_text_byte(t, 'K');
        cm_text_byte(t, (char)value);
    } else if (value <= INT32_MAX) {
        cm_text_byte(t, 'J');
        cm_pickle_little(t, value, 4, '\0');
    } else {
        cm_pickle_long(t, value, value, false);
    }
}

static inline void cm_pickle_signed(cm_text *t, int64_t value)
{
    if (value >= 0) {
        cm_pickle_unsigned(t, (uint64_t)value);
    } else if (value >= INT32_MIN) {
        cm_text_byte(t, 'J');
        cm_pickle_little(t, (uint64_t)value, 4, '\0');
    } else {
        cm_pickle_long(t, (uint64_t)value, 0 - (uint64_t)value, true);
    }
}

/* The head of a string of so many bytes of UTF-8. */
static inline void cm_pickle_string(cm_text *t, size_t bytes)
{
    if (bytes < 256) {
        cm_text_put(t, "\x8c", 1);
        cm_text_byte(t, (char)bytes);
    } else {
        cm_text_byte(t, 'X');
        cm_pickle_little(t, bytes, 4, '\0');
    }
}

/* Before item number `listed` of a list. */
static inline void cm_pickle_item(cm_text *t, uint64_t listed)
{
    if (listed % CM_PICKLE_APPENDS_MOST != 0)
        return;
    if (listed > 0)
        cm_text_byte(t, CM_PICKLE_APPENDS);
    cm_text_byte(t, CM_PICKLE_MARK);
}

#endif
