#define _GNU_SOURCE
#include "ring_place.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "../base/descriptor.h"
#include "../base/environment.h"
#include "ring_owner.h"
#include "shared_memory.h"

#ifndef XFS_SUPER_MAGIC
#define XFS_SUPER_MAGIC 0x58465342
#endif
#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23
#endif

#define SHARED_FOLDER "/dev/shm"

enum { BLOCK_UNIT = 512 /* of st_blocks */ };

const char *cm_ring_place_name(cm_ring_place place)
{
    static const char *const names[] = {"none", "chosen", "shared", "beside", "private"};
    return names[place];
}

/* --- folders ----------------------------------------------------------------------------- */

/* Whether a mapped page that was written once can always be written again. Network and
 * copy-on-write file systems may then have no room. */
static bool is_plain_local(const char *folder)
{
    struct statfs fs;

    if (statfs(folder, &fs) < 0)
        return false;
    switch ((unsigned long)fs.f_type) {
    case EXT4_SUPER_MAGIC: /* and ext2, ext3 */
    case XFS_SUPER_MAGIC:
    case TMPFS_MAGIC:
    case OVERLAYFS_SUPER_MAGIC:
        return true;
    default:
        return false;
    }
}

/* NULL: none was chosen. */
static const char *chosen_folder(const char *ring_dir)
{
    const char *chosen = ring_dir != NULL ? ring_dir : cm_environment_get("CUPTIMEM_RING_DIR");
    return chosen != NULL && chosen[0] != '\0' ? chosen : NULL;
}

/* The trace's folder, if a ring may lie in it. */
static bool folder_of(const char *trace_path, char *folder, size_t size)
{
    int n = snprintf(folder, size, "%s", trace_path);
    char *slash = strrchr(folder, '/');

    if (n < 0 || (size_t)n >= size || slash == NULL)
        return false;
    slash[slash == folder] = '\0';
    return is_plain_local(folder);
}

void cm_ring_folders_choose(cm_ring_folders *folders, const char *ring_dir, const char *shared_dir)
{
    const char *chosen = chosen_folder(ring_dir);

    snprintf(folders->shared, sizeof folders->shared, "%s",
             shared_dir != NULL ? shared_dir : SHARED_FOLDER);
    folders->chosen[0] = '\0';
    if (chosen != NULL && realpath(chosen, folders->chosen) == NULL)
        snprintf(folders->chosen, sizeof folders->chosen, "%s", chosen);
}

void cm_ring_folders_to_sweep(cm_ring_sweep *sweep, const char *trace_path, const char *ring_dir,
                              const char *shared_dir)
{
    const char *chosen = chosen_folder(ring_dir);

    sweep->folder[0] = chosen != NULL ? chosen : shared_dir != NULL ? shared_dir : SHARED_FOLDER;
    sweep->folder[1] = sweep->folder[2] = NULL;
    if (chosen == NULL && folder_of(trace_path, sweep->text, sizeof sweep->text))
        sweep->folder[1] = sweep->text;
}

/* Its files take what the program may need for its own. */
static bool is_memory(const char *folder)
{
    struct statfs fs;
    return statfs(folder, &fs) == 0 && (unsigned long)fs.f_type == TMPFS_MAGIC;
}

static uint64_t room_in(const char *folder, uint64_t bytes)
{
    cm_room room;
    return cm_room_measure(folder, &room) < 0 ? 0 : cm_room_for(room, bytes);
}

uint64_t cm_ring_folders_plan(const cm_ring_folders *folders, const char *trace_path,
                              uint64_t bytes)
{
    char beside[CM_RING_PATH_MAX];

    if (folders->chosen[0] != '\0' || (folder_of(trace_path, beside, sizeof beside) &&
                                       (!is_memory(beside) || room_in(beside, bytes) == bytes)))
        return bytes;
    uint64_t allowed = room_in(folders->shared, bytes);
    return allowed != 0 ? allowed : bytes; /* in private memory */
}

/* --- a file ------------------------------------------------------------------------------ */

int cm_ring_keep_from_children(void *memory, uint64_t bytes)
{
    return madvise(memory, bytes, MADV_DONTFORK) < 0 ? -errno : 0;
}

static int populate(void *memory, uint64_t bytes)
{
    if (madvise(memory, bytes, MADV_POPULATE_WRITE) == 0)
        return 0;
    if (errno != EINVAL) /* EINVAL: a kernel before 5.14 */
        return -errno;
    for (uint64_t at = 0; at < bytes; at += 4096)
        ((volatile unsigned char *)memory)[at] = 0;
    return 0;
}

static int reserve_room(int fd, uint64_t bytes)
{
    struct rlimit limit;
    int status;

    /* Past this limit the kernel also sends SIGXFSZ. */
    if (getrlimit(RLIMIT_FSIZE, &limit) == 0 && limit.rlim_cur < bytes)
        return -EFBIG;
    do
        status = posix_fallocate(fd, 0, (off_t)bytes);
    while (status == EINTR);
    return -status;
}

static int make_file(const char *folder, uint64_t bytes, cm_ring_made *made)
{
    uint64_t random;
    int fd = -1, status;
    struct stat st;
    void *memory = MAP_FAILED;

    for (int tries = 0; fd < 0; tries++) {
        if (getrandom(&random, sizeof random, 0) != sizeof random)
            return -errno;
        int n = snprintf(made->path, sizeof made->path, "%s/" CM_RING_PREFIX "%016llx", folder,
                         (unsigned long long)random);
        if (n < 0 || (size_t)n >= sizeof made->path)
            return -ENAMETOOLONG;
        fd = cm_descriptor_lift(
            open(made->path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600), made->path);
        if (fd < 0 && (errno != EEXIST || tries == 8))
            return -errno;
    }
    /* A sweep that checks the new file unlocks one so young at once. */
    for (int tries = 0; !cm_ring_lock(fd); tries++) {
        status = -errno;
        if ((status != -EAGAIN && status != -EACCES) || tries == 50)
            goto failed;
        usleep(1000);
    }
    status = fstat(fd, &st) < 0 ? -errno : reserve_room(fd, bytes);
    if (status < 0)
        goto failed;
    memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (memory == MAP_FAILED) {
        status = -errno;
        goto failed;
    }
    status = cm_ring_keep_from_children(memory, bytes);
    if (status == 0)
        status = populate(memory, bytes);
    if (status == 0 && fstat(fd, &st) < 0)
        status = -errno;
    if (status < 0)
        goto failed;
    made->whole_blocks = (uint64_t)st.st_blocks * BLOCK_UNIT >= bytes && is_plain_local(folder);
    made->memory = memory;
    made->bytes = bytes;
    made->fd = fd;
    made->device = st.st_dev;
    made->inode = st.st_ino;
    return 0;
failed:
    if (memory != MAP_FAILED)
        munmap(memory, bytes);
    unlink(made->path);
    close(fd);
    made->path[0] = '\0';
    return status;
}

static int make_at(const char *folder, cm_ring_place place, uint64_t bytes, cm_ring_made *made)
{
    char absolute[CM_RING_PATH_MAX];

    /* The trace names its ring for readers in other folders. */
    if (realpath(folder, absolute) == NULL)
        return -errno;
    int status = make_file(absolute, bytes, made);
    if (status == 0)
        made->place = place;
    return status;
}

/* In memory, as large as the rules permit, but at least so many bytes. */
static int make_in_memory(const char *folder, cm_ring_place place, uint64_t bytes, uint64_t least,
                          cm_ring_made *made)
{
    cm_room room;

    /* Without the lock first: without room there is no need to wait. */
    int status = cm_room_measure(folder, &room);
    if (status == 0 && cm_room_for(room, bytes) < least)
        status = -ENOSPC;
    int lock = status < 0 ? status : cm_room_lock(folder);
    if (lock < 0)
        return lock;
    status = cm_room_measure(folder, &room);
    uint64_t allowed = status < 0 ? 0 : cm_room_for(room, bytes);
    if (status == 0)
        status = allowed < least ? -ENOSPC : make_at(folder, place, allowed, made);
    cm_room_unlock(lock);
    return status;
}

bool cm_ring_make(const cm_ring_folders *folders, const char *trace_path, uint64_t bytes,
                  uint64_t least, cm_ring_made *made, char *note, size_t note_size)
{
    char folder[CM_RING_PATH_MAX];

    note[0] = '\0';
    if (folders->chosen[0] != '\0') {
        int status = make_at(folders->chosen, CM_RING_PLACE_CHOSEN, bytes, made);
        if (status == 0)
            return true;
        snprintf(note, note_size, "no ring file can be made in %s (%s): another place was taken",
                 folders->chosen, strerror(-status));
    }
    bool beside = folder_of(trace_path, folder, sizeof folder);
    bool in_memory = beside && is_memory(folder);
    if (make_in_memory(folders->shared, CM_RING_PLACE_SHARED, bytes, bytes, made) == 0 ||
        (beside && !in_memory && make_at(folder, CM_RING_PLACE_BESIDE, bytes, made) == 0) ||
        (in_memory && make_in_memory(folder, CM_RING_PLACE_BESIDE, bytes, bytes, made) == 0))
        return true;
    /* A smaller ring than was asked for is the last resort. */
    return make_in_memory(folders->shared, CM_RING_PLACE_SHARED, bytes, least, made) == 0 ||
           (in_memory && make_in_memory(folder, CM_RING_PLACE_BESIDE, bytes, least, made) == 0);
}

void cm_ring_made_remove(cm_ring_made *made)
{
    munmap(made->memory, made->bytes);
    unlink(made->path);
    if (cm_descriptor_is(made->fd, made->device, made->inode))
        close(made->fd);
}
