#include "fate_list.h"

#include <stdlib.h>

#include "../base/grow.h"

enum { NAMED_MAX = 1 << 22 };

_Static_assert((int)CM_CATEGORIES <= (int)CM_FATE_CATEGORY, "a category fits into its bits");

void cm_fate_list_clear(cm_fate_list *list)
{
    free(list->of);
    cm_idmap_clear(&list->labels);
    free(list->label);
    free(list->single);
    cm_purposes_clear(&list->purposes);
}

bool cm_fate_list_add(cm_fate_list *list)
{
    if (list->births >= UINT32_MAX - 1 ||
        !cm_grow((void **)&list->of, &list->capacity, list->births + 1, 1))
        return false;
    list->of[list->births++] = CM_FATE_ALIVE;
    return true;
}

uint8_t cm_fate_list_saved(cm_fate_list *list, uint32_t saver)
{
    size_t i = 0;
    while (i < list->savers && list->saver[i] != saver)
        i++;
    if (i == CM_FATE_SAVERS)
        return CM_CATEGORY_ACTIVATION;
    if (i == list->savers)
        list->saver[list->savers++] = saver;
    return (uint8_t)(CM_FATE_SAVED + i);
}

int64_t cm_fate_list_label(cm_fate_list *list, const cm_label *label)
{
    if (list->label_count >= UINT32_MAX - 1 ||
        !cm_grow((void **)&list->label, &list->label_capacity, list->label_count + 1,
                 sizeof *list->label))
        return -1;
    list->label[list->label_count] = *label;
    return (int64_t)list->label_count++;
}

bool cm_fate_list_name(void *context, uint32_t birth, uint32_t label)
{
    cm_fate_list *list = context;
    uint32_t old;
    if (cm_fate_is_hooked(list->of[birth]))
        return true;
    bool known = cm_idmap_get(&list->labels, birth, &old);
    if (known && list->label[old].kind != CM_LABEL_TENSOR)
        return true; /* the first label is the purpose of its birth */
    if (!known && list->labels.count >= NAMED_MAX)
        return true;
    list->of[birth] = CM_FATE_ALIVE_LABELLED;
    return cm_idmap_put(&list->labels, birth, label);
}

bool cm_fate_list_lives(void *context, uint32_t birth)
{
    const cm_fate_list *list = context;
    return list->of[birth] >= CM_FATE_ALIVE_LABELLED;
}

cm_category cm_fate_category(const cm_label *label, cm_category otherwise)
{
    static const cm_category of[] = {
        [CM_LABEL_PARAMETER] = CM_CATEGORY_PARAMETER,
        [CM_LABEL_BUFFER] = CM_CATEGORY_BUFFER,
        [CM_LABEL_GRADIENT] = CM_CATEGORY_GRADIENT,
        [CM_LABEL_OPTIMIZER_STATE] = CM_CATEGORY_OPTIMIZER_STATE,
        [CM_LABEL_WORKSPACE] = CM_CATEGORY_WORKSPACE,
        [CM_LABEL_AUTOCAST] = CM_CATEGORY_AUTOCAST,
        [CM_LABEL_MOVED_PARAMETER] = CM_CATEGORY_PARAMETER,
        [CM_LABEL_MOVED_BUFFER] = CM_CATEGORY_BUFFER,
    };
    bool known = label->kind >= CM_LABEL_PARAMETER && label->kind < CM_LABEL_END;
    return known && of[label->kind] != CM_CATEGORY_UNKNOWN ? of[label->kind] : otherwise;
}

static const cm_label *hook_label(cm_category category)
{
    static const cm_label of[CM_CATEGORIES] = {
        [CM_CATEGORY_WORKSPACE] = {.kind = CM_LABEL_WORKSPACE},
        [CM_CATEGORY_AUTOCAST] = {.kind = CM_LABEL_AUTOCAST},
        [CM_CATEGORY_PARAMETER] = {.kind = CM_LABEL_MOVED_PARAMETER},
        [CM_CATEGORY_BUFFER] = {.kind = CM_LABEL_MOVED_BUFFER},
    };
    return of[category].kind != 0 ? &of[category] : NULL;
}

cm_category cm_fate_hooked(uint8_t byte)
{
    const cm_label label = {.kind = (uint8_t)(byte - CM_FATE_ALIVE_HOOKED + CM_LABEL_WORKSPACE)};
    return cm_fate_is_hooked(byte) ? cm_fate_category(&label, CM_CATEGORY_UNKNOWN)
                                   : CM_CATEGORY_UNKNOWN;
}

static inline cm_fate fate_of(const cm_fate_list *list, size_t birth, uint32_t stack, int64_t size)
{
    uint32_t at;
    if (birth >= list->births)
        return (cm_fate){0};
    uint8_t byte = list->of[birth];
    if (byte >= CM_FATE_ALIVE_HOOKED)
        return (cm_fate){0};
    cm_fate fate = {.category = CM_CATEGORY_ACTIVATION};
    if (byte < CM_FATE_SAVED)
        fate.category = (cm_category)(byte & CM_FATE_CATEGORY);
    fate.category = cm_purposes_decide(&list->purposes, stack, size, fate.category,
                                       byte < CM_FATE_SAVED && byte & CM_FATE_OPEN);
    if (byte >= CM_FATE_SAVED) {
        fate.saved_by =
            fate.category == CM_CATEGORY_ACTIVATION ? list->saver[byte - CM_FATE_SAVED] : 0;
        return fate;
    }
    fate.label = hook_label(fate.category);
    if (byte & CM_FATE_LABELLED && cm_idmap_get(&list->labels, birth, &at)) {
        fate.label = &list->label[at];
        fate.category = cm_fate_category(fate.label, fate.category);
    }
    return fate;
}

cm_fate cm_fate_list_at(const cm_fate_list *list, size_t birth, uint32_t stack, int64_t size)
{
    return fate_of(list, birth, stack, size);
}

cm_fate cm_fate_list_next(cm_fate_list *list, uint32_t stack, int64_t size)
{
    for (; list->passed < list->singles && list->single[list->passed].birth == list->next;
         list->passed++)
        list->next++;
    return fate_of(list, list->next++, stack, size);
}
