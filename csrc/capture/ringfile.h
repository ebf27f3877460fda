/* The rings of the running capture: in private memory first, then in a file of ring_layout.h. */
#ifndef CM_CAPTURE_RINGFILE_H
#define CM_CAPTURE_RINGFILE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "blockpool.h"
#include "ring_layout.h"
#include "ring_place.h"

/* What this process knows of a ring: the file's cm_ring has copies for a reader. */
typedef struct cm_ring_counts {
    _Alignas(64) _Atomic uint64_t head; /* written by the thread, and by the next one after it */
    _Atomic uint64_t tail;              /* written by the collector */
    _Atomic uint64_t lost;              /* in all */
} cm_ring_counts;

/* Written by start and stop while nothing records, and by cm_ringfile_move_to. */
typedef struct cm_ringfile_state {
    cm_ring_header *header; /* NULL: no capture */
    cm_ring *rings;
    unsigned char *log;
    uint64_t log_bytes, bytes;                         /* bytes: mapped, ... */
    uint64_t file_bytes;                               /* ... of which the file may be less */
    cm_ring_counts *counts;                            /* per ring */
    _Atomic uint64_t log_head, log_tail, unowned_lost; /* the header has copies */
    void *tables; /* where counts and the block pool's tables lie */
    size_t tables_bytes;
    _Atomic uint64_t id; /* the header's; 0: no capture */
    _Atomic bool exists; /* there is a file, which the next fields describe */
    int fd;
    dev_t device;
    ino_t inode;
    bool whole_blocks; /* as in cm_ring_made */
    cm_ring_place place;
    char path[CM_RING_PATH_MAX];
    cm_ring_folders folders;
} cm_ringfile_state;

extern cm_ringfile_state cm_ringfile;

static inline bool cm_ringfile_exists(void)
{
    return atomic_load_explicit(&cm_ringfile.exists, memory_order_acquire);
}

typedef struct cm_ringfile_options {
    const char *trace_path;            /* absolute */
    const char *ring_dir, *shared_dir; /* as for cm_ring_folders_choose */
    uint64_t bytes;                    /* 0: the default */
} cm_ringfile_options;

/* Lays the rings out in private memory that is barely touched. 0, or a negative errno with what
 * failed in note. */
int cm_ringfile_create(const cm_ringfile_options *options, char *note, size_t note_size);

/* Makes the file that the rings will move to, while threads record. False: there is none, the rings
 * stay in private memory for good. An unusable chosen folder puts one line into note. */
bool cm_ringfile_make(cm_ring_made *made, char *note, size_t note_size);
/* Moves the rings into it, once, at the same addresses, losing nothing. No thread may be inside a
 * hook. -EAGAIN: the file is too small by now. After any error nothing has changed, and the caller
 * removes the file. */
int cm_ringfile_move_to(const cm_ring_made *made);

/* Releases the rings; removes the file if asked. Nothing may use the rings any more, unless they
 * stay mapped (unmap = false) for a thread that never left its hook. */
void cm_ringfile_destroy(bool unlink_file, bool unmap);

/* In a forked child: releases the parent's rings without touching them. */
void cm_ringfile_forget(void);

/* Takes the lock again: the program may have closed our descriptor (os.closerange), or another one
 * of the same file. */
void cm_ringfile_keep_lock(void);

/* What others did to the ring's file, to continue "its ring file ..."; NULL: no harm is visible.
 * Async-signal-safe. */
const char *cm_ringfile_find_harm(void);

/* Whether this is the file of the running capture. Do not open it then: closing any descriptor of
 * it would drop the lock. */
bool cm_ringfile_is_ours(dev_t device, ino_t inode);

/* Whether the running capture of this process has rings of this id. Any thread. */
bool cm_ringfile_is_recording(uint64_t id);

#endif
