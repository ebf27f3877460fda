#include "crc32c.h"

#include <stdatomic.h>
#include <string.h>
#if defined(__x86_64__)
#include <nmmintrin.h>
#endif

#include "format.h"

enum { POLYNOMIAL = 0x82f63b78 }; /* bits reversed */

static uint32_t table[8][256];
static _Atomic int table_ready;

/* Two threads may fill it at once: they write the same values. */
static void fill_table(void)
{
    for (uint32_t i = 0; i < 256; i++) {
        uint32_t crc = i;
        for (int bit = 0; bit < 8; bit++)
            crc = crc >> 1 ^ ((crc & 1) ? (uint32_t)POLYNOMIAL : 0);
        __atomic_store_n(&table[0][i], crc, __ATOMIC_RELAXED);
    }
    for (int n = 1; n < 8; n++)
        for (uint32_t i = 0; i < 256; i++)
            __atomic_store_n(&table[n][i], table[n - 1][i] >> 8 ^ table[0][table[n - 1][i] & 0xff],
                             __ATOMIC_RELAXED);
    atomic_store_explicit(&table_ready, 1, memory_order_release);
}

uint32_t cm_crc32c_portable(uint32_t crc, const void *bytes, size_t length)
{
    const uint8_t *p = bytes;
    if (!atomic_load_explicit(&table_ready, memory_order_acquire))
        fill_table();
    crc = ~crc;
    for (; length >= 8; p += 8, length -= 8) {
        crc ^= (uint32_t)p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24;
        crc = table[7][crc & 0xff] ^ table[6][crc >> 8 & 0xff] ^ table[5][crc >> 16 & 0xff] ^
              table[4][crc >> 24] ^ table[3][p[4]] ^ table[2][p[5]] ^ table[1][p[6]] ^
              table[0][p[7]];
    }
    for (; length > 0; p++, length--)
        crc = crc >> 8 ^ table[0][(crc ^ *p) & 0xff];
    return ~crc;
}

#if defined(__x86_64__)
__attribute__((target("sse4.2,crc32"))) static uint32_t
with_instruction(uint32_t crc, const uint8_t *p, size_t length)
{
    uint64_t value = ~crc;
    for (; length >= 8; p += 8, length -= 8) {
        uint64_t word;
        memcpy(&word, p, 8);
        value = _mm_crc32_u64(value, word);
    }
    for (; length > 0; p++, length--)
        value = _mm_crc32_u8((uint32_t)value, *p);
    return ~(uint32_t)value;
}
#endif

uint32_t cm_crc32c(uint32_t crc, const void *bytes, size_t length)
{
#if defined(__x86_64__)
    if (__builtin_cpu_supports("sse4.2"))
        return with_instruction(crc, bytes, length);
#endif
    return cm_crc32c_portable(crc, bytes, length);
}

void cm_chunk_seal(uint8_t *chunk, int kind, size_t payload_length)
{
    const uint32_t words[3] = {CM_CHUNK_MAGIC, (uint32_t)kind, (uint32_t)payload_length};
    for (int i = 0; i < 12; i++)
        chunk[i] = (uint8_t)(words[i / 4] >> 8 * (i % 4));
    uint32_t crc = cm_crc32c(0, chunk, 12);
    crc = cm_crc32c(crc, chunk + CM_CHUNK_HEADER_SIZE, payload_length);
    for (int i = 0; i < 4; i++)
        chunk[12 + i] = (uint8_t)(crc >> 8 * i);
}
