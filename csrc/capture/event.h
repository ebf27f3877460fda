/* The one record that every source emits and every ring, trace and analysis carries.
 *
 * 32 bytes, so that two share a cache line and a 16 KiB ring block holds 511 of them.
 * What an event means beyond its own fields (which autograd node was running, which thread it
 * came from) follows from the events before it in the same ring: they are never reordered. */
#ifndef CM_CAPTURE_EVENT_H
#define CM_CAPTURE_EVENT_H

#include <stdint.h>

/* Values are part of the file format (csrc/trace/format.h): never renumber, only append. */
typedef enum cm_event_kind {
    CM_EV_NONE = 0,
    CM_EV_ALLOC = 1, /* address, size in bytes, stack, device; flags CM_EVF_* */
    CM_EV_FREE = 2,  /* address; size where the allocator tells it, else 0; device */
    CM_EV_OOM = 3,   /* size = bytes asked for, address = bytes allocated then (CM_OOM_NOT_TOLD: as
                        many as are alive); stack, device */
    CM_EV_RESERVED = 4, /* allocator totals changed: size = reserved, address = allocated; device */
    CM_EV_NODE_NEW = 5, /* autograd node created: address = sequence number, stack */
    CM_EV_NODE_RUN = 6, /* node starts: address = sequence number (CM_NODE_NO_SEQUENCE for
                           AccumulateGrad), size = id of the creating thread, stack = name id */
    CM_EV_NODE_DONE = 7,   /* the innermost running node of this thread ends */
    CM_EV_NODE_FREE = 8,   /* node destroyed: address = sequence number, size = creating thread */
    CM_EV_THREAD = 9,      /* who owns this ring: address = kernel thread id, size = autograd's
                              thread id (0 while unknown; a later one replaces it) */
    CM_EV_TICK = 10,       /* a candidate step clock ticked: size = cm_tick_kind, address = object,
                              stack = the Python stack of the call */
    CM_EV_OBJECT_NEW = 11, /* an address now belongs to a new object: size = cm_object_kind,
                              address = object, stack = name id of its class; flag
                              CM_EVF_BEFORE_START for one found alive at start */
    CM_EV_SEED = 12,       /* a block that was alive before recording: address, size, device */
    CM_EV_MARK = 13,       /* size = cm_mark_kind, address = its argument */
    CM_EV_LOST = 14,       /* size = events this thread could not store before this point */
    CM_EV_SAMPLE = 15, /* written by the collector only: size = bytes, address = cm_sample_kind */
    /* In a trace past its bound only (fold.h), behind the stretch that they are about. */
    CM_EV_FOLDED = 16, /* blocks that came and went and were left out: address = how many, size =
                          their bytes, flags = cm_charge_kind (analysis/nodes.h), device; of the
                          thread that allocated them */
    CM_EV_FOLD = 17,   /* address = events left out, size = node runs among them, stack = nodes
                          created and destroyed among them */

    /* Since 1.2. */
    CM_EV_REQUESTED = 18,    /* the block that this thread has just recorded (address, device) was
                                asked for with `size` bytes; only where it is larger. With
                                CM_EVF_BEFORE_START: of the seed before */
    CM_EV_SEGMENT_NEW = 19,  /* PyTorch's allocator took memory from CUDA: address, size, stack,
                                device. With CM_EVF_BEFORE_START: found by the walk at start */
    CM_EV_SEGMENT_FREE = 20, /* ... and gave it back: address. Where a block lies alive at this very
                                address it is that block's free, which was taken from CUDA for
                                itself (the device is not told: see CM_DEVICE_NOT_TOLD) */
    CM_EV_HOST_READ = 21     /* on a simulated device: the host read `size` bytes at address that
                                only a kernel would have computed; stack */
} cm_event_kind;

enum {
    CM_EVF_IN_NODE = 1u << 0,      /* an autograd node was running on this thread */
    CM_EVF_NODE_STACK = 1u << 1,   /* ... and no Python frame is newer than its start: charge the
                                      node's forward stack; `stack` is the caller of backward() */
    CM_EVF_BEFORE_START = 1u << 2, /* OBJECT_NEW: found by the walk at start, created earlier; ALLOC
                                      and NODE_*: from before the window that this trace is */
    CM_EVF_DIRECT = 1u << 3, /* ALLOC, SEED: taken from CUDA for itself, so in no total of PyTorch's
                               caching allocator */
    CM_EVF_WRITTEN = 1u << 4 /* HOST_READ: of bytes that the host wrote itself, so right unless a
                                kernel changed them */
};

typedef enum cm_tick_kind {
    CM_TICK_STEP = 1,      /* prof.step() */
    CM_TICK_OPTIMIZER = 2, /* an optimizer's step returned; address = the optimizer */
    CM_TICK_DATA = 3,      /* a DataLoader iterator is asked for its next batch; address = it */
    CM_TICK_MODULE = 4     /* the outermost module is called; address = it */
} cm_tick_kind;

typedef enum cm_object_kind {
    CM_OBJECT_MODULE = 1,
    CM_OBJECT_OPTIMIZER = 2,
    CM_OBJECT_ITERATOR = 3 /* of a DataLoader: made, or begun afresh for another epoch */
} cm_object_kind;

typedef enum cm_mark_kind {
    CM_MARK_WINDOW_OPEN = 1, /* address = window number */
    CM_MARK_WINDOW_CLOSE = 2,
    CM_MARK_SEEDED = 3,     /* the walk at start is over; address = blocks skipped, see seed.py */
    CM_MARK_LATE_HOOKS = 4, /* slots were patched after recording had started */
    /* Python's cyclic collector, as gc.callbacks tells it. */
    CM_MARK_COLLECT_BEGIN = 5, /* address = generation (2 = full) */
    CM_MARK_COLLECT_END = 6,   /* address = generation */
    /* The one collection that stop() and the end of `run` make while the program's globals live. */
    CM_MARK_FINAL_COLLECT_BEGIN = 7, /* address = 1 if automatic collection was enabled, else 0 */
    CM_MARK_FINAL_COLLECT_END = 8
} cm_mark_kind;

typedef enum cm_sample_kind { CM_SAMPLE_RSS = 1 } cm_sample_kind;

/* Device type numbers are PyTorch's c10::DeviceType; the index is -1 where there is only one. */
enum { CM_DEVICE_CPU = 0, CM_DEVICE_CUDA = 1, CM_DEVICE_HIP = 6, CM_DEVICE_XPU = 12 };
/* Index in a FREE or SEGMENT_FREE on CUDA: the one that the address is on. An address is on one
 * device of a process only. */
enum { CM_DEVICE_NOT_TOLD = -1 };

#define CM_OOM_NOT_TOLD UINT64_MAX

#define CM_NODE_NO_SEQUENCE UINT64_MAX

/* Reserved stack ids; the first real one is CM_STACK_FIRST. */
enum {
    CM_STACK_NONE = 0, /* the thread has no Python frames */
    CM_STACK_LOST = 1, /* it had, but there was no room to define them: counted */
    CM_STACK_FIRST = 2
};

typedef struct cm_event {
    uint64_t time; /* ticks of cm_clock_now(); may be a little older than a neighbour's */
    uint64_t address;
    int64_t size;
    uint32_t stack; /* stack id, or name id where the kind says so */
    uint8_t kind;   /* cm_event_kind */
    uint8_t flags;
    uint8_t device_type;
    int8_t device_index;
} cm_event;

_Static_assert(sizeof(cm_event) == 32, "an event is half a cache line");

#endif
