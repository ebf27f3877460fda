/* What the kernel says of a process and of every process below it, at one moment: a tree sample. */
#ifndef CM_BASE_PROCESS_TREE_H
#define CM_BASE_PROCESS_TREE_H

#include <stdbool.h>
#include <stdint.h>

enum {
    CM_TREE_PROCESSES = 256, /* more are counted, not described */
    CM_TREE_FILES = 64,      /* the largest; the others are one row without a path */
    CM_TREE_OPEN = 16,       /* files that are being loaded; more are left out */
    CM_TREE_PATH = 256,
    CM_TREE_NAME = 16 /* as the kernel has them */
};

/* Values are part of the file format: only append. */
typedef enum cm_process_role {
    CM_ROLE_PROGRAM = 0,     /* another program, or not known */
    CM_ROLE_RECORDED = 1,    /* the root */
    CM_ROLE_DATA_WORKER = 2, /* of a DataLoader: PyTorch names its thread */
    CM_ROLE_FORKED = 3,      /* its parent's program, without exec */
    CM_ROLE_SPAWNED = 4,     /* a process of multiprocessing, started as a new Python */
    CM_ROLE_TRACKER = 5,     /* multiprocessing's resource tracker */
    CM_ROLE_FORKSERVER = 6,  /* multiprocessing's */
    CM_ROLE_SHM_MANAGER = 7, /* of PyTorch's sharing strategy file_system */
    CM_ROLES
} cm_process_role;

/* The sizes of a process, in the order of the file, by their names in /proc/PID/status, which is
 * cheap, and in smaps_rollup, for which the kernel looks at every page. */
#define CM_PROCESS_STATUS_TABLE(SIZE)                                                              \
    SIZE(RSS_ANON, "RssAnon")                                                                      \
    SIZE(RSS_FILE, "RssFile")                                                                      \
    SIZE(RSS_SHMEM, "RssShmem")                                                                    \
    SIZE(SWAP, "VmSwap")
#define CM_PROCESS_ROLLUP_TABLE(SIZE)                                                              \
    SIZE(PRIVATE_CLEAN, "Private_Clean")                                                           \
    SIZE(PRIVATE_DIRTY, "Private_Dirty")                                                           \
    SIZE(SHARED_CLEAN, "Shared_Clean")                                                             \
    SIZE(SHARED_DIRTY, "Shared_Dirty")                                                             \
    SIZE(PSS, "Pss")                                                                               \
    SIZE(PSS_ANON, "Pss_Anon")                                                                     \
    SIZE(PSS_FILE, "Pss_File")                                                                     \
    SIZE(PSS_SHMEM, "Pss_Shmem")
#define CM_PROCESS_SIZE_NUMBER(name, key) CM_SIZE_##name,
typedef enum cm_process_size {
    CM_PROCESS_STATUS_TABLE(CM_PROCESS_SIZE_NUMBER) CM_PROCESS_STATUS_SIZES,
    CM_PROCESS_BEFORE_ROLLUP = CM_PROCESS_STATUS_SIZES - 1,
    CM_PROCESS_ROLLUP_TABLE(CM_PROCESS_SIZE_NUMBER) CM_PROCESS_SIZES
} cm_process_size;

/* Which of them could be read, and were. */
enum { CM_KNOWN_STATUS = 1, CM_KNOWN_ROLLUP = 2 };

typedef struct cm_process {
    int32_t pid, parent;
    uint64_t started; /* clock ticks since boot, as in /proc/PID/stat: a pid may be used again */
    uint32_t role;
    uint32_t known; /* CM_KNOWN_* */
    char name[CM_TREE_NAME];
    uint64_t kib[CM_PROCESS_SIZES];
    uint64_t queued_kib; /* in /dev/shm, of a DataLoader's worker, for its parent to take */
} cm_process;

/* Bytes of a file that a process has mapped. */
typedef struct cm_mapped_file {
    int32_t pid;             /* 0: in /dev/shm, and mapped by no process of the tree */
    uint64_t bytes;          /* resident; of a file that none has mapped: allocated */
    char path[CM_TREE_PATH]; /* "": all that are not among the largest */
    uint64_t copied; /* of these bytes: pages that are the process's own, for it wrote to them */
    bool code;       /* a library or a program */
} cm_mapped_file;

/* How much is read of a tree. */
typedef enum cm_tree_depth {
    CM_TREE_STATUS,
    CM_TREE_ROLLUP, /* and that */
    CM_TREE_MAPPED  /* and mapped files */
} cm_tree_depth;

typedef struct cm_process_tree {
    uint64_t realtime_ns, cpu_ns; /* cpu_ns: that reading it took */
    uint64_t shm_bytes, shm_used; /* of /dev/shm, whoever uses it; 0 bytes: there is none */
    uint32_t left_out;            /* processes beyond the table */
    uint32_t
        unseen; /* of the machine, that were not asked for their parent: any may be of the tree */
    uint32_t count, files, opens;
    bool has_files; /* files were looked at */
    cm_process process[CM_TREE_PROCESSES];
    cm_mapped_file file[CM_TREE_FILES + 1];
    cm_mapped_file open[CM_TREE_OPEN]; /* by a process that grows; bytes: of the file */
} cm_process_tree;

#define CM_SHM_FOLDER "/dev/shm/"

#endif
