#include "ring_owner.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum { SIGNED_S = 5 }; /* an owner signs every second */

static uint64_t own_namespace(void)
{
    struct stat st;
    return stat("/proc/self/ns/pid", &st) == 0 ? (uint64_t)st.st_ino : 0;
}

static ssize_t read_text(const char *path, char *text, size_t size)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return -errno;
    ssize_t n = read(fd, text, size - 1);
    int status = errno;
    close(fd);
    if (n < 0)
        return -status;
    text[n] = '\0';
    return n;
}

/* Fields of /proc/PID/stat after the name, which may hold anything, even a bracket. */
static bool parse(const char *text, char *state, uint64_t *threads, uint64_t *start)
{
    const char *at = strrchr(text, ')');

    if (at == NULL || at[1] != ' ')
        return false;
    *state = at[2];
    at += 2;
    for (int field = 3; field < 22; field++) {
        at = strchr(at, ' ');
        if (at == NULL)
            return false;
        at++;
        if (field + 1 == 20)
            *threads = strtoull(at, NULL, 10);
    }
    *start = strtoull(at, NULL, 10);
    return *start != 0;
}

bool cm_owner_is_of_our_namespace(const cm_ring_header *header)
{
    return header->owner_pid != 0 && header->owner_namespace != 0 &&
           header->owner_namespace == own_namespace();
}

bool cm_owner_may_be(const cm_ring_header *header, pid_t pid)
{
    return !cm_owner_is_of_our_namespace(header) || (uint64_t)pid == header->owner_pid;
}

static cm_owner read_stat(uint64_t pid, char *state, uint64_t *threads, uint64_t *start)
{
    char path[64], text[1024];

    snprintf(path, sizeof path, "/proc/%llu/stat", (unsigned long long)pid);
    ssize_t n = read_text(path, text, sizeof text);
    if (n < 0)
        return n == -ENOENT || n == -ESRCH ? CM_OWNER_GONE : CM_OWNER_UNKNOWN;
    return parse(text, state, threads, start) ? CM_OWNER_RUNS : CM_OWNER_UNKNOWN;
}

void cm_owner_sign(cm_ring_header *header)
{
    uint64_t threads = 0, start = 0;
    char state = 0;

    if (read_stat((uint64_t)getpid(), &state, &threads, &start) != CM_OWNER_RUNS)
        return;
    header->owner_namespace = own_namespace();
    header->owner_start = start;
    header->owner_pid = (uint64_t)getpid();
}

static cm_owner find(uint64_t pid, uint64_t birth, uint64_t namespace)
{
    uint64_t threads = 0, start = 0;
    char state = 0;

    if (pid == 0 || namespace == 0 || namespace != own_namespace())
        return CM_OWNER_UNKNOWN;
    cm_owner found = read_stat(pid, &state, &threads, &start);
    if (found != CM_OWNER_RUNS)
        return found;
    if (start != birth)
        return CM_OWNER_GONE; /* another process has the number now */
    /* A zombie waits for its parent only; but a dead main thread may have left others. */
    return (state == 'Z' || state == 'X') && threads <= 1 ? CM_OWNER_GONE : CM_OWNER_RUNS;
}

static int64_t read_clock(clockid_t clock)
{
    struct timespec at;
    return clock_gettime(clock, &at) < 0 ? 0 : (int64_t)at.tv_sec * 1000000000 + at.tv_nsec;
}

int64_t cm_owner_began_ns(const cm_ring_header *header)
{
    int64_t a_second = sysconf(_SC_CLK_TCK);
    if (header->owner_start == 0 || a_second <= 0)
        return 0;
    /* The kernel reports whole ticks since boot. */
    int64_t after_boot = (int64_t)(header->owner_start + 1) * (1000000000 / a_second);
    return read_clock(CLOCK_REALTIME) - read_clock(CLOCK_BOOTTIME) + after_boot;
}

void cm_owner_write(const cm_ring_header *header, char text[CM_OWNER_TEXT])
{
    snprintf(text, CM_OWNER_TEXT, "%llu %llu %llu", (unsigned long long)header->owner_pid,
             (unsigned long long)header->owner_start, (unsigned long long)header->owner_namespace);
}

cm_owner cm_owner_find(const char *text)
{
    unsigned long long pid, birth, namespace;

    if (sscanf(text, "%llu %llu %llu", &pid, &birth, &namespace) != 3)
        return CM_OWNER_UNKNOWN;
    return find(pid, birth, namespace);
}

bool cm_ring_lock(int fd)
{
    struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
    return fcntl(fd, F_SETLK, &lock) == 0;
}

bool cm_ring_is_abandoned(const cm_ring_header *header)
{
    uint64_t alive = atomic_load(&header->alive_ns);
    struct timespec now;

    if (alive == 0 ||
        find(header->owner_pid, header->owner_start, header->owner_namespace) == CM_OWNER_GONE)
        return true;
    clock_gettime(CLOCK_REALTIME, &now);
    int64_t age = (int64_t)((uint64_t)now.tv_sec - alive / 1000000000u);
    /* A time in the future: the clock was set back, and a living owner signs again at once. */
    return age > SIGNED_S || age < -SIGNED_S;
}
