/* The sizes of blocks. A snapshot says of an allocation what was asked for; what PyTorch's
 * allocator gave out follows from its rules. */
#ifndef CM_SNAPSHOT_SIZES_H
#define CM_SNAPSHOT_SIZES_H

#include "devices.h"
#include "history.h"

/* Gives each allocation of the device, each free, and each block from before the size of its block.
 * false: out of memory. */
bool cm_snap_sizes(cm_snap *snapshot, const cm_snap_device *device, cm_snap_history *before);

#endif
