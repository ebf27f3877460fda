/* The ring file: where it lies, how it comes and goes, and who has which block. */
#include "ring.h"

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

#include "../trace/descriptor.h"
#include "bus_error.h"
#include "clock.h"
#include "collector.h"
#include "orphan.h"
#include "owner.h"

#ifndef XFS_SUPER_MAGIC
#define XFS_SUPER_MAGIC 0x58465342
#endif
#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23
#endif

enum { BLOCK_UNIT = 512 }; /* of st_blocks */

cm_space cm_the_space = {.fd = -1};

/* --- free lists -------------------------------------------------------------------------- */

uint32_t cm_freelist_take_hook(cm_freelist *list)
{
    uint64_t top = atomic_load_explicit(&list->top, memory_order_acquire);

    while ((uint32_t)top != 0) {
        uint32_t next = atomic_load_explicit(&list->next[(uint32_t)top - 1], memory_order_relaxed);
        uint64_t rest = ((top >> 32) + 1) << 32 | next;
        /* Acquire: what the giver did with the index happens before what the taker does. */
        if (atomic_compare_exchange_weak_explicit(&list->top, &top, rest, memory_order_acq_rel,
                                                  memory_order_acquire))
            return (uint32_t)top;
    }
    uint32_t fresh = atomic_load_explicit(&list->fresh, memory_order_relaxed);
    while (fresh < list->capacity)
        if (atomic_compare_exchange_weak_explicit(&list->fresh, &fresh, fresh + 1,
                                                  memory_order_relaxed, memory_order_relaxed))
            return fresh + 1;
    return 0;
}

void cm_freelist_give(cm_freelist *list, uint32_t index)
{
    uint64_t top = atomic_load_explicit(&list->top, memory_order_relaxed);
    uint64_t with;

    do {
        atomic_store_explicit(&list->next[index], (uint32_t)top, memory_order_relaxed);
        with = ((top >> 32) + 1) << 32 | (index + 1);
    } while (!atomic_compare_exchange_weak_explicit(&list->top, &top, with, memory_order_acq_rel,
                                                    memory_order_relaxed));
}

/* --- blocks ------------------------------------------------------------------------------ */

uint32_t cm_space_take_block_hook(uint32_t ring, uint64_t base, uint32_t serial)
{
    cm_space *space = &cm_the_space;
    uint32_t index = cm_freelist_take_hook(&space->free);

    if (index == 0) {
        cm_collector_wake_hook();
        return 0;
    }
    cm_block *block = cm_space_block(index);
    block->serial = serial;
    block->base = space->base[index - 1] = base;
    atomic_store_explicit(&space->link[index - 1], 0, memory_order_relaxed);
    /* Release: whoever finds this owner, even in the file of a killed process, finds its base. */
    atomic_store_explicit(&block->owner, ring + 1, memory_order_release);
    if (atomic_fetch_add_explicit(&space->used, 1, memory_order_relaxed) + 1 >=
        atomic_load_explicit(&space->wake_at, memory_order_relaxed))
        cm_collector_wake_hook();
    return index;
}

void cm_space_give_block(uint32_t index)
{
    atomic_store_explicit(&cm_space_block(index)->owner, 0, memory_order_release);
    atomic_fetch_sub_explicit(&cm_the_space.used, 1, memory_order_relaxed);
    cm_freelist_give(&cm_the_space.free, index - 1);
}

/* --- the file ---------------------------------------------------------------------------- */

const char *cm_place_name(cm_place place)
{
    static const char *const names[] = {"none", "chosen", "shared", "beside", "private"};
    return names[place];
}

bool cm_ring_lock(int fd)
{
    struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
    return fcntl(fd, F_SETLK, &lock) == 0;
}

/* File systems where a mapped page that was once written can be written again without asking
 * anybody for room: not the network ones, nor those that copy on write. */
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

    /* Past this limit the kernel does not only refuse, it sends SIGXFSZ. */
    if (getrlimit(RLIMIT_FSIZE, &limit) == 0 && limit.rlim_cur < bytes)
        return -EFBIG;
    do
        status = posix_fallocate(fd, 0, (off_t)bytes);
    while (status == EINTR);
    return -status;
}

/* A locked file of this size under a new name in folder, mapped and touched. */
static int make_file(const char *folder, uint64_t bytes, cm_space *space)
{
    uint64_t random;
    int fd = -1, status;
    struct stat st;
    void *memory = MAP_FAILED;

    for (int tries = 0; fd < 0; tries++) {
        if (getrandom(&random, sizeof random, 0) != sizeof random)
            return -errno;
        int n = snprintf(space->path, sizeof space->path, "%s/" CM_RING_PREFIX "%016llx", folder,
                         (unsigned long long)random);
        if (n < 0 || (size_t)n >= sizeof space->path)
            return -ENAMETOOLONG;
        fd = cm_descriptor_lift(
            open(space->path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600));
        if (fd < 0 && (errno != EEXIST || tries == 8))
            return -errno;
    }
    /* A sweeper may be looking at this moment whether the new file is an orphan; it lets go of one
     * so young at once. */
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
    status = populate(memory, bytes);
    if (status == 0 && fstat(fd, &st) < 0)
        status = -errno;
    if (status < 0)
        goto failed;
    space->whole_blocks = (uint64_t)st.st_blocks * BLOCK_UNIT >= bytes && is_plain_local(folder);
    space->header = memory;
    space->fd = fd;
    space->device = st.st_dev;
    space->inode = st.st_ino;
    return 0;
failed:
    if (memory != MAP_FAILED)
        munmap(memory, bytes);
    unlink(space->path);
    close(fd);
    space->path[0] = '\0';
    return status;
}

static int refuse(int status, const char *what, char *note, size_t note_size)
{
    snprintf(note, note_size, "%s: %s", what, strerror(-status));
    return status;
}

static int make_private(uint64_t bytes, cm_space *space, char *note, size_t note_size)
{
    void *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED)
        return refuse(-errno, "no memory for the rings (a smaller ring_bytes may do)", note,
                      note_size);
    space->header = memory;
    space->fd = -1;
    space->path[0] = '\0';
    space->place = CM_PLACE_PRIVATE;
    return 0;
}

static int make_at(const char *folder, cm_place place, uint64_t bytes, cm_space *space)
{
    char absolute[CM_RING_PATH_MAX];

    /* The trace names its ring for readers that stand in other folders. */
    if (realpath(folder, absolute) == NULL)
        return -errno;
    int status = make_file(absolute, bytes, space);
    if (status == 0)
        space->place = place;
    return status;
}

static const char *chosen_folder(const char *ring_dir)
{
    const char *chosen = ring_dir != NULL ? ring_dir : getenv("CUPTIMEM_RING_DIR");
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

void cm_space_sweep(const char *trace_path, const char *ring_dir)
{
    const char *chosen = chosen_folder(ring_dir);
    char folder[CM_RING_PATH_MAX];

    if (chosen != NULL) {
        cm_orphan_sweep(chosen);
        return;
    }
    cm_orphan_sweep("/dev/shm");
    if (folder_of(trace_path, folder, sizeof folder))
        cm_orphan_sweep(folder);
}

static int make_somewhere(const char *trace_path, const char *ring_dir, uint64_t bytes,
                          cm_space *space, char *note, size_t note_size)
{
    const char *chosen = chosen_folder(ring_dir);
    char folder[CM_RING_PATH_MAX];

    note[0] = '\0';
    if (chosen != NULL) {
        int status = make_at(chosen, CM_PLACE_CHOSEN, bytes, space);
        if (status == 0)
            return 0;
        snprintf(note, note_size, "no ring file can be made in %s (%s): another place was taken",
                 chosen, strerror(-status));
    }
    if (make_at("/dev/shm", CM_PLACE_SHARED, bytes, space) == 0)
        return 0;
    if (folder_of(trace_path, folder, sizeof folder) &&
        make_at(folder, CM_PLACE_BESIDE, bytes, space) == 0)
        return 0;
    return make_private(bytes, space, note, note_size);
}

static uint64_t pages(uint64_t bytes)
{
    return (bytes + 4095) & ~UINT64_C(4095);
}

static int lay_out(cm_space *space, uint64_t bytes, const char *trace_path, char *note,
                   size_t note_size)
{
    cm_ring_header *header = space->header;
    cm_clock_anchor now = cm_clock_sample();

    header->version = CM_RING_VERSION;
    header->ring_count = CM_RING_COUNT;
    header->block_bytes = CM_BLOCK_BYTES;
    header->total_bytes = bytes;
    header->table_offset = pages(sizeof *header);
    header->log_offset = header->table_offset + pages(CM_RING_COUNT * sizeof(cm_ring));
    header->log_bytes = pages(bytes / 8);
    header->blocks_offset = header->log_offset + header->log_bytes;
    header->block_count = (uint32_t)((bytes - header->blocks_offset) / CM_BLOCK_BYTES);
    if (getrandom(&header->id, sizeof header->id, 0) != sizeof header->id)
        return refuse(-errno, "the rings get no number, getrandom is refused", note, note_size);
    header->id |= 1; /* never 0, which means no ring */
    cm_owner_sign(header);
    atomic_store(&header->alive_ns, now.realtime_ns);
    for (int i = 0; i < 2; i++) {
        atomic_store(&header->totals[i].events, i == 0 ? 0 : UINT64_MAX);
        header->totals[i].ticks = now.ticks;
        header->totals[i].monotonic_ns = now.monotonic_ns;
        header->totals[i].realtime_ns = now.realtime_ns;
    }
    snprintf(header->trace_path, sizeof header->trace_path, "%s", trace_path);

    unsigned char *start = (unsigned char *)header;
    space->rings = (cm_ring *)(start + header->table_offset);
    space->log = start + header->log_offset;
    space->blocks = (cm_block *)(start + header->blocks_offset);
    space->log_bytes = header->log_bytes;
    space->bytes = bytes;
    space->block_count = header->block_count;
    atomic_store(&space->wake_at, header->block_count / 2);
    atomic_store(&space->used, 0);

    size_t own = CM_RING_COUNT * sizeof(cm_ring_own);
    size_t one_block = sizeof *space->base + sizeof *space->link + sizeof *space->free.next;
    space->tables_bytes = pages(own + one_block * space->block_count);
    space->tables =
        mmap(NULL, space->tables_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (space->tables == MAP_FAILED) {
        space->tables = NULL;
        return refuse(-errno, "no memory for the rings' tables", note, note_size);
    }
    atomic_store(&space->log_head, 0);
    atomic_store(&space->log_tail, 0);
    atomic_store(&space->unowned_lost, 0);
    space->own = space->tables;
    space->base = (uint64_t *)((unsigned char *)space->tables + own);
    space->link = (_Atomic uint32_t *)(space->base + space->block_count);
    space->free.next = space->link + space->block_count;
    space->free.capacity = space->block_count;
    atomic_store(&space->free.top, 0);
    atomic_store(&space->free.fresh, 0);
    return 0;
}

const char *cm_space_find_harm(void)
{
    const cm_space *space = &cm_the_space;
    struct stat st;

    /* Without descriptor (until the next second) nothing is known of the file. */
    if (space->path[0] == '\0' || fstat(space->fd, &st) < 0 || st.st_dev != space->device ||
        st.st_ino != space->inode)
        return NULL;
    if ((uint64_t)st.st_size < space->bytes)
        return "was truncated";
    if (space->whole_blocks && (uint64_t)st.st_blocks * BLOCK_UNIT < space->bytes)
        return "has lost a part (a hole)";
    return NULL;
}

static bool is_harmed(void)
{
    return cm_space_find_harm() != NULL;
}

int cm_space_create(const char *trace_path, const char *ring_dir, uint64_t bytes, char *note,
                    size_t note_size)
{
    cm_space *space = &cm_the_space;

    if (bytes == 0)
        bytes = CM_RING_BYTES_DEFAULT;
    if (bytes < CM_RING_BYTES_MIN || bytes > CM_RING_BYTES_MAX) {
        snprintf(note, note_size, "ring_bytes must be from %d to %d", CM_RING_BYTES_MIN,
                 CM_RING_BYTES_MAX);
        return -EINVAL;
    }
    bytes = pages(bytes);
    int status = make_somewhere(trace_path, ring_dir, bytes, space, note, note_size);
    if (status < 0)
        return status;
    /* A forked child must have no way to the ring of its parent. */
    if (madvise(space->header, bytes, MADV_DONTFORK) < 0)
        status = refuse(
            -errno,
            "the rings cannot be kept from forked processes, madvise(MADV_DONTFORK) is refused",
            note, note_size);
    space->bytes = bytes;
    if (status == 0)
        cm_bus_guard(space->fd >= 0 ? space->header : NULL, bytes, is_harmed);
    if (status == 0)
        status = lay_out(space, bytes, trace_path, note, note_size);
    if (status < 0) {
        cm_space_destroy(true, true);
        return status;
    }
    atomic_store_explicit(&space->header->magic, CM_RING_MAGIC, memory_order_release);
    return 0;
}

static bool fd_is_ours(const cm_space *space)
{
    return cm_descriptor_is(space->fd, space->device, space->inode);
}

/* First forget, then unmap: a child forked in between must not unmap what is somebody else's by
 * then. */
static void let_go(cm_space *space, bool unmap_ring, bool unmap_tables)
{
    void *ring = space->header, *tables = space->tables;

    space->header = NULL;
    space->tables = NULL;
    space->place = CM_PLACE_NONE;
    space->path[0] = '\0';
    cm_bus_unguard(); /* before its addresses are somebody else's */
    if (unmap_ring && ring != NULL)
        munmap(ring, space->bytes);
    if (unmap_tables && tables != NULL)
        munmap(tables, space->tables_bytes);
    if (fd_is_ours(space))
        close(space->fd);
    space->fd = -1;
}

void cm_space_destroy(bool unlink_file, bool unmap)
{
    cm_space *space = &cm_the_space;

    if (unlink_file && space->path[0] != '\0')
        unlink(space->path);
    else if (space->header != NULL)
        atomic_store(&space->header->alive_ns, 0); /* kept for the next sweep, which may be ours */
    let_go(space, unmap, unmap);
}

void cm_space_forget(void)
{
    /* The ring itself was marked not to be inherited. */
    cm_bus_forget();
    let_go(&cm_the_space, false, true);
}

void cm_space_keep_lock(void)
{
    cm_space *space = &cm_the_space;

    if (space->path[0] == '\0')
        return;
    if (fd_is_ours(space)) {
        /* Whoever in this process closes another descriptor of the file drops the lock. */
        cm_ring_lock(space->fd);
        return;
    }
    space->fd = cm_descriptor_reopen(space->path, O_RDWR | O_NOFOLLOW, space->device, space->inode);
    /* Else somebody removed the file: there is nothing left to protect. */
    if (space->fd >= 0)
        cm_ring_lock(space->fd);
}

bool cm_space_is_ours(dev_t device, ino_t inode)
{
    const cm_space *space = &cm_the_space;
    return space->header != NULL && space->path[0] != '\0' && space->device == device &&
           space->inode == inode;
}
