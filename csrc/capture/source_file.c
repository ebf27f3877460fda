#define _GNU_SOURCE
#include "source_file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "../base/file_range.h"
#include "../base/helper_thread.h"

enum { STACK = 128 << 10 };

static atomic_bool refused; /* an own descriptor table: not tried again */

typedef struct reading {
    cm_source_job *jobs;
    size_t count;
    int32_t id;
} reading;

static int64_t nanoseconds(struct timespec at)
{
    return (int64_t)at.tv_sec * 1000000000 + at.tv_nsec;
}

static cm_source_identity identify(const struct stat *st)
{
    return (cm_source_identity){.device = st->st_dev,
                                .inode = st->st_ino,
                                .bytes = (uint64_t)st->st_size,
                                .modified_ns = nanoseconds(st->st_mtim),
                                .changed_ns = nanoseconds(st->st_ctim)};
}

cm_source_found cm_source_stat(const char *path, cm_source_identity *is)
{
    struct stat st;
    int saved = errno;
    if (stat(path, &st) < 0) {
        bool missing = errno == ENOENT || errno == ENOTDIR;
        errno = saved;
        return missing ? CM_SOURCE_MISSING : CM_SOURCE_OTHER;
    }
    *is = identify(&st);
    return S_ISREG(st.st_mode) ? CM_SOURCE_FILE : CM_SOURCE_OTHER;
}

bool cm_source_same(const cm_source_identity *a, const cm_source_identity *b)
{
    return a->device == b->device && a->inode == b->inode && a->bytes == b->bytes &&
           a->modified_ns == b->modified_ns && a->changed_ns == b->changed_ns;
}

static bool is_still(int fd, const cm_source_identity *is)
{
    struct stat st;
    if (fstat(fd, &st) < 0 || !S_ISREG(st.st_mode))
        return false;
    cm_source_identity now = identify(&st);
    return cm_source_same(&now, is);
}

static void *read_jobs(void *argument)
{
    reading *r = argument;

    r->id = (int32_t)syscall(SYS_gettid);
    if (!cm_helper_own_descriptors()) {
        atomic_store(&refused, true);
        return NULL;
    }
    for (size_t i = 0; i < r->count; i++) {
        cm_source_job *job = &r->jobs[i];
        /* O_NONBLOCK: it may have become a named pipe. */
        int fd = open(job->path, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
        if (fd < 0)
            continue;
        job->done = job->length <= job->is.bytes && is_still(fd, &job->is) &&
                    cm_read_at(fd, 0, job->bytes, job->length) == 0 && is_still(fd, &job->is);
        close(fd);
    }
    return NULL;
}

void cm_source_read(cm_source_job *jobs, size_t count)
{
    reading r = {.jobs = jobs, .count = count};
    pthread_t thread;

    for (size_t i = 0; i < count; i++)
        jobs[i].done = false;
    if (count > 0 && !atomic_load(&refused) && cm_helper_start(&thread, read_jobs, &r, STACK) == 0)
        cm_helper_join(thread, &r.id);
}
