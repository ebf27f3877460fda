/* The live driver allocations (event.h, kinds 22 to 26 and 29), and which of them PyTorch's
 * allocator holds. The replay makes one at the first such event and notifies it of segments and
 * blocks. A trace without such events has none, at no cost.
 *
 * An allocation is PyTorch's when
 *   - a segment (SEGMENT_NEW) begins where it does, or inside of it, or
 *   - the library that called CUDA is libc10_cuda or one of libtorch*, or
 *   - a block of the CUDA allocator lies in it. A block in a reservation makes all present and
 *     later mappings in it PyTorch's (an expandable segment).
 * A segment or a direct block outside of all known allocations is older than the recording. It
 * counts as an "implied" allocation, which is in no count of events.
 *
 * A handle's memory lives until every reference is released and no mapping shows it. A free is
 * undone if its thread's next record marks it as failed. A context's end also ends everything on
 * its device that lives in contexts (handles, mappings and reservations do not). If another context
 * of the device is known to be alive, the owner is unknown, and all of it stays.
 *
 * Memory grows with the live allocations. One owner, any thread. */
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

/* The driver's page, and the unit in which expandable segments map. */
enum { CM_GRANULE = 2 << 20 };

typedef struct cm_driver_allocation {
    uint64_t address; /* or handle */
    int64_t size;
    uint64_t pool;         /* of an asynchronous one; 0: the device's own */
    uint64_t birth, death; /* by totals.clock; death 0: alive */
    uint64_t join;         /* number of the event that waits for its CUPTI record, + 1 */
    int64_t block_bytes, block_slack;
    uint32_t blocks;            /* live ones in it, counted even after its end */
    uint32_t total;             /* CM_TOTALS_NONE: implied addresses have none */
    uint32_t references, shown; /* of a handle: number of mappings that show it */
    uint32_t shows;             /* of a mapping: handle's slot + 1 */
    uint32_t before, after;     /* of its device's context, slot + 1; after: also of free slots */
    uint32_t keepers;           /* threads that may still undo its end */
    uint8_t kind;
    int8_t device, block_device;
    bool alive, torch, implied, direct, listed, backward;
    bool at_least; /* of a reservation: its size */
} cm_driver_allocation;

/* The totals of one moment (CM_EV_DEVICE); -1 is unknown. */
typedef struct cm_driver_moment {
    int64_t used, total, own, others, pooled, reserved, host, cache;
    bool quiet;
    /* The map's own sums at that moment. */
    int64_t block_bytes, block_slack; /* of PyTorch's blocks in driver memory */
    int64_t pool_slack, pool_short;
    int64_t driver_rounding; /* ledger.h */
    int64_t driver;          /* device memory allocated by this process */
    int64_t context;         /* ledger.h */
} cm_driver_moment;

#define CM_DRIVER_MOMENT_UNKNOWN ((cm_driver_moment){-1, -1, -1, -1, -1, -1, -1, -1, .context = -1})

typedef struct cm_driver_state { /* of one device */
    int64_t block_bytes, block_slack;
    int64_t paged, pages;           /* bytes carved out of pages, and pages that they touch */
    int64_t async_own, async_other; /* live, in the device's own pool and in others */
    int64_t mapped;                 /* of PyTorch's expandable segments */
    uint32_t contexts;
    bool context_made; /* in this trace */
    bool context_known;
    int64_t context;
    cm_driver_moment reading;                 /* being read */
    cm_driver_moment last;                    /* the last complete one */
    cm_driver_moment first_quiet, last_quiet; /* used < 0: none yet */
    uint64_t moments;
    uint32_t first; /* allocation in its contexts, slot + 1 */
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
    bool reference; /* take a reference again; else revive it */
} cm_driver_undo;

/* A thread's last event, to which a later one may add. */
/* Memory that PyTorch mapped into an expandable segment, or unmapped. */
typedef struct cm_driver_mapping {
    uint64_t address;
    int64_t size;
    uint32_t stack;
    int8_t device; /* CUDA's index */
    bool gone;
} cm_driver_mapping;

typedef struct cm_driver_thread {
    bool known;
    uint32_t number;
    cm_event event;   /* kind 0: none */
    uint32_t subject; /* its allocation, slot + 1 */
    cm_driver_undo *undo;
    size_t undo_count, undo_capacity;
    uint64_t join;         /* number of the event that waits, + 1 */
    bool counted, unknown; /* among the frees; a free of nothing */
} cm_driver_thread;

typedef struct cm_driver_map {
    const char *error; /* why something failed */
    const cm_reader *reader;
    cm_totals totals;
    cm_driver_join join;
    cm_driver_allocation *allocation;
    size_t slots, capacity;
    uint32_t vacant; /* slot + 1 */
    cm_idmap space[CM_DRIVER_SPACES];
    cm_ranges enclosers; /* where blocks may lie: allocations and reservations */
    cm_ranges mapped;    /* mappings */
    cm_idmap shared;     /* page that allocations may share -> number of them */
    uint32_t last_enclosing;
    cm_driver_state device[CM_TOTALS_HOST]; /* by index + 128 */
    cm_driver_thread thread[CM_DRIVER_THREADS];
    struct cm_driver_pool { /* from records of pools */
        uint64_t address;
        int64_t size;
        int device;
        bool known, gone;
    } pool[CM_DRIVER_POOLS];
    cm_driver_mapping *mapping; /* of the newest record */
    size_t mappings, mapping_capacity;
    uint64_t allocations, frees, unknown_frees, failed_frees, replaced;
} cm_driver_map;

/* The kinds that need a map, a bit each. */
#define CM_DRIVER_MAP_EVENTS                                                                       \
    (UINT64_C(1) << CM_EV_DRIVER_NEW | UINT64_C(1) << CM_EV_DRIVER_FREE |                          \
     UINT64_C(1) << CM_EV_DRIVER_MORE | UINT64_C(1) << CM_EV_DRIVER_RECORD |                       \
     UINT64_C(1) << CM_EV_POOL | UINT64_C(1) << CM_EV_DEVICE |                                     \
     UINT64_C(1) << CM_EV_COMPACTED_DRIVER)

/* The first mapping of PyTorch's from an address on; false: there is none. */
bool cm_driver_map_next_mapping(const cm_driver_map *map, uint64_t from, cm_driver_mapping *found);
/* The reservation around an address, slot + 1; 0: unknown. */
uint32_t cm_driver_map_reservation(const cm_driver_map *map, uint64_t address);
const char *cm_driver_kind_name(uint8_t kind); /* "unknown" for undefined kinds */

/* reader: resolves names of libraries; may be NULL. NULL: out of memory. */
cm_driver_map *cm_driver_map_new(const cm_reader *reader);
cm_driver_map *cm_driver_map_copy(const cm_driver_map *map); /* NULL: out of memory */
void cm_driver_map_free(cm_driver_map *map);

/* All of these: false with map->error. */
bool cm_driver_map_apply(cm_driver_map *map, const cm_record *record);
bool cm_driver_map_add_segment(cm_driver_map *map, int8_t device, uint64_t address, int64_t size,
                               uint32_t stack);
bool cm_driver_map_remove_segment(cm_driver_map *map, uint64_t address);
/* A block was added, or memory under it became known. *enclosing is its allocation, 0: unknown; the
 * caller keeps it with the block and passes it back. index: CUDA's. */
bool cm_driver_map_add_block(cm_driver_map *map, int8_t index, const cm_block *block,
                             uint32_t *enclosing);
/* The next two: only of blocks with an enclosing allocation. */
bool cm_driver_map_remove_block(cm_driver_map *map, const cm_block *block, uint32_t enclosing);
/* The slack of a live block grew by `more`. */
void cm_driver_map_add_slack(cm_driver_map *map, uint32_t enclosing, int64_t more);

static inline uint16_t cm_driver_map_place(int8_t index)
{
    return (uint16_t)(index + 128);
}

#endif
