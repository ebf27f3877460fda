#include "driver_array.h"

#include <pthread.h>
#include <stdlib.h>

#include "driver.h"

/* CUDA_ARRAY_DESCRIPTOR, CUDA_ARRAY3D_DESCRIPTOR */
typedef struct shape {
    size_t width, height;
    int format;
    unsigned channels;
} shape;

typedef struct shape3d {
    size_t width, height, depth;
    int format;
    unsigned channels;
    unsigned flags;
} shape3d;

/* Kept in a list: a handle that was destroyed, or never made, is recognized and not followed. It is
 * the address of the array's memory, so that what callbacks tell can be found in the log. */
struct array {
    struct array *next;
    shape3d shape;
    size_t element, bytes;
    void *memory;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct array *arrays;

/* fork() finds the lock free. Handlers run in the reverse order of their registration: the
 * memory's, whose lock is taken below this one, came with the first array's memory. */
static void before_fork(void)
{
    pthread_mutex_lock(&lock);
}

static void after_fork(void)
{
    pthread_mutex_unlock(&lock);
}

static void watch(void)
{
    /* Refused for want of memory: then fork() is as unsafe as with any library that has locks. */
    pthread_atfork(before_fork, after_fork, after_fork);
}

static pthread_once_t watched = PTHREAD_ONCE_INIT;

/* Layers count as depth; a height or depth of 0 is one row, one plane. */
static size_t at_least_one(size_t n)
{
    return n ? n : 1;
}

static struct array **find(const cm_cu_array *array)
{
    struct array **at = &arrays;
    while (*at && (*at)->memory != (const void *)array)
        at = &(*at)->next;
    return at;
}

void *cm_cu_array_memory(cm_cu_array *array, size_t *width, size_t *height, size_t *depth)
{
    void *memory = NULL;
    pthread_mutex_lock(&lock);
    const struct array *found = *find(array);
    if (found) {
        memory = found->memory;
        *width = found->shape.width * found->element;
        *height = at_least_one(found->shape.height);
        *depth = at_least_one(found->shape.depth);
    }
    pthread_mutex_unlock(&lock);
    return memory;
}

/* Bytes of one channel; 0: block-compressed and planar formats, which are not simulated. */
static size_t channel_bytes(int format)
{
    enum {
        UNSIGNED_8 = 1,
        UNSIGNED_16 = 2,
        UNSIGNED_32 = 3,
        SIGNED_8 = 8,
        SIGNED_16 = 9,
        SIGNED_32 = 10,
        HALF = 16,
        FLOAT = 32
    };
    switch (format) {
    case UNSIGNED_8:
    case SIGNED_8:
        return 1;
    case UNSIGNED_16:
    case SIGNED_16:
    case HALF:
        return 2;
    case UNSIGNED_32:
    case SIGNED_32:
    case FLOAT:
        return 4;
    default:
        return 0;
    }
}

static void record(const cm_sim_call *call, int operation, int device, const void *memory,
                   size_t bytes)
{
    if (call->correlation)
        cm_sim_record_memory(call, &(cm_sim_told_memory){.operation = operation,
                                                         .kind = CM_CU_KIND_ARRAY,
                                                         .device = device,
                                                         .address = memory,
                                                         .bytes = bytes});
}

static int create(const cm_sim_call *call, cm_cu_array **array, const shape3d *asked)
{
    size_t bytes;
    int device = cm_cu_device();
    if (device < 0)
        return CM_SIM_INVALID_CONTEXT;
    if (!array || !asked->width ||
        (asked->channels != 1 && asked->channels != 2 && asked->channels != 4))
        return CM_SIM_INVALID_VALUE;
    size_t element = channel_bytes(asked->format) * asked->channels;
    if (!element) {
        cm_sim_note(CM_SIM_NOTE_REFUSED, "CUDA array of a compressed format", 0);
        return CM_SIM_NOT_SUPPORTED;
    }
    if (__builtin_mul_overflow(asked->width, element, &bytes) ||
        __builtin_mul_overflow(bytes, at_least_one(asked->height), &bytes) ||
        __builtin_mul_overflow(bytes, at_least_one(asked->depth), &bytes))
        return CM_SIM_INVALID_VALUE;
    int result = cm_sim_capture_permits();
    if (result)
        return result;
    struct array *made = calloc(1, sizeof *made);
    if (!made)
        return CM_SIM_OUT_OF_MEMORY;
    result = cm_sim_alloc(device, CM_SIM_ARRAY, bytes, NULL, &made->memory);
    if (result) {
        free(made);
        return result;
    }
    made->shape = *asked;
    made->element = element;
    made->bytes = bytes;
    pthread_once(&watched, watch);
    pthread_mutex_lock(&lock);
    made->next = arrays;
    arrays = made;
    pthread_mutex_unlock(&lock);
    *array = made->memory;
    record(call, CM_CU_ALLOCATED, device, made->memory, bytes);
    return CM_SIM_OK;
}

CM_SIM_EXPORT int cuArrayCreate_v2(cm_cu_array **array, const shape *asked)
{
    CM_CU_BEGIN(cuArrayCreate_v2, (void **)array, asked);
    int result = CM_SIM_INVALID_VALUE;
    if (asked)
        result = create(&cm_call, array,
                        &(shape3d){.width = asked->width,
                                   .height = asked->height,
                                   .format = asked->format,
                                   .channels = asked->channels});
    CM_CU_END(result);
}

CM_SIM_EXPORT int cuArray3DCreate_v2(cm_cu_array **array, const shape3d *asked)
{
    CM_CU_BEGIN(cuArray3DCreate_v2, (void **)array, asked);
    CM_CU_END(asked ? create(&cm_call, array, asked) : CM_SIM_INVALID_VALUE);
}

CM_SIM_EXPORT int cuArrayDestroy(cm_cu_array *array)
{
    CM_CU_BEGIN(cuArrayDestroy, array);
    pthread_mutex_lock(&lock);
    struct array **at = find(array);
    struct array *gone = *at;
    if (gone)
        *at = gone->next;
    pthread_mutex_unlock(&lock);
    if (!gone)
        CM_CU_END(CM_SIM_INVALID_HANDLE);
    cm_sim_block block;
    int result = cm_sim_free(gone->memory, &block);
    if (!result)
        record(&cm_call, CM_CU_RELEASED, block.device, gone->memory, gone->bytes);
    free(gone);
    CM_CU_END(result);
}

CM_SIM_EXPORT int cuArray3DGetDescriptor_v2(shape3d *out, cm_cu_array *array)
{
    CM_SIM_ENTRY;
    pthread_mutex_lock(&lock);
    const struct array *found = *find(array);
    if (found && out)
        *out = found->shape;
    pthread_mutex_unlock(&lock);
    return found ? CM_SIM_OK : CM_SIM_INVALID_HANDLE;
}

CM_SIM_EXPORT int cuArrayGetDescriptor_v2(shape *out, cm_cu_array *array)
{
    CM_SIM_ENTRY;
    shape3d whole;
    int result = cuArray3DGetDescriptor_v2(&whole, array);
    if (!result && out)
        *out = (shape){whole.width, whole.height, whole.format, whole.channels};
    return result;
}
