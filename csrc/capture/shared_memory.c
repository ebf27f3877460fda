#include "shared_memory.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <time.h>
#include <unistd.h>

#include "ring_layout.h"

enum { BLOCK_UNIT = 512, TRIES = 500, PAUSE_MS = 2 };

uint64_t cm_room_for(cm_room room, uint64_t wanted)
{
    uint64_t least = wanted < CM_ROOM_LEAST ? wanted : CM_ROOM_LEAST;
    uint64_t all = room.total / CM_ROOM_SHARE, one = room.free / CM_ROOM_SHARE;

    if (room.total == 0)
        return wanted;
    uint64_t rest = room.rings < all ? all - room.rings : 0;
    if (wanted > rest)
        wanted = rest;
    if (wanted > one)
        wanted = one;
    wanted &= ~UINT64_C(4095);
    return wanted < least ? 0 : wanted;
}

static uint64_t taken_by_rings(DIR *folder)
{
    uint64_t bytes = 0;
    struct stat st;

    for (struct dirent *entry; (entry = readdir(folder)) != NULL;) {
        if (strncmp(entry->d_name, CM_RING_PREFIX, sizeof CM_RING_PREFIX - 1) != 0 ||
            fstatat(dirfd(folder), entry->d_name, &st, AT_SYMLINK_NOFOLLOW) < 0 ||
            !S_ISREG(st.st_mode))
            continue;
        /* A ring being allocated has its size first, or its blocks. */
        uint64_t blocks = (uint64_t)st.st_blocks * BLOCK_UNIT, size = (uint64_t)st.st_size;
        /* Any user may give a file any size. */
        bytes += st.st_uid == geteuid() && size > blocks ? size : blocks;
    }
    return bytes;
}

int cm_room_measure(const char *folder, cm_room *room)
{
    struct statvfs fs;
    DIR *entries = opendir(folder);

    if (entries == NULL)
        return -errno;
    int status = statvfs(folder, &fs) < 0 ? -errno : 0;
    if (status == 0) {
        room->total = (uint64_t)fs.f_blocks * fs.f_frsize;
        room->free = (uint64_t)fs.f_bavail * fs.f_frsize;
        room->rings = taken_by_rings(entries);
    }
    closedir(entries);
    return status;
}

int cm_room_lock(const char *folder)
{
    const struct timespec pause = {.tv_nsec = PAUSE_MS * 1000000};
    int status = -EAGAIN;

    /* The folder itself, because a lock file would stay behind. */
    int fd = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0)
        return -errno;
    for (int tries = 0; tries < TRIES; tries++) {
        if (flock(fd, LOCK_EX | LOCK_NB) == 0)
            return fd;
        status = -errno;
        if (status != -EWOULDBLOCK && status != -EINTR)
            break;
        nanosleep(&pause, NULL);
    }
    close(fd);
    return status;
}

void cm_room_unlock(int lock)
{
    flock(lock, LOCK_UN); /* a child forked meanwhile has the descriptor too */
    close(lock);
}
