/* The segments that PyTorch's CUDA allocator holds. One owner, any thread.
 *
 * A walk at the start may find segments that are already known, or were freed during the walk: the
 * recorded events count. */
#ifndef CM_HEAP_SEGMENTS_H
#define CM_HEAP_SEGMENTS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "../base/idmap.h"

typedef struct cm_segment {
    uint64_t address;
    int64_t size;
    uint32_t stack;
    uint16_t device;   /* number of the device in the replay */
    bool before_start; /* found by a walk */
} cm_segment;

typedef struct cm_segments {
    cm_segment *segment;
    size_t count, capacity;
    cm_idmap at;   /* address -> index */
    cm_idmap gone; /* freed before it became known */
} cm_segments;

/* All zero is an empty table. */
void cm_segments_clear(cm_segments *segments);
bool cm_segments_copy(cm_segments *copy, const cm_segments *segments); /* false: out of memory */
/* 1: added; 0: not added (see above); -1: out of memory. A segment at a live address replaces the
 * old one, which is then `replaced`; otherwise replaced->size is 0. */
int cm_segments_add(cm_segments *segments, const cm_segment *segment, cm_segment *replaced);
/* 1: removed; 0: unknown; -1: out of memory. */
int cm_segments_take(cm_segments *segments, uint64_t address, cm_segment *out);

#endif
