/* Parameters and buffers that Module.to() and Module.cuda() moved to the device, as the frames of
 * PyTorch's own module.py show them. */
#ifndef CM_SNAPSHOT_MOVED_H
#define CM_SNAPSHOT_MOVED_H

#include "snapshot.h"

/* What a block with this stack is: CM_LABEL_MOVED_PARAMETER, CM_LABEL_MOVED_BUFFER or 0, unknown.
 * Of a version of PyTorch whose lines are not known here, all are. */
uint8_t cm_snap_moved(const cm_snap *snapshot, uint32_t stack);

#endif
