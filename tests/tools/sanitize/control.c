/* The collector's control functions under producers, from two threads at once, and a disk that is
 * full: what was published is in the file, what ended by itself left a readable one.
 *
 *   control SEED THREADS ROUNDS FOLDER    prints: events, threads, captures, controls, ended early
 *
 * In every fourth capture the files may not grow beyond some size (RLIMIT_FSIZE). */
#define _GNU_SOURCE
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#include "../../check.h"
#include "../../../csrc/base/clock.h"
#include "../../../csrc/capture/session.h"
#include "../../../csrc/capture/ring_producer.h"
#include "../../../csrc/trace/reader.h"

static _Atomic bool over, captured;
static _Atomic uint64_t published, lost, controls;
static const char *folder;

static void nap(long microseconds)
{
    nanosleep(&(struct timespec){.tv_nsec = microseconds * 1000}, NULL);
}

/* The address says whose it is and which one. */
static void put(uint64_t number, uint64_t j)
{
    cm_producer *t = cm_enter_hook();
    if (t == NULL)
        return;
    uint32_t name = j % 64 == 0 ? cm_name_intern_text_hook("a name") : 0;
    cm_event *e = cm_reserve_hook(t);
    if (e == NULL) {
        atomic_fetch_add(&lost, 1);
    } else {
        *e = (cm_event){.time = cm_clock_now(),
                        .address = number << 40 | j,
                        .size = (int64_t)j,
                        .kind = name != 0 ? CM_EV_OBJECT_NEW : CM_EV_ALLOC,
                        .stack = name,
                        .device_index = -1};
        cm_commit_hook(t);
        atomic_fetch_add(&published, 1);
    }
    cm_leave_hook(t);
}

static void *produce(void *argument)
{
    uint64_t number = (uint64_t)(uintptr_t)argument;

    for (uint64_t j = 1; !atomic_load_explicit(&over, memory_order_relaxed); j++) {
        put(number, j);
        if (j % 200 == 0)
            nap(300);
    }
    return NULL;
}

/* What a program does with a capture that somebody else started; whatever comes of it. */
static void *meddle(void *argument)
{
    unsigned random = (unsigned)(uintptr_t)argument;

    while (!atomic_load(&over)) {
        switch (rand_r(&random) % 6) {
        case 0:
            cm_session_sync();
            break;
        case 1:
            if (cm_session_pause() == 0) {
                nap(rand_r(&random) % 1000);
                CHECK(cm_session_resume() == 0 || !atomic_load(&captured));
            }
            break;
        case 2:
            cm_session_get_counts();
            break;
        case 3:
            cm_session_active();
            break;
        default:
            nap(rand_r(&random) % 3000);
        }
        atomic_fetch_add(&controls, 1);
    }
    return NULL;
}

static void limit_files(rlim_t bytes)
{
    struct rlimit limit;

    CHECK(getrlimit(RLIMIT_FSIZE, &limit) == 0);
    limit.rlim_cur = bytes < limit.rlim_max ? bytes : limit.rlim_max;
    CHECK(setrlimit(RLIMIT_FSIZE, &limit) == 0);
}

/* How many of a producer's events a trace has; each producer's come in their order. */
static uint64_t count_events(const char *path, uint64_t threads, bool whole)
{
    char error[256];
    cm_record record;
    uint64_t events = 0, *last = calloc(threads + 1, sizeof *last);
    cm_reader *reader = cm_reader_open(path, error, sizeof error);
    int got;

    CHECK(reader != NULL && last != NULL);
    while ((got = cm_reader_next(reader, &record)) == 1) {
        if (record.event.kind != CM_EV_ALLOC && record.event.kind != CM_EV_OBJECT_NEW)
            continue;
        uint64_t number = record.event.address >> 40;
        uint64_t j = record.event.address & ((UINT64_C(1) << 40) - 1);
        CHECK(number <= threads && j > last[number] && (uint64_t)record.event.size == j);
        last[number] = j;
        events++;
    }
    CHECK(got == 0);
    if (whole)
        CHECK(cm_reader_get_state(reader) == CM_TRACE_COMPLETE);
    cm_reader_close(reader);
    free(last);
    return events;
}

int main(int count, char **words)
{
    CHECK(count == 5);
    unsigned random = (unsigned)strtoul(words[1], NULL, 10);
    size_t threads = strtoul(words[2], NULL, 10);
    uint64_t rounds = strtoull(words[3], NULL, 10), total = 0, early = 0;
    folder = words[4];
    pthread_t *thread = calloc(threads, sizeof *thread), meddler;
    CHECK(thread != NULL);
    signal(SIGXFSZ, SIG_IGN);
    for (uint64_t round = 0; round < rounds; round++) {
        char path[512], error[CM_SESSION_ERROR_SIZE], warning[CM_SESSION_ERROR_SIZE];
        bool tight = round % 4 == 3;
        snprintf(path, sizeof path, "%s/control.cmem", folder);
        cm_session_options options = {
            .path = path, .overwrite = true, .ring_bytes = 1 << 20, .ring_dir = folder};
        if (cm_session_start(&options, error, sizeof error) < 0) {
            fprintf(stderr, "%s\n", error);
            return 1;
        }
        published = lost = 0;
        if (tight)
            limit_files(2000 + (rlim_t)rand_r(&random) % 20000);
        if (round == 0) { /* hooks are there once a first capture has begun */
            for (size_t i = 0; i < threads; i++)
                CHECK(pthread_create(&thread[i], NULL, produce, (void *)(uintptr_t)(i + 1)) == 0);
            CHECK(pthread_create(&meddler, NULL, meddle, (void *)(uintptr_t)random) == 0);
        }
        atomic_store(&captured, true);
        cm_session_record(true);
        for (int i = rand_r(&random) % 8; i > 0; i--) {
            nap(rand_r(&random) % 20000);
            if (rand_r(&random) % 3 == 0) {
                cm_session_record(false);
                nap(200);
                cm_session_record(true);
            }
            if (rand_r(&random) % 3 == 0)
                cm_session_sync();
        }
        cm_session_record(false);
        atomic_store(&captured, false);
        int stopped = cm_session_stop(NULL, warning, sizeof warning);
        bool ended_early = stopped < 0 || warning[0] != '\0';
        limit_files(RLIM_INFINITY);
        uint64_t events = count_events(path, threads, !tight);
        early += ended_early;
        if (tight)
            CHECK(events <= published);
        else
            CHECK(!ended_early && events == published);
        total += published;
    }
    atomic_store(&over, true);
    for (size_t i = 0; i < threads; i++)
        pthread_join(thread[i], NULL);
    pthread_join(meddler, NULL);
    printf("%llu %zu %llu %llu %llu\n", (unsigned long long)total, threads + 1,
           (unsigned long long)rounds, (unsigned long long)controls, (unsigned long long)early);
    free(thread);
    return 0;
}
