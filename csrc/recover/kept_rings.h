/* Keeps rings of killed programs without their traces, for a while, outside of shared memory.
 *
 * They lie in $XDG_STATE_HOME/cuptimem/rings (~/.local/state/cuptimem/rings), named by their ids: a
 * reader of a trace that was moved finds its ring there. A kept ring has the format of every ring
 * file, and holes where it holds nothing. */
#ifndef CM_RECOVER_KEPT_RINGS_H
#define CM_RECOVER_KEPT_RINGS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "../capture/ring_layout.h"

enum {
    CM_KEPT_MOST = 16,
    CM_KEPT_BYTES = 256 << 20, /* of disk, all together */
    CM_KEPT_SECONDS = 7 * 24 * 3600
};

/* Where they lie; false: this user owns no such folder. */
bool cm_kept_folder(char *folder, size_t size);

/* Where the ring with this id would lie. */
bool cm_kept_path(uint64_t id, char *path, size_t size);

/* Keeps a whole ring, last written at that time (seconds). False: it cannot. */
bool cm_kept_add(const cm_ring_header *ring, int64_t last);

/* Removes rings that are too old, and the oldest beyond the bounds. */
void cm_kept_trim(void);

/* Counts a ring that is removed although its trace lacks what it holds. */
void cm_kept_count_dropped(void);

/* A line for the user if any were dropped since the last call. */
bool cm_kept_take_note(char *note, size_t size);

#endif
