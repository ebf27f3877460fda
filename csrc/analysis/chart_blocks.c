#include "chart_blocks.h"

#include "../base/grow.h"

/* The n-th multiple of the golden ratio, of which the lowest k lie evenly among any n births. */
static const uint64_t SPREAD = 0x9e3779b97f4a7c15;

/* Whether a is dropped before b. */
static bool goes_first(const struct cm_chart_ranked *a, const struct cm_chart_ranked *b)
{
    return a->block.bytes != b->block.bytes ? a->block.bytes < b->block.bytes : a->order > b->order;
}

static void swap(cm_chart_heap *heap, size_t i, size_t j)
{
    struct cm_chart_ranked kept = heap->item[i];
    heap->item[i] = heap->item[j];
    heap->item[j] = kept;
}

static void rise(cm_chart_heap *heap, size_t i)
{
    for (; i > 0 && goes_first(&heap->item[i], &heap->item[(i - 1) / 2]); i = (i - 1) / 2)
        swap(heap, i, (i - 1) / 2);
}

static void sink(cm_chart_heap *heap, size_t i)
{
    for (;;) {
        size_t first = i, below = 2 * i + 1;
        for (size_t c = below; c < below + 2 && c < heap->count; c++)
            if (goes_first(&heap->item[c], &heap->item[first]))
                first = c;
        if (first == i)
            return;
        swap(heap, i, first);
        i = first;
    }
}

bool cm_chart_heap_offer(cm_chart_heap *heap, const cm_chart_block *block)
{
    struct cm_chart_ranked item = {*block, heap->offered++ * SPREAD};
    if (heap->count < heap->limit) {
        if (!cm_grow((void **)&heap->item, &heap->capacity, heap->count + 1, sizeof *heap->item))
            return false;
        heap->item[heap->count++] = item;
        rise(heap, heap->count - 1);
        return true;
    }
    int64_t dropped = block->bytes;
    if (heap->count > 0 && goes_first(&heap->item[0], &item)) {
        dropped = heap->item[0].block.bytes;
        heap->item[0] = item;
        sink(heap, 0);
    }
    if (dropped >= heap->least)
        heap->least = dropped + 1;
    return true;
}

void cm_chart_heap_clear(cm_chart_heap *heap)
{
    free(heap->item);
    *heap = (cm_chart_heap){0};
}

static int by_birth(const void *left, const void *right)
{
    const cm_chart_block *a = left, *b = right;
    if (a->begin_ns != b->begin_ns)
        return a->begin_ns < b->begin_ns ? -1 : 1;
    if (a->address != b->address)
        return a->address < b->address ? -1 : 1;
    /* Blocks of one address and birth differ in their end: -1 is the latest. */
    uint64_t a_end = (uint64_t)a->end_ns, b_end = (uint64_t)b->end_ns;
    return a_end < b_end ? -1 : a_end > b_end;
}

bool cm_chart_heap_merge(const cm_chart_heap *a, const cm_chart_heap *b, cm_chart_block **out,
                         size_t *count)
{
    *count = 0;
    *out = malloc((a->count + b->count + 1) * sizeof **out);
    if (*out == NULL)
        return false;
    for (size_t i = 0; i < a->count; i++)
        (*out)[(*count)++] = a->item[i].block;
    for (size_t i = 0; i < b->count; i++)
        (*out)[(*count)++] = b->item[i].block;
    cm_sort(*out, *count, sizeof **out, by_birth);
    size_t kept = 0;
    for (size_t i = 0; i < *count; i++)
        if (kept == 0 || by_birth(&(*out)[kept - 1], &(*out)[i]) != 0)
            (*out)[kept++] = (*out)[i];
    *count = kept;
    return true;
}
