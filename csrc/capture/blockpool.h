/* The ring file's blocks: which are free, and how those of one ring are chained. */
#ifndef CM_CAPTURE_BLOCKPOOL_H
#define CM_CAPTURE_BLOCKPOOL_H

#include <stddef.h>

#include "ring_layout.h"

/* Indices that any thread takes and gives back, lock-free. The high half of top is a tag that grows
 * with every change, so that a compare-and-swap cannot mistake a returned index for the same list.
 */
typedef struct cm_freelist {
    _Atomic uint64_t top;   /* tag << 32 | index + 1 */
    _Atomic uint32_t fresh; /* indices from here on were never taken */
    uint32_t capacity;
    _Atomic uint32_t *next;
} cm_freelist;

/* index + 1, or 0 when there is none. */
uint32_t cm_freelist_take_hook(cm_freelist *list);
void cm_freelist_give(cm_freelist *list, uint32_t index);

/* Begun, limited and moved by ringfile.c. */
typedef struct cm_blockpool_state {
    cm_ring_block *blocks;
    uint32_t count;
    _Atomic uint32_t wake_at; /* blocks in use that wake the collector; it changes this itself */
    _Atomic uint32_t used;
    cm_freelist free;
    _Atomic uint32_t *link; /* per block: the next block of its chain + 1, or 0 */
    uint64_t *base; /* per block: the position of its first event, published by the link to it */
} cm_blockpool_state;

extern cm_blockpool_state cm_blockpool;

static inline cm_ring_block *cm_blockpool_at(uint32_t index_plus_one)
{
    return &cm_blockpool.blocks[index_plus_one - 1];
}

/* Bytes of the tables for begin, zeroed, aligned to 8. */
size_t cm_blockpool_table_bytes(uint32_t count);
/* All blocks are free. */
void cm_blockpool_begin(cm_ring_block *blocks, uint32_t count, void *tables);
/* Fewer blocks than before; those beyond were never taken. */
void cm_blockpool_limit(uint32_t count);
/* Blocks below this number may have been taken. */
uint32_t cm_blockpool_touched(void);

/* Takes a block and writes its header; index + 1, or 0: there is none. Wakes the collector when
 * blocks get scarce. */
uint32_t cm_blockpool_take_hook(uint32_t ring, uint64_t base, uint32_t serial);
void cm_blockpool_give(uint32_t index_plus_one);

#endif
