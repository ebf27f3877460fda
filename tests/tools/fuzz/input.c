#include "input.h"

#include <string.h>

uint32_t fuzz_u32(const uint8_t *at)
{
    return (uint32_t)at[0] | (uint32_t)at[1] << 8 | (uint32_t)at[2] << 16 | (uint32_t)at[3] << 24;
}

void fuzz_put_u32(uint8_t *at, uint32_t value)
{
    for (int i = 0; i < 4; i++)
        at[i] = (uint8_t)(value >> 8 * i);
}

fuzz_input fuzz_parse(const uint8_t *data, size_t size)
{
    fuzz_input input = {0};

    if (size < 4 || memcmp(data, FUZZ_MAGIC, 4) != 0) {
        input.trace = (fuzz_part){data, size};
        return input;
    }
    for (size_t at = 4; size - at >= FUZZ_PART_HEAD;) {
        int kind = data[at];
        size_t length = fuzz_u32(data + at + 1);
        at += FUZZ_PART_HEAD;
        if (length > size - at)
            length = size - at;
        fuzz_part part = {data + at, length};
        if (kind == 'T')
            input.trace = part;
        else if (kind == 'S')
            input.side = part;
        else if (kind == 'R')
            input.ring = part;
        at += length;
    }
    return input;
}

size_t fuzz_compose(const fuzz_input *input, uint8_t *out, size_t room)
{
    const fuzz_part parts[] = {input->trace, input->side, input->ring};
    size_t at = 4;

    if (input->side.at == NULL && input->ring.at == NULL) {
        if (input->trace.length > room)
            return 0;
        if (input->trace.length > 0) /* a part that was never there has no address */
            memcpy(out, input->trace.at, input->trace.length);
        return input->trace.length;
    }
    if (room < 4)
        return 0;
    memcpy(out, FUZZ_MAGIC, 4);
    for (int i = 0; i < 3; i++) {
        if (parts[i].at == NULL)
            continue;
        if (room - at < FUZZ_PART_HEAD || room - at - FUZZ_PART_HEAD < parts[i].length)
            return 0;
        out[at] = (uint8_t) "TSR"[i];
        fuzz_put_u32(out + at + 1, (uint32_t)parts[i].length);
        memcpy(out + at + FUZZ_PART_HEAD, parts[i].at, parts[i].length);
        at += FUZZ_PART_HEAD + parts[i].length;
    }
    return at;
}
