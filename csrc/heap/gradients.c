#include "gradients.h"

#include "../base/grow.h"

enum { NAMES_MAX = 1 << 22 };

typedef struct cm_gradient_sequence sequence;

void cm_gradients_clear(cm_gradients *g)
{
    free(g->made);
    for (size_t d = 0; d < CM_GRADIENT_DEVICES; d++)
        free(g->last[d].birth);
    cm_idmap_clear(&g->learnt);
    free(g->name);
    *g = (cm_gradients){0};
}

bool cm_gradients_add(cm_gradients *g, const cm_gradient *made)
{
    if (!cm_grow((void **)&g->made, &g->capacity, g->count + 1, sizeof *g->made))
        return false;
    g->made[g->count++] = *made;
    return true;
}

static bool append(sequence *s, const cm_gradient *made)
{
    s->signature = cm_mix(s->signature ^ (uint64_t)made->size) | 1;
    if (!cm_grow((void **)&s->birth, &s->capacity, s->count + 1, sizeof *s->birth))
        return false;
    s->birth[s->count++] = made->birth;
    return true;
}

bool cm_gradients_end_pass(cm_gradients *g, bool (*is_alive)(void *context, uint32_t birth),
                           bool (*name)(void *context, uint32_t birth, uint32_t label),
                           void *context)
{
    uint64_t device[CM_GRADIENT_DEVICES];
    size_t devices = 0;
    for (size_t i = 0; i < g->count; i++) {
        const cm_gradient *made = &g->made[i];
        size_t d = 0;
        if (!is_alive(context, made->birth))
            continue;
        while (d < devices && device[d] != made->device)
            d++;
        if (d == CM_GRADIENT_DEVICES)
            continue;
        if (d == devices) {
            device[devices++] = made->device;
            g->last[d].count = 0;
            g->last[d].signature = cm_mix(made->device);
        }
        if (!append(&g->last[d], made))
            return false;
    }
    g->count = 0;
    for (size_t d = 0; d < devices; d++) {
        const sequence *s = &g->last[d];
        uint32_t first;
        if (!cm_idmap_get(&g->learnt, s->signature >> 1, &first))
            continue;
        for (size_t i = 0; i < s->count && first + i < g->names; i++)
            if (g->name[first + i] != 0 && !name(context, s->birth[i], g->name[first + i] - 1))
                return false;
    }
    return true;
}

/* Births rise within a sequence. */
static bool find_place(const sequence *s, uint32_t birth, size_t *place)
{
    size_t low = 0, high = s->count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (s->birth[middle] < birth)
            low = middle + 1;
        else
            high = middle;
    }
    *place = low;
    return low < s->count && s->birth[low] == birth;
}

bool cm_gradients_learn(cm_gradients *g, uint32_t birth, uint32_t label)
{
    uint32_t first;
    size_t place = 0, d = 0;
    while (d < CM_GRADIENT_DEVICES && !find_place(&g->last[d], birth, &place))
        d++;
    if (d == CM_GRADIENT_DEVICES)
        return true;
    const sequence *s = &g->last[d];
    if (!cm_idmap_get(&g->learnt, s->signature >> 1, &first)) {
        first = (uint32_t)g->names;
        if (g->names + s->count > NAMES_MAX)
            return true;
        if (!cm_grow((void **)&g->name, &g->name_capacity, g->names + s->count, sizeof *g->name) ||
            !cm_idmap_put(&g->learnt, s->signature >> 1, first))
            return false;
        memset(g->name + g->names, 0, s->count * sizeof *g->name);
        g->names += s->count;
    }
    if (first + place < g->names) /* signatures may collide */
        g->name[first + place] = label + 1;
    return true;
}
