/* One capture from start to stop, and what a fork does to it. */
#include "session.h"

#include <errno.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "../frames/walk.h"
#include "../trace/writer.h"
#include "../base/clock.h"
#include "collector.h"
#include "ring_owner.h"
#include "ring_producer.h"
#include "ringfile.h"

enum { LEAVE_MS = 1000, HOLD_MS = 1000 };

static struct {
    pthread_mutex_t mutex; /* taken without the GIL: its holder may wait for the collector */
    bool active;
    _Atomic pid_t pid; /* read before the mutex is taken */
    uint32_t number;   /* of the capture; never restarts, so that no thread confuses two */
    cm_writer *_Atomic writer;
    cm_session_counts last; /* of the capture that was stopped */
    char note[512];
    char swept[CM_SESSION_ERROR_SIZE]; /* a sweep's line for the user */
    cm_session_sweeper *sweep;
    _Atomic bool note_taken, failure_taken, swept_taken;
    _Atomic bool waits; /* for cm_session_share */
    pthread_once_t once;
} session = {.mutex = PTHREAD_MUTEX_INITIALIZER,
             .once = PTHREAD_ONCE_INIT,
             .note_taken = true,
             .failure_taken = true,
             .swept_taken = true};

/* --- fork -------------------------------------------------------------------------------- */

static void before_fork(void)
{
    cm_frames_before_fork();
}

static void after_fork_in_parent(void)
{
    cm_frames_after_fork();
}

/* The child starts from nothing: no capture, no thread states, no descriptor of the parent's. */
static void become_child(void)
{
    cm_producers_forget();
    cm_ringfile_forget();
    cm_collector_forget();
    /* Nothing is buffered in a writer, so closing writes nothing. */
    cm_writer_close(atomic_exchange(&session.writer, NULL));
    pthread_mutex_init(&session.mutex, NULL);
    session.active = false;
    session.waits = false;
    session.note_taken = session.failure_taken = session.swept_taken = true;
    session.pid = getpid();
}

static void after_fork_in_child(void)
{
    cm_frames_after_fork();
    become_child();
}

static void register_fork_handlers(void)
{
    pthread_atfork(before_fork, after_fork_in_parent, after_fork_in_child);
}

static void lock(void)
{
    /* A child forked by a bare system call: no handler ran. */
    pid_t pid = atomic_load_explicit(&session.pid, memory_order_relaxed);
    if (pid != 0 && pid != getpid())
        become_child();
    pthread_mutex_lock(&session.mutex);
}

static void unlock(void)
{
    pthread_mutex_unlock(&session.mutex);
}

/* --- start ------------------------------------------------------------------------------- */

__attribute__((format(printf, 3, 4))) static int refuse(char *error, size_t size,
                                                        const char *format, ...)
{
    va_list arguments;

    va_start(arguments, format);
    vsnprintf(error, size, format, arguments);
    va_end(arguments);
    return -1;
}

static bool make_absolute(const char *path, char *absolute, size_t size)
{
    char folder[CM_RING_PATH_MAX] = "";

    if (path[0] != '/' && getcwd(folder, sizeof folder) == NULL)
        return false;
    int n = snprintf(absolute, size, "%s%s%s", folder, path[0] == '/' ? "" : "/", path);
    return n > 0 && (size_t)n < size;
}

/* Names the rings' place for readers; called again once they have moved. */
static int write_meta(cm_writer *writer, const char *const *meta)
{
    const cm_ring_header *header = cm_ringfile.header;
    size_t count = 0;
    char id[24], bytes[24], owner[CM_OWNER_TEXT];

    while (meta != NULL && meta[count] != NULL)
        count++;
    const char **pairs = calloc(count + 11, sizeof *pairs);
    if (pairs == NULL)
        return -ENOMEM;
    snprintf(id, sizeof id, "0x%016llx", (unsigned long long)header->id);
    snprintf(bytes, sizeof bytes, "%llu", (unsigned long long)cm_ringfile.file_bytes);
    cm_owner_write(header, owner);
    const char *const own[] = {"ring.path",  cm_ringfile_exists() ? cm_ringfile.path : "",
                               "ring.id",    id,
                               "ring.place", cm_ring_place_name(cm_ringfile.place),
                               "ring.bytes", bytes,
                               "ring.owner", owner};
    if (count > 0)
        memcpy(pairs, meta, count * sizeof *pairs);
    memcpy(pairs + count, own, sizeof own);
    int status = cm_writer_meta(writer, pairs);
    free(pairs);
    return status;
}

/* Moves the rings into a file, once. Recording threads wait and lose nothing. Runs on the
 * collector's thread, or while there is none. -errno: nothing has changed, try again. */
static int move_rings(char *note, size_t note_size)
{
    cm_ring_made made;
    int status = -EAGAIN;

    if (cm_ringfile.place != CM_RING_PLACE_NONE || !cm_ringfile_make(&made, note, note_size))
        return 0;
    if (cm_producers_hold(HOLD_MS)) {
        cm_frames_before_fork(); /* as for a fork: no definition may be half appended */
        status = cm_ringfile_move_to(&made);
        cm_frames_after_fork();
    }
    cm_recording_release();
    if (status < 0)
        cm_ring_made_remove(&made);
    return status;
}

static int share(void)
{
    char note[sizeof session.note] = "";

    if (cm_collector_failed()) { /* nothing is recorded any more */
        atomic_store(&session.waits, false);
        return 0;
    }
    int status = move_rings(note, sizeof note);
    if (note[0] != '\0' && status == 0) {
        memcpy(session.note, note, sizeof note);
        atomic_store(&session.note_taken, false);
    }
    if (status == 0)
        status = write_meta(atomic_load(&session.writer), NULL);
    if (status == 0)
        atomic_store(&session.waits, false);
    return status;
}

static int open_trace(const cm_session_options *options, const char *path, char *error,
                      size_t error_size)
{
    cm_writer *writer = NULL;
    const char *advice = "choose another path";

    int status = cm_writer_create(path, options->overwrite,
                                  options->private ? CM_WRITER_PRIVATE : CM_WRITER_NAMED, &writer);
    if (status == -EEXIST)
        advice = "choose another path, or say that it may be replaced";
    else if (status == -ENOENT)
        advice = "its folder must exist";
    if (status < 0)
        return refuse(error, error_size, "cannot create the trace %s: %s (%s)", path,
                      strerror(-status), advice);
    status = write_meta(writer, options->meta);
    if (status < 0) {
        cm_writer_close(writer);
        unlink(path);
        return refuse(error, error_size, "cannot write the trace %s: %s", path, strerror(-status));
    }
    atomic_store(&session.writer, writer);
    return 0;
}

static int begin_recording(const cm_session_options *options, const char *path, char *error,
                           size_t error_size)
{
    struct stat st;

    /* Before any file is made. */
    if (!options->overwrite && lstat(path, &st) == 0)
        return refuse(error, error_size,
                      "cannot create the trace %s: %s (choose another path, or say that it may be "
                      "replaced)",
                      path, strerror(EEXIST));
    const cm_ringfile_options wish = {.trace_path = path,
                                      .ring_dir = options->ring_dir,
                                      .shared_dir = options->shared_dir,
                                      .bytes = options->ring_bytes};
    int status = cm_ringfile_create(&wish, session.note, sizeof session.note);
    if (status == 0 && !options->later)
        status = move_rings(session.note, sizeof session.note);
    if (status < 0) {
        if (cm_ringfile.header != NULL) {
            cm_ringfile_destroy(true, true);
            snprintf(session.note, sizeof session.note, "the rings cannot get their file: %s",
                     strerror(-status));
        }
        session.note_taken = true; /* it is returned as the error */
        return refuse(error, error_size, "%s", session.note);
    }
    session.note_taken = session.note[0] == '\0';
    session.failure_taken = false;
    if (open_trace(options, path, error, error_size) < 0) {
        cm_ringfile_destroy(true, true);
        return -1;
    }
    session.waits = options->later; /* the collector reads it from its start on */
    cm_producers_begin();
    if (++session.number == 0)
        session.number = 1;
    status = cm_frames_begin() < 0 ? -ENOMEM : 0;
    if (status == 0)
        status = cm_collector_start(atomic_load(&session.writer), path,
                                    options->max_size != 0 ? options->max_size : UINT64_C(2) << 30,
                                    options->side_bytes, options->cache_tag);
    if (status < 0) {
        cm_writer_close(atomic_exchange(&session.writer, NULL));
        unlink(path);
        cm_ringfile_destroy(true, true);
        session.waits = false;
        return refuse(error, error_size, "cannot start the collector: %s", strerror(-status));
    }
    session.active = true;
    return 0;
}

void cm_session_set_sweeper(cm_session_sweeper *sweep)
{
    session.sweep = sweep;
}

void cm_session_sweep(const cm_session_options *options)
{
    char path[CM_RING_PATH_MAX], note[CM_SESSION_ERROR_SIZE];
    cm_ring_sweep places;
    struct stat st;

    /* Nothing is touched for a start that will be refused. */
    if (session.sweep == NULL || cm_session_active() ||
        !make_absolute(options->path, path, sizeof path) ||
        (!options->overwrite && lstat(path, &st) == 0))
        return;
    cm_ring_folders_to_sweep(&places, path, options->ring_dir, options->shared_dir);
    if (!session.sweep(places.folder, note, sizeof note))
        return;
    lock();
    memcpy(session.swept, note, sizeof note);
    session.swept_taken = false;
    unlock();
}

int cm_session_start(const cm_session_options *options, char *error, size_t error_size)
{
    char path[CM_RING_PATH_MAX];
    int status;

    pthread_once(&session.once, register_fork_handlers);
    lock();
    session.pid = getpid();
    cm_clock_init();
    if (session.active)
        status = refuse(error, error_size, "a capture is already running in this process");
    else if (!make_absolute(options->path, path, sizeof path))
        status =
            refuse(error, error_size, "the path of the trace is too long: %.200s", options->path);
    else if (cm_producers_init() < 0)
        status = refuse(error, error_size, "no memory for the threads' states");
    else if (!cm_producers_wait_until_left(LEAVE_MS))
        status = refuse(error, error_size,
                        "a thread is still inside a hook of the last capture (try again)");
    else
        status = begin_recording(options, path, error, error_size);
    unlock();
    return status;
}

/* --- while it runs ----------------------------------------------------------------------- */

static void record(bool on)
{
    if (on && session.active) {
        cm_recording_set(session.number);
        /* The collector may have given up meanwhile. */
        if (!cm_collector_failed())
            return;
    }
    cm_recording_set(0);
    cm_producers_wait_until_left(LEAVE_MS);
}

void cm_session_record(bool on)
{
    lock();
    if (session.active)
        record(on);
    unlock();
}

int cm_session_sync(void)
{
    lock();
    int status = session.active ? cm_collector_sync() : 0;
    unlock();
    return status;
}

int cm_session_pause(void)
{
    lock();
    int status = session.active ? cm_collector_pause() : 0;
    unlock();
    return status;
}

int cm_session_resume(void)
{
    lock();
    int status = session.active ? cm_collector_resume() : 0;
    unlock();
    return status;
}

int cm_session_note(const char *const *notes)
{
    lock();
    int status = session.active ? cm_collector_note(notes) : 0;
    unlock();
    return status;
}

bool cm_session_waits(void)
{
    return atomic_load(&session.waits);
}

int cm_session_share(void)
{
    int status = 0;

    if (!cm_session_waits())
        return 0;
    /* The session mutex's holder may be waiting for the collector. */
    if (cm_collector_is_this_thread())
        return share();
    lock();
    if (session.active && cm_session_waits())
        status = cm_collector_without_thread(share);
    unlock();
    return status;
}

void cm_session_exec(const char *program)
{
    const char *const notes[] = {"exec", program != NULL ? program : "", NULL};

    lock();
    if (session.active && program != NULL) {
        /* Without its thread nothing signs the ring any more. */
        cm_collector_pause();
        cm_collector_sync();
        cm_collector_note(notes);
        atomic_store(&cm_ringfile.header->alive_ns, 0);
    } else if (session.active) {
        atomic_store(&cm_ringfile.header->alive_ns, cm_clock_sample().realtime_ns);
        cm_collector_note(notes);
        cm_collector_resume();
    }
    unlock();
}

bool cm_session_active(void)
{
    lock();
    bool active = session.active;
    unlock();
    return active;
}

static cm_session_counts count(void)
{
    cm_collector_counts c = cm_collector_get_counts();
    cm_frames_counts f = cm_frames_get_counts();
    return (cm_session_counts){
        .events = c.events,
        .lost_events = c.lost_events,
        .lost_stacks = c.lost_stacks,
        .bytes_written = c.bytes_written,
        .stacks = f.stacks,
        .codes = f.codes,
        .rings = c.rings,
        .wakes = c.wakes,
        .ring_blocks_used = atomic_load(&cm_blockpool.used),
        .profiler_bytes = c.memory + f.mapped_bytes + cm_ringfile.bytes + cm_ringfile.tables_bytes +
                          cm_producers_bytes(),
    };
}

cm_session_counts cm_session_get_counts(void)
{
    lock();
    cm_session_counts counts = session.active ? count() : session.last;
    unlock();
    return counts;
}

void cm_session_set_idle_callback(void (*callback)(void))
{
    cm_collector_set_idle_callback(callback);
}

static const char *take_warning(void)
{
    if (cm_collector_warning() != NULL && !atomic_exchange(&session.failure_taken, true))
        return cm_collector_warning();
    if (!atomic_exchange(&session.note_taken, true))
        return session.note;
    return !atomic_exchange(&session.swept_taken, true) ? session.swept : NULL;
}

bool cm_session_has_warning(void)
{
    return !atomic_load(&session.note_taken) || !atomic_load(&session.swept_taken) ||
           (cm_collector_warning() != NULL && !atomic_load(&session.failure_taken));
}

const char *cm_session_take_warning(void)
{
    lock();
    const char *warning = take_warning();
    unlock();
    return warning;
}

/* --- stop -------------------------------------------------------------------------------- */

int cm_session_stop(const char *const *notes, char *warning, size_t warning_size)
{
    int status = 0;

    lock();
    if (warning_size > 0)
        warning[0] = '\0';
    if (session.active) {
        cm_recording_set(0);
        bool left = cm_producers_wait_until_left(LEAVE_MS);
        int end = cm_collector_finish(notes);
        session.last = count();
        session.last.foreign = cm_writer_check(atomic_load(&session.writer)) != CM_WRITER_SOUND;
        session.active = false;
        session.waits = false;
        int closed = cm_writer_close(atomic_exchange(&session.writer, NULL));
        /* Without an end chunk the file still needs its ring, which holds what could not be written
         * for readers and the next sweep. */
        cm_ringfile_destroy(end == 0, left);
        status = end < 0 || closed < 0 ? -1 : 0;
        const char *line = take_warning();
        if (line != NULL)
            snprintf(warning, warning_size, "%s", line);
        else if (status < 0 && !cm_collector_failed()) /* else that was reported */
            snprintf(warning, warning_size, "the end of the trace could not be written: %s",
                     strerror(end < 0 ? -end : -closed));
    }
    unlock();
    return status;
}
