/* The ring file, byte by byte.
 *
 *   header, table of CM_RING_COUNT rings, definition log, blocks
 *
 * The file holds what a reader needs after a kill, no more. The recording process trusts only its
 * events and definitions, because others may write to the file or truncate it (bus_error.h).
 * Positions, free lists and chains of blocks are private memory (ringfile.h, blockpool.h), of which
 * the file has copies.
 *
 * A ring is a sequence of events counted from 0 that never restarts, even when the ring gets
 * another thread. The events that are not yet in the trace lie in blocks: a block's header names
 * its ring and the position of its first event. If two blocks could hold a position, the newer one
 * does: the larger (base, serial). */
#ifndef CM_CAPTURE_RING_LAYOUT_H
#define CM_CAPTURE_RING_LAYOUT_H

#include <stdatomic.h>
#include <stdint.h>

#include "../base/event.h"

#define CM_RING_MAGIC UINT64_C(0x31474e49524d4354) /* "TCMRING1" */
#define CM_RING_PREFIX ".cuptimem-ring-"

enum {
    CM_RING_VERSION = 1,
    CM_RING_COUNT = 2048, /* threads alive at once */
    /* Changing blocks costs 0.1 ns an event at this size. With 64 KiB a thread that allocates once
     * would hold a 200th of the file. */
    CM_BLOCK_BYTES = 16384,
    CM_BLOCK_EVENTS = CM_BLOCK_BYTES / 32 - 1,
    CM_RING_PATH_MAX = 4096,
    CM_RING_BYTES_DEFAULT = 16 << 20,
    CM_RING_BYTES_MIN = 1 << 20,
    CM_RING_BYTES_MAX = 1 << 30
};

/* Totals that are true once a chunk is in the trace. Two are written in turn, each before its
 * chunk: whenever the process is killed, one of them fits the trace's last covers. */
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
    /* Wall clock, written every second: a mapped write leaves no mtime. 0: the owner has released
     * the file and writes no more. */
    _Atomic uint64_t alive_ns;
    /* The owning process: its id, when it began, and its pid namespace. 0: not known. */
    uint64_t owner_pid, owner_start, owner_namespace;
    _Alignas(64) _Atomic uint64_t log_head;     /* bytes of definitions published */
    _Alignas(64) _Atomic uint64_t log_tail;     /* ... and written to the trace */
    _Alignas(64) _Atomic uint64_t unowned_lost; /* events of threads that found no ring */
    _Alignas(64) cm_ring_totals totals[2];
    char trace_path[CM_RING_PATH_MAX]; /* absolute */
} cm_ring_header;

typedef struct cm_ring {
    _Alignas(64) _Atomic uint64_t head; /* events published; written by the thread */
    _Atomic uint64_t lost;              /* not yet reported by a CM_EV_LOST */
    _Atomic uint64_t lost_at;           /* that event's position + 1 while it is being published */
    _Atomic uint64_t lost_total;
    uint32_t thread; /* written when head equals tail, before the first event */
    int32_t tid;
    _Alignas(64) _Atomic uint64_t tail; /* events written to the trace; written by the collector */
} cm_ring;

typedef struct cm_ring_block {
    _Atomic uint32_t owner; /* ring + 1; 0: holds nothing. Written last */
    uint32_t serial;
    uint64_t base; /* position of events[0] */
    uint64_t spare[2];
    cm_event events[CM_BLOCK_EVENTS];
} cm_ring_block;

_Static_assert(sizeof(cm_ring_totals) == 64 && sizeof(cm_ring) == 128, "file layout");
_Static_assert(sizeof(cm_ring_block) == CM_BLOCK_BYTES, "file layout");

#endif
