/* Merges many rings into one, by time. Shared by the collector and by the recovery of orphans. */
#ifndef CM_CAPTURE_MERGE_H
#define CM_CAPTURE_MERGE_H

#include <stdbool.h>
#include <stdint.h>

#include "../trace/encode.h"
#include "../base/event.h"

/* One ring on its way into the trace: a contiguous run of events, and how to find the next run. */
typedef struct cm_merge_source {
    const cm_event *at, *stop;
    uint64_t position; /* of *at in its ring */
    uint64_t end;      /* take no more than up to here */
    uint32_t ring, thread;
} cm_merge_source;

typedef struct cm_merge {
    cm_merge_source **heap; /* room for every source */
    uint32_t count;
    uint64_t watermark; /* events of this time or later stay in their rings */
    /* Sets at and stop to the run that begins at source->position; false: nothing more. */
    bool (*refill)(struct cm_merge *merge, cm_merge_source *source);
    /* Gets each run of events that went into the batch; false counts as a refusal by the batch. May
     * be NULL. */
    bool (*see)(uint32_t thread, const cm_event *events, size_t count);
    uint64_t lost_stacks, damaged; /* counted on the way */
    int64_t pieces;                /* of malloc's that blocks and nodes have, less those they had */
} cm_merge;

/* Adds a source that has at least one event. */
void cm_merge_add(cm_merge *merge, cm_merge_source *source);

/* Moves up to `most` events into the batch. The number moved, or -1 if the batch refused one (it
 * and those after it stay). Within a ring the order is never changed. */
int64_t cm_merge_run(cm_merge *merge, cm_batch *batch, int64_t most);

#endif
