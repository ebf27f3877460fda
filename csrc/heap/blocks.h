/* The live blocks by device and address, 32 bytes each, on demand with a note (a number) beside
 * each. A hash table has their numbers in a pool, so that it does not hold room for blocks that it
 * lacks, nor a second copy of them while it grows. One owner, any thread. A pointer to a block is
 * valid until the next one is reserved, or it is taken. */
#ifndef CM_HEAP_BLOCKS_H
#define CM_HEAP_BLOCKS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "../base/pool.h"

typedef struct cm_block {
    uint64_t address;
    int64_t size;
    uint32_t origin;   /* cm_origin: its contributor; grouped: its cohort (cohorts.h) */
    int32_t step;      /* of birth; -1 before the first */
    uint16_t device;   /* number of the device in the replay */
    bool alive : 1;    /* false: reserved */
    bool direct : 1;   /* CM_EVF_DIRECT */
    bool made : 1;     /* in the window; false: before it */
    bool labelled : 1; /* the replay has a label for it */
    bool grouped : 1;
    uint8_t slack_high : 7;
    uint32_t slack_low;
} cm_block;

_Static_assert(sizeof(cm_block) == 32, "the promise of bytes per live block");

typedef struct cm_blocks {
    cm_pool block;
    uint32_t *slot;      /* numbers in it */
    size_t slots, count; /* slots is 0 or a power of two; count: with reserved ones */
    bool keyed;          /* hashed with the process's secret, see base/hash.h */
    bool noted;
    uint32_t *note; /* by number */
    size_t note_capacity;
} cm_blocks;

/* Bytes of the block beyond the request, at most 2^39 - 1. */
static inline int64_t cm_block_slack(const cm_block *block)
{
    return (int64_t)block->slack_high << 32 | block->slack_low;
}

static inline void cm_block_set_slack(cm_block *block, int64_t slack)
{
    uint64_t most = ((uint64_t)1 << 39) - 1,
             bytes = (uint64_t)slack > most ? most : (uint64_t)slack;
    block->slack_low = (uint32_t)bytes;
    block->slack_high = (uint8_t)(bytes >> 32 & 0x7f);
}

/* All zero is an empty table. */
void cm_blocks_clear(cm_blocks *blocks);
bool cm_blocks_copy(cm_blocks *copy,
                    const cm_blocks *blocks); /* false: out of memory, it is empty */
const cm_block *cm_blocks_find(const cm_blocks *blocks, uint16_t device, uint64_t address);
/* Only its slack, origin, cohort and label may be changed. */
cm_block *cm_blocks_at(cm_blocks *blocks, uint16_t device, uint64_t address);
/* The live block at (device, address), or one that is reserved for there: not alive. NULL: out of
 * memory. */
cm_block *cm_blocks_reserve(cm_blocks *blocks, uint16_t device, uint64_t address);
/* Fills it, alive or not. Its note is 0. */
void cm_blocks_fill(cm_blocks *blocks, cm_block *reserved, const cm_block *block);
/* Adds a block, or overwrites the one with its (device, address). NULL: out of memory. */
const cm_block *cm_blocks_put(cm_blocks *blocks, const cm_block *block);
/* Removes one; false: not there. note: receives its note (0 without notes), or NULL. */
bool cm_blocks_take(cm_blocks *blocks, uint16_t device, uint64_t address, cm_block *out,
                    uint32_t *note);
/* Adds notes to all blocks, 0 at first. false: out of memory. */
bool cm_blocks_keep_notes(cm_blocks *blocks);

/* Of a block in the table, if blocks have notes; valid until the next block is reserved. */
uint32_t *cm_blocks_note(const cm_blocks *blocks, const cm_block *block);
size_t cm_blocks_bytes(const cm_blocks *blocks); /* of memory */

static inline cm_block *cm_blocks_numbered(const cm_blocks *blocks, uint32_t number)
{
    return cm_pool_at(&blocks->block, sizeof(cm_block), number);
}

/* The next live block in the order of slots, from *at = 0 on; NULL: no more. */
static inline const cm_block *cm_blocks_next(const cm_blocks *blocks, size_t *at)
{
    while (*at < blocks->slots) {
        uint32_t number = blocks->slot[(*at)++];
        if (number != 0 && cm_blocks_numbered(blocks, number)->alive)
            return cm_blocks_numbered(blocks, number);
    }
    return NULL;
}

#endif
