/* The other witness: a preload library that sees PyTorch's CPU allocator from below and shares no
 * code, header or idea with csrc.
 *
 * libc10 takes every CPU block with posix_memalign and gives it back with free; in the official
 * builds there is one call of posix_memalign in the whole library (c10::alloc_cpu), so a call whose
 * return address lies in libc10.so is a tensor block of exactly the size asked for.
 * at::MapAllocator maps shared and file-backed storages; its calls are told by the name of the
 * calling function. Blocks are removed by address, whoever frees them.
 *
 * Everything is counted under one mutex, a free before the C library gets the block back: no
 * address can be counted twice, and with one thread the running sum is the allocator's own at every
 * moment.
 *
 * For killed programs there is a log in a shared mapping that survives them. An entry is published
 * when a hook above the allocator must have seen it: a free at once (PyTorch reports it before it
 * calls free), an allocation with the next call of its thread or when the thread says so. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <link.h>
#include <fcntl.h>
#include <malloc.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define EXPORT __attribute__((visibility("default")))
enum { SLOTS = 1 << 20, MARKS = 1 << 16 };

struct block {
    uintptr_t address; /* 0 = empty */
    uint64_t size;
};
struct mark {
    int64_t start, peak, end;
};

static struct block table[SLOTS];
static struct mark marks[MARKS];
static size_t mark_count;
static int64_t live_bytes, live_blocks, peak, step_start, step_peak;
static uint64_t allocations, frees, overflow;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static uintptr_t c10_low, c10_high;

/* The log's file: a header, then entries. `published` is true of single-threaded programs only. */
struct log {
    uint64_t published; /* entries that a hook must have seen */
    uint64_t kill_at;   /* SIGKILL when this many are published; 0 = never */
    uint64_t recording; /* entries when the program said that recording was on; ~0 = never said */
    uint64_t stopping;  /* entries when it was about to stop; ~0 = never said */
    uint64_t phase;     /* what the program said last, for the parent that kills it */
    uint64_t written, reserved[2];
    struct {
        uint64_t address;
        int64_t size; /* -1 for a free */
        int64_t thread;
    } entry[];
};
static struct log *volatile journal;
static uint64_t journal_room;

/* A thread that takes or frees a block of this size waits inside the call: 1 in the allocation,
 * once the block counts; -1 in the free, while it still does. */
static struct {
    uint64_t size;
    _Atomic int where, waiting; /* where 0: nobody is held */
} gate;

/* Set while this thread is inside the oracle's own look-ups, which may allocate. */
static __thread int inside __attribute__((tls_model("initial-exec")));
static __thread int64_t own_number __attribute__((tls_model("initial-exec")));
static int64_t last_number;

extern void __libc_free(void *pointer);
extern void *__libc_memalign(size_t alignment, size_t size);

static size_t slot_of(uintptr_t address)
{
    return (size_t)((address >> 6) * 0x9e3779b97f4a7c15u >> 40) & (SLOTS - 1);
}

/* Its slot, or the empty one where it would be. */
static size_t find_locked(uintptr_t address)
{
    size_t at = slot_of(address);
    while (table[at].address && table[at].address != address)
        at = (at + 1) & (SLOTS - 1);
    return at;
}

static void insert_locked(uintptr_t address, uint64_t size)
{
    if (live_blocks >= SLOTS / 2) {
        overflow++;
        return;
    }
    size_t at = find_locked(address);
    if (table[at].address) { /* cannot happen: handed out twice */
        overflow++;
        return;
    }
    table[at].address = address;
    table[at].size = size;
    live_blocks++;
    allocations++;
    live_bytes += (int64_t)size;
    if (live_bytes > peak)
        peak = live_bytes;
    if (live_bytes > step_peak)
        step_peak = live_bytes;
}

static int remove_locked(uintptr_t address)
{
    size_t at = find_locked(address);
    if (!table[at].address)
        return 0;
    live_bytes -= (int64_t)table[at].size;
    live_blocks--;
    frees++;
    size_t hole = at, next = at;
    for (;;) {
        next = (next + 1) & (SLOTS - 1);
        if (!table[next].address)
            break;
        size_t home = slot_of(table[next].address);
        if (((next - home) & (SLOTS - 1)) >= ((next - hole) & (SLOTS - 1))) {
            table[hole] = table[next];
            hole = next;
        }
    }
    table[hole] = (struct block){0};
    return 1;
}

static void log_locked(uintptr_t address, int64_t size)
{
    struct log *log = journal;
    if (!log)
        return;
    if (log->written == journal_room) {
        overflow++;
        return;
    }
    log->published = log->written;
    log->entry[log->written].address = address;
    log->entry[log->written].size = size;
    if (own_number == 0)
        own_number = ++last_number;
    log->entry[log->written].thread = own_number;
    log->written++;
    if (size < 0)
        log->published = log->written;
    if (log->kill_at && log->published >= log->kill_at)
        kill(getpid(), SIGKILL);
}

static void wait_at_gate(int where, uint64_t size)
{
    if (atomic_load(&gate.where) != where || gate.size != size)
        return;
    atomic_store(&gate.waiting, 1);
    while (atomic_load(&gate.where) == where)
        usleep(100);
    atomic_store(&gate.waiting, 0);
}

static int find_c10(struct dl_phdr_info *info, size_t size, void *unused)
{
    (void)size, (void)unused;
    const char *name = strrchr(info->dlpi_name, '/');
    if (!name || strcmp(name, "/libc10.so") != 0)
        return 0;
    for (int i = 0; i < info->dlpi_phnum; i++)
        if (info->dlpi_phdr[i].p_type == PT_LOAD && (info->dlpi_phdr[i].p_flags & PF_X)) {
            c10_low = info->dlpi_addr + info->dlpi_phdr[i].p_vaddr;
            c10_high = c10_low + info->dlpi_phdr[i].p_memsz;
        }
    return 1;
}

static int from_c10(uintptr_t caller)
{
    if (!c10_high && !inside) {
        inside = 1;
        dl_iterate_phdr(find_c10, NULL);
        inside = 0;
    }
    return caller >= c10_low && caller < c10_high;
}

static int from_map_allocator(uintptr_t caller)
{
    if (!c10_high || inside)
        return 0;
    Dl_info info;
    inside = 1;
    int found = dladdr((void *)caller, &info) && info.dli_fname && info.dli_sname &&
                strstr(info.dli_fname, "/libtorch_cpu.so") &&
                strstr(info.dli_sname, "MapAllocator");
    inside = 0;
    return found;
}

EXPORT int posix_memalign(void **out, size_t alignment, size_t size)
{
    if (alignment % sizeof(void *) || (alignment & (alignment - 1)) || !alignment)
        return 22;
    uintptr_t caller = (uintptr_t)__builtin_return_address(0);
    void *pointer = __libc_memalign(alignment, size);
    if (!pointer)
        return 12;
    *out = pointer;
    if (from_c10(caller)) {
        pthread_mutex_lock(&lock);
        insert_locked((uintptr_t)pointer, size);
        log_locked((uintptr_t)pointer, (int64_t)size);
        pthread_mutex_unlock(&lock);
        wait_at_gate(1, size);
    }
    return 0;
}

EXPORT void free(void *pointer)
{
    if (pointer && c10_high && ((uintptr_t)pointer & 63) == 0) {
        if (atomic_load(&gate.where) == -1) {
            pthread_mutex_lock(&lock);
            uint64_t size = table[find_locked((uintptr_t)pointer)].size;
            pthread_mutex_unlock(&lock);
            wait_at_gate(-1, size);
        }
        pthread_mutex_lock(&lock);
        if (remove_locked((uintptr_t)pointer))
            log_locked((uintptr_t)pointer, -1);
        pthread_mutex_unlock(&lock);
    }
    __libc_free(pointer);
}

static void *map(uintptr_t caller, void *at, size_t length, int prot, int flags, int fd,
                 off_t offset)
{
    typedef void *map_function(void *, size_t, int, int, int, off_t);
    static map_function *real;
    if (!real)
        real = (map_function *)dlsym(RTLD_NEXT, "mmap64");
    void *result = real(at, length, prot, flags, fd, offset);
    if (result != MAP_FAILED && fd >= 0 && from_map_allocator(caller)) {
        pthread_mutex_lock(&lock);
        insert_locked((uintptr_t)result, length);
        pthread_mutex_unlock(&lock);
    }
    return result;
}

EXPORT void *mmap(void *at, size_t length, int prot, int flags, int fd, off_t offset)
{
    return map((uintptr_t)__builtin_return_address(0), at, length, prot, flags, fd, offset);
}

EXPORT void *mmap64(void *at, size_t length, int prot, int flags, int fd, off_t offset)
{
    return map((uintptr_t)__builtin_return_address(0), at, length, prot, flags, fd, offset);
}

EXPORT int munmap(void *at, size_t length)
{
    typedef int unmap_function(void *, size_t);
    static unmap_function *real;
    if (!real)
        real = (unmap_function *)dlsym(RTLD_NEXT, "munmap");
    if (c10_high) {
        pthread_mutex_lock(&lock);
        remove_locked((uintptr_t)at);
        pthread_mutex_unlock(&lock);
    }
    return real(at, length);
}

static void before_fork(void)
{
    pthread_mutex_lock(&lock);
}
static void after_fork(void)
{
    pthread_mutex_unlock(&lock);
}

__attribute__((constructor)) static void set_up(void)
{
    pthread_atfork(before_fork, after_fork, after_fork);
}

/* --- for the tests, by ctypes -------------------------------------------------------------- */

/* out: live bytes, live blocks, peak, allocations, frees, overflow (must be 0) */
EXPORT void oracle_totals(int64_t *out)
{
    pthread_mutex_lock(&lock);
    out[0] = live_bytes, out[1] = live_blocks, out[2] = peak;
    out[3] = (int64_t)allocations, out[4] = (int64_t)frees, out[5] = (int64_t)overflow;
    pthread_mutex_unlock(&lock);
}

/* Holds the next thread inside a call with a block of this size: 1 an allocation, -1 a free. */
EXPORT void oracle_hold(int where, uint64_t size)
{
    gate.size = size;
    atomic_store(&gate.where, where);
}

/* Lets it go on. */
EXPORT void oracle_release(void)
{
    atomic_store(&gate.where, 0);
}

/* Whether it has arrived. */
EXPORT int oracle_holds(void)
{
    return atomic_load(&gate.waiting);
}

/* What the C library has given out and not got back, in all its arenas and by mmap: tensor blocks,
 * the nodes of the autograd graph and everything else that malloc serves. */
EXPORT int64_t oracle_heap(void)
{
    struct mallinfo2 info = mallinfo2();
    return (int64_t)(info.uordblks + info.hblkhd);
}

/* The peak starts again from what is live now; so does the first step. */
EXPORT void oracle_reset(void)
{
    pthread_mutex_lock(&lock);
    peak = step_peak = step_start = live_bytes;
    mark_count = 0;
    pthread_mutex_unlock(&lock);
}

/* A step ends here and the next begins. */
EXPORT void oracle_mark(void)
{
    pthread_mutex_lock(&lock);
    if (mark_count < MARKS)
        marks[mark_count++] = (struct mark){step_start, step_peak, live_bytes};
    else
        overflow++;
    step_start = step_peak = live_bytes;
    pthread_mutex_unlock(&lock);
}

EXPORT size_t oracle_marks(int64_t *out, size_t capacity)
{
    pthread_mutex_lock(&lock);
    size_t n = mark_count < capacity ? mark_count : capacity;
    memcpy(out, marks, n * sizeof *marks);
    pthread_mutex_unlock(&lock);
    return n;
}

/* Fills address, size pairs; returns how many blocks live (may exceed capacity: then call again).
 */
EXPORT size_t oracle_live(uint64_t *out, size_t capacity)
{
    pthread_mutex_lock(&lock);
    size_t n = 0;
    for (size_t i = 0; i < SLOTS; i++)
        if (table[i].address) {
            if (n < capacity) {
                out[2 * n] = table[i].address;
                out[2 * n + 1] = table[i].size;
            }
            n++;
        }
    pthread_mutex_unlock(&lock);
    return n;
}

/* Logs from now on into a new file with room for that many entries; 0, or -1. */
EXPORT int oracle_log_open(const char *path, uint64_t room, uint64_t kill_at)
{
    size_t length = sizeof(struct log) + room * sizeof(((struct log *)0)->entry[0]);
    int fd = open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (fd < 0 || ftruncate(fd, (off_t)length) != 0)
        return -1;
    struct log *log = mmap(NULL, length, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    close(fd);
    if (log == MAP_FAILED)
        return -1;
    log->kill_at = kill_at;
    log->recording = log->stopping = UINT64_MAX;
    pthread_mutex_lock(&lock);
    journal_room = room;
    journal = log;
    pthread_mutex_unlock(&lock);
    return 0;
}

/* What the program is doing: 1 starting, 2 recording, 3 stopping, 4 stopped. Everything that was
 * written so far is published too: the thread is in Python, so the hooks have returned. */
EXPORT void oracle_log_phase(uint64_t phase)
{
    pthread_mutex_lock(&lock);
    struct log *log = journal;
    if (log) {
        log->published = log->written;
        if (phase == 2)
            log->recording = log->written;
        if (phase == 3)
            log->stopping = log->written;
        log->phase = phase;
    }
    pthread_mutex_unlock(&lock);
}
