/* What was alive before the first event that a snapshot has kept: the state at its end, with the
 * events undone from the last to the first. */
#ifndef CM_SNAPSHOT_HISTORY_H
#define CM_SNAPSHOT_HISTORY_H

#include "snapshot.h"

typedef struct cm_snap_before {
    uint64_t address;
    int64_t size, requested;
    uint32_t stack; /* 0: unknown, or none */
    bool expandable;
} cm_snap_before;

typedef struct cm_snap_history {
    cm_snap_before *block, *segment;
    size_t blocks, segments, block_capacity, segment_capacity;
} cm_snap_history;

/* Of a device with these events; of the segments those that name it. Gives each allocation that is
 * still alive its block's size. false: out of memory. */
bool cm_snap_history_of(cm_snap *snapshot, cm_snap_range segments, int32_t device,
                        cm_snap_range events, cm_snap_history *out);
void cm_snap_history_clear(cm_snap_history *history);

enum { CM_SNAP_ANY_DEVICE = -1 };

/* Whether an address is that of memory: the others are keys of nothing. */
static inline bool cm_snap_is_address(uint64_t address)
{
    return address != 0 && address != UINT64_MAX;
}

#endif
