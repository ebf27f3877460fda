/* The driver level of a report: which library holds the memory of each device, and what remains
 * unaccounted for. Empty for a trace without driver events (kinds 22 to 30). Bytes are int64, -1
 * unknown; times are nanoseconds since the window's start; devices are CUDA's indices, -1 unknown.
 */
#ifndef CM_ANALYSIS_LEDGER_H
#define CM_ANALYSIS_LEDGER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "../heap/driver_map.h"

typedef struct cm_driver_device {
    int index;
    /* Of kinds that take memory of the device: device, managed, async, physical, array. */
    int64_t bytes, peak;
    cm_driver_line *line; /* alive at the end, without host memory; largest first */
    size_t line_count;
} cm_driver_device;

/* CUPTI's MEMORY2 records against driver events. differ: joined, but with another address, size or
 * device. missing: an event without its record, 0 if the trace has no records. alone: a record
 * without an event. */
typedef struct cm_record_check {
    uint64_t records, matched, missing, differ, alone;
} cm_record_check;

typedef struct cm_driver_report {
    bool seen; /* some event of kinds 22 to 25 or 29 */
    /* Without events of contexts. A failed free is not among the frees. */
    uint64_t allocations, frees, unknown_frees, failed_frees;
    uint64_t replaced; /* allocations at an address that was allocated again: their free was lost */
    cm_record_check record_check;
    cm_driver_device *device;
    size_t device_count;
    cm_driver_device host; /* page-locked: index -1 */
} cm_driver_report;

typedef enum cm_ledger_what {
    CM_LEDGER_PEAK = 0, /* most used; among quiet moments if there is one */
    CM_LEDGER_END,      /* the last recorded moment */
    CM_LEDGER_ASKED     /* nearest to options.ledger_at_ns */
} cm_ledger_what;

/* One device at one moment that recorded its totals (CM_EV_DEVICE). Always, exactly:
 *
 *   used = tensors + rounding + cached + sum of line.bytes + driver_rounding + pool_slack
 *          + max(context, 0) + max(others, 0) + max(host, 0) + max(cache, 0) + residual
 *
 * driver_reserved is in no sum: CUDA's total, and so `used`, excludes what driver and firmware
 * keep. */
typedef struct cm_ledger {
    int device;
    uint64_t time_ns;
    int64_t step; /* -1: outside of any */
    cm_ledger_what what;
    bool quiet; /* the driver allocated nothing while the totals were read */
    int64_t used, total, own, others, driver_reserved;
    int64_t host, cache; /* of the machine, where the device's memory is the machine's; else -1 */
    int64_t tensors;     /* requested bytes of live blocks in driver memory */
    int64_t rounding;    /* size of these blocks - tensors */
    int64_t cached;      /* PyTorch's driver memory - its blocks */
    /* Pages of CM_GRANULE that live device and managed allocations touch, less the bytes of these:
     * the driver carves small allocations out of pages. PyTorch's count too. Pools and handles take
     * whole pages; array addresses are unknown. */
    int64_t driver_rounding;
    /* What memory pools hold beyond their live allocations. Source: the default pool's size at the
     * moment (CM_DEVICE_BYTES_POOLED), else the last record of each pool (CM_EV_POOL). A pool
     * recorded as smaller than its live allocations has no slack: the difference is pool_short,
     * part of the residual. */
    int64_t pool_slack, pool_short;
    /* used - others - all of the above, at the device's first quiet moment; at least 0; -1 before
     * it. context_measured: this trace recorded the context's creation, so that this is its own
     * memory and what the driver loaded until then. Otherwise it includes all earlier memory. */
    int64_t context;
    bool context_measured;
    int64_t residual;
    cm_driver_line *line; /* driver memory that is not PyTorch's, largest first */
    size_t line_count;
} cm_ledger;

typedef struct cm_device_point {
    uint64_t time_ns;
    int64_t used, driver, reserved, allocated; /* -1 unknown */
} cm_device_point;

/* Of each span of moments, the one that used the most. */
typedef struct cm_device_curve {
    int device;
    cm_device_point *point; /* options.timeline_points at most */
    size_t count;
} cm_device_curve;

typedef enum cm_fragment_what {
    CM_FRAGMENT_PEAK = 0, /* PyTorch's reserved bytes first at their highest */
    CM_FRAGMENT_OOM,      /* the device's first */
    CM_FRAGMENT_END
} cm_fragment_what;

enum {
    CM_FRAGMENT_SEGMENTS = 20,
    CM_FRAGMENT_SEGMENT_PINS = 8,
    CM_FRAGMENT_PINS = 50,
    CM_FRAGMENT_RANGES = 100
};

typedef struct cm_pin {
    uint32_t stack; /* charged */
    int64_t bytes;  /* of its blocks */
    uint64_t count;
    int64_t pinned; /* sizes of the partly used pieces around them, each once */
    uint64_t segments;
} cm_pin;

/* Addresses of an expandable segment that memory is mapped to, with none in between that it is
 * not. */
typedef struct cm_fragment_range {
    uint64_t address;
    int64_t size, allocated, largest_free;
} cm_fragment_range;

typedef struct cm_fragment_segment {
    uint64_t address; /* of its first byte of memory */
    int64_t size, allocated, largest_free;
    bool expandable;
    int64_t addresses;                            /* bytes of address space; -1: unknown */
    int64_t unmapped;                             /* between its ranges */
    size_t first_range, range_count, range_total; /* by address, the lowest */
    size_t first_pin, pin_count; /* in segment_pin, the most bytes first; segments is 0 */
} cm_fragment_segment;

/* PyTorch's segments of one device against its blocks. A segment is memory from cudaMalloc, which
 * goes back whole, or an expandable one: all handles that are mapped into one reservation, each of
 * which goes back by itself. These are the pieces. Where the reservation is unknown, a gap ends the
 * segment. */
typedef struct cm_fragmentation {
    int device;
    cm_fragment_what what;
    uint64_t time_ns;
    int64_t reserved;           /* sum of the segments' sizes */
    int64_t allocated;          /* of the blocks in them */
    int64_t requested;          /* of which requested */
    int64_t largest_free_block; /* in one segment */
    int64_t driver;             /* bytes that this process had allocated from the driver; -1 */
    int64_t free_on_device;     /* total - used when last measured in quiet (else when next), with
                                 * what this process freed or allocated in between; -1 */
    /* The largest request that could succeed: the larger of largest_free_block and free_on_device +
     * empty_cache_returns, because PyTorch empties its cache before it fails. -1 where
     * free_on_device is unknown. */
    int64_t largest_request;
    int64_t asked;     /* size of the failed request; -1 except for CM_FRAGMENT_OOM */
    int64_t too_small; /* free bytes in stretches smaller than that; or -1 */
    /* Pieces without a block. */
    int64_t empty_cache_returns;
    /* The same if all segments were expandable: empty_cache_returns plus every granule without a
     * block in partly used cudaMalloc segments. Granules of CM_GRANULE count from the segment's
     * start. */
    int64_t expandable_returns;
    cm_fragment_segment *segment; /* partly used, the most free bytes first */
    size_t segment_count, segment_total;
    cm_fragment_range *range;
    size_t range_count;
    cm_pin *pin; /* the most pinned first */
    size_t pin_count;
    cm_pin *segment_pin;
    size_t segment_pin_count;
} cm_fragmentation;

typedef struct cm_kernel {
    uint32_t name;
    uint64_t count;
    int64_t ns;
} cm_kernel;

/* Blocks of one stack that waited. */
typedef struct cm_wait {
    uint32_t stack; /* charged */
    uint32_t name;  /* the work at the other end of the longest wait; 0 unknown */
    int64_t bytes;
    uint64_t count;
    int64_t wait_ns; /* the longest */
} cm_wait;

typedef struct cm_deferred_free {
    uint32_t stack;
    uint64_t stream;
    int64_t bytes;
    uint64_t count;
} cm_deferred_free;

enum { CM_KERNEL_NAMES = 50, CM_KERNEL_WAITS = 50 };

/* Any work on a block's device counts as its use, because its streams are unknown: the first launch
 * after its allocation, the last before its free. early: blocks allocated at least wait_least_ns
 * before that first work started. late: blocks freed at least that long after that last work ended.
 * Blocks are in neither list if that work has no record. wait_least_ns: a tenth of the mean step,
 * at least 1 ms; 10 ms without steps. */
typedef struct cm_kernels {
    bool seen;
    /* dropped: launches without a record of their work, after the first record. unrecorded:
     * launches before the first record, or before compacted work, so that their fate is unknown.
     * unlaunched: work without a recorded launch, less work of compacted launches. */
    uint64_t launches, ran, dropped, unrecorded, unlaunched;
    uint64_t unjudged; /* blocks beyond the bound of those that wait for records */
    int64_t wait_least_ns;
    int64_t ns;                    /* of all kernels */
    cm_kernel *name;               /* the most time first */
    size_t name_count, name_total; /* in the list; of all kernels */
    cm_wait *early, *late;         /* the most bytes first */
    size_t early_count, late_count;
    cm_deferred_free *deferred_frees; /* the most bytes first */
    size_t deferred_free_count;
} cm_kernels;

#endif
