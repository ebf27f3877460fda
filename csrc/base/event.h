/* The event: the one record that every source writes and every ring, trace and analysis carries.
 *
 * An event is 32 bytes, so that two share a cache line and a 16 KiB ring block holds 511 of them.
 * The events of one thread are never reordered. So an event need not repeat what earlier ones of
 * its thread define: the running autograd node, or the thread itself.
 *
 * Below, each kind lists its fields: address, size, stack, device, flags. A field that is not named
 * is 0; `time` is always set. */
#ifndef CM_BASE_EVENT_H
#define CM_BASE_EVENT_H

#include <stdbool.h>
#include <stdint.h>

/* Values are part of the file format (csrc/trace/format.h): never renumber, only append. */
typedef enum cm_event_kind {
    CM_EV_NONE = 0,

    /* Memory as PyTorch's allocators see it. */
    CM_EV_ALLOC = 1,    /* address, size in bytes, stack, device; flags CM_EVF_* */
    CM_EV_FREE = 2,     /* address, device; size where the allocator knows it, else 0 */
    CM_EV_OOM = 3,      /* a request failed: size = bytes asked for, stack, device; address = bytes
                           allocated then (CM_OOM_UNKNOWN or 0: as many as are alive) */
    CM_EV_RESERVED = 4, /* the allocator's totals changed: size = reserved, address = allocated;
                           device */

    /* The autograd graph. A node is known by its sequence number and its creating thread. */
    CM_EV_NODE_NEW = 5,  /* a node was created: address = sequence number, stack */
    CM_EV_NODE_RUN = 6,  /* a node starts: address = sequence number (CM_NODE_NO_SEQUENCE for
                            AccumulateGrad), size = id of the creating thread, stack = name id */
    CM_EV_NODE_DONE = 7, /* this thread's innermost running node ends */
    CM_EV_NODE_FREE = 8, /* a node was destroyed: address = sequence number, size = creating thread
                          */

    /* Threads, steps, objects, and the recording itself. */
    CM_EV_THREAD = 9,      /* the ring's owner: address = kernel thread id, size = autograd's thread
                              id (0 while unknown; a later event replaces it) */
    CM_EV_TICK = 10,       /* a candidate step clock ticked: size = cm_tick_kind, address = object,
                              stack = the Python stack of the call */
    CM_EV_OBJECT_NEW = 11, /* an address now belongs to a new object: size = cm_object_kind,
                              address = object, stack = name id of its class; flag
                              CM_EVF_BEFORE_START where it was found alive at start */
    CM_EV_SEED = 12,       /* a block that was alive before recording: address, size, device */
    CM_EV_MARK = 13,       /* size = cm_mark_kind, address = its argument */
    CM_EV_LOST = 14,       /* size = events of this thread that found no room before this point */
    CM_EV_SAMPLE = 15,     /* of the whole process: size = bytes, address = cm_sample_kind */

    /* Compaction, only past a trace's bound: at the end of their stretch (compact.h). */
    CM_EV_COMPACTED_BLOCKS = 16, /* blocks that were left out: address = how many, size = their
                          bytes, flags = cm_charge_kind (heap/nodes.h), device; on the thread that
                          allocated them */
    CM_EV_COMPACTED =
        17, /* all events that were left out: flags = CM_EVF_LEADS, address = how many, size = node
          runs among them, stack = nodes created and destroyed among them */

    /* Since 1.2. */
    CM_EV_REQUESTED =
        18, /* the block of this thread's last event (address, device) was requested with `size`
               bytes; only if the block is larger. With CM_EVF_BEFORE_START: of the last seed */
    CM_EV_SEGMENT_NEW = 19, /* PyTorch's allocator took memory from CUDA: address, size, stack,
                               device. With CM_EVF_BEFORE_START: found by the walk at start */
    CM_EV_SEGMENT_FREE =
        20, /* ... and gave it back: address. Where a block at this address is alive, it was taken
               from CUDA directly and this is its free (the device is CM_DEVICE_UNKNOWN) */
    CM_EV_HOST_READ = 21, /* on a simulated device: the host read `size` bytes at address that
                             only a kernel would have computed; stack */

    /* Since 1.3: the driver level (sources/cupti/cupti.h). flags hold a cm_driver_kind. */
    CM_EV_DRIVER_NEW = 22,  /* CUDA gave out memory: address or handle, as the kind has it; size,
                               stack, device. Written after the call has returned */
    CM_EV_DRIVER_FREE = 23, /* CUDA takes it back: address or handle; kind 0 if the call has none;
                               size of the unmapped range. Written before the call, because another
                               thread may get the address at once */
    CM_EV_DRIVER_MORE = 24, /* about this thread's last event of kind 22, 23, 25 or 26: size =
                               cm_driver_more, address = its value, stack = name id or 0 */
    CM_EV_DRIVER_RECORD =
        25, /* CUPTI's activity record (MEMORY2) of an allocation, or with CM_EVF_RELEASE of a free:
               address, size, device, recorded time, stack = name id of the calling library (0:
               unknown). Its DRIVER_MORE has the correlation id */
    CM_EV_POOL = 26,   /* CUPTI's activity record of a memory pool: address = pool, size =
                          bytes of the device that it holds, flags = cm_pool_operation */
    CM_EV_LAUNCH = 27, /* work is put on a stream: address = stream handle, size = correlation
                          id, stack, device; flags = cm_work_kind. Only while asked for */
    CM_EV_WORK = 28,   /* ... and ran: time = its start, size = nanoseconds, address =
                          correlation id, stack = name id of the kernel; flags = cm_work_kind */
    CM_EV_DEVICE = 29, /* a total of a whole device: size = bytes, address = cm_device_bytes,
                          flag CM_EVF_QUIET. Totals of one moment follow each other on their
                          thread, CM_DEVICE_BYTES_USED last */
    CM_EV_DEFERRED_FREE = 30, /* PyTorch defers the FREE that follows on this thread: the memory
                        cannot be reused before a stream named by record_stream has caught
                        up; address = stream handle */

    /* Compaction again: driver allocations that were left out. address = cm_driver_sum, size = how
     * many more. */
    CM_EV_COMPACTED_DRIVER = 31,

    /* Since 1.5. */
    CM_EV_LABEL = 32,       /* a walk over living objects found this: flags = cm_label_kind, address
                               = the block's first byte (of a module: the object), size = address of
                               the module object that owns it (0: none), stack = name id of its
                               text, device. A text is a name, a tab, a dtype and a shape; all but
                               the tab may be missing */
    CM_EV_HOLDER = 33,      /* a holder was found, of a leak or of what is alive of a line: stack =
                               the leak's (a line's) stack id, flags = cm_holder_flag, device */
    CM_EV_HOLDER_PATH = 34, /* about this thread's last HOLDER: stack = name id of the referrer
                               path, address = blocks or nodes behind it, size = their bytes */
    CM_EV_OPERATOR = 35,    /* this thread's innermost running operator from now on: stack = name id
                               (0: none). Only while asked for */
    CM_EVENT_KINDS
} cm_event_kind;

/* --- flags ------------------------------------------------------------------------------- */

enum {
    CM_EVF_IN_NODE = 1u << 0,      /* an autograd node was running on this thread */
    CM_EVF_NODE_STACK = 1u << 1,   /* ... and no Python frame is newer than its start: charge the
                                      node's forward stack; `stack` is the caller of backward() */
    CM_EVF_BEFORE_START = 1u << 2, /* OBJECT_NEW: found by the walk at start, created earlier; ALLOC
                                      and NODE_*: from before this trace's window */
    CM_EVF_DIRECT = 1u << 3,  /* ALLOC, SEED: taken from CUDA directly, so in no total of PyTorch's
                                 caching allocator */
    CM_EVF_WRITTEN = 1u << 4, /* HOST_READ: of bytes that the host wrote itself, so right unless a
                                 kernel changed them */
    CM_EVF_NO_GRAD = 1u << 5, /* TICK of a module: autograd records nothing there */
    CM_EVF_EVAL_MODE = 1u << 6, /* TICK of a module: it is not in training mode */
    CM_EVF_LEADS = 1u << 0      /* COMPACTED: allocations that decide where steps begin were kept */
};

/* Kinds of the driver level have flags of their own beside their kind. */
enum {
    CM_DRIVER_KIND = 0x1f, /* mask of cm_driver_kind */
    CM_EVF_ALREADY =
        0x20, /* DRIVER_NEW, DRIVER_FREE, DRIVER_MORE: from before this trace's window */
    CM_EVF_BY_SLOT = 0x40, /* DRIVER_NEW, DRIVER_FREE: seen in a relocation slot, not by CUPTI */
    CM_EVF_OF_NODE = 0x80, /* DRIVER_NEW: as CM_EVF_NODE_STACK */
    CM_EVF_RELEASE = 0x80, /* DRIVER_RECORD: of a free */
    CM_EVF_QUIET = 0x80,   /* DEVICE: the driver gave out and took back nothing meanwhile */
    CM_EVF_SUMMED = 0x80   /* LAUNCH, WORK: a sum of what compaction left out. LAUNCH: size = how
                              many, no stack; WORK: address = how many of a name, size = their time */
};

typedef enum cm_holder_flag {
    CM_HOLDER_NODES = 1, /* of graph nodes */
    CM_HOLDER_FIRST = 2, /* of a search: holders found earlier for the leak are outdated */
    CM_HOLDER_ALIVE = 4, /* of all that is alive of a user's line; stack: one that leads to it */
    CM_HOLDER_MORE = 8,  /* about a holder found earlier: its path, a tab, and the line that puts
                            there what it holds (train.py:30 in Trainer.log) */
    CM_HOLDER_BACKWARD =
        16,                 /* of a leak that backward made: gradients have their forward's stack */
    CM_HOLDER_FORWARD = 32, /* of a leak that backward did not make; neither flag: not known */
} cm_holder_flag;

/* --- steps, objects, marks ----------------------------------------------------------------- */

typedef enum cm_tick_kind {
    CM_TICK_STEP = 1,      /* prof.step() */
    CM_TICK_OPTIMIZER = 2, /* an optimizer's step returned; address = the optimizer */
    CM_TICK_DATA = 3,      /* a DataLoader's iterator is asked for its next batch; address = it */
    CM_TICK_MODULE = 4,    /* a module is called outside any other module's call; address = it */
    CM_TICK_BACKWARD = 5   /* a backward pass that began outside any node returned; address 0 */
} cm_tick_kind;

typedef enum cm_object_kind {
    CM_OBJECT_MODULE = 1,
    CM_OBJECT_OPTIMIZER = 2,
    CM_OBJECT_ITERATOR = 3 /* of a DataLoader: created, or restarted for another epoch */
} cm_object_kind;

typedef enum cm_mark_kind {
    CM_MARK_WINDOW_OPEN = 1, /* address = window number */
    CM_MARK_WINDOW_CLOSE = 2,
    CM_MARK_SEEDED = 3,     /* the walk at start is over; address = blocks skipped, see seed.py */
    CM_MARK_LATE_HOOKS = 4, /* slots were patched after recording had started */
    /* Python's cyclic collector, as gc.callbacks reports it. */
    CM_MARK_COLLECT_BEGIN = 5, /* address = generation (2 = full) */
    CM_MARK_COLLECT_END = 6,   /* address = generation */
    /* The one collection that stop() and the end of `run` make while the program's globals live. */
    CM_MARK_FINAL_COLLECT_BEGIN = 7, /* address = 1 if automatic collection was enabled, else 0;
                                        stack: the function that runs then and holds its locals */
    CM_MARK_FINAL_COLLECT_END = 8,
    /* A scan of bounded containers that are not yet full: address = 0, then each block in one of
     * them. */
    CM_MARK_FILLING = 9,
    CM_MARK_WALK = 10,     /* a walk over living objects begins: its LABELs follow on this thread */
    CM_MARK_OOM_LEFT = 11, /* the exception of the last OOM leaves a window; address = its number */
    CM_MARK_HELD = 12,  /* a search for holders: address = twice the leak's stack id, + 1 if most of
                           it is reached from a variable, through no module's state */
    CM_MARK_NAMED = 13, /* ... while the program ran, most of what had grown of this stack (address:
                           its id) was held by a name */
    CM_MARK_EXIT = 14   /* the program's threads are over, and what it has registered for its exit
                           begins: this frees what the program never did */
} cm_mark_kind;

/* These marks may come anywhere inside a step. All others bound what compaction sums up. */
static inline bool cm_mark_is_inside_step(int64_t kind)
{
    return kind == CM_MARK_COLLECT_BEGIN || kind == CM_MARK_COLLECT_END ||
           kind == CM_MARK_FILLING || kind == CM_MARK_HELD || kind == CM_MARK_NAMED ||
           kind == CM_MARK_EXIT;
}

typedef enum cm_label_kind {
    CM_LABEL_MODULE = 1, /* text: its qualified name */
    CM_LABEL_PARAMETER = 2,
    CM_LABEL_BUFFER = 3,
    CM_LABEL_GRADIENT = 4,
    CM_LABEL_OPTIMIZER_STATE = 5,
    CM_LABEL_TENSOR = 6, /* any other tensor: without a name */
    /* By no walk: without an owner or a text. */
    CM_LABEL_WORKSPACE = 7, /* given to a library as its workspace; the device's index is
                               CM_DEVICE_UNKNOWN */
    CM_LABEL_AUTOCAST = 8,  /* a half copy of a weight that autocast caches */
    /* Of a memory snapshot: frames show that a module moved it to the device. */
    CM_LABEL_MOVED_PARAMETER = 9,
    CM_LABEL_MOVED_BUFFER = 10,
    CM_LABEL_END
} cm_label_kind;

typedef enum cm_sample_kind {
    CM_SAMPLE_RSS = 1,    /* resident memory */
    CM_SAMPLE_MALLOC = 3, /* at a tick: what malloc has given out */
    CM_SAMPLE_USED = 2 /* at a tick: address space that is private and writable, without what malloc
                          keeps free */
} cm_sample_kind;

/* --- the driver level ---------------------------------------------------------------------- */

typedef enum cm_driver_kind {
    CM_DRIVER_DEVICE = 1,     /* cuMemAlloc, cuMemAllocPitch */
    CM_DRIVER_MANAGED = 2,    /* cuMemAllocManaged */
    CM_DRIVER_HOST = 3,       /* page-locked host memory that CUDA allocated */
    CM_DRIVER_REGISTERED = 4, /* host memory of the program, page-locked by cuMemHostRegister */
    CM_DRIVER_ASYNC = 5,      /* out of a memory pool, in a stream's order */
    CM_DRIVER_PHYSICAL = 6,   /* cuMemCreate: address = handle; alive until every reference is
                                 released and it is mapped nowhere */
    CM_DRIVER_REFERENCE = 7,  /* one more reference to such a handle */
    CM_DRIVER_IMPORTED = 8,   /* a handle of memory that another process pays for */
    CM_DRIVER_RESERVED = 9,   /* addresses without memory */
    CM_DRIVER_MAPPED = 10,    /* addresses that now show a handle's memory */
    CM_DRIVER_ARRAY = 11,     /* address = handle; size computed from the description */
    CM_DRIVER_IPC = 12,       /* another process's memory, opened here */
    CM_DRIVER_EXTERNAL = 13,  /* another API's memory, imported here: address = handle */
    CM_DRIVER_POOL = 14,      /* a memory pool was created: address = handle */
    CM_DRIVER_GRAPH = 15,     /* a node of a CUDA graph that allocates: address as it will be */
    CM_DRIVER_MULTICAST = 16, /* address = handle */
    CM_DRIVER_CONTEXT = 17    /* a context: address = handle, size 0. Its FREE ends everything
                                 that lived in it */
} cm_driver_kind;

typedef enum cm_driver_more {
    CM_DRIVER_MORE_LIBRARY =
        1, /* stack = name id: the calling library's file name, found by unwinding */
    CM_DRIVER_MORE_CORRELATION = 2, /* address = CUPTI's correlation id, 32 bits, wraps */
    CM_DRIVER_MORE_STREAM = 3,      /* address = stream handle */
    CM_DRIVER_MORE_HANDLE = 4,      /* address = what is mapped, or the pool that it came from */
    CM_DRIVER_MORE_FAILED = 5,      /* address = CUDA's error: the free did not happen */
    CM_DRIVER_MORE_UTILIZED = 6,    /* address = bytes of the pool that are in use */
    CM_DRIVER_MORE_TORCH = 7,       /* PyTorch's allocator was seen to own it */
    CM_DRIVER_MORE_AT_LEAST = 8     /* of reserved addresses: there are so many, or more */
} cm_driver_more;

typedef enum cm_driver_sum {
    CM_DRIVER_SUM_ALLOCATIONS = 1,
    CM_DRIVER_SUM_FREES = 2,
    CM_DRIVER_SUM_MATCHED = 3, /* records that agree with their event */
    CM_DRIVER_SUM_DIFFER = 4,
    CM_DRIVER_SUM_MISSING = 5, /* events without a record; negative where the record came later */
    CM_DRIVER_SUM_NEWEST = 6,  /* no sum: 1 + the newest of their correlation ids */
    CM_DRIVER_SUMS
} cm_driver_sum;

typedef enum cm_pool_operation {
    CM_POOL_CREATED = 1,
    CM_POOL_DESTROYED = 2,
    CM_POOL_TRIMMED = 3,
    CM_POOL_SEEN = 4 /* in the record of an allocation */
} cm_pool_operation;

typedef enum cm_work_kind {
    CM_WORK_KERNEL = 1,
    CM_WORK_COPY = 2,
    CM_WORK_SET = 3,
    CM_WORK_GRAPH = 4
} cm_work_kind;

typedef enum cm_device_bytes {
    CM_DEVICE_BYTES_TOTAL = 1,    /* the device's memory */
    CM_DEVICE_BYTES_OWN = 2,      /* in use by this process, from NVML */
    CM_DEVICE_BYTES_OTHERS = 3,   /* in use by other processes, from NVML */
    CM_DEVICE_BYTES_POOLED = 4,   /* held by the device's default memory pool */
    CM_DEVICE_BYTES_RESERVED = 5, /* held by driver and firmware, from NVML */
    CM_DEVICE_BYTES_USED = 6,     /* total less free, of all processes; ends the moment */
    /* Of a device whose memory is the host's (CUDA calls it integrated), from /proc/meminfo: what
     * processes and the kernel have of the machine's, and the page cache. */
    CM_DEVICE_BYTES_HOST = 7,
    CM_DEVICE_BYTES_CACHE = 8
} cm_device_bytes;

/* --- values of fields ---------------------------------------------------------------------- */

/* Device types are PyTorch's c10::DeviceType; the index is -1 where there is only one device. */
enum { CM_DEVICE_CPU = 0, CM_DEVICE_CUDA = 1, CM_DEVICE_HIP = 6, CM_DEVICE_XPU = 12 };
/* Pinned host memory, which is a device of its own here and none of PyTorch's types. */
enum { CM_DEVICE_PINNED = 64 };
/* Index in a FREE or SEGMENT_FREE on CUDA: the device follows from the address, which is on one
 * device of a process only. */
enum { CM_DEVICE_UNKNOWN = -1 };

#define CM_OOM_UNKNOWN UINT64_MAX
/* 0 also means unknown: allocators that keep no total report it, as did the CPU's hook in older
 * traces. Where 0 is true nothing is alive, which gives the same result. */
static inline bool cm_oom_is_known(uint64_t address)
{
    return address != CM_OOM_UNKNOWN && address != 0;
}

#define CM_NODE_NO_SEQUENCE UINT64_MAX

/* Reserved stack ids; the first real one is CM_STACK_FIRST. */
enum {
    CM_STACK_NONE = 0, /* the thread has no Python frames */
    CM_STACK_LOST = 1, /* the stack found no room to be defined: counted */
    CM_STACK_FIRST = 2
};

/* --- the record ---------------------------------------------------------------------------- */

typedef struct cm_event {
    uint64_t time; /* ticks of cm_clock_now(); may be a little older than a neighbour's */
    uint64_t address;
    int64_t size;
    uint32_t stack; /* stack or name id, as the kind has it */
    uint8_t kind;   /* cm_event_kind */
    uint8_t flags;
    uint8_t device_type;
    int8_t device_index;
} cm_event;

/* Every kind: its name in words, and whether its field `stack` is a stack id, a name id or a number
 * of its own. tests/event_kinds.py has the same numbers. */
/* clang-format off */
#define CM_EVENT_TABLE(KIND) \
    KIND(NONE, "none", NUMBER) \
    KIND(ALLOC, "alloc", STACK) \
    KIND(FREE, "free", NUMBER) \
    KIND(OOM, "oom", STACK) \
    KIND(RESERVED, "reserved", NUMBER) \
    KIND(NODE_NEW, "node_new", STACK) \
    KIND(NODE_RUN, "node_run", NAME) \
    KIND(NODE_DONE, "node_done", NUMBER) \
    KIND(NODE_FREE, "node_free", NUMBER) \
    KIND(THREAD, "thread", NUMBER) \
    KIND(TICK, "tick", STACK) \
    KIND(OBJECT_NEW, "object_new", NAME) \
    KIND(SEED, "seed", NUMBER) \
    KIND(MARK, "mark", STACK) \
    KIND(LOST, "lost", NUMBER) \
    KIND(SAMPLE, "sample", NUMBER) \
    KIND(COMPACTED_BLOCKS, "compacted_blocks", NUMBER) \
    KIND(COMPACTED, "compacted", NUMBER) \
    KIND(REQUESTED, "requested", NUMBER) \
    KIND(SEGMENT_NEW, "segment_new", STACK) \
    KIND(SEGMENT_FREE, "segment_free", NUMBER) \
    KIND(HOST_READ, "host_read", STACK) \
    KIND(DRIVER_NEW, "driver_new", STACK) \
    KIND(DRIVER_FREE, "driver_free", NUMBER) \
    KIND(DRIVER_MORE, "driver_more", NAME) \
    KIND(DRIVER_RECORD, "driver_record", NAME) \
    KIND(POOL, "pool", NUMBER) \
    KIND(LAUNCH, "launch", STACK) \
    KIND(WORK, "work", NAME) \
    KIND(DEVICE, "device", NUMBER) \
    KIND(DEFERRED_FREE, "deferred_free", NUMBER) \
    KIND(COMPACTED_DRIVER, "compacted_driver", NUMBER) \
    KIND(LABEL, "label", NAME) \
    KIND(HOLDER, "holder", STACK) \
    KIND(HOLDER_PATH, "holder_path", NAME) \
    KIND(OPERATOR, "operator", NAME)
/* clang-format on */

/* The kinds with a stack id, and with a name id, as bits. */
enum { CM_BIT_NUMBER = 0, CM_BIT_STACK = 1, CM_BIT_NAME = 2 };
#define CM_STACK_BIT(kind, name, is) | (uint64_t)(CM_BIT_##is == CM_BIT_STACK) << CM_EV_##kind
#define CM_NAME_BIT(kind, name, is) | (uint64_t)(CM_BIT_##is == CM_BIT_NAME) << CM_EV_##kind

static inline bool cm_event_names_stack(uint8_t kind)
{
    return kind < CM_EVENT_KINDS && ((0 CM_EVENT_TABLE(CM_STACK_BIT)) >> kind & 1) != 0;
}
static inline bool cm_event_names_name(uint8_t kind)
{
    return kind < CM_EVENT_KINDS && ((0 CM_EVENT_TABLE(CM_NAME_BIT)) >> kind & 1) != 0;
}

_Static_assert(CM_EVENT_KINDS <= 64, "kinds are bits of 64");
_Static_assert(sizeof(cm_event) == 32, "an event is half a cache line");

#endif
