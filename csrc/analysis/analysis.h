/* The result of an analysis: plain numbers from a trace. No Python, no printing.
 *
 * The trace is read twice. The first reading finds the steps, which are known only at its end, and
 * the blocks that were alive before. The second replays the heap. Memory grows with live blocks,
 * stacks and steps, not with events. All bytes are int64, all times nanoseconds since the window's
 * start.
 *
 * CONTRIBUTING.md ("A question") says what a new analysis needs. */
#ifndef CM_ANALYSIS_ANALYSIS_H
#define CM_ANALYSIS_ANALYSIS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "../heap/engine.h"
#include "chart.h"
#include "ledger.h"
#include "lives.h"

/* A group of blocks alive together at some moment: same stack, phase, category and module. `stack`
 * is the stack they are charged to (a backward block's is its node's forward stack), `origin_stack`
 * its own. */
typedef struct cm_contributor {
    int64_t bytes;
    uint64_t count;
    uint32_t stack, origin_stack;
    uint32_t name; /* type name id of the running autograd node, 0 = none */
    cm_phase phase;
    cm_category category;
    uint32_t module;   /* name id of the owning module's qualified name, 0 = none */
    uint32_t saved_by; /* of an activation: type name id of the node that saved it, 0 = unknown */
} cm_contributor;

/* A block alive at the peak, or when a request was refused, that a walk has labelled. */
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
    int64_t reserved; /* the most in the span, -1 unknown */
} cm_timeline_point;

/* A request that failed. The live blocks are kept for the first CM_OOMS_WHOLE of a device, and for
 * the one with an exception that left the window. */
typedef struct cm_oom {
    uint64_t time_ns;
    int64_t requested, allocated;
    int64_t reserved;             /* by the allocator, as last recorded; -1 unknown */
    uint32_t stack, origin_stack; /* charged, its own */
    uint32_t name;                /* type name id of the autograd node that ran, 0 = none */
    int64_t step;                 /* -1: outside of any */
    bool escaped;                 /* CM_MARK_OOM_LEFT */
    cm_contributor *contributors; /* alive then, largest first */
    size_t contributor_count;
    cm_tensor *tensors; /* alive then, largest first */
    size_t tensor_count;
    cm_fragmentation memory; /* asked 0: not known */
} cm_oom;

/* Memory that PyTorch's caching allocator took from CUDA by cudaMalloc. seen is false where it took
 * none, or other kinds only: expandable segments, pools with their own allocator, other back ends.
 */
typedef struct cm_segment_totals {
    bool seen;
    uint64_t count; /* at the end */
    int64_t bytes, peak;
} cm_segment_totals;

/* The allocator's own count of allocated bytes against the recorded live bytes, wherever it was
 * recorded. Compacted stretches are skipped, because their events are incomplete. */
typedef struct cm_totals_check {
    uint64_t checked, differ;
    int64_t reported, live; /* at the last difference, else at the last check */
} cm_totals_check;

/* Tables of one device's blocks by contributor. With options.of_step, start and end are those of
 * the step. */
typedef enum cm_contents_kind {
    CM_TABLE_START = 0, /* alive when the recording or window began */
    CM_TABLE_END,       /* alive at the end */
    CM_TABLE_ABOVE,     /* allocated since the start, and alive at the peak above it */
    CM_TABLE_KEPT,      /* allocated since the start, and alive at the end */
    CM_TABLE_ALLOCATED, /* every allocation */
    CM_TABLE_STEPPED,   /* ... in a step */
    CM_TABLE_TEMPORARY, /* ... and freed in the same step */
    CM_TABLES
} cm_contents_kind;

#define CM_TABLE(kind) (1u << (kind))

/* `rest` sums compacted blocks, which have no contributor. */
typedef struct cm_table {
    cm_contributor *contributors; /* largest first */
    size_t contributor_count;
    int64_t rest_bytes;
    uint64_t rest_count;
} cm_table;

/* What Python's collections freed on a device. */
typedef struct cm_garbage {
    uint64_t collections; /* that freed any of it */
    int64_t freed, most;  /* most: by one of them */
    int64_t after_oom;    /* freed of what was alive at the last refused request; 0 without one */
    int64_t at_peak;      /* of the peak's bytes */
    /* Largest first: of at_peak; of freed and after_oom. */
    cm_contributor *contributors, *freed_contributors;
    size_t contributor_count, freed_count;
} cm_garbage;

typedef struct cm_device_report {
    char name[24]; /* cpu, cuda:0 */
    int64_t start, peak, end, allocated, freed;
    uint64_t allocations, frees;
    uint64_t peak_time_ns;
    int64_t peak_step;     /* -1: outside of any */
    int64_t reserved_peak; /* -1: unknown */
    /* Of blocks allocated in the window only: the highest live sum, and the live sum at the end. */
    int64_t above, kept;
    uint64_t above_time_ns;
    int64_t above_step;     /* -1: outside of any */
    int64_t requested_peak; /* of the peak's bytes, those requested; -1 unknown */
    cm_segment_totals segments;
    cm_totals_check check;
    cm_garbage garbage;
    cm_contributor *contributors; /* of the peak (or of that of options.step), largest first */
    size_t contributor_count;
    cm_tensor *tensors; /* of the run's peak, largest first */
    size_t tensor_count;
    cm_table table[CM_TABLES]; /* those in options.tables */
    cm_timeline_point *timeline;
    size_t timeline_count;
    cm_oom *ooms; /* the first CM_OOMS_KEPT, and the one that left */
    size_t oom_count;
    uint64_t oom_total;
} cm_device_report;

/* A block allocated in the window and alive at its end. */
typedef struct cm_kept_block {
    uint64_t address;
    int64_t size, step; /* step: of birth, -1: outside of any */
    uint32_t device, stack;
    bool backward; /* made in backward */
} cm_kept_block;

enum {
    CM_KEPT_BLOCKS = 1 << 16,
    CM_OOMS_WHOLE = 16,
    CM_STEP_CONTRIBUTORS = 10,
    CM_STEP_ROWS = 1 << 15, /* see cm_step_report */
    CM_BYTES_OF_STEP_ROW = 256,
    CM_HOLDERS_KEPT = 1 << 10
};

/* One step on one device; its contributors are step_contributors[first .. first + count). Beyond
 * CM_STEP_ROWS plus one row per CM_BYTES_OF_STEP_ROW of the trace, devices without an event in the
 * step have no row. The first device always has one. */
typedef struct cm_step_report {
    uint32_t index, device, loop;
    bool incomplete; /* it did not end: the last one, which an exception cut short */
    uint64_t begin_ns, end_ns, peak_ns;
    int64_t start, peak, end, allocated, freed;
    int64_t reserved; /* by the allocator when the step ended, -1 unknown */
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
    CM_LEAK_GROWING        /* a live set that keeps growing although its blocks are young */
} cm_leak_signature;
typedef enum cm_leak_confidence {
    CM_LEAK_LOW = 0,
    CM_LEAK_MEDIUM,
    CM_LEAK_HIGH
} cm_leak_confidence;

/* Why something that grew is only suspected; the names in py_report.c are part of the JSON. */
typedef enum cm_suspect_reason {
    CM_SUSPECT_NOT = 0,     /* it is a leak */
    CM_SUSPECT_FEW,         /* too few births to judge */
    CM_SUSPECT_STOPPED,     /* it grew and then stopped */
    CM_SUSPECT_EPOCH,       /* one epoch: a per-epoch list has the same effect */
    CM_SUSPECT_GARBAGE,     /* died in the final collection: it was uncollected garbage */
    CM_SUSPECT_LOST,        /* events were lost: a lost free has the same effect */
    CM_SUSPECT_UNCOLLECTED, /* no collection ran after the loop: it may be uncollected garbage */
    CM_SUSPECT_LATE,   /* died in a collection after its function: garbage, or held until then by an
                          object in a cycle */
    CM_SUSPECT_ENDED,  /* evaluation: freed behind the loop, while the program went on */
    CM_SUSPECT_PASSED, /* evaluation: it ran once, and others went on: an index or a leak */
    CM_SUSPECT_CARRIED,   /* evaluation: one value that a variable carries from step to step */
    CM_SUSPECT_FILLING,   /* in a bounded container that is not yet full */
    CM_SUSPECT_NEGLIGIBLE /* it grows by less than matters (causes.h) */
} cm_suspect_reason;

/* Why a row stands under another one (causes.h); the names in py_report.c are part of the JSON.
 */
typedef enum cm_leak_relation {
    CM_LEAK_ALONE = 0,  /* it does not */
    CM_LEAK_RETAINED,   /* held by the graph's nodes: the same line made them */
    CM_LEAK_SAME_STEPS, /* made in the steps of the kept graph, which may hold it */
    CM_LEAK_FOLLOWS     /* grows in proportion: computed from the other */
} cm_leak_relation;

/* One stack of a leak that consists of several. */
typedef struct cm_leak_part {
    uint32_t stack;
    int64_t bytes; /* of nodes: estimated */
    uint64_t count;
    bool unrun; /* nodes that no backward ran, which would release what they saved */
} cm_leak_part;

/* Something that grows. Judged at the last step boundary of its loop. Sizes of graph nodes are
 * estimates (node_size.h). */
typedef struct cm_leak {
    cm_leak_kind kind;
    cm_leak_signature signature;
    cm_leak_confidence confidence;
    cm_suspect_reason reason;
    bool cycle;      /* kept by reference cycles while no collection ran */
    bool backward;   /* blocks: made in backward, all of them */
    uint32_t device; /* index into device; nodes: of the CPU, or CM_LEAK_NO_DEVICE without one */
    uint32_t loop;   /* index into steps.loop */
    uint32_t stack;  /* the one with the most bytes (nodes) */
    uint32_t retained_stack; /* nodes: the youngest surviving node of each step; else 0 */
    /* Alive at that boundary and made in the loop's steps. The last step's blocks are left out
     * where others of the group died in the step after their own. */
    int64_t bytes;
    uint64_t count;
    /* Growth per step of the loop (growth.h has the formula). A growing live set replaces its
     * blocks and has no count. */
    double bytes_per_step, count_per_step;
    int64_t first_step, last_step; /* of birth */
    size_t first_part, part_count; /* in leak_parts, largest first; they sum to bytes and count */
    cm_leak_relation relation;     /* to the row above it */
    size_t first_kept, kept_count; /* in kept: the rows under it, the most bytes a step first */
    double total_bytes_per_step;   /* with the rows under it */
} cm_leak;

/* A holder of a leak or of a line, found by one search. The leak has this kind, device and, among
 * its parts, this stack (nodes: no device). */
typedef struct cm_holder {
    cm_leak_kind kind;
    uint32_t device, stack;
    uint32_t path;          /* name id of the referrer path */
    bool first;             /* of its search: earlier results are outdated */
    bool backward, forward; /* of a leak that backward made, or did not; neither: not known */
    uint64_t count;
    int64_t bytes;
    int64_t step; /* that was running; -1: none */
} cm_holder;

/* A user's line with something alive on this device when the recording ended, and its holders. */
typedef struct cm_held_line {
    uint32_t device, stack;            /* stack: one that leads to the line */
    size_t first_holder, holder_count; /* in alive_holders, the most bytes first */
} cm_held_line;

typedef struct cm_rss_point {
    uint64_t time_ns;
    int64_t bytes;
} cm_rss_point;

/* Events that compaction replaced by sums (compact/compact.h). Steps as in cm_survivor, without
 * meaning where events == 0. */
typedef struct cm_compacted {
    uint64_t events;
    int64_t from_step, to_step;
} cm_compacted;

/* Reads of values that a simulated device did not compute, by their line. */
typedef struct cm_host_read {
    uint32_t stack, device; /* device: index into device */
    bool written;           /* by the host itself: correct unless a kernel changed them */
    uint64_t count;
    int64_t bytes;
} cm_host_read;

typedef struct cm_analysis {
    cm_reader_state state;
    char reason[256]; /* why recording stopped early, or what the file lacks; else "" */
    uint64_t lost_events, lost_stacks, unknown_frees, replaced, seeds_skipped;
    int64_t step_asked;                      /* options.step from 0; -1 without of_step */
    char *code;                              /* packages that counted as user code */
    uint64_t start_realtime_ns, duration_ns; /* of the window */
    uint64_t begin_ns, end_ns;               /* of the window in the trace */
    uint64_t events, allocations;
    cm_compacted compacted; /* among the events */
    uint64_t threads;       /* that allocated or freed */
    cm_device_report *device;
    size_t device_count;
    cm_rss_point *rss;
    size_t rss_count;
    cm_rss_point *rest; /* what the process has in use beside tensors, at ticks */
    size_t rest_count;
    cm_step_report *step; /* by step, then device */
    size_t step_count;
    cm_contributor *step_contributors;
    cm_steps steps;       /* the clock's own: ends, loops, changes */
    uint32_t *line_stack; /* line number of the clock -> a stack with it as innermost frame */
    size_t line_count;
    cm_survivor *survivors; /* alive at the last step's end; without steps, at the end */
    size_t survivor_count;
    cm_survivor *survivors_end; /* alive at the end */
    size_t survivor_end_count;
    cm_kept_block *kept_blocks; /* with CM_TABLE_KEPT: CM_KEPT_BLOCKS at most */
    size_t kept_block_count;
    cm_host_read *host_reads; /* unwritten ones first, then the most frequent */
    size_t host_read_count;
    cm_backward_bytes backward;
    cm_leak *leaks; /* verdicts, the most bytes a step first */
    size_t leak_count;
    cm_leak *suspects;
    size_t suspect_count;
    cm_leak *kept; /* the rows under them */
    size_t kept_count;
    cm_leak_part *leak_parts; /* of all three */
    cm_holder *holders;       /* CM_HOLDERS_KEPT at most */
    size_t holder_count;
    cm_held_line *held_lines; /* the most bytes first */
    size_t held_line_count;
    cm_holder *alive_holders; /* CM_HOLDERS_KEPT at most */
    size_t alive_holder_count;
    uint64_t live_nodes;     /* autograd nodes of this trace alive at the last step's end */
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
    cm_lives *lives; /* by device, with options.lives */
    size_t lives_count;
} cm_analysis;

typedef struct cm_analysis_options {
    uint64_t window; /* only this window (CM_MARK_WINDOW_*); 0 = whole trace */
    bool again;      /* it will be opened again before any other window */
    bool of_step;    /* contributors of `step`'s peak and its tables instead of the run's */
    int64_t step;    /* negative: counted from the end, -1 is the last */
    uint32_t tables; /* bits CM_TABLE(kind) */
    const cm_chart_span *charts;
    size_t chart_count;
    bool lives;             /* with single blocks around the peaks */
    size_t timeline_points; /* per device; 0 = 2048 */
    int64_t ledger_at_ns;   /* >= 0: add the ledger of this time */
    /* Packages that count as user code (library.h); NULL: those that the trace names. */
    const char *code;
    bool has_min_rate;
    double min_rate; /* slower growth in bytes a step is negligible (causes.h) */
    bool (*progress)(double share, void *context); /* may be NULL; false cancels */
    void *progress_context;
} cm_analysis_options;

/* NULL with one line in error ("" if progress cancelled). Rewinds the reader, which stays the
 * caller's and resolves the result's ids. Any thread. */
cm_analysis *cm_analyze(cm_reader *reader, const cm_analysis_options *options, char *error,
                        size_t error_size);
void cm_analysis_free(cm_analysis *analysis);

cm_analysis *cm_engine_analyze(cm_engine *engine, const cm_analysis_options *options, char *error,
                               size_t error_size);

/* The engine's part of the options. */
static inline cm_window_options cm_analysis_window(const cm_analysis_options *options)
{
    return (cm_window_options){options->window, options->again, options->progress,
                               options->progress_context};
}

#endif
