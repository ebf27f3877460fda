/* How much of a shared-memory file system rings may take: it is small in containers, and the
 * program's own. */
#ifndef CM_CAPTURE_SHARED_MEMORY_H
#define CM_CAPTURE_SHARED_MEMORY_H

#include <stdint.h>

enum {
    CM_ROOM_SHARE = 4,      /* all rings together: a quarter of the file system, ... */
    CM_ROOM_FREE_SHARE = 8, /* ... one: an eighth of what is free */
    CM_ROOM_LEAST = 4 << 20 /* a smaller ring loses events where a larger one elsewhere does not */
};

/* Bytes of a folder's file system. total 0: it has no bound. */
typedef struct cm_room {
    uint64_t total, free;
    uint64_t rings; /* taken by rings in the folder, those of other processes and users too */
} cm_room;

/* What a ring that wants so many bytes may have, whole pages; 0: it must lie elsewhere. */
uint64_t cm_room_for(cm_room room, uint64_t wanted);
/* 0, or a negative errno. */
int cm_room_measure(const char *folder, cm_room *room);

/* One process at a time takes room in a folder: else two that start at once both take the last.
 * A descriptor for cm_room_unlock, or a negative errno: another holder keeps it for too long. */
int cm_room_lock(const char *folder);
void cm_room_unlock(int lock);

#endif
