/* The live blocks: a hash table keyed by (device, address), 32 bytes an entry, on demand with a
 * note (a number) beside each. One owner, any thread. Pointers into it are valid until the next put
 * or take. */
#ifndef CM_HEAP_BLOCKS_H
#define CM_HEAP_BLOCKS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct cm_block {
    uint64_t address;
    int64_t size;
    uint32_t origin;   /* cm_origin: its contributor; grouped: its cohort (cohorts.h) */
    int32_t step;      /* of birth; -1 before the first */
    uint16_t device;   /* number of the device in the replay */
    bool alive : 1;    /* false: an empty slot */
    bool direct : 1;   /* CM_EVF_DIRECT */
    bool made : 1;     /* in the window; false: before it */
    bool labelled : 1; /* the replay has a label for it */
    bool grouped : 1;
    uint8_t slack_high : 7;
    uint32_t slack_low;
} cm_block;

_Static_assert(sizeof(cm_block) == 32, "the promise of bytes per live block");

typedef struct cm_blocks {
    cm_block *slot;
    size_t slots, count; /* slots is 0 or a power of two; walk them to see all blocks */
    bool keyed;          /* hashed with the process's secret, see base/hash.h */
    bool noted;
    uint32_t *note; /* of each slot, or NULL */
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
/* The slot of (device, address): of the live block there, or empty and with room for one. NULL: out
 * of memory. */
cm_block *cm_blocks_reserve(cm_blocks *blocks, uint16_t device, uint64_t address);
/* Fills it, empty or not, before any other call. */
void cm_blocks_fill(cm_blocks *blocks, cm_block *slot, const cm_block *block);
/* Adds a block, or overwrites the one with its (device, address). NULL: out of memory. */
const cm_block *cm_blocks_put(cm_blocks *blocks, const cm_block *block);
/* Removes one; false: not there. note: receives its note (0 without notes), or NULL. */
bool cm_blocks_take(cm_blocks *blocks, uint16_t device, uint64_t address, cm_block *out,
                    uint32_t *note);
/* Adds notes to all blocks, 0 at first. false: out of memory. */
bool cm_blocks_keep_notes(cm_blocks *blocks);

/* The next block in the order of slots, the first one after NULL; NULL: no more. Slots are counted:
 * an empty table has no address that could be added to. */
static inline const cm_block *cm_blocks_next(const cm_blocks *blocks, const cm_block *after)
{
    size_t i = after == NULL ? 0 : (size_t)(after - blocks->slot) + 1;
    for (; i < blocks->slots; i++)
        if (blocks->slot[i].alive)
            return &blocks->slot[i];
    return NULL;
}

/* Of a block in the table, if blocks have notes. */
static inline uint32_t *cm_blocks_note(const cm_blocks *blocks, const cm_block *block)
{
    return &blocks->note[block - blocks->slot];
}

#endif
