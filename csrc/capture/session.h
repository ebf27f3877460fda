/* One capture of this process: start, record, sync, stop. Called from csrc/python, from any thread.
 * All but start are called with the GIL released: they wait for the collector, for each other, and
 * for threads to leave their hooks. None of those needs the GIL. */
#ifndef CM_CAPTURE_SESSION_H
#define CM_CAPTURE_SESSION_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { CM_SESSION_ERROR_SIZE = 512 }; /* room for any line that comes from here */

typedef struct cm_session_options {
    const char *path;       /* the trace to create */
    bool overwrite;         /* replace an existing file, else it is an error */
    bool private;           /* only this user may read the trace, whatever the umask says */
    uint64_t max_size;      /* bytes of trace past which steps are folded; 0 = 2 GiB */
    uint64_t side_bytes;    /* size of the side file then; 0 = an eighth of max_size, 1 to 64 MiB */
    uint64_t ring_bytes;    /* size of the ring file; 0 = 16 MiB. Shared memory may give less */
    const char *ring_dir;   /* NULL: $CUPTIMEM_RING_DIR, shared memory, beside the trace, private */
    const char *shared_dir; /* where shared memory is; NULL: /dev/shm */
    bool later;             /* no ring file until cm_session_share */
    const char *cache_tag;  /* of Python's compiled files, such as "cpython-311"; may be NULL */
    const char *const *meta; /* key, value, key, value, ..., NULL: into the trace's header */
} cm_session_options;

typedef struct cm_session_counts {
    uint64_t events, lost_events, lost_stacks, bytes_written, stacks, codes;
    uint64_t rings, ring_blocks_used, profiler_bytes; /* memory mapped by us */
    uint64_t wakes; /* how often the collector's thread has begun to work */
    bool foreign; /* when the capture ended its path did not lead to what it wrote: see writer.h */
} cm_session_counts;

/* Sweeps rings that killed processes left where this capture's ring may come to lie: their tails go
 * into their traces. Call it before start, without the GIL: it reads and writes whole files. */
void cm_session_sweep(const cm_session_options *options);
/* What does it, in these folders, closed by NULL; true: a line for the user is in note. Before the
 * first sweep; without one nothing is swept. */
typedef bool cm_session_sweeper(const char *const *folders, char *note, size_t note_size);
void cm_session_set_sweeper(cm_session_sweeper *sweep);

/* Creates ring file and trace and starts the collector; nothing records yet. Needs the GIL (stacks
 * are numbered from the start again). 0, or -1 with one clear line in error (what, why, and what to
 * do). */
int cm_session_start(const cm_session_options *options, char *error, size_t error_size);

/* A capture that was started with "later" has no ring file, and what it records before it has one
 * is lost with a kill: whoever is about to install hooks asks first whether it waits for this, and
 * if so makes the file, which the trace names when this returns 0. A negative errno: try again
 * later, and install nothing. Any thread but one inside a hook, without the GIL. */
bool cm_session_waits(void);
int cm_session_share(void);

/* Turns recording on or off. Off returns after every thread has left its hook. */
void cm_session_record(bool on);

/* Everything published before the call is in the file when this returns 0; -1: recording ended by
 * itself before. */
int cm_session_sync(void);

/* pause: the collector's thread is gone when this returns (the kernel no longer counts it), so that
 * a fork finds no thread of ours; events stay in their rings until resume starts it again. sync and
 * stop work in between. In a forked child there is no capture, and both do nothing. 0, or a
 * negative errno. */
int cm_session_pause(void);
int cm_session_resume(void);

/* Meta that became known meanwhile: key, value, ..., NULL. In the file when this returns 0; a later
 * value replaces an earlier one. 0 too without a capture or once recording has ended by itself; or
 * a negative errno. */
int cm_session_note(const char *const *notes);

/* The process is about to become another program (exec): all that is published is in the file,
 * which says so under "exec", and the ring is let go of: whoever finds it after this process's lock
 * on it is gone knows that no kill was the cause. NULL: exec has failed, and the recording goes on.
 */
void cm_session_exec(const char *program);

/* Recording off, rings drained, end chunk written, ring file removed. notes: key, value, ...,
 * NULL, or NULL: meta that was not known when the capture began. *warning: a line to tell the
 * user, or empty. 0, or -1 when the file could not be finished (it is still readable). */
int cm_session_stop(const char *const *notes, char *warning, size_t warning_size);

bool cm_session_active(void);
/* Of the running capture, else of the last one. */
cm_session_counts cm_session_get_counts(void);

/* Why the capture ended by itself (disk full, size bound), or that the rings could not be where
 * they were wanted: each once; NULL otherwise. Python prints it. Valid until the next start. */
const char *cm_session_take_warning(void);
/* Whether there is one to take. Any thread; takes no lock. */
bool cm_session_has_warning(void);

/* Called by the collector at each wake-up, on its thread, without the GIL: sources re-scan for
 * libraries that were loaded later. May be NULL. */
void cm_session_set_idle_callback(void (*callback)(void));

#endif
