/* Interned things, numbered in the order in which they came first: texts, records of one size, and
 * sequences of numbers. Keys come out of a file, so their hashes are secret (base/hash.h). One
 * owner; the add functions are false where there is no memory or more than CM_INTERN_MAX. */
#ifndef CM_SNAPSHOT_INTERN_H
#define CM_SNAPSHOT_INTERN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { CM_INTERN_MAX = (1 << 30) - 2 };

typedef struct cm_intern {
    uint8_t *bytes; /* of all, one after the other */
    size_t length, capacity;
    uint64_t *start; /* of each, and the end of the last */
    size_t count, start_capacity;
    uint32_t *hash;
    size_t hash_capacity;
    uint32_t *slot; /* number + 1 */
    size_t slots;
} cm_intern;

typedef cm_intern cm_texts, cm_records, cm_sequences;

bool cm_intern_add(cm_intern *intern, const void *bytes, size_t length, uint32_t *id);
void cm_intern_clear(cm_intern *intern);

static inline const void *cm_intern_at(const cm_intern *intern, uint32_t id, size_t *length)
{
    *length = (size_t)(intern->start[id + 1] - intern->start[id]);
    return intern->bytes + intern->start[id];
}

static inline const void *cm_records_at(const cm_records *records, uint32_t id)
{
    return records->bytes + records->start[id];
}

#endif
