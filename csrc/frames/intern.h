/* Stack ids: behind the lock-free table of flat.h, under one mutex, the exact tables (codes,
 * stacks, strings, names) that are consulted when a walk is new.
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

/* Everything the fast path reads that other threads write. */
struct cm_intern_shared {
    /* 0: stacks are off. The lowest bit says that modules are folded into their types. */
    _Atomic uint64_t epoch;
    _Atomic uint64_t module_code; /* first bytecode address << 16 | code units; 0: none */
} __attribute__((aligned(64)));
extern struct cm_intern_shared cm_intern;

enum { CM_EPOCH_FOLDED = 1 };

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
