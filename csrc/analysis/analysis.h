/* What a report is made of: plain numbers out of a trace. No Python, no printing.
 *
 * The trace is read twice: once for the ticks (which of them are steps is only known at the end)
 * and for what was alive before it began, once to replay the heap. Memory grows with live blocks,
 * stacks and steps, not with events. All bytes are int64, all times nanoseconds since the
 * window's start.
 *
 * A new analysis is one new file with a cm_part_kind (parts.h) and one line in the table in
 * analyze.c. */
#ifndef CM_ANALYSIS_ANALYSIS_H
#define CM_ANALYSIS_ANALYSIS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "../heap/engine.h"
#include "chart.h"
#include "ledger.h"

/* A group of blocks alive together at some moment: same stack, phase, category and module. `stack`
 * is the stack they are charged to (a backward block's is its node's forward stack), `origin_stack`
 * its own. */
typedef struct cm_contributor {
    int64_t bytes;
    uint64_t count;
    uint32_t stack, origin_stack;
    uint32_t name; /* type name id of the autograd node that was running, 0 = none */
    cm_phase phase;
    cm_category category;
    uint32_t module; /* name id of the qualified name of the module that it belongs to, 0 = none */
    uint32_t
        saved_by; /* of an activation: type name id of the node that had saved it, 0 = unknown */
} cm_contributor;

/* A block of which a walk has said what it is, alive at the peak. */
typedef struct cm_tensor {
    int64_t bytes;
    uint32_t text, module; /* name ids; see CM_EV_LABEL */
    uint32_t stack;        /* charged */
    cm_category category;
} cm_tensor;

/* The live bytes of a span of time between its first event and the next point's. */
typedef struct cm_timeline_point {
    uint64_t time_ns;
    int64_t min, max, last;
    int64_t reserved; /* the most in the span, -1 where the allocator did not say */
} cm_timeline_point;

/* A request that could not be met. What was alive then is kept of the first CM_OOMS_WHOLE of a
 * device, and of the one whose exception left the window. */
typedef struct cm_oom {
    uint64_t time_ns;
    int64_t requested, allocated;
    int64_t reserved;             /* by the allocator, as last told; -1 unknown */
    uint32_t stack, origin_stack; /* charged, its own */
    uint32_t name;                /* type name id of the autograd node that ran, 0 = none */
    int64_t step;                 /* -1: outside of any */
    bool left;                    /* CM_MARK_OOM_LEFT */
    cm_contributor *contributors; /* alive then, largest first */
    size_t contributor_count;
    cm_fragmentation memory; /* segment_total 0: no segments were known */
} cm_oom;

/* Memory that PyTorch's caching allocator took from CUDA by cudaMalloc. seen: false where none was
 * seen: it holds none, or not of that kind (expandable segments, pools with an allocator of their
 * own, other back ends). */
typedef struct cm_segment_totals {
    bool seen;
    uint64_t count; /* at the end */
    int64_t bytes, peak;
} cm_segment_totals;

/* What the allocator says that it gave out, against what is recorded as alive, whenever it was
 * told. Events that a folded trace left out would make a difference: such stretches do not count.
 */
typedef struct cm_totals_check {
    uint64_t checked, differ;
    int64_t told, live; /* the last time that they differed, else the last time */
} cm_totals_check;

/* Tables of one device's blocks by contributor. Of one step (options.of_step): what was alive at
 * its two ends, what it allocated. */
typedef enum cm_table_kind {
    CM_TABLE_START = 0, /* alive when the recording, or its window, began */
    CM_TABLE_END,       /* alive at the end */
    CM_TABLE_ABOVE,     /* at the peak above the start: allocated since, and alive then */
    CM_TABLE_KEPT,      /* allocated since the start, and alive at the end */
    CM_TABLE_ALLOCATED, /* all that was ever allocated */
    CM_TABLE_STEPPED,   /* ... in a step */
    CM_TABLE_TEMPORARY, /* ... and freed in the same step */
    CM_TABLES
} cm_table_kind;

#define CM_TABLE(kind) (1u << (kind))

/* What a trace past its bound only counts has no contributor: it is in `rest`. */
typedef struct cm_table {
    cm_contributor *contributors; /* largest first */
    size_t contributor_count;
    int64_t rest_bytes;
    uint64_t rest_count;
} cm_table;

typedef struct cm_device_report {
    char name[24]; /* cpu, cuda:0 */
    int64_t start, peak, end, allocated, freed;
    uint64_t allocations, frees;
    uint64_t peak_time_ns;
    int64_t peak_step;     /* -1: outside of any */
    int64_t reserved_peak; /* -1: unknown */
    /* Of blocks allocated in the window alone: the highest sum alive, and what is alive at the end
     */
    int64_t above, kept;
    uint64_t above_time_ns;
    int64_t above_step;     /* -1: outside of any */
    int64_t requested_peak; /* of the peak's bytes, those that were asked for; -1: not told */
    cm_segment_totals segments;
    cm_totals_check check;
    cm_contributor *contributors; /* of the peak (or of that of options.step), largest first */
    size_t contributor_count;
    cm_tensor *tensors; /* of the run's peak, largest first */
    size_t tensor_count;
    cm_table table[CM_TABLES]; /* those that options.tables asks for */
    cm_timeline_point *timeline;
    size_t timeline_count;
    cm_oom *ooms; /* the first CM_OOMS_KEPT, and the one that left */
    size_t oom_count;
    uint64_t oom_total;
} cm_device_report;

/* One that was allocated in the window and is alive at its end. */
typedef struct cm_kept_block {
    uint64_t address;
    int64_t size, step; /* step: that it was made in; -1: in none */
    uint32_t device, stack;
} cm_kept_block;

enum {
    CM_KEPT_BLOCKS = 1 << 16,
    CM_OOMS_WHOLE = 16,
    CM_STEP_CONTRIBUTORS = 10,
    CM_STEP_ROWS = 1 << 15, /* see cm_step_report */
    CM_BYTES_OF_STEP_ROW = 256,
    CM_HOLDERS_KEPT = 1 << 10
};

/* One step on one device; contributors are at contributors[first .. first + count). Past
 * CM_STEP_ROWS, and one for each CM_BYTES_OF_STEP_ROW of the trace, devices without an event in
 * the step have none; the first device always has one. */
typedef struct cm_step_report {
    uint32_t index, device, loop;
    uint64_t begin_ns, end_ns, peak_ns;
    int64_t start, peak, end, allocated, freed;
    int64_t reserved; /* by the allocator when the step ended, -1 where it did not say */
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

enum { CM_LEAK_NO_DEVICE = UINT32_MAX };
typedef enum cm_leak_kind { CM_LEAK_BYTES = 0, CM_LEAK_NODES } cm_leak_kind;
typedef enum cm_leak_signature {
    CM_LEAK_SURVIVORS = 0, /* survivors of all ages */
    CM_LEAK_GROWING        /* a live set that keeps growing though its blocks are young */
} cm_leak_signature;
typedef enum cm_leak_confidence {
    CM_LEAK_LOW = 0,
    CM_LEAK_MEDIUM,
    CM_LEAK_HIGH
} cm_leak_confidence;

/* Why something that grew is only suspected; the names in py_analysis.c are part of the JSON. */
typedef enum cm_suspect_reason {
    CM_SUSPECT_NOT = 0,     /* it is a leak */
    CM_SUSPECT_FEW,         /* too few births to tell */
    CM_SUSPECT_STOPPED,     /* it grew and then stopped */
    CM_SUSPECT_EPOCH,       /* one epoch cannot tell a per-epoch list from a leak */
    CM_SUSPECT_GARBAGE,     /* died in the final collection: garbage that was waiting */
    CM_SUSPECT_LOST,        /* events were lost: a missing free looks the same */
    CM_SUSPECT_UNCOLLECTED, /* no collection ran behind the loop: it may be garbage that waits */
    CM_SUSPECT_LATE,    /* died in a collection behind its function, which cannot tell garbage from
                           what    an object in a cycle held until then */
    CM_SUSPECT_FILLING, /* in a container with a bound that it has not reached */
    CM_SUSPECT_NEGLIGIBLE /* it grows by less than matters (causes.h) */
} cm_suspect_reason;

/* Why a row stands under another one (causes.h); the names in py_analysis.c are part of the JSON.
 */
typedef enum cm_leak_relation {
    CM_LEAK_ALONE = 0,  /* it does not */
    CM_LEAK_RETAINED,   /* the graph's nodes hold it: they were made by the same line */
    CM_LEAK_SAME_STEPS, /* made in the steps whose graph is kept: the graph may hold it */
    CM_LEAK_FOLLOWS     /* it grows in proportion: it is computed from the other */
} cm_leak_relation;

/* One stack of a leak that consists of several. */
typedef struct cm_leak_part {
    uint32_t stack;
    int64_t bytes; /* of nodes: estimated */
    uint64_t count;
} cm_leak_part;

/* Something that grows. Judged at the last step boundary of its loop. Sizes of graph nodes are
 * estimates: CM_NODE_BYTES each. */
typedef struct cm_leak {
    cm_leak_kind kind;
    cm_leak_signature signature;
    cm_leak_confidence confidence;
    cm_suspect_reason reason;
    bool cycle;      /* kept by reference cycles while no collection ran */
    uint32_t device; /* index into device; nodes: of the CPU, or CM_LEAK_NO_DEVICE without one */
    uint32_t loop;   /* index into steps.loop */
    uint32_t stack;  /* the one with the most bytes (nodes) */
    uint32_t retained_stack; /* nodes: the youngest surviving node of each step; else 0 */
    /* Alive at that boundary and made in the loop's steps; without its last step's where others of
     * the group died in the step after their own. */
    int64_t bytes;
    uint64_t count;
    /* Growth per step of the loop (growth.h has the formula). Of a growing live set the blocks are
     * replaced: no count. */
    double bytes_per_step, count_per_step;
    int64_t first_step, last_step; /* of birth */
    size_t first_part, part_count; /* in leak_parts, largest first; they sum to bytes and count */
    cm_leak_relation relation;     /* to the row that it stands under */
    size_t first_kept, kept_count; /* in kept, the most bytes a step first: what stands under it */
    double total_bytes_per_step;   /* with those of what stands under it */
} cm_leak;

/* Who held a leak, as one search found it: the leak has this kind, device and, among its parts,
 * this stack (nodes: no device). */
typedef struct cm_holder {
    cm_leak_kind kind;
    uint32_t device, stack;
    uint32_t path; /* name id of the referrer path */
    bool first;    /* of its search: what earlier ones found is outdated */
    uint64_t count;
    int64_t bytes;
} cm_holder;

enum {
    CM_NODE_BYTES = 1229
}; /* a node of an official build with its share of the graph: 1.2 KiB */

typedef struct cm_rss_point {
    uint64_t time_ns;
    int64_t bytes;
} cm_rss_point;

/* What a trace past its bound only has sums of (compact/compact.h). Steps as in cm_survivor; events
 * == 0: nothing, and the steps mean nothing. */
typedef struct cm_folded {
    uint64_t events;
    int64_t from_step, to_step;
} cm_folded;

/* Reads of values that a simulated device did not compute, by their line. */
typedef struct cm_host_read {
    uint32_t stack, device; /* device: index into device */
    bool written;           /* the host wrote them itself: right unless a kernel changed them */
    uint64_t count;
    int64_t bytes;
} cm_host_read;

typedef struct cm_analysis {
    cm_reader_state state;
    char reason[256]; /* why recording ended by itself, or what the file lacks; else "" */
    uint64_t lost_events, lost_stacks, unknown_frees, replaced, seeds_skipped;
    int64_t step_asked;                      /* options.step from 0; -1 without of_step */
    char *code;                              /* packages that counted as the user's own */
    uint64_t start_realtime_ns, duration_ns; /* of the window */
    uint64_t begin_ns, end_ns;               /* where it lies in the trace */
    uint64_t events, allocations;
    cm_folded folded; /* among the events */
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
    cm_kept_block *kept_blocks; /* with CM_TABLE_KEPT: CM_KEPT_BLOCKS at most */
    size_t kept_block_count;
    cm_host_read *host_reads; /* not written ones first, then the most frequent first */
    size_t host_read_count;
    cm_backward_bytes backward;
    cm_leak *leaks; /* verdicts, the most bytes a step first */
    size_t leak_count;
    cm_leak *suspects;
    size_t suspect_count;
    cm_leak *kept; /* what stands under them */
    size_t kept_count;
    cm_leak_part *leak_parts; /* of all three */
    cm_holder *holders;       /* CM_HOLDERS_KEPT at most */
    size_t holder_count;
    uint64_t live_nodes;     /* autograd nodes alive at the last step's end, seen by this trace */
    cm_driver_report driver; /* ledger.h: the driver level */
    cm_ledger *ledgers;      /* by device, then what */
    size_t ledger_count;
    cm_device_curve *curves;
    size_t curve_count;
    cm_fragmentation *fragmentation; /* by device, then what */
    size_t fragmentation_count;
    cm_kernels kernels;
    cm_chart *charts; /* by span, then device */
    size_t chart_count;
} cm_analysis;

typedef struct cm_analysis_options {
    uint64_t window;             /* only this window (CM_MARK_WINDOW_*); 0 = whole trace */
    bool again;                  /* it will be asked for again, before any other window is */
    bool of_step;                /* contributors of `step`'s peak, and its tables, not the run's */
    int64_t step;                /* negative: counted from the end, -1 is the last */
    uint32_t tables;             /* CM_TABLE of each that is wanted */
    const cm_chart_span *charts; /* spans that are wanted */
    size_t chart_count;
    size_t timeline_points; /* per device; 0 = 2048 */
    int64_t ledger_at_ns;   /* >= 0: the ledger of this time, too */
    /* Packages that count as the user's own code (library.h); NULL: those that the trace names. */
    const char *code;
    bool has_min_rate;
    double min_rate; /* then: what grows by fewer bytes a step is negligible (causes.h) */
    bool (*progress)(double share, void *context); /* may be NULL; false cancels */
    void *progress_context;
} cm_analysis_options;

/* NULL with one line in error ("" if progress cancelled). The reader is read from its beginning and
 * stays the caller's; it gives the definitions of the result's ids. Any thread. */
cm_analysis *cm_analyze(cm_reader *reader, const cm_analysis_options *options, char *error,
                        size_t error_size);
void cm_analysis_free(cm_analysis *analysis);

cm_analysis *cm_engine_analyze(cm_engine *engine, const cm_analysis_options *options, char *error,
                               size_t error_size);

/* What the engine needs of them. */
static inline cm_window_options cm_analysis_window(const cm_analysis_options *options)
{
    return (cm_window_options){options->window, options->again, options->progress,
                               options->progress_context};
}

#endif
