/* The blocks that are alive: a hash table keyed by (device, address), 32 bytes an entry. One owner,
 * any thread. Pointers into it are valid until the next put or take. */
#ifndef CM_ANALYSIS_BLOCKS_H
#define CM_ANALYSIS_BLOCKS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct cm_block {
    uint64_t address;
    int64_t size;
    uint32_t origin; /* cm_origin: whose it is */
    int32_t step;    /* that it was born in; -1 before the first */
    uint16_t device; /* number of the device in the replay */
    bool alive;      /* false: an empty slot */
} cm_block;

_Static_assert(sizeof(cm_block) == 32, "the promise of bytes per live block");

typedef struct cm_blocks {
    cm_block *slot;
    size_t slots, count; /* slots is 0 or a power of two; walk them to see all blocks */
} cm_blocks;

/* All zero is an empty table. */
void cm_blocks_clear(cm_blocks *blocks);
const cm_block *cm_blocks_find(const cm_blocks *blocks, uint16_t device, uint64_t address);
/* Adds a block whose (device, address) is not there yet. NULL: out of memory. */
const cm_block *cm_blocks_put(cm_blocks *blocks, const cm_block *block);
/* Removes one; false: not there. */
bool cm_blocks_take(cm_blocks *blocks, uint16_t device, uint64_t address, cm_block *out);

#endif
