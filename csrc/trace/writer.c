#include "writer.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "../base/bytes.h"
#include "crc32c.h"
#include "../base/descriptor.h"
#include "../base/file_range.h"
#include "format.h"

struct cm_writer {
    int fd;
    uint64_t size;
    dev_t device; /* identifies the file: the program may close our descriptor (os.closerange) */
    ino_t inode;  /* and reuse its number */
    void *anchor; /* a mapping, which keeps the inode from being reused */
    cm_writer_state state;
    bool untidy;                        /* a partial chunk at the end could not be cut off */
    uint64_t mark_at;                   /* offset of the last chunk, or of the file header, */
    uint8_t mark[CM_CHUNK_HEADER_SIZE]; /* and its first bytes */
    char path[];
};

static int write_at(int fd, uint64_t offset, const void *bytes, size_t length)
{
    struct rlimit limit;
    /* A write past this limit would kill the process (SIGXFSZ). */
    if (getrlimit(RLIMIT_FSIZE, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY &&
        offset + length > limit.rlim_cur)
        return -EFBIG;
    return cm_write_at(fd, offset, bytes, length);
}

static int read_at(int fd, uint64_t offset, void *bytes, size_t length)
{
    int status = cm_read_at(fd, offset, bytes, length);
    return status == -ENODATA ? -EBADMSG : status;
}

static int cut(int fd, uint64_t size)
{
    while (ftruncate(fd, (off_t)size) < 0)
        if (errno != EINTR)
            return -errno;
    return 0;
}

static bool is_ours(const cm_writer *writer, int fd)
{
    return cm_descriptor_is(fd, writer->device, writer->inode);
}

/* Whether the path still leads to our file. */
static cm_writer_state where_path_leads(const cm_writer *writer)
{
    struct stat st;
    if (stat(writer->path, &st) < 0)
        return errno == ENOENT ? CM_WRITER_REMOVED : CM_WRITER_SOUND;
    return st.st_dev == writer->device && st.st_ino == writer->inode ? CM_WRITER_SOUND
                                                                     : CM_WRITER_REPLACED;
}

/* Opens the file again if the program has closed the descriptor. */
static int keep_open(cm_writer *writer)
{
    if (is_ours(writer, writer->fd))
        return 0;
    /* The old number may be the program's by now, so it is not closed. */
    writer->fd = cm_descriptor_reopen(writer->path, O_RDWR | O_NOCTTY | O_NONBLOCK, writer->device,
                                      writer->inode);
    if (writer->fd >= 0)
        return 0;
    writer->state = where_path_leads(writer);
    return writer->state == CM_WRITER_SOUND ? -EBADF : -ESTALE;
}

static bool has_byte_at(int fd, uint64_t offset)
{
    uint8_t byte;
    return pread(fd, &byte, 1, (off_t)offset) == 1;
}

/* Whether the file has our length and ends with our last chunk. Some file systems return an old
 * size for a while, so the bytes that can be read decide. */
static cm_writer_state compare_end(const cm_writer *writer, uint64_t size)
{
    uint8_t found[sizeof writer->mark];
    ssize_t n = pread(writer->fd, found, sizeof found, (off_t)writer->mark_at);
    if (n < 0) /* unknown; the next write will fail if the file is bad */
        return CM_WRITER_SOUND;
    if (n != sizeof found || memcmp(found, writer->mark, sizeof found) != 0)
        return size < writer->size ? CM_WRITER_TRUNCATED : CM_WRITER_SHARED;
    if (size < writer->size && !has_byte_at(writer->fd, writer->size - 1))
        return CM_WRITER_TRUNCATED;
    if (size > writer->size && !writer->untidy && has_byte_at(writer->fd, writer->size))
        return CM_WRITER_SHARED;
    return CM_WRITER_SOUND;
}

static int check_file(cm_writer *writer, bool its_path_too)
{
    struct stat st;
    if (writer->state != CM_WRITER_SOUND && writer->state != CM_WRITER_REPLACED)
        return -ESTALE;
    int status = keep_open(writer);
    if (status < 0)
        return status;
    if (fstat(writer->fd, &st) < 0)
        return -errno;
    if (writer->state == CM_WRITER_REPLACED)
        return st.st_nlink > 0 && !its_path_too ? 0 : -ESTALE;
    if (st.st_nlink == 0)
        writer->state =
            where_path_leads(writer) == CM_WRITER_REPLACED ? CM_WRITER_REPLACED : CM_WRITER_REMOVED;
    else
        writer->state = compare_end(writer, (uint64_t)st.st_size);
    /* A renamed file is still intact. */
    if (its_path_too && writer->state == CM_WRITER_SOUND &&
        where_path_leads(writer) == CM_WRITER_REPLACED)
        writer->state = CM_WRITER_REPLACED;
    return writer->state == CM_WRITER_SOUND ? 0 : -ESTALE;
}

cm_writer_state cm_writer_check(cm_writer *writer)
{
    check_file(writer, true);
    return writer->state;
}

static void set_mark(cm_writer *writer, const void *bytes)
{
    writer->mark_at = writer->size;
    memcpy(writer->mark, bytes, sizeof writer->mark);
}

static int append(cm_writer *writer, const void *bytes, size_t length)
{
    int status = check_file(writer, false);
    if (status < 0)
        return status;
    status = write_at(writer->fd, writer->size, bytes, length);
    if (status < 0) {
        /* If this fails, the file ends with a partial chunk, which readers can handle. */
        writer->untidy = cut(writer->fd, writer->size) < 0;
        return status;
    }
    if (length >= sizeof writer->mark)
        set_mark(writer, bytes);
    writer->size += length;
    return 0;
}

static int open_regular(const char *path, int flags, mode_t mode, struct stat *st, int *fd)
{
    /* O_NONBLOCK: a named pipe without a reader must not block the program. */
    *fd = cm_descriptor_lift(open(path, flags | O_CLOEXEC | O_NOCTTY | O_NONBLOCK, mode), path);
    if (*fd < 0)
        return -errno;
    int status = 0;
    if (fstat(*fd, st) < 0)
        status = -errno;
    else if (!S_ISREG(st->st_mode))
        status = -EINVAL;
    if (status < 0)
        close(*fd);
    return status;
}

static int wrap(int fd, const char *path, const struct stat *st, uint64_t size, cm_writer **out)
{
    size_t length = strlen(path) + 1;
    cm_writer *writer = malloc(sizeof *writer + length);
    if (writer == NULL)
        return -ENOMEM;
    *writer = (cm_writer){.fd = fd, .size = size, .device = st->st_dev, .inode = st->st_ino};
    int status = read_at(fd, 0, writer->mark, sizeof writer->mark);
    if (status < 0) {
        free(writer);
        return status;
    }
    writer->anchor = mmap(NULL, 1, PROT_NONE, MAP_SHARED, fd, 0);
    if (writer->anchor == MAP_FAILED) {
        status = -errno;
        free(writer);
        return status;
    }
    memcpy(writer->path, path, length);
    *out = writer;
    return 0;
}

int cm_writer_create(const char *path, bool overwrite, mode_t mode, cm_writer **out)
{
    static const uint8_t header[CM_HEADER_SIZE] = {
        'C', 'U', 'P', 'T', 'I', 'M', 'E', 'M', CM_FORMAT_MAJOR, 0, CM_FORMAT_MINOR, 0, 0, 0, 0, 0};
    struct stat st;
    int fd;

    /* Unlink the old file, for another process may be using it. If that is impossible (a link, a
     * read-only folder), it is truncated. */
    if (overwrite && lstat(path, &st) == 0 && S_ISREG(st.st_mode) && unlink(path) == 0)
        overwrite = false;
    int status = open_regular(path, O_RDWR | O_CREAT | (overwrite ? 0 : O_EXCL), mode, &st, &fd);
    if (status < 0)
        return status;
    status = cut(fd, 0);
    if (status == 0)
        status = write_at(fd, 0, header, sizeof header);
    if (status == 0)
        status = wrap(fd, path, &st, sizeof header, out);
    if (status < 0) {
        if (!overwrite)
            unlink(path); /* O_EXCL has created it */
        close(fd);
    }
    return status;
}

static uint32_t u32_at(const uint8_t *p)
{
    return (uint32_t)p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24;
}

/* The end of the last whole chunk, or a negative errno. */
static int64_t whole_chunks(int fd, uint64_t size)
{
    uint8_t header[CM_CHUNK_HEADER_SIZE];
    uint64_t at = CM_HEADER_SIZE;

    if (size < CM_HEADER_SIZE)
        return -EBADMSG;
    int status = read_at(fd, 0, header, CM_HEADER_SIZE);
    if (status < 0)
        return status;
    if (memcmp(header, CM_FORMAT_MAGIC, 8) != 0)
        return -EBADMSG;
    /* A file of a newer minor version must not get chunks of this one. */
    if ((header[8] | header[9] << 8) != CM_FORMAT_MAJOR ||
        (header[10] | header[11] << 8) > CM_FORMAT_MINOR)
        return -ENOTSUP;
    while (size - at >= CM_CHUNK_HEADER_SIZE) {
        status = read_at(fd, at, header, sizeof header);
        if (status < 0)
            return status;
        uint64_t payload = u32_at(header + 8);
        if (u32_at(header) != CM_CHUNK_MAGIC || payload > CM_CHUNK_MAX)
            return -EBADMSG;
        if (payload > size - at - CM_CHUNK_HEADER_SIZE)
            break;
        if (header[4] == CM_CHUNK_END)
            return -EALREADY;
        at += CM_CHUNK_HEADER_SIZE + payload;
    }
    return (int64_t)at;
}

int cm_writer_append_to(const char *path, cm_writer **out)
{
    struct stat st;
    int fd = -1;

    int status = open_regular(path, O_RDWR, 0, &st, &fd);
    if (status < 0)
        return status;
    int64_t end = whole_chunks(fd, (uint64_t)st.st_size);
    status = end < 0 ? (int)end : 0;
    if (status == 0 && end < st.st_size)
        status = cut(fd, (uint64_t)end);
    if (status == 0)
        status = wrap(fd, path, &st, (uint64_t)end, out);
    if (status < 0)
        close(fd);
    return status;
}

static int seal_and_append(cm_writer *writer, int kind, uint8_t *chunk, const uint8_t *end)
{
    size_t length = (size_t)(end - chunk);
    cm_chunk_seal(chunk, kind, length - CM_CHUNK_HEADER_SIZE);
    return append(writer, chunk, length);
}

int cm_writer_meta(cm_writer *writer, const char *const *pairs)
{
    size_t strings = 0, room = CM_CHUNK_HEADER_SIZE + 10;
    for (; pairs[strings] != NULL; strings++)
        room += strlen(pairs[strings]) + 10;
    if (strings % 2 != 0)
        return -EINVAL;
    if (room > CM_CHUNK_MAX)
        return -EFBIG;
    uint8_t *chunk = malloc(room);
    if (chunk == NULL)
        return -ENOMEM;
    uint8_t *p = cm_put_varint(chunk + CM_CHUNK_HEADER_SIZE, strings / 2);
    for (size_t i = 0; i < strings; i++)
        p = cm_put_bytes(p, pairs[i], strlen(pairs[i]));
    int status = seal_and_append(writer, CM_CHUNK_META, chunk, p);
    free(chunk);
    return status;
}

int cm_writer_chunk(cm_writer *writer, const void *bytes, size_t length)
{
    return append(writer, bytes, length);
}

int cm_writer_end(cm_writer *writer, uint64_t events, uint64_t lost_events, uint64_t lost_stacks,
                  const char *reason)
{
    uint8_t chunk[CM_CHUNK_HEADER_SIZE + 4 * 10 + 1024];
    size_t length = reason == NULL ? 0 : strnlen(reason, 1024);
    /* Cut the reason between characters, or it is not UTF-8. */
    if (reason != NULL && reason[length] != '\0')
        while (length > 0 && ((uint8_t)reason[length] & 0xc0) == 0x80)
            length--;

    uint8_t *p = cm_put_varint(chunk + CM_CHUNK_HEADER_SIZE, events);
    p = cm_put_varint(p, lost_events);
    p = cm_put_varint(p, lost_stacks);
    p = cm_put_bytes(p, reason, length);
    return seal_and_append(writer, CM_CHUNK_END, chunk, p);
}

uint64_t cm_writer_size(const cm_writer *writer)
{
    return writer->size;
}

const char *cm_writer_path(const cm_writer *writer)
{
    return writer->path;
}

int cm_writer_close(cm_writer *writer)
{
    if (writer == NULL)
        return 0;
    /* On Linux the descriptor is gone even when close reports an error. */
    int status =
        is_ours(writer, writer->fd) && close(writer->fd) < 0 && errno != EINTR ? -errno : 0;
    munmap(writer->anchor, 1);
    free(writer);
    return status;
}
