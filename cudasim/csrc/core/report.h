/* The report: what happened on the simulated devices, valid at every moment.
 *
 * The file that CUPTIMEM_SIM_REPORT names is mapped and counted in, so a process that is killed
 * leaves it as it was. All numbers are little-endian (the simulator runs on no other machine) and
 * at the offsets below; a reader checks magic, version and bytes and needs nothing else. Counters
 * are written one by one: a reader of a living process may see one that is a call ahead of another.
 *
 * Which process writes which file: the first one that uses the device makes the file PATH (or takes
 * it, if it is there and empty). Every other process, and one that finds PATH used, makes PATH.PID,
 * and if that exists PATH.PID.1, PATH.PID.2, ... A child of fork() cannot use a device that its
 * parent had used, and writes nothing. Each process has the devices for itself: what two of them
 * use together is not added up.
 *
 * File: a header of CM_SIM_REPORT_HEADER bytes, then CM_SIM_DEVICES devices, then
 * CM_SIM_REPORT_NOTES notes. All of it exists from the start; unused parts are zero. */
#ifndef CM_SIM_REPORT_H
#define CM_SIM_REPORT_H

#include "sim.h"

#define CM_SIM_REPORT_MAGIC "CUPTISIM"

enum {
    CM_SIM_REPORT_VERSION = 1,
    CM_SIM_REPORT_HEADER = 256,
    CM_SIM_REPORT_DEVICE = 256,
    CM_SIM_REPORT_NOTE = 96,
    CM_SIM_REPORT_NOTES = 256
};

typedef _Atomic uint64_t cm_sim_count;

typedef struct cm_sim_report_device {
    char name[CM_SIM_NAME];     /*   0: "NVIDIA H100 80GB HBM3", zero-terminated */
    uint64_t total;             /*  64: bytes there are */
    cm_sim_count context;       /*  72: of it for the context; 0 until there is one */
    cm_sim_count used;          /*  80: now, context and libraries included */
    cm_sim_count peak;          /*  88: largest `used` */
    cm_sim_count peak_library;  /*  96: what of the peak library handles held */
    cm_sim_count library;       /* 104: what they hold now */
    cm_sim_count allocs;        /* 112: memory given: allocations, physical handles */
    cm_sim_count frees;         /* 120: and given back */
    cm_sim_count refused;       /* 128: calls refused because the device was full */
    cm_sim_count refused_least; /* 136: bytes of the smallest such call; 0 if none */
    cm_sim_count refused_used;  /* 144: `used` when the latest was refused */
    cm_sim_count limited;       /* 152: calls refused by the host's limits, not the device's */
    cm_sim_count reads;         /* 160: host reads that met simulated bytes */
    cm_sim_count read_bytes;    /* 168: such bytes */
    cm_sim_count known_reads; /* 176: host reads of nothing but bytes that the host had written: */
    cm_sim_count known_bytes; /* 184: right, unless a kernel has changed them in between */
    int32_t major, minor;     /* 192, 196: compute capability */
    int32_t sms;              /* 200: multiprocessors */
    int32_t ordinal;          /* 204: number among the installed devices */
    uint64_t reserved[6];
} cm_sim_report_device;

typedef struct cm_sim_report_note {
    _Atomic uint32_t kind;  /*  0: cm_sim_note_kind; 0 = no note (yet) here; written last */
    uint32_t reserved;      /*  4 */
    cm_sim_count count;     /*  8: how often */
    cm_sim_count bytes;     /* 16: the largest number that came with it */
    char name[CM_SIM_NAME]; /* 24: zero-terminated */
    uint64_t more;          /* 88 */
} cm_sim_report_note;

typedef struct cm_sim_report {
    cm_sim_count
        magic; /*   0: the bytes of CM_SIM_REPORT_MAGIC; written last: without it, not ours */
    uint32_t version;               /*   8 */
    uint32_t header_bytes;          /*  12: where the devices begin */
    uint32_t device_bytes;          /*  16: bytes per device entry */
    uint32_t device_room;           /*  20: how many are there; `devices` of them are used */
    uint32_t note_bytes;            /*  24 */
    uint32_t note_room;             /*  28 */
    uint32_t pid;                   /*  32: the writer */
    uint32_t devices;               /*  36: that the program sees */
    _Atomic uint32_t notes;         /*  40: used notes */
    _Atomic uint32_t notes_dropped; /*  44: for which there was no room */
    uint64_t started;               /*  48: ns, CLOCK_REALTIME */
    uint64_t copy_max;              /*  56: as in cm_sim_config, here and below */
    int64_t conv_workspace;         /*  64 */
    int64_t handle_bytes;           /*  72 */
    uint32_t event_lag;             /*  80 */
    uint32_t timing;                /*  84: 1 if the next two are counted */
    cm_sim_count entry_ns;          /*  88: ns in entry points, all threads, nested ones once */
    cm_sim_count entries;           /*  96: calls of them */
    cm_sim_count host_bytes;        /* 104: pinned host memory now */
    cm_sim_count host_peak;         /* 112: and at most */
    uint64_t reserved[17];
    cm_sim_report_device device[CM_SIM_DEVICES];
    cm_sim_report_note note[CM_SIM_REPORT_NOTES];
} cm_sim_report;

_Static_assert(sizeof(cm_sim_report_device) == CM_SIM_REPORT_DEVICE, "readers know it");
_Static_assert(sizeof(cm_sim_report_note) == CM_SIM_REPORT_NOTE, "readers know it");
_Static_assert(offsetof(cm_sim_report, device) == CM_SIM_REPORT_HEADER, "readers know it");
_Static_assert(offsetof(cm_sim_report_device, major) == 192, "readers know it");
_Static_assert(offsetof(cm_sim_report, entry_ns) == 88, "readers know it");

/* The calling process's counters. Never NULL; private memory where no file was asked for, where it
 * could not be made (then one line on standard error says so) and in a child of fork(). */
cm_sim_report *cm_sim_report_get(void);

/* --- The log ------------------------------------------------------------------------------------
 *
 * CUPTIMEM_SIM_LOG=PATH: every memory call as a record of 64 bytes, in the order in which they took
 * effect, appended by one write() each. Names of files as with the report, but PATH must not be
 * there. No header: a file's length is a multiple of 64, but for a process killed in the middle of
 * a write. For tests. */

typedef enum cm_sim_log_op {
    CM_SIM_LOG_CONTEXT = 1, /* bytes: its size; 0 of a device's second one */
    CM_SIM_LOG_ALLOC,       /* address, bytes as asked for, kind */
    CM_SIM_LOG_FREE,        /* the same */
    CM_SIM_LOG_RESERVE,     /* addresses alone: change is 0, device is -1 */
    CM_SIM_LOG_UNRESERVE,
    CM_SIM_LOG_CREATE, /* physical memory; address: its handle */
    CM_SIM_LOG_DESTROY,
    CM_SIM_LOG_MAP, /* address and bytes of the range; extra: the handle */
    CM_SIM_LOG_UNMAP,
    CM_SIM_LOG_REFUSED,    /* the device was full: bytes as asked for, kind */
    CM_SIM_LOG_LIMITED,    /* the host refused */
    CM_SIM_LOG_HOST_ALLOC, /* pinned host memory; device is -1 */
    CM_SIM_LOG_HOST_FREE,
    CM_SIM_LOG_HOST_REGISTER, /* the program's own, made pinned; device is -1 */
    CM_SIM_LOG_HOST_UNREGISTER,
    /* What the program has of a pool, which takes memory of the device (ALLOC and FREE of kind
     * POOL) when it must and keeps it as long as it may; so change is 0. extra: the pool. What a
     * CUDA graph allocates is an ALLOC of kind POOL without these: no call is made for it. */
    CM_SIM_LOG_POOL_ALLOC,
    CM_SIM_LOG_POOL_FREE,
    CM_SIM_LOG_CONTEXT_END /* after the FREE of all that lived in it */
} cm_sim_log_op;

typedef struct cm_sim_log_record {
    uint64_t time;    /*  0: ns, CLOCK_MONOTONIC */
    uint64_t address; /*  8 */
    uint64_t bytes;   /* 16: as asked for */
    int64_t change;   /* 24: of the device's used bytes, by this call */
    uint64_t used;    /* 32: after it */
    uint64_t extra;   /* 40 */
    uint64_t charged; /* 48: the block's own share, as in cm_sim_block */
    uint32_t thread;  /* 56: its number in the system */
    int16_t device;   /* 60 */
    uint8_t op;       /* 62: cm_sim_log_op */
    uint8_t kind;     /* 63: cm_sim_kind or 0 */
} cm_sim_log_record;

_Static_assert(sizeof(cm_sim_log_record) == 64, "readers know it");

bool cm_sim_log_wanted(void);
/* Fills in time and thread. Call it under the lock that orders what is logged. */
void cm_sim_log(cm_sim_log_record record);

/* --- For the core's own files ----------------------------------------------------------------- */

/* A host read of device bytes: `simulated` of them no host wrote. Counts, and calls the hook. */
void cm_sim_report_read(const void *address, size_t bytes, size_t simulated, int device);
/* Around fork(), see fork.c. */
void cm_sim_report_lock(void);
void cm_sim_report_unlock(void);
void cm_sim_report_child(bool parent_used_device);

#endif
