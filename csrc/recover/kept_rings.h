/* Keeps rings of killed programs without their traces, for a while, outside of shared memory.
 *
 * They lie in $XDG_STATE_HOME/cuptimem/rings (~/.local/state/cuptimem/rings), named by their ids: a
 * reader of a trace that was moved finds its ring there. A kept ring has the format of every ring
 * file, and holes where it holds nothing.
 *
 * There is such a folder only below one that exists and is this user's: a variable that is empty,
 * relative or names anything else gives none, and HOME counts only without an absolute
 * XDG_STATE_HOME. The user database is not asked, because its modules would be loaded into the
 * program. */
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

/* Keeps a whole ring, last written at that time (seconds). True: it is on disk, under its name.
 * False: the caller's copy is still the only one. */
bool cm_kept_add(const cm_ring_header *ring, int64_t last);

/* Removes rings that are too old, and the oldest beyond the bounds. */
void cm_kept_trim(void);

/* Counts a ring that is removed within 7 days, because CM_KEPT_MOST newer ones are kept. */
void cm_kept_count_dropped(void);

/* A line for the user if any were dropped since the last call. */
bool cm_kept_take_note(char *note, size_t size);

#endif
