#include "storage.h"

enum {
    SEARCH_START = 8, /* after the vtable pointer */
    SEARCH_END = 88,  /* a StorageImpl is larger in every version */
    ENOUGH_SAMPLES = 3
};

/* Offsets inside c10::StorageImpl; data 0: not calibrated. A c10::DataPtr is the data's address,
 * then a deleter and a context, in an order that depends on the C++ library. */
static struct {
    long data, deleter, context, size;
    uint64_t allocator_deleter, slice_deleter;
} layout;

static uint64_t word(uintptr_t object, long offset)
{
    return *(const uint64_t *)(object + (uintptr_t)offset);
}

static bool all_have(const cm_storage_sample *samples, size_t count, long offset, bool address)
{
    for (size_t i = 0; i < count; i++)
        if (word(samples[i].object, offset) != (address ? samples[i].address : samples[i].size))
            return false;
    return true;
}

static bool all_differ(const cm_storage_sample *samples, size_t count)
{
    for (size_t i = 0; i < count; i++)
        for (size_t k = 0; k < i; k++)
            if (samples[i].size == samples[k].size || samples[i].address == samples[k].address)
                return false;
    return count >= ENOUGH_SAMPLES;
}

const char *cm_storage_calibrate(const cm_storage_sample *samples, size_t count, uintptr_t slice,
                                 uintptr_t parent)
{
    long data = 0, size = 0;

    layout.data = 0;
    if (!all_differ(samples, count))
        return "too few storages of different sizes to find their layout";
    for (long offset = SEARCH_START; offset + 16 <= SEARCH_END && data == 0; offset += 8)
        if (all_have(samples, count, offset, true))
            data = offset;
    for (long offset = SEARCH_START; offset <= SEARCH_END && size == 0; offset += 8)
        if (all_have(samples, count, offset, false))
            size = offset;
    if (data == 0 || size == 0)
        return "a storage holds neither its address nor its size where they can be found";

    /* The CPU allocator frees by the address alone: its context is the block itself. */
    bool last = all_have(samples, count, data + 16, true);
    if (last == all_have(samples, count, data + 8, true))
        return "a storage's deleter cannot be told from its context";
    long deleter = last ? data + 8 : data + 16;
    long context = last ? data + 16 : data + 8;
    uint64_t allocator_deleter = word(samples[0].object, deleter);
    for (size_t i = 1; i < count; i++)
        if (word(samples[i].object, deleter) != allocator_deleter)
            return "storages of one allocator have different deleters";
    if (allocator_deleter == 0)
        return "storages have no deleter";

    layout.deleter = deleter;
    layout.context = context;
    layout.size = size;
    layout.allocator_deleter = allocator_deleter;
    layout.slice_deleter = 0;
    if (slice != 0 && word(slice, context) == parent)
        layout.slice_deleter = word(slice, deleter);
    layout.data = data;
    return NULL;
}

cm_storage_offsets cm_storage_get_offsets(void)
{
    if (layout.data == 0)
        return (cm_storage_offsets){0};
    return (cm_storage_offsets){layout.data, layout.deleter, layout.context, layout.size};
}

cm_storage_origin cm_storage_origin_of(uintptr_t object, uint64_t *address, uint64_t *size)
{
    if (layout.data == 0)
        return CM_STORAGE_UNKNOWN;
    uint64_t deleter = word(object, layout.deleter);
    if (deleter == layout.allocator_deleter) {
        *address = word(object, layout.context);
        *size = word(object, layout.size);
        return CM_STORAGE_ALLOCATOR;
    }
    *address = word(object, layout.data);
    *size = word(object, layout.size);
    if (layout.slice_deleter != 0 && deleter == layout.slice_deleter) {
        *address = word(object, layout.context);
        return CM_STORAGE_SLICE;
    }
    return CM_STORAGE_UNKNOWN;
}
