#include "operators.h"

bool cm_operators_copy(cm_operators *copy, const cm_operators *operators)
{
    return cm_idmap_copy(&copy->running, &operators->running);
}

void cm_operators_clear(cm_operators *operators)
{
    cm_idmap_clear(&operators->running);
}

uint32_t cm_operators_find(const cm_operators *operators, uint32_t thread)
{
    uint32_t name;
    if (operators->running.count == 0 || !cm_idmap_get(&operators->running, thread, &name))
        return 0;
    return name;
}

bool cm_operators_visit(const cm_operators *operators, cm_operators_visit_fn visit, void *context)
{
    for (size_t i = 0; i < operators->running.slots; i++) {
        const struct cm_idmap_slot *slot = &operators->running.slot[i];
        if (slot->key != 0 && slot->value != 0 &&
            !visit(context, (uint32_t)(slot->key - 1), slot->value))
            return false;
    }
    return true;
}
