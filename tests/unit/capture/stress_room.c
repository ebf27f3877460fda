/* Where a ring may lie, and what happens while it moves there.
 *
 * STRESS_ROOM=TOTAL:FREE    what statvfs says of every folder, in bytes
 * STRESS_NETWORK=1          what statfs says of every folder: a network's
 * STRESS_SLOW=MS            how long a file takes to get its blocks, and then the rings' place */
#define _GNU_SOURCE
#include <fcntl.h>
#include <linux/magic.h>
#include <signal.h>
#include <sys/statvfs.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "../../../csrc/capture/ringfile.h"
#include "../../../csrc/capture/session.h"
#include "producers.h"

int __real_statvfs(const char *path, struct statvfs *fs);
int __wrap_statvfs(const char *path, struct statvfs *fs);
int __wrap_statvfs(const char *path, struct statvfs *fs)
{
    const char *room = getenv("STRESS_ROOM");
    unsigned long long total, free_bytes;

    if (room == NULL)
        return __real_statvfs(path, fs);
    CHECK(sscanf(room, "%llu:%llu", &total, &free_bytes) == 2);
    *fs = (struct statvfs){.f_bsize = 4096,
                           .f_frsize = 4096,
                           .f_blocks = total / 4096,
                           .f_bfree = free_bytes / 4096,
                           .f_bavail = free_bytes / 4096};
    return 0;
}

int __real_statfs(const char *path, struct statfs *fs);
int __wrap_statfs(const char *path, struct statfs *fs);
int __wrap_statfs(const char *path, struct statfs *fs)
{
    const char *network = getenv("STRESS_NETWORK");
    int status = __real_statfs(path, fs);

    if (network != NULL && network[0] != '\0')
        fs->f_type = NFS_SUPER_MAGIC;
    return status;
}

int __real_posix_fallocate(int fd, off_t offset, off_t length);
int __wrap_posix_fallocate(int fd, off_t offset, off_t length);
int __wrap_posix_fallocate(int fd, off_t offset, off_t length)
{
    if (getenv("STRESS_SLOW") != NULL)
        nap(atol(getenv("STRESS_SLOW")) * 1000);
    return __real_posix_fallocate(fd, offset, length);
}

/* All that was written is in the file by now. */
void *__real_mremap(void *from, size_t size, size_t new_size, int flags, void *to);
void *__wrap_mremap(void *from, size_t size, size_t new_size, int flags, void *to);
void *__wrap_mremap(void *from, size_t size, size_t new_size, int flags, void *to)
{
    if (getenv("STRESS_SLOW") != NULL)
        nap(atol(getenv("STRESS_SLOW")) * 1000);
    return __real_mremap(from, size, new_size, flags, to);
}

static void say_place(void)
{
    printf("%d %llu\n", cm_ringfile.place, (unsigned long long)cm_ringfile.file_bytes);
    fflush(stdout);
}

int take_room(const char *path)
{
    char line[8];

    CHECK(fgets(line, sizeof line, stdin) != NULL); /* all at once */
    start(path, 0);
    say_place();
    CHECK(fgets(line, sizeof line, stdin) != NULL);
    stop();
    return 0;
}

static void share_when_idle(void)
{
    cm_session_share();
}

static atomic_bool moved;

/* Publishes all the time until the rings have moved, and then all its pairs. */
static void *produce_around(void *argument)
{
    producer *p = argument;
    uint64_t j = 0;

    while (!atomic_load(&moved)) {
        if (++j % 16 == 0) /* a name: its mutex alone would hold the thread */
            nap(50);
        else
            put_pair(p->count, p->number, j);
    }
    for (uint64_t i = 0; i < p->pairs; i++)
        put_pair(p->count, p->number, ++j);
    return NULL;
}

int move(const char *path, uint64_t threads, uint64_t pairs, bool by_collector)
{
    uint64_t published, lost;

    later = true;
    start(path, 0);
    CHECK(cm_session_waits() && !cm_ringfile_exists() && cm_ringfile.place == CM_RING_PLACE_NONE);
    cm_session_record(true);
    producer *all = start_all(threads, pairs, produce_around, NULL);
    while (cm_session_get_counts().events < threads * pairs)
        nap(100);
    if (by_collector)
        cm_session_set_idle_callback(share_when_idle);
    while (cm_session_waits())
        if (by_collector)
            nap(1000);
        else
            CHECK(cm_session_share() == 0);
    CHECK(cm_ringfile_exists() && cm_session_share() == 0);
    atomic_store(&moved, true);
    join_all(all, threads, &published, &lost);
    say_place();
    say(published, lost);
    if (getenv("STRESS_DIE") != NULL) {
        fflush(stdout);
        kill(getpid(), SIGKILL);
    }
    cm_session_set_idle_callback(NULL);
    stop();
    return 0;
}

/* Nothing was asked for that makes a file. */
int never_move(const char *path)
{
    char line[8];

    later = true;
    start(path, 0);
    cm_session_record(true);
    tally count = {0};
    for (uint64_t j = 1; j <= 100; j++)
        put_pair(&count, 1, j);
    CHECK(cm_session_sync() == 0);
    say_place();
    say(atomic_load(&count.published), atomic_load(&count.lost));
    fflush(stdout);
    CHECK(fgets(line, sizeof line, stdin) != NULL);
    stop();
    return 0;
}
