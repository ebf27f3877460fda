/* What CUDA has given out and not taken back, as the driver level records it (event.h, kinds 22 to
 * 26 and 29), and which of it PyTorch's allocator holds. The replay owns one from the first such
 * event on and notifies it of segments and blocks; a trace without such events has none and pays
 * nothing.
 *
 * An allocation is PyTorch's when
 *   - a segment (SEGMENT_NEW) begins where it does, or inside of it, or
 *   - the library that called CUDA is libc10_cuda or one of libtorch*, or
 *   - a block of the CUDA allocator lies in it. A block in reserved addresses makes PyTorch's what
 *     is and will be mapped in that reservation (an expandable segment).
 * A segment, or a block that was taken from CUDA for itself, that lies in nothing known (it is
 * older than the recording) counts as an allocation of its own, which is "implied" and in no count
 * of events.
 *
 * A handle's memory lives until every reference is released and nothing shows it. What a free ended
 * comes back when its thread records next that the free failed. A context's end takes with it
 * everything on its device that lives in contexts (handles, mappings and reservations do not),
 * unless another context of the device is known to be alive: then the owner is unknown, and it
 * stays.
 *
 * Memory grows with what is alive. One owner, any thread. */
#ifndef CM_HEAP_DRIVER_MAP_H
#define CM_HEAP_DRIVER_MAP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "../base/event.h"
#include "../trace/reader.h"
#include "group_totals.h"
#include "blocks.h"
#include "driver_join.h"
#include "../base/idmap.h"
#include "../base/ranges.h"

/* The driver's page, and what an expandable segment maps at a time. */
enum { CM_GRANULE = 2 << 20 };

typedef struct cm_driver_allocation {
    uint64_t address; /* or handle */
    int64_t size;
    uint64_t pool;         /* of an asynchronous one; 0: the device's own */
    uint64_t birth, death; /* by accounts.clock; death 0: alive */
    uint64_t join;         /* number of the event that waits for its record, + 1 */
    int64_t block_bytes, block_slack;
    uint32_t blocks;            /* alive in it, counted here even after its end */
    uint32_t total;             /* CM_TOTALS_NONE: implied addresses have none */
    uint32_t references, shown; /* of a handle: shown by so many mappings */
    uint32_t shows;             /* of a mapping: the handle's slot + 1 */
    uint32_t before, after;     /* of its device's context, slot + 1; after: also of free slots */
    uint32_t keepers;           /* that may record that its end failed */
    uint8_t kind;
    int8_t device, block_device;
    bool alive, torch, implied, direct, listed, backward;
} cm_driver_allocation;

/* The totals of one moment (CM_EV_DEVICE); -1 is unknown. */
typedef struct cm_driver_moment {
    int64_t used, total, own, others, pooled, reserved;
    bool quiet;
    /* As of then, from here. */
    int64_t block_bytes, block_slack; /* of PyTorch's blocks in driver memory */
    int64_t pool_slack, pool_short;
    int64_t driver_rounding; /* ledger.h */
    int64_t driver;          /* given out of the device's memory to this process */
    int64_t context;         /* ledger.h */
} cm_driver_moment;

typedef struct cm_driver_state { /* of one device */
    int64_t block_bytes, block_slack;
    int64_t paged, pages; /* bytes of what is carved out of pages, and pages that they touch */
    int64_t async_own, async_other; /* alive, of the device's own pool and of others */
    uint32_t contexts;
    bool context_made; /* in this trace */
    bool context_known;
    int64_t context;
    cm_driver_moment told;       /* being read */
    cm_driver_moment last;       /* the last complete one */
    cm_driver_moment last_quiet; /* used < 0: none yet */
    uint64_t moments;
    uint32_t first; /* of what lives in its contexts, slot + 1 */
} cm_driver_state;

enum {
    CM_DRIVER_SPACE_ADDRESS,
    CM_DRIVER_SPACE_REGISTERED,
    CM_DRIVER_SPACE_RESERVED,
    CM_DRIVER_SPACE_HANDLE,
    CM_DRIVER_SPACE_ARRAY,
    CM_DRIVER_SPACE_EXTERNAL,
    CM_DRIVER_SPACE_POOL,
    CM_DRIVER_SPACE_CONTEXT,
    CM_DRIVER_SPACE_GRAPH,
    CM_DRIVER_SPACES
};
enum { CM_DRIVER_THREADS = 256, CM_DRIVER_POOLS = 256 };

typedef struct cm_driver_undo {
    uint32_t slot;
    bool reference; /* a reference is to be taken again; else it is to live again */
} cm_driver_undo;

/* What a later event may add to the thread's last one. */
typedef struct cm_driver_thread {
    bool known;
    uint32_t number;
    cm_event event;   /* kind 0: none */
    uint32_t subject; /* allocation that it was about, slot + 1 */
    cm_driver_undo *undo;
    size_t undo_count, undo_capacity;
    uint64_t join;         /* number of the event that waits, + 1 */
    bool counted, unknown; /* among the frees; a free of nothing */
} cm_driver_thread;

typedef struct cm_driver_map {
    const char *error; /* why something failed */
    const cm_reader *reader;
    cm_totals accounts;
    cm_driver_join join;
    cm_driver_allocation *allocation;
    size_t slots, capacity;
    uint32_t vacant; /* slot + 1 */
    cm_idmap space[CM_DRIVER_SPACES];
    cm_ranges enclosers; /* where blocks may lie: allocations and reservations */
    cm_ranges mapped;    /* mappings */
    cm_idmap shared; /* page that one allocation may not have for itself -> how many have a part */
    uint32_t last_enclosing;
    cm_driver_state device[CM_TOTALS_HOST]; /* by index + 128 */
    cm_driver_thread thread[CM_DRIVER_THREADS];
    struct cm_driver_pool { /* from records of pools */
        uint64_t address;
        int64_t size;
        int device;
        bool known, gone;
    } pool[CM_DRIVER_POOLS];
    uint64_t allocations, frees, unknown_frees, failed_frees, replaced;
} cm_driver_map;

/* The kinds that make a replay have one, a bit each. */
#define CM_DRIVER_MAP_EVENTS                                                                       \
    (UINT64_C(1) << CM_EV_DRIVER_NEW | UINT64_C(1) << CM_EV_DRIVER_FREE |                          \
     UINT64_C(1) << CM_EV_DRIVER_MORE | UINT64_C(1) << CM_EV_DRIVER_RECORD |                       \
     UINT64_C(1) << CM_EV_POOL | UINT64_C(1) << CM_EV_DEVICE |                                     \
     UINT64_C(1) << CM_EV_COMPACTED_DRIVER)

const char *cm_driver_kind_name(uint8_t kind); /* "unknown" for what is none */

/* reader: for the names of libraries; NULL where there are none. NULL: out of memory. */
cm_driver_map *cm_driver_map_new(const cm_reader *reader);
cm_driver_map *cm_driver_map_copy(const cm_driver_map *map); /* NULL: out of memory */
void cm_driver_map_free(cm_driver_map *map);

/* All of these: false with map->error. */
bool cm_driver_map_apply(cm_driver_map *map, const cm_record *record);
bool cm_driver_map_segment(cm_driver_map *map, int8_t device, uint64_t address, int64_t size,
                           uint32_t stack);
bool cm_driver_map_segment_gone(cm_driver_map *map, uint64_t address);
/* A block came, or memory under it that was not known: *enclosing is what it lies in, 0: in nothing
 * that is known. The caller keeps that with the block and hands it back. index: CUDA's. */
bool cm_driver_map_block_came(cm_driver_map *map, int8_t index, const cm_block *block,
                              uint32_t *enclosing);
/* The other two: of blocks that lie in an allocation. */
bool cm_driver_map_block_went(cm_driver_map *map, const cm_block *block, uint32_t enclosing);
/* The slack of a live block became larger by so much. */
void cm_driver_map_asked(cm_driver_map *map, uint32_t enclosing, int64_t more);

static inline uint16_t cm_driver_map_place(int8_t index)
{
    return (uint16_t)(index + 128);
}

#endif
