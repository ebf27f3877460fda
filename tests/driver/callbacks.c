/* Plays CUPTI: raises callbacks with parameters of its own and looks at the events that come of it.
 *
 *   callbacks CASE FOLDER     exits with 0, or says which check failed
 *   callbacks time FOLDER     prints nanoseconds a callback
 *
 * FOLDER holds libcuda.so.1 and liba.so, libb.so, libc.so (see test_callbacks.py). */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "../../csrc/capture/clock.h"
#include "../../csrc/sources/cupti.h"
#include "../../csrc/sources/cupti_calls.h"
#include "../../csrc/sources/driver_events.h"
#include "ring_double.h"

#define CHECK(condition)                                                                           \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #condition);                        \
            show();                                                                                \
            exit(1);                                                                               \
        }                                                                                          \
    } while (0)

static const char *folder;

static void show(void)
{
    for (size_t i = 0; i < double_count(); i++) {
        const cm_event *e = &double_events()[i];
        fprintf(stderr, "kind %d flags %#x address %#llx size %lld stack %u device %d:%d\n",
                e->kind, e->flags, (unsigned long long)e->address, (long long)e->size, e->stack,
                e->device_type, e->device_index);
    }
}

/* --- CUPTI, played -------------------------------------------------------------------------------
 */

static uint8_t enabled[4][CM_CALL_IDS];
static int asked;                     /* for a context's device */
static uint32_t newest = CM_CALL_IDS; /* ids from here on are not known to this release */
static bool deaf;                     /* it tells nothing of the driver's calls */

static int enable_callback(uint32_t on, void *subscriber, int domain, uint32_t id)
{
    (void)subscriber;
    if (id >= newest || (deaf && domain == CM_DOMAIN_DRIVER))
        return 1;
    enabled[domain][id] = (uint8_t)on;
    return 0;
}

static int device_id(void *context, uint32_t *device)
{
    asked++;
    *device = (uint32_t)(uintptr_t)context % 16;
    return context == NULL;
}

static cm_cupti_api api = {.EnableCallback = enable_callback, .GetDeviceId = device_id};
static const cm_cupti_link link_ = {.api = &api, .subscriber = &api};

static uint32_t correlation = 100, context_uid = 7;
static void *current = (void *)0x1003; /* on device 3 */

static cm_callback data_of(int site, const void *parameters, const int *result, uint32_t id)
{
    static uint64_t unused;

    return (cm_callback){.site = site,
                         .function = "",
                         .parameters = parameters,
                         .result = result,
                         .context = current,
                         .context_uid = context_uid,
                         .correlation_data = &unused,
                         .correlation = id};
}

static void tell(int domain, uint32_t id, int site, const void *parameters, int result,
                 uint32_t call)
{
    const cm_callback data = data_of(site, parameters, &result, call);

    if (enabled[domain][id])
        cm_cupti_callback_hook(NULL, domain, id, &data);
}

enum { D = CM_DOMAIN_DRIVER, R = CM_DOMAIN_RUNTIME };

static void whole(int domain, uint32_t id, const void *parameters, int result)
{
    uint32_t call = ++correlation;

    tell(domain, id, CM_SITE_ENTER, parameters, result, call);
    tell(domain, id, CM_SITE_EXIT, parameters, result, call);
}

static void resource(uint32_t id, void *context)
{
    const cm_resource data = {context};

    if (enabled[CM_DOMAIN_RESOURCE][id])
        cm_cupti_callback_hook(NULL, CM_DOMAIN_RESOURCE, id, &data);
}

static uint32_t id_of(const char *name)
{
    for (size_t i = 0; i < cm_call_count; i++)
        if (strcmp(cm_calls[i].name, name) == 0)
            return cm_calls[i].id;
    fprintf(stderr, "no %s\n", name);
    exit(1);
}

/* --- looking at events ---------------------------------------------------------------------------
 */

static size_t next_event;

static void start_over(void)
{
    double_clear();
    next_event = 0;
}

static bool see_contexts;
static bool
    see_libraries; /* else they are passed over: this program's own caller is the C library */

static bool is_library(const cm_event *e)
{
    return e->kind == CM_EV_DRIVER_MORE && e->size == CM_MORE_LIBRARY;
}

/* Contexts that were there before have numbers like this. */
static bool was_there(const cm_event *e)
{
    return e->kind == CM_EV_DRIVER_NEW && (e->flags & CM_DRIVER_KIND) == CM_DRIVER_CONTEXT &&
           e->address >> 12 == 1;
}

static void pass_over(void)
{
    while (next_event < double_count() &&
           ((!see_libraries && is_library(&double_events()[next_event])) ||
            (!see_contexts && was_there(&double_events()[next_event]))))
        next_event++;
}

static const cm_event *next(void)
{
    pass_over();
    CHECK(next_event < double_count());
    return &double_events()[next_event++];
}

static bool none_left(void)
{
    pass_over();
    return next_event == double_count();
}

static void expect(int kind, int flags, uint64_t address, int64_t size)
{
    const cm_event *e = next();

    if (e->kind == kind && e->flags == flags && e->address == address && e->size == size &&
        e->stack == (kind == CM_EV_DRIVER_NEW ? CM_STACK_FIRST : 0))
        return;
    fprintf(stderr, "event %zu: wanted kind %d flags %#x address %#llx size %lld\n", next_event - 1,
            kind, flags, (unsigned long long)address, (long long)size);
    show();
    exit(1);
}

static void expect_more(cm_driver_more what, uint64_t value)
{
    const cm_event *e = next();

    CHECK(e->kind == CM_EV_DRIVER_MORE && e->size == what && e->address == value);
}

static void expect_library(const char *name)
{
    const cm_event *e = next();

    CHECK(is_library(e));
    if (strcmp(double_name(e->stack), name) != 0)
        fprintf(stderr, "found %s, not %s\n", double_name(e->stack), name);
    CHECK(strcmp(double_name(e->stack), name) == 0);
}

#define NEW(kind, address, size) expect(CM_EV_DRIVER_NEW, CM_DRIVER_##kind, address, size)
/* A context that was seen in use, and not being made. */
#define FOUND(address) expect(CM_EV_DRIVER_NEW, CM_DRIVER_CONTEXT | CM_EVF_ALREADY, address, 0)
#define FREE(kind, address, size) expect(CM_EV_DRIVER_FREE, kind, address, size)
#define CORRELATED expect_more(CM_MORE_CORRELATION, correlation)

/* One call of the driver that gives something, without a record: what it gave and how large. */
static void gives(const char *name, const void *parameters, int kind, uint64_t address,
                  int64_t size)
{
    whole(D, id_of(name), parameters, 0);
    expect(CM_EV_DRIVER_NEW, kind, address, size);
}

/* --- memory --------------------------------------------------------------------------------------
 */

static void memory(void)
{
    uint64_t out = 0x7000;
    cm_call_take take = {&out, 4096};
    cm_call_give give = {0x7000};

    whole(D, 243, &take, 0);
    const cm_event *e = next();
    CHECK(e->kind == CM_EV_DRIVER_NEW && e->device_type == CM_DEVICE_CUDA && e->device_index == 3);
    next_event--;
    NEW(DEVICE, 0x7000, 4096);
    CORRELATED;
    whole(D, 371, &take, 0);
    NEW(MANAGED, 0x7000, 4096);
    CORRELATED;
    CHECK(asked == 1); /* a context is asked for its device once */

    /* The free is there before the call is. */
    uint32_t call = ++correlation;
    tell(D, 245, CM_SITE_ENTER, &give, 0, call);
    FREE(0, 0x7000, 0);
    CORRELATED;
    CHECK(none_left());
    tell(D, 245, CM_SITE_EXIT, &give, 0, call);
    CHECK(none_left());

    whole(D, 245, &(cm_call_give){0}, 0); /* of nothing */
    whole(D, 243, &take, 2);              /* refused */
    CHECK(none_left());
    whole(D, 245, &give, 1);
    FREE(0, 0x7000, 0);
    CORRELATED;
    expect_more(CM_MORE_FAILED, 1);
    CHECK(none_left());

    uint64_t count = cm_cupti_driver_count();
    whole(D, 243, &take, 0);
    CHECK(cm_cupti_driver_count() == count + 1);
}

static void places(void)
{
    uint64_t out = 0x9000;
    cm_memory_properties device = {.location = {CM_LOCATION_DEVICE, 5}},
                         host = {.location = {3, 1}};
    cm_call_take take = {&out, 64};
    cm_call_create create = {&out, 64, &device};

    cm_cupti_driver_expect_records(true);
    whole(D, id_of("cuMemHostAlloc"), &take, 0);
    CHECK(next()->device_type == CM_DEVICE_CPU);
    CORRELATED;
    whole(D, id_of("cuMemHostRegister_v2"), &(cm_call_range){0x5000, 77}, 0);
    NEW(REGISTERED, 0x5000, 77);
    CHECK(double_events()[next_event - 1].device_type == CM_DEVICE_CPU);
    start_over();
    whole(D, id_of("cuMemCreate"), &create, 0);
    CHECK(next()->device_index == 5);
    start_over();
    create.properties = &host;
    whole(D, id_of("cuMemCreate"), &create, 0);
    CHECK(next()->device_type == CM_DEVICE_CPU);
    start_over();
    current = NULL; /* before there is any */
    whole(D, 243, &take, 0);
    CHECK(next()->device_index == CM_DEVICE_NOT_TOLD);
    start_over();
    current = (void *)0x1001;
    context_uid = 7 + 64; /* shares its place with the one before */
    whole(D, 243, &take, 0);
    CHECK(next()->device_index == 1);
}

static void streams(void)
{
    uint64_t out = 0xa000;
    cm_call_take_async take = {&out, 100, NULL};
    cm_call_take_from_pool pooled = {&out, 100, (void *)0x50, (void *)0x60};
    cm_call_give_async give = {0xa000, (void *)0x70};

    cm_cupti_driver_expect_records(true);
    whole(D, id_of("cuMemAllocAsync"), &take, 0);
    NEW(ASYNC, 0xa000, 100);
    CORRELATED; /* the default stream is not told */
    whole(D, id_of("cuMemAllocAsync_ptsz"), &take, 0);
    NEW(ASYNC, 0xa000, 100);
    CORRELATED;
    expect_more(CM_MORE_STREAM, 2); /* the thread's own default stream */
    whole(D, id_of("cuMemAllocFromPoolAsync"), &pooled, 0);
    NEW(ASYNC, 0xa000, 100);
    CORRELATED;
    expect_more(CM_MORE_STREAM, 0x60);
    expect_more(CM_MORE_HANDLE, 0x50);
    whole(D, id_of("cuMemFreeAsync"), &give, 0);
    FREE(0, 0xa000, 0);
    CORRELATED;
    expect_more(CM_MORE_STREAM, 0x70);
    uint64_t moves = cm_cupti_driver_moves();
    whole(D, id_of("cuMemPoolTrimTo"), &give, 0);
    CHECK(none_left() && moves != cm_cupti_driver_moves());
}

static void virtual_memory(void)
{
    uint64_t out = 0x11;
    cm_memory_properties device = {.location = {CM_LOCATION_DEVICE, 0}};
    cm_multicast_properties shared = {2, 1 << 21};
    const uint64_t at = 0x100000;

    gives("cuMemAddressReserve", &(cm_call_take){&(uint64_t){at}, 1 << 22}, CM_DRIVER_RESERVED, at,
          1 << 22);
    gives("cuMemCreate", &(cm_call_create){&out, 1 << 21, &device}, CM_DRIVER_PHYSICAL, 0x11,
          1 << 21);
    gives("cuMemMap", &(cm_call_map){at, 1 << 21, 0, 0x11}, CM_DRIVER_MAPPED, at, 1 << 21);
    expect_more(CM_MORE_HANDLE, 0x11);
    gives("cuMemRetainAllocationHandle", &(cm_call_retain){&out, (void *)at}, CM_DRIVER_REFERENCE,
          0x11, 0);
    expect_more(CM_MORE_HANDLE, at);
    whole(D, id_of("cuMemRelease"), &(cm_call_give){0x11}, 0);
    FREE(CM_DRIVER_PHYSICAL, 0x11, 0);
    whole(D, id_of("cuMemUnmap"), &(cm_call_range){at, 1 << 21}, 0);
    FREE(CM_DRIVER_MAPPED, at, 1 << 21);
    whole(D, id_of("cuMemAddressFree"), &(cm_call_range){at, 1 << 22}, 0);
    FREE(CM_DRIVER_RESERVED, at, 1 << 22);
    gives("cuMemImportFromShareableHandle", &(cm_call_open){&out}, CM_DRIVER_IMPORTED, 0x11, 0);
    gives("cuMulticastCreate", &(cm_call_described){&out, &shared}, CM_DRIVER_MULTICAST, 0x11,
          1 << 21);
    CHECK(none_left());
}

static void descriptions(void)
{
    uint64_t out = 0x21;
    size_t pitch = 512;
    cm_array_description plain = {100, 10, 0x20, 4}; /* floats */
    cm_array_3d_description cube = {64, 64, 6, 0x01, 1, CM_ARRAY_CUBEMAP};
    cm_array_3d_description solid = {64, 32, 16, 0x10, 2, 0}, none = solid,
                            odd = {5, 5, 0, 0x91, 4, 0};
    cm_external_description external = {.size = 999};
    cm_buffer_description buffer = {.offset = 8, .size = 333};
    cm_alloc_node node = {.pool.location = {CM_LOCATION_DEVICE, 2}, .size = 44, .address = 0x31};
    cm_graph_node any = {.type = CM_NODE_ALLOC, .alloc = node}, freed = {.type = CM_NODE_FREE};
    cm_graph_node kernel = {.type = 0};

    whole(D, id_of("cuMemAllocPitch_v2"), &(cm_call_take_pitch){&out, &pitch, 500, 7}, 0);
    NEW(DEVICE, 0x21, 512 * 7);
    CORRELATED;
    gives("cuArrayCreate_v2", &(cm_call_described){&out, &plain}, CM_DRIVER_ARRAY, 0x21, 16000);
    gives("cuArray3DCreate_v2", &(cm_call_described){&out, &cube}, CM_DRIVER_ARRAY, 0x21,
          64 * 64 * 6);
    gives("cuMipmappedArrayCreate", &(cm_call_mipmap){&out, &solid, 3}, CM_DRIVER_ARRAY, 0x21,
          (64 * 32 * 16 + 32 * 16 * 8 + 16 * 8 * 4) * 4);
    gives("cuMipmappedArrayCreate", &(cm_call_mipmap){&out, &cube, 2}, CM_DRIVER_ARRAY, 0x21,
          64 * 64 * 6 + 32 * 32 * 6);
    none.flags = CM_ARRAY_SPARSE; /* mapped later */
    gives("cuArray3DCreate_v2", &(cm_call_described){&out, &none}, CM_DRIVER_ARRAY, 0x21, 0);
    gives("cuArray3DCreate_v2", &(cm_call_described){&out, &odd}, CM_DRIVER_ARRAY, 0x21, 8 * 8 / 2);
    odd.width = SIZE_MAX; /* no such array can be: rather nothing than anything */
    gives("cuArray3DCreate_v2", &(cm_call_described){&out, &odd}, CM_DRIVER_ARRAY, 0x21, 0);
    whole(D, id_of("cuArrayDestroy"), &(cm_call_give){0x21}, 0);
    FREE(CM_DRIVER_ARRAY, 0x21, 0);
    gives("cuImportExternalMemory", &(cm_call_described){&out, &external}, CM_DRIVER_EXTERNAL, 0x21,
          999);
    gives("cuExternalMemoryGetMappedBuffer",
          &(cm_call_mapped_buffer){&(uint64_t){0x4000}, 0x21, &buffer}, CM_DRIVER_IPC, 0x4000, 333);
    expect_more(CM_MORE_HANDLE, 0x21);
    gives("cuGraphAddMemAllocNode", &(cm_call_add_node){.parameters = &node}, CM_DRIVER_GRAPH, 0x31,
          44);
    CHECK(double_events()[next_event - 1].device_index == 2);
    gives("cuGraphAddNode", &(cm_call_add_node){.parameters = &any}, CM_DRIVER_GRAPH, 0x31, 44);
    freed.free = 0x31;
    whole(D, id_of("cuGraphAddNode_v2"), &(cm_call_add_node_v2){.parameters = &freed}, 0);
    FREE(CM_DRIVER_GRAPH, 0x31, 0);
    whole(D, id_of("cuGraphAddNode"), &(cm_call_add_node){.parameters = &kernel}, 0);
    whole(D, id_of("cuGraphAddNode"), &(cm_call_add_node){0}, 0);
    CHECK(none_left());
    whole(D, id_of("cuGraphAddMemFreeNode"), &(cm_call_add_free_node){.address = 0x31}, 0);
    FREE(CM_DRIVER_GRAPH, 0x31, 0);
    uint32_t narrow = 0x77, narrow_pitch = 16;
    whole(D, id_of("cuMemAlloc"), &(cm_call_take_v1){&narrow, 55}, 0);
    NEW(DEVICE, 0x77, 55);
    CORRELATED;
    whole(D, id_of("cuMemAllocPitch"), &(cm_call_take_pitch_v1){&narrow, &narrow_pitch, 9, 3}, 0);
    NEW(DEVICE, 0x77, 48);
    CORRELATED;
    whole(D, id_of("cuMemFree"), &(cm_call_give_v1){0x77}, 0);
    FREE(0, 0x77, 0);
    CORRELATED;
    CHECK(none_left());
}

/* --- calls inside calls --------------------------------------------------------------------------
 */

static void nested(void)
{
    uint64_t out = 0x7000;
    cm_call_take take = {&out, 4096};
    cm_call_give give = {0x7000};
    cm_channel_format format = {{32, 32, 0, 0}, 2};
    uint32_t call = ++correlation;

    /* The runtime's around the driver's: one. */
    tell(R, 20, CM_SITE_ENTER, &take, 0, call);
    tell(D, 243, CM_SITE_ENTER, &take, 0, call);
    CHECK(cm_cupti_driver_moves() % 2 == 1);
    tell(D, 243, CM_SITE_EXIT, &take, 0, call);
    tell(R, 20, CM_SITE_EXIT, &take, 0, call);
    CHECK(cm_cupti_driver_moves() % 2 == 0);
    NEW(DEVICE, 0x7000, 4096);
    CORRELATED;
    CHECK(none_left());
    /* The first call makes the context, which is seen, and memory, which is not. */
    call = ++correlation;
    tell(R, 20, CM_SITE_ENTER, &take, 0, call);
    tell(D, 386, CM_SITE_ENTER, &(cm_call_retain_context){&(uint64_t){0xc0}, 0}, 0, call);
    tell(D, 386, CM_SITE_EXIT, &(cm_call_retain_context){&(uint64_t){0xc0}, 0}, 0, call);
    tell(R, 20, CM_SITE_EXIT, &take, 0, call);
    FOUND(0xc0);
    NEW(DEVICE, 0x7000, 4096);
    CHECK(none_left());
    /* Without the driver's callbacks: the runtime's. */
    whole(R, id_of("cudaMallocArray_v3020"), &(cm_call_runtime_array){&out, &format, 10, 3}, 0);
    NEW(ARRAY, 0x7000, 240);
    whole(R, id_of("cudaMalloc3DArray_v3020"),
          &(cm_call_runtime_array_3d){&out, &format, {4, 4, 4}, 0}, 0);
    NEW(ARRAY, 0x7000, 512);
    whole(R, id_of("cudaMallocMipmappedArray_v5000"),
          &(cm_call_runtime_mipmap){&out, &format, {4, 4, 0}, 2, 0}, 0);
    NEW(ARRAY, 0x7000, 160);
    cm_pitched_pointer pitched = {0x7000, 256};
    whole(R, id_of("cudaMalloc3D_v3020"), &(cm_call_runtime_3d){&pitched, {200, 3, 2}}, 0);
    NEW(DEVICE, 0x7000, 256 * 6);
    call = ++correlation;
    tell(R, 24, CM_SITE_ENTER, &give, 0, call);
    uint64_t begun = cm_clock_now();
    CHECK(none_left());
    tell(R, 24, CM_SITE_EXIT, &give, 0, call);
    CHECK(double_events()[next_event].time <= begun); /* as of its beginning */
    FREE(CM_DRIVER_ARRAY, 0x7000, 0);
    whole(R, 22, &give, 1);
    whole(R, 22, &(cm_call_give){0}, 0); /* cudaFree(0) */
    CHECK(none_left());
    /* A call of the driver that calls the driver: its own affair. */
    call = ++correlation;
    cm_call_take_pitch pitch = {&out, &(size_t){64}, 60, 2};
    tell(D, 244, CM_SITE_ENTER, &pitch, 0, call);
    tell(D, 243, CM_SITE_ENTER, &take, 0, call);
    tell(D, 243, CM_SITE_EXIT, &take, 0, call);
    tell(D, 244, CM_SITE_EXIT, &pitch, 0, call);
    NEW(DEVICE, 0x7000, 128);
    CORRELATED;
    CHECK(none_left());
    /* Another tool allocates in its callback, within a call of the program. */
    call = ++correlation;
    tell(D, 243, CM_SITE_ENTER, &take, 0, call);
    whole(D, 371, &take, 0);
    NEW(MANAGED, 0x7000, 4096);
    CORRELATED;
    tell(D, 243, CM_SITE_EXIT, &take, 0, call);
    NEW(DEVICE, 0x7000, 4096);
    expect_more(CM_MORE_CORRELATION, call);
    /* ... in a free that then fails, which can no longer be told: counted as lost. */
    call = ++correlation;
    tell(D, 245, CM_SITE_ENTER, &give, 1, call);
    FREE(0, 0x7000, 0);
    CORRELATED;
    whole(D, 371, &take, 0);
    NEW(MANAGED, 0x7000, 4096);
    CORRELATED;
    tell(D, 245, CM_SITE_EXIT, &give, 1, call);
    expect(CM_EV_LOST, 0, 0, 1);
    CHECK(none_left());
}

/* Callbacks whose other half does not come. */
static void halves(void)
{
    uint64_t out = 0x7000;
    cm_call_take take = {&out, 4096};
    cm_call_give give = {0x7000};

    tell(D, 243, CM_SITE_EXIT, &take, 0, ++correlation); /* begun before callbacks were on */
    NEW(DEVICE, 0x7000, 4096);
    CORRELATED;
    tell(D, 245, CM_SITE_EXIT, &give, 1, ++correlation);
    tell(R, 20, CM_SITE_EXIT, &take, 0, ++correlation); /* the driver's may have come */
    CHECK(none_left() && cm_cupti_driver_moves() % 2 == 0);

    uint32_t call = ++correlation;
    tell(D, 245, CM_SITE_ENTER, &give, 1, call);
    FREE(0, 0x7000, 0);
    CORRELATED;
    CHECK(cm_cupti_driver_moves() % 2 == 1);
    cm_cupti_driver_disable(&link_);
    tell(D, 243, CM_SITE_ENTER, &take, 0, call); /* not enabled: does not come */
    CHECK(none_left());
    CHECK(cm_cupti_driver_enable(&link_, false) > 60);
    CHECK(cm_cupti_driver_moves() % 2 == 0); /* what was left over is not in flight */
    whole(D, 243, &take, 0);
    NEW(DEVICE, 0x7000, 4096);
    CORRELATED;
    CHECK(cm_cupti_driver_moves() % 2 == 0);
    tell(D, 245, CM_SITE_EXIT, &give, 1, call); /* the end of the first, after all */
    CHECK(none_left() && cm_cupti_driver_moves() % 2 == 0);

    /* A free that fails in another capture takes nothing back. */
    call = ++correlation;
    tell(D, 245, CM_SITE_ENTER, &give, 1, call);
    double_record(false);
    whole(D, 243, &take, 0);
    double_record(true);
    start_over();
    tell(D, 245, CM_SITE_EXIT, &give, 1, call);
    CHECK(none_left() && cm_cupti_driver_moves() % 2 == 0);

    /* Deeper than there is room to remember. */
    for (uint32_t i = 1; i <= 9; i++)
        tell(D, 243, CM_SITE_ENTER, &take, 0, correlation + i);
    for (uint32_t i = 9; i >= 1; i--)
        tell(D, 243, CM_SITE_EXIT, &take, 0, correlation + i);
    for (uint32_t i = 9; i >= 1; i--) {
        NEW(DEVICE, 0x7000, 4096);
        expect_more(CM_MORE_CORRELATION, correlation + i);
    }
    CHECK(none_left() && cm_cupti_driver_moves() % 2 == 0);

    /* The first number of a subscription was the last one of the subscription before. */
    start_over();
    call = ++correlation;
    tell(D, 243, CM_SITE_ENTER, &take, 0, call);
    cm_cupti_driver_disable(&link_);
    CHECK(cm_cupti_driver_enable(&link_, false) > 60);
    tell(D, 245, CM_SITE_ENTER, &give, 0, call);
    FREE(0, 0x7000, 0);
    CORRELATED;
    tell(D, 245, CM_SITE_EXIT, &give, 0, call);
    CHECK(none_left() && cm_cupti_driver_moves() % 2 == 0);

    start_over();
    double_full(true);
    whole(D, 243, &take, 0);
    whole(D, 245, &give, 1);
    double_full(false);
    CHECK(none_left());
    cm_cupti_own_thread = true; /* the witness asks CUDA for something */
    whole(D, 243, &take, 0);
    resource(CM_RESOURCE_CONTEXT_CREATED, (void *)0xc9);
    cm_cupti_own_thread = false;
    CHECK(none_left() && cm_cupti_driver_moves() % 2 == 0);
}

static void lost(void)
{
    const cm_event *e = next();

    CHECK(e->kind == CM_EV_LOST && e->size == 1);
}

/* Callbacks that do not say what was done: counted, and nothing is read through them. */
static void untold(void)
{
    uint64_t out = 0x7000;
    cm_call_take take = {&out, 4096};
    uint32_t call = ++correlation;
    const cm_callback silent = {.site = CM_SITE_EXIT, .parameters = &take, .correlation = call};

    whole(D, 243, NULL, 0);
    lost();
    whole(D, 245, NULL, 0);
    lost();
    whole(R, 22, NULL, 0);
    lost();
    tell(D, 243, CM_SITE_ENTER, &take, 0, call);
    cm_cupti_callback_hook(NULL, D, 243, &silent);
    lost();
    cm_cupti_callback_hook(NULL, D, 243, NULL);
    for (size_t i = 0; i < cm_call_count; i++) {
        whole(cm_calls[i].domain, cm_calls[i].id, NULL, 0);
        whole(cm_calls[i].domain, cm_calls[i].id, NULL, 1);
    }
    CHECK(cm_cupti_driver_moves() % 2 == 0);
    start_over();
    whole(D, 243, &(cm_call_take){NULL, 4096}, 0); /* no place for the address: nothing was given */
    CHECK(none_left());
    whole(D, 243, &take, 0);
    NEW(DEVICE, 0x7000, 4096);
    CORRELATED;
    CHECK(none_left());
}

static void contexts(void)
{
    uint64_t out = 0xc1;
    cm_call_make_context make = {&out, 0, 4};
    cm_call_retain_context retain = {&(uint64_t){0xc2}, 6};
    uint32_t call = ++correlation;

    tell(D, 235, CM_SITE_ENTER, &make, 0, call);
    resource(CM_RESOURCE_CONTEXT_CREATED, (void *)0xc1);
    tell(D, 235, CM_SITE_EXIT, &make, 0, call);
    NEW(CONTEXT, 0xc1, 0);
    whole(D, 386, &retain, 0);
    FOUND(0xc2);
    CHECK(double_events()[next_event - 1].device_index == 6);
    whole(D, 386, &retain, 0); /* one more reference */
    whole(D, id_of("cuDevicePrimaryCtxRelease_v2"), &(cm_call_reset){6}, 0);
    CHECK(none_left());
    call = ++correlation;
    tell(D, 322, CM_SITE_ENTER, &(cm_call_give){0xc1}, 0, call);
    resource(CM_RESOURCE_CONTEXT_DESTROYED, (void *)0xc1);
    tell(D, 322, CM_SITE_EXIT, &(cm_call_give){0xc1}, 0, call);
    FREE(CM_DRIVER_CONTEXT, 0xc1, 0);
    CHECK(none_left());
    whole(D, 545, &(cm_call_reset){6}, 0); /* known by its device */
    FREE(CM_DRIVER_CONTEXT, 0xc2, 0);
    whole(D, 386, &retain, 0); /* at the same address again */
    FOUND(0xc2);
    whole(D, 545, &(cm_call_reset){6}, 1);
    FREE(CM_DRIVER_CONTEXT, 0xc2, 0);
    expect_more(CM_MORE_FAILED, 1);
    resource(CM_RESOURCE_CONTEXT_DESTROYED, (void *)0xc2); /* it was alive still */
    FREE(CM_DRIVER_CONTEXT, 0xc2, 0);
    whole(D, 322, &(cm_call_give){0xc7}, 0); /* from before */
    FREE(CM_DRIVER_CONTEXT, 0xc7, 0);
    current = (void *)0xc3;
    whole(R, 164, &(cm_call_none){0}, 0); /* cudaDeviceReset, nothing of the driver's seen */
    FREE(CM_DRIVER_CONTEXT, 0xc3, 0);
    call = ++correlation;
    current = (void *)0xc4;
    tell(R, 164, CM_SITE_ENTER, &(cm_call_none){0}, 0, call);
    tell(D, 545, CM_SITE_ENTER, &(cm_call_reset){9}, 0, call);
    tell(D, 545, CM_SITE_EXIT, &(cm_call_reset){9}, 0, call);
    tell(R, 164, CM_SITE_EXIT, &(cm_call_none){0}, 0, call);
    FREE(CM_DRIVER_CONTEXT, 0xc4, 0);
    CHECK(none_left());
    /* Made while nothing is recorded: told when it is seen in use. */
    see_contexts = true;
    double_record(false);
    resource(CM_RESOURCE_CONTEXT_CREATED, (void *)0x1006);
    whole(D, 235, &(cm_call_make_context){&(uint64_t){0x1006}, 0, 6}, 0);
    double_record(true);
    start_over();
    current = (void *)0x1006;
    context_uid = 6;
    whole(D, 243, &(cm_call_take){&out, 10}, 0);
    FOUND(0x1006);
    NEW(DEVICE, 0xc1, 10);
    CORRELATED;
    current = (void *)0x1005;
    context_uid = 5;
    cm_call_take take = {&out, 10};
    for (int i = 0; i < 3; i++) { /* made where nobody looked: told once, before what lies in it */
        whole(D, 243, &take, 0);
        if (i == 0)
            FOUND(0x1005);
        NEW(DEVICE, 0xc1, 10);
        CORRELATED;
    }
    whole(R, 164, &(cm_call_none){0}, 0);
    FREE(CM_DRIVER_CONTEXT, 0x1005, 0);
    whole(D, 243, &take, 0); /* the next one, with the same number */
    FOUND(0x1005);
    NEW(DEVICE, 0xc1, 10);
    CORRELATED;
    see_contexts = false;
    for (uint64_t i = 0; i < 200; i++) { /* more than there is room to know: told all the same */
        start_over();
        whole(D, 235, &(cm_call_make_context){&(uint64_t){0xd000 + i}, 0, 0}, 0);
        NEW(CONTEXT, 0xd000 + i, 0);
    }
}

static void launches(void)
{
    cm_call_launch launch = {.stream = (void *)0x9};
    cm_launch_config config = {.stream = (void *)0x8};
    cm_call_launch_ex ex = {&config};

    whole(D, 307, &launch, 0);
    CHECK(none_left()); /* not asked for */
    cm_cupti_driver_disable(&link_);
    cm_cupti_driver_enable(&link_, true);
    const struct {
        const char *name;
        const void *parameters;
        uint64_t stream;
        int kind;
    } calls[] = {
        {"cuLaunchKernel", &launch, 9, CM_WORK_KERNEL},
        {"cuLaunchKernelEx_ptsz", &ex, 8, CM_WORK_KERNEL},
        {"cuLaunchKernelEx_ptsz", &(cm_call_launch_ex){&(cm_launch_config){.shared = 0}}, 2,
         CM_WORK_KERNEL},
        {"cuGraphLaunch", &(cm_call_launch_graph){NULL, (void *)5}, 5, CM_WORK_GRAPH},
        {"cuMemcpyHtoDAsync_v2", &(cm_call_copy){.stream = (void *)4}, 4, CM_WORK_COPY},
        {"cuMemcpyDtoH_v2", &(cm_call_none){0}, 0, CM_WORK_COPY},
        {"cuMemcpyDtoH_v2_ptds", &(cm_call_none){0}, 2, CM_WORK_COPY},
        {"cuMemsetD2D32Async", &(cm_call_set_2d_32){.stream = (void *)3}, 3, CM_WORK_SET},
    };
    for (size_t i = 0; i < sizeof calls / sizeof calls[0]; i++) {
        whole(D, id_of(calls[i].name), calls[i].parameters, 0);
        const cm_event *e = next();
        CHECK(e->kind == CM_EV_LAUNCH && e->address == calls[i].stream && e->size == correlation &&
              e->flags == calls[i].kind && e->stack == CM_STACK_FIRST && e->device_index == 3);
    }
    whole(D, 307, &launch, 700);
    CHECK(none_left());
}

/* --- libraries -----------------------------------------------------------------------------------
 */

typedef void (*raise_fn)(void (*call)(void *), void *argument);

static void *load(const char *name)
{
    char path[512];

    snprintf(path, sizeof path, "%s/%s", folder, name);
    void *handle = dlopen(path, RTLD_NOW);
    if (handle == NULL)
        fprintf(stderr, "%s\n", dlerror());
    CHECK(handle != NULL);
    return handle;
}

static void one_create(void *unused)
{
    static uint64_t handle = 0x11;
    static const cm_memory_properties device = {.location = {CM_LOCATION_DEVICE, 0}};
    static const cm_call_create create = {&handle, 64, &device};

    (void)unused;
    whole(D, 549, &create, 0);
}

static void one_alloc(void *unused)
{
    static uint64_t out = 0x7000;
    static const cm_call_take take = {&out, 64};

    (void)unused;
    whole(D, 243, &take, 0);
}

static void called_from(void *handle, void (*call)(void *))
{
    ((raise_fn)dlsym(handle, "allocate"))(call, NULL);
}

static void libraries(void)
{
    void *a = load("liba.so"), *b = load("libb.so");

    see_libraries = true;
    cm_libraries_refresh();
    for (int i = 0; i < 50; i++) { /* in turn, at one depth of the stack */
        start_over();
        called_from(i % 3 ? a : b, one_create);
        NEW(PHYSICAL, 0x11, 64);
        expect_library(i % 3 ? "liba.so" : "libb.so");
        CHECK(none_left());
    }
    start_over();
    cm_cupti_driver_expect_records(true);
    called_from(a, one_alloc);
    NEW(DEVICE, 0x7000, 64);
    CORRELATED; /* a record will tell who */
    CHECK(none_left());
    cm_cupti_driver_expect_records(false);
    called_from(a, one_alloc);
    NEW(DEVICE, 0x7000, 64);
    CORRELATED;
    expect_library("liba.so");

    /* Through a hook of ours: who called that one. */
    cm_cupti_driver_expect_records(true);
    cm_driver_tls.site = (uintptr_t)dlsym(b, "allocate") + 1;
    one_alloc(NULL);
    cm_driver_tls.site = 0;
    NEW(DEVICE, 0x7000, 64);
    CORRELATED;
    expect_library("libb.so");
    CHECK(cm_library_of_hook((uintptr_t)&libraries) == 0); /* this program is "ourselves" */
    CHECK(strcmp(double_name(cm_library_of_hook((uintptr_t)dlsym(a, "allocate"))), "liba.so") == 0);
    CHECK(cm_library_of_hook(16) == 0);

    /* Mapped since the table was read, and gone again. */
    for (int i = 0; i < 20; i++) {
        void *c = load("libc.so");
        start_over();
        called_from(c, one_create);
        called_from(c, one_create);
        NEW(PHYSICAL, 0x11, 64);
        expect_library("libc.so");
        NEW(PHYSICAL, 0x11, 64);
        expect_library("libc.so");
        if (i % 2)
            cm_libraries_refresh();
        uintptr_t was = (uintptr_t)dlsym(c, "allocate");
        dlclose(c);
        cm_libraries_refresh();
        CHECK(cm_library_of_hook(was) == 0);
    }
    /* Names have other ids in another capture. */
    double_record(false);
    double_record(true);
    start_over();
    called_from(a, one_create);
    NEW(PHYSICAL, 0x11, 64);
    expect_library("liba.so");
    pid_t child = fork();
    if (child == 0) {
        cm_libraries_refresh();
        start_over();
        called_from(b, one_create);
        NEW(PHYSICAL, 0x11, 64);
        expect_library("libb.so");
        _exit(none_left() ? 0 : 1);
    }
    int status = 1;
    waitpid(child, &status, 0);
    CHECK(status == 0);
}

/* --- threads -------------------------------------------------------------------------------------
 */

enum { THREADS = 4, ROUNDS = 400 };
static atomic_bool over;
static void *caller[2];
static _Thread_local uint32_t own_call;

static void own_create(void *unused)
{
    uint64_t handle = 0x11;
    const cm_memory_properties device = {.location = {CM_LOCATION_DEVICE, 0}};
    const cm_call_create create = {&handle, 64, &device};

    (void)unused;
    own_call += THREADS;
    tell(D, 549, CM_SITE_ENTER, &create, 0, own_call);
    tell(D, 549, CM_SITE_EXIT, &create, 0, own_call);
}

static void *work(void *number)
{
    own_call = (uint32_t)(uintptr_t)number;
    for (int i = 0; i < ROUNDS; i++) {
        bool a = (i / 3 + (int)own_call) % 2;
        double_clear();
        called_from(caller[a], own_create);
        CHECK(double_count() == 2);
        CHECK(strcmp(double_name(double_events()[1].stack), a ? "liba.so" : "libb.so") == 0);
        tell(D, 550, CM_SITE_ENTER, &(cm_call_give){0x11}, 0, own_call + 1000000);
        tell(D, 550, CM_SITE_EXIT, &(cm_call_give){0x11}, 0, own_call + 1000000);
        CHECK(double_count() == 3);
    }
    return NULL;
}

/* Libraries come and go, and are read, while others call. */
static void *churn(void *unused)
{
    (void)unused;
    while (!atomic_load(&over)) {
        void *c = load("libc.so");
        cm_libraries_refresh();
        dlclose(c);
        cm_libraries_refresh();
        uint64_t moves = cm_cupti_driver_moves();
        (void)moves;
    }
    return NULL;
}

static void threads(void)
{
    pthread_t all[THREADS], other;

    caller[0] = load("libb.so");
    caller[1] = load("liba.so");
    pthread_create(&other, NULL, churn, NULL);
    for (uintptr_t i = 0; i < THREADS; i++)
        pthread_create(&all[i], NULL, work, (void *)i);
    for (int i = 0; i < THREADS; i++)
        pthread_join(all[i], NULL);
    atomic_store(&over, true);
    pthread_join(other, NULL);
    CHECK(cm_cupti_driver_moves() % 2 == 0 && cm_cupti_driver_moves() == 4ull * THREADS * ROUNDS);
    CHECK(cm_cupti_driver_count() == 2ull * THREADS * ROUNDS + 1); /* and the context */
    printf("%d %d\n", 2 * THREADS * ROUNDS, THREADS + 1);
}

/* An older release does not know the newest ids. */
static void releases(void)
{
    int all = cm_cupti_driver_enable(&link_, true);

    cm_cupti_driver_disable(&link_);
    for (int domain = 0; domain < 4; domain++)
        for (int id = 0; id < CM_CALL_IDS; id++)
            CHECK(!enabled[domain][id]);
    newest = 600;
    int older = cm_cupti_driver_enable(&link_, true);
    CHECK(all == (int)cm_call_count + 2 && older > 100 && older < all);
    CHECK(cm_cupti_driver_enable(&(cm_cupti_link){.api = &api}, true) == 0); /* no subscription */
    deaf = true; /* contexts alone are no driver level */
    CHECK(cm_cupti_driver_enable(&link_, true) == 0);
    cm_cupti_callback_hook(NULL, D, CM_CALL_IDS + 5, &(cm_callback){0});
    cm_cupti_callback_hook(NULL, 4, 1, &(cm_callback){0});
    cm_cupti_callback_hook(NULL, CM_DOMAIN_RESOURCE, 8, &(cm_resource){0});
    CHECK(none_left());
}

/* --- timing --------------------------------------------------------------------------------------
 */

static double per_call(void (*call)(void *), int rounds)
{
    struct timespec a, b;
    double best = 1e9;

    for (int batch = 0; batch < 20; batch++) {
        clock_gettime(CLOCK_MONOTONIC, &a);
        for (int i = 0; i < rounds; i++)
            call(NULL);
        clock_gettime(CLOCK_MONOTONIC, &b);
        double ns =
            ((double)(b.tv_sec - a.tv_sec) * 1e9 + (double)(b.tv_nsec - a.tv_nsec)) / rounds;
        best = ns < best ? ns : best;
    }
    return best;
}

static void one_pair(void *unused)
{
    static uint64_t out = 0x7000;
    static const cm_call_take take = {&out, 64};
    static const cm_call_give give = {0x7000};

    (void)unused;
    whole(D, 243, &take, 0);
    whole(D, 245, &give, 0);
}

static void one_nested(void *unused)
{
    static uint64_t out = 0x7000;
    static const cm_call_take take = {&out, 64};
    uint32_t call = ++correlation;

    (void)unused;
    tell(R, 20, CM_SITE_ENTER, &take, 0, call);
    tell(D, 243, CM_SITE_ENTER, &take, 0, call);
    tell(D, 243, CM_SITE_EXIT, &take, 0, call);
    tell(R, 20, CM_SITE_EXIT, &take, 0, call);
}

static void *timed_caller;

static void from_library(void *unused)
{
    (void)unused;
    called_from(timed_caller, one_create);
}

static void uncached(void *unused)
{
    cm_self.thread->generation++; /* what was remembered is stale */
    from_library(unused);
}

static void one_launch(void *unused)
{
    static const cm_call_launch launch = {.stream = (void *)0x9};

    (void)unused;
    whole(D, 307, &launch, 0);
}

static void timing(void)
{
    timed_caller = load("liba.so");
    cm_libraries_refresh();
    cm_cupti_driver_expect_records(true);
    double_reuse(true);
    printf("allocation and free, both callbacks of each: %.0f ns\n", per_call(one_pair, 20000));
    printf("allocation, runtime around driver: %.0f ns\n", per_call(one_nested, 20000));
    printf("physical memory, caller remembered: %.0f ns\n", per_call(from_library, 20000));
    printf("physical memory, caller unwound: %.0f ns\n", per_call(uncached, 2000));
    cm_cupti_driver_disable(&link_);
    cm_cupti_driver_enable(&link_, true);
    printf("launch: %.0f ns\n", per_call(one_launch, 20000));
    double_record(false);
    printf("allocation and free, not recording: %.0f ns\n", per_call(one_pair, 20000));
}

static const struct {
    const char *name;
    void (*run)(void);
} cases[] = {{"memory", memory},
             {"places", places},
             {"streams", streams},
             {"virtual_memory", virtual_memory},
             {"descriptions", descriptions},
             {"nested", nested},
             {"halves", halves},
             {"contexts", contexts},
             {"untold", untold},
             {"launches", launches},
             {"libraries", libraries},
             {"threads", threads},
             {"releases", releases},
             {"time", timing}};

int main(int count, char **arguments)
{
    folder = count > 2 ? arguments[2] : ".";
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        if (count < 2 || strcmp(arguments[1], cases[i].name) != 0)
            continue;
        CHECK(cm_cupti_driver_enable(&link_, false) > 60);
        cm_cupti_driver_expect_records(true);
        cm_clock_init();
        double_record(true);
        resource(CM_RESOURCE_CONTEXT_CREATED, current);
        asked = 0;
        start_over();
        cases[i].run();
        return 0;
    }
    fprintf(stderr, "no such case\n");
    return 2;
}
