/* Single blocks with their births and ends, of the steps around the peaks: what a change of the
 * program is tried on (replay_edit.h).
 *
 * Of each loop the step with the highest peak is kept, with its neighbours; so are the times before
 * the first step and behind the last one. Blocks that lived in none of them are left out. Positions
 * count the device's changes, CM_LIFE_GAP apart, so that a change can put events between them. */
#ifndef CM_ANALYSIS_LIVES_H
#define CM_ANALYSIS_LIVES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct cm_contributor;

enum { CM_LIFE_GAP = 1 << 12, CM_LIVES_MAX = 1 << 22 };

typedef struct cm_life {
    uint64_t address;
    int64_t birth, end; /* positions; birth 0: before the window; end -1: alive at its end */
    int64_t bytes, requested;
    uint32_t contributor;
    int32_t step, end_step; /* -1: before the first; the tail has the number behind the last */
} cm_life;

/* A stretch of time that is whole in the list. */
typedef struct cm_life_step {
    int64_t step;       /* -1: before the first; the number behind the last: the tail */
    int64_t loop;       /* index into steps.loop; -1: none */
    int64_t begin, end; /* positions */
    int64_t peak;
    int64_t nodes_made, nodes_run; /* of the autograd graph, on all devices */
} cm_life_step;

/* Of one device. */
typedef struct cm_lives {
    uint32_t device;
    bool cut; /* there were more than CM_LIVES_MAX: the list ends early */
    cm_life *life;
    size_t count; /* by birth */
    struct cm_contributor *contributor;
    size_t contributor_count;
    cm_life_step *step;
    size_t step_count; /* by step */
} cm_lives;

#endif
