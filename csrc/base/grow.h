/* Arrays that grow by half of themselves. Any thread; the caller owns the array. */
#ifndef CM_BASE_GROW_H
#define CM_BASE_GROW_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

/* Room for at least `count` elements of `element` bytes. false: out of memory, nothing changed. */
static inline bool cm_grow(void **array, size_t *capacity, size_t count, size_t element)
{
    if (count <= *capacity)
        return true;
    size_t wanted = *capacity + *capacity / 2;
    if (wanted < count)
        wanted = count;
    if (wanted < 16)
        wanted = 16;
    if (wanted > SIZE_MAX / element)
        return false;
    void *larger = realloc(*array, wanted * element);
    if (larger == NULL)
        return false;
    *array = larger;
    *capacity = wanted;
    return true;
}

/* The same, and new elements are all zero. */
static inline bool cm_grow_zeroed(void **array, size_t *capacity, size_t count, size_t element)
{
    size_t before = *capacity;
    if (count <= before)
        return true;
    if (!cm_grow(array, capacity, count, element))
        return false;
    memset((char *)*array + before * element, 0, (*capacity - before) * element);
    return true;
}

/* A copy of an array of so many elements, NULL where there are none. false: out of memory, and
 * *copy is NULL. */
static inline bool cm_copy(void **copy, const void *array, size_t count, size_t element)
{
    *copy = count > 0 ? malloc(count * element) : NULL;
    if (*copy != NULL)
        memcpy(*copy, array, count * element);
    return *copy != NULL || count == 0;
}

/* Sorts an array of so many elements, which may be NULL where there are none: qsort may not get
 * that. */
static inline void cm_sort(void *array, size_t count, size_t element,
                           int (*compare)(const void *, const void *))
{
    if (count > 1)
        qsort(array, count, element, compare);
}

/* Finishing step of a hash: every bit of x reaches the low bits. */
static inline uint64_t cm_mix(uint64_t x)
{
    x ^= x >> 32;
    x *= 0x9e3779b97f4a7c15u;
    return x ^ x >> 29;
}

#endif
