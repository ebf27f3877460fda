/* Which process a ring belongs to, and whether that still runs. */
#ifndef CM_CAPTURE_RING_OWNER_H
#define CM_CAPTURE_RING_OWNER_H

#include "ring.h"

/* Writes this process into the header. What cannot be told (no /proc) stays 0. */
void cm_owner_sign(cm_ring_header *header);

/* Whether it is known that the owner saw the same processes as we do. */
bool cm_owner_is_of_our_namespace(const cm_ring_header *header);

/* Whether the process with this number (as F_GETLK gives it here) may be the owner: also true where
 * that cannot be known. */
bool cm_owner_may_be(const cm_ring_header *header, pid_t pid);

/* When the owner began, in nanoseconds since 1970, as late as it may have been; 0 unknown. */
int64_t cm_owner_began_ns(const cm_ring_header *header);

/* The same as text, for a trace whose ring has no file ("ring.owner"). */
enum { CM_OWNER_TEXT = 64 };
void cm_owner_write(const cm_ring_header *header, char text[CM_OWNER_TEXT]);

typedef enum cm_owner { CM_OWNER_UNKNOWN, CM_OWNER_RUNS, CM_OWNER_GONE } cm_owner;
/* Whether a recording that says this of itself still goes on. Unknown from another pid namespace.
 */
cm_owner cm_owner_find(uint64_t ring_id, const char *text);

#endif
