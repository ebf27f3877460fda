/* What the process that wrote a trace without an end left elsewhere: in its rings. The reader asks
 * through pointers, because only recover/ knows ring files. */
#ifndef CM_TRACE_TAIL_H
#define CM_TRACE_TAIL_H

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

/* Unknown: the process is of another pid namespace, or never signed. */
typedef enum cm_owner { CM_OWNER_UNKNOWN, CM_OWNER_RUNS, CM_OWNER_GONE } cm_owner;

typedef struct cm_tail_source {
    /* Reads a ring file without changing it. *chunks is malloc'ed (may be empty) on
     * CM_TAIL_FOUND. */
    cm_tail (*read)(const char *ring_path, uint64_t ring_id, const cm_covers *covers,
                    unsigned char **chunks, size_t *length);
    /* Whether the recording with this ring and this "ring.owner" goes on. */
    cm_owner (*find_owner)(uint64_t ring_id, const char *owner);
} cm_tail_source;

/* Before the first reader; without it there are no rings. */
void cm_tail_set_source(const cm_tail_source *source);

#endif
