/* Stack ids: the exact tables (codes, stacks, strings, names), under one mutex, for walks that the
 * lock-free cache of flat.h does not know.
 *
 * The epoch seeds every hash and marks every entry. When the meaning of a hash may change, because
 * a code object was freed, the epoch advances. That makes every remembered hash stale on all
 * threads, without touching their memory. The exact tables survive, so stacks keep their ids. */
#ifndef CM_FRAMES_INTERN_H
#define CM_FRAMES_INTERN_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "walk.h"

/* What the fast path reads and other threads write. */
struct cm_intern_shared {
    /* 0: stacks are off. The lowest bit: modules are collapsed into their types. */
    _Atomic uint64_t epoch;
    _Atomic uint64_t module_code; /* first bytecode address << 16 | code units; 0: none */
} __attribute__((aligned(64)));
extern struct cm_intern_shared cm_intern;

enum { CM_EPOCH_COLLAPSED = 1 };

/* The slow path: looks up the walk's levels one by one, defines new ones and caches the id under
 * the hash. The frames must be the calling thread's live ones. CM_STACK_LOST if there was no room
 * for a definition; then nothing is cached. */
uint32_t cm_intern_define_hook(const cm_walk *walk, uint64_t hash, bool truncated);

/* --- control, GIL held unless said otherwise; the contract is in control.h and walk.h ------- */

/* stacks: false if walks are impossible; names get ids all the same. */
int cm_intern_begin(bool stacks);
bool cm_intern_add_hidden(const char *prefix);
bool cm_intern_add_barrier(const void *code);
void cm_intern_set_module_code(uint64_t code);

/* A code object is about to be freed. Any thread of the interpreter. */
void cm_intern_forget_code(const void *code);

void cm_intern_lock(void);
void cm_intern_unlock(void);

#endif
