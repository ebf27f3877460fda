/* Elements of tensors in device memory, read and written with what is known of each. */
#include "known.h"
#include "memory.h"

/* The innermost dimensions that lie side by side are one block: the rest is walked. */
typedef struct layout {
    int64_t outer;    /* dimensions that are walked */
    int64_t elements; /* of a block */
    int64_t blocks;
} layout;

enum {
    DIMENSIONS = 64,        /* PyTorch's own limit */
    FORGOTTEN_MAX = 1 << 16 /* blocks: of more than these what lies between is forgotten, too */
};

static layout layout_of(const cm_sim_tensor *tensor)
{
    layout found = {.outer = tensor->dimensions, .elements = 1, .blocks = 1};

    while (found.outer > 0 && (tensor->strides[found.outer - 1] == found.elements ||
                               tensor->sizes[found.outer - 1] == 1))
        found.elements *= tensor->sizes[--found.outer];
    for (int64_t i = 0; i < found.outer; i++)
        found.blocks *= tensor->sizes[i];
    return found;
}

/* Bytes from its first element to its last. */
static size_t span_of(const cm_sim_tensor *tensor)
{
    int64_t last = 0;

    for (int64_t i = 0; i < tensor->dimensions; i++)
        last += (tensor->sizes[i] - 1) * tensor->strides[i];
    return (size_t)((last + 1) * tensor->item);
}

/* All of it is accessible memory of one device. */
static bool reachable(const cm_sim_tensor *tensor, bool write)
{
    int device;

    return tensor->dimensions <= DIMENSIONS && cm_sim_is_device(tensor->address) &&
           cm_sim_reach(tensor->address, span_of(tensor), write, &device);
}

static bool is_empty(const cm_sim_tensor *tensor)
{
    for (int64_t i = 0; i < tensor->dimensions; i++)
        if (tensor->sizes[i] == 0)
            return true;
    return false;
}

/* To the next block: indices count like the digits of a number. */
static void advance(const cm_sim_tensor *tensor, int64_t outer, int64_t *index, int64_t *offset)
{
    for (int64_t i = outer - 1; i >= 0; i--) {
        *offset += tensor->strides[i];
        if (++index[i] < tensor->sizes[i])
            return;
        *offset -= index[i] * tensor->strides[i];
        index[i] = 0;
    }
}

int64_t cm_sim_values_read(const cm_sim_tensor *tensor, void *to, uint8_t *known)
{
    int64_t index[DIMENSIONS] = {0}, offset = 0, sum = 0;

    if (is_empty(tensor))
        return 0;
    if (!reachable(tensor, false))
        return -1;
    layout shape = layout_of(tensor);
    size_t item = (size_t)tensor->item, count = (size_t)shape.elements;
    for (int64_t block = 0; block < shape.blocks; block++) {
        uintptr_t at = (uintptr_t)tensor->address + (size_t)offset * item;
        sum += (int64_t)cm_sim_known_elements((char *)to + (size_t)block * count * item, at, item,
                                              count, known + (size_t)block * count);
        advance(tensor, shape.outer, index, &offset);
    }
    return sum;
}

/* known NULL: all of the block is. */
static void write_block(uintptr_t at, size_t item, size_t count, const char *from,
                        const uint8_t *known)
{
    for (size_t first = 0, end; first < count; first = end) {
        bool value = known == NULL || known[first];
        for (end = first + 1; end < count && (known == NULL || known[end] == value); end++)
            ;
        if (value)
            cm_sim_known_write(at + first * item, from + first * item, (end - first) * item);
        else
            cm_sim_known_forget(at + first * item, (end - first) * item);
    }
}

int cm_sim_values_write(const cm_sim_tensor *tensor, const void *from, const uint8_t *known)
{
    int64_t index[DIMENSIONS] = {0}, offset = 0;

    if (is_empty(tensor))
        return 0;
    if (!reachable(tensor, true))
        return -1;
    layout shape = layout_of(tensor);
    if (from == NULL && shape.blocks > FORGOTTEN_MAX) {
        cm_sim_known_forget((uintptr_t)tensor->address, span_of(tensor));
        return 0;
    }
    size_t item = (size_t)tensor->item, count = (size_t)shape.elements;
    for (int64_t block = 0; block < shape.blocks; block++) {
        uintptr_t at = (uintptr_t)tensor->address + (size_t)offset * item;
        size_t before = (size_t)block * count;
        if (from == NULL)
            cm_sim_known_forget(at, count * item);
        else
            write_block(at, item, count, (const char *)from + before * item,
                        known == NULL ? NULL : known + before);
        advance(tensor, shape.outer, index, &offset);
    }
    return 0;
}
