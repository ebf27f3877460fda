/* SIGKILL at a chosen call: linked with --wrap for each function below.
 *
 * STRESS_KILL=FUNCTION:N:before|half|after    the N-th call (from 1); `half`: with half of its
 * bytes in the file. Without it nothing happens. */
#define _GNU_SOURCE
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "../../../csrc/trace/format.h"
#include "../../../csrc/trace/side_file.h"
#include "../../../csrc/trace/writer.h"
#include "stress.h"

typedef struct moment {
    bool before, half, after;
} moment;

static moment now(const char *function)
{
    static _Atomic unsigned calls;
    char name[32] = "", when[16] = "";
    const char *wish = getenv("STRESS_KILL");
    unsigned nth = 0;

    if (wish == NULL || sscanf(wish, "%31[^:]:%u:%15s", name, &nth, when) != 3 ||
        strcmp(name, function) != 0 || atomic_fetch_add(&calls, 1) + 1 != nth)
        return (moment){0};
    return (moment){.before = strcmp(when, "before") == 0,
                    .half = strcmp(when, "half") == 0,
                    .after = strcmp(when, "after") == 0};
}

static void die_if(bool so)
{
    if (so) {
        kill(getpid(), SIGKILL);
        for (;;)
            pause();
    }
}

#define WRAP(type, name, parameters, arguments)                                                    \
    type __real_##name parameters;                                                                 \
    type __wrap_##name parameters;                                                                 \
    type __wrap_##name parameters                                                                  \
    {                                                                                              \
        moment m = now(#name + 3);                                                                 \
        die_if(m.before);                                                                          \
        type result = __real_##name arguments;                                                     \
        die_if(m.after || m.half);                                                                 \
        return result;                                                                             \
    }

WRAP(int, cm_writer_create, (const char *path, bool overwrite, mode_t mode, cm_writer **out),
     (path, overwrite, mode, out))
WRAP(int, cm_writer_meta, (cm_writer * writer, const char *const *pairs), (writer, pairs))
WRAP(int, cm_writer_end,
     (cm_writer * writer, uint64_t events, uint64_t lost, uint64_t stacks, const char *reason),
     (writer, events, lost, stacks, reason))
WRAP(int, cm_writer_close, (cm_writer * writer), (writer))
WRAP(int, cm_frames_begin, (void), ())

WRAP(int, cm_side_create, (const char *path, uint64_t ring_id, uint64_t bytes, cm_side **out),
     (path, ring_id, bytes, out))

#define WRAP_VOID(name, parameters, arguments)                                                     \
    void __real_##name parameters;                                                                 \
    void __wrap_##name parameters;                                                                 \
    void __wrap_##name parameters                                                                  \
    {                                                                                              \
        moment m = now(#name + 3);                                                                 \
        die_if(m.before);                                                                          \
        __real_##name arguments;                                                                   \
        die_if(m.after || m.half);                                                                 \
    }

WRAP_VOID(cm_side_release, (cm_side * side), (side))
WRAP_VOID(cm_side_close, (cm_side * side, bool and_remove), (side, and_remove))

int __real_cm_side_append(cm_side *side, const void *bytes, size_t length);
int __wrap_cm_side_append(cm_side *side, const void *bytes, size_t length);
int __wrap_cm_side_append(cm_side *side, const void *bytes, size_t length)
{
    moment m = now("side_append");
    die_if(m.before);
    int result = __real_cm_side_append(side, bytes, m.half ? length / 2 : length);
    die_if(m.half || m.after);
    return result;
}

/* The first bytes of a side file: before them it is there, and empty. */
ssize_t __real_pwrite(int fd, const void *bytes, size_t length, off_t offset);
ssize_t __wrap_pwrite(int fd, const void *bytes, size_t length, off_t offset);
ssize_t __wrap_pwrite(int fd, const void *bytes, size_t length, off_t offset)
{
    bool first = length >= 8 && memcmp(bytes, CM_SIDE_MAGIC, 8) == 0;
    moment m = first ? now("side_header") : (moment){0};
    die_if(m.before);
    ssize_t result = __real_pwrite(fd, bytes, length, offset);
    die_if(m.after);
    return result;
}

/* Called between the collector's look at how many rings there are and its look at each. */
void (*stress_between)(void);

uint32_t __real_cm_producers_high(void);
uint32_t __wrap_cm_producers_high(void);
uint32_t __wrap_cm_producers_high(void)
{
    uint32_t high = __real_cm_producers_high();
    if (stress_between != NULL)
        stress_between();
    return high;
}

int __real_cm_writer_chunk(cm_writer *writer, const void *bytes, size_t length);
int __wrap_cm_writer_chunk(cm_writer *writer, const void *bytes, size_t length);
int __wrap_cm_writer_chunk(cm_writer *writer, const void *bytes, size_t length)
{
    moment m = now("writer_chunk");
    die_if(m.before);
    int result = __real_cm_writer_chunk(writer, bytes, m.half ? length / 2 : length);
    die_if(m.half || m.after);
    return result;
}

void __real_cm_blockpool_give(uint32_t index);
void __wrap_cm_blockpool_give(uint32_t index);
void __wrap_cm_blockpool_give(uint32_t index)
{
    moment m = now("blockpool_give");
    die_if(m.before);
    __real_cm_blockpool_give(index);
    die_if(m.half || m.after);
}
