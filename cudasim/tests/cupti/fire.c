/* Clients come and go, buffers are flushed and CUPTI is detached while threads make calls.
 *
 * What a callback is given is freed as soon as its subscriber has left: sanitizers see who comes
 * late. In the end, with everything on and nobody leaving, no record may be missing. */
#include <time.h>

#include "collect.h"
#include "doubles.h"

enum { THREADS = 8, ROUNDS = 60, CALLS = 4000, MAGIC = 0x5eed };

static atomic_bool stop;
static atomic_ulong heard, made;

typedef struct userdata {
    int magic;
    pthread_mutex_t lock;
    unsigned long calls;
} userdata;

static void hear(void *given, int domain, uint32_t id, const void *cbdata)
{
    userdata *mine = given;
    const cm_cupti_callback_data *data = cbdata;
    uint64_t now;

    (void)domain, (void)id;
    CHECK(mine->magic == MAGIC);
    CHECK(data->correlationId);
    pthread_mutex_lock(&mine->lock);
    mine->calls++;
    pthread_mutex_unlock(&mine->lock);
    EQUAL(cuptiGetTimestamp(&now), OK);
    atomic_fetch_add(&heard, 1);
}

static void *call(void *number)
{
    int device = (int)((uintptr_t)number % 2);

    while (!atomic_load(&stop)) {
        uint64_t last;
        cuptiActivityPushExternalCorrelationId(3, 17);
        uintptr_t address = call_malloc(device, 100);
        call_launch(device, (int)((uintptr_t)number % 4), "kernel");
        call_free(device, address, 100);
        EQUAL(cuptiActivityPopExternalCorrelationId(3, &last), OK);
        atomic_fetch_add(&made, 3);
    }
    return NULL;
}

static void *call_so_many(void *number)
{
    for (int i = 0; i < CALLS; i++)
        call_malloc(0, (uintptr_t)number * CALLS + (uintptr_t)i + 1);
    return NULL;
}

/* Waits until the threads have got somewhere. */
static void let_run(unsigned long calls)
{
    unsigned long until = atomic_load(&made) + calls;

    while (atomic_load(&made) < until)
        nanosleep(&(struct timespec){0, 100000}, NULL);
}

static void *flush_often(void *unused)
{
    (void)unused;
    while (!atomic_load(&stop)) {
        int result = cuptiActivityFlushAll(FORCED);
        CHECK(result == OK || result == INVALID_OPERATION); /* detached */
        nanosleep(&(struct timespec){0, 300000}, NULL);
    }
    return NULL;
}

static void come_and_go(int round)
{
    void *handle, *second;
    userdata *mine = calloc(1, sizeof *mine);

    mine->magic = MAGIC;
    pthread_mutex_init(&mine->lock, NULL);
    EQUAL(cuptiSubscribe(&handle, hear, mine), OK);
    EQUAL(cuptiSubscribe(&second, hear, mine), MULTIPLE_SUBSCRIBERS);
    EQUAL(cuptiEnableDomain(1, handle, DRIVER_API), OK);
    collect();
    EQUAL(cuptiActivityEnable(CM_CUPTI_MEMORY2), OK);
    EQUAL(cuptiActivityEnable(CM_CUPTI_CONCURRENT_KERNEL), OK);
    EQUAL(cuptiActivityEnable(CM_CUPTI_RUNTIME), OK);
    EQUAL(cuptiActivityEnable(CM_CUPTI_EXTERNAL_CORRELATION), OK);
    let_run(200);
    EQUAL(cuptiEnableDomain(1, handle, RUNTIME_API), OK);
    EQUAL(cuptiActivityDisable(CM_CUPTI_RUNTIME), OK);
    let_run(100);
    if (round % 3 == 0)
        EQUAL(cuptiFinalize(), OK);
    else
        EQUAL(cuptiUnsubscribe(handle), OK);
    /* Nobody is inside any more. */
    mine->magic = 0;
    pthread_mutex_destroy(&mine->lock);
    free(mine);
    forget();
}

static void whole(void)
{
    pthread_t threads[THREADS];
    unsigned char *seen = calloc(THREADS * CALLS + 1, 1);

    EQUAL(cuptiFinalize(), OK);
    forget();
    client.size = 2048;
    collect();
    EQUAL(cuptiActivityEnable(CM_CUPTI_MEMORY2), OK);
    for (uintptr_t i = 0; i < THREADS; i++)
        EQUAL(pthread_create(&threads[i], NULL, call_so_many, (void *)i), 0);
    for (int i = 0; i < 50; i++) {
        flush();
        nanosleep(&(struct timespec){0, 200000}, NULL);
    }
    for (int i = 0; i < THREADS; i++)
        EQUAL(pthread_join(threads[i], NULL), 0);
    flush();
    EQUAL(client.count, THREADS * CALLS);
    EQUAL(client.given, client.taken);
    EQUAL(dropped(), 0);
    for (size_t i = 0; i < client.count; i++) {
        const cm_cupti_memory *memory = (const cm_cupti_memory *)client.records[i];
        EQUAL(memory->kind, CM_CUPTI_MEMORY2);
        CHECK(memory->bytes <= THREADS * CALLS && !seen[memory->bytes]++);
    }
    free(seen);
    forget();
}

int main(void)
{
    pthread_t threads[THREADS], flusher;

    client.size = 4096;
    collect();
    for (uintptr_t i = 0; i < THREADS; i++)
        EQUAL(pthread_create(&threads[i], NULL, call, (void *)i), 0);
    EQUAL(pthread_create(&flusher, NULL, flush_often, NULL), 0);
    for (int round = 0; round < ROUNDS; round++)
        come_and_go(round);
    atomic_store(&stop, true);
    for (int i = 0; i < THREADS; i++)
        EQUAL(pthread_join(threads[i], NULL), 0);
    EQUAL(pthread_join(flusher, NULL), 0);
    CHECK(atomic_load(&heard) > 0);
    whole();
    EQUAL(cuptiFinalize(), OK);
    return 0;
}
