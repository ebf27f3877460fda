#include "live_tensors.h"

#include "../base/grow.h"

cm_tensor cm_live_tensor(const cm_replay *replay, const cm_block *block, const cm_label *label)
{
    const cm_origin *o = &replay->origin[block->origin];
    return (cm_tensor){block->size, label->text, o->module, o->stack, (cm_category)o->category};
}

static int by_size(const void *left, const void *right)
{
    const cm_tensor *a = left, *b = right;
    if (a->bytes != b->bytes)
        return a->bytes < b->bytes ? 1 : -1;
    if (a->category != b->category)
        return a->category > b->category ? 1 : -1;
    if (a->text != b->text)
        return a->text > b->text ? 1 : -1;
    if (a->stack != b->stack)
        return a->stack > b->stack ? 1 : -1;
    return a->module < b->module ? -1 : a->module > b->module;
}

void cm_live_tensors_sort(cm_tensor *tensors, size_t count)
{
    cm_sort(tensors, count, sizeof *tensors, by_size);
}

bool cm_live_tensors_take(const cm_replay *replay, uint16_t device, cm_tensor **out, size_t *count)
{
    size_t capacity = 0;
    const cm_block *block;
    for (size_t at = 0; (block = cm_replay_next_loose(replay, &at)) != NULL;) {
        const cm_label *label = block->device == device ? cm_replay_label(replay, block) : NULL;
        if (label == NULL)
            continue;
        if (!cm_grow((void **)out, &capacity, *count + 1, sizeof **out))
            return false;
        (*out)[(*count)++] = cm_live_tensor(replay, block, label);
    }
    cm_live_tensors_sort(*out, *count);
    return true;
}
