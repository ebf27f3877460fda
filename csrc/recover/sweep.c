/* Appends tails of rings without a process to their traces, and removes the rings. The newest rings
 * without a trace are kept elsewhere (kept_rings.h). Only rings to append or keep are read whole;
 * of others the header. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "../trace/format.h"
#include "../trace/side_file.h"
#include "../trace/writer.h"
#include "kept_rings.h"
#include "../capture/ring_owner.h"
#include "../capture/ringfile.h"
#include "orphan.h"
#include "recover.h"

/* A file without a header may be one that is just being made. */
enum { YOUNG_S = 60 };

/* Rings without a trace that a sweep has found in a folder, newest first. */
typedef struct orphans {
    struct {
        char name[NAME_MAX + 1];
        int64_t last;
    } of[CM_KEPT_MOST];
    uint32_t count;
} orphans;

static bool read_part(int fd, void *memory, size_t length, uint64_t at)
{
    ssize_t n;

    do
        n = pread(fd, memory, length, (off_t)at);
    while (n < 0 && errno == EINTR);
    return n == (ssize_t)length;
}

/* Rings are given out from the first on, so that the first page of the table mostly decides. */
static bool has_anything(int fd, const cm_ring_header *header)
{
    cm_ring rings[32];

    for (uint32_t i = 0; i < CM_RING_COUNT; i += 32) {
        if (!read_part(fd, rings, sizeof rings, header->table_offset + i * sizeof *rings))
            return true;
        for (int j = 0; j < 32; j++)
            if (atomic_load(&rings[j].head) != 0 || atomic_load(&rings[j].lost_total) != 0)
                return true;
    }
    return atomic_load(&header->unowned_lost) != 0;
}

/* Takes what the side file has and the trace lacks; counts it as if the trace had it. False: it
 * cannot be read now. If it is gone, only the ring's events remain. */
static bool take_side(const cm_ring_header *header, cm_trace_end *end, uint8_t **chunks,
                      size_t *length)
{
    uint64_t side = end->side;
    cm_batch_parts parts;

    *chunks = NULL;
    *length = 0;
    if (side == 0)
        return true;
    cm_side_found found = cm_side_read(header->trace_path, header->id, &side, chunks, length);
    const uint8_t *at = *chunks;
    for (size_t left = *length; cm_batch_next(&at, &left, &parts);) {
        for (uint64_t i = 0; i < parts.cover_count; i++) {
            uint64_t ring = cm_cursor_varint(&parts.covers);
            uint64_t position = cm_cursor_varint(&parts.covers);
            if (ring >= CM_RING_COUNT || position <= end->ring[ring])
                continue;
            end->ring[ring] = position;
            if (ring >= end->covers.count)
                end->covers.count = (size_t)ring + 1;
        }
        if (parts.log_position > end->covers.log)
            end->covers.log = parts.log_position;
        end->events += parts.events;
    }
    return found == CM_SIDE_READ || found == CM_SIDE_MISSING;
}

static int append_tail(const char *trace, const uint8_t *side, size_t side_length,
                       const cm_recovered *tail, uint64_t events)
{
    cm_writer *writer;
    int status = cm_writer_append_to(trace, &writer);

    if (status < 0)
        return status;
    if (side_length > 0)
        status = cm_writer_chunk(writer, side, side_length);
    if (status == 0 && tail->length > 0)
        status = cm_writer_chunk(writer, tail->chunks, tail->length);
    if (status == 0)
        status = cm_writer_end(writer, events + tail->events, tail->lost_events, tail->lost_stacks,
                               CM_END_RECOVERED);
    int closed = cm_writer_close(writer);
    return status < 0 ? status : closed;
}

static bool append_rest(const cm_ring_header *header, cm_trace_end *end)
{
    cm_recovered tail;
    uint8_t *side;
    size_t side_length;
    bool done = false;

    if (take_side(header, end, &side, &side_length) && cm_recover(header, &end->covers, &tail)) {
        int status = append_tail(header->trace_path, side, side_length, &tail, end->events);
        done = status == 0 || status == -EALREADY;
        free(tail.chunks);
    }
    free(side);
    return done;
}

static bool append_whole(int fd, cm_trace_end *end)
{
    cm_ring_header *ring = cm_recover_load(fd);
    bool done = ring != NULL && append_rest(ring, end);

    free(ring);
    return done;
}

typedef enum outcome {
    TRACE_COMPLETE, /* the trace needs this ring no longer */
    TRACE_ABSENT,   /* the trace is not where it was written */
    TRACE_CLOSED    /* it is, but cannot be written to (a full disk) */
} outcome;

/* Not there, or another file by now. A trace that cannot be read is there. */
static bool is_away(const char *path)
{
    struct stat st;

    if (stat(path, &st) == 0 && !S_ISREG(st.st_mode))
        return true;
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0)
        return errno == ENOENT || errno == ENOTDIR;
    close(fd);
    return true;
}

static outcome complete_trace(int fd, const cm_ring_header *header)
{
    cm_trace_end end;

    if (!cm_trace_end_read(header->trace_path, header->id, &end))
        return is_away(header->trace_path) ? TRACE_ABSENT : TRACE_CLOSED;
    bool done = end.ended || append_whole(fd, &end);
    if (done)
        cm_side_remove(header->trace_path, header->id);
    free(end.ring);
    return done ? TRACE_COMPLETE : TRACE_CLOSED;
}

static int64_t last_sign(const struct stat *st, const cm_ring_header *header)
{
    int64_t alive = (int64_t)(atomic_load(&header->alive_ns) / 1000000000u);
    return alive > st->st_mtim.tv_sec ? alive : st->st_mtim.tv_sec;
}

static void drop(int folder, const char *name)
{
    if (unlinkat(folder, name, 0) == 0)
        cm_kept_count_dropped();
}

/* Remembers a ring to keep. If there are too many, the oldest goes. */
static int remember(orphans *found, int folder, const char *name, int64_t last)
{
    uint32_t at = found->count;
    int handled = 0;

    while (at > 0 && found->of[at - 1].last < last)
        at--;
    if (found->count == CM_KEPT_MOST) {
        drop(folder, at == CM_KEPT_MOST ? name : found->of[--found->count].name);
        handled = 1;
    }
    if (at == CM_KEPT_MOST)
        return handled;
    memmove(&found->of[at + 1], &found->of[at], (found->count - at) * sizeof found->of[0]);
    snprintf(found->of[at].name, sizeof found->of[at].name, "%s", name);
    found->of[at].last = last;
    found->count++;
    return handled;
}

/* A locked descriptor of a ring that no process has; -1: it is none, or not ours. */
static int open_orphan(int folder, const char *name, struct stat *st)
{
    /* Before it is opened: closing our own would drop the lock that shows we live. */
    if (fstatat(folder, name, st, AT_SYMLINK_NOFOLLOW) < 0 || !S_ISREG(st->st_mode) ||
        st->st_uid != geteuid() || cm_ringfile_is_ours(st->st_dev, st->st_ino))
        return -1;
    int fd = openat(folder, name, O_RDWR | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    /* No lock: its process lives, or another sweep has it. */
    if (fd >= 0 && cm_ring_lock(fd) && fstat(fd, st) == 0 && S_ISREG(st->st_mode))
        return fd;
    if (fd >= 0)
        close(fd);
    return -1;
}

/* found: gets a ring that is to be kept; NULL: it is kept already. */
static int sweep_one(int folder, const char *name, orphans *found)
{
    cm_ring_header header;
    bool remove = false;
    struct stat st;
    int handled = 0, fd = open_orphan(folder, name, &st);

    if (fd < 0)
        return 0;
    if (!cm_recover_header(fd, &header)) {
        remove = found != NULL && time(NULL) - st.st_mtim.tv_sec > YOUNG_S;
    } else if (cm_ring_is_abandoned(&header)) {
        int64_t last = last_sign(&st, &header);
        outcome end = complete_trace(fd, &header);
        remove = end == TRACE_COMPLETE || !has_anything(fd, &header) ||
                 time(NULL) - last > CM_KEPT_SECONDS;
        /* A ring with an unwritable trace stays in place. Another container may share the memory
         * but not the trace's folder. */
        if (!remove && end == TRACE_ABSENT && found != NULL &&
            cm_owner_is_of_our_namespace(&header))
            handled = remember(found, folder, name, last);
    }
    if (remove && unlinkat(folder, name, 0) == 0)
        handled = 1;
    close(fd);
    return handled;
}

/* Moves a ring to the kept ones, or drops it if that fails. */
static int keep(int folder, const char *name, int64_t last)
{
    struct stat st;
    int fd = open_orphan(folder, name, &st);

    if (fd < 0)
        return 0; /* another sweep has it */
    cm_ring_header *ring = cm_recover_load(fd);
    if (ring != NULL) {
        atomic_store(&ring->alive_ns, 0); /* its owner is gone, of whatever namespace */
        if (cm_kept_add(ring, last))
            unlinkat(folder, name, 0);
        else
            drop(folder, name);
    }
    free(ring);
    close(fd);
    return 1;
}

static int sweep_folder(const char *path, orphans *found)
{
    int handled = 0;
    DIR *folder = opendir(path);

    if (folder == NULL)
        return 0;
    for (struct dirent *entry; (entry = readdir(folder)) != NULL;)
        if (strncmp(entry->d_name, CM_RING_PREFIX, sizeof CM_RING_PREFIX - 1) == 0)
            handled += sweep_one(dirfd(folder), entry->d_name, found);
    for (uint32_t i = 0; found != NULL && i < found->count; i++)
        handled += keep(dirfd(folder), found->of[i].name, found->of[i].last);
    closedir(folder);
    return handled;
}

int cm_orphan_sweep(const char *ring_dir)
{
    orphans found = {.count = 0};
    char kept[CM_RING_PATH_MAX];

    int handled = sweep_folder(ring_dir, &found);
    /* A trace that was moved may be back. */
    if (cm_kept_folder(kept, sizeof kept)) {
        handled += sweep_folder(kept, NULL);
        cm_kept_trim();
    }
    return handled;
}

bool cm_orphan_sweep_all(const char *const *folders, char *note, size_t note_size)
{
    for (; *folders != NULL; folders++)
        cm_orphan_sweep(*folders);
    return cm_kept_take_note(note, note_size);
}
