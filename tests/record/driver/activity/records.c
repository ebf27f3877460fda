/* Records of every length -> events. */
#include <time.h>
#include <unistd.h>

#include "../../../../csrc/base/clock.h"
#include "../../../../csrc/sources/cupti/activity_records.h"
#include "play.h"

static char why[256];

static void begin(bool kernels)
{
    CHECK(cm_cupti_activity_begin(&play_link, kernels, why, sizeof why));
    CHECK(why[0] == '\0');
}

static cm_cupti_activity_counts counts(void)
{
    cm_cupti_activity_counts now;

    cm_cupti_activity_get_counts(&now);
    return now;
}

static void bring_and_read(play_buffer *b)
{
    play_bring(b);
    cm_cupti_activity_drain(false);
}

/* The event's time is within seconds of now. */
static void recent(const cm_event *e)
{
    int64_t off = (int64_t)(cm_clock_now() - e->time);

    CHECK(off > -INT64_C(10000000000) && off < INT64_C(10000000000));
}

/* --- every length ------------------------------------------------------------------------------
 */

static const play_sizes lengths[] = {
    {112, 64, 144, 64, 64, 64},     {120, 72, 176, 72, 80, 80}, {120, 72, 200, 88, 96, 88},
    {120, 72, 208, 88, 96, 88},     {128, 72, 208, 96, 96, 88}, {128, 80, 216, 96, 96, 88},
    {128, 80, 224, 96, 96, 88},     {128, 80, 232, 96, 96, 88}, {128, 80, 248, 112, 96, 104},
    {256, 160, 512, 240, 200, 232}, /* of a release to come */
};

static void one_of_each(const play_sizes *sizes)
{
    static const char name[] = "_Z6kernelv";
    play_buffer b = play_ask();
    uint64_t now = play_now();
    uint8_t *r;

    play_memory(&b, 1, 7, 0x7000, 4096);
    play_memory(&b, 2, 8, 0x7000, 4096);
    r = play_record(&b, CM_CUPTI_POOL_RECORD);
    play_u32(r, 4, 3); /* trimmed */
    play_u32(r, 8, 1);
    play_u32(r, 20, 2);
    play_u64(r, 32, 0xb000);
    play_u64(r, 40, 1 << 20);
    play_u64(r, 56, now);
    if (sizes->pool >= 72)
        play_u64(r, 64, 1 << 10);
    play_kernel(&b, 9, name, now - 3000, now - 2000);
    r = play_record(&b, CM_CUPTI_MEMCPY_RECORD);
    play_u8(r, 4, 1); /* host to device */
    play_u64(r, 16, now - 900);
    play_u64(r, 24, now - 850);
    play_u32(r, 32, 0);
    play_u32(r, 44, 10);
    r = play_record(&b, CM_CUPTI_MEMCPY2_RECORD);
    play_u8(r, 4, 10);
    play_u64(r, 16, now - 800);
    play_u64(r, 24, now - 700);
    play_u32(r, 32, 0);
    play_u32(r, 60, 11);
    r = play_record(&b, CM_CUPTI_MEMSET_RECORD);
    play_u64(r, 16, now - 600);
    play_u64(r, 24, now - 599);
    play_u32(r, 32, 0);
    play_u32(r, 44, 12);
    bring_and_read(&b);
}

static void expect_work(const cm_event *e, unsigned kind, unsigned correlation, unsigned ns,
                        const char *name)
{
    EQUAL(e->kind, CM_EV_WORK);
    EQUAL(e->flags, kind);
    EQUAL(e->address, correlation);
    EQUAL(e->size, ns);
    EQUAL(e->device_index, 0);
    CHECK(strcmp(double_name(e->stack), name) == 0);
    recent(e);
}

static void expect_one_of_each(const play_sizes *sizes)
{
    size_t at = 0;

    for (unsigned i = 0; i < 2; i++) {
        const cm_event *e = double_event(at++);
        EQUAL(e->kind, CM_EV_DRIVER_RECORD);
        EQUAL(e->address, 0x7000);
        EQUAL(e->size, 4096);
        EQUAL(e->flags, CM_DRIVER_DEVICE | (i == 1 ? CM_EVF_RELEASE : 0));
        EQUAL(e->device_index, 1);
        EQUAL(e->device_type, CM_DEVICE_CUDA);
        CHECK(strcmp(double_name(e->stack), "lib5.so") == 0);
        recent(e);
        e = double_event(at++);
        EQUAL(e->kind, CM_EV_DRIVER_MORE);
        EQUAL(e->size, CM_DRIVER_MORE_CORRELATION);
        EQUAL(e->address, 7 + i);
    }
    const cm_event *pool = double_event(at++);
    EQUAL(pool->kind, CM_EV_POOL);
    EQUAL(pool->flags, CM_POOL_TRIMMED);
    EQUAL(pool->address, 0xb000);
    EQUAL(pool->size, 1 << 20);
    EQUAL(pool->device_index, 2);
    if (sizes->pool >= 72) {
        EQUAL(double_event(at)->size, CM_DRIVER_MORE_UTILIZED);
        EQUAL(double_event(at++)->address, 1 << 10);
    }
    expect_work(double_event(at++), CM_WORK_KERNEL, 9, 1000, "_Z6kernelv");
    expect_work(double_event(at++), CM_WORK_COPY, 10, 50, "copy host to device");
    expect_work(double_event(at++), CM_WORK_COPY, 11, 100, "copy device to other device");
    expect_work(double_event(at++), CM_WORK_SET, 12, 1, "set");
    EQUAL(double_event_count(), at);
    EQUAL(counts().records, 7);
    EQUAL(counts().unknown_records, 0);
    EQUAL(counts().dropped, 0);
}

static void every_length(void)
{
    for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++)
        for (int way = 0; way < 4; way++) {
            play_begin(&lengths[i]);
            if (way == 1)
                play_tells_sizes();
            if (way == 2) { /* it steps, and one of the lengths that it tells is none */
                play_tells_sizes();
                play.struct_size_result = 999;
            }
            if (way == 3)
                play_v2();
            begin(true);
            one_of_each(&lengths[i]);
            expect_one_of_each(&lengths[i]);
            EQUAL(play.probes == 0, way == 1 || way == 3);
            cm_cupti_activity_end(&play_link);
        }
}

/* --- memory ------------------------------------------------------------------------------------
 */

static void kinds_of_memory(void)
{
    static const struct {
        uint32_t memory_kind, is_async, pool;
        unsigned flags;
    } rows[] = {
        {2, 0, 0, CM_DRIVER_HOST},
        {3, 0, 0, CM_DRIVER_DEVICE},
        {3, 1, 1, CM_DRIVER_ASYNC},
        {3, 0, 1, CM_DRIVER_ASYNC},
        {4, 0, 0, CM_DRIVER_ARRAY},
        {5, 0, 0, CM_DRIVER_MANAGED},
        {1, 0, 0, 0},
        {6, 0, 0, 0},
        {99, 0, 0, 0},
    };
    enum { ROWS = sizeof rows / sizeof *rows };

    play_begin(NULL);
    begin(false);
    play_buffer b = play_ask();
    for (size_t i = 0; i < ROWS; i++) {
        uint8_t *r = b.at + b.used;
        play_memory(&b, 1, 100 + (uint32_t)i, 0x1000 * (i + 1), 8);
        play_u32(r, 8, rows[i].memory_kind);
        play_u32(r, 72, rows[i].is_async);
        play_u32(r, 80, rows[i].pool);
    }
    bring_and_read(&b);
    for (size_t i = 0; i < ROWS; i++)
        EQUAL(double_event(2 * i)->flags, rows[i].flags);
    EQUAL(counts().records, ROWS);
    cm_cupti_activity_end(&play_link);
}

static void pooled(play_buffer *b, uint32_t operation, uint64_t pool, uint64_t size,
                   uint64_t utilized)
{
    uint8_t *r = b->at + b->used;

    play_memory(b, operation, 5, 0x9000, 512);
    play_u32(r, 72, 1);
    play_u32(r, 80, 1);
    play_u64(r, 88, pool);
    play_u64(r, 104, size);
    if (play.size[CM_CUPTI_MEMORY2_RECORD] >= 120)
        play_u64(r, 112, utilized);
}

/* A pool's size is told when it changes, not with each of its blocks. */
static void pools_are_seen(void)
{
    play_begin(NULL);
    begin(false);
    play_buffer b = play_ask();
    pooled(&b, 1, 0xb0, 32 << 20, 512);
    pooled(&b, 1, 0xb0, 32 << 20, 1024);
    pooled(&b, 2, 0xb0, 32 << 20, 1024);
    pooled(&b, 1, 0xb8, 64 << 20, 512);
    pooled(&b, 2, 0xb0, 0, 1024);
    bring_and_read(&b);
    unsigned seen = 0, utilized = 0;
    for (size_t i = 0; i < double_event_count(); i++) {
        const cm_event *e = double_event(i);
        if (e->kind == CM_EV_POOL) {
            EQUAL(e->flags, CM_POOL_SEEN);
            EQUAL(e->size, seen == 0 ? 32 << 20 : seen == 1 ? 64 << 20 : 0);
            EQUAL(e->address, seen == 1 ? 0xb8 : 0xb0);
            EQUAL(double_event(i - 1)->kind, CM_EV_DRIVER_MORE);
            seen++;
        }
        if (e->kind == CM_EV_DRIVER_MORE && e->size == CM_DRIVER_MORE_UTILIZED) {
            EQUAL(e->address, 512);
            utilized++;
        }
    }
    EQUAL(seen, 3);
    EQUAL(utilized, 2); /* with a release it is the value before */
    cm_cupti_activity_end(&play_link);
}

/* What did not find room is not explained by the one that did. */
static void no_room(void)
{
    play_begin(NULL);
    begin(false);
    for (size_t room = 0; room < 4; room++) {
        double_forget_events();
        double_room(room);
        play_buffer b = play_ask();
        play_memory(&b, 1, 1, 0x1000, 8);
        play_memory(&b, 1, 2, 0x2000, 8);
        bring_and_read(&b);
        EQUAL(double_event_count(), room);
        for (size_t i = 0; i < room; i++)
            EQUAL(double_event(i)->kind, i % 2 == 0 ? CM_EV_DRIVER_RECORD : CM_EV_DRIVER_MORE);
    }
    cm_cupti_activity_end(&play_link);
}

/* --- work --------------------------------------------------------------------------------------
 */

/* A name's memory may be another's in the next buffer, or nobody's. */
static void names_change(void)
{
    char name[] = "first_kernel";
    uint64_t now;

    play_begin(NULL);
    begin(true);
    for (int i = 0; i < 2; i++) {
        play_buffer b = play_ask();
        now = play_now();
        play_kernel(&b, 1, name, now - 10, now - 5);
        play_kernel(&b, 2, name, now - 4, now - 3);
        play_kernel(&b, 3, NULL, now - 2, now - 1);
        play_kernel(&b, 4, (const char *)0x10, now - 2, now - 1);
        play_kernel(&b, 5, (const char *)UINT64_C(0x7fffdeadbeef1234), now - 2, now - 1);
        play_kernel(&b, 6, (const char *)UINT64_MAX, now - 2, now - 1);
        bring_and_read(&b);
        strcpy(name, "other_kernel");
    }
    EQUAL(double_event_count(), 12);
    for (size_t i = 0; i < 12; i++) {
        const char *expected = i % 6 > 1 ? "" : i < 6 ? "first_kernel" : "other_kernel";
        CHECK(strcmp(double_name(double_event(i)->stack), expected) == 0);
    }
    /* Longer than anybody reads, and one that runs into the end of its memory. */
    char *longest = malloc(10000);
    memset(longest, 'x', 9999);
    longest[9999] = '\0';
    play_buffer b = play_ask();
    play_kernel(&b, 1, longest, now - 10, now - 5);
    bring_and_read(&b);
    EQUAL(strlen(double_name(double_event(12)->stack)), 2047);
    free(longest);
    cm_cupti_activity_end(&play_link);
}

static void work_without_times(void)
{
    uint64_t now;

    play_begin(NULL);
    begin(true);
    play_buffer b = play_ask();
    now = play_now();
    play_kernel(&b, 1, "k", 0, 0);         /* CUPTI had no room for its times */
    play_kernel(&b, 2, "k", now - 10, 0);  /* still running: a flush by force */
    play_kernel(&b, 3, "k", now, now - 5); /* ends before it starts */
    bring_and_read(&b);
    EQUAL(double_event_count(), 2);
    EQUAL(double_event(0)->address, 2);
    EQUAL(double_event(0)->size, 0);
    EQUAL(double_event(1)->size, 0);
    EQUAL(counts().dropped, 1);
    cm_cupti_activity_end(&play_link);
}

/* --- what nobody knows -------------------------------------------------------------------------
 */

static void unknown_records(void)
{
    for (int library = 0; library < 2; library++) {
        play_begin(NULL);
        if (library) {
            play_tells_sizes();
            play.struct_size_result = 999;
        }
        begin(false);
        play_buffer b = play_ask();
        play_memory(&b, 1, 1, 0x1000, 8);
        play_record(&b, 17);                     /* another client's: stepped over, counted */
        play_record(&b, CM_CUPTI_DRIVER_RECORD); /* our own doing */
        play_memory(&b, 3, 2, 0x1000, 8);        /* an operation that is neither */
        play_memory(&b, 1, 3, 0x3000, 8);
        size_t whole = b.used;
        play_u32(b.at, whole, 61); /* of unknown length: the rest is lost, and this is said */
        b.used = whole + 300;
        bring_and_read(&b);
        EQUAL(double_event_count(), 4);
        EQUAL(counts().records, 2);
        EQUAL(counts().unknown_records, library ? 2 : 3);
        /* Cut in the middle of a record. */
        b = play_ask();
        play_memory(&b, 1, 4, 0x4000, 8);
        play_memory(&b, 1, 5, 0x5000, 8);
        b.used -= 100;
        bring_and_read(&b);
        EQUAL(double_event_count(), 6);
        cm_cupti_activity_end(&play_link);
    }
}

static uint64_t random_state = 0x1234567;
static uint64_t random_number(void)
{
    random_state ^= random_state << 13;
    random_state ^= random_state >> 7;
    return random_state ^= random_state << 17;
}

/* Bytes that are no records, and records of which some bytes are others. */
static void garbage(void)
{
    for (int round = 0; round < 300; round++) {
        play_begin(&lengths[round % (sizeof lengths / sizeof *lengths)]);
        if (round % 3 == 1)
            play_tells_sizes();
        if (round % 3 == 2) {
            play_tells_sizes();
            play.struct_size_result = 999;
        }
        begin(true);
        play_buffer b = play_ask();
        uint64_t now = play_now();
        while (b.used + 2000 < b.size && b.used < 8000) {
            uint8_t *r = b.at + b.used;
            uint32_t kinds[] = {CM_CUPTI_MEMORY2_RECORD, CM_CUPTI_POOL_RECORD,
                                CM_CUPTI_CONCURRENT_RECORD, CM_CUPTI_MEMCPY_RECORD, 17};
            uint32_t kind = kinds[random_number() % 5];
            play_record(&b, kind);
            for (uint16_t i = 4; i < play.size[kind]; i++)
                r[i] = (uint8_t)random_number();
            if (random_number() % 4 != 0)
                play_u64(r, 16, now);
            if (random_number() % 40 == 0)
                r[random_number() % 8] ^= (uint8_t)random_number();
        }
        if (round % 2)
            b.used -= random_number() % 500;
        if (round % 7 == 0)
            b.used = random_number() % 2 ? SIZE_MAX : b.size + 8; /* more than there is */
        bring_and_read(&b);
        cm_cupti_activity_end(&play_link);
    }
}

static void implausible_lengths(void)
{
    play_begin(NULL);
    play_tells_sizes();
    play.size[CM_CUPTI_CONCURRENT_RECORD] = 100; /* no kernel is that short */
    begin(false);
    CHECK(play.told > 0);
    play_buffer b = play_ask();
    play_memory(&b, 1, 1, 0x1000, 8);
    play_memory(&b, 2, 2, 0x1000, 8);
    bring_and_read(&b);
    CHECK(play.probes > 0); /* stepped by the library */
    EQUAL(double_event_count(), 4);
    cm_cupti_activity_end(&play_link);
}

/* From 13.2 on stepping without a subscription may crash. */
static void nothing_is_probed_that_may_crash(void)
{
    play_begin(NULL);
    play_tells_sizes();
    play.struct_size_result = 999;
    play_link.subscriber = NULL;
    CHECK(!cm_cupti_activity_begin(&play_link, false, why, sizeof why));
    CHECK(strstr(why, "how long its records are") != NULL);
    EQUAL(play.probes, 0);
    EQUAL(play.enables, 0);
    cm_cupti_activity_drain(true);
    cm_cupti_activity_end(&play_link);
    EQUAL(play.flushes, 0);
    play_begin(NULL);
    play_link.subscriber = NULL; /* an old one: safe */
    begin(false);
    CHECK(play.probes > 0);
    cm_cupti_activity_end(&play_link);
}

/* --- time --------------------------------------------------------------------------------------
 */

static void pause_ms(long ms)
{
    nanosleep(&(struct timespec){.tv_nsec = ms * 1000000}, NULL);
}

static double ticks_per_ms(void)
{
    uint64_t ticks = cm_clock_now(), ns = cm_clock_monotonic_ns();

    pause_ms(20);
    return (double)(cm_clock_now() - ticks) * 1e6 / (double)(cm_clock_monotonic_ns() - ns);
}

/* Records that were made now, in the clock of now, come out at now; so do those made before the
 * clock changed that are read after it. */
static void times(void)
{
    double ms = ticks_per_ms();
    static const struct {
        int64_t offset;
        bool cycles, changed;
    } clocks[] = {{0, false, false},           {0, true, true},
                  {-50000000000, false, true}, {700000000, false, true}, /* set forward, stays */
                  {300000000, false, true},    {3600000000000, false, true}};

    play_begin(NULL);
    begin(true);
    for (size_t i = 0; i < sizeof clocks / sizeof *clocks; i++) {
        uint64_t before[3], after[3];
        double_forget_events();
        pause_ms(60);
        play_buffer b = play_ask();
        before[0] = cm_clock_now();
        play_memory(&b, 1, 1, 0x1000, 8);
        after[0] = cm_clock_now();
        pause_ms(30);
        play.clock_offset = clocks[i].offset;
        play.clock_cycles = clocks[i].cycles;
        pause_ms(30);
        before[1] = cm_clock_now();
        play_memory(&b, 1, 2, 0x2000, 8);
        after[1] = cm_clock_now();
        play_bring(&b);
        cm_cupti_activity_drain(false);
        b = play_ask();
        pause_ms(60);
        before[2] = cm_clock_now();
        play_memory(&b, 1, 3, 0x3000, 8);
        after[2] = cm_clock_now();
        uint64_t units = play.clock_cycles ? 3000 : 1000, now = play_now();
        play_kernel(&b, 4, "k", now, now + units);
        play_bring(&b);
        cm_cupti_activity_drain(false);
        for (int k = 0; k < 3; k++) {
            const cm_event *e = double_event(2 * (size_t)k);
            if ((double)e->time < (double)before[k] - 50 * ms ||
                (double)e->time > (double)after[k] + 50 * ms) {
                fprintf(stderr, "clock %zu, record %d: %g ms off\n", i, k,
                        ((double)e->time - (double)before[k]) / ms);
                _Exit(1);
            }
        }
        const cm_event *kernel = double_event(6);
        EQUAL(kernel->kind, CM_EV_WORK);
        if (play.clock_cycles)
            CHECK(kernel->size > 500 && kernel->size < 2000);
        else if (clocks[i].offset > -1000000000 && clocks[i].offset < 1000000000)
            EQUAL(kernel->size, 1000);
        EQUAL(counts().time_base_changed, clocks[i].changed);
    }
    cm_cupti_activity_end(&play_link);
}

static void impossible_times(void)
{
    play_begin(NULL);
    begin(true);
    play_buffer b = play_ask();
    uint64_t second = UINT64_C(1000000000), now = play_now();
    uint64_t stamps[] = {0, 1, UINT64_MAX, now + 3600 * second, now - 20 * second, 1000000};
    enum { STAMPS = sizeof stamps / sizeof *stamps };
    for (size_t i = 0; i < STAMPS; i++) {
        uint8_t *r = b.at + b.used;
        play_memory(&b, 1, 1, 0x1000, 8);
        play_u64(r, 32, stamps[i]);
    }
    bring_and_read(&b);
    for (size_t i = 0; i < STAMPS; i++)
        recent(double_event(2 * i));
    cm_cupti_activity_end(&play_link);
}

/* --- what it costs: nanoseconds a record, for people -------------------------------------------
 */

static void speed(void)
{
    enum { ROUNDS = 200 };
    uint64_t memory_ns = 0, kernel_ns = 0, memories = 0, kernels = 0;

    for (int round = 0; round < 2 * ROUNDS; round++) {
        bool kernel = round % 2;
        if (round % 16 == 0) {
            if (round > 0)
                cm_cupti_activity_end(&play_link);
            play_begin(NULL);
            begin(true);
        }
        play_buffer b = play_ask();
        uint64_t now = play_now(), before;
        while (b.used + 216 <= b.size)
            if (kernel)
                play_kernel(&b, (uint32_t)b.used, "a_kernel_with_a_name_of_usual_length", now - 100,
                            now - 50);
            else
                play_memory(&b, 1, (uint32_t)b.used + 1, 0x1000, 8);
        *(kernel ? &kernels : &memories) += b.used / (kernel ? 216 : 128);
        play_bring(&b);
        before = cm_clock_monotonic_ns();
        cm_cupti_activity_drain(false);
        *(kernel ? &kernel_ns : &memory_ns) += cm_clock_monotonic_ns() - before;
    }
    printf("MEMORY2 %.1f ns, CONCURRENT_KERNEL %.1f ns a record, drain included\n",
           (double)memory_ns / (double)memories, (double)kernel_ns / (double)kernels);
}

static const double_case cases[] = {
    {"every_length", every_length},
    {"kinds_of_memory", kinds_of_memory},
    {"pools_are_seen", pools_are_seen},
    {"no_room", no_room},
    {"names_change", names_change},
    {"work_without_times", work_without_times},
    {"unknown_records", unknown_records},
    {"garbage", garbage},
    {"implausible_lengths", implausible_lengths},
    {"nothing_is_probed_that_may_crash", nothing_is_probed_that_may_crash},
    {"times", times},
    {"impossible_times", impossible_times},
};

int main(int words, char **word)
{
    if (words == 2 && strcmp(word[1], "speed") == 0) {
        speed();
        return 0;
    }
    return double_main(cases, sizeof cases / sizeof *cases, words, word);
}
