#include "blind.h"

#include <string.h>

static uint64_t state = 1;

void fuzz_draw_from(uint64_t seed)
{
    state = seed * 2 + 1;
}

uint64_t fuzz_draw(void)
{
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return state;
}

size_t LLVMFuzzerMutate(uint8_t *data, size_t size, size_t room)
{
    static const uint8_t nasty[] = {0x00, 0x01, 0x7f, 0x80, 0xff, 0xfe, 0xc0, 0x07};

    for (uint64_t n = 1 + fuzz_draw() % 4; n > 0; n--) {
        size_t at = size > 0 ? fuzz_draw() % size : 0;
        /* The counts and lengths stand at the front. */
        if (size > 0 && fuzz_draw() % 4 == 0)
            at = fuzz_draw() % (size < 40 ? size : 40);
        switch (fuzz_draw() % 6) {
        case 0:
            if (size > 0)
                data[at] ^= (uint8_t)(1u << fuzz_draw() % 8);
            break;
        case 1:
            if (size > 0)
                data[at] = nasty[fuzz_draw() % sizeof nasty];
            break;
        case 2: /* the longest varint */
            for (size_t i = at; i < size && i < at + 10; i++)
                data[i] = i + 1 == at + 10 ? 0x01 : 0xff;
            break;
        case 3:
            if (size < room) {
                memmove(data + at + 1, data + at, size - at);
                data[at] = (uint8_t)fuzz_draw();
                size++;
            }
            break;
        case 4:
            if (size > 1) {
                memmove(data + at, data + at + 1, size - at - 1);
                size--;
            }
            break;
        default: {
            size_t other = size > 0 ? fuzz_draw() % size : 0, length = fuzz_draw() % 16;
            for (size_t i = 0; i < length && at + i < size && other + i < size; i++)
                data[at + i] = data[other + i];
        }
        }
    }
    return size;
}
