#include "play.h"

#include <time.h>

#include "../../../../csrc/base/clock.h"
#include "../../../../csrc/sources/cupti/activity_clock.h"
#include "../../../../csrc/sources/cupti/activity_records.h"

struct play play;
cm_cupti_api play_api;
cm_cupti_link play_link;
static uint64_t begun_ns;
static int subscriber;

uint64_t play_now(void)
{
    struct timespec t;

    if (play.clock_cycles)
        return (cm_clock_monotonic_ns() - begun_ns) * 3 + 1000;
    clock_gettime(CLOCK_REALTIME, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec + (uint64_t)play.clock_offset;
}

static int get_timestamp(uint64_t *time)
{
    *time = play_now();
    return 0;
}

static int get_timestamp_v2(void *of, uint64_t *time)
{
    CHECK(of == &subscriber);
    return get_timestamp(time);
}

static int result_string(int result, const char **text)
{
    *text = result == 15 ? "CUPTI_ERROR_NOT_INITIALIZED" : "CUPTI_ERROR_OTHER";
    return 0;
}

static int register_v1(cm_cupti_request request, cm_cupti_complete complete)
{
    play.request = request;
    play.complete = complete;
    return play.register_result;
}

static int register_v2(void *of, void *request, void *complete)
{
    CHECK(of == &subscriber);
    *(void **)&play.request_v2 = request;
    *(void **)&play.complete_v2 = complete;
    return play.register_result;
}

static int enable(int kind)
{
    CHECK(play.request != NULL || play.request_v2 != NULL);
    play.enables++;
    play.on[kind] = play.refuse[kind] == 0;
    return play.refuse[kind];
}

static int disable(int kind)
{
    CHECK(play.on[kind]);
    play.on[kind] = false;
    return 0;
}

static int enable_v2(void *of, int kind, void *config)
{
    CHECK(of == &subscriber && config == NULL);
    return enable(kind);
}

static int disable_v2(void *of, int kind, void *config)
{
    CHECK(of == &subscriber && config == NULL);
    return disable(kind);
}

static int flush_all(uint32_t flag)
{
    play.flushes++;
    play.forced += flag == 1;
    if (play.on_flush != NULL)
        play.on_flush(flag == 1);
    return 0;
}

/* Steps as the real one does: by the kind's length, whatever else is in the record. */
static int next_record(uint8_t *buffer, size_t valid, void **record)
{
    size_t at = 0;
    uint32_t kind;

    play.probes++;
    if (*record != NULL) {
        at = (size_t)((uint8_t *)*record - buffer);
        memcpy(&kind, *record, sizeof kind);
        at += kind < PLAY_KINDS ? play.size[kind] : 0;
    }
    if (at + sizeof kind > valid)
        return 12;
    memcpy(&kind, buffer + at, sizeof kind);
    if (kind >= PLAY_KINDS || play.size[kind] == 0)
        return 21;
    if (at + play.size[kind] > valid)
        return 12;
    *record = buffer + at;
    return 0;
}

static int next_record_v2(void *of, uint8_t *buffer, size_t valid, void **record)
{
    CHECK(of == &subscriber);
    return next_record(buffer, valid, record);
}

static int struct_size(int kind, uint32_t version, size_t *size)
{
    CHECK(version == 0);
    play.told++;
    if (play.struct_size_result != 0)
        return play.struct_size_result;
    if (kind < 0 || kind >= PLAY_KINDS || play.size[kind] == 0)
        return 21;
    *size = play.size[kind];
    return 0;
}

static int dropped(void *context, uint32_t stream, size_t *count)
{
    (void)context, (void)stream;
    *count = play.dropped;
    play.dropped = 0;
    return 0;
}

static int dropped_v2(void *of, void *context, uint32_t stream, size_t *count)
{
    CHECK(of == &subscriber);
    return dropped(context, stream, count);
}

static int get_attribute(int which, size_t *size, void *value)
{
    CHECK(*size == sizeof(size_t) && which < 32);
    memcpy(value, &play.attribute[which], sizeof(size_t));
    return 0;
}

static int set_attribute(int which, size_t *size, void *value)
{
    CHECK(*size == sizeof(size_t) && which < 32);
    memcpy(&play.attribute[which], value, sizeof(size_t));
    return 0;
}

static int get_attribute_v2(void *of, int which, size_t *size, void *value)
{
    CHECK(of == &subscriber);
    return get_attribute(which, size, value);
}

static int set_attribute_v2(void *of, int which, size_t *size, void *value)
{
    CHECK(of == &subscriber);
    return set_attribute(which, size, value);
}

static int one_call(uint32_t id, uint8_t on)
{
    CHECK(id == 243);
    play.one_call += on;
    return 0;
}

void play_begin(const play_sizes *sizes)
{
    static const play_sizes newest = {128, 80, 216, 96, 96, 88};
    static bool clock;

    if (!clock)
        cm_clock_init();
    clock = true;
    if (sizes == NULL)
        sizes = &newest;
    memset(&play, 0, sizeof play);
    begun_ns = cm_clock_monotonic_ns();
    play.size[CM_CUPTI_MEMORY2_RECORD] = sizes->memory2;
    play.size[CM_CUPTI_POOL_RECORD] = sizes->pool;
    play.size[CM_CUPTI_KERNEL_RECORD] = play.size[CM_CUPTI_CONCURRENT_RECORD] = sizes->kernel;
    play.size[CM_CUPTI_MEMCPY_RECORD] = sizes->copy;
    play.size[CM_CUPTI_MEMCPY2_RECORD] = sizes->copy2;
    play.size[CM_CUPTI_MEMSET_RECORD] = sizes->set;
    play.size[CM_CUPTI_DRIVER_RECORD] = play.size[CM_CUPTI_RUNTIME_RECORD] = 40;
    play.size[17] = 56; /* OVERHEAD */
    play.attribute[2] = 250;
    play.attribute[6] = 3;
    play_api = (cm_cupti_api){
        .version = 26,
        .GetResultString = result_string,
        .GetTimestamp = get_timestamp,
        .ActivityRegisterCallbacks = register_v1,
        .ActivityEnable = enable,
        .ActivityDisable = disable,
        .ActivityFlushAll = flush_all,
        .ActivityGetNextRecord = next_record,
        .ActivityGetNumDroppedRecords = dropped,
        .ActivityGetAttribute = get_attribute,
        .ActivitySetAttribute = set_attribute,
        .ActivityEnableDriverApi = one_call,
    };
    play_link = (cm_cupti_link){.api = &play_api, .subscriber = &subscriber};
    double_record(true);
    double_forget_events();
}

void play_tells_sizes(void)
{
    play_api.version = 130400;
    play_api.ActivityGetStructSize = struct_size;
}

void play_v2(void)
{
    play_tells_sizes();
    play_api.ActivityRegisterCallbacks = NULL;
    play_api.ActivityEnable = NULL;
    play_api.ActivityDisable = NULL;
    play_api.ActivityGetNextRecord = NULL;
    play_api.ActivityGetNumDroppedRecords = NULL;
    play_api.ActivityGetAttribute = NULL;
    play_api.ActivitySetAttribute = NULL;
    play_api.ActivityEnableDriverApi = NULL;
    play_api.GetTimestamp = NULL;
    play_api.GetTimestamp_v2 = get_timestamp_v2;
    play_api.ActivityRegisterCallbacks_v2 = register_v2;
    play_api.ActivityEnable_v2 = enable_v2;
    play_api.ActivityDisable_v2 = disable_v2;
    play_api.ActivityGetNextRecord_v2 = next_record_v2;
    play_api.ActivityGetNumDroppedRecords_v2 = dropped_v2;
    play_api.ActivityGetAttribute_v2 = get_attribute_v2;
    play_api.ActivitySetAttribute_v2 = set_attribute_v2;
    play_link.v2 = true;
}

play_buffer play_ask(void)
{
    play_buffer b = {.most = 77};

    if (play.request_v2 != NULL)
        play.request_v2(&b.at, &b.size, &b.most, NULL);
    else
        play.request(&b.at, &b.size, &b.most);
    return b;
}

void play_bring(play_buffer *b)
{
    if (play.complete_v2 != NULL)
        play.complete_v2(b->at, b->size, b->used, NULL);
    else
        play.complete(NULL, 0, b->at, b->size, b->used);
}

uint8_t *play_record(play_buffer *b, uint32_t kind)
{
    uint8_t *record = b->at + b->used;

    CHECK(b->used + play.size[kind] <= b->size);
    memset(record, 0xaa, play.size[kind]);
    play_u32(record, 0, kind);
    b->used += play.size[kind];
    return record;
}

void play_memory(play_buffer *b, uint32_t operation, uint32_t correlation, uint64_t address,
                 uint64_t bytes)
{
    uint8_t *r = play_record(b, CM_CUPTI_MEMORY2_RECORD);

    memset(r + 4, 0, 112 - 4);
    play_u32(r, 4, operation);
    play_u32(r, 8, 3); /* device memory */
    play_u32(r, 12, correlation);
    play_u64(r, 16, address);
    play_u64(r, 24, bytes);
    play_u64(r, 32, play_now());
    play_u64(r, 40, 0x5000);
    play_u32(r, 52, 1);
}

void play_kernel(play_buffer *b, uint32_t correlation, const char *name, uint64_t start,
                 uint64_t end)
{
    uint8_t *r = play_record(b, CM_CUPTI_CONCURRENT_RECORD);

    play_u64(r, 16, start);
    play_u64(r, 24, end);
    play_u32(r, 40, 0);
    play_u32(r, 92, correlation);
    play_u64(r, 104, (uint64_t)(uintptr_t)name);
}
