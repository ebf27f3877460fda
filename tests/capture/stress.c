/* Producers without Python, and a check of what their trace says, event by event.
 *
 *   stress make PATH THREADS PAIRS [RING_BYTES]    a capture from start to stop
 *   stress kill FOLDER RING_BYTES RATE             captures without end, FOLDER/counters says what
 *                                                  each has published; until somebody kills it
 *   stress verify PATH                             reads it: one line of numbers
 *   stress handoff PATH BLOCKS FILLERS             allocated in one thread, freed in another
 *   stress overtake PATH BLOCKS [RING_BYTES]       the same while the collector reads the heads
 *   stress idle PATH THREADS                       threads that hold blocks and do nothing
 *   stress churn PATH THREADS TIMES                threads that come and go all the time
 *   stress short PATH THREADS                      one after the other, none while rings are scarce
 *   stress burst PATH THREADS                      one after the other, the collector stopped
 *   stress together PATH THREADS                   all alive at once
 *   stress full PATH PAIRS                         the collector is stopped: rings fill up
 *   stress fork FOLDER                             a child with its own capture, and others
 *   stress exits PATH                              events from destructors of an ending thread
 *   stress again FOLDER TIMES                      captures one after the other, same threads
 *   stress sweep FOLDER                            how many orphans were handled
 *   stress bench PATH                              nanoseconds of a hook
 *
 * Producer n's pair j is: [a name, in every 16th pair,] ALLOC n << 32 | j << 6, FREE of it. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "../../csrc/capture/clock.h"
#include "../../csrc/capture/orphan.h"
#include "../../csrc/capture/ring.h"
#include "../../csrc/capture/session.h"
#include "../../csrc/capture/thread.h"
#include "../../csrc/trace/reader.h"
#include "stress.h"

#define CHECK(condition)                                                                           \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #condition);                        \
            exit(1);                                                                               \
        }                                                                                          \
    } while (0)

static void start(const char *path, uint64_t ring_bytes)
{
    char error[CM_SESSION_ERROR_SIZE];
    const char *folder = getenv("STRESS_RING_DIR");
    cm_session_options options = {
        .path = path, .overwrite = true, .ring_bytes = ring_bytes, .ring_dir = folder};
    const char *bound = getenv("STRESS_MAX_SIZE"); /* with the smallest side file */
    if (bound != NULL) {
        options.max_size = strtoull(bound, NULL, 0);
        options.side_bytes = 1;
    }

    cm_session_sweep(&options);
    if (cm_session_start(&options, error, sizeof error) < 0) {
        fprintf(stderr, "%s\n", error);
        exit(1);
    }
}

static void stop(void)
{
    char warning[CM_SESSION_ERROR_SIZE];

    cm_session_record(false);
    CHECK(cm_session_stop(NULL, warning, sizeof warning) == 0);
    if (warning[0] != '\0') {
        fprintf(stderr, "%s\n", warning);
        exit(1);
    }
}

static void nap(long microseconds)
{
    nanosleep(&(struct timespec){.tv_sec = microseconds / 1000000,
                                 .tv_nsec = microseconds % 1000000 * 1000},
              NULL);
}

/* How soon the collector gives rings and blocks back is the machine's affair: whoever must lose
 * nothing, and wants more of them one after the other than there are, waits here for it. */
static void wait_for_room(void)
{
    while (cm_threads_in_use() > CM_RING_COUNT / 2 ||
           atomic_load(&cm_the_space.used) > cm_the_space.block_count / 2)
        nap(100);
}

/* The capture that a thread's events are meant for, 0 = any: what a pair began in one must not end
 * up in the next. */
static _Thread_local uint32_t only;

/* One in so many hooks dawdles between taking its place and publishing; 0 = none does. */
static _Thread_local unsigned dawdle, hooks;

/* As the hooks of csrc/sources have it. */
static uint64_t now(uint8_t kind)
{
    return kind == CM_EV_FREE ? cm_clock_after_loads() : cm_clock_now();
}

static void put(tally *count, uint8_t kind, uint64_t address, int64_t size, const char *name)
{
    cm_thread *t = cm_enter_hook();
    if (t == NULL)
        return;
    if (only != 0 && only != cm_self.capture) {
        cm_leave_hook(t);
        return;
    }
    uint32_t id = name != NULL ? cm_name_intern_text_hook(name) : 0;
    cm_event *e = cm_reserve_hook(t);
    if (e == NULL) {
        atomic_fetch_add_explicit(&count->lost, 1, memory_order_release);
    } else {
        *e = (cm_event){.time = now(kind),
                        .address = address,
                        .size = size,
                        .kind = kind,
                        .stack = id,
                        .device_index = -1};
        if (dawdle != 0 && ++hooks % dawdle == 0) {
            nap(hooks % 700);
            *e = (cm_event){.time = now(kind),
                            .address = address,
                            .size = size,
                            .kind = kind,
                            .stack = id,
                            .device_index = -1};
        }
        cm_commit_hook(t);
        atomic_fetch_add_explicit(&count->published, 1, memory_order_release);
    }
    cm_leave_hook(t);
}

static void put_pair(tally *count, uint64_t n, uint64_t j)
{
    uint64_t address = n << 32 | j << 6;

    if (j % 16 == 1) {
        char name[160];
        snprintf(name, sizeof name, NAME_FORMAT, (unsigned long long)n, (unsigned long long)j, 0);
        put(count, CM_EV_OBJECT_NEW, address, 1, name);
    }
    put(count, CM_EV_ALLOC, address, (int64_t)j, NULL);
    put(count, CM_EV_FREE, address, (int64_t)j, NULL);
}

typedef struct producer {
    pthread_t thread;
    uint64_t number, pairs;
    tally own, *count;
    pthread_barrier_t *barrier;
} producer;

static void *produce(void *argument)
{
    producer *p = argument;
    for (uint64_t j = 1; j <= p->pairs; j++)
        put_pair(p->count, p->number, j);
    return NULL;
}

static producer *start_all(uint64_t threads, uint64_t pairs, void *(*work)(void *),
                           pthread_barrier_t *barrier)
{
    producer *all = calloc(threads, sizeof *all);
    pthread_attr_t attributes;

    CHECK(all != NULL);
    pthread_attr_init(&attributes);
    pthread_attr_setstacksize(&attributes, 256 << 10);
    for (uint64_t i = 0; i < threads; i++) {
        all[i].number = i + 1;
        all[i].pairs = pairs;
        all[i].count = &all[i].own;
        all[i].barrier = barrier;
        CHECK(pthread_create(&all[i].thread, &attributes, work, &all[i]) == 0);
    }
    pthread_attr_destroy(&attributes);
    return all;
}

static void join_all(producer *all, uint64_t threads, uint64_t *published, uint64_t *lost)
{
    *published = *lost = 0;
    for (uint64_t i = 0; i < threads; i++) {
        CHECK(pthread_join(all[i].thread, NULL) == 0);
        *published += all[i].own.published;
        *lost += all[i].own.lost;
    }
    free(all);
}

static void say(uint64_t published, uint64_t lost)
{
    printf("%llu %llu\n", (unsigned long long)published, (unsigned long long)lost);
}

/* --- the modes ----------------------------------------------------------------------------- */

static int make(const char *path, uint64_t threads, uint64_t pairs, uint64_t ring_bytes)
{
    uint64_t published, lost;

    start(path, ring_bytes);
    cm_session_record(true);
    join_all(start_all(threads, pairs, produce, NULL), threads, &published, &lost);
    stop();
    say(published, lost);
    return 0;
}

static struct {
    counters *shared;
    unsigned rate;
} killing;

/* Lives on over all captures; a pair belongs to the capture that was running when it began. */
static void *produce_for_ever(void *argument)
{
    producer *p = argument;
    uint64_t j = 0;

    for (unsigned done = 0;; done++) {
        uint32_t now = atomic_load(cm_recording);
        if (now == 0) {
            nap(50);
            continue;
        }
        if (now != only)
            j = 0;
        only = now;
        put_pair(&killing.shared->of[now - 1][p->number], p->number, ++j);
        if (killing.rate != 0 && done % killing.rate == 0)
            nap(500);
    }
    return NULL;
}

static int kill_me(const char *folder, uint64_t ring_bytes, unsigned rate)
{
    char path[4096];
    unsigned random = (unsigned)getpid();

    snprintf(path, sizeof path, "%s/counters", folder);
    int fd = open(path, O_RDWR | O_CREAT, 0600);
    CHECK(fd >= 0 && ftruncate(fd, sizeof(counters)) == 0);
    killing.shared = mmap(NULL, sizeof(counters), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    CHECK(killing.shared != MAP_FAILED);
    killing.rate = rate;
    pthread_barrier_t none;
    producer *all = start_all(PRODUCERS - 1, 0, produce_for_ever, &none);
    for (uint64_t i = 0; i < CAPTURES; i++) {
        snprintf(path, sizeof path, "%s/%llu.cmem", folder, (unsigned long long)i);
        start(path, ring_bytes);
        atomic_store(&killing.shared->begun, i + 1);
        cm_session_record(true);
        /* Some captures are over at once, so that many a kill hits a start or a stop. */
        nap((long)(rand_r(&random) % 3 ? rand_r(&random) % 40000 : rand_r(&random) % 1000));
        if (rand_r(&random) % 3 == 0)
            cm_session_sync();
        stop();
        atomic_store(&killing.shared->ended, i + 1);
    }
    free(all);
    _exit(0);
}

typedef struct handoff {
    _Atomic uint64_t slot;
    uint64_t blocks;
    tally count;
} handoff;

/* Waits for the other thread: a little by spinning, since it usually is on another core, then by
 * leaving it ours. */
static uint64_t wait_until(handoff *h, bool full)
{
    uint64_t value;
    for (unsigned spins = 0;; spins++) {
        value = atomic_load_explicit(&h->slot, memory_order_acquire);
        if ((value != 0) == full)
            return value;
        if (spins > 200)
            sched_yield();
    }
}

static void *allocate(void *argument)
{
    handoff *h = argument;
    for (uint64_t j = 1; j <= h->blocks; j++) {
        put(&h->count, CM_EV_ALLOC, (uint64_t)HANDOFF << 32 | j << 6, (int64_t)j, NULL);
        wait_until(h, false);
        atomic_store_explicit(&h->slot, j, memory_order_release);
    }
    return NULL;
}

static void *release(void *argument)
{
    handoff *h = argument;
    for (uint64_t done = 0; done < h->blocks; done++) {
        uint64_t j = wait_until(h, true);
        put(&h->count, CM_EV_FREE, (uint64_t)HANDOFF << 32 | j << 6, (int64_t)j, NULL);
        atomic_store_explicit(&h->slot, 0, memory_order_release);
    }
    return NULL;
}

static void *produce_and_stay(void *argument)
{
    producer *p = argument;
    put_pair(p->count, p->number, 1);
    pthread_barrier_wait(p->barrier);
    pthread_barrier_wait(p->barrier);
    return NULL;
}

/* Between the two rings lie those of other threads: reading all their heads takes long
 * enough for an allocation and its free to fall in between. */
static int hand_over(const char *path, uint64_t blocks, uint64_t count)
{
    handoff h = {.blocks = blocks};
    pthread_t threads[2];
    pthread_barrier_t barrier;
    uint64_t published, lost;

    /* Room for a block of each of the other threads: nothing depends on how soon one returns. */
    start(path, 64 << 20);
    cm_session_record(true);
    CHECK(pthread_create(&threads[0], NULL, allocate, &h) == 0);
    while (h.count.published == 0)
        nap(50);
    pthread_barrier_init(&barrier, NULL, (unsigned)count + 1);
    producer *fillers = start_all(count, 1, produce_and_stay, &barrier);
    pthread_barrier_wait(&barrier);
    CHECK(pthread_create(&threads[1], NULL, release, &h) == 0);
    /* Rounds as often as can be: each is a chance for a free to overtake. */
    while (h.count.published < 2 * blocks)
        cm_session_sync();
    pthread_join(threads[0], NULL);
    pthread_join(threads[1], NULL);
    pthread_barrier_wait(&barrier);
    join_all(fillers, count, &published, &lost);
    stop();
    say(h.count.published, h.count.lost + lost);
    return 0;
}

static struct {
    handoff h;
    int looks;
    uint64_t block;
} overtaking;

static void *allocate_one(void *argument)
{
    (void)argument;
    put(&overtaking.h.count, CM_EV_ALLOC, (uint64_t)HANDOFF << 32 | overtaking.block << 6,
        (int64_t)overtaking.block, NULL);
    return NULL;
}

/* The second look of a sync comes after the clock was read. A thread that the collector has not
 * counted allocates, and one whose ring it is about to read frees. */
static void allocate_and_free_now(void)
{
    pthread_t thread;

    if (++overtaking.looks != 2)
        return;
    CHECK(pthread_create(&thread, NULL, allocate_one, NULL) == 0);
    CHECK(pthread_join(thread, NULL) == 0);
    atomic_store(&overtaking.h.slot, overtaking.block);
    while (atomic_load(&overtaking.h.slot) != 0)
        nap(20);
}

static int overtake(const char *path, uint64_t blocks, uint64_t ring_bytes)
{
    pthread_t thread;

    start(path, ring_bytes);
    cm_session_record(true);
    CHECK(cm_session_pause() == 0);
    overtaking.h.blocks = blocks + 1;
    CHECK(pthread_create(&thread, NULL, release, &overtaking.h) == 0);
    for (overtaking.block = 1; overtaking.block <= blocks + 1; overtaking.block++) {
        overtaking.looks = 0;
        /* The first block makes the releasing thread known. */
        if (overtaking.block == 1) {
            overtaking.looks = 1;
            allocate_and_free_now();
        }
        stress_between = overtaking.block > 1 ? allocate_and_free_now : NULL;
        CHECK(cm_session_sync() == 0);
        stress_between = NULL;
    }
    pthread_join(thread, NULL);
    stop();
    say(overtaking.h.count.published, overtaking.h.count.lost);
    return 0;
}

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
static int hold_and_wait(const char *path, uint64_t threads)
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

static int churn(const char *path, uint64_t threads, uint64_t times)
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

static int one_by_one(const char *path, uint64_t threads)
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
static int burst(const char *path, uint64_t threads)
{
    tally during = {0}, after = {0};

    start(path, 0);
    cm_session_record(true);
    CHECK(cm_session_pause() == 0);
    one_after_the_other(1, threads, false, &during);
    uint64_t blocks = cm_the_space.block_count;
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

static int together(const char *path, uint64_t threads)
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

/* With the collector stopped the rings fill: what finds no room is counted, and told. */
static int fill_up(const char *path, uint64_t pairs)
{
    producer p = {.number = 1, .pairs = pairs, .count = &p.own};

    start(path, 1 << 20);
    cm_session_record(true);
    CHECK(cm_session_pause() == 0);
    produce(&p);
    uint64_t lost = p.own.lost;
    CHECK(cm_session_get_counts().lost_events == lost);
    CHECK(cm_session_resume() == 0);
    CHECK(cm_session_sync() == 0);
    for (uint64_t j = 1; j <= 100; j++)
        put_pair(&p.own, 2, j);
    CHECK(p.own.lost == lost);
    stop();
    say(p.own.published, p.own.lost);
    return 0;
}

static void run_child(const char *folder, const char *name)
{
    char path[4096];
    producer p = {.number = 9, .pairs = 1000, .count = &p.own};

    CHECK(!cm_is_recording());
    CHECK(!cm_session_active());
    put_pair(&p.own, 8, 1); /* goes nowhere */
    CHECK(p.own.published == 0);
    if (name != NULL) {
        snprintf(path, sizeof path, "%s/%s", folder, name);
        start(path, 0);
        cm_session_record(true);
        produce(&p);
        stop();
        CHECK(p.own.published == 2000 + 63 && p.own.lost == 0);
    }
    exit(0);
}

static void wait_for(pid_t child)
{
    int status;
    CHECK(waitpid(child, &status, 0) == child);
    CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

static int fork_often(const char *folder)
{
    char path[4096];
    tally count = {0};
    uint64_t j = 0;

    snprintf(path, sizeof path, "%s/parent.cmem", folder);
    start(path, 0);
    cm_session_record(true);
    producer *others = start_all(2, 20000, produce, NULL);
    for (int i = 0; i < 6; i++) {
        char name[32];
        while (++j % 1000 != 0)
            put_pair(&count, 7, j);
        put_pair(&count, 7, j);
        snprintf(name, sizeof name, "child%d.cmem", i);
        /* With handlers, and by the bare system call; with a capture of its own, and without. */
        pid_t child = i % 2 == 0 ? fork() : (pid_t)syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0);
        if (child == 0)
            run_child(folder, i < 4 ? name : NULL);
        CHECK(child > 0);
        wait_for(child);
    }
    uint64_t published, lost;
    join_all(others, 2, &published, &lost);
    stop();
    say(count.published + published, count.lost + lost);
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

static int exits(const char *path)
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

static int again(const char *folder, int times)
{
    tally count = {0};

    for (int i = 0; i < times; i++) {
        char path[4096];
        snprintf(path, sizeof path, "%s/%d.cmem", folder, i);
        start(path, 1 << 20);
        cm_session_record(true);
        put_pair(&count, 1, 1);
        cm_session_record(false);
        put_pair(&count, 1, 2); /* off: goes nowhere */
        cm_session_record(true);
        put_pair(&count, 1, 2);
        producer p = {.number = 2, .pairs = 10, .count = &count};
        CHECK(pthread_create(&p.thread, NULL, produce, &p) == 0);
        pthread_join(p.thread, NULL);
        stop();
    }
    say(count.published, count.lost);
    return 0;
}

static int bench(const char *path)
{
    enum { ROUNDS = 200, EVENTS = 1000 };
    uint64_t best = UINT64_MAX;

    start(path, 0);
    cm_session_record(true);
    for (int r = 0; r < ROUNDS; r++) {
        uint64_t before = cm_clock_monotonic_ns();
        for (int i = 0; i < EVENTS; i++) {
            cm_thread *t = cm_enter_hook();
            cm_event *e = cm_reserve_hook(t);
            *e = (cm_event){.time = 1, .address = (uint64_t)i, .kind = CM_EV_ALLOC};
            cm_commit_hook(t);
            cm_leave_hook(t);
        }
        uint64_t took = cm_clock_monotonic_ns() - before;
        if (took < best)
            best = took;
        nap(2000);
    }
    stop();
    printf("%.2f\n", (double)best / EVENTS);
    return 0;
}

int main(int count, char **words)
{
    const char *mode = count > 2 ? words[1] : "", *path = count > 2 ? words[2] : "";
    uint64_t a = count > 3 ? strtoull(words[3], NULL, 0) : 0;
    uint64_t b = count > 4 ? strtoull(words[4], NULL, 0) : 0;
    uint64_t c = count > 5 ? strtoull(words[5], NULL, 0) : 0;

    if (strcmp(mode, "make") == 0)
        return make(path, a, b, c);
    if (strcmp(mode, "kill") == 0)
        return kill_me(path, a, (unsigned)b);
    if (strcmp(mode, "verify") == 0)
        return verify(path);
    if (strcmp(mode, "killed") == 0)
        return verify_killed(path);
    if (strcmp(mode, "handoff") == 0)
        return hand_over(path, a, b);
    if (strcmp(mode, "overtake") == 0)
        return overtake(path, a, b);
    if (strcmp(mode, "idle") == 0)
        return hold_and_wait(path, a);
    if (strcmp(mode, "churn") == 0)
        return churn(path, a, b);
    if (strcmp(mode, "short") == 0)
        return one_by_one(path, a);
    if (strcmp(mode, "burst") == 0)
        return burst(path, a);
    if (strcmp(mode, "together") == 0)
        return together(path, a);
    if (strcmp(mode, "full") == 0)
        return fill_up(path, a);
    if (strcmp(mode, "fork") == 0)
        return fork_often(path);
    if (strcmp(mode, "exits") == 0)
        return exits(path);
    if (strcmp(mode, "again") == 0)
        return again(path, (int)a);
    if (strcmp(mode, "sweep") == 0)
        return printf("%d\n", cm_orphan_sweep(path)) < 0;
    if (strcmp(mode, "bench") == 0)
        return bench(path);
    fprintf(stderr, "stress: what?\n");
    return 2;
}
