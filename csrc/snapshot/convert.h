/* Writes what a snapshot says as a trace, which every reader of traces takes. */
#ifndef CM_SNAPSHOT_CONVERT_H
#define CM_SNAPSHOT_CONVERT_H

#include <sys/types.h>

#include "snapshot.h"

/* path: must not exist. meta: key, value, ..., NULL. The snapshot's allocations get the sizes of
 * their blocks. false: there is no trace, and the error is one line. */
bool cm_snap_convert(cm_snap *snapshot, const char *path, mode_t mode, const char *const *meta,
                     char *error, size_t error_size);

#endif
