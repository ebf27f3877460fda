/* Rings whose process is gone: their tails go into their traces, then they go. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "../trace/format.h"
#include "../trace/side.h"
#include "../trace/writer.h"
#include "orphan.h"
#include "recover.h"

/* A file without a header may be one that is just being made. */
enum { YOUNG_S = 60, KEEP_S = 7 * 24 * 3600 };

static bool has_anything(const cm_ring_header *header)
{
    const cm_ring *rings = (const cm_ring *)((const unsigned char *)header + header->table_offset);

    for (uint32_t i = 0; i < CM_RING_COUNT; i++)
        if (atomic_load(&rings[i].head) != 0 || atomic_load(&rings[i].lost_total) != 0)
            return true;
    return atomic_load(&header->unowned_lost) != 0;
}

/* What the side file has and the trace lacks; counted as if the trace had it. False: it cannot be
 * read now. One that is gone is missed, and what the ring has is all there is. */
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

/* True: the trace needs this ring no longer. */
static bool bring_home(const cm_ring_header *header)
{
    cm_trace_end end;

    if (!cm_trace_end_read(header->trace_path, &end))
        return !has_anything(header); /* killed before its first event: nobody will miss it */
    bool done = false;
    if (end.ring_id == header->id) {
        done = end.ended || append_rest(header, &end);
        if (done)
            cm_side_remove(header->trace_path, header->id);
    } else {
        done = !has_anything(header); /* its trace was moved or replaced */
    }
    free(end.ring);
    return done;
}

static bool is_old(const struct stat *st, const cm_ring_header *header, int64_t seconds)
{
    int64_t last = st->st_mtim.tv_sec;

    if (header != NULL) {
        int64_t alive = (int64_t)(atomic_load(&header->alive_ns) / 1000000000u);
        if (alive > last)
            last = alive;
    }
    return time(NULL) - last > seconds;
}

static int handle(int folder, const char *name)
{
    struct stat st;
    int handled = 0;

    /* Before it is opened: closing our own would drop the lock that says that we live. */
    if (fstatat(folder, name, &st, AT_SYMLINK_NOFOLLOW) < 0 || !S_ISREG(st.st_mode) ||
        st.st_uid != geteuid() || cm_space_is_ours(st.st_dev, st.st_ino))
        return 0;
    int fd = openat(folder, name, O_RDWR | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    if (fd < 0)
        return 0;
    /* Locked: its process lives, or another sweeper has it. */
    if (cm_ring_lock(fd) && fstat(fd, &st) == 0 && S_ISREG(st.st_mode)) {
        cm_ring_header *header = cm_recover_load(fd);
        bool remove = header == NULL ? is_old(&st, NULL, YOUNG_S)
                                     : cm_ring_is_abandoned(header) &&
                                           (bring_home(header) || is_old(&st, header, KEEP_S));
        if (remove && unlinkat(folder, name, 0) == 0)
            handled = 1;
        free(header);
    }
    close(fd);
    return handled;
}

int cm_orphan_sweep(const char *ring_dir)
{
    int handled = 0;
    DIR *folder = opendir(ring_dir);

    if (folder == NULL)
        return 0;
    for (struct dirent *entry; (entry = readdir(folder)) != NULL;)
        if (strncmp(entry->d_name, CM_RING_PREFIX, sizeof CM_RING_PREFIX - 1) == 0)
            handled += handle(dirfd(folder), entry->d_name);
    closedir(folder);
    return handled;
}
