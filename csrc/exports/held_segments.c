#include "held_segments.h"

#include "../base/grow.h"

/* How many lie below the address. */
static size_t below(const cm_held *held, uint64_t address)
{
    size_t low = 0, high = held->count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (held->segment[middle].address < address)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

cm_held_segment *cm_held_at(const cm_held *held, uint64_t address)
{
    size_t at = below(held, address);
    bool found = at < held->count && held->segment[at].address == address;
    return found ? &held->segment[at] : NULL;
}

cm_held_segment *cm_held_around(const cm_held *held, uint64_t address, int64_t bytes)
{
    cm_held_segment *s = cm_held_at(held, address);
    if (s == NULL) {
        size_t at = below(held, address);
        if (at == 0)
            return NULL;
        s = &held->segment[at - 1];
    }
    uint64_t size = (uint64_t)s->size, from = address - s->address;
    bool inside = from <= size && (uint64_t)bytes <= size - from;
    return inside && !s->gone ? s : NULL;
}

int cm_held_add(cm_held *held, uint64_t address, int64_t size, uint32_t stack)
{
    size_t at = below(held, address);
    const cm_held_segment *before = at > 0 ? &held->segment[at - 1] : NULL;
    if (before != NULL && address - before->address < (uint64_t)before->size)
        return 0;
    if (at < held->count && held->segment[at].address - address < (uint64_t)size)
        return 0;
    if (!cm_grow((void **)&held->segment, &held->capacity, held->count + 1, sizeof *held->segment))
        return -1;
    memmove(&held->segment[at + 1], &held->segment[at], (held->count - at) * sizeof *held->segment);
    held->segment[at] =
        (cm_held_segment){.address = address, .size = size, .stack = stack, .order = held->added++};
    held->count++;
    return 1;
}

void cm_held_remove(cm_held *held, cm_held_segment *segment)
{
    size_t at = (size_t)(segment - held->segment);
    memmove(segment, segment + 1, (held->count - at - 1) * sizeof *segment);
    held->count--;
}
