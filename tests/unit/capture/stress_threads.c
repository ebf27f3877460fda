/* The modes of stress.c that are about rings and blocks of threads that come, stay, rest and end.
 */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "../../../csrc/capture/ringfile.h"
#include "../../../csrc/capture/session.h"
#include "producers.h"

static _Atomic uint64_t whose_turn;

static void *produce_and_wait(void *argument)
{
    producer *p = argument;
    for (uint64_t j = 1; j <= 2; j++) {
        while (atomic_load(&whose_turn) != p->number)
            nap(200);
        wait_for_room();
        put_pair(p->count, p->number, j);
        atomic_fetch_add(&whose_turn, 1);
        pthread_barrier_wait(p->barrier);
    }
    return NULL;
}

/* More threads than blocks, each holding one: they must come back while the threads live. */
int hold_and_wait(const char *path, uint64_t threads)
{
    uint64_t published, lost;
    pthread_barrier_t barrier;

    start(path, 1 << 20);
    cm_session_record(true);
    pthread_barrier_init(&barrier, NULL, (unsigned)threads + 1);
    producer *all = start_all(threads, 0, produce_and_wait, &barrier);
    for (int round = 0; round < 2; round++) {
        atomic_store(&whose_turn, 1);
        pthread_barrier_wait(&barrier);
    }
    join_all(all, threads, &published, &lost);
    stop();
    pthread_barrier_destroy(&barrier);
    say(published, lost);
    return 0;
}

/* A few events, a little rest: the collector takes blocks away while hooks begin and end. */
static void *produce_with_rests(void *argument)
{
    producer *p = argument;
    unsigned random = (unsigned)p->number;
    dawdle = 11;
    for (uint64_t j = 1; j <= p->pairs; j++) {
        put_pair(p->count, p->number, j);
        if (rand_r(&random) % 4 == 0)
            nap(rand_r(&random) % 1500);
    }
    return NULL;
}

int churn(const char *path, uint64_t threads, uint64_t times)
{
    uint64_t published, lost;

    start(path, 1 << 20);
    cm_session_record(true);
    join_all(start_all(threads, times, produce_with_rests, NULL), threads, &published, &lost);
    stop();
    say(published, lost);
    return 0;
}

static void one_after_the_other(uint64_t first, uint64_t threads, bool patient, tally *count)
{
    for (uint64_t i = 0; i < threads; i++) {
        producer p = {.number = first + i, .pairs = 2, .count = count};
        if (patient)
            wait_for_room();
        CHECK(pthread_create(&p.thread, NULL, produce, &p) == 0);
        CHECK(pthread_join(p.thread, NULL) == 0);
    }
}

int one_by_one(const char *path, uint64_t threads)
{
    tally count = {0};

    start(path, 0);
    cm_session_record(true);
    one_after_the_other(1, threads, true, &count);
    stop();
    say(count.published, count.lost);
    return 0;
}

/* What a machine that is too busy for the collector does to many short threads, made to happen:
 * nothing comes back until it runs. Then there is room again for those who come after. */
int burst(const char *path, uint64_t threads)
{
    tally during = {0}, after = {0};

    start(path, 0);
    cm_session_record(true);
    CHECK(cm_session_pause() == 0);
    one_after_the_other(1, threads, false, &during);
    uint64_t blocks = cm_blockpool.count;
    CHECK(cm_session_resume() == 0);
    one_after_the_other(threads + 1, threads, true, &after);
    stop();
    printf("%llu ", (unsigned long long)blocks);
    say(during.published, during.lost);
    say(after.published, after.lost);
    return 0;
}

static void *produce_between(void *argument)
{
    producer *p = argument;
    pthread_barrier_wait(p->barrier);
    produce(p);
    pthread_barrier_wait(p->barrier);
    return NULL;
}

int together(const char *path, uint64_t threads)
{
    uint64_t published, lost;
    pthread_barrier_t barrier;

    start(path, 0);
    cm_session_record(true);
    pthread_barrier_init(&barrier, NULL, (unsigned)threads);
    join_all(start_all(threads, 32, produce_between, &barrier), threads, &published, &lost);
    cm_session_counts counts = cm_session_get_counts();
    stop();
    pthread_barrier_destroy(&barrier);
    printf("%llu ", (unsigned long long)counts.profiler_bytes);
    say(published, lost);
    return 0;
}

static pthread_key_t key;
static tally key_count;

static void at_thread_exit(void *value)
{
    static _Thread_local int rounds;
    put_pair(&key_count, (uint64_t)(uintptr_t)value, (uint64_t)++rounds + 1);
    if (rounds < 3)
        pthread_setspecific(key, value);
}

static void *die_slowly(void *argument)
{
    pthread_setspecific(key, argument);
    put_pair(&key_count, (uint64_t)(uintptr_t)argument, 1);
    return NULL;
}

int exits(const char *path)
{
    pthread_t thread;

    pthread_key_create(&key, at_thread_exit);
    start(path, 0);
    cm_session_record(true);
    for (uintptr_t i = 1; i <= 200; i++) {
        CHECK(pthread_create(&thread, NULL, die_slowly, (void *)i) == 0);
        CHECK(pthread_join(thread, NULL) == 0);
    }
    stop();
    say(key_count.published, key_count.lost);
    return 0;
}
