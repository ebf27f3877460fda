/* Snapshots without copies: a new moment only costs a higher number, and an amount is saved when it
 * first changes afterwards. An amount without a save of the moment is unchanged since then. One
 * owner. */
#ifndef CM_HEAP_SNAPSHOT_H
#define CM_HEAP_SNAPSHOT_H

#include "../base/grow.h"
#include <stdint.h>

struct cm_replay;

typedef struct cm_amount {
    int64_t bytes;
    uint64_t count;
} cm_amount;

/* All zero: never saved. Moments are numbered from 1. */
typedef struct cm_snapshot {
    uint64_t moment;
    cm_amount then;
} cm_snapshot;

/* Before an amount changes. */
static inline void cm_snapshot_save(cm_snapshot *saved, uint64_t moment, cm_amount now)
{
    if (saved->moment != moment)
        *saved = (cm_snapshot){moment, now};
}

static inline cm_amount cm_snapshot_at(const cm_snapshot *saved, uint64_t moment, cm_amount now)
{
    return saved->moment == moment ? saved->then : now;
}

/* Amounts by origin; all zero is empty. The caller frees the array. */
typedef struct cm_amounts {
    cm_amount *of;
    size_t capacity;
} cm_amounts;

/* NULL: out of memory. */
static inline cm_amount *cm_amounts_of(cm_amounts *amounts, uint32_t origin)
{
    return cm_grow_zeroed((void **)&amounts->of, &amounts->capacity, (size_t)origin + 1,
                          sizeof *amounts->of)
               ? &amounts->of[origin]
               : NULL;
}

static inline bool cm_amounts_add(cm_amounts *amounts, uint32_t origin, cm_amount more)
{
    cm_amount *now = cm_amounts_of(amounts, origin);
    if (now == NULL)
        return false;
    now->bytes += more.bytes;
    now->count += more.count;
    return true;
}

/* Adds the live blocks; device: -1 for all. false: out of memory. */
bool cm_amounts_add_live(cm_amounts *amounts, const struct cm_replay *replay, int device);

#endif
