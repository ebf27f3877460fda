/* Which process a ring belongs to, and whether that still runs. */
#ifndef CM_CAPTURE_OWNER_H
#define CM_CAPTURE_OWNER_H

#include "ring.h"

/* Writes this process into the header. What cannot be told (no /proc) stays 0. */
void cm_owner_sign(cm_ring_header *header);

/* Whether the process with this number (as F_GETLK gives it here) may be the owner: also true where
 * that cannot be known. */
bool cm_owner_may_be(const cm_ring_header *header, pid_t pid);

#endif
