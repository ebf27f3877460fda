/* Address space: host mappings that stand for device addresses, and what lies at each of them.
 *
 * Everything that is device memory or reserved for it lies in chunks of 2 MiB that belong to one
 * owner each; a two-level table leads from an address to its chunk without a lock. */
#ifndef CM_SIM_SPACE_H
#define CM_SIM_SPACE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define CM_SIM_CHUNK ((size_t)1 << 21)

typedef struct cm_sim_chunk {
    _Atomic(void *) owner;   /* NULL: not device memory; else a cm_sim_region (memory.h) */
    _Atomic uintptr_t known; /* which bytes the host wrote: known.c */
} cm_sim_chunk;

static inline size_t cm_sim_round(size_t bytes, size_t unit)
{
    return (bytes + unit - 1) / unit * unit;
}

/* NULL: nothing near that address was ever allocated. */
cm_sim_chunk *cm_sim_chunk_of(uintptr_t address);

/* bytes: whole chunks; alignment: a power of two, at least a chunk. NULL: the host refuses.
 * Untouched pages cost nothing; without access they fault. */
void *cm_sim_space_take(size_t bytes, size_t alignment, bool access, void *owner);
void cm_sim_space_give(void *address, size_t bytes);
/* false: the host refuses. */
bool cm_sim_space_protect(void *address, size_t bytes, bool readable, bool writable);
/* Contents gone, no access, addresses kept. false: the host refuses. */
bool cm_sim_space_clear(void *address, size_t bytes);

#endif
