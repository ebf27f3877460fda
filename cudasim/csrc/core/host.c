/* Pinned and registered host memory: real memory of the host, and a list of where it is. */
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "fork.h"
#include "report.h"
#include "space.h"

enum { PAGE = 4096 };

typedef struct range {
    uintptr_t start;
    size_t bytes;
    bool ours; /* allocated here, not registered */
} range;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static range *ranges; /* by address, disjoint */
static size_t count, room;
static _Atomic size_t listed; /* == count, for those without the lock */

void cm_sim_host_lock(void)
{
    pthread_mutex_lock(&lock);
}

void cm_sim_host_unlock(void)
{
    pthread_mutex_unlock(&lock);
}

/* The first range that begins after an address. */
static size_t after(uintptr_t address)
{
    size_t low = 0, high = count;

    while (low < high) {
        size_t middle = (low + high) / 2;
        if (ranges[middle].start <= address)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

static bool insert(range made)
{
    size_t at = after(made.start);

    if (count == room) {
        size_t more = room == 0 ? 64 : room * 2;
        range *grown = realloc(ranges, more * sizeof *grown);
        if (grown == NULL)
            return false;
        ranges = grown;
        room = more;
    }
    memmove(ranges + at + 1, ranges + at, (count - at) * sizeof *ranges);
    ranges[at] = made;
    count++;
    atomic_store(&listed, count);
    return true;
}

/* Takes out the range that begins at an address and is `ours` or not. */
static bool take_out(uintptr_t address, bool ours, range *gone)
{
    size_t at = after(address);

    if (at == 0 || ranges[at - 1].start != address || ranges[at - 1].ours != ours)
        return false;
    *gone = ranges[--at];
    count--;
    memmove(ranges + at, ranges + at + 1, (count - at) * sizeof *ranges);
    atomic_store(&listed, count);
    return true;
}

static void note(cm_sim_log_op op, const range *which)
{
    static const char *const names[] = {"alloc", "free", "register", "unregister"};

    cm_sim_trace("host %s address %#lx bytes %zu", names[op - CM_SIM_LOG_HOST_ALLOC],
                 (unsigned long)which->start, which->bytes);
    cm_sim_log((cm_sim_log_record){
        .address = which->start, .bytes = which->bytes, .device = -1, .op = (uint8_t)op});
}

static void note_bytes(cm_sim_log_op op, const range *which)
{
    cm_sim_report *report = cm_sim_report_get();
    uint64_t now = atomic_load(&report->host_bytes);

    now = op == CM_SIM_LOG_HOST_ALLOC ? now + which->bytes : now - which->bytes;
    atomic_store(&report->host_bytes, now);
    if (now > atomic_load(&report->host_peak))
        atomic_store(&report->host_peak, now);
    note(op, which);
}

int cm_sim_host_alloc(size_t bytes, void **address)
{
    range made = {.bytes = bytes, .ours = true};
    int error = CM_SIM_OK;

    *address = NULL;
    cm_sim_report_get(); /* now fork() is watched */
    if (cm_sim_forked())
        return CM_SIM_NOT_INITIALIZED;
    if (bytes == 0)
        return CM_SIM_OK;
    void *memory = bytes <= SIZE_MAX - PAGE
                       ? mmap(NULL, cm_sim_round(bytes, PAGE), PROT_READ | PROT_WRITE,
                              MAP_PRIVATE | MAP_ANONYMOUS, -1, 0)
                       : MAP_FAILED;
    if (memory == MAP_FAILED) {
        cm_sim_note(CM_SIM_NOTE_LIMIT, "host memory", bytes);
        return CM_SIM_OUT_OF_MEMORY;
    }
    made.start = (uintptr_t)memory;
    pthread_mutex_lock(&lock);
    if (insert(made)) {
        *address = memory;
        note_bytes(CM_SIM_LOG_HOST_ALLOC, &made);
    } else {
        munmap(memory, cm_sim_round(bytes, PAGE));
        cm_sim_note(CM_SIM_NOTE_LIMIT, "host memory", bytes);
        error = CM_SIM_OUT_OF_MEMORY;
    }
    pthread_mutex_unlock(&lock);
    return error;
}

int cm_sim_host_free(void *address)
{
    range gone;

    if (cm_sim_forked())
        return CM_SIM_NOT_INITIALIZED;
    if (address == NULL)
        return CM_SIM_OK;
    pthread_mutex_lock(&lock);
    bool there = take_out((uintptr_t)address, true, &gone);
    if (there)
        note_bytes(CM_SIM_LOG_HOST_FREE, &gone);
    pthread_mutex_unlock(&lock);
    if (!there)
        return CM_SIM_INVALID_VALUE;
    munmap(address, cm_sim_round(gone.bytes, PAGE));
    return CM_SIM_OK;
}

int cm_sim_host_register(void *address, size_t bytes)
{
    range made = {(uintptr_t)address, bytes, false};
    int error = CM_SIM_OK;

    cm_sim_report_get();
    if (cm_sim_forked())
        return CM_SIM_NOT_INITIALIZED;
    if (address == NULL || bytes == 0 || made.start + bytes < bytes)
        return CM_SIM_INVALID_VALUE;
    pthread_mutex_lock(&lock);
    size_t at = after(made.start + bytes - 1);
    if (at > 0 && ranges[at - 1].start + ranges[at - 1].bytes > made.start) {
        error = CM_SIM_HOST_ALREADY_REGISTERED;
    } else if (!insert(made)) {
        cm_sim_note(CM_SIM_NOTE_LIMIT, "host memory", bytes);
        error = CM_SIM_OUT_OF_MEMORY;
    } else {
        note(CM_SIM_LOG_HOST_REGISTER, &made);
    }
    pthread_mutex_unlock(&lock);
    return error;
}

int cm_sim_host_unregister(void *address)
{
    range gone;

    if (cm_sim_forked())
        return CM_SIM_NOT_INITIALIZED;
    pthread_mutex_lock(&lock);
    bool there = take_out((uintptr_t)address, false, &gone);
    if (there)
        note(CM_SIM_LOG_HOST_UNREGISTER, &gone);
    pthread_mutex_unlock(&lock);
    return there ? CM_SIM_OK : CM_SIM_HOST_NOT_REGISTERED;
}

bool cm_sim_host_find(const void *address, uintptr_t *start, size_t *bytes)
{
    uintptr_t wanted = (uintptr_t)address;
    bool there = false;

    if (atomic_load_explicit(&listed, memory_order_relaxed) == 0)
        return false;
    pthread_mutex_lock(&lock);
    size_t at = after(wanted);
    if (at > 0 && wanted - ranges[at - 1].start < ranges[at - 1].bytes) {
        there = true;
        if (start != NULL)
            *start = ranges[at - 1].start;
        if (bytes != NULL)
            *bytes = ranges[at - 1].bytes;
    }
    pthread_mutex_unlock(&lock);
    return there;
}
