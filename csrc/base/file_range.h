/* Whole ranges of a file. Interrupted calls are repeated, short ones continued. */
#ifndef CM_BASE_FILE_RANGE_H
#define CM_BASE_FILE_RANGE_H

#include <errno.h>
#include <stddef.h>
#include <stdint.h>
#include <unistd.h>

/* 0, or a negative errno: -ENODATA where the file ends before. */
static inline int cm_read_at(int fd, uint64_t offset, void *bytes, size_t length)
{
    for (size_t done = 0; done < length;) {
        ssize_t n = pread(fd, (uint8_t *)bytes + done, length - done, (off_t)(offset + done));
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return n < 0 ? -errno : -ENODATA;
        done += (size_t)n;
    }
    return 0;
}

/* 0, or a negative errno. */
static inline int cm_write_at(int fd, uint64_t offset, const void *bytes, size_t length)
{
    for (size_t done = 0; done < length;) {
        ssize_t n =
            pwrite(fd, (const uint8_t *)bytes + done, length - done, (off_t)(offset + done));
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return n < 0 ? -errno : -EIO;
        done += (size_t)n;
    }
    return 0;
}

#endif
