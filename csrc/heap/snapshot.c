#include "snapshot.h"

#include "replay.h"

bool cm_amounts_add_live(cm_amounts *amounts, const cm_replay *r, int device)
{
    const cm_block *b;
    for (size_t i = 0; i < r->cohorts->count; i++) {
        const cm_cohort *of = &r->cohorts->cohort[i];
        if (of->count > 0 && (device < 0 || r->origin[of->origin].device == device) &&
            !cm_amounts_add(amounts, of->origin,
                            (cm_amount){of->size * (int64_t)of->count, of->count}))
            return false;
    }
    for (size_t at = 0; (b = cm_replay_next_loose(r, &at)) != NULL;)
        if ((device < 0 || b->device == device) &&
            !cm_amounts_add(amounts, b->origin, (cm_amount){b->size, 1}))
            return false;
    return true;
}
