/* The segments of a device of memory_viz: what PyTorch's allocator holds, by address. One owner,
 * any thread. */
#ifndef CM_EXPORTS_HELD_SEGMENTS_H
#define CM_EXPORTS_HELD_SEGMENTS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct cm_held_segment {
    uint64_t address, blocks;
    int64_t size;
    uint64_t order; /* in which they came */
    uint32_t stack;
    bool expandable; /* its bytes are mapped ones */
    bool gone; /* freed while blocks lay in it: events are missing. It stays as long as they do */
} cm_held_segment;

typedef struct cm_held {
    cm_held_segment *segment; /* by address */
    size_t count, capacity;
    uint64_t added;
} cm_held;

/* The one at this address; NULL: none. Valid until the next change. */
cm_held_segment *cm_held_at(const cm_held *held, uint64_t address);
/* The one around a block; NULL: none, or it is gone. */
cm_held_segment *cm_held_around(const cm_held *held, uint64_t address, int64_t bytes);
/* Adds a segment. 0: it cannot lie there, because events are missing; -1: out of memory. */
int cm_held_add(cm_held *held, uint64_t address, int64_t size, uint32_t stack);
void cm_held_remove(cm_held *held, cm_held_segment *segment);

#endif
