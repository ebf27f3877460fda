#include "record.h"

#include <string.h>

#include "deflog.h"

/* Too big for a thread's stack. */
static struct {
    unsigned char bytes[CM_DEFLOG_APPEND_MAX];
    size_t length;
} record;

/* Leaves room for two texts with kind and length, and for a few numbers. */
enum { LINE_TABLE_MAX = CM_DEFLOG_APPEND_MAX - 2 * (CM_TEXT_MAX + 8) - 64 };

void cm_record_start(void)
{
    record.length = 0;
}

void cm_record_put(uint64_t value)
{
    while (value >= 0x80) {
        record.bytes[record.length++] = (unsigned char)(value | 0x80);
        value >>= 7;
    }
    record.bytes[record.length++] = (unsigned char)value;
}

void cm_record_put_bytes(const void *bytes, size_t length)
{
    cm_record_put(length);
    memcpy(record.bytes + record.length, bytes, length);
    record.length += length;
}

void cm_record_put_text(cm_def_kind kind, const cm_text *text)
{
    cm_record_put(kind);
    cm_record_put_bytes(text->bytes, text->length);
}

bool cm_record_append(void)
{
    return cm_deflog_append_hook(record.bytes, record.length);
}

size_t cm_record_line_table_length(const unsigned char *table, size_t length)
{
    if (length <= LINE_TABLE_MAX)
        return length;
    length = LINE_TABLE_MAX;
    while (length > 0 && table[length] < 0x80) /* only an entry's first byte has the top bit */
        length--;
    return length;
}
