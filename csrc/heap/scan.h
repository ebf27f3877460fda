/* What the replay of a window must know beforehand, from a first reading of its records: where it
 * ends, and which ticks are steps. And, once for a trace, which blocks were alive before it. */
#ifndef CM_HEAP_SCAN_H
#define CM_HEAP_SCAN_H

#include "step_clock.h"
#include "attribution.h"
#include "replay.h"

/* Which part of a trace is read. */
typedef struct cm_window_options {
    uint64_t window; /* only this window (CM_MARK_WINDOW_*); 0 = whole trace */
    bool again;      /* it will be asked for again, before any other window is */
    bool (*progress)(double share, void *context); /* may be NULL; false cancels */
    void *progress_context;
} cm_window_options;

/* The part of what lies before some record that matters for windows behind it. */
typedef struct cm_scanned {
    uint64_t position; /* records */
    uint64_t newest_ns, node_runs, seeds_skipped;
    uint64_t after_inherited; /* behind the last record of what was there before (extract.c) */
    cm_event last_seed;
    bool seeded, found_alive;
} cm_scanned;

typedef struct cm_seeds {
    cm_seed *seed; /* of the walk at the start, those that count and those dropped */
    size_t count, capacity;
    bool whole; /* its end was seen */
} cm_seeds;

typedef struct cm_plan {
    uint64_t begin, end; /* its records: positions begin .. end - 1 */
    uint64_t begin_ns, end_ns;
    bool closed; /* the window's end was seen */
    uint64_t seeds_skipped, lost_events, lost_stacks;
    uint64_t oom_left; /* records up to the refused request whose exception left the window, with
                          it; 0: none did */
    cm_reader_state state; /* of a closed window: complete */
    char reason[256];      /* why recording ended by itself, or what the file lacks; else "" */
    cm_steps steps;
    /* Of CUDA's devices, by index + 128: where reserved bytes are first at their highest. */
    struct cm_plan_reserved {
        bool known;
        int64_t most;
        uint64_t position;
    } reserved[256];
} cm_plan;

/* From the first record to the walk's end, or to the trace's. The reader is rewound before and
 * after. false, as of all below: with one line in error ("" if cancelled). */
bool cm_scan_seeds(cm_reader *reader, const cm_window_options *options, cm_seeds *seeds,
                   char *error, size_t error_size);
void cm_seeds_free(cm_seeds *seeds);

/* A record that lies in no window that is asked for. */
void cm_scan_pass(cm_scanned *scanned, const cm_record *record);

/* The records of a window, as they are read. */
typedef struct cm_scan cm_scan;
/* options->window opened with the record before `scanned`. NULL: out of memory. */
cm_scan *cm_scan_begin(const cm_scanned *scanned, uint64_t begin_ns, cm_attribution *attribution,
                       const cm_window_options *options);
void cm_scan_free(cm_scan *scan);
/* false: out of memory. The window is over when its plan is closed. */
bool cm_scan_see(cm_scan *scan, const cm_record *record);
const cm_plan *cm_scan_plan(const cm_scan *scan);
cm_scanned cm_scan_passed(const cm_scan *scan); /* by its records so far */
/* The plan, once the reader is at the end of the window or of the trace. false: out of memory. */
bool cm_scan_finish(cm_scan *scan, cm_reader *reader, cm_plan *out);
void cm_plan_free(cm_plan *plan);

/* Calls options->progress now and then; false: it cancelled. */
static inline bool cm_scan_goes_on(const cm_window_options *options, uint64_t records,
                                   const cm_reader *reader, double from, double share)
{
    if ((records & 0xffff) != 0 || options->progress == NULL)
        return true;
    return options->progress(from + share * cm_reader_progress(reader), options->progress_context);
}

#endif
