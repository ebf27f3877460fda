/* What a process that did not stop its capture left in its ring file.
 *
 * A trace names its ring file in its meta ("ring.path", "ring.id"). While the process lives it
 * holds a POSIX record lock on it. Afterwards the ring holds exactly what the trace lacks: the
 * trace's last cover positions say where to go on. */
#ifndef CM_RECOVER_ORPHAN_H
#define CM_RECOVER_ORPHAN_H

#include <stdbool.h>
#include <stddef.h>

#include "../trace/tail.h"

/* Reads rings at their path, or where they are kept (kept_rings.h). */
extern const cm_tail_source cm_orphan_tail;

/* Looks through ring_dir for rings that no process locks: appends each tail to its trace and
 * removes the ring. One whose trace is not there moves to where such are kept (kept_rings.h); one
 * whose trace cannot be written to stays, for 7 days. Returns how many were handled. Called when a
 * capture starts. */
int cm_orphan_sweep(const char *ring_dir);
/* The same for several folders, closed by NULL. True: a line for the user is in note. It reads
 * whole rings and writes to traces, so that the caller holds no lock, nor the GIL. */
bool cm_orphan_sweep_all(const char *const *folders, char *note, size_t note_size);

#endif
