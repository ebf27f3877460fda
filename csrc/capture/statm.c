#include "statm.h"

#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#include "../base/descriptor.h"

/* Opened once: the program may close a short-lived descriptor (os.closerange), and our close would
 * then hit the file that reused its number. */
typedef struct proc_file {
    const char *path;
    _Atomic int number; /* descriptor + 1; 0: not open */
    struct stat file;   /* written while number is 0 */
} proc_file;

static proc_file statm = {.path = "/proc/self/statm"}, meminfo = {.path = "/proc/meminfo"};

static bool holds(const proc_file *p, int fd)
{
    return cm_descriptor_is(fd, p->file.st_dev, p->file.st_ino);
}

static bool open_file(proc_file *p)
{
    if (holds(p, atomic_load(&p->number) - 1))
        return true;
    atomic_store(&p->number, 0);
    int fd = cm_descriptor_open(p->path, O_RDONLY, &p->file);
    atomic_store(&p->number, fd < 0 ? 0 : fd + 1);
    return fd >= 0;
}

static void close_file(proc_file *p)
{
    int fd = atomic_exchange(&p->number, 0) - 1;
    if (holds(p, fd))
        close(fd);
}

/* The first bytes, and a zero. */
static bool read_file(const proc_file *p, char *text, size_t room)
{
    int fd = atomic_load(&p->number) - 1;
    ssize_t got = holds(p, fd) ? pread(fd, text, room - 1, 0) : 0;

    text[got > 0 ? got : 0] = '\0';
    return got > 0;
}

bool cm_statm_open(void)
{
    return open_file(&statm);
}

void cm_statm_close(void)
{
    close_file(&statm);
    close_file(&meminfo);
}

bool cm_statm_read(cm_statm *out)
{
    char text[128];
    long long resident, data;

    if (!read_file(&statm, text, sizeof text) ||
        sscanf(text, "%*d %lld %*d %*d %*d %lld", &resident, &data) != 2)
        return false;
    int64_t page = sysconf(_SC_PAGESIZE);
    *out = (cm_statm){.resident = resident * page, .writable = data * page};
    return true;
}

static int64_t bytes_of(const char *text, const char *key)
{
    const char *line = strstr(text, key);
    long long kib = 0;

    return line != NULL && sscanf(line + strlen(key), " %lld", &kib) == 1 ? kib << 10 : 0;
}

bool cm_meminfo_read(cm_meminfo *out)
{
    char text[4096];

    if (!open_file(&meminfo) || !read_file(&meminfo, text, sizeof text))
        return false;
    int64_t shared = bytes_of(text, "\nShmem:");
    out->host = bytes_of(text, "\nAnonPages:") + shared + bytes_of(text, "\nSUnreclaim:") +
                bytes_of(text, "\nKernelStack:") + bytes_of(text, "\nPageTables:");
    out->cache = bytes_of(text, "\nCached:") - shared + bytes_of(text, "\nBuffers:") +
                 bytes_of(text, "\nSReclaimable:");
    return true;
}
