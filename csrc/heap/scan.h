/* The first reading of a window, for its replay: where it ends, and which ticks are steps. Once per
 * trace: which blocks were alive before it. */
#ifndef CM_HEAP_SCAN_H
#define CM_HEAP_SCAN_H

#include "step_clock.h"
#include "attribution.h"
#include "replay.h"

/* The part of a trace to read. */
typedef struct cm_window_options {
    uint64_t window; /* only this window (CM_MARK_WINDOW_*); 0 = whole trace */
    bool again;      /* it will be opened again before any other window */
    bool (*progress)(double share, void *context); /* may be NULL; false cancels */
    void *progress_context;
} cm_window_options;

/* The state before some record that matters for later windows. */
typedef struct cm_scanned {
    uint64_t position; /* records */
    uint64_t newest_ns, node_runs, seeds_skipped;
    uint64_t after_inherited; /* after the last record of the prologue (extract.c) */
    cm_event last_seed;
    bool seeded, found_alive;
} cm_scanned;

typedef struct cm_seeds {
    cm_seed *seed; /* of the walk at the start, dropped ones included */
    size_t count, capacity;
    bool whole; /* the walk's end was read */
} cm_seeds;

typedef struct cm_plan {
    uint64_t begin, end; /* its records: positions begin .. end - 1 */
    uint64_t begin_ns, end_ns;
    bool closed; /* the window's end was read */
    uint64_t seeds_skipped, lost_events, lost_stacks;
    uint64_t oom_left; /* records up to and with the failed request with an exception that left the
                          window; 0: none */
    cm_reader_state state; /* of a closed window: complete */
    char reason[256];      /* why recording stopped early, or what the file lacks; else "" */
    cm_steps steps;
    /* Of CUDA's devices, by index + 128: where reserved bytes first reach their maximum. */
    struct cm_plan_reserved {
        bool known;
        int64_t most;
        uint64_t position;
    } reserved[256];
} cm_plan;

/* Reads from the first record to the walk's end, or to the trace's. Rewinds the reader before and
 * after. false with one line in error ("" if cancelled). */
bool cm_scan_seeds(cm_reader *reader, const cm_window_options *options, cm_seeds *seeds,
                   char *error, size_t error_size);
void cm_seeds_free(cm_seeds *seeds);

/* A record outside of the requested windows. */
void cm_scan_pass(cm_scanned *scanned, const cm_record *record);

typedef struct cm_scan cm_scan;
/* options->window opened with the last record in `scanned`. NULL: out of memory. */
cm_scan *cm_scan_begin(const cm_reader *reader, const cm_scanned *scanned, uint64_t begin_ns,
                       const cm_replay *replay, const cm_window_options *options);
void cm_scan_free(cm_scan *scan);
/* false: out of memory. The window is over when its plan is closed. */
bool cm_scan_apply(cm_scan *scan, const cm_record *record);
const cm_plan *cm_scan_plan(const cm_scan *scan);
cm_scanned cm_scan_passed(const cm_scan *scan); /* after its records so far */
uint64_t cm_scan_position(const cm_scan *scan); /* ... the position alone */
/* The steps by the records so far; may be called again after more. Linear in the window's ticks.
 * The caller frees them. false: out of memory. */
bool cm_scan_steps(const cm_scan *scan, cm_steps *out);
/* The plan, once the reader is at the end of the window or of the trace. false: out of memory. */
bool cm_scan_finish(cm_scan *scan, cm_reader *reader, cm_plan *out);
void cm_plan_free(cm_plan *plan);

/* Whether to call options->progress: every 65,536 records. It returns false to cancel. */
static inline bool cm_scan_asks(const cm_window_options *options, uint64_t records)
{
    return (records & 0xffff) == 0 && options->progress != NULL;
}

#endif
