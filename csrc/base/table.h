/* Open addressing in an array that its owner keeps: a power of two of slots, each free or taken by
 * an entry. Removal closes the gap, so that no search stops early and no tombstones pile up.
 *
 * A kind is a constant, so that its functions are inlined into the loops here. Slots of all zero
 * are free. Hashes of keys that come out of a file end in cm_hash (hash.h); where the order of
 * slots shows, see CM_HASH_LONG there. */
#ifndef CM_BASE_TABLE_H
#define CM_BASE_TABLE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

typedef struct cm_table_kind {
    size_t bytes;    /* of an entry */
    size_t least;    /* slots of the first array */
    size_t quarters; /* of the slots, which may be taken */
    bool (*is_taken)(const void *entry);
    uint64_t (*hash)(const void *owner, const void *entry);
    bool (*is)(const void *owner, const void *entry, const void *wanted);
} cm_table_kind;

#define CM_TABLE_INLINE static inline __attribute__((always_inline))

CM_TABLE_INLINE const void *cm_table_at(const cm_table_kind *kind, const void *slot, size_t i)
{
    return (const char *)slot + i * kind->bytes;
}

/* The slot of what is wanted, or the free one where it belongs. hash: of what is wanted. */
CM_TABLE_INLINE size_t cm_table_find(const cm_table_kind *kind, const void *owner, const void *slot,
                                     size_t slots, uint64_t hash, const void *wanted)
{
    size_t i = hash & (slots - 1);
    while (kind->is_taken(cm_table_at(kind, slot, i)) &&
           !kind->is(owner, cm_table_at(kind, slot, i), wanted))
        i = (i + 1) & (slots - 1);
    return i;
}

/* Moves all entries into an array of so many slots. false: out of memory, nothing changed. */
CM_TABLE_INLINE bool cm_table_rebuild(const cm_table_kind *kind, const void *owner, void **slot,
                                      size_t *slots, size_t wanted)
{
    char *fresh = calloc(wanted, kind->bytes);
    if (fresh == NULL)
        return false;
    for (size_t i = 0; i < *slots; i++) {
        const void *entry = cm_table_at(kind, *slot, i);
        if (!kind->is_taken(entry))
            continue;
        size_t to = kind->hash(owner, entry) & (wanted - 1);
        while (kind->is_taken(cm_table_at(kind, fresh, to)))
            to = (to + 1) & (wanted - 1);
        memcpy(fresh + to * kind->bytes, entry, kind->bytes);
    }
    free(*slot);
    *slot = fresh;
    *slots = wanted;
    return true;
}

/* Room for one entry beside `count`. false: out of memory, nothing changed. */
CM_TABLE_INLINE bool cm_table_make_room(const cm_table_kind *kind, const void *owner, void **slot,
                                        size_t *slots, size_t count)
{
    return count * 4 < *slots * kind->quarters ||
           cm_table_rebuild(kind, owner, slot, slots, *slots ? *slots * 2 : kind->least);
}

/* The entry that must move into the hole, leaving the next one; SIZE_MAX: none. */
CM_TABLE_INLINE size_t cm_table_filler(const cm_table_kind *kind, const void *owner,
                                       const void *slot, size_t slots, size_t hole)
{
    size_t mask = slots - 1;
    for (size_t i = (hole + 1) & mask; kind->is_taken(cm_table_at(kind, slot, i));
         i = (i + 1) & mask) {
        size_t first = kind->hash(owner, cm_table_at(kind, slot, i)) & mask;
        if (((i - first) & mask) >= ((i - hole) & mask))
            return i;
    }
    return SIZE_MAX;
}

/* Removes the entry. Pointers to others are then stale. */
CM_TABLE_INLINE void cm_table_remove(const cm_table_kind *kind, const void *owner, void *slot,
                                     size_t slots, size_t hole)
{
    char *bytes = slot;
    for (size_t i; (i = cm_table_filler(kind, owner, slot, slots, hole)) != SIZE_MAX; hole = i)
        memcpy(bytes + hole * kind->bytes, bytes + i * kind->bytes, kind->bytes);
    memset(bytes + hole * kind->bytes, 0, kind->bytes);
}

/* For tables of numbers, from 1, of objects stored elsewhere. */
static inline bool cm_table_is_number(const void *entry)
{
    return *(const uint32_t *)entry != 0;
}

static inline uint32_t cm_table_index(const void *entry)
{
    return *(const uint32_t *)entry - 1;
}

#endif
