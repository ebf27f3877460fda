/* The ring file: where it lies, how it comes and goes, and who has which block. */
#define _GNU_SOURCE /* mremap */
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

#include "../frames/walk.h"
#include "../base/descriptor.h"
#include "bus_error.h"
#include "../base/clock.h"
#include "collector.h"
#include "../recover/orphan.h"
#include "ring_owner.h"
#include "shared_memory.h"
#include "thread.h"

#ifndef XFS_SUPER_MAGIC
#define XFS_SUPER_MAGIC 0x58465342
#endif
#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23
#endif

enum {
    BLOCK_UNIT = 512,  /* of st_blocks */
    SPARE_BLOCKS = 64, /* at least, beside those that are in use when the file is made */
    HOLD_MS = 1000
};

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

/* A forked child must have no way to the ring of its parent. */
static int keep_from_children(void *memory, uint64_t bytes)
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

    /* Past this limit the kernel does not only refuse, it sends SIGXFSZ. */
    if (getrlimit(RLIMIT_FSIZE, &limit) == 0 && limit.rlim_cur < bytes)
        return -EFBIG;
    do
        status = posix_fallocate(fd, 0, (off_t)bytes);
    while (status == EINTR);
    return -status;
}

typedef struct ring_file {
    void *memory;
    uint64_t bytes;
    int fd;
    dev_t device;
    ino_t inode;
    bool whole_blocks;
    cm_place place;
    char path[CM_RING_PATH_MAX];
} ring_file;

/* A locked file of this size under a new name in folder, mapped and touched. No forked child has
 * the mapping. */
static int make_file(const char *folder, uint64_t bytes, ring_file *file)
{
    uint64_t random;
    int fd = -1, status;
    struct stat st;
    void *memory = MAP_FAILED;

    for (int tries = 0; fd < 0; tries++) {
        if (getrandom(&random, sizeof random, 0) != sizeof random)
            return -errno;
        int n = snprintf(file->path, sizeof file->path, "%s/" CM_RING_PREFIX "%016llx", folder,
                         (unsigned long long)random);
        if (n < 0 || (size_t)n >= sizeof file->path)
            return -ENAMETOOLONG;
        fd = cm_descriptor_lift(
            open(file->path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600), file->path);
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
    status = keep_from_children(memory, bytes);
    if (status == 0)
        status = populate(memory, bytes);
    if (status == 0 && fstat(fd, &st) < 0)
        status = -errno;
    if (status < 0)
        goto failed;
    file->whole_blocks = (uint64_t)st.st_blocks * BLOCK_UNIT >= bytes && is_plain_local(folder);
    file->memory = memory;
    file->bytes = bytes;
    file->fd = fd;
    file->device = st.st_dev;
    file->inode = st.st_ino;
    return 0;
failed:
    if (memory != MAP_FAILED)
        munmap(memory, bytes);
    unlink(file->path);
    close(fd);
    file->path[0] = '\0';
    return status;
}

static int refuse(int status, const char *what, char *note, size_t note_size)
{
    snprintf(note, note_size, "%s: %s", what, strerror(-status));
    return status;
}

static int make_private(cm_space *space, uint64_t bytes, char *note, size_t note_size)
{
    void *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED)
        return refuse(-errno, "no memory for the rings (a smaller ring_bytes may do)", note,
                      note_size);
    int status = keep_from_children(memory, bytes);
    if (status < 0) {
        munmap(memory, bytes);
        return refuse(
            status,
            "the rings cannot be kept from forked processes, madvise(MADV_DONTFORK) is refused",
            note, note_size);
    }
    space->header = memory;
    space->bytes = space->file_bytes = bytes;
    return 0;
}

static int make_at(const char *folder, cm_place place, uint64_t bytes, ring_file *file)
{
    char absolute[CM_RING_PATH_MAX];

    /* The trace names its ring for readers that stand in other folders. */
    if (realpath(folder, absolute) == NULL)
        return -errno;
    int status = make_file(absolute, bytes, file);
    if (status == 0)
        file->place = place;
    return status;
}

/* As large as the rules for shared memory let it be, but at least so many bytes. */
static int make_shared(const char *folder, uint64_t bytes, uint64_t least, ring_file *file)
{
    cm_room room;

    /* A first look spares those who will not get any the wait for the lock. */
    int status = cm_room_look(folder, &room);
    if (status == 0 && cm_room_for(room, bytes) < least)
        status = -ENOSPC;
    int lock = status < 0 ? status : cm_room_lock(folder);
    if (lock < 0)
        return lock;
    status = cm_room_look(folder, &room);
    uint64_t allowed = status < 0 ? 0 : cm_room_for(room, bytes);
    if (status == 0)
        status = allowed < least ? -ENOSPC : make_at(folder, CM_PLACE_SHARED, allowed, file);
    cm_room_unlock(lock);
    return status;
}

static void drop_file(ring_file *file)
{
    munmap(file->memory, file->bytes);
    unlink(file->path);
    if (cm_descriptor_is(file->fd, file->device, file->inode))
        close(file->fd);
}

/* NULL: none was chosen. */
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

void cm_space_sweep(const char *trace_path, const char *ring_dir, const char *shared_dir)
{
    const char *chosen = chosen_folder(ring_dir);
    char folder[CM_RING_PATH_MAX];

    if (chosen != NULL) {
        cm_orphan_sweep(chosen);
        return;
    }
    cm_orphan_sweep(shared_dir != NULL ? shared_dir : CM_SHARED_FOLDER);
    if (folder_of(trace_path, folder, sizeof folder))
        cm_orphan_sweep(folder);
}

static uint64_t pages(uint64_t bytes)
{
    return (bytes + 4095) & ~UINT64_C(4095);
}

static uint64_t bytes_up_to_block(const cm_space *space, uint32_t block)
{
    return space->header->blocks_offset + (uint64_t)block * CM_BLOCK_BYTES;
}

/* A file in the first place that has room for one; else none is made (file->fd < 0). */
static void make_somewhere(const cm_space *space, ring_file *file, char *note, size_t note_size)
{
    uint32_t used = atomic_load(&space->free.fresh);
    uint64_t least = pages(bytes_up_to_block(space, used + SPARE_BLOCKS));
    char folder[CM_RING_PATH_MAX];

    if (least > space->bytes)
        least = space->bytes;
    note[0] = '\0';
    file->fd = -1;
    if (space->chosen[0] != '\0') {
        int status = make_at(space->chosen, CM_PLACE_CHOSEN, space->bytes, file);
        if (status == 0)
            return;
        snprintf(note, note_size, "no ring file can be made in %s (%s): another place was taken",
                 space->chosen, strerror(-status));
    }
    if (make_shared(space->shared, space->bytes, least, file) < 0 &&
        (!folder_of(space->header->trace_path, folder, sizeof folder) ||
         make_at(folder, CM_PLACE_BESIDE, space->bytes, file) < 0))
        file->fd = -1;
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
    if (!cm_space_is_filed() || fstat(space->fd, &st) < 0 || st.st_dev != space->device ||
        st.st_ino != space->inode)
        return NULL;
    if ((uint64_t)st.st_size < space->file_bytes)
        return "was truncated";
    if (space->whole_blocks && (uint64_t)st.st_blocks * BLOCK_UNIT < space->file_bytes)
        return "has lost a part (a hole)";
    return NULL;
}

static bool is_harmed(void)
{
    return cm_space_find_harm() != NULL;
}

/* What the rings are laid out for. They can become smaller until they have a file, not larger. */
static uint64_t planned_bytes(const cm_space *space, uint64_t bytes)
{
    cm_room room;

    if (space->chosen[0] != '\0' || cm_room_look(space->shared, &room) < 0)
        return bytes;
    uint64_t allowed = cm_room_for(room, bytes);
    return allowed != 0 ? allowed : bytes; /* for beside the trace, or in private memory */
}

/* While this process is where it is now: it may go to another folder before the file is made. */
static void remember_places(cm_space *space, const cm_space_options *options)
{
    const char *chosen = chosen_folder(options->ring_dir);

    snprintf(space->shared, sizeof space->shared, "%s",
             options->shared_dir != NULL ? options->shared_dir : CM_SHARED_FOLDER);
    space->chosen[0] = '\0';
    if (chosen != NULL && realpath(chosen, space->chosen) == NULL)
        snprintf(space->chosen, sizeof space->chosen, "%s", chosen);
}

int cm_space_create(const cm_space_options *options, char *note, size_t note_size)
{
    cm_space *space = &cm_the_space;
    uint64_t bytes = options->bytes != 0 ? options->bytes : CM_RING_BYTES_DEFAULT;

    if (bytes < CM_RING_BYTES_MIN || bytes > CM_RING_BYTES_MAX) {
        snprintf(note, note_size, "ring_bytes must be from %d to %d", CM_RING_BYTES_MIN,
                 CM_RING_BYTES_MAX);
        return -EINVAL;
    }
    note[0] = '\0';
    remember_places(space, options);
    bytes = planned_bytes(space, pages(bytes));
    int status = make_private(space, bytes, note, note_size);
    if (status < 0)
        return status;
    cm_bus_guard(NULL, 0, is_harmed);
    status = lay_out(space, bytes, options->trace_path, note, note_size);
    if (status < 0) {
        cm_space_destroy(true, true);
        return status;
    }
    atomic_store(&space->id, space->header->id);
    atomic_store_explicit(&space->header->magic, CM_RING_MAGIC, memory_order_release);
    return 0;
}

/* All that was ever written, without touching what was not. */
static void copy_rings(const cm_space *space, const ring_file *file, uint32_t blocks)
{
    const cm_ring_header *from = space->header;
    cm_ring_header *to = file->memory;
    uint64_t log = atomic_load(&space->log_head);

    if (log > space->log_bytes)
        log = space->log_bytes;
    memcpy((unsigned char *)to + sizeof to->magic, (const unsigned char *)from + sizeof to->magic,
           (size_t)from->log_offset - sizeof to->magic);
    memcpy((unsigned char *)to + from->log_offset, space->log, (size_t)log);
    memcpy((unsigned char *)to + from->blocks_offset, space->blocks,
           (size_t)blocks * CM_BLOCK_BYTES);
    to->total_bytes = file->bytes;
    to->block_count = (uint32_t)((file->bytes - to->blocks_offset) / CM_BLOCK_BYTES);
    atomic_store_explicit(&to->magic, CM_RING_MAGIC, memory_order_release);
}

/* Every thread is kept from its hooks. Nothing is asked for from the allocator, which one of them
 * may be inside of. */
static int change_to(cm_space *space, const ring_file *file)
{
    uint32_t blocks = atomic_load(&space->free.fresh);

    if (bytes_up_to_block(space, blocks) > file->bytes)
        return -EAGAIN;
    copy_rings(space, file, blocks);
    /* At the same addresses, and in one step for everybody who looks at them. */
    if (mremap(file->memory, file->bytes, file->bytes, MREMAP_MAYMOVE | MREMAP_FIXED,
               space->header) == MAP_FAILED)
        return -errno;
    space->block_count = space->free.capacity = space->header->block_count;
    atomic_store(&space->wake_at, space->block_count / 2);
    space->file_bytes = file->bytes;
    space->fd = file->fd;
    space->device = file->device;
    space->inode = file->inode;
    space->whole_blocks = file->whole_blocks;
    space->place = file->place;
    memcpy(space->path, file->path, sizeof space->path);
    atomic_store_explicit(&space->filed, true, memory_order_release);
    cm_bus_guard(space->header, space->file_bytes, is_harmed);
    return 0;
}

int cm_space_share(char *note, size_t note_size)
{
    cm_space *space = &cm_the_space;
    ring_file file;

    if (space->place != CM_PLACE_NONE)
        return 0;
    make_somewhere(space, &file, note, note_size);
    if (file.fd < 0) {
        space->place = CM_PLACE_PRIVATE;
        return 0;
    }
    int status = -EAGAIN;
    if (cm_threads_hold(HOLD_MS)) {
        cm_frames_before_fork(); /* as for a fork: a definition is appended under its mutex */
        status = change_to(space, &file);
        cm_frames_after_fork();
    }
    cm_threads_release();
    if (status < 0)
        drop_file(&file);
    return status;
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
    atomic_store(&space->filed, false);
    atomic_store(&space->id, 0);
    cm_bus_unguard(); /* before others may use its addresses */
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

    if (unlink_file && cm_space_is_filed())
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

    if (!cm_space_is_filed())
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
    return cm_space_is_filed() && space->device == device && space->inode == inode;
}

bool cm_space_is_recording(uint64_t id)
{
    return id != 0 && atomic_load(&cm_the_space.id) == id;
}
