/* A library that takes memory of CUDA for itself, as NCCL, TensorRT or somebody's extension does.
 *
 * The runtime is called as a linked library calls it; the driver through pointers that were looked
 * up, as most do. Functions return CUDA's error, or what they got. Declarations are our own: no
 * CUDA header. */
#include <dlfcn.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <time.h>

typedef int error;
typedef uint64_t device_pointer;

error cudaMalloc(void **address, size_t bytes);
error cudaFree(void *address);
error cudaMallocManaged(void **address, size_t bytes, unsigned flags);
error cudaHostAlloc(void **address, size_t bytes, unsigned flags);
error cudaMallocHost(void **address, size_t bytes);
error cudaFreeHost(void *address);
error cudaHostRegister(void *address, size_t bytes, unsigned flags);
error cudaHostUnregister(void *address);
error cudaMallocPitch(void **address, size_t *pitch, size_t width, size_t height);
error cudaMallocAsync(void **address, size_t bytes, void *stream);
error cudaFreeAsync(void *address, void *stream);
error cudaSetDevice(int device);
error cudaGetLastError(void);

enum { GLOBAL = 1, LOOKED_UP_NOWHERE = 500 };

/* Each returns where the memory is, or NULL. */
void *foreign_malloc(size_t bytes)
{
    void *address;
    return cudaMalloc(&address, bytes) ? NULL : address;
}

error foreign_free(void *address)
{
    return cudaFree(address);
}

/* Of what nobody was given: refused, and nobody else hears of it. */
error foreign_free_nothing(void)
{
    error refused = cudaFree((void *)4096);
    cudaGetLastError();
    return refused;
}

void *foreign_managed(size_t bytes)
{
    void *address;
    return cudaMallocManaged(&address, bytes, GLOBAL) ? NULL : address;
}

void *foreign_host(size_t bytes)
{
    void *address;
    return cudaHostAlloc(&address, bytes, 0) ? NULL : address;
}

void *foreign_old_host(size_t bytes)
{
    void *address;
    return cudaMallocHost(&address, bytes) ? NULL : address;
}

error foreign_host_free(void *address)
{
    return cudaFreeHost(address);
}

error foreign_register(void *address, size_t bytes)
{
    return cudaHostRegister(address, bytes, 0);
}

error foreign_unregister(void *address)
{
    return cudaHostUnregister(address);
}

void *foreign_async(size_t bytes)
{
    void *address;
    return cudaMallocAsync(&address, bytes, NULL) ? NULL : address;
}

error foreign_async_free(void *address)
{
    return cudaFreeAsync(address, NULL);
}

/* Of rows of 1000 bytes, which the device makes longer. */
void *foreign_pitch(size_t rows)
{
    void *address;
    size_t pitch;
    return cudaMallocPitch(&address, &pitch, 1000, rows) ? NULL : address;
}

/* --- virtual memory, by the driver ------------------------------------------------------------ */

typedef struct properties {
    int type, handles;
    struct {
        int type, id;
    } location;
    void *security;
    unsigned char flags[8];
} properties;

typedef struct access {
    struct {
        int type, id;
    } location;
    int flags;
} access_description;

static void *driver(const char *name)
{
    static void *library;
    if (!library)
        library = dlopen("libcuda.so.1", RTLD_LAZY);
    return library ? dlsym(library, name) : NULL;
}

#define DRIVER(name, otherwise, ...)                                                               \
    error (*name)(__VA_ARGS__) = (error(*)(__VA_ARGS__))driver(#name);                             \
    if (!name)                                                                                     \
    return otherwise

/* Reserves, creates, maps and opens whole units of 2 MiB. */
device_pointer foreign_map(size_t bytes, int device, uint64_t *handle)
{
    DRIVER(cuMemAddressReserve, 0, device_pointer *, size_t, size_t, device_pointer, uint64_t);
    DRIVER(cuMemCreate, 0, uint64_t *, size_t, const properties *, uint64_t);
    DRIVER(cuMemMap, 0, device_pointer, size_t, size_t, uint64_t, uint64_t);
    DRIVER(cuMemSetAccess, 0, device_pointer, size_t, const access_description *, size_t);
    const properties which = {1, 0, {1, device}, NULL, {0}};
    const access_description open = {{1, device}, 3};
    device_pointer address;
    bool made =
        !cuMemAddressReserve(&address, bytes, 0, 0, 0) && !cuMemCreate(handle, bytes, &which, 0) &&
        !cuMemMap(address, bytes, 0, *handle, 0) && !cuMemSetAccess(address, bytes, &open, 1);
    return made ? address : 0;
}

/* The other way round: the memory lives on until it is unmapped. */
error foreign_unmap(device_pointer address, size_t bytes, uint64_t handle)
{
    DRIVER(cuMemRelease, LOOKED_UP_NOWHERE, uint64_t);
    DRIVER(cuMemUnmap, LOOKED_UP_NOWHERE, device_pointer, size_t);
    DRIVER(cuMemAddressFree, LOOKED_UP_NOWHERE, device_pointer, size_t);
    error failed = cuMemRelease(handle);
    if (!failed)
        failed = cuMemUnmap(address, bytes);
    return failed ? failed : cuMemAddressFree(address, bytes);
}

/* Takes one more reference to what is mapped there. 0: refused. */
uint64_t foreign_retain(device_pointer address)
{
    DRIVER(cuMemRetainAllocationHandle, 0, uint64_t *, void *);
    uint64_t handle;
    return cuMemRetainAllocationHandle(&handle, (void *)address) ? 0 : handle;
}

error foreign_release(uint64_t handle)
{
    DRIVER(cuMemRelease, LOOKED_UP_NOWHERE, uint64_t);
    return cuMemRelease(handle);
}

device_pointer foreign_driver_malloc(size_t bytes)
{
    DRIVER(cuMemAlloc_v2, 0, device_pointer *, size_t);
    device_pointer address;
    return cuMemAlloc_v2(&address, bytes) ? 0 : address;
}

error foreign_driver_free(device_pointer address)
{
    DRIVER(cuMemFree_v2, LOOKED_UP_NOWHERE, device_pointer);
    return cuMemFree_v2(address);
}

typedef struct description {
    size_t width, height;
    int format;
    unsigned channels;
} description;

/* Of 4-byte floats: its handle. */
uint64_t foreign_array(size_t width, size_t height)
{
    DRIVER(cuArrayCreate_v2, 0, uint64_t *, const description *);
    const description what = {width, height, 32, 1};
    uint64_t array;
    return cuArrayCreate_v2(&array, &what) ? 0 : array;
}

error foreign_array_free(uint64_t array)
{
    DRIVER(cuArrayDestroy, LOOKED_UP_NOWHERE, uint64_t);
    return cuArrayDestroy(array);
}

/* --- threads that Python does not know -------------------------------------------------------- */

typedef struct job {
    size_t bytes;
    int times;
    void *address;
    error failed;
} job;

/* Allocates and frees, and keeps the last one. */
static void *work(void *argument)
{
    job *mine = argument;
    mine->failed = cudaSetDevice(0);
    for (int i = 0; !mine->failed && i < mine->times; i++) {
        if (i > 0)
            mine->failed = cudaFree(mine->address);
        if (!mine->failed)
            mine->failed = cudaMalloc(&mine->address, mine->bytes);
    }
    return NULL;
}

void *foreign_thread(size_t bytes, int times)
{
    job its = {bytes, times, NULL, 0};
    pthread_t thread;
    if (pthread_create(&thread, NULL, work, &its) != 0)
        return NULL;
    pthread_join(thread, NULL);
    return its.failed ? NULL : its.address;
}

/* Begins it and returns; foreign_join waits. One at a time. */
static job background;
static pthread_t running;
static atomic_bool ended;

static void *work_and_say(void *argument)
{
    work(argument);
    atomic_store(&ended, true);
    return NULL;
}

error foreign_begin(size_t bytes, int times)
{
    background = (job){bytes, times, NULL, 0};
    atomic_store(&ended, false);
    return pthread_create(&running, NULL, work_and_say, &background) != 0;
}

void *foreign_join(void)
{
    pthread_join(running, NULL);
    return background.failed ? NULL : background.address;
}

/* --- in PyTorch's place: torch.cuda.memory.CUDAPluggableAllocator ----------------------------- */

void *foreign_give(ptrdiff_t bytes, int device, void *stream)
{
    void *address = NULL;
    (void)stream;
    if (cudaSetDevice(device) || cudaMalloc(&address, (size_t)bytes))
        return NULL;
    return address;
}

void foreign_take(void *address, ptrdiff_t bytes, int device, void *stream)
{
    (void)bytes;
    (void)device;
    (void)stream;
    cudaFree(address);
}

/* --- waiting ---------------------------------------------------------------------------------- */

/* Whether the one that was begun has ended within so many milliseconds. Called by Python without
 * giving the GIL back, it shows what went on meanwhile. */
int foreign_ended(int milliseconds)
{
    for (int i = 0; i < milliseconds && !atomic_load(&ended); i++)
        nanosleep(&(struct timespec){0, 1000000}, NULL);
    return atomic_load(&ended);
}
