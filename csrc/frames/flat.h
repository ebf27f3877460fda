/* The lock-free cache from a walk's hash to its stack id. Reading it is every thread's fast path; a
 * writer holds the intern mutex. An evicted walk is looked up again, level by level, and gets the
 * same id. */
#ifndef CM_FRAMES_FLAT_H
#define CM_FRAMES_FLAT_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The value's low half is the id; its high half is the hash's upper half xor the epoch. So a reader
 * of a half-changed entry sees that value and hash do not belong together. */
typedef struct cm_flat_entry {
    _Atomic uint64_t hash, value;
} cm_flat_entry;

enum { CM_FLAT_WAYS = 8 }; /* entries of a set (128 bytes) */

struct cm_flat_shared {
    cm_flat_entry *entries; /* fixed once mapped; the table grows in place */
    _Atomic uint32_t set_mask;
};
extern struct cm_flat_shared cm_flat;

static inline uint64_t cm_flat_tag(uint64_t hash, uint64_t epoch)
{
    return ((hash >> 32) ^ epoch) << 32;
}

/* Finds the id for this hash (not 0) in this epoch. Lock-free. */
static inline bool cm_flat_find_hook(uint64_t hash, uint64_t epoch, uint32_t *stack)
{
    uint32_t set = (uint32_t)hash & atomic_load_explicit(&cm_flat.set_mask, memory_order_relaxed);
    const cm_flat_entry *entry = cm_flat.entries + (size_t)set * CM_FLAT_WAYS;
    uint64_t tag = cm_flat_tag(hash, epoch);

    for (int i = 0; i < CM_FLAT_WAYS; i++) {
        if (atomic_load_explicit(&entry[i].hash, memory_order_acquire) != hash)
            continue;
        uint64_t value = atomic_load_explicit(&entry[i].value, memory_order_relaxed);
        if ((value ^ tag) >> 32 == 0) {
            *stack = (uint32_t)value;
            return true;
        }
    }
    return false;
}

/* --- intern mutex held ---------------------------------------------------------------------- */

bool cm_flat_map(void);       /* once, before the first epoch; false: no memory */
void cm_flat_clear(void);     /* also resets its size; there must be no reader */
void cm_flat_new_epoch(void); /* makes all entries stale */
void cm_flat_remember(uint64_t hash, uint64_t epoch, uint32_t stack);
size_t cm_flat_bytes(void);

#endif
