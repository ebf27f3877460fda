/* The blocks that are alive while a trace is exported, with what only their birth tells, in the
 * order of births. One owner, any thread. Pointers are valid until the next add or take. */
#ifndef CM_EXPORTS_LIVE_H
#define CM_EXPORTS_LIVE_H

#include "../analysis/stream.h"
#include "../heap/blocks.h"

typedef struct cm_live_block {
    uint64_t address, time_ns;
    int64_t bytes, requested;
    uint64_t segment; /* the address of the one around it */
    uint32_t origin, thread;
    int32_t step;
    uint32_t before, after; /* in the order of births: number + 1; 0 = none */
    uint16_t device;
    bool requested_known, inside; /* inside: of a segment */
    bool started, reported;       /* started: alive when the window began */
} cm_live_block;

typedef struct cm_live {
    cm_blocks at; /* the note: number + 1 */
    cm_live_block *block;
    size_t count, capacity; /* free ones are among them */
    uint32_t first, last, free;
} cm_live;

/* All zero is empty. */
void cm_live_clear(cm_live *live);
/* Adds the block of a START or ALLOC. NULL: out of memory. */
cm_live_block *cm_live_add(cm_live *live, const cm_item *item, const cm_replay *replay);
cm_live_block *cm_live_find(cm_live *live, int16_t device, uint64_t address);
/* Removes one; false: not there. */
bool cm_live_take(cm_live *live, int16_t device, uint64_t address, cm_live_block *out);
/* The next one in the order of births, the first one after 0; 0: no more. */
uint32_t cm_live_next(const cm_live *live, uint32_t after);

/* The bytes that were asked for. false: not known. */
bool cm_live_requested(const cm_replay *replay, const cm_item *item, int64_t *bytes);

#endif
