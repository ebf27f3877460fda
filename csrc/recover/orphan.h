/* What a process that did not stop its capture left in its ring file.
 *
 * A trace names its ring file in its meta ("ring.path", "ring.id"). While the process lives it
 * holds a POSIX record lock on it. Afterwards the ring holds exactly what the trace lacks: the
 * trace's last cover positions say where to go on. */
#ifndef CM_RECOVER_ORPHAN_H
#define CM_RECOVER_ORPHAN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Positions up to which the trace already has each ring (from the last covers in the file). */
typedef struct cm_covers {
    const uint64_t *ring; /* index = ring number; rings beyond count are at 0 */
    size_t count;
    uint64_t log;
} cm_covers;

typedef enum cm_tail {
    CM_TAIL_NONE = 0,  /* no such ring file, or another capture's */
    CM_TAIL_ALIVE = 1, /* its process still runs */
    CM_TAIL_FOUND = 2  /* *chunks holds whole chunks to read after those of the file */
} cm_tail;

/* Reads the ring without changing it, at this path or where rings are kept (kept_rings.h). *chunks
 * is malloc'ed (may be empty) on CM_TAIL_FOUND. */
cm_tail cm_orphan_read(const char *ring_path, uint64_t ring_id, const cm_covers *covers,
                       unsigned char **chunks, size_t *length);

/* Looks through ring_dir for rings that no process locks: appends each tail to its trace and
 * removes the ring. One whose trace is not there moves to where such are kept (kept_rings.h); one
 * whose trace cannot be written to stays, for 7 days. Returns how many were handled. Called when a
 * capture starts. */
int cm_orphan_sweep(const char *ring_dir);

#endif
