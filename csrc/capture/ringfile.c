#define _GNU_SOURCE /* mremap */
#include "ringfile.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include "../base/clock.h"
#include "../base/descriptor.h"
#include "bus_error.h"
#include "ring_owner.h"

enum {
    BLOCK_UNIT = 512, /* of st_blocks */
    SPARE_BLOCKS = 64 /* at least, beside those that are in use when the file is made */
};

cm_ringfile_state cm_ringfile = {.fd = -1};

/* --- making ------------------------------------------------------------------------------ */

static int refuse(int status, const char *what, char *note, size_t note_size)
{
    snprintf(note, note_size, "%s: %s", what, strerror(-status));
    return status;
}

static int make_private(cm_ringfile_state *file, uint64_t bytes, char *note, size_t note_size)
{
    void *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED)
        return refuse(-errno, "no memory for the rings (a smaller ring_bytes may do)", note,
                      note_size);
    int status = cm_ring_keep_from_children(memory, bytes);
    if (status < 0) {
        munmap(memory, bytes);
        return refuse(
            status,
            "the rings cannot be kept from forked processes, madvise(MADV_DONTFORK) is refused",
            note, note_size);
    }
    file->header = memory;
    file->bytes = file->file_bytes = bytes;
    return 0;
}

static int lay_out(cm_ringfile_state *file, uint64_t bytes, const char *trace_path, char *note,
                   size_t note_size)
{
    cm_ring_header *header = file->header;
    cm_clock_anchor now = cm_clock_sample();

    header->version = CM_RING_VERSION;
    header->ring_count = CM_RING_COUNT;
    header->block_bytes = CM_BLOCK_BYTES;
    header->total_bytes = bytes;
    header->table_offset = cm_ring_pages(sizeof *header);
    header->log_offset = header->table_offset + cm_ring_pages(CM_RING_COUNT * sizeof(cm_ring));
    header->log_bytes = cm_ring_pages(bytes / 8);
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
    file->rings = (cm_ring *)(start + header->table_offset);
    file->log = start + header->log_offset;
    file->log_bytes = header->log_bytes;
    file->bytes = bytes;

    size_t counts = CM_RING_COUNT * sizeof(cm_ring_counts);
    file->tables_bytes = cm_ring_pages(counts + cm_blockpool_table_bytes(header->block_count));
    file->tables =
        mmap(NULL, file->tables_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (file->tables == MAP_FAILED) {
        file->tables = NULL;
        return refuse(-errno, "no memory for the rings' tables", note, note_size);
    }
    atomic_store(&file->log_head, 0);
    atomic_store(&file->log_tail, 0);
    atomic_store(&file->unowned_lost, 0);
    file->counts = file->tables;
    cm_blockpool_begin((cm_ring_block *)(start + header->blocks_offset), header->block_count,
                       (unsigned char *)file->tables + counts);
    return 0;
}

const char *cm_ringfile_find_harm(void)
{
    const cm_ringfile_state *file = &cm_ringfile;
    struct stat st;

    /* Without a descriptor (until the next second) nothing is known of the file. */
    if (!cm_ringfile_exists() || fstat(file->fd, &st) < 0 || st.st_dev != file->device ||
        st.st_ino != file->inode)
        return NULL;
    if ((uint64_t)st.st_size < file->file_bytes)
        return "was truncated";
    if (file->whole_blocks && (uint64_t)st.st_blocks * BLOCK_UNIT < file->file_bytes)
        return "has lost a part (a hole)";
    return NULL;
}

static bool is_harmed(void)
{
    return cm_ringfile_find_harm() != NULL;
}

int cm_ringfile_create(const cm_ringfile_options *options, char *note, size_t note_size)
{
    cm_ringfile_state *file = &cm_ringfile;
    uint64_t bytes = options->bytes != 0 ? options->bytes : CM_RING_BYTES_DEFAULT;

    if (bytes < CM_RING_BYTES_MIN || bytes > CM_RING_BYTES_MAX) {
        snprintf(note, note_size, "ring_bytes must be from %d to %d", CM_RING_BYTES_MIN,
                 CM_RING_BYTES_MAX);
        return -EINVAL;
    }
    note[0] = '\0';
    cm_ring_folders_choose(&file->folders, options->ring_dir, options->shared_dir);
    bytes = cm_ring_folders_plan(&file->folders, options->trace_path, cm_ring_pages(bytes));
    int status = make_private(file, bytes, note, note_size);
    if (status < 0)
        return status;
    cm_bus_guard(NULL, 0, is_harmed);
    status = lay_out(file, bytes, options->trace_path, note, note_size);
    if (status < 0) {
        cm_ringfile_destroy(true, true);
        return status;
    }
    atomic_store(&file->id, file->header->id);
    atomic_store_explicit(&file->header->magic, CM_RING_MAGIC, memory_order_release);
    return 0;
}

/* --- from private memory into a file ------------------------------------------------------ */

static uint64_t bytes_up_to_block(uint32_t block)
{
    return cm_ringfile.header->blocks_offset + (uint64_t)block * CM_BLOCK_BYTES;
}

bool cm_ringfile_make(cm_ring_made *made, char *note, size_t note_size)
{
    cm_ringfile_state *file = &cm_ringfile;
    uint64_t least = cm_ring_pages(bytes_up_to_block(cm_blockpool_touched() + SPARE_BLOCKS));

    if (least > file->bytes)
        least = file->bytes;
    if (cm_ring_make(&file->folders, file->header->trace_path, file->bytes, least, made, note,
                     note_size))
        return true;
    file->place = CM_RING_PLACE_PRIVATE;
    return false;
}

/* Copies all that was ever written, and touches nothing else. */
static void copy_rings(const cm_ring_made *made, uint32_t blocks)
{
    const cm_ring_header *from = cm_ringfile.header;
    cm_ring_header *to = made->memory;
    uint64_t log = atomic_load(&cm_ringfile.log_head);

    if (log > from->log_bytes)
        log = from->log_bytes;
    memcpy((unsigned char *)to + sizeof to->magic, (const unsigned char *)from + sizeof to->magic,
           (size_t)from->log_offset - sizeof to->magic);
    memcpy((unsigned char *)to + from->log_offset, cm_ringfile.log, (size_t)log);
    memcpy((unsigned char *)to + from->blocks_offset, cm_blockpool.blocks,
           (size_t)blocks * CM_BLOCK_BYTES);
    to->total_bytes = made->bytes;
    to->block_count = (uint32_t)((made->bytes - to->blocks_offset) / CM_BLOCK_BYTES);
    atomic_store_explicit(&to->magic, CM_RING_MAGIC, memory_order_release);
}

/* Allocates nothing: a thread that waits outside its hook may be inside the allocator. */
int cm_ringfile_move_to(const cm_ring_made *made)
{
    cm_ringfile_state *file = &cm_ringfile;
    uint32_t blocks = cm_blockpool_touched();

    if (bytes_up_to_block(blocks) > made->bytes)
        return -EAGAIN;
    copy_rings(made, blocks);
    /* At the same addresses, in one step for every thread that reads them. */
    if (mremap(made->memory, made->bytes, made->bytes, MREMAP_MAYMOVE | MREMAP_FIXED,
               file->header) == MAP_FAILED)
        return -errno;
    cm_blockpool_limit(file->header->block_count);
    file->file_bytes = made->bytes;
    file->fd = made->fd;
    file->device = made->device;
    file->inode = made->inode;
    file->whole_blocks = made->whole_blocks;
    file->place = made->place;
    memcpy(file->path, made->path, sizeof file->path);
    atomic_store_explicit(&file->exists, true, memory_order_release);
    cm_bus_guard(file->header, file->file_bytes, is_harmed);
    return 0;
}

/* --- release ----------------------------------------------------------------------------- */

static bool fd_is_ours(const cm_ringfile_state *file)
{
    return cm_descriptor_is(file->fd, file->device, file->inode);
}

/* First cleared, then unmapped: a child forked in between must not unmap later mappings there. */
static void release(cm_ringfile_state *file, bool unmap_ring, bool unmap_tables)
{
    void *ring = file->header, *tables = file->tables;

    file->header = NULL;
    file->tables = NULL;
    file->place = CM_RING_PLACE_NONE;
    atomic_store(&file->exists, false);
    atomic_store(&file->id, 0);
    cm_bus_unguard(); /* before others may use its addresses */
    if (unmap_ring && ring != NULL)
        munmap(ring, file->bytes);
    if (unmap_tables && tables != NULL)
        munmap(tables, file->tables_bytes);
    if (fd_is_ours(file))
        close(file->fd);
    file->fd = -1;
}

void cm_ringfile_destroy(bool unlink_file, bool unmap)
{
    cm_ringfile_state *file = &cm_ringfile;

    if (unlink_file && cm_ringfile_exists())
        unlink(file->path);
    else if (file->header != NULL)
        atomic_store(&file->header->alive_ns, 0); /* kept for the next sweep, perhaps ours */
    release(file, unmap, unmap);
}

void cm_ringfile_forget(void)
{
    /* The ring itself was marked not to be inherited. */
    cm_bus_forget();
    release(&cm_ringfile, false, true);
}

/* --- lock and identity ------------------------------------------------------------------- */

void cm_ringfile_keep_lock(void)
{
    cm_ringfile_state *file = &cm_ringfile;

    if (!cm_ringfile_exists())
        return;
    if (fd_is_ours(file)) {
        /* Closing any other descriptor of the file in this process drops the lock. */
        cm_ring_lock(file->fd);
        return;
    }
    file->fd = cm_descriptor_reopen(file->path, O_RDWR | O_NOFOLLOW, file->device, file->inode);
    /* Else the file was removed: there is nothing left to protect. */
    if (file->fd >= 0)
        cm_ring_lock(file->fd);
}

bool cm_ringfile_is_ours(dev_t device, ino_t inode)
{
    const cm_ringfile_state *file = &cm_ringfile;
    return cm_ringfile_exists() && file->device == device && file->inode == inode;
}

bool cm_ringfile_is_recording(uint64_t id)
{
    return id != 0 && atomic_load(&cm_ringfile.id) == id;
}
