#include "line_table.h"

enum { NO_COLUMNS = 13, LONG_FORM = 14, NO_LOCATION = 15, ONE_LINE = 10 };

/* Six bits a byte, low first; bit 6 is set if more follow. Stops at the table's end and after 32
 * bits, so that an entry has a bounded length. */
static uint32_t get_varint(const uint8_t **pp, const uint8_t *end)
{
    uint32_t value = 0;
    for (int shift = 0; *pp < end && shift < 36; shift += 6) {
        uint8_t byte = *(*pp)++;
        if (shift < 32)
            value |= (uint32_t)(byte & 0x3f) << shift;
        if (!(byte & 0x40))
            break;
    }
    return value;
}

static int32_t get_svarint(const uint8_t **pp, const uint8_t *end)
{
    uint32_t value = get_varint(pp, end);
    uint32_t half = value >> 1;
    return (int32_t)((value & 1) ? 0 - half : half);
}

static int get_byte(const uint8_t **pp, const uint8_t *end)
{
    return *pp < end ? *(*pp)++ : 0;
}

/* Reads the entry at the mark and moves the mark past it. false: there is none. */
static bool next_entry(const uint8_t *table, size_t length, cm_linetable_mark *mark,
                       cm_position *here)
{
    const uint8_t *p = table + mark->byte, *end = table + length;
    if (p >= end || !(*p & 0x80))
        return false;
    uint8_t first = *p++;
    unsigned code = first >> 3 & 15;
    *here = (cm_position){-1, -1, -1, -1};
    switch (code) {
    case NO_LOCATION:
        break;
    case NO_COLUMNS:
        mark->line += (uint32_t)get_svarint(&p, end);
        here->line = here->end_line = (int)mark->line;
        break;
    case LONG_FORM:
        mark->line += (uint32_t)get_svarint(&p, end);
        here->line = (int)mark->line;
        here->end_line = (int)(mark->line + get_varint(&p, end));
        here->column = (int)get_varint(&p, end) - 1;
        here->end_column = (int)get_varint(&p, end) - 1;
        break;
    case ONE_LINE:
    case ONE_LINE + 1:
    case ONE_LINE + 2:
        mark->line += code - ONE_LINE;
        here->line = here->end_line = (int)mark->line;
        here->column = get_byte(&p, end);
        here->end_column = get_byte(&p, end);
        break;
    default: {
        int second = get_byte(&p, end);
        here->line = here->end_line = (int)mark->line;
        here->column = (int)(code << 3) | second >> 4;
        here->end_column = here->column + (second & 15);
    }
    }
    mark->byte = (uint32_t)(p - table);
    mark->offset += (first & 7) + 1u;
    return true;
}

bool cm_linetable_find_from(const uint8_t *table, size_t length, cm_linetable_mark mark,
                            uint32_t offset, cm_position *out)
{
    while (next_entry(table, length, &mark, out))
        if (offset < mark.offset)
            return true;
    *out = (cm_position){-1, -1, -1, -1};
    return false;
}

bool cm_linetable_find(const uint8_t *table, size_t length, int first_line, uint32_t offset,
                       cm_position *out)
{
    /* Unsigned: a damaged table may overflow it. */
    cm_linetable_mark begin = {.line = (uint32_t)first_line};
    return cm_linetable_find_from(table, length, begin, offset, out);
}

bool cm_linetable_pass(const uint8_t *table, size_t length, int entries, cm_linetable_mark *mark)
{
    cm_position unused;
    while (entries > 0 && next_entry(table, length, mark, &unused))
        entries--;
    return entries == 0;
}
