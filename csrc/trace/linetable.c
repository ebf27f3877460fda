#include "linetable.h"

enum { NO_COLUMNS = 13, LONG_FORM = 14, NO_LOCATION = 15, ONE_LINE = 10 };

/* Six bits a byte, low first; bit 6 says that more follow. Stops at the table's end. */
static uint32_t get_varint(const uint8_t **pp, const uint8_t *end)
{
    uint32_t value = 0;
    for (int shift = 0; *pp < end; shift += 6) {
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

bool cm_linetable_find(const uint8_t *table, size_t length, int first_line, uint32_t offset,
                       cm_position *out)
{
    const uint8_t *p = table, *end = table + length;
    uint32_t line = (uint32_t)first_line; /* unsigned: a damaged table may overflow it */
    uint64_t at = 0;

    *out = (cm_position){-1, -1, -1, -1};
    while (p < end) {
        uint8_t first = *p++;
        unsigned code = first >> 3 & 15;
        if (!(first & 0x80))
            return false;
        cm_position here = {-1, -1, -1, -1};
        switch (code) {
        case NO_LOCATION:
            break;
        case NO_COLUMNS:
            line += (uint32_t)get_svarint(&p, end);
            here.line = here.end_line = (int)line;
            break;
        case LONG_FORM:
            line += (uint32_t)get_svarint(&p, end);
            here.line = (int)line;
            here.end_line = (int)(line + get_varint(&p, end));
            here.column = (int)get_varint(&p, end) - 1;
            here.end_column = (int)get_varint(&p, end) - 1;
            break;
        case ONE_LINE:
        case ONE_LINE + 1:
        case ONE_LINE + 2:
            line += code - ONE_LINE;
            here.line = here.end_line = (int)line;
            here.column = get_byte(&p, end);
            here.end_column = get_byte(&p, end);
            break;
        default: {
            int second = get_byte(&p, end);
            here.line = here.end_line = (int)line;
            here.column = (int)(code << 3) | second >> 4;
            here.end_column = here.column + (second & 15);
        }
        }
        at += (first & 7) + 1u;
        if (offset < at) {
            *out = here;
            return true;
        }
    }
    return false;
}
