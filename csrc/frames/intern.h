/* Stack ids: a lock-free table from the hash of a whole walk to its id, and behind it, under one
 * mutex, the exact tables (codes, stacks, strings, names) that are consulted when a walk is new.
 *
 * What makes a hash valid is the epoch: it seeds every hash and marks every entry. When something
 * a hash stood for may change its meaning (a code object's memory was freed), the epoch moves on,
 * and every remembered hash is stale at once: on all threads, without touching their memory. The
 * exact tables survive, so stacks looked up afresh get the ids they had. */
#ifndef CM_FRAMES_INTERN_H
#define CM_FRAMES_INTERN_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "walk.h"

/* One answer. The value holds the id (low half) and, xored, the upper half of the hash and the
 * epoch: a reader that meets a half-changed entry sees that value and hash do not belong together.
 */
typedef struct cm_flat_entry {
    _Atomic uint64_t hash, value;
} cm_flat_entry;

enum { CM_FLAT_WAYS = 8 }; /* an answer lies in one of the 8 places (128 bytes) of its set */

/* Everything the fast path reads that other threads write. */
struct cm_intern_shared {
    /* 0: stacks are off. The lowest bit says that modules are folded into their types. */
    _Atomic uint64_t epoch;
    _Atomic uint64_t module_code; /* first bytecode address << 16 | code units; 0: none */
    _Atomic uint32_t set_mask;
    cm_flat_entry *flat; /* fixed once an epoch is not 0; grows in place */
} __attribute__((aligned(64)));
extern struct cm_intern_shared cm_intern;

enum { CM_EPOCH_FOLDED = 1 };

static inline uint64_t cm_intern_tag(uint64_t hash, uint64_t epoch)
{
    return ((hash >> 32) ^ epoch) << 32;
}

/* The id of a walk that has this hash in this epoch. Lock-free. */
static inline bool cm_intern_find(uint64_t hash, uint64_t epoch, uint32_t *stack)
{
    uint32_t set = (uint32_t)hash & atomic_load_explicit(&cm_intern.set_mask, memory_order_relaxed);
    const cm_flat_entry *entry = cm_intern.flat + (size_t)set * CM_FLAT_WAYS;
    uint64_t tag = cm_intern_tag(hash, epoch);

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

/* The slow path: looks the levels of the walk up one by one, defines what is new and remembers
 * the answer under the hash. The frames must be the calling thread's live ones. CM_STACK_LOST when
 * a definition found no room; then nothing is remembered. */
uint32_t cm_intern_define_hook(const cm_walk *walk, uint64_t hash, bool truncated);

/* --- control, GIL held unless said otherwise; the contract is in control.h and walk.h ------- */

/* stacks: false where walks are impossible; names have ids all the same. */
int cm_intern_begin(bool stacks);
bool cm_intern_add_hidden(const char *prefix);
bool cm_intern_add_barrier(const void *code);
void cm_intern_set_module_code(uint64_t code);

/* A code object is about to be freed. Any thread of the interpreter. */
void cm_intern_forget_code(const void *code);

void cm_intern_lock(void);
void cm_intern_unlock(void);

#endif
