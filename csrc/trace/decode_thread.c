#define _GNU_SOURCE
#include "decode_thread.h"

#include <sched.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "../base/helper_thread.h"
#include "reader_parts.h"

enum {
    BATCH = 1024,
    BATCHES = 32, /* 1.3 MiB: a lead of 1 to 2 ms, should the thread wait for a core */
    REFILL = 16,  /* a full queue sleeps until so many are used: fewer wakes */
    STACK_SIZE = 1 << 18
};

typedef struct batch {
    cm_decoded decoded;
    int end; /* after its records: 1 more follow, else as cm_reader_next */
    cm_record record[BATCH];
} batch;

struct cm_decode_thread {
    cm_reader *reader;
    uint64_t limit;
    pid_t owner;
    pthread_t thread;
    int32_t id;
    pthread_mutex_t mutex;
    pthread_cond_t filled, used;
    uint64_t made, taken; /* batches */
    bool waits, stop;
    cm_decoded none; /* at hand before the first batch */
    cm_decoded *at;
    int end;
    batch queue[BATCHES];
};

/* Waits until at most `most` batches are in use or wait to be. false: the reading ends. */
static bool wait_for_room(cm_decode_thread *t, uint64_t most)
{
    pthread_mutex_lock(&t->mutex);
    if (t->made - t->taken > most) {
        pthread_cond_signal(&t->filled); /* else at the end only: fewer wakes */
        uint64_t least = most < BATCHES - 1 ? most : BATCHES - REFILL;
        while (!t->stop && t->made - t->taken > least) {
            t->waits = true;
            pthread_cond_wait(&t->used, &t->mutex);
        }
    }
    bool goes_on = !t->stop;
    pthread_mutex_unlock(&t->mutex);
    return goes_on;
}

static void wait_until_used(void *thread)
{
    wait_for_room(thread, 0);
}

static void fill(cm_decode_thread *t, batch *b)
{
    size_t room = t->limit < BATCH ? (size_t)t->limit : BATCH, count = 0;
    b->end = 0;
    if (room > 0)
        b->end = cm_reader_next_few(t->reader, b->record, room, &count);
    t->limit -= count;
    b->decoded.first = b->decoded.next = b->record;
    b->decoded.end = b->record + count;
    b->decoded.place = cm_reader_tell(t->reader);
    b->decoded.place.records -= count;
    b->decoded.progress = cm_reader_progress(t->reader);
}

static void *decode(void *argument)
{
    cm_decode_thread *t = argument;
    batch *b;
    t->id = (int32_t)syscall(SYS_gettid);
    do {
        if (!wait_for_room(t, BATCHES - 1))
            return NULL;
        b = &t->queue[t->made % BATCHES];
        fill(t, b);
        pthread_mutex_lock(&t->mutex);
        t->made++;
        if (b->end != 1)
            pthread_cond_signal(&t->filled);
        pthread_mutex_unlock(&t->mutex);
    } while (b->end == 1);
    return NULL;
}

static bool has_cores(void)
{
    cpu_set_t cores;
    /* It fails where there are more than the set has room for. */
    return sched_getaffinity(0, sizeof cores, &cores) < 0 || CPU_COUNT(&cores) > 1;
}

cm_decode_thread *cm_decode_thread_begin(cm_reader *reader, uint64_t limit)
{
    cm_decode_thread *t = has_cores() ? malloc(sizeof *t) : NULL;
    if (t == NULL)
        return NULL;
    t->reader = reader;
    t->limit = limit;
    t->owner = getpid();
    t->made = t->taken = 0;
    t->waits = t->stop = false;
    t->end = 1;
    t->none = (cm_decoded){.place = cm_reader_tell(reader), .progress = cm_reader_progress(reader)};
    t->at = &t->none;
    pthread_mutex_init(&t->mutex, NULL);
    pthread_cond_init(&t->filled, NULL);
    pthread_cond_init(&t->used, NULL);
    reader->before_definitions = wait_until_used;
    reader->waiter = t;
    if (cm_helper_start(&t->thread, decode, t, STACK_SIZE) == 0)
        return t;
    reader->before_definitions = NULL;
    free(t);
    return NULL;
}

/* After a fork the thread and its locks are the parent's: they are lost to the child. */
static int fail_forked(cm_decode_thread *t)
{
    t->reader->before_definitions = NULL;
    return cm_reader_fail(t->reader, "a reading that has begun cannot go on in a forked process");
}

int cm_decode_thread_end(cm_decode_thread *t)
{
    if (t == NULL)
        return 1;
    if (t->owner != getpid())
        return fail_forked(t);
    pthread_mutex_lock(&t->mutex);
    t->stop = true;
    pthread_cond_signal(&t->used);
    pthread_mutex_unlock(&t->mutex);
    cm_helper_join(t->thread, &t->id);
    t->reader->before_definitions = NULL;
    cm_reader_place here = cm_decode_thread_tell(t), there = cm_reader_tell(t->reader);
    bool ahead = here.chunk != there.chunk || here.records != there.records;
    /* At its end the reader is in no chunk: all that was read was taken. */
    int got = ahead && t->end == 1 ? cm_reader_seek(t->reader, &here) : 1;
    pthread_cond_destroy(&t->filled);
    pthread_cond_destroy(&t->used);
    pthread_mutex_destroy(&t->mutex);
    free(t);
    return got;
}

cm_decoded *cm_decode_thread_at(cm_decode_thread *t)
{
    return t->at;
}

int cm_decode_thread_more(cm_decode_thread *t)
{
    while (t->at->next == t->at->end) {
        if (t->at != &t->none) {
            const batch *b = &t->queue[t->taken % BATCHES];
            if (b->end != 1)
                return t->end = b->end;
        }
        if (t->owner != getpid())
            return fail_forked(t);
        pthread_mutex_lock(&t->mutex);
        t->taken += t->at != &t->none;
        if (t->waits && (t->made - t->taken <= BATCHES - REFILL || t->made == t->taken)) {
            t->waits = false;
            pthread_cond_signal(&t->used);
        }
        while (t->made == t->taken)
            pthread_cond_wait(&t->filled, &t->mutex);
        t->at = &t->queue[t->taken % BATCHES].decoded;
        pthread_mutex_unlock(&t->mutex);
    }
    return 1;
}

cm_reader_place cm_decode_thread_tell(const cm_decode_thread *t)
{
    cm_reader_place place = t->at->place;
    place.records += (uint64_t)(t->at->next - t->at->first);
    return place;
}
