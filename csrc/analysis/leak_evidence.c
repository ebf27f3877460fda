#include "leak_evidence.h"

#include "../base/grow.h"

bool cm_leaks_were_swept(const cm_leaks *l, uint32_t number, uint32_t first)
{
    const cm_leaks_loop *here = &l->loop[number];
    uint32_t steps = l->loops->loop[number].steps, steps_swept = 0, old = 0;
    for (uint32_t b = first / cm_growth_width(steps) + 1; b < CM_GROWTH_BUCKETS; b++) {
        steps_swept += here->sweeps[b];
        old += here->old_sweeps[b];
    }
    bool apart = steps_swept * CM_GROWTH_SWEEP_STEPS <= steps - first;
    return old >= CM_GROWTH_SWEEPS || (apart && steps_swept >= CM_GROWTH_SWEEPS);
}

bool cm_leaks_births_of(cm_leaks_births *births, const cm_census_row *row, size_t rows)
{
    if (!cm_grow((void **)&births->birth, &births->capacity, rows, sizeof *births->birth))
        return false;
    for (size_t i = 0; i < rows; i++)
        births->birth[i] = (cm_growth_birth){row[i].step, row[i].count, row[i].bytes};
    births->count = rows;
    return true;
}

void cm_leaks_spread_births(const cm_leaks_births *births, uint32_t steps, uint32_t *born)
{
    uint32_t width = cm_growth_width(steps);
    for (size_t i = 0; i < births->count; i++)
        born[births->birth[i].step / width]++;
}
