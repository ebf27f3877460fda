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
    bool private;           /* only this user may read the trace, whatever the umask */
    uint64_t max_size;      /* bytes of trace past which it is compacted; 0 = 2 GiB */
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
    bool foreign;   /* its path no longer led to its file when it ended: see writer.h */
} cm_session_counts;

/* Sweeps rings that killed processes left where this capture's ring may lie: appends their tails to
 * their traces. Call it before start, without the GIL: it reads and writes whole files. */
void cm_session_sweep(const cm_session_options *options);
/* Sweeps these folders, ended by NULL; true: note holds a line for the user. Set before the first
 * sweep; without it nothing is swept. */
typedef bool cm_session_sweeper(const char *const *folders, char *note, size_t note_size);
void cm_session_set_sweeper(cm_session_sweeper *sweep);

/* Creates ring file and trace and starts the collector; nothing records yet. Needs the GIL, because
 * stack numbers start again. 0, or -1 with one clear line in error (what, why, and what to do). */
int cm_session_start(const cm_session_options *options, char *error, size_t error_size);

/* A capture started with "later" has no ring file, so that a kill loses its events. Before hooks
 * are installed, share makes the file if the capture waits for it, and names it in the trace. A
 * negative errno: install nothing and try again later. Any thread outside a hook, without the
 * GIL. */
bool cm_session_waits(void);
int cm_session_share(void);

/* Turns recording on or off. Off returns after every thread has left its hook. */
void cm_session_record(bool on);

/* 0: everything published before the call is in the file; -1: recording had ended by itself. */
int cm_session_sync(void);

/* pause returns once the kernel no longer counts the collector's thread, so that a fork finds no
 * thread of ours. Events stay in their rings until resume starts it again; sync and stop work in
 * between. In a forked child both do nothing. 0, or a negative errno. */
int cm_session_pause(void);
int cm_session_resume(void);

/* Adds meta: key, value, ..., NULL; a later value replaces an earlier one. 0: it is in the file, or
 * there is no capture, or recording has ended by itself; else a negative errno. */
int cm_session_note(const char *const *notes);

/* Before exec: writes all published events, records the program under "exec" and releases the ring.
 * A reader that finds the ring unlocked then knows that no kill was the cause. NULL: exec has
 * failed, and recording goes on. */
void cm_session_exec(const char *program);

/* Turns recording off, drains the rings, writes the end chunk, removes the ring file. notes: later
 * meta (key, value, ..., NULL), or NULL. *warning: a line for the user, or empty. 0, or -1 when the
 * file could not be finished (it is still readable). */
int cm_session_stop(const char *const *notes, char *warning, size_t warning_size);

bool cm_session_active(void);
/* Of the running capture, else of the last one. */
cm_session_counts cm_session_get_counts(void);

/* Why the capture ended by itself (disk full, size bound), or why the rings lie elsewhere than
 * wanted: each once; NULL otherwise. Python prints it. Valid until the next start. */
const char *cm_session_take_warning(void);
/* Whether there is one to take. Any thread; takes no lock. */
bool cm_session_has_warning(void);

/* The collector calls it at each wake-up, on its thread, without the GIL: sources rescan for newly
 * loaded libraries. May be NULL. */
void cm_session_set_idle_callback(void (*callback)(void));

#endif
