/* The ring file, byte by byte, and the memory of this process that goes with it.
 *
 *   header, table of CM_RING_COUNT rings, definition log, blocks
 *
 * What lies in the file is what a reader needs after a kill, no more, and this process believes
 * nothing of it but the events and definitions themselves: others may write to the file, or take it
 * away (bus_error.h). Positions, free lists and the chains of blocks are private memory (cm_space),
 * of which the file has copies. A ring is a sequence of events counted from 0 that never
 * restarts, also when the ring gets another thread; the events not yet in the trace lie in blocks
 * whose headers say which ring they belong to and at which count they begin. Of two blocks that
 * both could hold a position the one with the larger (base, serial) does: that is the newer one. */
#ifndef CM_CAPTURE_RING_H
#define CM_CAPTURE_RING_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "../base/event.h"

#define CM_RING_MAGIC UINT64_C(0x31474e49524d4354) /* "TCMRING1" */
#define CM_RING_PREFIX ".cuptimem-ring-"

enum {
    CM_RING_VERSION = 1,
    CM_RING_COUNT = 2048, /* threads alive at once */
    /* Not the 64 KiB that one thread would like: a block change costs 0.1 ns an event even so, and
     * a thread that allocates once must not hold a 200th of all the room there is. */
    CM_BLOCK_BYTES = 16384,
    CM_BLOCK_EVENTS = CM_BLOCK_BYTES / 32 - 1,
    CM_RING_PATH_MAX = 4096,
    CM_RING_BYTES_DEFAULT = 16 << 20,
    CM_RING_BYTES_MIN = 1 << 20,
    CM_RING_BYTES_MAX = 1 << 30
};

/* What holds once a chunk is in the file. There are two, written in turn before the chunk that they
 * describe: whenever the process is killed, one of them fits the covers that the file ends with. */
typedef struct cm_ring_totals {
    _Atomic uint64_t events; /* taken from all rings; UINT64_MAX: being written */
    uint64_t lost_stacks, unowned_lost;
    uint64_t ticks, monotonic_ns, realtime_ns; /* the chunk's anchor */
    uint64_t spare[2];
} cm_ring_totals;

typedef struct cm_ring_header {
    _Atomic uint64_t magic; /* written last: without it the rest means nothing */
    uint32_t version, ring_count, block_bytes, block_count;
    uint64_t id, total_bytes;
    uint64_t table_offset, log_offset, log_bytes, blocks_offset;
    /* Wall clock, now and then: a mapped write leaves no mtime. 0: let go of, nobody writes here.
     */
    _Atomic uint64_t alive_ns;
    /* Whose it is; 0: not known. A process is one id in one namespace with one time of birth. */
    uint64_t owner_pid, owner_start, owner_namespace;
    _Alignas(64) _Atomic uint64_t log_head;     /* bytes of definitions published */
    _Alignas(64) _Atomic uint64_t log_tail;     /* ... and written to the trace */
    _Alignas(64) _Atomic uint64_t unowned_lost; /* events of threads that found no ring */
    _Alignas(64) cm_ring_totals totals[2];
    char trace_path[CM_RING_PATH_MAX]; /* absolute */
} cm_ring_header;

typedef struct cm_ring {
    _Alignas(64) _Atomic uint64_t head; /* events published; written by the thread */
    _Atomic uint64_t lost;              /* not yet told by a CM_EV_LOST */
    _Atomic uint64_t lost_at;           /* that event's position + 1 while it is being published */
    _Atomic uint64_t lost_total;
    uint32_t thread; /* written when head equals tail, before the first event */
    int32_t tid;
    _Alignas(64) _Atomic uint64_t tail; /* events written to the trace; written by the collector */
} cm_ring;

typedef struct cm_block {
    _Atomic uint32_t owner; /* ring + 1; 0: holds nothing. Written last */
    uint32_t serial;
    uint64_t base; /* position of events[0] */
    uint64_t spare[2];
    cm_event events[CM_BLOCK_EVENTS];
} cm_block;

_Static_assert(sizeof(cm_ring_totals) == 64 && sizeof(cm_ring) == 128, "file layout");
_Static_assert(sizeof(cm_block) == CM_BLOCK_BYTES, "file layout");

/* Indices that any thread takes and gives back, lock-free. The high half of top is a tag that grows
 * with every change, so that a compare-and-swap cannot mistake a returned index for the same list.
 */
typedef struct cm_freelist {
    _Atomic uint64_t top;   /* tag << 32 | index + 1 */
    _Atomic uint32_t fresh; /* indices from here on were never taken */
    uint32_t capacity;
    _Atomic uint32_t *next;
} cm_freelist;

/* index + 1, or 0 when there is none. */
uint32_t cm_freelist_take_hook(cm_freelist *list);
void cm_freelist_give(cm_freelist *list, uint32_t index);

#define CM_SHARED_FOLDER "/dev/shm"

typedef enum cm_place {
    CM_PLACE_NONE = 0, /* not decided yet: private memory until then */
    CM_PLACE_CHOSEN,   /* ring_dir or $CUPTIMEM_RING_DIR */
    CM_PLACE_SHARED,   /* shared memory, as far as shared_memory.h lets it be */
    CM_PLACE_BESIDE,   /* the trace's folder */
    CM_PLACE_PRIVATE   /* no file: nothing survives a kill */
} cm_place;

/* What this process knows of a ring: the file's cm_ring has copies for a reader. */
typedef struct cm_ring_own {
    _Alignas(64) _Atomic uint64_t head; /* written by the thread; goes on with the next one's */
    _Atomic uint64_t tail;              /* written by the collector */
    _Atomic uint64_t lost;              /* in all */
} cm_ring_own;

/* The mapped ring of the running capture. Written by start and stop while nothing records, and by
 * cm_space_share. */
typedef struct cm_space {
    cm_ring_header *header; /* NULL: no capture */
    cm_ring *rings;
    unsigned char *log;
    cm_block *blocks;
    uint64_t log_bytes, bytes; /* bytes: mapped, ... */
    uint64_t file_bytes;       /* ... of which the file may be less */
    uint32_t block_count;
    _Atomic uint32_t wake_at; /* blocks in use that wake the collector; it changes this itself */
    _Atomic uint32_t used;    /* blocks in use */
    cm_freelist free;
    _Atomic uint32_t *link; /* per block: the next block of its chain + 1, or 0 */
    uint64_t *base;         /* per block: position of its first event; 0 < link happens after */
    cm_ring_own *own;       /* per ring */
    _Atomic uint64_t log_head, log_tail, unowned_lost; /* the header has copies */
    void *tables;                                      /* where own, base, free.next and link lie */
    size_t tables_bytes;
    _Atomic uint64_t id; /* the header's; 0: no capture */
    _Atomic bool filed;  /* there is a file, and what follows is of it */
    int fd;
    dev_t device;
    ino_t inode;
    bool whole_blocks; /* the file system counts all of it as taken: less is a hole */
    cm_place place;
    char path[CM_RING_PATH_MAX];
    char chosen[CM_RING_PATH_MAX], shared[CM_RING_PATH_MAX]; /* folders to try; "": none */
} cm_space;

extern cm_space cm_the_space;

static inline cm_block *cm_space_block(uint32_t index_plus_one)
{
    return &cm_the_space.blocks[index_plus_one - 1];
}

static inline bool cm_space_is_filed(void)
{
    return atomic_load_explicit(&cm_the_space.filed, memory_order_acquire);
}

typedef struct cm_space_options {
    const char *trace_path; /* absolute */
    const char *ring_dir;   /* NULL: $CUPTIMEM_RING_DIR */
    const char *shared_dir; /* NULL: CM_SHARED_FOLDER */
    uint64_t bytes;         /* 0: the default */
} cm_space_options;

/* Makes the rings, in private memory that is barely touched. 0, or a negative errno with what
 * failed in note. */
int cm_space_create(const cm_space_options *options, char *note, size_t note_size);

/* Moves the rings into a file, once: in the first place that has room of ring_dir, else
 * $CUPTIMEM_RING_DIR, shared memory, the trace's folder if it is on a local disk; else they stay in
 * private memory for good. In shared memory the file may be smaller than was asked for. Threads may
 * record meanwhile: they wait, and lose nothing. For the collector's thread, or while there is
 * none. 0, or a negative errno: nothing has changed, and another try is of use. A chosen folder
 * that cannot be used puts one line into note. */
int cm_space_share(char *note, size_t note_size);

/* Sweeps rings left behind (orphan.h) in the folders where that could be. It reads whole rings and
 * writes to traces, so nothing of ours is held meanwhile, and in Python not the GIL. */
void cm_space_sweep(const char *trace_path, const char *ring_dir, const char *shared_dir);

/* Lets go of the ring; removes the file if asked. Nothing may use the ring any more, or it must
 * stay mapped (unmap = false) for a thread that never left its hook. */
void cm_space_destroy(bool unlink_file, bool unmap);

/* In a forked child: lets go of the parent's ring without touching it. */
void cm_space_forget(void);

/* Takes the lock anew: user code may have closed our descriptor (os.closerange) or another one of
 * the same file. */
void cm_space_keep_lock(void);

/* What others have done to the ring's file, as a line goes on: "its ring file ..."; NULL: nothing
 * that can be seen. Async-signal-safe. */
const char *cm_space_find_harm(void);

/* Whether this file is the ring of this process's running capture. It must not even be opened then:
 * closing any descriptor of it would drop the lock. */
bool cm_space_is_ours(dev_t device, ino_t inode);

/* Whether the running capture of this process has rings of this id. Any thread. */
bool cm_space_is_recording(uint64_t id);

const char *cm_place_name(cm_place place);

/* Makes sure, as far as can be told, that nobody writes to this ring whose lock is free: a lock
 * also goes when somebody in the owner's process closes another descriptor of the file, and comes
 * back within a second. True if its process is gone, let go of it, or has not signed for a while.
 */
bool cm_ring_is_abandoned(const cm_ring_header *header);

/* Write-locks the whole file for this process. False: somebody else has it. */
bool cm_ring_lock(int fd);

/* A block with its header for this ring; index + 1, or 0: there is none. */
uint32_t cm_space_take_block_hook(uint32_t ring, uint64_t base, uint32_t serial);
void cm_space_give_block(uint32_t index_plus_one);

#endif
