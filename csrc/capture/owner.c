#include "owner.h"

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

/* Fields of /proc/PID/stat behind the name, which may hold anything, a bracket too. */
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

static bool is_of_our_namespace(const cm_ring_header *header)
{
    return header->owner_pid != 0 && header->owner_namespace != 0 &&
           header->owner_namespace == own_namespace();
}

bool cm_owner_may_be(const cm_ring_header *header, pid_t pid)
{
    return !is_of_our_namespace(header) || (uint64_t)pid == header->owner_pid;
}

typedef enum existence { UNKNOWN, RUNS, GONE } existence;

static existence look_up(uint64_t pid, char *state, uint64_t *threads, uint64_t *start)
{
    char path[64], text[1024];

    snprintf(path, sizeof path, "/proc/%llu/stat", (unsigned long long)pid);
    ssize_t n = read_text(path, text, sizeof text);
    if (n < 0)
        return n == -ENOENT || n == -ESRCH ? GONE : UNKNOWN;
    return parse(text, state, threads, start) ? RUNS : UNKNOWN;
}

void cm_owner_sign(cm_ring_header *header)
{
    uint64_t threads = 0, start = 0;
    char state = 0;

    if (look_up((uint64_t)getpid(), &state, &threads, &start) != RUNS)
        return;
    header->owner_namespace = own_namespace();
    header->owner_start = start;
    header->owner_pid = (uint64_t)getpid();
}

static existence owner_of(const cm_ring_header *header)
{
    uint64_t threads = 0, start = 0;
    char state = 0;

    if (!is_of_our_namespace(header))
        return UNKNOWN;
    existence found = look_up(header->owner_pid, &state, &threads, &start);
    if (found != RUNS)
        return found;
    if (start != header->owner_start)
        return GONE; /* the number was given to another one */
    /* A zombie waits for its parent only; but a dead main thread may have left others. */
    return (state == 'Z' || state == 'X') && threads <= 1 ? GONE : RUNS;
}

bool cm_ring_is_abandoned(const cm_ring_header *header)
{
    uint64_t alive = atomic_load(&header->alive_ns);
    struct timespec now;

    if (alive == 0 || owner_of(header) == GONE)
        return true;
    clock_gettime(CLOCK_REALTIME, &now);
    int64_t age = (int64_t)((uint64_t)now.tv_sec - alive / 1000000000u);
    /* Signed in the future: the clock was set back, and a living owner signs again at once. */
    return age > SIGNED_S || age < -SIGNED_S;
}
