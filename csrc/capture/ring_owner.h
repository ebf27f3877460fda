/* Which process a ring belongs to, and whether that still runs. */
#ifndef CM_CAPTURE_RING_OWNER_H
#define CM_CAPTURE_RING_OWNER_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "../trace/tail.h"
#include "ring_layout.h"

/* Writes this process into the header. What cannot be found out (no /proc) stays 0. */
void cm_owner_sign(cm_ring_header *header);

/* Whether the owner is known to be of this process's pid namespace. */
bool cm_owner_is_of_our_namespace(const cm_ring_header *header);

/* Whether the process with this number (as F_GETLK gives it here) may be the owner: also true where
 * that cannot be known. */
bool cm_owner_may_be(const cm_ring_header *header, pid_t pid);

/* When the owner began, in nanoseconds since 1970, as late as it may have been; 0 unknown. */
int64_t cm_owner_began_ns(const cm_ring_header *header);

/* The owner as text, for the trace of a ring without a file ("ring.owner"). */
enum { CM_OWNER_TEXT = 64 };
void cm_owner_write(const cm_ring_header *header, char text[CM_OWNER_TEXT]);
cm_owner cm_owner_find(const char *text);

/* Write-locks the whole file for this process. False: another process has it. */
bool cm_ring_lock(int fd);

/* Whether a ring with a free lock has no writer, as far as can be known. The owner loses the lock
 * for up to a second when its process closes another descriptor of the file. True if the owner is
 * gone, has released the ring, or has not signed for a while. */
bool cm_ring_is_abandoned(const cm_ring_header *header);

#endif
