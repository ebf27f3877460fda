/* In the place of what libFuzzer has: numbers that are always the same, and blind mutations. */
#ifndef CM_TESTS_FUZZ_BLIND_H
#define CM_TESTS_FUZZ_BLIND_H

#include <stddef.h>
#include <stdint.h>

void fuzz_draw_from(uint64_t seed);
uint64_t fuzz_draw(void);

size_t LLVMFuzzerMutate(uint8_t *data, size_t size, size_t room);

#endif
