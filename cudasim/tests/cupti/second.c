/* The second interface: several subscribers, each with kinds, buffers and correlationData of its
 * own; and what it does not mix with. CUPTIMEM_SIM_CUPTI is 13.3 or later. */
#include "client.h"
#include "doubles.h"

enum { KERNELS = CM_CUPTI_CONCURRENT_KERNEL };
enum { NOT_SUPPORTED = 27, STATE = 12, ONE_ONLY = 0, SEVERAL = 1, NOT_SAID = 2 };

int cuptiActivityEnable_v2(void *, uint32_t, const void *);
int cuptiActivityDisable_v2(void *, uint32_t, const void *);
int cuptiActivityRegisterCallbacks_v2(void *, void *, void *);
int cuptiActivityGetAttribute_v2(void *, uint32_t, size_t *, void *);
int cuptiActivitySetAttribute_v2(void *, uint32_t, size_t *, const void *);
int cuptiActivityGetNextRecord_v2(void *, uint8_t *, size_t, cm_cupti_record **);
int cuptiActivityGetNumDroppedRecords_v2(void *, void *, uint32_t, size_t *);
int cuptiActivityGetStructSize(uint32_t, uint32_t, size_t *);
int cuptiActivityEnableDriverApi_v2(void *, uint32_t, uint8_t);
int cuptiActivityPushExternalCorrelationId_v2(void *, uint32_t, uint64_t);
int cuptiActivityPopExternalCorrelationId_v2(void *, uint32_t, uint64_t *);
int cuptiGetTimestamp_v2(void *, uint64_t *);

/* A subscriber with all that belongs to it. */
typedef struct party {
    void *handle;
    unsigned calls, exits;
    uint64_t mark; /* what it leaves in correlationData */
    unsigned given, taken, records[CM_CUPTI_KINDS];
    uint32_t correlations[64], externals[8];
    unsigned correlated;
    bool declines;
} party;
static party one = {.mark = 0x1111}, two = {.mark = 0x2222};

static void hear(void *userdata, int domain, uint32_t id, const void *cbdata)
{
    const cm_cupti_callback_data *data = cbdata;
    party *own = userdata;

    (void)domain, (void)id;
    if (data->callbackSite == 0) {
        EQUAL(*data->correlationData, 0);
        *data->correlationData = own->mark + data->correlationId;
        own->calls++;
    } else {
        EQUAL(*data->correlationData, own->mark + data->correlationId);
        own->exits++;
    }
}

static void give(party *own, uint8_t **buffer, size_t *size, size_t *most,
                 const cm_cupti_request_info *info)
{
    CHECK(info && info->structSize == sizeof *info);
    *buffer = own->declines ? NULL : malloc(4096);
    *size = own->declines ? 0 : 4096;
    *most = 0;
    own->given += !own->declines;
}

static void take(party *own, uint8_t *buffer, size_t size, size_t valid,
                 const cm_cupti_complete_info *info)
{
    cm_cupti_record *record = NULL;

    EQUAL(size, 4096);
    CHECK(info->structSize == sizeof *info && !info->ppRecordLayouts && !info->numRecordLayouts);
    CHECK(info->threadId);
    while (cuptiActivityGetNextRecord_v2(own->handle, buffer, valid, &record) == OK) {
        own->records[record->kind]++;
        if (record->kind == CM_CUPTI_MEMORY2 && own->correlated < 64)
            own->correlations[own->correlated++] = ((cm_cupti_memory *)record)->correlationId;
        if (record->kind == CM_CUPTI_EXTERNAL_CORRELATION)
            own->externals[((cm_cupti_external *)record)->externalKind] =
                (uint32_t)((cm_cupti_external *)record)->externalId;
    }
    own->taken++;
    free(buffer);
}

static void give_one(uint8_t **buffer, size_t *size, size_t *most, cm_cupti_request_info *info)
{
    give(&one, buffer, size, most, info);
}

static void take_one(uint8_t *buffer, size_t size, size_t valid, cm_cupti_complete_info *info)
{
    take(&one, buffer, size, valid, info);
}

static void give_two(uint8_t **buffer, size_t *size, size_t *most, cm_cupti_request_info *info)
{
    give(&two, buffer, size, most, info);
}

static void take_two(uint8_t *buffer, size_t size, size_t valid, cm_cupti_complete_info *info)
{
    take(&two, buffer, size, valid, info);
}

static char holder[64];

static int subscribe(party *own, const char *name, bool several)
{
    cm_cupti_subscriber_params params = {.structSize = sizeof params,
                                         .subscriberName = name,
                                         .oldSubscriberName = holder,
                                         .oldSubscriberSize = sizeof holder,
                                         .allowMultipleSubscribers = several};

    strcpy(holder, "nobody");
    return cuptiSubscribe_v2(&own->handle, hear, own, &params);
}

static uint8_t state(void)
{
    uint8_t value = 9;
    size_t size = sizeof value;

    EQUAL(cuptiActivityGetAttribute_v2(NULL, STATE, &size, &value), OK);
    EQUAL(cuptiActivityGetAttribute(STATE, &size, &value), OK);
    return value;
}

static void both(void)
{
    EQUAL(state(), NOT_SAID);
    EQUAL(subscribe(&one, "first", true), OK);
    CHECK(!strcmp(holder, "nobody"));
    EQUAL(subscribe(&two, "second", true), OK);
    CHECK(!strcmp(holder, "CUPTI for first"));
    EQUAL(state(), SEVERAL);
    EQUAL(cuptiActivityRegisterCallbacks_v2(one.handle, give_one, take_one), OK);
    EQUAL(cuptiActivityRegisterCallbacks_v2(two.handle, give_two, take_two), OK);
}

static void neither(void)
{
    EQUAL(cuptiUnsubscribe(one.handle), OK);
    EQUAL(state(), SEVERAL);
    EQUAL(cuptiUnsubscribe(two.handle), OK);
    EQUAL(state(), NOT_SAID);
    CHECK(!cm_sim_cupti_wanted());
    EQUAL(one.given, one.taken);
    EQUAL(two.given, two.taken);
}

static void each_hears_its_own(void)
{
    both();
    EQUAL(cuptiEnableCallback(1, one.handle, DRIVER_API, CU_MALLOC), OK);
    EQUAL(cuptiEnableCallback(1, two.handle, DRIVER_API, CU_MALLOC), OK);
    EQUAL(cuptiEnableCallback(1, two.handle, DRIVER_API, CU_FREE), OK);
    call_free(0, call_malloc(0, 100), 100);
    EQUAL(one.calls, 1);
    EQUAL(one.exits, 1);
    EQUAL(two.calls, 2);
    EQUAL(two.exits, 2);
    neither();
}

static void each_has_its_own_records(void)
{
    uint64_t last;
    uint8_t flag = 0;
    size_t size = sizeof flag, lost;

    both();
    EQUAL(cuptiActivityEnable_v2(one.handle, CM_CUPTI_MEMORY2, NULL), OK);
    EQUAL(cuptiActivityEnable_v2(two.handle, CM_CUPTI_MEMORY2, NULL), OK);
    EQUAL(cuptiActivityEnable_v2(two.handle, KERNELS, NULL), OK);
    /* One buffer for all threads, of one of them. */
    EQUAL(cuptiActivitySetAttribute_v2(one.handle, 9, &size, &flag), OK);
    EQUAL(cuptiActivityGetAttribute_v2(two.handle, 9, &size, &flag), OK);
    EQUAL(flag, 1);
    call_malloc(0, 100);
    call_launch(0, 0, "kernel");
    call_malloc(0, 200);
    EQUAL(cuptiActivityFlushAll(0), OK);
    EQUAL(one.records[CM_CUPTI_MEMORY2], 2);
    EQUAL(one.records[KERNELS], 0);
    EQUAL(two.records[CM_CUPTI_MEMORY2], 2);
    EQUAL(two.records[KERNELS], 1);
    EQUAL(one.correlations[0], two.correlations[0]);
    EQUAL(one.correlations[1], two.correlations[1]);

    EQUAL(cuptiActivityDisable_v2(two.handle, CM_CUPTI_MEMORY2, NULL), OK);
    one.declines = true;
    call_malloc(0, 300);
    EQUAL(cuptiActivityGetNumDroppedRecords_v2(one.handle, NULL, 0, &lost), OK);
    EQUAL(lost, 1);
    EQUAL(cuptiActivityGetNumDroppedRecords_v2(two.handle, NULL, 0, &lost), OK);
    EQUAL(lost, 0);
    one.declines = false;

    /* Filters and external ids. */
    EQUAL(cuptiActivityEnableDriverApi_v2(two.handle, CU_MALLOC, 1), OK);
    EQUAL(cuptiActivityEnable_v2(two.handle, CM_CUPTI_EXTERNAL_CORRELATION, NULL), OK);
    EQUAL(cuptiActivityPushExternalCorrelationId_v2(two.handle, 5, 77), OK);
    EQUAL(cuptiActivityPopExternalCorrelationId_v2(one.handle, 5, &last), QUEUE_EMPTY);
    call_malloc(0, 400);
    EQUAL(cuptiActivityPopExternalCorrelationId_v2(two.handle, 5, &last), OK);
    EQUAL(last, 77);
    EQUAL(cuptiActivityFlushAll(0), OK);
    EQUAL(one.records[CM_CUPTI_DRIVER], 0);
    EQUAL(two.records[CM_CUPTI_DRIVER], 1);
    EQUAL(two.externals[5], 77);
    EQUAL(two.records[CM_CUPTI_MEMORY2], 2);
    neither();
    EQUAL(one.records[CM_CUPTI_MEMORY2], 3); /* of four, one was dropped */
}

/* What a subscriber collected goes to it when it leaves, and the other one goes on. */
static void one_leaves(void)
{
    both();
    EQUAL(cuptiActivityEnable_v2(one.handle, CM_CUPTI_MEMORY2, NULL), OK);
    EQUAL(cuptiActivityEnable_v2(two.handle, CM_CUPTI_MEMORY2, NULL), OK);
    call_malloc(0, 100);
    void *gone = one.handle;
    EQUAL(cuptiUnsubscribe(one.handle), OK);
    EQUAL(one.given, one.taken);
    EQUAL(one.records[CM_CUPTI_MEMORY2], 1);
    EQUAL(cuptiActivityEnable_v2(gone, CM_CUPTI_MEMORY2, NULL), INVALID_PARAMETER);
    EQUAL(cuptiFinalize(), OK); /* one is left: it is the last one's to end */
    CHECK(!cm_sim_cupti_wanted());
    EQUAL(two.given, two.taken);
    EQUAL(two.records[CM_CUPTI_MEMORY2], 1);
}

static void the_first_interface_is_refused(void)
{
    void *other;
    uint8_t value = 1;
    size_t size = sizeof value, lost;
    uint64_t now;

    both();
    EQUAL(cuptiSubscribe(&other, hear, &one), MULTIPLE_SUBSCRIBERS);
    EQUAL(subscribe(&(party){0}, "alone", false), MULTIPLE_SUBSCRIBERS);
    CHECK(!strcmp(holder, "CUPTI for first"));
    EQUAL(cuptiActivityEnable(CM_CUPTI_MEMORY2), MULTIPLE_SUBSCRIBERS);
    EQUAL(cuptiActivityDisable(CM_CUPTI_MEMORY2), MULTIPLE_SUBSCRIBERS);
    EQUAL(cuptiActivitySetAttribute(9, &size, &value), MULTIPLE_SUBSCRIBERS);
    EQUAL(cuptiActivityGetAttribute(9, &size, &value), MULTIPLE_SUBSCRIBERS);
    EQUAL(cuptiActivityPushExternalCorrelationId(5, 1), MULTIPLE_SUBSCRIBERS);
    EQUAL(cuptiActivityRegisterCallbacks(NULL, NULL), MULTIPLE_SUBSCRIBERS);
    EQUAL(cuptiActivityEnable_v2(NULL, CM_CUPTI_MEMORY2, NULL), INVALID_PARAMETER);
    EQUAL(cuptiActivityEnable_v2(one.handle, CM_CUPTI_MEMORY2, &value), NOT_SUPPORTED);
    EQUAL(cuptiActivitySetAttribute_v2(one.handle, STATE, &size, &value), INVALID_PARAMETER);
    EQUAL(cuptiActivitySetAttribute_v2(one.handle, 11, &size, &value), NOT_SUPPORTED);
    EQUAL(noted(), 2);
    EQUAL(cuptiGetTimestamp_v2(one.handle, &now), OK);
    EQUAL(cuptiFinalize(), OK); /* of two: nothing */
    EQUAL(cuptiActivityGetNumDroppedRecords_v2(one.handle, NULL, 0, &lost), OK);
    neither();

    /* And the other way round. */
    EQUAL(cuptiSubscribe(&other, hear, &one), OK);
    EQUAL(state(), ONE_ONLY);
    EQUAL(subscribe(&two, "second", true), MULTIPLE_SUBSCRIBERS);
    CHECK(!strcmp(holder, "")); /* as far as is known */
    EQUAL(cuptiActivityEnable_v2(other, CM_CUPTI_MEMORY2, NULL), MULTIPLE_SUBSCRIBERS);
    EQUAL(cuptiUnsubscribe(other), OK);
    EQUAL(cuptiActivityEnable(CM_CUPTI_MEMORY2), OK); /* without anybody subscribed */
    EQUAL(subscribe(&two, "second", true), MULTIPLE_SUBSCRIBERS);
    EQUAL(cuptiActivityDisable(CM_CUPTI_MEMORY2), OK);
    EQUAL(subscribe(&two, "second", true), OK);
    EQUAL(cuptiUnsubscribe(two.handle), OK);
    /* Alone, but by the second interface. */
    EQUAL(subscribe(&one, "alone", false), OK);
    EQUAL(cuptiActivityEnable_v2(one.handle, CM_CUPTI_MEMORY2, NULL), OK);
    EQUAL(cuptiUnsubscribe(one.handle), OK);
}

static void there_is_room_for_eight(void)
{
    party all[9] = {0};

    for (int i = 0; i < 8; i++)
        EQUAL(subscribe(&all[i], "one of many", true), OK);
    EQUAL(subscribe(&all[8], "one of many", true), 8);
    for (int i = 0; i < 8; i++)
        EQUAL(cuptiUnsubscribe(all[i].handle), OK);
}

static void sizes(void)
{
    size_t size = 0;

    EQUAL(cuptiActivityGetStructSize(CM_CUPTI_MEMORY2, 0, &size), OK);
    EQUAL(size, 128);
    EQUAL(cuptiActivityGetStructSize(KERNELS, 130000, &size), OK);
    EQUAL(size, 216);
    EQUAL(cuptiActivityGetStructSize(KERNELS, 130300, &size), OK);
    EQUAL(size, 232);
    EQUAL(cuptiActivityGetStructSize(KERNELS, 12090, &size), NOT_SUPPORTED);
    EQUAL(cuptiActivityGetStructSize(6, 0, &size), INVALID_KIND);
    EQUAL(cuptiActivityGetStructSize(KERNELS, 0, NULL), INVALID_PARAMETER);
}

/* Threads call while subscribers come and go: every call's exit finds what its enter left. */
static atomic_bool stop;

static void *call(void *unused)
{
    (void)unused;
    while (!atomic_load(&stop))
        call_free(0, call_malloc(0, 100), 100);
    return NULL;
}

static void quiet(void *userdata, int domain, uint32_t id, const void *cbdata)
{
    const cm_cupti_callback_data *data = cbdata;

    (void)userdata, (void)domain, (void)id;
    if (data->callbackSite == 0)
        *data->correlationData = data->correlationId;
    else
        CHECK(!*data->correlationData || *data->correlationData == data->correlationId);
}

static void give_any(uint8_t **buffer, size_t *size, size_t *most, cm_cupti_request_info *info)
{
    (void)info;
    *buffer = malloc(2048);
    *size = 2048;
    *most = 0;
}

static void take_any(uint8_t *buffer, size_t size, size_t valid, cm_cupti_complete_info *info)
{
    (void)size, (void)valid, (void)info;
    free(buffer);
}

static void *come_and_go(void *unused)
{
    cm_cupti_subscriber_params params = {.structSize = sizeof params,
                                         .allowMultipleSubscribers = 1};

    for (int i = 0; i < 40; i++) {
        void *handle;
        EQUAL(cuptiSubscribe_v2(&handle, quiet, NULL, &params), OK);
        EQUAL(cuptiActivityRegisterCallbacks_v2(handle, give_any, take_any), OK);
        EQUAL(cuptiEnableDomain(1, handle, DRIVER_API), OK);
        EQUAL(cuptiActivityEnable_v2(handle, CM_CUPTI_MEMORY2, NULL), OK);
        EQUAL(cuptiActivityFlushAll(0), OK);
        EQUAL(cuptiUnsubscribe(handle), OK);
    }
    return unused;
}

static void threads(void)
{
    pthread_t callers[3], clients[3];

    for (int i = 0; i < 3; i++)
        EQUAL(pthread_create(&callers[i], NULL, call, NULL), 0);
    for (int i = 0; i < 3; i++)
        EQUAL(pthread_create(&clients[i], NULL, come_and_go, NULL), 0);
    for (int i = 0; i < 3; i++)
        EQUAL(pthread_join(clients[i], NULL), 0);
    atomic_store(&stop, true);
    for (int i = 0; i < 3; i++)
        EQUAL(pthread_join(callers[i], NULL), 0);
    CHECK(!cm_sim_cupti_wanted());
}

static const unit units[] = {
    {"each_hears_its_own", each_hears_its_own},
    {"each_has_its_own_records", each_has_its_own_records},
    {"one_leaves", one_leaves},
    {"the_first_interface_is_refused", the_first_interface_is_refused},
    {"there_is_room_for_eight", there_is_room_for_eight},
    {"sizes", sizes},
    {"threads", threads},
};
UNITS(units)
