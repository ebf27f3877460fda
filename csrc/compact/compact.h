/* Compaction: leaves events out of a recording so that hardly anything is lost by it.
 *
 * Events are taken in stretches, which end at every record that a reader may make a step's bound of
 * (ticks, windows, the first node), and at CM_COMPACT_STRETCH events. Of a stretch stays, unchanged
 * and in its order:
 *
 *   - every block that was alive at its end, and every free of an older one;
 *   - every block that was alive at its peak, per device, with its free;
 *   - autograd nodes that were alive at its end, frees of older ones, the first of each stack;
 *   - the node runs that these records, and what follows, are charged by;
 *   - blocks that were alive, per device, when the allocator's reserved bytes were higher than
 *     before in their window, at its first request that failed, and at the kept totals of the
 *     device as a whole;
 *   - all that is neither block nor node; of the allocators' totals those that changed. Of a
 *     device's totals (CM_EV_DEVICE) only the last of a stretch and those that are higher than
 *     before in their window; of a pool that is seen again and again the newest before each of
 *     those; launches and their work as sums (CM_EVF_SUMMED), without what they name of blocks; a
 *     deferred free's event goes with its block;
 *   - of the driver's allocations (device, managed, host, asynchronous) those that were alive at
 *     the stretch's end, when most bytes of their device were given out, and whenever its blocks
 *     are kept; with their frees, all that is said of them and CUPTI's records of both.
 *
 * So a reader that replays what stayed has, at every bound, exactly the blocks and nodes that there
 * were; the same peak between two bounds, at the same time, of the same blocks; and every block is
 * charged to the same stack. In between live bytes are at most what they were. For what is
 * left out a stretch ends with its sums: CM_EV_COMPACTED_DRIVER and CM_EV_COMPACTED_BLOCKS records
 * and one CM_EV_COMPACTED. Records of what was left out are known by the 65,536 newest correlation
 * ids; those that a killed program leaves after the compacted part stay, and count as records
 * without an event.
 *
 * Memory: a stretch (15 MiB at most), a table of live blocks (32 bytes each, up to three quarters
 * full), the live nodes. One owner at a time, any thread; no Python, no locks, never in a hook.
 * All functions return false when memory is out or `put` returned false: the compaction is then of
 * no more use. */
#ifndef CM_COMPACT_COMPACT_H
#define CM_COMPACT_COMPACT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "../base/event.h"

enum { CM_COMPACT_STRETCH = 1 << 18 };

typedef struct cm_compaction cm_compaction;

/* Takes the records that stay, in order. */
typedef bool (*cm_compact_put)(void *context, uint32_t thread, const cm_event *event);

cm_compaction *cm_compact_new(cm_compact_put put, void *context); /* NULL: out of memory */
void cm_compact_free(cm_compaction *c);                           /* NULL is fine */

/* Events of a thread that the trace has whole: what came before compaction. Not after the first
 * cm_compact_add. */
bool cm_compact_see(cm_compaction *c, uint32_t thread, const cm_event *events, size_t count);
/* The next event; puts the stretch that it ends. */
bool cm_compact_add(cm_compaction *c, uint32_t thread, const cm_event *event);
/* Ends the stretch here: everything so far is then put. */
bool cm_compact_flush(cm_compaction *c);

uint64_t cm_compact_bytes(const cm_compaction *c); /* of memory, now */

#endif
