#include "ordered.h"

#include <stdlib.h>

#include "../base/grow.h"

bool cm_ordered_add(cm_ordered *o, uint64_t key)
{
    if (!cm_grow((void **)&o->key, &o->capacity, o->count + 1, sizeof *o->key))
        return false;
    o->key[o->count++] = key;
    return true;
}

static int by_key(const void *a, const void *b)
{
    uint64_t one = *(const uint64_t *)a, other = *(const uint64_t *)b;
    return (one > other) - (one < other);
}

bool cm_ordered_build(cm_ordered *o)
{
    size_t distinct = 0;
    cm_sort(o->key, o->count, sizeof *o->key, by_key);
    for (size_t i = 0; i < o->count; i++)
        if (i == 0 || o->key[i] != o->key[i - 1])
            o->key[distinct++] = o->key[i];
    o->count = distinct;
    size_t bits = o->count;
    for (int i = 0; i < CM_ORDERED_LEVELS; i++) {
        bits = bits / 64 + 1;
        o->level[i] = calloc(bits, sizeof **o->level);
        if (o->level[i] == NULL)
            return false;
    }
    return true;
}

void cm_ordered_clear(cm_ordered *o)
{
    free(o->key);
    for (int i = 0; i < CM_ORDERED_LEVELS; i++)
        free(o->level[i]);
    *o = (cm_ordered){0};
}

size_t cm_ordered_find(const cm_ordered *o, uint64_t key)
{
    size_t low = 0, high = o->count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (o->key[middle] < key)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

void cm_ordered_use(cm_ordered *o, size_t number, bool used)
{
    for (int i = 0; i < CM_ORDERED_LEVELS; i++, number /= 64) {
        uint64_t *word = &o->level[i][number / 64], bit = UINT64_C(1) << number % 64;
        *word = used ? *word | bit : *word & ~bit;
        used = *word != 0;
    }
}

/* Down again, always to the lowest, or highest, bit. */
static size_t descend(const cm_ordered *o, int level, size_t number, bool lowest)
{
    while (level-- > 0) {
        uint64_t word = o->level[level][number];
        number =
            number * 64 + (size_t)(lowest ? __builtin_ctzll(word) : 63 - __builtin_clzll(word));
    }
    return number;
}

size_t cm_ordered_next(const cm_ordered *o, size_t number)
{
    size_t bits = o->count;
    for (int i = 0; i < CM_ORDERED_LEVELS; i++) {
        if (number / 64 > bits / 64)
            return SIZE_MAX;
        uint64_t word = o->level[i][number / 64] >> number % 64;
        if (word != 0)
            return descend(o, i, number + (size_t)__builtin_ctzll(word), true);
        number = number / 64 + 1;
        bits = bits / 64 + 1;
    }
    return SIZE_MAX;
}

size_t cm_ordered_last(const cm_ordered *o, size_t number)
{
    for (int i = 0; i < CM_ORDERED_LEVELS; i++) {
        uint64_t word = o->level[i][number / 64] << (63 - number % 64);
        if (word != 0)
            return descend(o, i, number - (size_t)__builtin_clzll(word), false);
        if (number / 64 == 0)
            return SIZE_MAX;
        number = number / 64 - 1;
    }
    return SIZE_MAX;
}
