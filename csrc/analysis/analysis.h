/* What a report is made of: one pass over a trace, plain numbers out. No Python, no printing.
 * Memory grows with live blocks, stacks and steps, not with events. All bytes are int64, all times
 * nanoseconds since the trace's start. See docs/architecture.md for each definition. */
#ifndef CM_ANALYSIS_ANALYSIS_H
#define CM_ANALYSIS_ANALYSIS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "../trace/reader.h"

typedef enum cm_phase {
    CM_PHASE_OTHER = 0, CM_PHASE_DATA, CM_PHASE_FORWARD, CM_PHASE_BACKWARD, CM_PHASE_OPTIMIZER,
    CM_PHASE_BEFORE_START
} cm_phase;

/* A group of blocks alive together at some moment: same stack, same phase. `stack` is the stack they
 * are charged to (a backward block's is its node's forward stack), `origin_stack` its own. */
typedef struct cm_contributor {
    int64_t bytes;
    uint64_t count;
    uint32_t stack, origin_stack;
    uint32_t name; /* type name id of the autograd node that was running, 0 = none */
    cm_phase phase;
} cm_contributor;

typedef struct cm_analysis cm_analysis;
typedef struct cm_analysis_options {
    uint64_t window;       /* only this window (CM_MARK_WINDOW_*); 0 = whole trace */
    int64_t peak_of_step;  /* >= 0: fill contributors of this step's peak instead of the run's */
    size_t timeline_points;/* per device; 0 = 2048 */
    bool (*progress)(double share, void *context); /* may be NULL; false cancels */
    void *progress_context;
} cm_analysis_options;

/* NULL with one line in error. The reader stays the caller's and must outlive the result. */
cm_analysis *cm_analyze(cm_reader *reader, const cm_analysis_options *options, char *error,
                        size_t error_size);
void cm_analysis_free(cm_analysis *analysis);

#endif
