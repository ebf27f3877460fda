/* Creates a ring file in the first place that permits it and has room. */
#ifndef CM_CAPTURE_RING_PLACE_H
#define CM_CAPTURE_RING_PLACE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "ring_layout.h"

typedef enum cm_ring_place {
    CM_RING_PLACE_NONE = 0, /* not decided yet: private memory until then */
    CM_RING_PLACE_CHOSEN,   /* ring_dir or $CUPTIMEM_RING_DIR */
    CM_RING_PLACE_SHARED,   /* shared memory */
    CM_RING_PLACE_BESIDE,   /* the trace's folder */
    CM_RING_PLACE_PRIVATE   /* no file: nothing survives a kill */
} cm_ring_place;

const char *cm_ring_place_name(cm_ring_place place);

/* Folders to try before the trace's own; "": none. */
typedef struct cm_ring_folders {
    char chosen[CM_RING_PATH_MAX], shared[CM_RING_PATH_MAX];
} cm_ring_folders;

/* Resolved now, because this process may change its folder before the file is made. ring_dir: NULL
 * for $CUPTIMEM_RING_DIR; shared_dir: NULL for /dev/shm. */
void cm_ring_folders_choose(cm_ring_folders *folders, const char *ring_dir, const char *shared_dir);

/* The folders where a killed process may have left a ring for this trace, ended by NULL. */
typedef struct cm_ring_sweep {
    const char *folder[3];
    char text[CM_RING_PATH_MAX];
} cm_ring_sweep;
void cm_ring_folders_to_sweep(cm_ring_sweep *sweep, const char *trace_path, const char *ring_dir,
                              const char *shared_dir);

/* How many bytes to lay rings out for, at most `bytes`. They can shrink until they have a file, not
 * grow. */
uint64_t cm_ring_folders_plan(const cm_ring_folders *folders, const char *trace_path,
                              uint64_t bytes);

/* A new file, locked, mapped and touched. No forked child has the mapping. */
typedef struct cm_ring_made {
    void *memory;
    uint64_t bytes;
    int fd;
    dev_t device;
    ino_t inode;
    bool whole_blocks; /* the file system counts all of it as taken: less is a hole */
    cm_ring_place place;
    char path[CM_RING_PATH_MAX];
} cm_ring_made;

/* Makes a file of `bytes` in the first folder with room: the chosen one, shared memory, the trace's
 * on a local disk. Where none has, a smaller one in memory, of `least` or more. In memory, at
 * either place, it takes what shared_memory.h permits. False: no folder has room. An unusable
 * chosen folder puts one line into note. */
bool cm_ring_make(const cm_ring_folders *folders, const char *trace_path, uint64_t bytes,
                  uint64_t least, cm_ring_made *made, char *note, size_t note_size);
void cm_ring_made_remove(cm_ring_made *made);

/* Keeps forked children from their parent's rings. 0 or a negative errno. */
int cm_ring_keep_from_children(void *memory, uint64_t bytes);

/* In whole pages. */
static inline uint64_t cm_ring_pages(uint64_t bytes)
{
    return (bytes + 4095) & ~UINT64_C(4095);
}

#endif
