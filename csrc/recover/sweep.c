/* Appends tails of rings without a process to their traces, and removes the rings. The newest rings
 * without a trace are kept elsewhere (kept_rings.h). Only rings to append or keep are read whole;
 * of others the header.
 *
 * A ring is removed once its events are on disk elsewhere, or it is 7 days old. It stays where it
 * is for as long as neither is so: without a folder to keep it in, or room there. Beyond the newest
 * CM_KEPT_MOST, all of them safe, it is removed, too, and counted. */
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

#include "../base/grow.h"
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

/* Rings without a trace that a sweep has found in a folder. */
typedef struct orphan {
    char name[NAME_MAX + 1];
    int64_t last;
} orphan;

typedef struct orphans {
    orphan *of; /* free() it */
    size_t count, room;
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

/* On disk before the ring goes. */
static bool is_synced(const char *path)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    bool synced = fd >= 0 && fsync(fd) == 0;

    if (fd >= 0)
        close(fd);
    return synced;
}

static bool append_rest(const cm_ring_header *header, cm_trace_end *end)
{
    cm_recovered tail;
    uint8_t *side;
    size_t side_length;
    bool done = false;

    if (take_side(header, end, &side, &side_length) && cm_recover(header, &end->covers, &tail)) {
        int status = append_tail(header->trace_path, side, side_length, &tail, end->events);
        done = (status == 0 || status == -EALREADY) && is_synced(header->trace_path);
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

/* A ring to keep. Without memory it stays until the next sweep. */
static void remember(orphans *found, const char *name, int64_t last)
{
    if (!cm_grow((void **)&found->of, &found->room, found->count + 1, sizeof *found->of))
        return;
    snprintf(found->of[found->count].name, sizeof found->of->name, "%s", name);
    found->of[found->count++].last = last;
}

static int newest_first(const void *a, const void *b)
{
    const orphan *x = a, *y = b;
    return x->last > y->last ? -1 : x->last < y->last;
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

/* Whether a file without a sound header may hold events: of another version, or damaged. */
static bool was_begun(int fd)
{
    uint64_t magic = 0;
    ssize_t n = pread(fd, &magic, sizeof magic, 0);
    return n < 0 || magic != 0;
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
        remove = found != NULL &&
                 time(NULL) - st.st_mtim.tv_sec > (was_begun(fd) ? CM_KEPT_SECONDS : YOUNG_S);
    } else if (cm_ring_is_abandoned(&header)) {
        int64_t last = last_sign(&st, &header);
        outcome end = complete_trace(fd, &header);
        remove = end == TRACE_COMPLETE || !has_anything(fd, &header) ||
                 time(NULL) - last > CM_KEPT_SECONDS;
        /* A ring with an unwritable trace stays in place. Another container may share the memory
         * but not the trace's folder. */
        if (!remove && end == TRACE_ABSENT && found != NULL &&
            cm_owner_is_of_our_namespace(&header))
            remember(found, name, last);
    }
    if (remove && unlinkat(folder, name, 0) == 0)
        handled = 1;
    close(fd);
    return handled;
}

/* Moves a ring to the kept ones. False: it stays where it is. */
static bool keep(int folder, const orphan *one)
{
    struct stat st;
    int fd = open_orphan(folder, one->name, &st);

    if (fd < 0)
        return false; /* another sweep has it */
    cm_ring_header *ring = cm_recover_load(fd);
    bool done = ring != NULL;
    if (done) {
        atomic_store(&ring->alive_ns, 0); /* its owner is gone, of whatever namespace */
        done = cm_kept_add(ring, one->last) && unlinkat(folder, one->name, 0) == 0;
    }
    free(ring);
    close(fd);
    return done;
}

static bool drop(int folder, const orphan *one)
{
    struct stat st;
    int fd = open_orphan(folder, one->name, &st);
    bool done = fd >= 0 && unlinkat(folder, one->name, 0) == 0;

    if (done)
        cm_kept_count_dropped();
    if (fd >= 0)
        close(fd);
    return done;
}

/* One that cannot be kept does not stand in the way of older ones. But each try reads a whole ring:
 * where there is no place, a few of them end it. */
static int keep_newest(int folder, orphans *found)
{
    enum { TRIES = 3 };
    int kept = 0, dropped = 0, failed = 0;

    if (found->count > 0)
        qsort(found->of, found->count, sizeof *found->of, newest_first);
    for (size_t i = 0; i < found->count && failed < TRIES; i++) {
        if (kept == CM_KEPT_MOST)
            dropped += drop(folder, &found->of[i]);
        else if (keep(folder, &found->of[i]))
            kept++;
        else
            failed++;
    }
    return kept + dropped;
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
    if (found != NULL)
        handled += keep_newest(dirfd(folder), found);
    closedir(folder);
    return handled;
}

int cm_orphan_sweep(const char *ring_dir)
{
    orphans found = {.count = 0};
    char kept[CM_RING_PATH_MAX];

    int handled = sweep_folder(ring_dir, &found);
    free(found.of);
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
