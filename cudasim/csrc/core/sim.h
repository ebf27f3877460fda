/* A simulated CUDA device: what its surfaces (runtime, driver, NVML, CUPTI, libraries) share.
 *
 * The real PyTorch runs on top of it: its allocator asks for memory, its kernels do nothing. Memory
 * is counted and given as host pages that cost nothing until touched. `cuptimem simulate` preloads
 * this library; README.md describes the whole.
 *
 * Every function may be called in any thread. Nothing happens before the first CUDA call: a child
 * that inherits the preload and never touches CUDA pays for the mapping of the library alone.
 * Nothing here ends the host program: what cannot be done is an error code, and named in the
 * report. Functions return a CUDA error number (0 = cudaSuccess, 2 = out of memory, ...). */
#ifndef CM_SIM_H
#define CM_SIM_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define CM_SIM_EXPORT __attribute__((visibility("default")))
/* Another name of a function: of an older form, or for a program built with a default stream per
 * thread, for a simulated stream has nothing to wait for. */
#define CM_SIM_ALIAS(function, other)                                                              \
    extern __typeof(function) other __attribute__((alias(#function), visibility("default")))

enum { CM_SIM_DEVICES = 16, CM_SIM_NAME = 64 };

/* Numbers that the runtime and the driver share. */
enum {
    CM_SIM_OK = 0,
    CM_SIM_INVALID_VALUE = 1,
    CM_SIM_OUT_OF_MEMORY = 2,
    CM_SIM_NOT_INITIALIZED =
        3, /* also: in a child of fork(), where the parent had used the device */
    CM_SIM_NO_DEVICE = 100,
    CM_SIM_INVALID_DEVICE = 101,
    CM_SIM_INVALID_CONTEXT = 201,
    CM_SIM_INVALID_HANDLE = 400,
    CM_SIM_NOT_FOUND = 500,
    CM_SIM_NOT_READY = 600,
    CM_SIM_CONTEXT_DESTROYED = 709,
    CM_SIM_HOST_ALREADY_REGISTERED = 712,
    CM_SIM_HOST_NOT_REGISTERED = 713,
    CM_SIM_NOT_PERMITTED = 800,
    CM_SIM_NOT_SUPPORTED = 801
};

/* --- release.c -------------------------------------------------------------------------------- */

/* 12 where a library of this process is linked with CUDA 12's runtime and none with CUDA 13's, else
 * 13. */
int cm_sim_cuda_major(void);
/* As cudaRuntimeGetVersion gives it. */
static inline int cm_sim_runtime_version(void)
{
    return cm_sim_cuda_major() == 12 ? 12080 : 13000; /* that of PyTorch 2.9's wheels, 2.14's */
}

/* --- config.c, profiles.c: which devices there are -------------------------------------------- */

/* What PyTorch's own choices depend on. Sizes in bytes, clocks in kHz. */
typedef struct cm_sim_profile {
    const char *name; /* as cudaGetDeviceProperties returns it: "NVIDIA H100 80GB HBM3" */
    const char *key;  /* as people ask for it: "h100" */
    size_t memory;    /* totalGlobalMem */
    size_t context;   /* what a context takes before the first allocation: stated, not measured */
    int major, minor; /* compute capability */
    int sms;          /* multiprocessors */
    int shared_per_sm, shared_per_block_optin;
    int threads_per_sm, blocks_per_sm;
    int l2, clock, memory_clock, bus_width;
    bool integrated; /* its memory is the host's: what the machine uses of that is not free, and
                        NVML does not report memory */
} cm_sim_profile;

/* Sorted by name, ended by an entry without one. */
extern const cm_sim_profile cm_sim_profiles[];

typedef struct cm_sim_config {
    int devices;                           /* that the program sees: CUDA_VISIBLE_DEVICES applied */
    cm_sim_profile device[CM_SIM_DEVICES]; /* with CUPTIMEM_SIM_MEMORY and _CONTEXT applied */
    int installed; /* as NVML counts them, which knows of no such variable */
    cm_sim_profile all[CM_SIM_DEVICES];
    int ordinal[CM_SIM_DEVICES]; /* of each visible device among the installed ones */
    size_t copy_max;             /* contents of larger host copies are not kept */
    int64_t conv_workspace; /* bytes for each convolution; -1: the allowance of cudnn_backend.c */
    int64_t handle_bytes; /* what a library handle takes of the device; -1: the stated constants */
    int64_t nccl_bytes;   /* what a communicator takes of a device; -1: the allowance of nccl.c */
    uint32_t event_lag;   /* an event completes after this many later launches; 0: at once */
    int driver_version;   /* 13000 */
    bool timing;          /* count the time spent in entry points */
    bool trace;           /* every memory call as a line on standard error */
} cm_sim_config;

/* Reads CUPTIMEM_SIM_* at the first call (docs of every variable: config.c). Never NULL. */
const cm_sim_config *cm_sim_config_get(void);

/* --- account.c, memory.c, virtual.c: accounts and address space ------------------------------- */

typedef enum cm_sim_kind {
    CM_SIM_DEVICE = 1, /* cudaMalloc, cuMemAlloc */
    CM_SIM_POOL,       /* cudaMallocAsync: charged like DEVICE, at once */
    CM_SIM_MANAGED,
    CM_SIM_MAPPED,  /* virtual memory: reserved addresses; charged by its physical handles */
    CM_SIM_LIBRARY, /* what a library's handle takes for itself */
    CM_SIM_ARRAY
} cm_sim_kind;

typedef struct cm_sim_block {
    uintptr_t address;
    size_t bytes;   /* as asked for */
    size_t charged; /* its share of the device's memory: the model is in memory.c */
    int device;
    cm_sim_kind kind;
} cm_sim_block;

/* Takes memory of a device (creating its context first). `owner`: a static string naming the
 * library that asks for itself, NULL for the program. No bytes: CM_SIM_OK and NULL. Memory reads as
 * zero, is aligned to 512 bytes, from 1 MiB on to 2 MiB. */
int cm_sim_alloc(int device, cm_sim_kind kind, size_t bytes, const char *owner, void **address);
/* The same for a memory pool: *backing grows and, as it is freed, falls by what the device gives
 * for it, and no slab is shared with another `backing`. */
int cm_sim_alloc_backed(int device, cm_sim_kind kind, size_t bytes, const char *owner,
                        size_t *backing, void **address);
/* block may be NULL; else it is what was freed. CM_SIM_INVALID_VALUE: no block begins there (any
 * more). NULL is no error. */
int cm_sim_free(void *address, cm_sim_block *block);
/* The block that an address lies in. false: no device memory. Cheap: a lock and a search. */
bool cm_sim_find(const void *address, cm_sim_block *block);
/* Whether it may be device memory, without a lock. */
bool cm_sim_is_device(const void *address);

/* The calling thread's device, as cudaSetDevice and cuCtxSetCurrent left it. Set unchecked. */
int cm_sim_current_device(void);
void cm_sim_set_current_device(int device);
/* Whether this is a child of fork() and the parent had used the device: then memory calls fail with
 * CM_SIM_NOT_INITIALIZED, as with a real driver. */
bool cm_sim_forked(void);

/* Contexts: each device's primary one is number 0, those of the program's own have numbers from 1
 * on. A thread's own is current on its device until it chooses another; what it allocates there
 * lives in it. The first context of a device takes what a context takes, further ones nothing. */
unsigned cm_sim_current_context(void);
void cm_sim_set_current_context(unsigned number);
/* Creates the primary context if there is none and no other is current.
 * CM_SIM_CONTEXT_DESTROYED: the current one was ended. */
int cm_sim_context(int device);
/* Called when it did, with no lock held: driver_context.c. */
void cm_sim_context_made(int device);
bool cm_sim_has_context(int device); /* the primary one */
unsigned cm_sim_contexts(int device);
int cm_sim_context_new(int device, unsigned *number);
/* Gives back all memory that lives in it, and with the last context of a device what its pools
 * have; physical memory and what is mapped belong to the process. false: it is not there. */
bool cm_sim_context_end(int device, unsigned number);
int cm_sim_memory_info(int device, size_t *free_bytes, size_t *total);
/* Whether a device refused what the calling thread last asked it for; true once. */
bool cm_sim_was_refused(void);
/* Used now and at most, context and libraries included. */
void cm_sim_used(int device, size_t *now, size_t *peak);

/* Virtual memory: addresses and physical memory apart, joined by map; a handle lives until it is
 * released and mapped nowhere. */
typedef struct cm_sim_physical cm_sim_physical;
int cm_sim_reserve(size_t bytes, size_t alignment, void **address);
int cm_sim_unreserve(void *address, size_t bytes);
int cm_sim_create(int device, size_t bytes, cm_sim_physical **handle);
int cm_sim_release(cm_sim_physical *handle);
int cm_sim_map(void *address, size_t bytes, size_t offset, cm_sim_physical *handle);
int cm_sim_unmap(void *address, size_t bytes);
int cm_sim_access(void *address, size_t bytes, bool writable);
cm_sim_physical *cm_sim_retain(const void *address); /* NULL: nothing is mapped there */
int cm_sim_physical_device(const cm_sim_physical *handle);

/* --- host.c: pinned and registered host memory ------------------------------------------------ */

int cm_sim_host_alloc(size_t bytes, void **address);
int cm_sim_host_free(void *address);
int cm_sim_host_register(void *address, size_t bytes);
int cm_sim_host_unregister(void *address);
/* The range that an address lies in. false: ordinary memory. */
bool cm_sim_host_find(const void *address, uintptr_t *start, size_t *bytes);

/* --- contents.c: which bytes mean something --------------------------------------------------- */

/* Moves bytes between any two places. What the host wrote comes back, if it was written in pieces
 * of at most config.copy_max; what a kernel would have computed reads as zero, and reading it is
 * counted and reported to the read hook. Kernels do nothing here, so what one would have written
 * over the host's own bytes is not seen: such reads are counted apart (report.h: known_reads). A
 * range that is not device memory throughout, or not accessible, is not touched (host memory that
 * should have been filled from there is zeroed), and noted. */
void cm_sim_copy(void *to, const void *from, size_t bytes);
void cm_sim_copy_2d(void *to, size_t to_pitch, const void *from, size_t from_pitch, size_t width,
                    size_t height);
void cm_sim_set(void *to, int value, size_t bytes); /* values but 0 up to copy_max */
/* PyTorch's allocator hands this range out again: what the host left there is gone. */
void cm_sim_fresh(void *address, size_t bytes);

/* values.c: a tensor's elements, for the operators that are computed on the host (elements.py of
 * cuptimem/simulation). sizes and strides count elements; `to`, `from` and `known` are contiguous,
 * in the order of the indices. Neither call counts as a host read. */
typedef struct cm_sim_tensor {
    const void *address; /* of its first element */
    int64_t item;        /* bytes of an element */
    int64_t dimensions;
    const int64_t *sizes, *strides; /* strides are not negative */
} cm_sim_tensor;
/* Returns how many elements are known, -1 where it does not lie in accessible device memory. */
CM_SIM_EXPORT int64_t cm_sim_values_read(const cm_sim_tensor *tensor, void *to, uint8_t *known);
/* Elements that are not known become unknown. known NULL: all are; from NULL: none is.
 * Returns 0, or -1 as above. */
CM_SIM_EXPORT int cm_sim_values_write(const cm_sim_tensor *tensor, const void *from,
                                      const uint8_t *known);

/* Called, in the thread that reads, for each host read. `written`: the host wrote all of these
 * bytes itself, so they are right unless a kernel changed them meanwhile; else `bytes` of those
 * read are what only a kernel would have computed. The recorder sets it (found by dlsym); NULL
 * takes it away. */
typedef void (*cm_sim_read_hook)(const void *address, size_t bytes, int device, bool written);
CM_SIM_EXPORT void cm_sim_set_read_hook(cm_sim_read_hook hook);

/* --- report.c: what happened ------------------------------------------------------------------ */

/* Counters lie in a file (CUPTIMEM_SIM_REPORT) that is mapped, so a killed process leaves them;
 * without that variable in private memory. report.h describes it. */

typedef enum cm_sim_note_kind {
    CM_SIM_NOTE_UNDESCRIBED = 1, /* an entry point without a description; name = it */
    CM_SIM_NOTE_REFUSED,  /* something that is not simulated was asked for: "NCCL", "CUDA IPC" */
    CM_SIM_NOTE_MODELLED, /* a part with a modelled size; bytes = its largest live sum */
    CM_SIM_NOTE_LIMIT     /* the host's own limit (address space), not the device's */
} cm_sim_note_kind;
/* Counts it; the first time its name is kept. `name` static or copied (at most 63 bytes). */
void cm_sim_note(cm_sim_note_kind kind, const char *name, uint64_t bytes);

/* One line on standard error if config.trace. */
void cm_sim_trace(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* Time in entry points: stands first in each of them. Nested ones count once. */
typedef struct cm_sim_timer {
    uint64_t began; /* 0: not counted */
} cm_sim_timer;
extern atomic_bool cm_sim_timing;
cm_sim_timer cm_sim_timer_begin(void);
void cm_sim_timer_end(cm_sim_timer *timer);
static inline cm_sim_timer cm_sim_enter(void)
{
    return atomic_load_explicit(&cm_sim_timing, memory_order_relaxed) ? cm_sim_timer_begin()
                                                                      : (cm_sim_timer){0};
}
static inline void cm_sim_leave(cm_sim_timer *timer)
{
    if (__builtin_expect(timer->began != 0, 0))
        cm_sim_timer_end(timer);
}
#define CM_SIM_ENTRY                                                                               \
    cm_sim_timer cm_sim_entry __attribute__((cleanup(cm_sim_leave), unused)) = cm_sim_enter()

/* --- library.c: what a library's handle takes ------------------------------------------------- */

/* Library handles: CM_SIM_HANDLE zeroed bytes for the library; before them it is remembered what
 * was charged where. On the calling thread's device. NULL: no room there, or in the host.
 * library: a static string. */
enum { CM_SIM_HANDLE = 256 };
void *cm_sim_handle_new(const char *library);
void cm_sim_handle_free(void *handle); /* NULL is none */
/* The memory of such a handle; no bytes: none. In driver_library.c. */
int cm_sim_library_take(const char *library, size_t bytes, void **memory);
void cm_sim_library_give(const char *library, void *memory);

#endif
