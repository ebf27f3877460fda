/* Compaction: leaves out events of a recording that reports hardly need.
 *
 * Events are taken in stretches. One ends at every record that a reader may make a step's bound
 * (ticks, windows, the first node, allocations that may lead to a tick), and at CM_COMPACT_STRETCH
 * events. These stay, unchanged and in order:
 *
 *   - allocations that lead to ticks, and those by which a reader learns which do
 *     (heap/step_clock_leads.h);
 *   - every block that was alive at its end, and every free of an older one;
 *   - every block that was alive at its peak, per device, with its free;
 *   - autograd nodes that were alive at its end, frees of older ones, the first of each stack;
 *   - the node runs that decide how these and later records are charged;
 *   - per device, blocks that were alive when reserved bytes were higher than before in their
 *     window, at the first failed request, and at the kept totals of the whole device;
 *   - all else, with exceptions. Allocators' totals stay where they changed. A device's totals
 *     (CM_EV_DEVICE) stay at the end of a stretch and where they are higher than before in their
 *     window. Of a pool the newest record before each of those stays. Launches and their work
 *     become sums (CM_EVF_SUMMED). A deferred free's event goes with its block;
 *   - driver allocations (device, managed, host, asynchronous) that were alive at the stretch's
 *     end, when most bytes of their device were given out, or when its blocks are kept; with their
 *     frees, details and CUPTI's records of both.
 *
 * So a replay has the original blocks and nodes at every bound. Between two bounds it has the same
 * peak, at the same time, of the same blocks; otherwise live bytes are at most what they were.
 * Every block is charged to the same stack. A stretch ends with sums of what was left out:
 * CM_EV_COMPACTED_DRIVER and CM_EV_COMPACTED_BLOCKS records and one CM_EV_COMPACTED. CUPTI's
 * records of it are known by the 65,536 newest correlation ids. Those that come after that, or that
 * a killed program leaves after the compacted part, stay; no reader compares them with their
 * events, and counts neither as alone.
 *
 * Memory: a stretch (15 MiB at most), a table of live blocks (32 bytes each, up to three quarters
 * full), the live nodes. One owner at a time, any thread; no Python, no locks, never in a hook. All
 * functions return false when memory is out or `put` returned false: the compaction is then
 * unusable. */
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

/* Takes a thread's events before compaction, which all stay. Not after the first cm_compact_add. */
bool cm_compact_see(cm_compaction *c, uint32_t thread, const cm_event *events, size_t count);
/* Takes the next event; puts the stretch that it ends. */
bool cm_compact_add(cm_compaction *c, uint32_t thread, const cm_event *event);
/* Ends the stretch here: everything so far is then put. */
bool cm_compact_flush(cm_compaction *c);

uint64_t cm_compact_bytes(const cm_compaction *c); /* of memory, now */

#endif
