/* The handles that an expandable segment is made of. */
#ifndef CM_SNAPSHOT_HANDLE_H
#define CM_SNAPSHOT_HANDLE_H

#include "snapshot.h"

/* The size of those in a range of this size: PyTorch maps handles of one size into a segment, the
 * small ones for small blocks. */
int64_t cm_handle_size(const cm_snap *snapshot, int64_t size);

#endif
