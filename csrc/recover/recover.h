/* Inside of orphan.h: loads a ring file, and makes chunks of its tail. */
#ifndef CM_RECOVER_RECOVER_H
#define CM_RECOVER_RECOVER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "orphan.h"
#include "../capture/ring_layout.h"

typedef struct cm_recovered {
    unsigned char *chunks; /* malloc'ed */
    size_t length;
    uint64_t events;                   /* in these chunks */
    uint64_t lost_events, lost_stacks; /* of the whole capture */
} cm_recovered;

/* Reads the header alone. False: this is no ring file, or its offsets are not sound. */
bool cm_recover_header(int fd, cm_ring_header *header);

/* A copy of a ring file with sound offsets; NULL: it is none. free() it. Its counts and positions
 * are not checked. */
cm_ring_header *cm_recover_load(int fd);

/* Takes what follows the covers. False: out of memory. */
bool cm_recover(const cm_ring_header *header, const cm_covers *covers, cm_recovered *out);

/* How a trace ends, as far as it has whole chunks. */
typedef struct cm_trace_end {
    uint64_t ring_id; /* 0: none is named */
    uint64_t events;
    uint64_t side; /* the last batch of its side file that it has; 0: none */
    bool ended;    /* has its end chunk */
    cm_covers covers;
    uint64_t *ring; /* covers.ring; free() it */
} cm_trace_end;

/* False: unreadable, no trace, or it names another ring than this one (0: any). */
bool cm_trace_end_read(const char *path, uint64_t ring_id, cm_trace_end *out);

#endif
