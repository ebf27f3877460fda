/* How much of a file system in memory rings may take: containers have 64 MiB of shared memory, and
 * a data loader's batches fill it. */
#ifndef CM_CAPTURE_SHARED_MEMORY_H
#define CM_CAPTURE_SHARED_MEMORY_H

#include <stdint.h>

enum {
    CM_ROOM_SHARE = 16,     /* all rings together: this part of it; one: of what is free */
    CM_ROOM_LEAST = 4 << 20 /* a smaller ring loses events where a larger one elsewhere does not */
};

/* Bytes of a folder's file system. total 0: it has no bound. */
typedef struct cm_room {
    uint64_t total, free;
    uint64_t rings; /* taken by rings in the folder, those of other processes and users too */
} cm_room;

/* Bytes that a ring may have of those wanted, whole pages; 0: it must lie elsewhere. */
uint64_t cm_room_for(cm_room room, uint64_t wanted);
/* 0, or a negative errno. */
int cm_room_measure(const char *folder, cm_room *room);

/* Lets one process at a time take room in a folder, or two could both take the last. A descriptor
 * for cm_room_unlock, or a negative errno: another holder keeps it for too long. */
int cm_room_lock(const char *folder);
void cm_room_unlock(int lock);

#endif
