/* Devices, memory, copies, pools. */
#include <stdint.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "check.h"

static void *allocate(size_t bytes)
{
    void *address = NULL;
    OK(cudaMalloc(&address, bytes));
    CHECK(address != NULL);
    return address;
}

static void errors(void)
{
    CHECK(!strcmp(cudaGetErrorName(0), "cudaSuccess"));
    CHECK(!strcmp(cudaGetErrorName(2), "cudaErrorMemoryAllocation"));
    CHECK(!strcmp(cudaGetErrorString(2), "out of memory"));
    CHECK(!strcmp(cudaGetErrorName(12345), "unrecognized error code"));
    /* Known to the driver alone. */
    CHECK(!strcmp(cudaGetErrorString(202), "unrecognized error code"));

    OK(cudaGetLastError());
    EQUAL(cudaSetDevice(7), CM_CUDA_INVALID_DEVICE);
    EQUAL(cudaPeekAtLastError(), CM_CUDA_INVALID_DEVICE);
    OK(cudaSetDevice(0)); /* success does not forget */
    EQUAL(cudaGetLastError(), CM_CUDA_INVALID_DEVICE);
    OK(cudaGetLastError());
}

static void devices(void)
{
    int count = 0, device = -1, value = 0;
    OK(cudaGetDeviceCount(&count));
    EQUAL(count, 2);
    CHECK(!cm_sim_has_context(0)); /* to count creates nothing */
    OK(cudaGetDevice(&device));
    EQUAL(device, 0);
    CHECK(!cm_sim_has_context(0));
    OK(cudaSetDevice(1));
    CHECK(cm_sim_has_context(1) && !cm_sim_has_context(0));
    OK(cudaGetDevice(&device));
    EQUAL(device, 1);
    OK(cudaInitDevice(0, 0, 0));
    CHECK(cm_sim_has_context(0));
    OK(cudaGetDevice(&device));
    EQUAL(device, 1);

    for (int i = 0; i < count; i++) {
        cm_cuda_prop p;
        const cm_sim_profile *profile = &cm_sim_config_get()->device[i];
        memset(&p, 0xa5, sizeof p);
        OK(cudaGetDeviceProperties(&p, i));
        CHECK(!strcmp(p.name, profile->name));
        EQUAL(p.totalGlobalMem, profile->memory);
        EQUAL(p.multiProcessorCount, profile->sms);
        EQUAL(p.major, profile->major);
        EQUAL(p.minor, profile->minor);
        EQUAL(p.sharedMemPerMultiprocessor, profile->shared_per_sm);
        EQUAL(p.sharedMemPerBlockOptin, profile->shared_per_block_optin);
        EQUAL(p.maxThreadsPerMultiProcessor, profile->threads_per_sm);
        EQUAL(p.maxBlocksPerMultiProcessor, profile->blocks_per_sm);
        EQUAL(p.l2CacheSize, profile->l2);
        EQUAL(p.memoryBusWidth, profile->bus_width);
        EQUAL(p.warpSize, 32);
        EQUAL(p.maxThreadsPerBlock, 1024);
        EQUAL(p.clusterLaunch, profile->major >= 9);
        EQUAL(p.reserved[0], 0);
        EQUAL(p.ipcEventSupported, 0); /* not simulated, so not promised */
        /* The same as one by one. */
        OK(cudaDeviceGetAttribute(&value, CM_CUDA_ATTR_MULTIPROCESSORS, i));
        EQUAL(value, p.multiProcessorCount);
        OK(cudaDeviceGetAttribute(&value, CM_CUDA_ATTR_PCI_BUS, i));
        EQUAL(value, p.pciBusID);
        OK(cudaDeviceGetAttribute(&value, CM_CUDA_ATTR_SHARED_PER_BLOCK_OPTIN, i));
        EQUAL(value, p.sharedMemPerBlockOptin);
        char pci[32];
        int found = -1;
        OK(cudaDeviceGetPCIBusId(pci, sizeof pci, i));
        OK(cudaDeviceGetByPCIBusId(&found, pci));
        EQUAL(found, i);
        unsigned bus;
        EQUAL(sscanf(pci, "%*x:%x:", &bus), 1);
        EQUAL(bus, p.pciBusID);
    }
    cm_cuda_prop a, b;
    OK(cudaGetDeviceProperties(&a, 0));
    OK(cudaGetDeviceProperties(&b, 1));
    CHECK(memcmp(&a.uuid, &b.uuid, sizeof a.uuid) != 0);

    EQUAL(cudaGetDeviceProperties(&a, 2), CM_CUDA_INVALID_DEVICE);
    EQUAL(cudaGetDeviceProperties(&a, -1), CM_CUDA_INVALID_DEVICE);
    EQUAL(cudaGetDeviceProperties(NULL, 0), CM_CUDA_INVALID_VALUE);
    EQUAL(cudaDeviceGetAttribute(&value, 0, 0), CM_CUDA_INVALID_VALUE);
    EQUAL(cudaDeviceGetAttribute(&value, 100000, 0), CM_CUDA_INVALID_VALUE);
    EQUAL(cudaDeviceGetAttribute(&value, 1, 2), CM_CUDA_INVALID_DEVICE);
    EQUAL(cudaDeviceGetAttribute(NULL, 1, 0), CM_CUDA_INVALID_VALUE);
    EQUAL(cudaGetDeviceCount(NULL), CM_CUDA_INVALID_VALUE);
    EQUAL(cudaSetDevice(-1), CM_CUDA_INVALID_DEVICE);

    int least = -1, greatest = 0;
    OK(cudaDeviceGetStreamPriorityRange(&least, &greatest));
    CHECK(least == 0 && greatest < 0);
    OK(cudaDeviceGetStreamPriorityRange(NULL, NULL));
    size_t limit = 0;
    OK(cudaDeviceSetLimit(2, 16 * MIB));
    OK(cudaDeviceGetLimit(&limit, 2));
    EQUAL(limit, 16 * MIB);
    CHECK(cudaDeviceGetLimit(&limit, 99) != CM_CUDA_OK);
    int cache = 9;
    OK(cudaDeviceSetCacheConfig(2));
    OK(cudaDeviceGetCacheConfig(&cache));
    EQUAL(cache, 2);
    EQUAL(cudaDeviceSetCacheConfig(9), CM_CUDA_INVALID_VALUE);
    int version = 0;
    OK(cudaRuntimeGetVersion(&version));
    EQUAL(version, 13000);
    OK(cudaDriverGetVersion(&version));
    EQUAL(version, cm_sim_config_get()->driver_version);
}

/* What the environment cannot mean leaves no device, and every call says so. */
static void no_device(void)
{
    int value = 5;
    void *address;
    stream s;
    event e;
    EQUAL(cudaGetDeviceCount(&value), CM_CUDA_NO_DEVICE);
    EQUAL(value, 0);
    EQUAL(cudaGetDevice(&value), CM_CUDA_NO_DEVICE);
    EQUAL(cudaSetDevice(0), CM_CUDA_NO_DEVICE);
    EQUAL(cudaMalloc(&address, 1), CM_CUDA_NO_DEVICE);
    EQUAL(cudaFree(NULL), CM_CUDA_NO_DEVICE);
    EQUAL(cudaHostAlloc(&address, 1, 0), CM_CUDA_NO_DEVICE);
    EQUAL(cudaStreamCreate(&s), CM_CUDA_NO_DEVICE);
    EQUAL(cudaEventCreate(&e), CM_CUDA_NO_DEVICE);
    EQUAL(cudaMemset(&value, 0, 4), CM_CUDA_NO_DEVICE);
    EQUAL(cudaLaunchKernel(KERNEL, ONE, WARP, NULL, 0, NULL), CM_CUDA_NO_DEVICE);
    EQUAL(cudaDeviceSynchronize(), CM_CUDA_NO_DEVICE);
    EQUAL(cudaStreamSynchronize(NULL), CM_CUDA_NO_DEVICE);
    EQUAL(cudaMallocAsync(&address, 1, NULL), CM_CUDA_NO_DEVICE);
}

static void memory(void)
{
    size_t free_before, free_after, total;
    OK(cudaFree(NULL)); /* creates the context */
    CHECK(cm_sim_has_context(0));
    OK(cudaMemGetInfo(&free_before, &total));
    EQUAL(total, cm_sim_config_get()->device[0].memory);
    EQUAL(total - free_before, cm_sim_config_get()->device[0].context);
    char *address = allocate(64 * MIB);
    OK(cudaMemGetInfo(&free_after, NULL));
    EQUAL(free_before - free_after, 64 * MIB);
    OK(cudaMemGetInfo(NULL, NULL));
    EQUAL(cudaFree(address + 4096), CM_CUDA_INVALID_VALUE); /* not a start */
    OK(cudaFree(address));
    EQUAL(cudaFree(address), CM_CUDA_INVALID_VALUE); /* twice */
    EQUAL(cudaFree(&total), CM_CUDA_INVALID_VALUE);
    OK(cudaMemGetInfo(&free_after, &total));
    EQUAL(free_after, free_before);

    void *none = &total;
    OK(cudaMalloc(&none, 0));
    CHECK(none == NULL);
    EQUAL(cudaMalloc(NULL, 4), CM_CUDA_INVALID_VALUE);
    EQUAL(cudaMalloc(&none, 1000 * GIB), CM_CUDA_OUT_OF_MEMORY);
    EQUAL(cudaMalloc(&none, SIZE_MAX), CM_CUDA_OUT_OF_MEMORY);
    EQUAL(cudaGetLastError(), CM_CUDA_OUT_OF_MEMORY);
    void *most = NULL;
    OK(cudaMalloc(&most, free_after & ~(2 * MIB - 1)));
    EQUAL(cudaMalloc(&none, 4 * MIB), CM_CUDA_OUT_OF_MEMORY);
    OK(cudaFree(most));

    size_t pitch = 0;
    void *rows = NULL;
    OK(cudaMallocPitch(&rows, &pitch, 1000, 3));
    EQUAL(pitch, 1024);
    OK(cudaFree(rows));
    EQUAL(cudaMallocPitch(&rows, &pitch, SIZE_MAX - 8, 3), CM_CUDA_OUT_OF_MEMORY);
    EQUAL(cudaMallocPitch(&rows, &pitch, SIZE_MAX / 2, 3), CM_CUDA_OUT_OF_MEMORY);
    EQUAL(cudaMallocPitch(&rows, NULL, 8, 3), CM_CUDA_INVALID_VALUE);
    cm_cuda_pitched box;
    OK(cudaMalloc3D(&box, (cm_cuda_extent){100, 10, 4}));
    EQUAL(box.pitch, 512);
    EQUAL(box.xsize, 100);
    EQUAL(box.ysize, 10);
    OK(cudaFree(box.ptr));
    EQUAL(cudaMalloc3D(&box, (cm_cuda_extent){8, SIZE_MAX, 2}), CM_CUDA_INVALID_VALUE);

    int *managed = NULL;
    EQUAL(cudaMallocManaged((void **)&managed, 4096, 0), CM_CUDA_INVALID_VALUE);
    OK(cudaMallocManaged((void **)&managed, 4096, CM_CUDA_ATTACH_GLOBAL));
    managed[5] = 77; /* the host may write it */
    EQUAL(managed[5], 77);
    cm_cuda_location where = {CM_CUDA_LOCATION_DEVICE, 0};
    OK(cudaMemAdvise(managed, 4096, 1, where));
    OK(cudaMemPrefetchAsync(managed, 4096, where, 0, NULL));
    EQUAL(cudaMemAdvise(managed, 4096, 9, where), CM_CUDA_INVALID_VALUE);
    EQUAL(cudaMemAdvise(&total, 8, 1, where), CM_CUDA_INVALID_VALUE);
    where.id = 9;
    EQUAL(cudaMemPrefetchAsync(managed, 4096, where, 0, NULL), CM_CUDA_INVALID_DEVICE);
    OK(cudaFree(managed));
    EQUAL(used(0), cm_sim_config_get()->device[0].context);
}

static void host(void)
{
    char *pinned = NULL, *registered = malloc(3 * 4096);
    void *seen = NULL;
    OK(cudaHostAlloc((void **)&pinned, 10000, CM_CUDA_HOST_PORTABLE | CM_CUDA_HOST_MAPPED));
    memset(pinned, 1, 10000);
    OK(cudaHostGetDevicePointer(&seen, pinned + 100, 0));
    CHECK(seen == pinned + 100);
    EQUAL(cudaHostGetDevicePointer(&seen, registered, 0), CM_CUDA_INVALID_VALUE);
    OK(cudaHostRegister(registered, 3 * 4096, 0));
    EQUAL(cudaHostRegister(registered, 4096, 0), CM_CUDA_HOST_ALREADY_REGISTERED);
    EQUAL(cudaHostRegister(pinned, 4096, 1u << 9), CM_CUDA_INVALID_VALUE);
    OK(cudaHostUnregister(registered));
    EQUAL(cudaHostUnregister(registered), CM_CUDA_HOST_NOT_REGISTERED);
    EQUAL(cudaFreeHost(registered), CM_CUDA_INVALID_VALUE);
    OK(cudaFreeHost(NULL));
    OK(cudaFreeHost(pinned));
    EQUAL(cudaFreeHost(pinned), CM_CUDA_INVALID_VALUE);
    EQUAL(cudaHostAlloc((void **)&pinned, 8, 1u << 12), CM_CUDA_INVALID_VALUE);
    EQUAL(cudaHostAlloc(NULL, 8, 0), CM_CUDA_INVALID_VALUE);
    OK(cudaMallocHost((void **)&pinned, 64));
    OK(cudaFreeHost(pinned));
    EQUAL(used(0), cm_sim_config_get()->device[0].context); /* no memory of the device */
    free(registered);
}

static void pointers(void)
{
    cm_cuda_pointer_attributes a;
    char *address = allocate(1000), *pinned, *managed, here;
    OK(cudaMallocHost((void **)&pinned, 64));
    OK(cudaMallocManaged((void **)&managed, 64, CM_CUDA_ATTACH_GLOBAL));
    OK(cudaPointerGetAttributes(&a, address + 999));
    EQUAL(a.type, CM_CUDA_MEMORY_DEVICE);
    EQUAL(a.device, 0);
    CHECK(a.devicePointer == address + 999 && a.hostPointer == NULL);
    OK(cudaPointerGetAttributes(&a, pinned));
    EQUAL(a.type, CM_CUDA_MEMORY_HOST);
    CHECK(a.devicePointer == pinned && a.hostPointer == pinned);
    OK(cudaPointerGetAttributes(&a, managed));
    EQUAL(a.type, CM_CUDA_MEMORY_MANAGED);
    OK(cudaPointerGetAttributes(&a, &here));
    EQUAL(a.type, CM_CUDA_MEMORY_UNREGISTERED);
    CHECK(a.device == -2 && a.devicePointer == NULL);
    OK(cudaFree(address));
    OK(cudaPointerGetAttributes(&a, address));
    EQUAL(a.type, CM_CUDA_MEMORY_UNREGISTERED);
    EQUAL(cudaPointerGetAttributes(NULL, address), CM_CUDA_INVALID_VALUE);
    OK(cudaFree(managed));
    OK(cudaFreeHost(pinned));
}

static void copies(void)
{
    enum { TO_DEVICE = 1, TO_HOST = 2, INSIDE = 3, GUESS = 4 };
    char in[256], out[256] = {0};
    for (int i = 0; i < 256; i++)
        in[i] = (char)i;
    char *a = allocate(256), *b = allocate(256);
    OK(cudaMemcpy(a, in, 256, TO_DEVICE));
    OK(cudaMemcpyAsync(b, a, 256, INSIDE, NULL));
    OK(cudaMemcpyAsync(out, b, 256, GUESS, NULL));
    CHECK(!memcmp(in, out, 256));
    OK(cudaMemset(b, 0x5a, 100));
    OK(cudaMemcpy(out, b, 256, TO_HOST));
    for (int i = 0; i < 256; i++)
        EQUAL((unsigned char)out[i], i < 100 ? 0x5a : i);
    OK(cudaMemcpy(out, in, 0, TO_DEVICE)); /* nothing: nothing to be wrong */

    EQUAL(cudaMemcpy(a, in, 256, 5), CM_CUDA_INVALID_DIRECTION);
    EQUAL(cudaMemcpy(a, in, 256, -1), CM_CUDA_INVALID_DIRECTION);
    EQUAL(cudaMemcpy(out, in, 256, TO_DEVICE), CM_CUDA_INVALID_VALUE);
    EQUAL(cudaMemcpy(a, b, 256, TO_HOST), CM_CUDA_INVALID_VALUE);
    EQUAL(cudaMemcpy(NULL, in, 4, TO_DEVICE), CM_CUDA_INVALID_VALUE);
    EQUAL(cudaMemcpy(a, in, 512, TO_DEVICE), CM_CUDA_INVALID_VALUE); /* past its end */
    EQUAL(cudaMemcpyAsync(a, in, 256, TO_DEVICE, (stream)in), CM_CUDA_INVALID_HANDLE);
    EQUAL(cudaMemset(out, 0, 4), CM_CUDA_INVALID_VALUE);
    EQUAL(cudaMemset(a, 0, 512), CM_CUDA_INVALID_VALUE);
    OK(cudaFree(b));
    EQUAL(cudaMemcpy(out, b, 4, TO_HOST), CM_CUDA_INVALID_VALUE); /* gone */

    /* Rows: 3 of 10 bytes, out of 16 into 32 and back. */
    char *wide = allocate(96);
    memset(out, 0, sizeof out);
    OK(cudaMemcpy2D(wide, 32, in, 16, 10, 3, TO_DEVICE));
    OK(cudaMemcpy2DAsync(out, 12, wide, 32, 10, 3, TO_HOST, NULL));
    for (int y = 0; y < 3; y++)
        for (int x = 0; x < 12; x++)
            EQUAL(out[12 * y + x], x < 10 ? in[16 * y + x] : 0);
    EQUAL(cudaMemcpy2D(wide, 8, in, 16, 10, 3, TO_DEVICE), CM_CUDA_INVALID_PITCH);
    EQUAL(cudaMemcpy2D(wide, 32, in, 16, 10, 4, TO_DEVICE), CM_CUDA_INVALID_VALUE);
    OK(cudaMemset2DAsync(wide, 32, 7, 4, 3, NULL));
    OK(cudaMemcpy(out, wide, 96, TO_HOST));
    EQUAL(out[64 + 3], 7);
    EQUAL(out[64 + 4], in[32 + 4]);

    /* Several at once, not on the legacy stream. */
    stream s;
    OK(cudaStreamCreate(&s));
    void *to[] = {a, a + 8};
    const void *from[] = {in + 1, in + 100};
    size_t bytes[] = {8, 8}, first = 0;
    cm_cuda_copy_attributes how = {.srcAccessOrder = 1};
    OK(cudaMemcpyBatchAsync(to, from, bytes, 2, &how, &first, 1, s));
    OK(cudaMemcpy(out, a, 16, TO_HOST));
    CHECK(!memcmp(out, in + 1, 8) && !memcmp(out + 8, in + 100, 8));
    EQUAL(cudaMemcpyBatchAsync(to, from, bytes, 2, &how, &first, 1, NULL), CM_CUDA_INVALID_VALUE);
    OK(cudaStreamDestroy(s));
    OK(cudaFree(wide));
    OK(cudaFree(a));
}

static void peers(void)
{
    int can = -1;
    char in[64] = "over there", out[64] = {0}, *a, *b;
    OK(cudaDeviceCanAccessPeer(&can, 0, 1));
    EQUAL(can, 1);
    OK(cudaDeviceCanAccessPeer(&can, 1, 1));
    EQUAL(can, 0);
    EQUAL(cudaDeviceCanAccessPeer(&can, 0, 2), CM_CUDA_INVALID_DEVICE);
    OK(cudaSetDevice(0));
    OK(cudaDeviceEnablePeerAccess(1, 0));
    EQUAL(cudaDeviceEnablePeerAccess(1, 0), CM_CUDA_PEER_ALREADY_ENABLED);
    EQUAL(cudaDeviceEnablePeerAccess(0, 0), CM_CUDA_INVALID_DEVICE);
    EQUAL(cudaDeviceEnablePeerAccess(1, 1), CM_CUDA_INVALID_VALUE);

    size_t first = used(0), second = used(1);
    a = allocate(8 * MIB);
    OK(cudaSetDevice(1));
    b = allocate(16 * MIB);
    EQUAL(used(0) - first, 8 * MIB);
    EQUAL(used(1) - second, cm_sim_config_get()->device[1].context + 16 * MIB);
    cm_cuda_pointer_attributes attributes;
    OK(cudaPointerGetAttributes(&attributes, a));
    EQUAL(attributes.device, 0);
    OK(cudaPointerGetAttributes(&attributes, b));
    EQUAL(attributes.device, 1);
    OK(cudaMemcpy(a, in, sizeof in, 1)); /* from any device */
    OK(cudaMemcpyPeer(b, 1, a, 0, sizeof in));
    OK(cudaMemcpy(out, b, sizeof out, 2));
    CHECK(!memcmp(in, out, sizeof in));
    EQUAL(cudaMemcpyPeer(b, 1, a, 2, 4), CM_CUDA_INVALID_DEVICE);
    OK(cudaMemcpyPeerAsync(b, 1, a, 0, 4, NULL));
    OK(cudaFree(a));
    EQUAL(used(0), first);
    OK(cudaFree(b));
}

static uint64_t stat(pool p, int attribute)
{
    uint64_t value = 0;
    OK(cudaMemPoolGetAttribute(p, attribute, &value));
    return value;
}
enum {
    RESERVED = CM_CUDA_POOL_RESERVED_CURRENT,
    RESERVED_HIGH = CM_CUDA_POOL_RESERVED_HIGH,
    USED = CM_CUDA_POOL_USED_CURRENT,
    USED_HIGH = CM_CUDA_POOL_USED_HIGH,
    THRESHOLD = CM_CUDA_POOL_RELEASE_THRESHOLD
};

static void pools(void)
{
    pool p, other;
    void *a, *b, *c;
    OK(cudaFree(NULL));
    size_t before = used(0);
    OK(cudaDeviceGetDefaultMemPool(&p, 0));
    EQUAL(stat(p, RESERVED), 0);
    EQUAL(stat(p, THRESHOLD), 0);
    OK(cudaMallocAsync(&a, 8 * MIB, NULL));
    OK(cudaMallocAsync(&b, 4 * MIB, NULL));
    EQUAL(stat(p, USED), 12 * MIB);
    EQUAL(stat(p, RESERVED), 12 * MIB);
    EQUAL(used(0) - before, 12 * MIB);
    enum { TO_DEVICE = 1, TO_HOST = 2 };
    int64_t stale = 7;
    OK(cudaMemcpy(a, &stale, sizeof stale, TO_DEVICE));
    OK(cudaFreeAsync(a, NULL));
    EQUAL(cudaFreeAsync(a, NULL), CM_CUDA_INVALID_VALUE);
    EQUAL(stat(p, USED), 4 * MIB);
    EQUAL(stat(p, RESERVED), 12 * MIB); /* kept until the host waits */
    OK(cudaMallocAsync(&c, 8 * MIB, NULL));
    CHECK(c == a); /* and used again */
    OK(cudaMemcpy(&stale, c, sizeof stale, TO_HOST));
    EQUAL(stale, 0);
    OK(cudaFreeAsync(c, NULL));
    OK(cudaStreamSynchronize(NULL));
    EQUAL(stat(p, RESERVED), 4 * MIB);
    EQUAL(used(0) - before, 4 * MIB);
    EQUAL(stat(p, RESERVED_HIGH), 12 * MIB);
    EQUAL(stat(p, USED_HIGH), 12 * MIB);

    /* As PyTorch sets it: nothing goes back by itself. */
    uint64_t all = UINT64_MAX, zero = 0, one = 1;
    OK(cudaMemPoolSetAttribute(p, THRESHOLD, &all));
    EQUAL(stat(p, THRESHOLD), UINT64_MAX);
    OK(cudaFreeAsync(b, NULL));
    OK(cudaDeviceSynchronize());
    EQUAL(stat(p, RESERVED), 4 * MIB);
    OK(cudaMallocAsync(&a, 16 * MIB, NULL)); /* the kept 4 are part of it */
    EQUAL(stat(p, RESERVED), 16 * MIB);
    OK(cudaFreeAsync(a, NULL));
    OK(cudaMallocAsync(&a, 6 * MIB, NULL)); /* split: 10 stay */
    OK(cudaMallocAsync(&b, 10 * MIB, NULL));
    EQUAL(stat(p, RESERVED), 16 * MIB);
    EQUAL(used(0) - before, 16 * MIB);
    OK(cudaFree(a)); /* either way of freeing */
    OK(cudaMemPoolTrimTo(p, 12 * MIB));
    EQUAL(stat(p, RESERVED), 10 * MIB);
    OK(cudaMemPoolSetAttribute(p, USED_HIGH, &zero));
    EQUAL(stat(p, USED_HIGH), 10 * MIB);
    OK(cudaMemPoolSetAttribute(p, RESERVED_HIGH, &zero));
    EQUAL(stat(p, RESERVED_HIGH), 10 * MIB);
    EQUAL(cudaMemPoolSetAttribute(p, USED_HIGH, &one), CM_CUDA_INVALID_VALUE);
    EQUAL(cudaMemPoolSetAttribute(p, RESERVED, &zero), CM_CUDA_INVALID_VALUE);
    EQUAL(cudaMemPoolGetAttribute(p, 99, &zero), CM_CUDA_INVALID_VALUE);
    EQUAL(cudaMemPoolGetAttribute((pool)&all, USED, &zero), CM_CUDA_INVALID_VALUE);
    OK(cudaFreeAsync(b, NULL));
    OK(cudaMemPoolTrimTo(p, 0));
    EQUAL(used(0), before);

    /* Memory of the one way may be freed the other way. */
    OK(cudaMalloc(&a, 2 * MIB));
    OK(cudaFreeAsync(a, NULL));
    EQUAL(used(0), before);
    OK(cudaMallocAsync(&a, 0, NULL));
    CHECK(a == NULL);
    EQUAL(cudaMallocAsync(NULL, 4, NULL), CM_CUDA_INVALID_VALUE);
    EQUAL(cudaMallocAsync(&a, 4, (stream)&all), CM_CUDA_INVALID_HANDLE);

    cm_cuda_pool_props props = {.allocType = 1, .location = {CM_CUDA_LOCATION_DEVICE, 0}};
    props.maxSize = 8 * MIB;
    OK(cudaMemPoolCreate(&other, &props));
    OK(cudaMallocFromPoolAsync(&a, 8 * MIB, other, NULL));
    EQUAL(cudaMallocFromPoolAsync(&b, 2 * MIB, other, NULL), CM_CUDA_OUT_OF_MEMORY);
    EQUAL(cudaMallocFromPoolAsync(&b, 2 * MIB, NULL, NULL), CM_CUDA_INVALID_VALUE);
    OK(cudaMemPoolDestroy(other)); /* with a block in our hands */
    EQUAL(cudaMemPoolDestroy(other), CM_CUDA_INVALID_VALUE);
    EQUAL(cudaMemPoolDestroy(p), CM_CUDA_INVALID_VALUE);
    EQUAL(used(0) - before, 8 * MIB);
    OK(cudaFreeAsync(a, NULL));
    EQUAL(used(0), before);

    cm_cuda_access access = {{CM_CUDA_LOCATION_DEVICE, 0}, CM_CUDA_ACCESS_READ_WRITE};
    OK(cudaMemPoolSetAccess(p, &access, 1));
    access.flags = CM_CUDA_ACCESS_NONE;
    EQUAL(cudaMemPoolSetAccess(p, &access, 1), CM_CUDA_INVALID_DEVICE);
    int flags = 0;
    OK(cudaMemPoolGetAccess(&flags, p, &access.location));
    EQUAL(flags, CM_CUDA_ACCESS_READ_WRITE);
    props.handleTypes = 1;
    EQUAL(cudaMemPoolCreate(&other, &props), CM_CUDA_NOT_SUPPORTED);
    EQUAL(noted(CM_SIM_NOTE_REFUSED, "CUDA IPC"), 1);
    props.handleTypes = 0;
    props.location.type = CM_CUDA_LOCATION_HOST;
    EQUAL(cudaMemPoolCreate(&other, &props), CM_CUDA_NOT_SUPPORTED);
}

/* A pool that keeps most of the device gives it back before a request fails. */
static void pool_full(void)
{
    pool p;
    void *address[64], *large;
    uint64_t all = UINT64_MAX;
    size_t free_bytes;
    OK(cudaDeviceGetDefaultMemPool(&p, 0));
    OK(cudaMemPoolSetAttribute(p, THRESHOLD, &all));
    OK(cudaMemGetInfo(&free_bytes, NULL));
    size_t each = (free_bytes / 64) & ~(2 * MIB - 1);
    for (int i = 0; i < 64; i++)
        OK(cudaMallocAsync(&address[i], each, NULL));
    for (int i = 0; i < 64; i += 2)
        OK(cudaFreeAsync(address[i], NULL));
    EQUAL(stat(p, RESERVED), 64 * each);
    OK(cudaMallocAsync(&large, 32 * each, NULL)); /* out of 32 holes: pages are mapped anew */
    EQUAL(stat(p, RESERVED), 64 * each);
    EQUAL(stat(p, USED), 64 * each);
    void *none;
    EQUAL(cudaMallocAsync(&none, 32 * each, NULL), CM_CUDA_OUT_OF_MEMORY);
    OK(cudaFreeAsync(large, NULL));
    /* Another pool's request finds the room as well. */
    pool other;
    cm_cuda_pool_props props = {.allocType = 1, .location = {CM_CUDA_LOCATION_DEVICE, 0}};
    OK(cudaMemPoolCreate(&other, &props));
    OK(cudaMallocFromPoolAsync(&large, 30 * each, other, NULL));
    OK(cudaFreeAsync(large, NULL));
    OK(cudaMemPoolDestroy(other));
    for (int i = 1; i < 64; i += 2)
        OK(cudaFreeAsync(address[i], NULL));
    OK(cudaMemPoolTrimTo(p, 0));
    EQUAL(used(0), cm_sim_config_get()->device[0].context);
}

/* Sizes in any order, freed in another: the sums stay right, whatever is joined and split. */
static void pool_sums(void)
{
    enum { BLOCKS = 64, ROUNDS = 3000 };
    pool p;
    void *address[BLOCKS] = {0};
    size_t bytes[BLOCKS] = {0}, sum = 0, high = 0;
    uint64_t threshold = 96 * MIB;
    unsigned seed = 5;
    OK(cudaDeviceGetDefaultMemPool(&p, 0));
    OK(cudaMemPoolSetAttribute(p, THRESHOLD, &threshold));
    for (int i = 0; i < ROUNDS; i++) {
        int at = (int)(rand_r(&seed) % BLOCKS);
        if (address[at]) {
            OK(cudaFreeAsync(address[at], NULL));
            sum -= bytes[at];
            address[at] = NULL;
        } else {
            bytes[at] = 1 + (size_t)rand_r(&seed) % (rand_r(&seed) % 3 ? 5000 : 6 * MIB);
            OK(cudaMallocAsync(&address[at], bytes[at], NULL));
            sum += bytes[at];
        }
        high = sum > high ? sum : high;
        EQUAL(stat(p, USED), sum);
        CHECK(stat(p, RESERVED) >= sum);
        CHECK(stat(p, RESERVED_HIGH) >= stat(p, RESERVED));
        CHECK(used(0) >= cm_sim_config_get()->device[0].context + stat(p, USED));
        if (i % 500 == 499) {
            OK(cudaStreamSynchronize(NULL));
            CHECK(stat(p, RESERVED) <= threshold || stat(p, RESERVED) - sum < 2 * MIB * BLOCKS);
        }
    }
    EQUAL(stat(p, USED_HIGH), high);
    for (int i = 0; i < BLOCKS; i++)
        if (address[i])
            OK(cudaFreeAsync(address[i], NULL));
    OK(cudaMemPoolTrimTo(p, 0));
    EQUAL(stat(p, RESERVED), 0);
    EQUAL(used(0), cm_sim_config_get()->device[0].context);
}

static void symbols(void)
{
    static char stub, other;
    static int *managed;
    void **image = __cudaRegisterFatBinary(NULL), *address = NULL, *again = NULL;
    size_t bytes = 0;
    int in = 42, out = 0;
    __cudaRegisterVar(image, &stub, &stub, "variable", 0, 400, 0, 0);
    __cudaRegisterManagedVar(image, (void **)&managed, &other, "managed", 0, 64, 0, 0);
    __cudaRegisterFatBinaryEnd(image);
    OK(cudaFree(NULL));
    size_t before = used(0);
    OK(cudaGetSymbolSize(&bytes, &stub));
    EQUAL(bytes, 400);
    OK(cudaGetSymbolAddress(&address, &stub));
    OK(cudaGetSymbolAddress(&again, &stub));
    CHECK(address && address == again);
    CHECK(used(0) > before);
    OK(cudaMemcpyToSymbol(&stub, &in, sizeof in, 396, 1));
    OK(cudaMemcpyFromSymbol(&out, &stub, sizeof out, 396, 2));
    EQUAL(out, 42);
    EQUAL(cudaMemcpyToSymbol(&stub, &in, sizeof in, 398, 1), CM_CUDA_INVALID_VALUE);
    EQUAL(cudaMemcpyToSymbol(&stub, &in, sizeof in, SIZE_MAX, 1), CM_CUDA_INVALID_VALUE);
    EQUAL(cudaMemcpyToSymbol(&stub, &in, sizeof in, 0, 2), CM_CUDA_INVALID_DIRECTION);
    EQUAL(cudaMemcpyToSymbol(&other, &in, sizeof in, 0, 1), CM_CUDA_INVALID_SYMBOL);
    EQUAL(cudaGetSymbolAddress(NULL, &stub), CM_CUDA_INVALID_VALUE);
    /* On each device its own. */
    OK(cudaSetDevice(1));
    OK(cudaGetSymbolAddress(&again, &stub));
    CHECK(again != address);
    OK(cudaSetDevice(0));
    EQUAL(__cudaInitModule(image), 0);
    CHECK(managed != NULL);
    managed[3] = 9;
    EQUAL(managed[3], 9);
    __cudaUnregisterFatBinary(image);
    EQUAL(used(0), before);
    EQUAL(cudaGetSymbolAddress(&address, &stub), CM_CUDA_INVALID_SYMBOL);
}

/* What a real device does not allow in a child of fork(), and what must not hang there. */
static void child(void)
{
    void *address, *block = allocate(64);
    stream s;
    pool p;
    OK(cudaStreamCreate(&s));
    pid_t pid = fork();
    if (!pid) {
        EQUAL(cudaMalloc(&address, 4), CM_SIM_NOT_INITIALIZED);
        EQUAL(cudaFree(block), CM_SIM_NOT_INITIALIZED);
        EQUAL(cudaMallocAsync(&address, 4, NULL), CM_SIM_NOT_INITIALIZED);
        EQUAL(cudaStreamSynchronize(s), CM_SIM_NOT_INITIALIZED);
        EQUAL(cudaLaunchKernel(KERNEL, ONE, WARP, NULL, 0, s), CM_SIM_NOT_INITIALIZED);
        EQUAL(cudaStreamCreate(&s), CM_SIM_NOT_INITIALIZED);
        OK(cudaDeviceGetDefaultMemPool(&p, 0));
        image_with_kernel(); /* a library may still be loaded */
        CHECK(cm_sim_function_name(KERNEL) != NULL);
        _exit(0);
    }
    int status = -1;
    EQUAL(waitpid(pid, &status, 0), pid);
    EQUAL(status, 0);
    OK(cudaFree(block));
    OK(cudaStreamDestroy(s));
}

static const test_case cases[] = {
    {"errors", errors}, {"devices", devices},     {"no_device", no_device}, {"memory", memory},
    {"host", host},     {"pointers", pointers},   {"copies", copies},       {"peers", peers},
    {"pools", pools},   {"pool_full", pool_full}, {"pool_sums", pool_sums}, {"symbols", symbols},
    {"child", child},
};
MAIN(cases)
