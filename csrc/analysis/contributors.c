#include "contributors.h"

#include <stdlib.h>

#include "../base/grow.h"

cm_contributor cm_contributor_of(const cm_replay *replay, uint32_t origin, cm_amount amount)
{
    const cm_origin *o = &replay->origin[origin];
    return (cm_contributor){amount.bytes,
                            amount.count,
                            o->stack,
                            o->own,
                            o->name,
                            (cm_phase)o->phase,
                            (cm_category)o->category,
                            o->module,
                            o->saved_by};
}

bool cm_contributors_add(cm_contributors *list, const cm_replay *replay, uint32_t origin,
                         cm_amount amount)
{
    if (!cm_grow((void **)&list->contributor, &list->capacity, list->count + 1,
                 sizeof *list->contributor))
        return false;
    list->contributor[list->count++] = cm_contributor_of(replay, origin, amount);
    return true;
}

int cm_contributors_compare(const cm_contributor *a, const cm_contributor *b)
{
    if (a->bytes != b->bytes)
        return a->bytes < b->bytes ? 1 : -1;
    if (a->count != b->count)
        return a->count < b->count ? 1 : -1;
    if (a->stack != b->stack)
        return a->stack > b->stack ? 1 : -1;
    if (a->origin_stack != b->origin_stack)
        return a->origin_stack > b->origin_stack ? 1 : -1;
    if (a->name != b->name)
        return a->name > b->name ? 1 : -1;
    if (a->phase != b->phase)
        return a->phase > b->phase ? 1 : -1;
    if (a->category != b->category)
        return a->category > b->category ? 1 : -1;
    if (a->module != b->module)
        return a->module > b->module ? 1 : -1;
    return a->saved_by < b->saved_by ? -1 : a->saved_by > b->saved_by;
}

static int by_size(const void *left, const void *right)
{
    return cm_contributors_compare(left, right);
}

void cm_contributors_sort(cm_contributor *contributor, size_t count)
{
    cm_sort(contributor, count, sizeof *contributor, by_size);
}
