/* Buffers: given out, taken back in any order on any thread, not ours, none left. */
#include <pthread.h>
#include <stdatomic.h>
#include <time.h>
#include <unistd.h>

#include "../../../../csrc/sources/cupti/activity_records.h"
#include "play.h"

enum { POOL = 128, FULL = 256 << 10, SMALL = 64 << 10 };

static char why[256];

static void begin(bool kernels)
{
    CHECK(cm_cupti_activity_begin(&play_link, kernels, why, sizeof why));
}

static cm_cupti_activity_counts counts(void)
{
    cm_cupti_activity_counts now;

    cm_cupti_activity_get_counts(&now);
    return now;
}

static void end(void)
{
    cm_cupti_activity_end(&play_link);
}

static void fill(play_buffer *b, uint32_t first, unsigned records)
{
    for (unsigned i = 0; i < records; i++)
        play_memory(b, 1, first + i, 0x1000 + first + i, 64);
}

/* Correlation ids of the events, in their order. */
static void expect_ids(const uint32_t *ids, size_t count)
{
    EQUAL(double_event_count(), 2 * count);
    for (size_t i = 0; i < count; i++)
        EQUAL(double_event(2 * i + 1)->address, ids[i]);
}

static void sizes(void)
{
    for (int kernels = 0; kernels < 2; kernels++) {
        play_begin(NULL);
        begin(kernels);
        play_buffer b = play_ask();
        EQUAL(b.size, kernels ? FULL : SMALL);
        EQUAL(b.most, 0);
        EQUAL((uintptr_t)b.at % 8, 0);
        play_bring(&b);
        end();
    }
}

/* Read in the order in which they came back, each once. */
static void any_order(void)
{
    static const uint32_t ids[] = {30, 31, 10, 11, 20, 21};
    play_buffer b[4];

    play_begin(NULL);
    begin(false);
    for (uint32_t i = 0; i < 4; i++) {
        b[i] = play_ask();
        for (uint32_t k = 0; k < i; k++)
            CHECK(b[k].at != b[i].at);
        if (i < 3)
            fill(&b[i], 10 * (i + 1), 2);
    }
    play_bring(&b[2]);
    play_bring(&b[0]);
    play_bring(&b[3]); /* empty */
    play_bring(&b[1]);
    EQUAL(double_event_count(), 0); /* not on the thread that brings */
    cm_cupti_activity_drain(false);
    expect_ids(ids, 6);
    cm_cupti_activity_drain(false);
    EQUAL(double_event_count(), 12);
    EQUAL(play.flushes, 2);
    EQUAL(play.forced, 0);
    end();
}

static play_buffer waiting;

static void bring_waiting(bool forced)
{
    if (waiting.at != NULL && forced)
        play_bring(&waiting);
    if (forced)
        waiting.at = NULL;
}

static void *bring_on_a_thread(void *unused)
{
    play_bring(&waiting);
    return unused;
}

int __real_nanosleep(const struct timespec *time, struct timespec *left);
int __wrap_nanosleep(const struct timespec *time, struct timespec *left);
static unsigned sleeps_until_brought;

/* The CUPTI thread waits for CUPTI's thread: here exactly that long, however busy the machine. */
int __wrap_nanosleep(const struct timespec *time, struct timespec *left)
{
    pthread_t thread;

    if (sleeps_until_brought == 0)
        return __real_nanosleep(time, left);
    if (--sleeps_until_brought > 0)
        return 0;
    EQUAL(pthread_create(&thread, NULL, bring_on_a_thread, NULL), 0);
    return pthread_join(thread, NULL);
}

/* What is incomplete comes at the end, by force; and what CUPTI's thread brings a moment after. */
static void the_end(void)
{
    static const uint32_t first[] = {7};
    static const uint32_t both[] = {7, 8};

    play_begin(NULL);
    begin(false);
    play.on_flush = bring_waiting;
    waiting = play_ask();
    fill(&waiting, 7, 1);
    cm_cupti_activity_drain(false);
    EQUAL(double_event_count(), 0);
    cm_cupti_activity_drain(true);
    expect_ids(first, 1);
    play.on_flush = NULL;
    waiting = play_ask();
    fill(&waiting, 8, 1);
    sleeps_until_brought = 20;
    end();
    EQUAL(sleeps_until_brought, 0);
    expect_ids(both, 2);
    for (int kind = 0; kind < PLAY_KINDS; kind++)
        CHECK(!play.on[kind]);
}

/* Later than anybody waits: it finds its place, and is not taken for the next recording's. */
static void after_the_end(void)
{
    play_begin(NULL);
    begin(false);
    play_buffer late = play_ask(), early;
    fill(&late, 1, 1);
    end();
    early = play_ask(); /* CUPTI goes on: nobody reads that */
    CHECK(early.at != NULL);
    EQUAL(early.most, 1);
    play_bring(&late);
    play_begin(NULL);
    begin(false);
    cm_cupti_activity_drain(false);
    EQUAL(double_event_count(), 0);
    EQUAL(counts().foreign_buffers, 0);
    end();
}

/* Another client's: left as they are. */
static void foreign(void)
{
    _Alignas(8) uint8_t theirs[4096];
    play_buffer b, other = {.at = theirs, .size = sizeof theirs, .used = 128};

    play_begin(NULL);
    begin(false);
    b = play_ask();
    memset(theirs, 0x5a, sizeof theirs);
    play_bring(&other);
    other.at = b.at + 8; /* inside of ours */
    play_bring(&other);
    other.at = NULL;
    play_bring(&other);
    fill(&b, 1, 1);
    play_bring(&b);
    play_bring(&b); /* twice */
    cm_cupti_activity_drain(false);
    play_bring(&b); /* and when it is nobody's */
    cm_cupti_activity_drain(false);
    EQUAL(double_event_count(), 2);
    EQUAL(counts().foreign_buffers, 4);
    for (size_t i = 0; i < sizeof theirs; i++)
        EQUAL(theirs[i], 0x5a);
    end();
}

static void none_left(void)
{
    for (int declines = 0; declines < 2; declines++) {
        static play_buffer b[POOL];
        play_begin(NULL);
        play_api.version = declines ? 27 : 26;
        begin(false);
        for (unsigned i = 0; i < POOL; i++) {
            b[i] = play_ask();
            EQUAL(b[i].size, SMALL);
        }
        for (unsigned i = 0; i < 3; i++) {
            play_buffer more = play_ask();
            EQUAL(more.at == NULL, declines);
            if (declines)
                continue;
            EQUAL(more.most, 1);
            CHECK(more.size >= 4096);
            if (i < 2)
                fill(&more, 500 + i, 1);
            play_bring(&more); /* the third one comes back empty */
        }
        play.dropped = 5; /* as CUPTI counts */
        for (unsigned i = 0; i < POOL; i++)
            play_bring(&b[i]);
        cm_cupti_activity_drain(false);
        EQUAL(counts().dropped, declines ? 5 : 7);
        EQUAL(double_event_count(), 0);
        play.dropped = 2;
        cm_cupti_activity_drain(false);
        EQUAL(counts().dropped, declines ? 7 : 9);
        b[0] = play_ask();
        EQUAL(b[0].size, SMALL);
        play_bring(&b[0]);
        end();
    }
}

static long resident(void)
{
    long pages = 0;
    FILE *file = fopen("/proc/self/statm", "r");

    CHECK(file != NULL && fscanf(file, "%*d %ld", &pages) == 1);
    fclose(file);
    return pages * 4096;
}

/* What a burst took goes back to the system. */
static void memory_goes_back(void)
{
    static play_buffer b[POOL];

    play_begin(NULL);
    play_api.version = 27;
    begin(true);
    long before = resident();
    for (unsigned i = 0; i < POOL; i++) {
        b[i] = play_ask();
        memset(b[i].at, 1, b[i].size);
        b[i].used = 0;
    }
    CHECK(resident() - before > (POOL - 4) * (long)FULL);
    for (unsigned i = 0; i < POOL; i++)
        play_bring(&b[i]);
    for (unsigned i = 0; i < 60; i++)
        cm_cupti_activity_drain(false);
    CHECK(resident() - before < 4 * (long)FULL);
    end();
}

/* --- what CUPTI refuses ------------------------------------------------------------------------
 */

static void one_kind_refused(void)
{
    play_begin(NULL);
    play.refuse[CM_CUPTI_POOL_RECORD] = 21;
    play.refuse[CM_CUPTI_CONCURRENT_RECORD] = 14;
    begin(true);
    CHECK(strstr(why, "MEMORY_POOL records (21: ") != NULL);
    CHECK(strstr(why, "CONCURRENT_KERNEL records (14: ") != NULL);
    CHECK(strstr(why, "MEMORY2") == NULL);
    CHECK(play.on[CM_CUPTI_MEMORY2_RECORD] && play.on[CM_CUPTI_MEMSET_RECORD]);
    EQUAL(double_held, 1);
    CHECK(!cm_cupti_activity_has_kernels());
    end(); /* disables what is on only */
    EQUAL(double_held, 0);
    play_begin(NULL);
    begin(true);
    CHECK(cm_cupti_activity_has_kernels());
    end();
    CHECK(!cm_cupti_activity_has_kernels());
}

static void everything_refused(void)
{
    char little[20];

    play_begin(NULL);
    play.refuse[CM_CUPTI_MEMORY2_RECORD] = play.refuse[CM_CUPTI_POOL_RECORD] = 15;
    CHECK(!cm_cupti_activity_begin(&play_link, false, why, sizeof why));
    CHECK(strstr(why, "CUPTI_ERROR_NOT_INITIALIZED") != NULL);
    EQUAL(play.attribute[2], 250);
    CHECK(!cm_cupti_activity_begin(&play_link, false, little, sizeof little));
    CHECK(strlen(little) < sizeof little);
    play_begin(NULL);
    play.register_result = 999;
    CHECK(!cm_cupti_activity_begin(&play_link, false, why, sizeof why));
    CHECK(strstr(why, "999") != NULL);
    EQUAL(play.enables, 0);
    play_buffer b = play_ask(); /* asked for all the same */
    CHECK(b.at != NULL);
    EQUAL(b.most, 1);
    play_bring(&b);
    play_begin(NULL);
    play_api.ActivityEnable = NULL;
    CHECK(!cm_cupti_activity_begin(&play_link, false, why, sizeof why));
    CHECK(why[0] != '\0');
}

static void second_interface(void)
{
    static const uint32_t ids[] = {1, 2};

    play_begin(NULL);
    play_v2();
    begin(true);
    CHECK(play.request == NULL && play.request_v2 != NULL);
    play_buffer b = play_ask();
    fill(&b, 1, 2);
    play_bring(&b);
    play.dropped = 3;
    cm_cupti_activity_drain(false);
    expect_ids(ids, 2);
    EQUAL(counts().dropped, 3);
    EQUAL(play.attribute[2], 32);
    end();
    EQUAL(play.attribute[2], 250);
}

/* Device memory for the times of kernels that nobody asks for is not to be taken. */
static void little_device_memory(void)
{
    play_begin(NULL);
    begin(false);
    EQUAL(play.attribute[2], 2);
    EQUAL(play.attribute[6], 1);
    end();
    EQUAL(play.attribute[2], 250);
    EQUAL(play.attribute[6], 3);
    play_begin(NULL);
    play.attribute[2] = 1; /* somebody wants less */
    begin(false);
    EQUAL(play.attribute[2], 1);
    end();
    EQUAL(play.attribute[2], 1);
    play_begin(NULL);
    play_api.ActivityGetAttribute = NULL;
    begin(false);
    EQUAL(play.attribute[2], 250);
    end();
}

/* Without numbers nothing can be joined: then CUPTI is asked for records of all calls. */
static void numbers_are_missing(void)
{
    play_begin(NULL);
    begin(false);
    EQUAL(play.one_call, 1);
    CHECK(!play.on[CM_CUPTI_DRIVER_RECORD]);
    play_buffer b = play_ask();
    fill(&b, 1, 1);
    play_bring(&b);
    cm_cupti_activity_drain(false);
    CHECK(!play.on[CM_CUPTI_DRIVER_RECORD]);
    b = play_ask();
    fill(&b, 0, 1);
    play_bring(&b);
    cm_cupti_activity_drain(false);
    CHECK(play.on[CM_CUPTI_DRIVER_RECORD]);
    EQUAL(double_event_count(), 3); /* without a number, no event that tells one */
    unsigned enables = play.enables;
    cm_cupti_activity_drain(false);
    EQUAL(play.enables, enables);
    end();
    CHECK(!play.on[CM_CUPTI_DRIVER_RECORD]);
}

static void nothing_while_off(void)
{
    play_begin(NULL);
    begin(false);
    double_record(false);
    play_buffer b = play_ask();
    fill(&b, 1, 1);
    play_bring(&b);
    cm_cupti_activity_drain(false);
    EQUAL(double_event_count(), 0);
    EQUAL(counts().records, 0);
    double_record(true);
    end();
}

/* --- many threads ------------------------------------------------------------------------------
 */

enum { THREADS = 8, BUFFERS_EACH = 300 };
static atomic_uint asked_for, declined;
static _Atomic(uint8_t *) swapped; /* a buffer that some other thread brings */

static void *work(void *argument)
{
    uint32_t me = (uint32_t)(uintptr_t)argument;

    for (uint32_t i = 0; i < BUFFERS_EACH; i++) {
        play_buffer b = play_ask();
        if (b.at == NULL) {
            atomic_fetch_add(&declined, 1);
            continue;
        }
        fill(&b, 1 + me * BUFFERS_EACH + i, 1);
        atomic_fetch_add(&asked_for, 1);
        uint8_t *other = atomic_exchange(&swapped, b.at);
        if (other == NULL)
            continue;
        b.at = other;
        play_bring(&b);
    }
    return NULL;
}

static void many_threads(void)
{
    pthread_t threads[THREADS];
    static bool seen[THREADS * BUFFERS_EACH + 1];

    play_begin(NULL);
    play_api.version = 27;
    begin(false);
    for (uintptr_t i = 0; i < THREADS; i++)
        pthread_create(&threads[i], NULL, work, (void *)i);
    for (int i = 0; i < 200; i++) {
        cm_cupti_activity_drain(false);
        nanosleep(&(struct timespec){.tv_nsec = 200000}, NULL);
    }
    for (unsigned i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    play_buffer last = {.at = swapped, .size = SMALL, .used = 128};
    if (last.at != NULL)
        play_bring(&last);
    cm_cupti_activity_drain(true);
    EQUAL(double_event_count(), 2 * atomic_load(&asked_for));
    EQUAL(atomic_load(&asked_for) + atomic_load(&declined), THREADS * BUFFERS_EACH);
    for (size_t i = 1; i < double_event_count(); i += 2) {
        uint64_t id = double_event(i)->address;
        CHECK(id <= THREADS * BUFFERS_EACH && !seen[id]);
        seen[id] = true;
    }
    EQUAL(counts().foreign_buffers, 0);
    end();
}

static const double_case cases[] = {
    {"sizes", sizes},
    {"any_order", any_order},
    {"the_end", the_end},
    {"after_the_end", after_the_end},
    {"foreign", foreign},
    {"none_left", none_left},
    {"memory_goes_back", memory_goes_back},
    {"one_kind_refused", one_kind_refused},
    {"everything_refused", everything_refused},
    {"second_interface", second_interface},
    {"little_device_memory", little_device_memory},
    {"numbers_are_missing", numbers_are_missing},
    {"nothing_while_off", nothing_while_off},
    {"many_threads", many_threads},
};

int main(int words, char **word)
{
    return double_main(cases, sizeof cases / sizeof *cases, words, word);
}
