/* Which bytes of device memory mean something: those that the host wrote there, by a copy whose
 * contents were kept or by a memset, byte for byte.
 *
 * All other bytes stand for what a kernel would have computed. They are zero, always: making a byte
 * unknown clears it, so what is read never depends on what was there before.
 *
 * Kept for each chunk of 2 MiB: nothing known, all known to be zero, all known, or a table of its
 * 4 KiB pages, each with the same three states or a bit per byte. Memory that the host never
 * touches costs nothing, and large ranges cost a store per chunk. */
#ifndef CM_SIM_KNOWN_H
#define CM_SIM_KNOWN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* All ranges are accessible device memory, but for drop. What the host has no memory to remember is
 * unknown, and noted. */
void cm_sim_known_forget(uintptr_t at, size_t bytes); /* becomes unknown */
void cm_sim_known_zero(uintptr_t at, size_t bytes);   /* becomes known zeros */
/* The host's bytes, copied into it. */
void cm_sim_known_write(uintptr_t at, const void *from, size_t bytes);
void cm_sim_known_fill(uintptr_t at, int value, size_t bytes);
/* Reads into host memory; returns how many of the bytes are known. */
size_t cm_sim_known_read(void *to, uintptr_t at, size_t bytes);
/* The same for `count` elements of `item` bytes: known[i] is whether all of element i is known.
 * Returns how many are. */
size_t cm_sim_known_elements(void *to, uintptr_t at, size_t item, size_t count, uint8_t *known);
/* Copies bytes and knowledge within device memory; without keep, of the known bytes only zeros. */
void cm_sim_known_carry(uintptr_t to, uintptr_t from, size_t bytes, bool keep);
/* Whole chunks: their memory is being released. */
void cm_sim_known_drop(uintptr_t at, size_t bytes);

#endif
