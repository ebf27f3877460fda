#include "kept_rings.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "../base/environment.h"
#include "../base/file_range.h"

enum {
    PAGE = 4096,
    BLOCK_UNIT = 512, /* of st_blocks */
    MAKING_S = 60     /* an older copy was never finished */
};

#define MAKING_PREFIX "new" CM_RING_PREFIX /* no ring file's: nothing else reads it */

static _Atomic unsigned dropped;

/* --- where ------------------------------------------------------------------------------- */

static bool is_own_folder(const char *path)
{
    struct stat st;
    return stat(path, &st) == 0 && S_ISDIR(st.st_mode) && st.st_uid == geteuid();
}

/* An existing folder of ours: under sudo a program must not write to its caller's $HOME. */
static const char *base(const char **rest)
{
    const char *state = cm_environment_get("XDG_STATE_HOME");
    const char *home = cm_environment_get("HOME");

    *rest = "/cuptimem/rings";
    if (state != NULL && state[0] == '/')
        return is_own_folder(state) ? state : NULL;
    *rest = "/.local/state/cuptimem/rings";
    return home != NULL && home[0] == '/' && is_own_folder(home) ? home : NULL;
}

bool cm_kept_folder(char *folder, size_t size)
{
    const char *rest, *start = base(&rest);
    int n = start == NULL ? -1 : snprintf(folder, size, "%s%s", start, rest);

    return n > 0 && (size_t)n < size;
}

static bool name_file(const char *prefix, uint64_t id, char *path, size_t size)
{
    char folder[CM_RING_PATH_MAX];
    int n = -1;

    if (cm_kept_folder(folder, sizeof folder))
        n = snprintf(path, size, "%s/%s%016llx", folder, prefix, (unsigned long long)id);
    return n > 0 && (size_t)n < size;
}

bool cm_kept_path(uint64_t id, char *path, size_t size)
{
    return name_file(CM_RING_PREFIX, id, path, size);
}

static bool make_folders(void)
{
    char path[CM_RING_PATH_MAX];
    const char *rest, *start = base(&rest);

    if (start == NULL || !cm_kept_folder(path, sizeof path))
        return false;
    for (char *end = path + strlen(start); end != NULL;) {
        end = strchr(end + 1, '/');
        if (end != NULL)
            *end = '\0';
        if (mkdir(path, 0700) < 0 && errno != EEXIST)
            return false;
        if (end != NULL)
            *end = '/';
    }
    return true;
}

/* --- a copy ------------------------------------------------------------------------------ */

static bool put_page(int fd, const unsigned char *bytes, size_t length, off_t at)
{
    static const unsigned char zeros[PAGE];

    return memcmp(bytes, zeros, length) == 0 || cm_write_at(fd, (uint64_t)at, bytes, length) == 0;
}

static bool put(int fd, const cm_ring_header *ring, uint64_t from, uint64_t to)
{
    for (uint64_t at = from; at < to; at += PAGE) {
        size_t length = to - at < PAGE ? (size_t)(to - at) : PAGE;
        if (!put_page(fd, (const unsigned char *)ring + at, length, (off_t)at))
            return false;
    }
    return true;
}

/* Everything but the blocks that belong to no ring: a reader reads none of those. */
static bool put_all(int fd, const cm_ring_header *ring)
{
    const cm_ring_block *blocks =
        (const cm_ring_block *)((const unsigned char *)ring + ring->blocks_offset);

    if (!put(fd, ring, 0, ring->blocks_offset))
        return false;
    for (uint32_t i = 0; i < ring->block_count; i++) {
        uint64_t at = ring->blocks_offset + (uint64_t)i * CM_BLOCK_BYTES;
        if (atomic_load_explicit(&blocks[i].owner, memory_order_relaxed) != 0 &&
            !put(fd, ring, at, at + CM_BLOCK_BYTES))
            return false;
    }
    return true;
}

static bool write_copy(int fd, const cm_ring_header *ring, int64_t last)
{
    const struct timespec times[2] = {{.tv_sec = last}, {.tv_sec = last}};
    struct rlimit limit;

    /* Past this limit the kernel also sends SIGXFSZ. */
    if (getrlimit(RLIMIT_FSIZE, &limit) == 0 && limit.rlim_cur < ring->total_bytes)
        return false;
    return ftruncate(fd, (off_t)ring->total_bytes) == 0 && put_all(fd, ring) &&
           futimens(fd, times) == 0 && fsync(fd) == 0;
}

/* The new name too, where a folder can be written out at all. */
static bool sync_folder(void)
{
    char path[CM_RING_PATH_MAX];
    int fd =
        cm_kept_folder(path, sizeof path) ? open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC) : -1;
    bool synced = fd >= 0 && (fsync(fd) == 0 || errno == EINVAL);

    if (fd >= 0)
        close(fd);
    return synced;
}

bool cm_kept_add(const cm_ring_header *ring, int64_t last)
{
    char path[CM_RING_PATH_MAX], making[CM_RING_PATH_MAX];

    if (!cm_kept_path(ring->id, path, sizeof path) ||
        !name_file(MAKING_PREFIX, ring->id, making, sizeof making) || !make_folders())
        return false;
    /* The ring is locked during a copy: another copy was never finished. */
    int fd = open(making, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (fd < 0)
        return false;
    bool good = write_copy(fd, ring, last);
    good = close(fd) == 0 && good && rename(making, path) == 0;
    if (!good)
        unlink(making);
    return good && sync_folder();
}

/* --- the bounds -------------------------------------------------------------------------- */

typedef struct kept {
    char name[NAME_MAX + 1];
    int64_t last, bytes;
} kept;

static void drop(int folder, const char *name)
{
    if (unlinkat(folder, name, 0) == 0)
        cm_kept_count_dropped();
}

/* Inserts it into a list with the newest first; the last one is dropped. */
static uint32_t insert(kept *list, uint32_t count, const kept *new, int folder)
{
    uint32_t at = count;

    while (at > 0 && list[at - 1].last < new->last)
        at--;
    if (count == CM_KEPT_MOST) {
        drop(folder, at == count ? new->name : list[count - 1].name);
        if (at == count)
            return count;
        count--;
    }
    memmove(&list[at + 1], &list[at], (count - at) * sizeof *list);
    list[at] = *new;
    return count + 1;
}

static bool begins_with(const char *name, const char *prefix)
{
    return strncmp(name, prefix, strlen(prefix)) == 0;
}

static uint32_t list_kept(DIR *folder, kept *list)
{
    int64_t now = time(NULL);
    uint32_t count = 0;
    struct stat st;
    kept found;

    for (struct dirent *entry; (entry = readdir(folder)) != NULL;) {
        bool making = begins_with(entry->d_name, MAKING_PREFIX);
        if ((!making && !begins_with(entry->d_name, CM_RING_PREFIX)) ||
            fstatat(dirfd(folder), entry->d_name, &st, AT_SYMLINK_NOFOLLOW) < 0 ||
            !S_ISREG(st.st_mode))
            continue;
        if (making ? now - st.st_ctim.tv_sec > MAKING_S : now - st.st_mtim.tv_sec > CM_KEPT_SECONDS)
            unlinkat(dirfd(folder), entry->d_name, 0);
        else if (!making) {
            snprintf(found.name, sizeof found.name, "%s", entry->d_name);
            found.last = st.st_mtim.tv_sec;
            found.bytes = (int64_t)st.st_blocks * BLOCK_UNIT;
            count = insert(list, count, &found, dirfd(folder));
        }
    }
    return count;
}

void cm_kept_trim(void)
{
    kept list[CM_KEPT_MOST];
    char path[CM_RING_PATH_MAX];
    int64_t bytes = 0;
    DIR *folder = cm_kept_folder(path, sizeof path) ? opendir(path) : NULL;

    if (folder == NULL)
        return;
    uint32_t count = list_kept(folder, list);
    for (uint32_t i = 0; i < count; i++) {
        bytes += list[i].bytes;
        if (bytes > CM_KEPT_BYTES)
            drop(dirfd(folder), list[i].name);
    }
    closedir(folder);
}

/* --- the note for the user --------------------------------------------------------------- */

void cm_kept_count_dropped(void)
{
    atomic_fetch_add(&dropped, 1);
}

bool cm_kept_take_note(char *note, size_t size)
{
    char folder[CM_RING_PATH_MAX];
    unsigned count = cm_kept_folder(folder, sizeof folder) ? atomic_exchange(&dropped, 0) : 0;

    if (count == 0)
        return false;
    snprintf(note, size,
             "the last events of %u killed program%s were removed, their traces are not where they "
             "were written; the %d newest, of at most %d MiB, are kept for 7 days in %s",
             count, count == 1 ? "" : "s", CM_KEPT_MOST, CM_KEPT_BYTES >> 20, folder);
    return true;
}
