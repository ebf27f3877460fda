/* Recovers the ring of a process that did not stop its capture.
 *
 * A trace names its ring file in its meta ("ring.path", "ring.id"). While the process lives it
 * holds a POSIX record lock on it. Afterwards the ring holds exactly what the trace lacks, from the
 * trace's last cover positions on. */
#ifndef CM_RECOVER_ORPHAN_H
#define CM_RECOVER_ORPHAN_H

#include <stdbool.h>
#include <stddef.h>

#include "../trace/tail.h"

/* Reads rings at their path, or where they are kept (kept_rings.h). */
extern const cm_tail_source cm_orphan_tail;

/* Scans ring_dir for this user's rings that no process locks: appends each tail to its trace and
 * removes the ring. A ring without its trace moves to the kept rings (kept_rings.h). One that
 * cannot, or that has an unwritable trace, stays where it is for 7 days. Returns how many were
 * handled. Called when a capture starts. */
int cm_orphan_sweep(const char *ring_dir);
/* The same for several folders, ended by NULL. True: note holds a line for the user. It reads whole
 * rings and writes traces, so the caller holds no lock and no GIL. */
bool cm_orphan_sweep_all(const char *const *folders, char *note, size_t note_size);

#endif
