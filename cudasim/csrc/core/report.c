/* Counters in a mapped file, notes, the log, and the time in entry points. */
#define _GNU_SOURCE /* secure_getenv */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "fork.h"
#include "report.h"

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static _Atomic(cm_sim_report *) report; /* NULL: not needed yet */
static cm_sim_report private_report;
static _Atomic(cm_sim_read_hook) read_hook;
atomic_bool cm_sim_timing;

/* A program may close descriptors that it did not open, and open others in their place: what is
 * written to must still be the file that was opened. */
static struct {
    int descriptor;
    dev_t device;
    ino_t inode;
} log_file = {.descriptor = -1};
static atomic_bool log_wanted;

static uint64_t now_ns(clockid_t clock)
{
    struct timespec now;

    clock_gettime(clock, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

static void say(const char *format, ...) __attribute__((format(printf, 1, 2)));
static void say_list(const char *format, va_list arguments)
{
    char line[512];
    int length = vsnprintf(line, sizeof line - 1, format, arguments);

    if (length > (int)sizeof line - 2)
        length = sizeof line - 2;
    line[length++] = '\n';
    if (write(STDERR_FILENO, line, (size_t)length) < 0)
        return; /* no standard error */
}

static void say(const char *format, ...)
{
    va_list arguments;

    va_start(arguments, format);
    say_list(format, arguments);
    va_end(arguments);
}

void cm_sim_trace(const char *format, ...)
{
    va_list arguments;

    if (!cm_sim_config_get()->trace)
        return;
    va_start(arguments, format);
    say_list(format, arguments);
    va_end(arguments);
}

/* --- The file --------------------------------------------------------------------------------- */

/* Takes an empty file that was made for this purpose; two processes may try at once. */
static int take_empty(const char *path)
{
    struct stat found;
    int file = open(path, O_RDWR | O_CLOEXEC | O_NOFOLLOW);

    if (file < 0)
        return -1;
    if (flock(file, LOCK_EX) == 0) {
        bool ours = fstat(file, &found) == 0 && S_ISREG(found.st_mode) && found.st_size == 0 &&
                    posix_fallocate(file, 0, 1) == 0; /* not empty any more */
        flock(file, LOCK_UN);
        if (ours)
            return file;
    }
    close(file);
    errno = EEXIST;
    return -1;
}

/* PATH, PATH.PID, PATH.PID.1, ...: see report.h. */
static int claim(const char *path, bool may_be_empty)
{
    char name[4096];
    int file = open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0644);

    if (file < 0 && errno == EEXIST && may_be_empty)
        file = take_empty(path);
    for (int i = 0; file < 0 && errno == EEXIST && i < 1000; i++) {
        int length =
            snprintf(name, sizeof name, i == 0 ? "%s.%d" : "%s.%d.%d", path, (int)getpid(), i);
        if (length >= (int)sizeof name) {
            errno = ENAMETOOLONG;
            return -1;
        }
        file = open(name, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
    }
    return file;
}

static cm_sim_report *map_file(const char *path)
{
    void *mapped = MAP_FAILED;
    int file = claim(path, true), error = file < 0 ? errno : 0;

    if (file >= 0) {
        /* Room for all of it now: a full disk is an error here, and a SIGBUS later. */
        error = posix_fallocate(file, 0, sizeof(cm_sim_report));
        if (error == 0) {
            mapped = mmap(NULL, sizeof(cm_sim_report), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
            error = mapped == MAP_FAILED ? errno : 0;
        }
        close(file);
    }
    if (error == 0)
        return mapped;
    say("cuptimem: no report of the simulated device: %s: %s", path, strerror(error));
    return NULL;
}

static void open_log(void)
{
    const char *path = secure_getenv("CUPTIMEM_SIM_LOG");
    struct stat opened;

    if (path == NULL || *path == '\0')
        return;
    int file = claim(path, false);
    if (file < 0 || fstat(file, &opened) != 0 || fcntl(file, F_SETFL, O_APPEND) != 0) {
        say("cuptimem: no log of the simulated device: %s: %s", path, strerror(errno));
        if (file >= 0)
            close(file);
        return;
    }
    log_file.descriptor = file;
    log_file.device = opened.st_dev;
    log_file.inode = opened.st_ino;
    atomic_store(&log_wanted, true);
}

static void fill(cm_sim_report *to, const cm_sim_config *config)
{
    to->version = CM_SIM_REPORT_VERSION;
    to->header_bytes = CM_SIM_REPORT_HEADER;
    to->device_bytes = CM_SIM_REPORT_DEVICE;
    to->device_room = CM_SIM_DEVICES;
    to->note_bytes = CM_SIM_REPORT_NOTE;
    to->note_room = CM_SIM_REPORT_NOTES;
    to->pid = (uint32_t)getpid();
    to->devices = (uint32_t)config->devices;
    to->started = now_ns(CLOCK_REALTIME);
    to->copy_max = config->copy_max;
    to->conv_workspace = config->conv_workspace;
    to->handle_bytes = config->handle_bytes;
    to->event_lag = config->event_lag;
    to->timing = config->timing;
    for (int i = 0; i < config->devices; i++) {
        cm_sim_report_device *device = &to->device[i];
        snprintf(device->name, sizeof device->name, "%s", config->device[i].name);
        device->total = config->device[i].memory;
        device->major = config->device[i].major;
        device->minor = config->device[i].minor;
        device->sms = config->device[i].sms;
        device->ordinal = config->ordinal[i];
    }
    uint64_t magic;
    memcpy(&magic, CM_SIM_REPORT_MAGIC, sizeof magic);
    atomic_store_explicit(&to->magic, magic, memory_order_release);
}

static void add_note(cm_sim_report *to, cm_sim_note_kind kind, const char *name, uint64_t bytes);

static cm_sim_report *open_report(void)
{
    const cm_sim_config *config = cm_sim_config_get();
    const char *path = secure_getenv("CUPTIMEM_SIM_REPORT");
    cm_sim_report *opened = NULL;

    if (path != NULL && *path != '\0')
        opened = map_file(path);
    if (opened == NULL)
        opened = &private_report;
    fill(opened, config);
    open_log();
    if (!cm_sim_fork_watch())
        add_note(opened, CM_SIM_NOTE_LIMIT, "memory to watch fork()", 0);
    atomic_store(&cm_sim_timing, config->timing);
    return opened;
}

cm_sim_report *cm_sim_report_get(void)
{
    cm_sim_report *now = atomic_load_explicit(&report, memory_order_acquire);

    if (__builtin_expect(now != NULL, 1))
        return now;
    pthread_mutex_lock(&lock);
    now = atomic_load(&report);
    if (now == NULL) {
        now = open_report();
        atomic_store_explicit(&report, now, memory_order_release);
    }
    pthread_mutex_unlock(&lock);
    return now;
}

void cm_sim_report_lock(void)
{
    pthread_mutex_lock(&lock);
}

void cm_sim_report_unlock(void)
{
    pthread_mutex_unlock(&lock);
}

void cm_sim_report_child(bool parent_used_device)
{
    cm_sim_report *parents = atomic_load(&report);

    if (log_file.descriptor >= 0)
        close(log_file.descriptor);
    log_file.descriptor = -1;
    atomic_store(&log_wanted, false);
    if (!parent_used_device) {
        atomic_store(&report, NULL); /* its own files, if it ever uses the device */
        memset(&private_report, 0, sizeof private_report);
        return;
    }
    if (parents != NULL && parents != &private_report)
        memcpy((void *)&private_report, (const void *)parents, sizeof private_report);
    private_report.pid = (uint32_t)getpid();
    atomic_store(&report, &private_report);
}

/* --- Notes ------------------------------------------------------------------------------------ */

static void raise_to(cm_sim_count *most, uint64_t value)
{
    uint64_t before = atomic_load_explicit(most, memory_order_relaxed);

    while (before < value && !atomic_compare_exchange_weak(most, &before, value))
        ;
}

/* Under the lock. */
static void add_note(cm_sim_report *to, cm_sim_note_kind kind, const char *name, uint64_t bytes)
{
    uint32_t used = atomic_load(&to->notes), i;
    cm_sim_report_note *note;

    for (i = 0; i < used; i++)
        if (atomic_load(&to->note[i].kind) == (uint32_t)kind &&
            strncmp(to->note[i].name, name, CM_SIM_NAME - 1) == 0)
            break;
    if (i == CM_SIM_REPORT_NOTES) {
        atomic_fetch_add(&to->notes_dropped, 1);
        return;
    }
    note = &to->note[i];
    atomic_fetch_add(&note->count, 1);
    raise_to(&note->bytes, bytes);
    if (i < used)
        return;
    snprintf(note->name, sizeof note->name, "%s", name);
    atomic_store(&note->kind, kind);
    atomic_store(&to->notes, used + 1);
}

void cm_sim_note(cm_sim_note_kind kind, const char *name, uint64_t bytes)
{
    static const char *const kinds[] = {"?", "undescribed", "refused", "modelled", "limit"};
    cm_sim_report *to = cm_sim_report_get();

    pthread_mutex_lock(&lock);
    add_note(to, kind, name, bytes);
    pthread_mutex_unlock(&lock);
    cm_sim_trace("note %s %s %llu", kinds[kind <= CM_SIM_NOTE_LIMIT ? kind : 0], name,
                 (unsigned long long)bytes);
}

/* --- Host reads ------------------------------------------------------------------------------- */

void cm_sim_set_read_hook(cm_sim_read_hook hook)
{
    atomic_store(&read_hook, hook);
}

void cm_sim_report_read(const void *address, size_t bytes, size_t simulated, int device)
{
    cm_sim_report *to = cm_sim_report_get();
    cm_sim_report_device *on = &to->device[device >= 0 && device < CM_SIM_DEVICES ? device : 0];

    bool written = simulated == 0;

    atomic_fetch_add(written ? &on->known_reads : &on->reads, 1);
    atomic_fetch_add(written ? &on->known_bytes : &on->read_bytes, written ? bytes : simulated);
    cm_sim_read_hook hook = atomic_load(&read_hook);
    if (hook != NULL)
        hook(address, written ? bytes : simulated, device, written);
}

/* --- The log ---------------------------------------------------------------------------------- */

bool cm_sim_log_wanted(void)
{
    return atomic_load_explicit(&log_wanted, memory_order_relaxed);
}

void cm_sim_log(cm_sim_log_record record)
{
    struct stat found;
    ssize_t written;

    pthread_mutex_lock(&lock);
    if (log_file.descriptor >= 0) {
        record.time = now_ns(CLOCK_MONOTONIC);
        record.thread = (uint32_t)syscall(SYS_gettid);
        if (fstat(log_file.descriptor, &found) != 0 || found.st_dev != log_file.device ||
            found.st_ino != log_file.inode) {
            say("cuptimem: the program closed the log of the simulated device; it ends here");
            log_file.descriptor = -1;
        } else if ((written = write(log_file.descriptor, &record, sizeof record)) !=
                   sizeof record) {
            say("cuptimem: the log of the simulated device ends here: %s",
                strerror(written < 0 ? errno : ENOSPC));
            close(log_file.descriptor);
            log_file.descriptor = -1;
        }
        atomic_store(&log_wanted, log_file.descriptor >= 0);
    }
    pthread_mutex_unlock(&lock);
}

/* --- Time ------------------------------------------------------------------------------------- */

static _Thread_local unsigned depth __attribute__((tls_model("initial-exec")));

cm_sim_timer cm_sim_timer_begin(void)
{
    return (cm_sim_timer){depth++ == 0 ? now_ns(CLOCK_MONOTONIC) : 1};
}

void cm_sim_timer_end(cm_sim_timer *timer)
{
    if (--depth > 0)
        return;
    cm_sim_report *to = cm_sim_report_get();
    atomic_fetch_add_explicit(&to->entry_ns, now_ns(CLOCK_MONOTONIC) - timer->began,
                              memory_order_relaxed);
    atomic_fetch_add_explicit(&to->entries, 1, memory_order_relaxed);
}
