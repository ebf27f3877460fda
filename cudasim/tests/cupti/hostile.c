/* What CUPTIMEM_SIM_HOSTILE makes CUPTI do, one after the other: the first argument says what is
 * looked at, and what should be seen is here. */
#include <sys/resource.h>
#include <time.h>

#include "collect.h"
#include "doubles.h"

enum { CALLS = 40, UNKNOWN = 999 };

static uint32_t heard[2 * CALLS];
static unsigned hearings;

static void hear(void *userdata, int domain, uint32_t id, const void *cbdata)
{
    const cm_cupti_callback_data *data = cbdata;

    (void)userdata, (void)domain, (void)id;
    if (data->callbackSite == 0)
        heard[hearings++] = data->correlationId;
}

static void begin(void)
{
    collect();
    EQUAL(cuptiActivityEnable(CM_CUPTI_MEMORY2), OK);
}

static const cm_cupti_memory *memory(size_t n)
{
    return record_of(CM_CUPTI_MEMORY2, n);
}

static void drop(void)
{
    begin();
    for (size_t i = 1; i <= CALLS; i++)
        call_malloc(0, i);
    flush();
    EQUAL(client.count, CALLS - CALLS / 5);
    EQUAL(dropped(), CALLS / 5);
    for (size_t i = 0; i < client.count; i++)
        CHECK(memory(i)->bytes % 5 != 0);
}

static void reorder(void)
{
    client.max_records = 10;
    begin();
    for (size_t i = 1; i <= 10; i++)
        call_malloc(0, i);
    flush();
    EQUAL(client.count, 10);
    for (size_t i = 0; i < 10; i++)
        EQUAL(memory(i)->bytes, 10 - i);
}

static void wrap(void)
{
    void *one;

    EQUAL(cuptiSubscribe(&one, hear, NULL), OK);
    EQUAL(cuptiEnableCallback(1, one, DRIVER_API, CU_MALLOC), OK);
    for (size_t i = 0; i < CALLS; i++)
        call_malloc(0, 1);
    EQUAL(heard[0], 0xfffffff0);
    EQUAL(heard[15], 0xffffffff);
    EQUAL(heard[16], 1); /* 0 is nobody's */
    EQUAL(cuptiUnsubscribe(one), OK);
}

static uint8_t *given[16];
static unsigned gave, strangers, own;

static void lend(uint8_t **buffer, size_t *size, size_t *most)
{
    *buffer = given[gave++] = malloc(2048);
    *size = 2048;
    *most = 0;
}

static void look(void *context, uint32_t stream, uint8_t *buffer, size_t size, size_t valid)
{
    (void)context, (void)stream, (void)size;
    for (unsigned i = 0; i < gave; i++)
        if (given[i] == buffer) {
            own++;
            free(buffer);
            return;
        }
    cm_cupti_record *record = NULL;
    EQUAL(cuptiActivityGetNextRecord(buffer, valid, &record), OK);
    EQUAL(((cm_cupti_memory *)record)->address, 0xdead000);
    strangers++;
}

static void foreign(void)
{
    EQUAL(cuptiActivityRegisterCallbacks(lend, look), OK);
    EQUAL(cuptiActivityEnable(CM_CUPTI_MEMORY2), OK);
    for (size_t i = 0; i < 5; i++) {
        call_malloc(0, i + 1);
        flush();
    }
    EQUAL(own, 5);
    EQUAL(strangers, 2);
}

static void late(void)
{
    begin();
    for (size_t i = 0; i < 200; i++) /* more than a buffer */
        call_malloc(0, i + 1);
    flush();
    nanosleep(&(struct timespec){0, 20000000}, NULL);
    EQUAL(client.count, 0);
    EQUAL(cuptiActivityFlushAll(FORCED), OK);
    EQUAL(client.count, 200);
}

static void taken(void)
{
    void *one;
    char holder[64] = "nobody";
    cm_cupti_subscriber_params params = {.structSize = sizeof params,
                                         .oldSubscriberName = holder,
                                         .oldSubscriberSize = sizeof holder};

    EQUAL(cuptiSubscribe(&one, hear, NULL), MULTIPLE_SUBSCRIBERS);
    EQUAL(cuptiSubscribe_v2(&one, hear, NULL, &params), MULTIPLE_SUBSCRIBERS);
    CHECK(!strcmp(holder, "Some Tool"));
    begin(); /* records need no subscriber */
    call_malloc(0, 7);
    flush();
    EQUAL(client.count, 1);
}

static void refuse(void)
{
    void *one;

    EQUAL(cuptiSubscribe(&one, hear, NULL), 35);
    EQUAL(cuptiSubscribe_v2(&one, hear, NULL, NULL), 35);
}

static void nodriver(void)
{
    void *one;
    uint32_t version = 1;
    uint64_t time;
    size_t size = sizeof time;
    const char *name;

    EQUAL(cuptiSubscribe(&one, hear, NULL), UNKNOWN);
    EQUAL(cuptiSubscribe_v2(&one, hear, NULL, NULL), UNKNOWN);
    EQUAL(cuptiActivityEnable(CM_CUPTI_MEMORY2), UNKNOWN);
    EQUAL(cuptiActivityFlushAll(0), UNKNOWN);
    EQUAL(cuptiActivityFlushPeriod(10), UNKNOWN);
    EQUAL(cuptiActivityGetAttribute(0, &size, &time), UNKNOWN);
    EQUAL(cuptiActivityPushExternalCorrelationId(5, 1), UNKNOWN);
    EQUAL(cuptiGetTimestamp(&time), OK);
    EQUAL(cuptiGetCallbackName(DRIVER_API, CU_MALLOC, &name), OK);
    EQUAL(cuptiActivityRegisterCallbacks(give, take_back), OK);
    bool late_release = getenv("CUPTIMEM_SIM_CUPTI") != NULL;
    EQUAL(cuptiGetVersion(&version), late_release ? UNKNOWN : OK);
    EQUAL(version, late_release ? 0 : 130001);
    static uint64_t bytes[64] = {CM_CUPTI_MEMORY2};
    cm_cupti_record *record = NULL;
    EQUAL(cuptiActivityGetNextRecord((uint8_t *)bytes, sizeof bytes, &record),
          late_release ? UNKNOWN : OK);
}

static void olddriver(void)
{
    void *one;
    cm_cupti_subscriber_params params = {.structSize = sizeof params,
                                         .allowMultipleSubscribers = 1};

    EQUAL(cuptiSubscribe_v2(&one, hear, NULL, &params), MULTIPLE_SUBSCRIBERS);
    params.allowMultipleSubscribers = 0;
    EQUAL(cuptiSubscribe_v2(&one, hear, NULL, &params), OK);
    EQUAL(cuptiUnsubscribe(one), OK);
}

static void slow(void)
{
    struct timespec before, after;
    void *one;

    clock_gettime(CLOCK_MONOTONIC, &before);
    EQUAL(cuptiSubscribe(&one, hear, NULL), OK);
    clock_gettime(CLOCK_MONOTONIC, &after);
    CHECK((after.tv_sec - before.tv_sec) * 1000 + (after.tv_nsec - before.tv_nsec) / 1000000 >= 19);
    EQUAL(cuptiUnsubscribe(one), OK);
}

static void timebase(void)
{
    uint64_t time;
    struct timespec now;

    for (int i = 0; i < 30; i++) {
        EQUAL(cuptiGetTimestamp(&time), OK);
        clock_gettime(CLOCK_REALTIME, &now);
        bool nanoseconds = llabs((long long)(time / 1000000000) - now.tv_sec) < 2;
        EQUAL(nanoseconds, i < 20);
    }
}

static void end_is_abort(void (*what)(void))
{
    int status;
    pid_t child = fork();

    if (!child) {
        setrlimit(RLIMIT_CORE, &(struct rlimit){0, 0});
        what();
        _exit(0);
    }
    EQUAL(waitpid(child, &status, 0), child);
    CHECK(WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT);
}

static void decline(void)
{
    client.decline = true;
    begin();
    call_malloc(0, 1);
}

static void nullbuffer(void)
{
    end_is_abort(decline);
}

static void walk(void)
{
    static uint64_t bytes[64] = {CM_CUPTI_MEMORY2};
    cm_cupti_record *record = NULL;

    EQUAL(cuptiActivityGetNextRecord((uint8_t *)bytes, sizeof bytes, &record), OK);
}

static void crash(void)
{
    void *one;

    end_is_abort(walk);
    EQUAL(cuptiSubscribe(&one, hear, NULL), OK);
    walk();
    EQUAL(cuptiUnsubscribe(one), OK);
}

static const unit units[] = {
    {"drop", drop},       {"reorder", reorder},   {"wrap", wrap},
    {"foreign", foreign}, {"late", late},         {"taken", taken},
    {"refuse", refuse},   {"nodriver", nodriver}, {"olddriver", olddriver},
    {"slow", slow},       {"timebase", timebase}, {"nullbuffer", nullbuffer},
    {"crash", crash},
};
UNITS(units)
