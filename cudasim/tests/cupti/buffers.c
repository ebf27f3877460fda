/* Buffers that a client gives and gets back. */
#include <sched.h>
#include <time.h>

#include "collect.h"
#include "doubles.h"

/* Every record comes back, whole and once, whatever the buffers' size. (Buffers may overtake each
 * other, as CUPTI's do.) */
static void sizes(void)
{
    static const size_t tried[] = {128, 136, 300, 1000, 4096, 65536};
    enum { CALLS = 500 };

    for (size_t i = 0; i < sizeof tried / sizeof tried[0]; i++)
        for (size_t limit = 0; limit < 3; limit++) {
            client.size = tried[i];
            client.max_records = limit;
            collect();
            EQUAL(cuptiActivityEnable(CM_CUPTI_MEMORY2), OK);
            EQUAL(cuptiActivityEnable(CM_CUPTI_RUNTIME), OK);
            for (size_t n = 0; n < CALLS; n++)
                call_malloc(0, n + 1);
            flush();
            EQUAL(client.count, 2 * CALLS);
            EQUAL(client.given, client.taken);
            bool seen[CALLS] = {false};
            for (size_t n = 0; n < client.count; n++) {
                bool memory = kind_of(n) == CM_CUPTI_MEMORY2;
                EQUAL(client.sizes[n], memory ? 128 : 40);
                if (memory) {
                    uint64_t bytes = ((const cm_cupti_memory *)client.records[n])->bytes;
                    CHECK(bytes && bytes <= CALLS && !seen[bytes - 1]);
                    seen[bytes - 1] = true;
                }
            }
            EQUAL(count_of(CM_CUPTI_MEMORY2), CALLS);
            EQUAL(count_of(CM_CUPTI_RUNTIME), CALLS);
            EQUAL(client.empty, 0);
            EQUAL(dropped(), 0);
            forget();
        }
}

static void drops(void)
{
    size_t count;

    EQUAL(cuptiActivityRegisterCallbacks(NULL, take_back), INVALID_PARAMETER);
    EQUAL(cuptiActivityRegisterCallbacks(give, NULL), INVALID_PARAMETER);
    EQUAL(cuptiActivityFlushAll(0), INVALID_OPERATION); /* nobody registered */
    EQUAL(cuptiActivityGetNumDroppedRecords(NULL, 0, NULL), INVALID_PARAMETER);
    EQUAL(cuptiActivityEnable(CM_CUPTI_MEMORY2), OK);
    call_malloc(0, 1);
    EQUAL(dropped(), 1);

    collect();
    client.decline = true;
    for (int i = 0; i < 5; i++)
        call_malloc(0, 1);
    EQUAL(cuptiActivityGetNumDroppedRecords(NULL, 0, &count), OK);
    EQUAL(count, 5);
    EQUAL(dropped(), 0); /* reading took them */
    client.decline = false;

    /* Too small, or not aligned: not used, and given back. */
    client.size = 127;
    call_malloc(0, 1);
    EQUAL(dropped(), 1);
    EQUAL(client.given, 1);
    EQUAL(client.taken, 1);
    EQUAL(client.empty, 1);
    client.size = 4096;
    client.misalign = 4;
    call_malloc(0, 1);
    EQUAL(dropped(), 1);
    EQUAL(client.empty, 2);
    client.misalign = 0;
    call_malloc(0, 77);
    flush();
    EQUAL(client.count, 1);
    EQUAL(dropped(), 0);
    flush(); /* nothing more, and no empty buffer */
    EQUAL(client.taken, 3);
}

/* Full buffers come back without a flush, on a thread of CUPTI's own. */
static void worker(void)
{
    client.size = 512;
    collect();
    EQUAL(cuptiActivityEnable(CM_CUPTI_MEMORY2), OK);
    EQUAL(cuptiActivityFlushPeriod(5), OK);
    for (int i = 0; i < 41; i++)
        call_malloc(0, 1);
    for (bool done = false; !done; sched_yield()) {
        pthread_mutex_lock(&client.lock);
        done = client.count == 40;
        pthread_mutex_unlock(&client.lock);
    }
    EQUAL(client.elsewhere, 10);
    EQUAL(cuptiActivityFlushPeriod(0), OK);
    EQUAL(cuptiActivityFlushAll(FORCED), OK);
    EQUAL(client.count, 41);
    EQUAL(client.given, client.taken);
}

/* Work that is not done: an ordinary flush keeps its buffer, a forced one gives it without an end.
 */
static void incomplete(void)
{
    lag(3);
    collect();
    EQUAL(cuptiActivityEnable(CM_CUPTI_CONCURRENT_KERNEL), OK);
    call_launch(0, 0, "first");
    flush();
    EQUAL(client.count, 0);
    for (int i = 0; i < 3; i++)
        call_launch(0, 0, "later");
    flush();
    EQUAL(client.count, 0); /* the first is done, those behind it are not */
    EQUAL(cuptiActivityFlushAll(FORCED), OK);
    EQUAL(client.count, 4);
    for (size_t i = 0; i < 4; i++) {
        const cm_cupti_kernel *kernel = record_of(CM_CUPTI_CONCURRENT_KERNEL, i);
        CHECK(kernel->start);
        CHECK(i ? !kernel->end : kernel->end > kernel->start);
    }
    call_launch(0, 0, "last");
    synchronize();
    flush();
    EQUAL(client.count, 5);
    CHECK(((const cm_cupti_kernel *)record_of(CM_CUPTI_CONCURRENT_KERNEL, 4))->end);

    /* Full ones wait too; they come in any order, but they come. */
    forget();
    client.size = 512;
    EQUAL(cuptiActivityFlushPeriod(1), OK);
    for (int i = 0; i < 40; i++)
        call_launch(0, i % 3, "k");
    nanosleep(&(struct timespec){0, 20000000}, NULL);
    pthread_mutex_lock(&client.lock);
    CHECK(client.count <= 36);
    pthread_mutex_unlock(&client.lock);
    synchronize();
    for (bool done = false; !done; sched_yield()) {
        pthread_mutex_lock(&client.lock);
        done = client.count == 38; /* the last buffer, of two records, is not known to be full */
        pthread_mutex_unlock(&client.lock);
    }
    flush();
    EQUAL(client.count, 40);
    for (size_t i = 0; i < 40; i++)
        CHECK(((const cm_cupti_kernel *)client.records[i])->end);
    /* Detaching gives everything, finished or not. */
    call_launch(0, 0, "k");
    EQUAL(cuptiFinalize(), OK);
    EQUAL(client.count, 41);
    EQUAL(client.given, client.taken);
    lag(0);
}

/* Functions of the client that call back into CUPTI, and take a lock that callers of CUPTI hold. */
static pthread_mutex_t clients_own = PTHREAD_MUTEX_INITIALIZER;

static void give_and_ask(uint8_t **buffer, size_t *size, size_t *max_records)
{
    size_t count;

    give(buffer, size, max_records);
    EQUAL(cuptiActivityGetNumDroppedRecords(NULL, 0, &count), OK);
    call_malloc(0, 999); /* its record finds no buffer */
}

static void take_and_ask(void *context, uint32_t stream, uint8_t *buffer, size_t size, size_t valid)
{
    size_t count;
    uint64_t now;

    pthread_mutex_lock(&clients_own);
    take_back(context, stream, buffer, size, valid);
    EQUAL(cuptiActivityGetNumDroppedRecords(NULL, 0, &count), OK);
    EQUAL(cuptiGetTimestamp(&now), OK);
    EQUAL(cuptiActivityEnable(CM_CUPTI_MEMSET), OK);
    EQUAL(cuptiActivityFlushAll(0), INVALID_OPERATION);
    pthread_mutex_unlock(&clients_own);
}

static void reentrant(void)
{
    size_t count;

    client.size = 256;
    client.main_thread = pthread_self();
    EQUAL(cuptiActivityRegisterCallbacks(give_and_ask, take_and_ask), OK);
    EQUAL(cuptiActivityEnable(CM_CUPTI_MEMORY2), OK);
    for (int i = 0; i < 200; i++) {
        pthread_mutex_lock(&clients_own);
        call_malloc(0, 1);
        EQUAL(cuptiActivityGetNumDroppedRecords(NULL, 0, &count), OK);
        pthread_mutex_unlock(&clients_own);
        if (i % 10 == 0)
            flush();
    }
    flush();
    size_t wanted = 0;
    for (size_t i = 0; i < client.count; i++)
        wanted += ((const cm_cupti_memory *)client.records[i])->bytes == 1;
    EQUAL(wanted, 200);
}

/* Another tool registers: buffers that were asked of one come back to the other. */
static unsigned foreign;

static void take_foreign(void *context, uint32_t stream, uint8_t *buffer, size_t size, size_t valid)
{
    foreign++;
    take_back(context, stream, buffer, size, valid);
}

static void takeover(void)
{
    collect();
    EQUAL(cuptiActivityEnable(CM_CUPTI_MEMORY2), OK);
    call_malloc(0, 1);
    EQUAL(cuptiActivityRegisterCallbacks(give, take_foreign), OK);
    flush();
    EQUAL(foreign, 1);
    EQUAL(client.count, 1);
}

static void *one_call(void *unused)
{
    (void)unused;
    call_malloc(0, 1);
    return NULL;
}

static void in_thread(void)
{
    pthread_t thread;

    EQUAL(pthread_create(&thread, NULL, one_call, NULL), 0);
    EQUAL(pthread_join(thread, NULL), 0);
}

/* Threads that end leave their buffer to the next one; a flush finds what all of them wrote. */
static void threads(void)
{
    client.size = 1 << 16;
    collect();
    EQUAL(cuptiActivityEnable(CM_CUPTI_MEMORY2), OK);
    for (int i = 0; i < 100; i++)
        in_thread();
    EQUAL(client.given, 1);
    call_malloc(0, 1);
    EQUAL(client.given, 1); /* this thread took the one that lay idle */
    in_thread();
    EQUAL(client.given, 2);
    flush();
    EQUAL(client.count, 102);
    EQUAL(client.taken, client.given);

    /* One for all, on request. */
    forget();
    EQUAL(cuptiFinalize(), OK);
    uint8_t no = 0;
    size_t size = 1;
    EQUAL(cuptiActivitySetAttribute(9, &size, &no), OK);
    collect();
    EQUAL(cuptiActivityEnable(CM_CUPTI_MEMORY2), OK);
    call_malloc(0, 1);
    in_thread();
    EQUAL(client.given, 1);
    flush();
    EQUAL(client.count, 2);
}

/* Detaching with records outstanding, inside a callback; then everything anew. */
static void finalize_inside(void *userdata, int domain, uint32_t id, const void *data)
{
    (void)userdata, (void)domain, (void)id, (void)data;
    EQUAL(cuptiFinalize(), OK);
}

static void finalize(void)
{
    void *one;

    for (int round = 0; round < 20; round++) {
        client.size = round % 2 ? 256 : 4096;
        collect();
        EQUAL(cuptiSubscribe(&one, finalize_inside, NULL), OK);
        EQUAL(cuptiActivityEnable(CM_CUPTI_MEMORY2), OK);
        for (int i = 0; i < 10; i++)
            call_malloc(0, 1);
        EQUAL(cuptiEnableCallback(1, one, DRIVER_API, CU_LAUNCH), OK);
        call_launch(0, 0, "k");
        CHECK(!cm_sim_cupti_wanted());
        EQUAL(client.count, 10);
        EQUAL(client.given, client.taken);
        EQUAL(cuptiUnsubscribe(one), INVALID_PARAMETER);
        EQUAL(cuptiActivityFlushAll(0), INVALID_OPERATION);
        forget();
    }
    EQUAL(cuptiFinalize(), OK);
}

static const unit units[] = {
    {"sizes", sizes},           {"drops", drops},         {"worker", worker},
    {"incomplete", incomplete}, {"reentrant", reentrant}, {"takeover", takeover},
    {"threads", threads},       {"finalize", finalize},
};
UNITS(units)
