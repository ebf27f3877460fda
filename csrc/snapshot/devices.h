/* Which devices a snapshot is about, and which events are theirs. */
#ifndef CM_SNAPSHOT_DEVICES_H
#define CM_SNAPSHOT_DEVICES_H

#include "snapshot.h"

enum { CM_SNAP_DEVICES_MAX = 128 };

typedef struct cm_snap_device {
    uint8_t type; /* as in events */
    int8_t index;
    bool unreported; /* the recording that it is exported from has no total of reserved bytes */
    int32_t number;  /* in the snapshot; CM_SNAP_ANY_DEVICE of host memory */
    cm_snap_range segments, events;
} cm_snap_device;

/* How many; SIZE_MAX: more than there can be. */
size_t cm_snap_devices(const cm_snap *snapshot, cm_snap_device *device);

#endif
