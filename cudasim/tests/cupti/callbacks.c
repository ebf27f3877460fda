/* Subscribers and their callbacks. */
#include <sched.h>
#include <time.h>

#include "collect.h"
#include "doubles.h"

typedef struct seen {
    int domain, site, result;
    uint32_t id, correlation;
    uint64_t data;
    char name[32], symbol[32];
    size_t bytes;
    uintptr_t address;
    void *context;
    uint32_t context_id;
} seen;
static seen calls[64];
static unsigned called;
static bool nested_calls;

static void watch(void *userdata, int domain, uint32_t id, const void *cbdata)
{
    const cm_cupti_callback_data *data = cbdata;
    CHECK(called < 64);
    seen *s = &calls[called++];

    CHECK(userdata == calls);
    *s = (seen){.domain = domain,
                .site = data->callbackSite,
                .id = id,
                .correlation = data->correlationId,
                .context = data->context,
                .context_id = data->contextUid};
    strncpy(s->name, data->functionName, 31);
    strncpy(s->symbol, data->symbolName ? data->symbolName : "", 31);
    if (s->site == 0) {
        *data->correlationData = 1000 * (uint64_t)domain + called;
    } else {
        s->result = *(const int *)data->functionReturnValue;
        if (domain == DRIVER_API && id == CU_MALLOC) {
            const struct {
                uint64_t *pointer;
                size_t bytes;
            } *parameters = data->functionParams;
            s->bytes = parameters->bytes;
            s->address = *parameters->pointer;
        }
    }
    s->data = *data->correlationData;
    if (nested_calls)
        call_malloc(0, 512);
}

static void callbacks(void)
{
    void *one, *two;

    EQUAL(cuptiSubscribe(NULL, watch, calls), INVALID_PARAMETER);
    EQUAL(cuptiSubscribe(&one, watch, calls), OK);
    EQUAL(cuptiSubscribe(&two, watch, calls), MULTIPLE_SUBSCRIBERS);
    CHECK(!cm_sim_cupti_wanted());
    call_malloc(0, 1000);
    EQUAL(called, 0);

    EQUAL(cuptiEnableDomain(1, one, RUNTIME_API), OK);
    EQUAL(cuptiEnableCallback(1, one, DRIVER_API, CU_MALLOC), OK);
    CHECK(cm_sim_cupti_wanted());
    uintptr_t address = call_malloc(1, 1000);
    EQUAL(called, 4);
    EQUAL(calls[0].domain, RUNTIME_API);
    EQUAL(calls[1].domain, DRIVER_API);
    EQUAL(calls[2].domain, DRIVER_API);
    EQUAL(calls[3].domain, RUNTIME_API);
    for (int i = 0; i < 4; i++) {
        EQUAL(calls[i].site, i >= 2);
        EQUAL(calls[i].id, calls[i].domain == RUNTIME_API ? CUDA_MALLOC : CU_MALLOC);
        EQUAL(calls[i].correlation, calls[0].correlation);
        CHECK(calls[i].context == a_context(1));
        EQUAL(calls[i].context_id, 2);
        CHECK(!strcmp(calls[i].name,
                      calls[i].domain == RUNTIME_API ? "cudaMalloc" : "cuMemAlloc_v2"));
    }
    EQUAL(calls[3].data, 2001); /* what ENTER left there */
    EQUAL(calls[2].data, 1002);
    EQUAL(calls[2].bytes, 1000);
    EQUAL(calls[2].address, address);
    CHECK(calls[0].correlation != 0);

    uint32_t before = calls[0].correlation;
    called = 0;
    call_launch(0, 0, "_Z4kernel");
    EQUAL(called, 2); /* of the driver only the allocation is wanted */
    CHECK(!strcmp(calls[0].symbol, "_Z4kernel") && !strcmp(calls[1].symbol, "_Z4kernel"));
    EQUAL(calls[0].correlation, before + 1);

    called = 0;
    EQUAL(cuptiEnableCallback(0, one, RUNTIME_API, CUDA_LAUNCH), OK);
    call_launch(0, 0, "_Z4kernel");
    EQUAL(called, 0);
    EQUAL(cuptiEnableDomain(0, one, RUNTIME_API), OK);
    call_malloc(0, 1);
    EQUAL(called, 2);
    EQUAL(cuptiEnableDomain(0, one, DRIVER_API), OK);
    CHECK(!cm_sim_cupti_wanted());

    /* Ids and domains that do not exist. */
    EQUAL(cuptiEnableCallback(1, one, 0, 1), INVALID_PARAMETER);
    EQUAL(cuptiEnableCallback(1, one, 7, 1), INVALID_PARAMETER);
    EQUAL(cuptiEnableCallback(1, one, DRIVER_API, 807), INVALID_PARAMETER);
    EQUAL(cuptiEnableCallback(1, one, DRIVER_API, 806), OK);
    EQUAL(cuptiEnableCallback(1, one, RUNTIME_API, 523), INVALID_PARAMETER);
    EQUAL(cuptiEnableDomain(1, NULL, DRIVER_API), INVALID_PARAMETER);
    EQUAL(cuptiEnableDomain(1, &two, DRIVER_API), INVALID_PARAMETER);

    /* A driver call of its own has an id of its own, and its failure is told. */
    called = 0;
    EQUAL(cuptiEnableDomain(1, one, DRIVER_API), OK);
    EQUAL(cuptiEnableDomain(1, one, RUNTIME_API), OK);
    call_malloc_async(0, 1, 4096);
    EQUAL(called, 2);
    EQUAL(calls[1].result, 2);

    /* A callback that makes calls itself does not hear of them. */
    called = 0;
    nested_calls = true;
    call_malloc(0, 1);
    EQUAL(called, 4);
    nested_calls = false;

    EQUAL(cuptiUnsubscribe(one), OK);
    CHECK(!cm_sim_cupti_wanted());
    EQUAL(cuptiUnsubscribe(one), INVALID_PARAMETER);
    EQUAL(cuptiSubscribe(&two, watch, calls), OK);
    CHECK(two != one);
    EQUAL(cuptiEnableDomain(1, one, DRIVER_API), INVALID_PARAMETER);
    EQUAL(cuptiUnsubscribe(two), OK);
    for (int i = 0; i < 100; i++) {
        EQUAL(cuptiSubscribe(&one, watch, calls), OK);
        EQUAL(cuptiUnsubscribe(one), OK);
    }
}

/* A callback that waits for who is unsubscribing: that one gives up waiting, and says so. */
static atomic_bool entered, leave;

static void wait_inside(void *userdata, int domain, uint32_t id, const void *data)
{
    (void)userdata, (void)domain, (void)id, (void)data;
    atomic_store(&entered, true);
    while (!atomic_load(&leave))
        nanosleep(&(struct timespec){0, 1000000}, NULL);
}

static void *call_and_wait(void *unused)
{
    (void)unused;
    call_launch(0, 0, "k");
    return NULL;
}

static void stuck(void)
{
    pthread_t thread;
    void *one, *other;

    EQUAL(cuptiSubscribe(&one, wait_inside, NULL), OK);
    EQUAL(cuptiEnableCallback(1, one, DRIVER_API, CU_LAUNCH), OK);
    EQUAL(pthread_create(&thread, NULL, call_and_wait, NULL), 0);
    while (!atomic_load(&entered))
        sched_yield();
    EQUAL(noted(), 0);
    EQUAL(cuptiUnsubscribe(one), OK);
    EQUAL(noted(), 1);
    for (int i = 0; i < 40; i++) { /* its place is not given to anybody meanwhile */
        EQUAL(cuptiSubscribe(&other, watch, calls), OK);
        CHECK(other != one);
        EQUAL(cuptiUnsubscribe(other), OK);
    }
    atomic_store(&leave, true);
    EQUAL(pthread_join(thread, NULL), 0);
    EQUAL(noted(), 0);
}

static void names(void)
{
    void *one, *two;
    char holder[64] = "nobody";
    const char *name = "unset";
    cm_cupti_subscriber_params first = {.structSize = sizeof first,
                                        .subscriberName = "the first one"};
    cm_cupti_subscriber_params second = {.structSize = sizeof second,
                                         .subscriberName = "the second",
                                         .oldSubscriberName = holder,
                                         .oldSubscriberSize = sizeof holder};

    EQUAL(cuptiSubscribe_v2(&one, watch, calls, &first), OK);
    EQUAL(cuptiSubscribe_v2(&two, watch, calls, &second), MULTIPLE_SUBSCRIBERS);
    CHECK(!strcmp(holder, "CUPTI for the first one"));
    second.structSize = 8;
    EQUAL(cuptiSubscribe_v2(&two, watch, calls, &second), INVALID_PARAMETER);
    EQUAL(cuptiUnsubscribe(one), OK);

    /* As the vendor's library answers without a driver. */
    EQUAL(cuptiGetCallbackName(DRIVER_API, CU_MALLOC, &name), OK);
    CHECK(!strcmp(name, "cuMemAlloc_v2"));
    EQUAL(cuptiGetCallbackName(RUNTIME_API, 373, &name), OK);
    CHECK(!strcmp(name, "cudaMallocAsync_v11020"));
    EQUAL(cuptiGetCallbackName(DRIVER_API, 0, &name), OK);
    CHECK(!strcmp(name, "INVALID"));
    EQUAL(cuptiGetCallbackName(DRIVER_API, 807, &name), INVALID_PARAMETER);
    EQUAL(cuptiGetCallbackName(RUNTIME_API, 523, &name), INVALID_PARAMETER);
    EQUAL(cuptiGetCallbackName(3, 1, &name), INVALID_PARAMETER);
    EQUAL(cuptiGetCallbackName(DRIVER_API, 1, NULL), INVALID_PARAMETER);
    EQUAL(cuptiGetResultString(39, &name), OK);
    CHECK(!strcmp(name, "CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED"));
    EQUAL(cuptiGetResultString(36, &name), INVALID_PARAMETER);
    CHECK(!strcmp(name, "<unknown>"));
    EQUAL(cuptiGetResultString(999, &name), OK);
    EQUAL(cuptiGetResultString(UINT32_MAX, &name), INVALID_PARAMETER);

    uint32_t id;
    EQUAL(cuptiGetVersion(&id), OK);
    EQUAL(id, 130001);
    EQUAL(cuptiGetContextId(a_context(1), &id), OK);
    EQUAL(id, 2);
    EQUAL(cuptiGetDeviceId(a_context(1), &id), OK);
    EQUAL(id, 1);
    EQUAL(cuptiGetDeviceId(&id, &id), INVALID_CONTEXT);
    EQUAL(cuptiGetStreamIdEx(a_context(0), NULL, 0, &id), OK);
    EQUAL(id, 7);
    EQUAL(cuptiGetStreamIdEx(a_context(0), a_stream(2), 0, &id), OK);
    EQUAL(id, 14);
    EQUAL(cuptiGetStreamIdEx(a_context(0), &id, 0, &id), 20);
}

static void forked(void)
{
    void *one, *again;
    int status;

    collect();
    EQUAL(cuptiSubscribe(&one, watch, calls), OK);
    EQUAL(cuptiEnableDomain(1, one, RUNTIME_API), OK);
    EQUAL(cuptiActivityEnable(CM_CUPTI_MEMORY2), OK);
    call_malloc(0, 1);
    pid_t child = fork();
    if (!child) {
        CHECK(!cm_sim_cupti_wanted());
        unsigned before = called;
        call_malloc(0, 1);
        EQUAL(called, before);
        EQUAL(cuptiActivityFlushAll(0), INVALID_OPERATION);
        EQUAL(client.count, 0); /* the parent's record is the parent's */
        EQUAL(cuptiUnsubscribe(one), INVALID_PARAMETER);
        EQUAL(cuptiSubscribe(&again, watch, calls), OK);
        collect();
        client.size = 256;
        EQUAL(cuptiActivityEnable(CM_CUPTI_MEMORY2), OK);
        for (int i = 0; i < 10; i++)
            call_malloc(0, 5);
        flush();
        EQUAL(client.count, 10);
        EQUAL(((const cm_cupti_memory *)record_of(CM_CUPTI_MEMORY2, 0))->processId, getpid());
        _exit(0);
    }
    EQUAL(waitpid(child, &status, 0), child);
    CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    call_malloc(0, 1);
    flush();
    EQUAL(client.count, 2);
    EQUAL(cuptiUnsubscribe(one), OK);
}

static const unit units[] = {
    {"callbacks", callbacks},
    {"stuck", stuck},
    {"names", names},
    {"forked", forked},
};
UNITS(units)
