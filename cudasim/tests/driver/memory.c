/* Devices, contexts, memory of all kinds, copies. */
#include "check.h"
#include "reported.h"

#include <pthread.h>

static void devices(void)
{
    int count = 0, value = 0, device = -1;
    char name[64], bus[32];
    uint8_t one[16], other[16];
    EQUAL(cuInit(1), INVALID_VALUE);
    EQUAL(cuInit(0), OK);
    EQUAL(cuDeviceGetCount(&count), OK);
    EQUAL(count, 2);
    EQUAL(cuDeviceGet(&device, 1), OK);
    EQUAL(device, 1);
    EQUAL(cuDeviceGet(&device, 2), INVALID_DEVICE);
    EQUAL(cuDeviceGet(&device, -1), INVALID_DEVICE);
    EQUAL(cuDeviceGet(NULL, 0), OK);
    EQUAL(cuDeviceGetName(name, sizeof name, 0), OK);
    CHECK(!strcmp(name, "NVIDIA H100 80GB HBM3"));
    EQUAL(cuDeviceGetName(name, 7, 0), OK);
    CHECK(!strcmp(name, "NVIDIA"));
    size_t bytes = 0;
    EQUAL(cuDeviceTotalMem_v2(&bytes, 0), OK);
    EQUAL(bytes, 4 * GIB);
    EQUAL(cuDeviceGetAttribute(&value, 75, 0), OK);
    EQUAL(value, 9);
    EQUAL(cuDeviceGetAttribute(&value, 16, 0), OK);
    EQUAL(value, 132);
    EQUAL(cuDeviceGetAttribute(&value, 97, 0), OK);
    EQUAL(value, 232448);
    EQUAL(cuDeviceGetAttribute(&value, 120, 0), OK);
    EQUAL(value, 1);
    EQUAL(cuDeviceGetAttribute(&value, 128, 0), OK); /* fabric, multicast: not simulated */
    EQUAL(value, 0);
    EQUAL(cuDeviceGetAttribute(&value, 132, 0), OK);
    EQUAL(value, 0);
    EQUAL(cuDeviceGetAttribute(&value, 148, 0), INVALID_VALUE);
    EQUAL(cuDeviceGetAttribute(&value, 0, 0), INVALID_VALUE);
    EQUAL(cuDeviceGetAttribute(NULL, 16, 0), OK);
    EQUAL(cuDeviceGetAttribute(&value, 16, 2), INVALID_DEVICE);
    EQUAL(cuDeviceGetUuid_v2(one, 0), OK);
    EQUAL(cuDeviceGetUuid_v2(other, 1), OK);
    CHECK(memcmp(one, other, sizeof one) != 0);
    EQUAL(cuDeviceGetPCIBusId(bus, sizeof bus, 1), OK);
    CHECK(!strcmp(bus, "0000:02:00.0"));
    EQUAL(cuDeviceGetByPCIBusId(&device, bus), OK);
    EQUAL(device, 1);
    EQUAL(cuDeviceGetByPCIBusId(&device, "0000:09:00.0"), INVALID_DEVICE);
    EQUAL(cuDeviceGetByPCIBusId(&device, NULL), INVALID_VALUE);
    EQUAL(cuDeviceCanAccessPeer(&value, 0, 1), OK);
    EQUAL(value, 1);
    EQUAL(cuDeviceCanAccessPeer(&value, 0, 0), OK);
    EQUAL(value, 0);
    CHECK(!cm_sim_has_context(0) && !cm_sim_has_context(1)); /* asking makes none */
}

static void *in_thread(void *context)
{
    handle now = context;
    /* A thread begins with the device that the runtime would use; it is chosen for itself. */
    EQUAL(cuCtxSetCurrent(NULL), OK);
    EQUAL(cuCtxGetCurrent(&now), OK);
    CHECK(!now);
    EQUAL(cuCtxPushCurrent_v2(context), OK);
    EQUAL(cuCtxGetCurrent(&now), OK);
    CHECK(now == context);
    return NULL;
}

static void contexts(void)
{
    handle now = &now, first = begin(1), second, made;
    unsigned flags;
    int active, device;
    size_t context = used(1);
    CHECK(context > 0);
    EQUAL(cuDevicePrimaryCtxGetState(0, &flags, &active), OK);
    EQUAL(active, 0);
    EQUAL(cuDevicePrimaryCtxGetState(1, &flags, &active), OK);
    EQUAL(active, 1);
    EQUAL(cuCtxGetDevice(&device), OK);
    EQUAL(device, 1);
    EQUAL(cm_sim_current_device(), 1); /* so the runtime sees it */
    EQUAL(cuDevicePrimaryCtxRetain(&second, 0), OK);
    CHECK(second != first);
    EQUAL(cuCtxPushCurrent_v2(second), OK);
    EQUAL(cuCtxGetDevice(&device), OK);
    EQUAL(device, 0);
    EQUAL(cuCtxPopCurrent_v2(&now), OK);
    CHECK(now == second);
    EQUAL(cuCtxGetCurrent(&now), OK);
    CHECK(now == first);
    cm_sim_set_current_device(0); /* the runtime chooses another */
    EQUAL(cuCtxGetCurrent(&now), OK);
    CHECK(now == second);
    EQUAL(cuCtxCreate_v2(&made, 0, 1), OK); /* made current, shares the device's memory */
    EQUAL(used(1), context);
    EQUAL(cuCtxGetCurrent(&now), OK);
    CHECK(now == made);
    EQUAL(cuCtxPushCurrent_v2(second), OK);
    EQUAL(cuCtxDestroy_v2(made), OK);
    EQUAL(cuCtxDestroy_v2(made), INVALID_CONTEXT);
    EQUAL(cuCtxSetCurrent(made), INVALID_CONTEXT);
    EQUAL(cuCtxPopCurrent_v2(NULL), OK);
    EQUAL(cuCtxGetDevice(&device), CONTEXT_DESTROYED);
    EQUAL(cuCtxPopCurrent_v2(NULL), OK);
    EQUAL(cuCtxPopCurrent_v2(NULL), OK);
    EQUAL(cuCtxPopCurrent_v2(NULL), INVALID_CONTEXT);
    EQUAL(cuCtxGetDevice(&device), INVALID_CONTEXT);
    EQUAL(cuCtxSynchronize(), INVALID_CONTEXT);
    address block = 0;
    EQUAL(cuMemAlloc_v2(&block, 1), INVALID_CONTEXT);
    EQUAL(cuCtxDestroy_v2(first), INVALID_CONTEXT); /* primary ones are released */
    EQUAL(cuCtxPushCurrent_v2(first), OK);
    EQUAL(cuCtxSynchronize(), OK);
    EQUAL(cuDevicePrimaryCtxRelease_v2(1), OK);
    EQUAL(cuDevicePrimaryCtxRelease_v2(1), INVALID_CONTEXT);
    EQUAL(used(1), 0); /* that was the last one, and no runtime is here */
    EQUAL(cuCtxSynchronize(), CONTEXT_DESTROYED);
    EQUAL(cuDevicePrimaryCtxRetain(&now, 1), OK);
    CHECK(now == first);
    EQUAL(used(1), context);
    EQUAL(cuDevicePrimaryCtxRetain(NULL, 7), INVALID_DEVICE);
    EQUAL(cuCtxEnablePeerAccess(second, 0), OK);
    EQUAL(cuCtxEnablePeerAccess(second, 0), 704);
    EQUAL(cuCtxDisablePeerAccess(second), OK);
    EQUAL(cuCtxDisablePeerAccess(second), 705);
    size_t limit = 0;
    EQUAL(cuCtxSetLimit(2, 64 * MIB), OK);
    EQUAL(cuCtxGetLimit(&limit, 2), OK);
    EQUAL(limit, 64 * MIB);
    EQUAL(cuCtxGetLimit(&limit, 99), 215);
    pthread_t thread;
    EQUAL(pthread_create(&thread, NULL, in_thread, second), 0);
    EQUAL(pthread_join(thread, NULL), 0);
    EQUAL(cuCtxGetCurrent(&now), OK);
    CHECK(now == first);
}

/* What a context's end gives back, and what not. */
static void ends(void)
{
    static handle own; /* stays readable, so somebody has to know it */
    handle first, third, array = NULL, pool = NULL;
    address of_first = 0, of_own = 0, small = 0, pooled = 0, stale = 0;
    uint64_t physical = 0;
    void *host = NULL;
    EQUAL(cuInit(0), OK);
    EQUAL(cuCtxCreate_v2(&own, 0, 0), OK);
    CHECK(!cm_sim_has_context(0)); /* the primary one is another */
    size_t context = used(0);
    CHECK(context > 0);
    EQUAL(cuMemAlloc_v2(&of_own, 64 * MIB), OK);
    EQUAL(cuMemAlloc_v2(&small, 512), OK);
    EQUAL(cuMemAllocHost_v2(&host, 4096), OK);
    const shape flat = {.width = 1 << 20, .format = 0x20, .channels = 1};
    EQUAL(cuArrayCreate_v2(&array, &flat), OK);
    EQUAL(cuMemAllocAsync(&pooled, 8 * MIB, NULL), OK);
    properties asked = {.type = 1, .where = {1, 0}};
    EQUAL(cuMemCreate(&physical, 2 * MIB, &asked, 0), OK);
    EQUAL(cuDevicePrimaryCtxRetain(NULL, 0), OK);
    CHECK(cm_sim_has_context(0));
    first = begin(0);
    EQUAL(used(0), context + 64 * MIB + 2 * MIB + 4 * MIB + 8 * MIB + 2 * MIB);
    EQUAL(cuMemAlloc_v2(&of_first, 16 * MIB), OK);
    EQUAL(cuMemAlloc_v2(&stale, 512), OK); /* not among the other context's small ones */
    EQUAL(used(0), context + 64 * MIB + 2 * MIB + 4 * MIB + 8 * MIB + 2 * MIB + 18 * MIB);

    told_begin();
    EQUAL(cuCtxDestroy_v2(own), OK);
    CHECK(!strcmp(told_end()->name, "cuCtxDestroy_v2"));
    EQUAL(told_contexts[2], 1);
    EQUAL(used(0), context + 8 * MIB + 2 * MIB + 18 * MIB); /* pools are the device's */
    EQUAL(cuMemFree_v2(of_own), INVALID_VALUE);
    EQUAL(cuMemFree_v2(small), INVALID_VALUE);
    EQUAL(cuArrayDestroy(array), INVALID_HANDLE);
    EQUAL(cuMemFreeHost(host), OK);
    EQUAL(cuCtxPushCurrent_v2(own), INVALID_CONTEXT);
    EQUAL(cuMemFree_v2(of_first), OK);

    told_begin();
    EQUAL(cuDevicePrimaryCtxReset_v2(0), OK);
    EQUAL(told_end()->id, 545);
    EQUAL(told_contexts[2], 2);
    EQUAL(used(0), 2 * MIB);
    CHECK(!cm_sim_has_context(0));
    EQUAL(cuMemAlloc_v2(&stale, 512), INVALID_CONTEXT);
    EQUAL(cuMemRelease(physical), OK);
    EQUAL(used(0), 0);
    EQUAL(cuDeviceGetDefaultMemPool(&pool, 0), OK);
    uint64_t value = 1;
    EQUAL(cuMemPoolGetAttribute(pool, 7, &value), OK);
    EQUAL(value, 0);
    EQUAL(cuDevicePrimaryCtxReset_v2(7), INVALID_DEVICE);
    EQUAL(cuDevicePrimaryCtxReset_v2(0), OK); /* of nothing */
    EQUAL(told_contexts[2], 2);
    EQUAL(cuDevicePrimaryCtxRetain(&third, 0), OK);
    CHECK(third == first);
    EQUAL(used(0), context);
    EQUAL(cuMemAllocAsync(&pooled, 8 * MIB, NULL), OK);
    EQUAL(cuMemFreeAsync(pooled, NULL), OK);
}

static void allocations(void)
{
    EQUAL(cuInit(0), OK);
    address one = 0, other = 0, base = 0;
    EQUAL(cuMemAlloc_v2(&one, 1), INVALID_CONTEXT);
    begin(0);
    size_t context = used(0), free_bytes, total, bytes, pitch;
    EQUAL(cuMemAlloc_v2(&one, 100 * MIB), OK);
    EQUAL(used(0), context + 100 * MIB);
    EQUAL(cuMemGetInfo_v2(&free_bytes, &total), OK);
    EQUAL(total, 4 * GIB);
    EQUAL(free_bytes, 4 * GIB - context - 100 * MIB);
    EQUAL(cuMemGetInfo_v2(NULL, NULL), OK);
    EQUAL(cuMemAlloc_v2(NULL, 100 * MIB), INVALID_VALUE);
    EQUAL(cuMemAlloc_v2(&other, 0), INVALID_VALUE);
    EQUAL(cuMemAlloc_v2(&other, 4 * GIB), OUT_OF_MEMORY);
    EQUAL(cuMemAlloc_v2(&other, SIZE_MAX), OUT_OF_MEMORY);
    EQUAL(other, 0);
    EQUAL(used(0), context + 100 * MIB);
    EQUAL(cuMemGetAddressRange_v2(&base, &bytes, one + 50 * MIB), OK);
    EQUAL(base, one);
    EQUAL(bytes, 100 * MIB);
    EQUAL(cuMemGetAddressRange_v2(&base, NULL, one + 100 * MIB), NOT_FOUND);
    EQUAL(cuMemAllocPitch_v2(&other, &pitch, 1000, 3000, 4), OK);
    EQUAL(pitch, 1024);
    EQUAL(used(0), context + 100 * MIB + 4 * MIB); /* 3,072,000 bytes, in units of 2 MiB */
    EQUAL(cuMemFree_v2(other), OK);
    EQUAL(cuMemAllocPitch_v2(&other, &pitch, 1000, 3000, 3), INVALID_VALUE);
    EQUAL(cuMemAllocPitch_v2(&other, &pitch, SIZE_MAX, 2, 4), INVALID_VALUE);
    EQUAL(cuMemAllocPitch_v2(&other, &pitch, SIZE_MAX / 2, 3, 4), INVALID_VALUE);
    EQUAL(cuMemAllocManaged(&other, 2 * MIB, 1), OK);
    EQUAL(cuMemAllocManaged(&base, 2 * MIB, 7), INVALID_VALUE);
    EQUAL(cuMemFree_v2(other), OK);
    EQUAL(cuMemFree_v2(other), INVALID_VALUE);
    EQUAL(cuMemFree_v2(one + 512), INVALID_VALUE);
    EQUAL(cuMemFree_v2(0), OK);
    EQUAL(cuMemFree_v2(one), OK);
    EQUAL(used(0), context);
    /* On the other device */
    begin(1);
    size_t second = used(1);
    EQUAL(cuMemAlloc_v2(&one, 8 * MIB), OK);
    EQUAL(used(1), second + 8 * MIB);
    EQUAL(used(0), context);
    begin(0);
    EQUAL(cuMemFree_v2(one), OK); /* whatever is current */
    EQUAL(used(1), second);
}

static void pointers(void)
{
    handle context = begin(0), found = NULL;
    begin(1);
    address device = 0, managed = 0, value = 0;
    void *host = NULL;
    char ordinary[64];
    int kind = 0, ordinal = -1;
    _Bool flag = 0;
    size_t size = 0;
    begin(0);
    EQUAL(cuMemAlloc_v2(&device, MIB), OK);
    EQUAL(cuMemAllocManaged(&managed, MIB, 1), OK);
    EQUAL(cuMemHostAlloc(&host, 8192, 3), OK);
    EQUAL(cuPointerGetAttribute(&kind, 2, device + 5), OK);
    EQUAL(kind, 2);
    EQUAL(cuPointerGetAttribute(&found, 1, device), OK);
    CHECK(found == context);
    EQUAL(cuPointerGetAttribute(&value, 3, device + 5), OK);
    EQUAL(value, device + 5);
    EQUAL(cuPointerGetAttribute(&value, 4, device), INVALID_VALUE);
    EQUAL(cuPointerGetAttribute(&flag, 8, device), OK);
    EQUAL(flag, 0);
    EQUAL(cuPointerGetAttribute(&ordinal, 9, device), OK);
    EQUAL(ordinal, 0);
    EQUAL(cuPointerGetAttribute(&value, 11, device + 5), OK);
    EQUAL(value, device);
    EQUAL(cuPointerGetAttribute(&size, 12, device + 5), OK);
    EQUAL(size, MIB);
    EQUAL(cuPointerGetAttribute(&flag, 8, managed), OK);
    EQUAL(flag, 1);
    EQUAL(cuPointerGetAttribute(&value, 4, managed), OK);
    EQUAL(value, managed);
    EQUAL(cuPointerGetAttribute(&kind, 2, (address)host + 100), OK);
    EQUAL(kind, 1);
    EQUAL(cuPointerGetAttribute(&value, 4, (address)host + 100), OK);
    EQUAL(value, (address)host + 100);
    EQUAL(cuPointerGetAttribute(&kind, 2, (address)ordinary), INVALID_VALUE);
    EQUAL(cuPointerGetAttribute(&kind, 99, device), INVALID_VALUE);
    EQUAL(cuPointerGetAttribute(NULL, 2, device), INVALID_VALUE);
    EQUAL(cuPointerGetAttribute(&kind, 2, device + 64 * MIB), INVALID_VALUE);

    const int which[] = {1, 2, 9, 8, 12};
    void *out[] = {&found, &kind, &ordinal, &flag, &size};
    EQUAL(cuPointerGetAttributes(5, which, out, device), OK);
    CHECK(found == context && kind == 2 && ordinal == 0 && !flag && size == MIB);
    EQUAL(cuPointerGetAttributes(5, which, out, (address)ordinary), OK);
    CHECK(!found && kind == 0 && ordinal == -2 && !flag && size == 0);
    out[2] = NULL;
    EQUAL(cuPointerGetAttributes(5, which, out, device), INVALID_VALUE);

    EQUAL(cuMemHostGetDevicePointer_v2(&value, host, 0), OK);
    EQUAL(value, (address)host);
    EQUAL(cuMemHostGetDevicePointer_v2(&value, ordinary, 0), INVALID_VALUE);
    EQUAL(cuMemFreeHost(host), OK);
    EQUAL(cuMemFreeHost(host), INVALID_VALUE);
    EQUAL(cuMemHostAlloc(&host, 8192, 64), INVALID_VALUE);
    EQUAL(cuMemHostAlloc(&host, 0, 0), INVALID_VALUE);
    char *own = malloc(16384);
    EQUAL(cuMemHostRegister_v2(own, 16384, 0), OK);
    EQUAL(cuMemHostRegister_v2(own, 16384, 0), 712);
    EQUAL(cuPointerGetAttribute(&kind, 2, (address)own + 16383), OK);
    EQUAL(cuMemHostUnregister(own), OK);
    EQUAL(cuMemHostUnregister(own), 713);
    free(own);
    EQUAL(cuMemFree_v2(device), OK);
    EQUAL(cuMemFree_v2(managed), OK);
}

static void copies(void)
{
    begin(0);
    address device = 0, other = 0;
    char in[4096], out[4096];
    for (size_t i = 0; i < sizeof in; i++)
        in[i] = (char)(i * 7 + 1);
    EQUAL(cuMemAlloc_v2(&device, 4096), OK);
    EQUAL(cuMemAlloc_v2(&other, 4096), OK);
    EQUAL(cuMemcpyHtoD_v2(device, in, 4096), OK);
    EQUAL(cuMemcpyDtoD_v2(other, device, 4096), OK);
    memset(out, 0, sizeof out);
    EQUAL(cuMemcpyDtoH_v2(out, other, 4096), OK);
    CHECK(!memcmp(in, out, 4096));
    EQUAL(cm_sim_report_get()->device[0].reads, 0);
    memset(out, 0, sizeof out);
    EQUAL(cuMemcpy((address)out, device, 4096), OK); /* directions are found out */
    CHECK(!memcmp(in, out, 4096));
    EQUAL(cuMemcpyHtoD_v2(device + 1, in, 4096), INVALID_VALUE);
    EQUAL(cuMemcpyDtoH_v2(out, device + 4000, 97), INVALID_VALUE);
    EQUAL(cuMemcpyDtoH_v2(out, device, SIZE_MAX), INVALID_VALUE);
    EQUAL(cuMemcpyHtoD_v2((address)out, in, 16), INVALID_VALUE); /* not the device's */
    EQUAL(cuMemcpyHtoD_v2(device, NULL, 16), INVALID_VALUE);
    EQUAL(cuMemcpyHtoD_v2(device, NULL, 0), OK);
    EQUAL(cuMemcpyHtoDAsync_v2(device, in, 16, (handle)0x1234), INVALID_HANDLE);

    /* 3 rows of 10 bytes, from column 2 of a host image of pitch 16 to column 1 of one of 32 */
    copy2d box = {.src_x = 2,
                  .src_y = 1,
                  .src_type = 1,
                  .src_host = in,
                  .src_pitch = 16,
                  .dst_x = 1,
                  .dst_type = 2,
                  .dst_device = device,
                  .dst_pitch = 32,
                  .width = 10,
                  .height = 3};
    EQUAL(cuMemsetD8_v2(device, 0, 4096), OK);
    EQUAL(cuMemcpy2D_v2(&box), OK);
    EQUAL(cuMemcpyDtoH_v2(out, device, 4096), OK);
    for (int y = 0; y < 3; y++)
        CHECK(!memcmp(out + 32 * y + 1, in + 16 * (y + 1) + 2, 10));
    CHECK(out[0] == 0 && out[11] == 0 && out[97] == 0);
    box.height = 1000;
    EQUAL(cuMemcpy2D_v2(&box), INVALID_VALUE);
    EQUAL(cuMemcpy2D_v2(NULL), INVALID_VALUE);

    /* 2 planes of 2 rows */
    copy3d cube = {.src_type = 1,
                   .src_host = in,
                   .src_pitch = 8,
                   .src_height = 4,
                   .dst_type = 2,
                   .dst_device = device,
                   .dst_pitch = 16,
                   .dst_height = 8,
                   .width = 8,
                   .height = 2,
                   .depth = 2};
    EQUAL(cuMemcpy3D_v2(&cube), OK);
    EQUAL(cuMemcpyDtoH_v2(out, device, 4096), OK);
    CHECK(!memcmp(out, in, 8) && !memcmp(out + 16, in + 8, 8));
    CHECK(!memcmp(out + 128, in + 32, 8) && !memcmp(out + 144, in + 40, 8));
    cube.dst_z = 1000;
    EQUAL(cuMemcpy3D_v2(&cube), INVALID_VALUE);

    /* Patterns wider than a byte */
    EQUAL(cuMemsetD32_v2(device, 0x01020304, 256), OK);
    EQUAL(cuMemsetD16_v2(device + 512, 0xabcd, 4), OK);
    EQUAL(cuMemsetD2D32Async(device + 1024, 64, 5, 3, 2, NULL), OK);
    EQUAL(cuMemcpyDtoH_v2(out, device, 4096), OK);
    uint32_t word;
    memcpy(&word, out + 400, sizeof word);
    EQUAL(word, 0x01020304);
    memcpy(&word, out + 516, sizeof word);
    EQUAL(word, 0xabcdabcd);
    CHECK(out[1024] == 5 && out[1032] == 5 && out[1036] == 0 && out[1088] == 5);
    EQUAL(cuMemsetD32_v2(device + 1, 1, 1), INVALID_VALUE);
    EQUAL(cuMemsetD32_v2(device, 1, 1025), INVALID_VALUE);
    EQUAL(cuMemsetD8_v2((address)out, 1, 1), INVALID_VALUE);
    EQUAL(cuMemsetD2D32Async(device, 6, 1, 1, 2, NULL), INVALID_VALUE); /* pitch */

    /* What was never written is counted when it is read, and reads as zero */
    address fresh = 0;
    EQUAL(cuMemAlloc_v2(&fresh, 4096), OK);
    memset(out, 1, sizeof out);
    EQUAL(cuMemcpyDtoH_v2(out, fresh, 4), OK);
    CHECK(!out[0] && !out[3] && out[4] == 1);
    EQUAL(cm_sim_report_get()->device[0].reads, 1);
    EQUAL(cm_sim_report_get()->device[0].read_bytes, 4);
    EQUAL(cuMemFree_v2(fresh), OK);
    EQUAL(cuMemcpyDtoH_v2(out, fresh, 4), INVALID_VALUE);
    EQUAL(cuMemFree_v2(device), OK);
    EQUAL(cuMemFree_v2(other), OK);
}

/* An array's handle is where its memory is. */
static size_t bytes_of(handle array)
{
    cm_sim_block block;
    CHECK(cm_sim_find(array, &block) && block.kind == CM_SIM_ARRAY);
    return block.bytes;
}

static void arrays(void)
{
    begin(0);
    handle line = NULL, image = NULL;
    size_t context = used(0);
    const shape flat = {.width = 1024, .format = 0x20, .channels = 1};
    EQUAL(cuArrayCreate_v2(&line, &flat), OK);
    CHECK(used(0) > context);
    float in[1024], out[1024];
    for (int i = 0; i < 1024; i++)
        in[i] = (float)i;
    const shape3d deep = {.width = 16, .height = 8, .depth = 4, .format = 1, .channels = 4};
    EQUAL(cuArray3DCreate_v2(&image, &deep), OK);
    copy3d cube = {.src_type = 1,
                   .src_host = in,
                   .src_pitch = 64,
                   .src_height = 8,
                   .dst_type = 3,
                   .dst_array = image,
                   .width = 64,
                   .height = 8,
                   .depth = 2};
    EQUAL(cuMemcpy3D_v2(&cube), OK);
    cube.dst_z = 3;
    EQUAL(cuMemcpy3D_v2(&cube), INVALID_VALUE);
    copy3d back = {.src_z = 1,
                   .src_type = 3,
                   .src_array = image,
                   .dst_type = 1,
                   .dst_host = out,
                   .width = 64,
                   .height = 8,
                   .depth = 1};
    EQUAL(cuMemcpy3D_v2(&back), OK);
    CHECK(!memcmp(out, in + 128, 512));
    EQUAL(cuArrayDestroy(line), OK);
    EQUAL(cuArrayDestroy(line), INVALID_HANDLE);
    EQUAL(cuArrayDestroy(image), OK);
    EQUAL(used(0), context);
    /* Whole blocks of 4 x 4 */
    const shape compressed = {.width = 5, .height = 3, .format = 0x91, .channels = 4};
    EQUAL(cuArrayCreate_v2(&line, &compressed), OK);
    EQUAL(bytes_of(line), 2 * 8);
    EQUAL(cuArrayDestroy(line), OK);
    const shape video = {.width = 4, .format = 0xb0, .channels = 3};
    EQUAL(cuArrayCreate_v2(&line, &video), NOT_SUPPORTED);
    EQUAL(noted(CM_SIM_NOTE_REFUSED, "CUDA arrays of video formats"), 1);
    const shape3d sparse = {.width = 4, .format = 1, .channels = 1, .flags = 0x40};
    EQUAL(cuArray3DCreate_v2(&line, &sparse), NOT_SUPPORTED);
    EQUAL(cuArrayCreate_v2(&line, NULL), INVALID_VALUE);
    EQUAL(cuArrayDestroy(NULL), INVALID_HANDLE);
    EQUAL(used(0), context);
}

static void mipmaps(void)
{
    begin(0);
    handle whole = NULL, first = NULL, last = NULL;
    size_t context = used(0);
    shape3d asked = {.width = 8, .height = 4, .format = 0x20, .channels = 2};
    EQUAL(cuMipmappedArrayCreate(&whole, &asked, 0), INVALID_VALUE);
    EQUAL(cuMipmappedArrayCreate(&whole, &asked, 9), OK); /* 8, 4, 2, 1: there are no more */
    EQUAL(bytes_of(whole), (8 * 4 + 4 * 2 + 2 + 1) * 8);
    EQUAL(cm_sim_array_level(whole, 0, &first), OK);
    EQUAL(cm_sim_array_level(whole, 3, &last), OK);
    EQUAL(cm_sim_array_level(whole, 4, &last), INVALID_VALUE);
    CHECK(first != last);
    EQUAL(cuArrayDestroy(first), INVALID_HANDLE); /* a level goes with the whole */
    EQUAL(cuMipmappedArrayDestroy(last), INVALID_HANDLE);
    told_begin();
    EQUAL(cuMipmappedArrayDestroy(whole), OK);
    EQUAL(told_end()->id, 349);
    EQUAL(cuMipmappedArrayDestroy(whole), INVALID_HANDLE);
    /* Layers are as many at each level, depth is not. */
    asked = (shape3d){.width = 4, .height = 4, .depth = 6, .format = 1, .channels = 1, .flags = 1};
    told_begin();
    EQUAL(cuMipmappedArrayCreate(&whole, &asked, 2), OK);
    EQUAL(told_end()->id, 347);
    EQUAL(bytes_of(whole), (16 + 4) * 6);
    EQUAL(cuMipmappedArrayDestroy(whole), OK);
    asked.flags = 0;
    EQUAL(cuMipmappedArrayCreate(&whole, &asked, 2), OK);
    EQUAL(bytes_of(whole), 16 * 6 + 4 * 3);
    EQUAL(cuMipmappedArrayDestroy(whole), OK);
    asked.width = SIZE_MAX;
    EQUAL(cuMipmappedArrayCreate(&whole, &asked, 1), INVALID_VALUE);
    EQUAL(used(0), context);
}

/* What PyTorch's expandable segments do. */
static void segments(void)
{
    begin(0);
    size_t context = used(0), unit = 0;
    properties asked = {.type = 1, .where = {1, 0}};
    const access_rights rw = {{1, 0}, 3};
    address range = 0, base;
    uint64_t one = 0, other = 0, again = 0;
    EQUAL(cuMemGetAllocationGranularity(&unit, &asked, 0), OK);
    EQUAL(unit, 2 * MIB);
    EQUAL(cuMemAddressReserve(&range, 100 * MIB, 0, 0, 0), OK);
    EQUAL(used(0), context); /* addresses are free */
    EQUAL(cuMemCreate(&one, 20 * MIB, &asked, 0), OK);
    EQUAL(cuMemCreate(&other, 20 * MIB, &asked, 0), OK);
    EQUAL(used(0), context + 40 * MIB);
    EQUAL(cuMemMap(range, 20 * MIB, 0, one, 0), OK);
    EQUAL(cuMemMap(range, 20 * MIB, 0, other, 0), INVALID_VALUE); /* taken */
    EQUAL(cuMemMap(range + 20 * MIB, 20 * MIB, 0, other, 0), OK);
    EQUAL(cuMemSetAccess(range, 40 * MIB, &rw, 1), OK);
    EQUAL(used(0), context + 40 * MIB);
    /* A copy over the seam */
    char in[4096], out[4096];
    memset(in, 42, sizeof in);
    EQUAL(cuMemcpyHtoD_v2(range + 20 * MIB - 2048, in, 4096), OK);
    EQUAL(cuMemcpyDtoH_v2(out, range + 20 * MIB - 2048, 4096), OK);
    CHECK(!memcmp(in, out, 4096));
    EQUAL(cuMemcpyHtoD_v2(range + 40 * MIB - 2048, in, 4096), INVALID_VALUE);
    int kind = 0;
    EQUAL(cuPointerGetAttribute(&kind, 2, range + 30 * MIB), OK);
    EQUAL(kind, 2);
    EQUAL(cuPointerGetAttribute(&base, 11, range + 50 * MIB), INVALID_VALUE);
    /* The handle lives on while it is mapped, and while it is held */
    EQUAL(cuMemRelease(one), OK);
    EQUAL(used(0), context + 40 * MIB);
    EQUAL(cuMemRetainAllocationHandle(&again, (void *)(range + MIB)), OK);
    EQUAL(again, one);
    EQUAL(cuMemUnmap(range, 20 * MIB), OK);
    EQUAL(used(0), context + 40 * MIB);
    EQUAL(cuMemRelease(again), OK);
    EQUAL(used(0), context + 20 * MIB);
    EQUAL(cuMemRetainAllocationHandle(&again, (void *)range), INVALID_VALUE);
    EQUAL(cuMemRelease(other), OK);
    EQUAL(cuMemAddressFree(range, 100 * MIB), INVALID_VALUE); /* something is mapped */
    EQUAL(cuMemUnmap(range + 20 * MIB, 20 * MIB), OK);
    EQUAL(used(0), context);
    EQUAL(cuMemAddressFree(range, 100 * MIB), OK);
    EQUAL(cuMemAddressFree(range, 100 * MIB), INVALID_VALUE);

    EQUAL(cuMemCreate(&one, 4 * GIB, &asked, 0), OUT_OF_MEMORY);
    EQUAL(cuMemCreate(&one, MIB, &asked, 0), INVALID_VALUE);
    EQUAL(cuMemCreate(NULL, 2 * MIB, &asked, 0), INVALID_VALUE);
    EQUAL(cuMemCreate(&one, 2 * MIB, NULL, 0), INVALID_VALUE);
    asked.where.id = 5;
    EQUAL(cuMemCreate(&one, 2 * MIB, &asked, 0), INVALID_DEVICE);
    asked.where = (location){2, 0};
    EQUAL(cuMemCreate(&one, 2 * MIB, &asked, 0), NOT_SUPPORTED);
    EQUAL(noted(CM_SIM_NOTE_REFUSED, "cuMemCreate on the host"), 1);
    EQUAL(cuMemRelease(0), INVALID_VALUE);
    EQUAL(cuMemAddressReserve(&range, MIB, 0, 0, 0), INVALID_VALUE);
    EQUAL(cuMemAddressReserve(NULL, 2 * MIB, 0, 0, 0), INVALID_VALUE);
    EQUAL(used(0), context);
    /* On the second device, and told so */
    asked.where = (location){1, 1};
    EQUAL(cuMemCreate(&one, 2 * MIB, &asked, 0), OK);
    properties told;
    EQUAL(cuMemGetAllocationPropertiesFromHandle(&told, one), OK);
    EQUAL(told.type, 1);
    EQUAL(told.where.id, 1);
    EQUAL(used(0), context);
    int other_process = 0;
    EQUAL(cuMemExportToShareableHandle(&other_process, one, 1, 0), NOT_SUPPORTED);
    EQUAL(noted(CM_SIM_NOTE_REFUSED, "CUDA IPC"), 1);
    told_begin(); /* and who listens hears it */
    EQUAL(cuMemImportFromShareableHandle(&again, &other_process, 1), NOT_SUPPORTED);
    EQUAL(told_end()->result, NOT_SUPPORTED);
    told_begin();
    EQUAL(cuMulticastCreate(&again, &asked), NOT_SUPPORTED);
    EQUAL(told_end()->id, 706);
    EQUAL(noted(CM_SIM_NOTE_REFUSED, "multicast objects"), 1);
    EQUAL(cuMemRelease(one), OK);
}

static void pools(void)
{
    begin(0);
    size_t context = used(0);
    uint64_t threshold = UINT64_MAX, value = 0;
    handle pool = NULL, own = NULL, stream = NULL;
    address block = 0, of_pool = 0;
    EQUAL(cuStreamCreate(&stream, 1), OK);
    EQUAL(cuDeviceGetDefaultMemPool(&pool, 0), OK);
    EQUAL(cuMemPoolSetAttribute(pool, 4, &threshold), OK);
    EQUAL(cuMemAllocAsync(&block, 64 * MIB, stream), OK);
    CHECK(used(0) >= context + 64 * MIB);
    EQUAL(cuMemPoolGetAttribute(pool, 7, &value), OK);
    EQUAL(value, 64 * MIB);
    EQUAL(cuMemFreeAsync(block, stream), OK);
    EQUAL(cuMemPoolGetAttribute(pool, 7, &value), OK);
    EQUAL(value, 0);
    CHECK(used(0) >= context + 64 * MIB); /* kept, up to the threshold */
    EQUAL(cuMemPoolTrimTo(pool, 0), OK);
    EQUAL(used(0), context);
    EQUAL(cuMemAllocAsync(&block, 8 * GIB, stream), OUT_OF_MEMORY);
    EQUAL(cuMemAllocAsync(NULL, 8, stream), INVALID_VALUE);
    EQUAL(cuMemAllocAsync(&block, 8, (handle)0x99), INVALID_HANDLE);
    EQUAL(cuMemFreeAsync(0x1000, stream), INVALID_VALUE);
    pool_properties asked = {.type = 1, .where = {1, 0}};
    EQUAL(cuMemPoolCreate(&own, &asked), OK);
    EQUAL(cuMemAllocFromPoolAsync(&of_pool, MIB, own, stream), OK);
    EQUAL(cuMemFree_v2(of_pool), OK); /* in any way */
    EQUAL(cuMemPoolDestroy(own), OK);
    asked.where.type = 2;
    EQUAL(cuMemPoolCreate(&own, &asked), NOT_SUPPORTED);
    EQUAL(cuMemPoolCreate(&own, NULL), INVALID_VALUE);
    EQUAL(cuStreamDestroy_v2(stream), OK);
    EQUAL(cuCtxSynchronize(), OK);
    EQUAL(used(0), context);
}

const test_case memory_cases[] = {
    {"devices", devices},   {"contexts", contexts}, {"allocations", allocations},
    {"pointers", pointers}, {"copies", copies},     {"arrays", arrays},
    {"mipmaps", mipmaps},   {"segments", segments}, {"pools", pools},
    {"ends", ends},         {NULL, NULL},
};
