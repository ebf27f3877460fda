#include "side_file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "chunks.h"
#include "crc32c.h"
#include "../base/descriptor.h"
#include "../base/file_range.h"
#include "../base/grow.h"
#include "format.h"

enum { PATH_BYTES = 4096 + sizeof CM_SIDE_SUFFIX, HEADER_USED = 32 };

struct cm_side {
    int fd;
    size_t part_bytes, used[CM_SIDE_PARTS];
    unsigned oldest, now; /* parts; equal: one is in use */
    uint8_t *memory;      /* a part, for reading it back */
    dev_t device; /* as in writer.c: the program may close our descriptor and reuse its number */
    ino_t inode;
    void *anchor; /* a mapping, which keeps the inode from being reused */
    char path[PATH_BYTES];
};

typedef struct header {
    uint64_t parts, part_bytes, id;
} header;

static int status_of(int result)
{
    return result < 0 ? -errno : 0;
}

static bool name_side(const char *trace_path, char *path)
{
    int n = snprintf(path, PATH_BYTES, "%s%s", trace_path, CM_SIDE_SUFFIX);
    return n > 0 && n < PATH_BYTES;
}

/* Opens a side file. -1: not a side file, or it cannot be opened. */
static int open_side(const char *path, header *out, struct stat *st)
{
    uint8_t bytes[HEADER_USED];
    /* A link or a pipe may have come with a foreign trace: do not open it. */
    if (lstat(path, st) < 0 || !S_ISREG(st->st_mode))
        return -1;
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY | O_NOFOLLOW);
    if (fd < 0)
        return -1;
    cm_cursor c = {bytes + 8, bytes + sizeof bytes, false};
    bool good = fstat(fd, st) == 0 && S_ISREG(st->st_mode) &&
                cm_read_at(fd, 0, bytes, sizeof bytes) == 0 && memcmp(bytes, CM_SIDE_MAGIC, 8) == 0;
    uint64_t version = cm_cursor_fixed(&c, 4);
    out->parts = cm_cursor_fixed(&c, 4);
    out->part_bytes = cm_cursor_fixed(&c, 8);
    out->id = cm_cursor_fixed(&c, 8);
    if (good && version == CM_SIDE_VERSION && out->parts >= 1 && out->parts <= CM_SIDE_PARTS_MAX &&
        out->part_bytes >= CM_CHUNK_HEADER_SIZE && out->part_bytes <= CM_CHUNK_MAX)
        return fd;
    close(fd);
    return -1;
}

/* --- writing ------------------------------------------------------------------------------- */

/* Whether this is a side file of any version, or empty. An empty one was left by a process killed
 * before it wrote the header, or has nothing to lose. */
static bool is_side(const char *path)
{
    char magic[8];
    struct stat st;
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY | O_NOFOLLOW);
    if (fd < 0)
        return false;
    bool is = fstat(fd, &st) == 0 && S_ISREG(st.st_mode) &&
              (st.st_size == 0 || (cm_read_at(fd, 0, magic, sizeof magic) == 0 &&
                                   memcmp(magic, CM_SIDE_MAGIC, 8) == 0));
    close(fd);
    return is;
}

/* Creates the file with the trace's permissions. */
static int open_new(const char *path, const char *trace_path)
{
    const int flags = O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW;
    struct stat st;
    mode_t mode = stat(trace_path, &st) == 0 ? st.st_mode & 0666 : 0600;
    int fd = cm_descriptor_lift(open(path, flags, mode), path);
    if (fd >= 0 || errno != EEXIST)
        return fd;
    /* It belongs to an earlier trace with this name. */
    if (is_side(path))
        return unlink(path) < 0 ? -1 : cm_descriptor_lift(open(path, flags, mode), path);
    errno = EEXIST;
    return -1;
}

static int prepare(cm_side *side, uint64_t ring_id)
{
    uint8_t bytes[HEADER_USED];
    struct stat st;
    uint8_t *p = cm_put_fixed(bytes, 0, 8);
    memcpy(bytes, CM_SIDE_MAGIC, 8);
    p = cm_put_fixed(p, CM_SIDE_VERSION, 4);
    p = cm_put_fixed(p, CM_SIDE_PARTS, 4);
    p = cm_put_fixed(p, side->part_bytes, 8);
    cm_put_fixed(p, ring_id, 8);
    /* The header comes before the allocation, so that a killed process leaves a recognizable file.
     */
    int status = cm_write_at(side->fd, 0, bytes, sizeof bytes);
    if (status == 0)
        status = -posix_fallocate(side->fd, 0,
                                  (off_t)(CM_SIDE_HEADER + CM_SIDE_PARTS * side->part_bytes));
    if (status == 0)
        status = status_of(fstat(side->fd, &st));
    if (status < 0)
        return status;
    side->device = st.st_dev;
    side->inode = st.st_ino;
    void *anchor = mmap(NULL, 1, PROT_NONE, MAP_SHARED, side->fd, 0);
    if (anchor == MAP_FAILED)
        return -errno;
    side->anchor = anchor;
    return 0;
}

static bool is_ours(const cm_side *side, int fd)
{
    return side->anchor != NULL && cm_descriptor_is(fd, side->device, side->inode);
}

/* Opens the file again if the program has closed the descriptor. -EBADF: its name is gone, too. */
static int keep_open(cm_side *side)
{
    if (is_ours(side, side->fd))
        return 0;
    /* The old number may be the program's by now, so it is not closed. */
    side->fd = cm_descriptor_reopen(side->path, O_RDWR | O_NOCTTY | O_NONBLOCK | O_NOFOLLOW,
                                    side->device, side->inode);
    return side->fd < 0 ? -EBADF : 0;
}

int cm_side_create(const char *trace_path, uint64_t ring_id, uint64_t bytes, cm_side **out)
{
    cm_side *side = calloc(1, sizeof *side);
    if (side == NULL)
        return -ENOMEM;
    if (bytes < CM_SIDE_BYTES_MIN)
        bytes = CM_SIDE_BYTES_MIN;
    if (bytes > CM_SIDE_BYTES_MAX)
        bytes = CM_SIDE_BYTES_MAX;
    side->part_bytes = (size_t)(bytes / CM_SIDE_PARTS) & ~(size_t)4095;
    side->memory = malloc(side->part_bytes);
    side->fd = -1;
    int status = side->memory == NULL ? -ENOMEM : 0;
    if (status == 0 && !name_side(trace_path, side->path))
        status = -ENAMETOOLONG;
    if (status == 0) {
        side->fd = open_new(side->path, trace_path);
        status = status_of(side->fd);
        if (status == 0)
            status = prepare(side, ring_id);
        if (status < 0 && side->fd >= 0) {
            unlink(side->path); /* O_EXCL has created it */
            close(side->fd);
            side->fd = -1;
        }
    }
    if (status < 0) {
        cm_side_close(side, false);
        return status;
    }
    *out = side;
    return 0;
}

static uint64_t place_of(const cm_side *side, unsigned part)
{
    return CM_SIDE_HEADER + (uint64_t)part * side->part_bytes;
}

int cm_side_append(cm_side *side, const void *chunk, size_t length)
{
    if (length > side->part_bytes)
        return -EFBIG;
    if (length > side->part_bytes - side->used[side->now]) {
        unsigned next = (side->now + 1) % CM_SIDE_PARTS;
        if (next == side->oldest)
            return -ENOBUFS;
        side->now = next;
        side->used[next] = 0;
    }
    int status = keep_open(side);
    if (status == 0)
        status =
            cm_write_at(side->fd, place_of(side, side->now) + side->used[side->now], chunk, length);
    if (status == 0)
        side->used[side->now] += length;
    return status;
}

int cm_side_oldest(cm_side *side, const uint8_t **chunks, size_t *length)
{
    *chunks = side->memory;
    *length = side->used[side->oldest];
    int status = *length > 0 ? keep_open(side) : 0;
    return status < 0 ? status
                      : cm_read_at(side->fd, place_of(side, side->oldest), side->memory, *length);
}

void cm_side_release(cm_side *side)
{
    side->used[side->oldest] = 0;
    if (side->oldest != side->now)
        side->oldest = (side->oldest + 1) % CM_SIDE_PARTS;
    else /* old chunks are still in the part: the next chunk must not join them */
        side->oldest = side->now = (side->now + 1) % CM_SIDE_PARTS;
}

uint64_t cm_side_used(const cm_side *side)
{
    uint64_t used = 0;
    for (unsigned i = 0; i < CM_SIDE_PARTS; i++)
        used += side->used[i];
    return used;
}

size_t cm_side_part_bytes(const cm_side *side)
{
    return side->part_bytes;
}

void cm_side_close(cm_side *side, bool and_remove)
{
    struct stat st;
    if (and_remove && side->anchor != NULL && stat(side->path, &st) == 0 &&
        st.st_dev == side->device && st.st_ino == side->inode)
        unlink(side->path);
    if (is_ours(side, side->fd))
        close(side->fd);
    if (side->anchor != NULL)
        munmap(side->anchor, 1);
    free(side->memory);
    free(side);
}

void cm_side_forget(cm_side *side)
{
    if (side == NULL)
        return;
    if (is_ours(side, side->fd))
        close(side->fd);
    if (side->anchor != NULL)
        munmap(side->anchor, 1);
}

/* --- reading ------------------------------------------------------------------------------- */

bool cm_batch_parse(const uint8_t *payload, size_t length, cm_batch_parts *out)
{
    cm_cursor c = {payload, payload + length, false};
    size_t definitions;
    out->anchor.ticks = cm_cursor_fixed(&c, 8);
    out->anchor.monotonic_ns = cm_cursor_fixed(&c, 8);
    out->anchor.realtime_ns = cm_cursor_fixed(&c, 8);
    cm_cursor_bytes(&c, &definitions);
    out->events = cm_cursor_varint(&c);
    out->section = cm_cursor_bytes(&c, &out->section_length);
    out->cover_count = cm_cursor_varint(&c);
    out->covers = c;
    if (out->cover_count > cm_cursor_left(&c) / 2)
        return false;
    for (uint64_t i = 0; i < 2 * out->cover_count; i++)
        cm_cursor_varint(&c);
    out->log_position = cm_cursor_varint(&c);
    out->side = !c.bad && cm_cursor_left(&c) > 0 ? cm_cursor_varint(&c) : 0;
    return !c.bad;
}

bool cm_batch_next(const uint8_t **chunks, size_t *length, cm_batch_parts *out)
{
    cm_chunk_head head;
    if (*length < CM_CHUNK_HEADER_SIZE || !cm_chunk_parse_head(*chunks, &head) ||
        head.kind != CM_CHUNK_BATCH || head.length > *length - CM_CHUNK_HEADER_SIZE ||
        !cm_batch_parse(*chunks + CM_CHUNK_HEADER_SIZE, (size_t)head.length, out))
        return false;
    *chunks += CM_CHUNK_HEADER_SIZE + head.length;
    *length -= CM_CHUNK_HEADER_SIZE + (size_t)head.length;
    return true;
}

/* The length, with header, of the chunk at these bytes, and its number; 0: none. */
static size_t chunk_at(const uint8_t *bytes, size_t left, uint64_t *serial)
{
    const uint8_t *at = bytes;
    cm_chunk_head head;
    cm_batch_parts batch;
    if (!cm_batch_next(&at, &left, &batch) || !cm_chunk_parse_head(bytes, &head) ||
        cm_crc32c(cm_crc32c(0, bytes, 12), bytes + CM_CHUNK_HEADER_SIZE, (size_t)head.length) !=
            head.checksum)
        return 0;
    *serial = batch.side;
    return (size_t)(at - bytes);
}

typedef struct part {
    uint64_t first, last; /* numbers of its chunks */
    unsigned number;
} part;

static int oldest_first(const void *a, const void *b)
{
    const part *x = a, *y = b;
    return x->first < y->first ? -1 : x->first > y->first;
}

typedef struct collection {
    uint8_t *chunks;
    size_t length;
    uint64_t after;
    bool no_memory;
    size_t end; /* in its part, behind the last chunk collected; 0: none was */
} collection;

static bool add_chunk(collection *to, const uint8_t *chunk, size_t size, uint64_t serial)
{
    uint8_t *grown = realloc(to->chunks, to->length + size);
    to->no_memory = grown == NULL;
    if (grown == NULL)
        return false;
    memcpy(grown + to->length, chunk, size);
    to->chunks = grown;
    to->length += size;
    to->after = serial;
    return true;
}

/* Walks a part's chunks, and collects the next ones into `to`. A chunk after the last one is left
 * from an earlier use and has an older number. */
static part walk(const uint8_t *bytes, size_t length, collection *to)
{
    part found = {0};
    uint64_t serial;
    for (size_t at = 0, size; (size = chunk_at(bytes + at, length - at, &serial)) > 0; at += size) {
        if (at > 0 && serial != found.last + 1)
            break;
        if (at == 0)
            found.first = serial;
        found.last = serial;
        if (to == NULL || serial != to->after + 1)
            continue;
        if (!add_chunk(to, bytes + at, size, serial))
            break;
        to->end = at + size;
    }
    return found;
}

/* Whether a number between `after` and the newest one is missing. */
static bool has_gap(const part *parts, size_t count, uint64_t after)
{
    uint64_t newest = 0;
    for (size_t i = 0; i < count; i++)
        if (parts[i].last > newest)
            newest = parts[i].last;
    return newest > after;
}

static cm_side_found collect(int fd, const header *h, const struct stat *st, collection *to,
                             cm_side_place *place)
{
    if ((uint64_t)st->st_size < CM_SIDE_HEADER + h->part_bytes)
        return CM_SIDE_READ; /* nothing was written yet */
    uint8_t *memory = malloc((size_t)h->part_bytes);
    part parts[CM_SIDE_PARTS_MAX];
    size_t count = 0;
    if (memory == NULL)
        return CM_SIDE_MEMORY;
    for (unsigned i = 0; i < h->parts; i++) {
        if (cm_read_at(fd, CM_SIDE_HEADER + i * h->part_bytes, memory, (size_t)h->part_bytes) < 0)
            continue;
        part found = walk(memory, (size_t)h->part_bytes, NULL);
        found.number = i;
        if (found.first != 0)
            parts[count++] = found;
    }
    cm_sort(parts, count, sizeof *parts, oldest_first);
    for (size_t i = 0; i < count && !to->no_memory; i++)
        if (parts[i].last > to->after && parts[i].first <= to->after + 1 &&
            cm_read_at(fd, CM_SIDE_HEADER + parts[i].number * h->part_bytes, memory,
                       (size_t)h->part_bytes) == 0) {
            to->end = 0;
            walk(memory, (size_t)h->part_bytes, to);
            if (to->end > 0)
                *place = (cm_side_place){true, parts[i].number, to->end, 0, 0};
        }
    free(memory);
    if (to->no_memory)
        return CM_SIDE_MEMORY;
    return has_gap(parts, count, to->after) ? CM_SIDE_GAP : CM_SIDE_READ;
}

/* The chunk at this place of a part, malloc'ed; NULL: none with a number of its own begins there.
 */
static uint8_t *read_chunk(int fd, const header *h, unsigned number, uint64_t offset, size_t *size,
                           uint64_t *serial)
{
    uint8_t head[CM_CHUNK_HEADER_SIZE];
    const uint64_t at = CM_SIDE_HEADER + number * h->part_bytes + offset;
    cm_chunk_head parsed;
    if (offset + sizeof head > h->part_bytes || cm_read_at(fd, at, head, sizeof head) < 0 ||
        !cm_chunk_parse_head(head, &parsed) || parsed.length > h->part_bytes - offset - sizeof head)
        return NULL;
    size_t length = sizeof head + (size_t)parsed.length;
    uint8_t *bytes = malloc(length);
    *size = bytes != NULL && cm_read_at(fd, at, bytes, length) == 0
                ? chunk_at(bytes, length, serial)
                : 0;
    if (*size == length)
        return bytes;
    free(bytes);
    return NULL;
}

/* Moves to the place and collects the chunk there, if it is the next one. *gone: its place has a
 * later one. */
static bool take_chunk(int fd, const header *h, cm_side_place *place, unsigned part,
                       uint64_t offset, collection *to, bool *gone)
{
    size_t size;
    uint64_t serial;
    uint8_t *chunk = read_chunk(fd, h, part, offset, &size, &serial);
    if (chunk == NULL)
        return false;
    bool is_next = serial == to->after + 1 && add_chunk(to, chunk, size, serial);
    *gone |= serial > to->after;
    free(chunk);
    if (!is_next)
        return false;
    *gone = false;
    place->part = part;
    place->offset = offset + size;
    return true;
}

static cm_side_found go_on(int fd, const header *h, const struct stat *st, cm_side_place *place,
                           collection *to)
{
    bool gone = false;
    if (place->seconds == st->st_mtim.tv_sec && place->nanoseconds == st->st_mtim.tv_nsec)
        return CM_SIDE_READ;
    /* The writer skips a part when it has compacted the one that it was in. */
    for (unsigned skip = 0; skip <= 2 && !to->no_memory; skip++) {
        unsigned part = (unsigned)((place->part + skip) % h->parts);
        while (take_chunk(fd, h, place, part, skip == 0 ? place->offset : 0, to, &gone))
            skip = 0;
    }
    if (to->no_memory)
        return CM_SIDE_MEMORY;
    if (gone)
        return CM_SIDE_GAP;
    /* File times are coarse: a chunk may have come in the moment of the last one. */
    if (to->length == 0 && time(NULL) - st->st_mtim.tv_sec > 2) {
        place->seconds = st->st_mtim.tv_sec;
        place->nanoseconds = st->st_mtim.tv_nsec;
    }
    return CM_SIDE_READ;
}

cm_side_found cm_side_read_on(const char *trace_path, uint64_t ring_id, cm_side_place *place,
                              uint64_t *after, uint8_t **chunks, size_t *length)
{
    char path[PATH_BYTES];
    struct stat st;
    header h;

    *chunks = NULL;
    *length = 0;
    int fd = name_side(trace_path, path) ? open_side(path, &h, &st) : -1;
    if (fd < 0)
        return CM_SIDE_MISSING;
    collection to = {.after = *after};
    cm_side_found found = CM_SIDE_MISSING;
    if (h.id == ring_id)
        found = place->known ? go_on(fd, &h, &st, place, &to) : collect(fd, &h, &st, &to, place);
    close(fd);
    if (found == CM_SIDE_MEMORY) {
        free(to.chunks);
        return found;
    }
    *chunks = to.chunks;
    *length = to.length;
    *after = to.after;
    return found;
}

cm_side_found cm_side_read(const char *trace_path, uint64_t ring_id, uint64_t *after,
                           uint8_t **chunks, size_t *length)
{
    cm_side_place place = {0};
    return cm_side_read_on(trace_path, ring_id, &place, after, chunks, length);
}

void cm_side_remove(const char *trace_path, uint64_t ring_id)
{
    char path[PATH_BYTES];
    struct stat st;
    header h;
    if (!name_side(trace_path, path))
        return;
    int fd = open_side(path, &h, &st);
    bool is =
        fd >= 0 ? h.id == ring_id : lstat(path, &st) == 0 && S_ISREG(st.st_mode) && st.st_size == 0;
    if (is) /* or empty: its process was killed while creating it */
        unlink(path);
    if (fd >= 0)
        close(fd);
}
