/* What the driver level adds to a report: who holds the memory of each device, down to every
 * library, and what of a device nobody accounts for. All of it is empty for a trace without events
 * of the driver level (kinds 22 to 30). Bytes are int64, -1 where they are unknown; times are
 * nanoseconds since the window's start; devices are CUDA's indices, -1 where none was told. */
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
    cm_driver_line *line; /* alive at the end, of every kind but host memory; largest first */
    size_t line_count;
} cm_driver_device;

/* Records of MEMORY2 against events. differ: joined, but address, size or device are not the same;
 * missing: an event of a kind that has records without one; alone: a record without an event. None
 * is missing where no record was ever seen. */
typedef struct cm_witness_totals {
    uint64_t records, matched, missing, differ, alone;
} cm_witness_totals;

typedef struct cm_driver_report {
    bool seen; /* some event of kinds 22 to 25 or 29 */
    /* Events, but those of contexts. A free that failed is not among the frees. */
    uint64_t allocations, frees, unknown_frees, failed_frees;
    uint64_t replaced; /* allocations whose address was given out again: their free was lost */
    cm_witness_totals witness;
    cm_driver_device *device;
    size_t device_count;
    cm_driver_device host; /* page-locked: index -1 */
} cm_driver_report;

typedef enum cm_ledger_what {
    CM_LEDGER_PEAK = 0, /* most used; among quiet moments where there is one */
    CM_LEDGER_END,      /* the last that was told */
    CM_LEDGER_ASKED     /* nearest to options.ledger_at_ns */
} cm_ledger_what;

/* One device at one moment at which its totals were told (CM_EV_DEVICE). Always, exactly:
 *
 *   used = tensors + rounding + cached + sum of line.bytes + driver_rounding + pool_slack
 *          + max(context, 0) + max(others, 0) + residual
 *
 * driver_reserved is told beside it and in no sum: CUDA's total, and so `used`, leaves out what
 * driver and firmware keep. */
typedef struct cm_ledger {
    int device;
    uint64_t time_ns;
    int64_t step; /* -1: outside of any */
    cm_ledger_what what;
    bool quiet; /* no allocation of the driver happened while the totals were read */
    int64_t used, total, own, others, driver_reserved;
    int64_t tensors;  /* asked-for bytes of live blocks that lie in driver memory */
    int64_t rounding; /* the size of these blocks less that */
    int64_t cached;   /* PyTorch's driver memory less its blocks */
    /* The driver gives memory to a process in pages of CM_GRANULE, and carves what is smaller out
     * of them: the pages that live allocations of kinds device and managed touch, less their bytes,
     * PyTorch's among them. Memory of pools and of handles comes in whole pages; of arrays the
     * addresses are not told. */
    int64_t driver_rounding;
    /* What memory pools hold beyond the allocations that are alive in them: of the device's default
     * pool as the moment told it (CM_DEVICE_BYTES_POOLED); where it did not, of all pools as
     * records last told of them (CM_EV_POOL). Pools that are told to hold less than is alive in
     * them have no slack: the difference is pool_short, and so in the residual. */
    int64_t pool_slack, pool_short;
    /* used - others - all of the above, at the device's first quiet moment; 0 where that was
     * negative; -1 before there was one. context_measured: the device's context was seen to be made
     * in this trace, so that this is the context's own memory (and what the driver loaded until
     * that moment); else it is what was there before, too. */
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

/* A span of moments is told as the one of them that used the most. */
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

enum { CM_FRAGMENT_SEGMENTS = 20, CM_FRAGMENT_SEGMENT_PINS = 8, CM_FRAGMENT_PINS = 50 };

typedef struct cm_pin {
    uint32_t stack; /* charged */
    int64_t bytes;  /* of its blocks */
    uint64_t count;
    int64_t pinned; /* sizes of the partly used segments that they lie in, each once */
    uint64_t segments;
} cm_pin;

typedef struct cm_fragment_segment {
    uint64_t address;
    int64_t size, allocated, largest_free;
    size_t first_pin, pin_count; /* in segment_pin, largest first; pinned and segments are 0 */
} cm_fragment_segment;

/* PyTorch's segments of one device against its blocks. A segment is memory taken by cudaMalloc, or
 * a stretch of addresses without gap that shows mapped handles (an expandable segment). */
typedef struct cm_fragmentation {
    int device;
    cm_fragment_what what;
    uint64_t time_ns;
    int64_t reserved;           /* sum of the segments' sizes */
    int64_t allocated;          /* of the blocks in them */
    int64_t requested;          /* of which was asked for */
    int64_t largest_free_block; /* the largest free stretch inside one segment */
    int64_t free_on_device;     /* total - used at the last quiet moment, else at the last one,
                                 * with what this process freed or allocated since; -1 */
    /* The largest single request that could be served: the larger of largest_free_block and
     * free_on_device + empty_cache_returns (PyTorch empties its cache before it gives up); -1 where
     * free_on_device is unknown. */
    int64_t largest_request;
    int64_t asked;     /* what the failed request asked for; -1 but for CM_FRAGMENT_OOM */
    int64_t too_small; /* of the bytes in no block, those in stretches smaller than that; or -1 */
    /* Segments (of expandable ones: mapped pieces) in which nothing is allocated. */
    int64_t empty_cache_returns;
    /* What it would return were all segments expandable: empty_cache_returns, and of partly used
     * segments of cudaMalloc every granule of CM_GRANULE, counted from the segment's start, in
     * which nothing is allocated. */
    int64_t expandable_returns;
    cm_fragment_segment *segment; /* partly used, the most free bytes first */
    size_t segment_count, segment_total;
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
    uint32_t name;  /* the work that the longest wait was for, or was since; 0 unknown */
    int64_t bytes;
    uint64_t count;
    int64_t wait_ns; /* the longest */
} cm_wait;

typedef struct cm_held {
    uint32_t stack;
    uint64_t stream;
    int64_t bytes;
    uint64_t count;
} cm_held;

enum { CM_KERNEL_NAMES = 50, CM_KERNEL_WAITS = 50 };

/* Which stream a block is used on is not told, so any work on its device counts as use: the first
 * launch on the device after the block's allocation, the last one before its free. early: blocks
 * allocated at least wait_least_ns before that first work started; late: blocks freed at least that
 * long after that last work had ended. Work of which no record came tells no time: such blocks are
 * in neither list. wait_least_ns: a tenth of a step on average, 1 ms at least; 10 ms without
 * steps. */
typedef struct cm_kernels {
    bool seen;
    /* dropped: launches without a record of their work, once there were records; unrecorded: those
     * before the first record or before work that a fold only counted, so that nobody knows.
     * unlaunched: work whose launch was not seen, less what a fold left out the launch of. */
    uint64_t launches, ran, dropped, unrecorded, unlaunched;
    uint64_t unjudged; /* blocks, because too many waited for such records */
    int64_t wait_least_ns;
    int64_t ns;                    /* of all kernels */
    cm_kernel *name;               /* the most time first */
    size_t name_count, name_total; /* in the list; of all kernels */
    cm_wait *early, *late;         /* the most bytes first */
    size_t early_count, late_count;
    cm_held *held; /* the most bytes first */
    size_t held_count;
} cm_kernels;

#endif
