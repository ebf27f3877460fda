#include "objects_array.h"

#include <pthread.h>
#include <stdlib.h>

#include "../core/sim.h"
#include "objects.h"

enum { LAYERED = 1, SPARSE = 0x40, DEFERRED = 0x80 };
enum { BLOCK = 4 }; /* a compressed block's width and height */
enum { TOLD_NEW = 1, TOLD_GONE = 2, TOLD_ARRAY = 4 };

/* Kept in a list: a handle that was destroyed, or never made, is recognized and not followed. It is
 * the address of the array's memory, so that a callback's handle can be found in the log; a level's
 * is where the level lies, which for the first is its mipmapped array's own. */
typedef struct made {
    struct made *next;
    cm_sim_shape shape;
    unsigned levels; /* 0: an array */
    size_t bytes;
    char *memory;
    int device;
    unsigned context;
} made;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static made *arrays;

/* fork() finds the lock free. Handlers run in the reverse order of their registration: the memory's
 * lock is taken below this one, and its handler was registered with the first array's memory. */
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

/* --- sizes ------------------------------------------------------------------------------------ */

/* Bytes of an element, or of a compressed block; 0: planar formats of video, which are not
 * simulated, and numbers that are none. */
static unsigned element_bytes(const cm_sim_shape *shape, bool *block)
{
    static const struct {
        unsigned char number, bytes;
        bool channel, block; /* bytes of each channel, of a block of 4 x 4 */
    } formats[] = {
        {0x01, 1, true, false},  {0x02, 2, true, false},  {0x03, 4, true, false},
        {0x08, 1, true, false},  {0x09, 2, true, false},  {0x0a, 4, true, false},
        {0x10, 2, true, false},  {0x20, 4, true, false},  {0x50, 4, false, false},
        {0x91, 8, false, true},  {0x92, 8, false, true},  {0x93, 16, false, true},
        {0x94, 16, false, true}, {0x95, 16, false, true}, {0x96, 16, false, true},
        {0x97, 8, false, true},  {0x98, 8, false, true},  {0x99, 16, false, true},
        {0x9a, 16, false, true}, {0x9b, 16, false, true}, {0x9c, 16, false, true},
        {0x9d, 16, false, true}, {0x9e, 16, false, true}, {0xc0, 1, false, false},
        {0xc1, 2, false, false}, {0xc2, 4, false, false}, {0xc3, 2, false, false},
        {0xc4, 4, false, false}, {0xc5, 8, false, false}, {0xc6, 1, false, false},
        {0xc7, 2, false, false}, {0xc8, 4, false, false}, {0xc9, 2, false, false},
        {0xca, 4, false, false}, {0xcb, 8, false, false},
    };
    for (size_t i = 0; i < sizeof formats / sizeof *formats; i++) {
        if (formats[i].number != shape->format)
            continue;
        *block = formats[i].block;
        return formats[i].bytes * (formats[i].channel ? shape->channels : 1);
    }
    return 0;
}

/* A height or depth of 0 is one row, one plane. */
static size_t at_least_one(size_t n)
{
    return n ? n : 1;
}

/* Each level is half of the one before, but has as many layers. What is 0 stays so. */
static cm_sim_shape shape_of(const cm_sim_shape *whole, unsigned level)
{
    cm_sim_shape shape = *whole;
    shape.width = at_least_one(whole->width >> level);
    if (whole->height)
        shape.height = at_least_one(whole->height >> level);
    if (whole->depth && !(whole->flags & LAYERED))
        shape.depth = at_least_one(whole->depth >> level);
    return shape;
}

typedef struct extents {
    size_t row, rows, planes, bytes;
} extents;

/* false: the product has no number. */
static bool measure(const cm_sim_shape *shape, extents *out)
{
    bool block = false;
    size_t width = shape->width, element = element_bytes(shape, &block);
    out->rows = at_least_one(shape->height);
    out->planes = at_least_one(shape->depth);
    if (block) {
        width = width / BLOCK + (width % BLOCK != 0);
        out->rows = out->rows / BLOCK + (out->rows % BLOCK != 0);
    }
    return !__builtin_mul_overflow(width, element, &out->row) &&
           !__builtin_mul_overflow(out->row, out->rows, &out->bytes) &&
           !__builtin_mul_overflow(out->bytes, out->planes, &out->bytes);
}

static bool measure_all(const made *array, size_t *bytes)
{
    *bytes = 0;
    for (unsigned level = 0; level < at_least_one(array->levels); level++) {
        cm_sim_shape shape = shape_of(&array->shape, level);
        extents one;
        if (!measure(&shape, &one) || __builtin_add_overflow(*bytes, one.bytes, bytes))
            return false;
    }
    return true;
}

/* Down to a single element. */
static unsigned most_levels(const cm_sim_shape *shape)
{
    size_t largest = shape->width > shape->height ? shape->width : shape->height;
    unsigned levels = 1;
    if (!(shape->flags & LAYERED) && shape->depth > largest)
        largest = shape->depth;
    while (largest >>= 1)
        levels++;
    return levels;
}

/* --- which there are, under the lock ---------------------------------------------------------- */

static made **find(const cm_sim_array *handle, bool mipmapped)
{
    made **at = &arrays;
    while (*at && ((*at)->memory != (const char *)handle || ((*at)->levels != 0) != mipmapped))
        at = &(*at)->next;
    return at;
}

/* An array, or a level of a mipmapped one. */
static bool find_shape(const cm_sim_array *handle, cm_sim_shape *shape, extents *size)
{
    for (const made *array = arrays; array; array = array->next) {
        const char *level_at = array->memory;
        for (unsigned level = 0; level < at_least_one(array->levels); level++) {
            *shape = shape_of(&array->shape, level);
            if (!measure(shape, size))
                break;
            if (level_at == (const char *)handle)
                return true;
            level_at += size->bytes;
        }
    }
    return false;
}

void *cm_sim_array_memory(cm_sim_array *array, size_t *width, size_t *height, size_t *depth)
{
    cm_sim_shape shape;
    extents size;
    pthread_mutex_lock(&lock);
    bool found = find_shape(array, &shape, &size);
    pthread_mutex_unlock(&lock);
    if (!found)
        return NULL;
    *width = size.row;
    *height = size.rows;
    *depth = size.planes;
    return array;
}

int cm_sim_array_level(cm_sim_array *mipmapped, unsigned level, cm_sim_array **array)
{
    int result = CM_SIM_OK;
    if (!array)
        return CM_SIM_INVALID_VALUE;
    pthread_mutex_lock(&lock);
    const made *whole = *find(mipmapped, true);
    if (!whole) {
        result = CM_SIM_INVALID_HANDLE;
    } else if (level >= whole->levels) {
        result = CM_SIM_INVALID_VALUE;
    } else {
        char *at = whole->memory;
        for (unsigned before = 0; before < level; before++) {
            cm_sim_shape shape = shape_of(&whole->shape, before);
            extents size;
            measure(&shape, &size); /* it was measured when it was made */
            at += size.bytes;
        }
        *array = (cm_sim_array *)at;
    }
    pthread_mutex_unlock(&lock);
    return result;
}

/* --- come and go ------------------------------------------------------------------------------ */

static void record(const cm_sim_call *call, int operation, int device, const made *array)
{
    if (call->correlation)
        cm_sim_record_memory(call, &(cm_sim_memory_event){.operation = operation,
                                                          .kind = TOLD_ARRAY,
                                                          .device = device,
                                                          .address = array->memory,
                                                          .bytes = array->bytes});
}

static int check(const cm_sim_shape *shape)
{
    bool block;
    if (!shape->width || (shape->channels != 1 && shape->channels != 2 && shape->channels != 4 &&
                          shape->channels != 3))
        return CM_SIM_INVALID_VALUE;
    if (shape->flags & (SPARSE | DEFERRED)) {
        cm_sim_note(CM_SIM_NOTE_REFUSED, "CUDA arrays without memory of their own", 0);
        return CM_SIM_NOT_SUPPORTED;
    }
    if (!element_bytes(shape, &block)) {
        cm_sim_note(CM_SIM_NOTE_REFUSED, "CUDA arrays of video formats", 0);
        return CM_SIM_NOT_SUPPORTED;
    }
    /* Three channels there are in one compressed format only. */
    return shape->channels == 3 && !block ? CM_SIM_INVALID_VALUE : CM_SIM_OK;
}

int cm_sim_array_new(const cm_sim_call *call, const cm_sim_shape *shape, unsigned levels,
                     cm_sim_array **array)
{
    int device = cm_sim_current_device();
    int result = array ? check(shape) : CM_SIM_INVALID_VALUE;
    if (!result)
        result = cm_sim_capture_permits();
    if (result)
        return result;
    made *fresh = calloc(1, sizeof *fresh);
    if (!fresh)
        return CM_SIM_OUT_OF_MEMORY;
    fresh->shape = *shape;
    fresh->levels = levels < most_levels(shape) ? levels : most_levels(shape);
    void *memory = NULL;
    result = measure_all(fresh, &fresh->bytes)
                 ? cm_sim_alloc(device, CM_SIM_ARRAY, fresh->bytes, NULL, &memory)
                 : CM_SIM_INVALID_VALUE;
    if (result) {
        free(fresh);
        return result;
    }
    fresh->memory = memory;
    fresh->device = device;
    fresh->context = cm_sim_current_context();
    pthread_once(&watched, watch);
    pthread_mutex_lock(&lock);
    fresh->next = arrays;
    arrays = fresh;
    pthread_mutex_unlock(&lock);
    *array = memory;
    record(call, TOLD_NEW, device, fresh);
    return CM_SIM_OK;
}

int cm_sim_array_delete(const cm_sim_call *call, cm_sim_array *array, bool mipmapped)
{
    pthread_mutex_lock(&lock);
    made **at = find(array, mipmapped);
    made *gone = *at;
    if (gone)
        *at = gone->next;
    pthread_mutex_unlock(&lock);
    if (!gone)
        return CM_SIM_INVALID_HANDLE;
    cm_sim_block block;
    int result = cm_sim_free(gone->memory, &block);
    if (!result)
        record(call, TOLD_GONE, block.device, gone);
    free(gone);
    return result;
}

void cm_sim_arrays_end(int device, unsigned context)
{
    pthread_mutex_lock(&lock);
    for (made **at = &arrays; *at;) {
        made *one = *at;
        if (one->device != device || one->context != context) {
            at = &one->next;
            continue;
        }
        *at = one->next;
        free(one);
    }
    pthread_mutex_unlock(&lock);
}
