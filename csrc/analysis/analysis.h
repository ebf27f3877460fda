/* What a report is made of: plain numbers out of a trace. No Python, no printing.
 *
 * The trace is read twice: once for the ticks (which of them are steps is only known at the end)
 * and for what was alive before it began, once to replay the heap. Memory grows with live blocks,
 * stacks and steps, not with events. All bytes are int64, all times nanoseconds since the trace's
 * start.
 *
 * A new analysis is one new file with a cm_part_kind (parts.h) and one line in the table in
 * analyze.c. */
#ifndef CM_ANALYSIS_ANALYSIS_H
#define CM_ANALYSIS_ANALYSIS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "../trace/reader.h"
#include "clock.h"

typedef enum cm_phase {
    CM_PHASE_OTHER = 0,
    CM_PHASE_DATA,
    CM_PHASE_FORWARD,
    CM_PHASE_BACKWARD,
    CM_PHASE_OPTIMIZER,
    CM_PHASE_BEFORE_START
} cm_phase;

/* A contributor's name that no definition has: AccumulateGrad without a node before it. */
enum { CM_NAME_ACCUMULATION = UINT32_MAX - 1 };

/* A group of blocks alive together at some moment: same stack, same phase. `stack` is the stack
 * they are charged to (a backward block's is its node's forward stack), `origin_stack` its own. */
typedef struct cm_contributor {
    int64_t bytes;
    uint64_t count;
    uint32_t stack, origin_stack;
    uint32_t name; /* type name id of the autograd node that was running, 0 = none */
    cm_phase phase;
} cm_contributor;

/* The live bytes of a span of time between its first event and the next point's. */
typedef struct cm_timeline_point {
    uint64_t time_ns;
    int64_t min, max, last;
    int64_t reserved; /* the most in the span, -1 where the allocator did not say */
} cm_timeline_point;

typedef struct cm_oom {
    uint64_t time_ns;
    int64_t requested, allocated;
    uint32_t stack;
    int64_t step; /* -1: outside of any */
} cm_oom;

typedef struct cm_device_report {
    char name[24]; /* cpu, cuda:0 */
    int64_t start, peak, end, allocated, freed;
    uint64_t allocations, frees;
    uint64_t peak_time_ns;
    int64_t peak_step;            /* -1: outside of any */
    int64_t reserved_peak;        /* -1: unknown */
    cm_contributor *contributors; /* of the peak (or options.peak_of_step's), largest first */
    size_t contributor_count;
    cm_timeline_point *timeline;
    size_t timeline_count;
    cm_oom *ooms; /* the first CM_OOMS_KEPT */
    size_t oom_count;
    uint64_t oom_total;
} cm_device_report;

enum { CM_OOMS_KEPT = 1024, CM_STEP_CONTRIBUTORS = 10 };

/* One step on one device; contributors are at contributors[first .. first + count). */
typedef struct cm_step_report {
    uint32_t index, device, loop;
    uint64_t begin_ns, end_ns, peak_ns;
    int64_t start, peak, end, allocated, freed;
    uint64_t allocations;
    size_t first_contributor, contributor_count;
    int64_t rest_bytes;
    uint64_t rest_count;
} cm_step_report;

typedef struct cm_survivor {
    uint32_t device, stack; /* charged */
    int64_t bytes;
    uint64_t count;
    int64_t first_step, last_step; /* of birth; -1 = before the first step */
} cm_survivor;

typedef struct cm_rss_point {
    uint64_t time_ns;
    int64_t bytes;
} cm_rss_point;

typedef struct cm_backward_bytes {
    int64_t bytes, resolved, accumulation, unresolved; /* the first is the sum of the others */
} cm_backward_bytes;

typedef struct cm_analysis {
    cm_reader_state state;
    char reason[256]; /* why recording ended by itself, or what the file lacks; else "" */
    uint64_t lost_events, lost_stacks, unknown_frees, replaced, seeds_skipped;
    uint64_t start_realtime_ns, begin_ns, end_ns, duration_ns;
    uint64_t events, allocations;
    uint64_t threads; /* that allocated or freed */
    cm_device_report *device;
    size_t device_count;
    cm_rss_point *rss;
    size_t rss_count;
    cm_step_report *step; /* by step, then device */
    size_t step_count;
    cm_contributor *step_contributors;
    cm_steps steps;       /* the clock's own: ends, loops, changes */
    uint32_t *line_stack; /* line number of the clock -> a stack whose innermost frame it is */
    size_t line_count;
    cm_survivor *survivors; /* alive at the last step's end; without steps, at the end */
    size_t survivor_count;
    cm_survivor *survivors_end; /* alive at the end */
    size_t survivor_end_count;
    cm_backward_bytes backward;
} cm_analysis;

typedef struct cm_analysis_options {
    uint64_t window;        /* only this window (CM_MARK_WINDOW_*); 0 = whole trace */
    int64_t peak_of_step;   /* >= 0: contributors of this step's peak instead of the run's */
    size_t timeline_points; /* per device; 0 = 2048 */
    bool (*progress)(double share, void *context); /* may be NULL; false cancels */
    void *progress_context;
} cm_analysis_options;

/* NULL with one line in error ("" if progress cancelled). The reader is read from its beginning and
 * stays the caller's; it gives the definitions of the result's ids. Any thread. */
cm_analysis *cm_analyze(cm_reader *reader, const cm_analysis_options *options, char *error,
                        size_t error_size);
void cm_analysis_free(cm_analysis *analysis);

/* Writes what window number `window` of the trace saw as a trace of its own: definitions, what was
 * alive at its start with its origin, its events. The target must not exist. false with one line in
 * error; no file is left then. */
bool cm_extract(cm_reader *reader, const char *target, uint64_t window, char *error,
                size_t error_size);

#endif
