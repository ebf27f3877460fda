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
 *   stress taken PATH                              descriptors closed as soon as they are open
 *   stress room PATH                               starts and stops when a line comes
 *   stress move PATH THREADS PAIRS BY_COLLECTOR    the rings get their file while all publish; then
 * PAIRS stress nowhere PATH                            they get none; until a line comes stress
 * sweep FOLDER                            how many orphans were handled stress bench PATH
 * nanoseconds of a hook
 *
 * What a producer publishes: producers.h. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "../../../csrc/base/clock.h"
#include "../../../csrc/recover/orphan.h"
#include "../../../csrc/capture/session.h"
#include "../../../csrc/capture/ring_producer.h"
#include "producers.h"

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
 * sleeping: where others have both, a yield comes back at once. */
static uint64_t wait_until(handoff *h, bool full)
{
    uint64_t value;
    for (unsigned spins = 0;; spins++) {
        value = atomic_load_explicit(&h->slot, memory_order_acquire);
        if ((value != 0) == full)
            return value;
        if (spins > 200)
            nanosleep(&(struct timespec){.tv_nsec = 1000}, NULL);
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
        /* With handlers, also with a capture of its own, and by the bare system call: there a lock
         * of malloc may be held by a thread that the child does not have. */
        bool is_bare = i % 2 != 0;
        pid_t child = is_bare ? (pid_t)syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0) : fork();
        if (child == 0)
            run_child(folder, !is_bare && i < 4 ? name : NULL);
        CHECK(child > 0);
        wait_for(child);
    }
    uint64_t published, lost;
    join_all(others, 2, &published, &lost);
    stop();
    say(count.published + published, count.lost + lost);
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

/* os.closerange and an open in another thread, at the worst moment: each file's number, the first
 * time that it is opened again, is the program's before anybody has looked at it. */
static struct {
    char paths[8][4096];
    int numbers[8];
    _Atomic int count;
} taken;

static void take_number(const char *path, int fd)
{
    int count = atomic_load(&taken.count), other;

    for (int i = 0; i < count; i++)
        if (strcmp(taken.paths[i], path) == 0)
            return;
    CHECK(count < 8);
    snprintf(taken.paths[count], sizeof taken.paths[count], "%s", path);
    taken.numbers[count] = fd;
    FILE *file = tmpfile();
    CHECK(file != NULL && (other = dup(fileno(file))) >= 0 && fclose(file) == 0);
    CHECK(dup2(other, fd) == fd && close(other) == 0);
    atomic_store(&taken.count, count + 1);
}

static int take_numbers(const char *path)
{
    producer p = {.number = 1, .pairs = 1000, .count = &p.own};

    start(path, 0);
    cm_session_record(true);
    CHECK(syscall(SYS_close_range, 3, ~0u, 0) == 0);
    stress_opened = take_number;
    produce(&p);
    CHECK(cm_session_sync() == 0);
    /* The trace's at once, the ring's and statm's within a second. */
    while (atomic_load(&taken.count) < 3)
        nap(1000);
    CHECK(cm_session_sync() == 0);
    stop();
    stress_opened = NULL;
    for (int i = 0; i < taken.count; i++) {
        struct stat theirs;
        CHECK(fstat(taken.numbers[i], &theirs) == 0);
        CHECK(theirs.st_nlink == 0 && theirs.st_size == 0);
    }
    printf("%d ", taken.count);
    say(p.own.published, p.own.lost);
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
            cm_producer *t = cm_enter_hook();
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
    if (strcmp(mode, "taken") == 0)
        return take_numbers(path);
    if (strcmp(mode, "room") == 0)
        return take_room(path);
    if (strcmp(mode, "move") == 0)
        return move(path, a, b, c != 0);
    if (strcmp(mode, "nowhere") == 0)
        return never_move(path);
    if (strcmp(mode, "sweep") == 0)
        return printf("%d\n", cm_orphan_sweep(path)) < 0;
    if (strcmp(mode, "bench") == 0)
        return bench(path);
    fprintf(stderr, "stress: what?\n");
    return 2;
}
