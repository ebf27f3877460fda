/* Our descriptors in the program's process, which may close them (os.closerange) and reuse their
 * numbers for its own files at any moment. Only a descriptor that still leads to our file is
 * closed. The check and the close follow each other directly, because the program may act in
 * between. */
#ifndef CM_BASE_DESCRIPTOR_H
#define CM_BASE_DESCRIPTOR_H

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

static inline bool cm_descriptor_is(int fd, dev_t device, ino_t inode)
{
    struct stat st;
    return fd >= 0 && fstat(fd, &st) == 0 && st.st_dev == device && st.st_ino == inode;
}

/* Moves the file just opened at path to a high number: the low ones are given out in order, and
 * some programs expect 3. It is below 1024, so that the descriptor table stays small. Takes fd
 * over; returns it if there is no such number. errno stays. */
static inline int cm_descriptor_lift(int fd, const char *path)
{
    enum { HIGH = 1024, OURS = 64, LOW = 128 };
    int saved = errno;
    struct rlimit limit;
    struct stat st;

    if (fd < 0 || getrlimit(RLIMIT_NOFILE, &limit) < 0 || limit.rlim_cur < LOW)
        return fd;
    rlim_t end = limit.rlim_cur < HIGH ? limit.rlim_cur : HIGH;
    int high = fcntl(fd, F_DUPFD_CLOEXEC, (int)end - OURS);
    if (high >= 0 && stat(path, &st) == 0 && cm_descriptor_is(high, st.st_dev, st.st_ino) &&
        cm_descriptor_is(fd, st.st_dev, st.st_ino)) {
        close(fd);
        fd = high;
    } else if (high >= 0) {
        close(high); /* the low number may be another file's by now */
    }
    errno = saved;
    return fd;
}

/* Opens path and fills st. -errno; -EBADF: each time the program had reused the number before the
 * check. */
static inline int cm_descriptor_open(const char *path, int flags, struct stat *st)
{
    for (int tries = 0; tries < 3; tries++) {
        int fd = cm_descriptor_lift(open(path, flags | O_CLOEXEC), path);
        if (fd < 0)
            return -errno;
        if (stat(path, st) == 0 && cm_descriptor_is(fd, st->st_dev, st->st_ino))
            return fd;
    }
    return -EBADF;
}

/* The same for a known file; -EBADF also if the path leads to another one by now. */
static inline int cm_descriptor_reopen(const char *path, int flags, dev_t device, ino_t inode)
{
    struct stat st;
    int fd = cm_descriptor_open(path, flags, &st);

    if (fd < 0 || (st.st_dev == device && st.st_ino == inode))
        return fd;
    if (cm_descriptor_is(fd, st.st_dev, st.st_ino))
        close(fd);
    return -EBADF;
}

#endif
