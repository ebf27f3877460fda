/* The peak above the start: the highest sum of live blocks that were allocated in the window.
 * Blocks from before count neither while they live nor when they go. Who was there then, and who of
 * them is there at the end, only where asked; saved when it changes, as in peak.c. */
#include <string.h>

#include "contributors.h"
#include "../base/grow.h"
#include "parts.h"

typedef struct share { /* of one origin */
    int64_t bytes, peak_bytes;
    uint64_t count, peak_count;
    uint64_t epoch; /* that peak_bytes are of; an older one: nothing has changed since */
} share;

typedef struct device {
    int64_t live, peak, step;
    uint64_t time_ns, epoch;
} device;

typedef struct above {
    const cm_run *run;
    bool rows;
    device device[CM_DEVICES_MAX];
    share *share;
    size_t capacity;
} above;

static void *create(const cm_run *run)
{
    above *a = calloc(1, sizeof *a);
    if (a == NULL)
        return NULL;
    a->run = run;
    a->rows = run->options->tables & (CM_TABLE(CM_TABLE_ABOVE) | CM_TABLE(CM_TABLE_KEPT));
    for (size_t i = 0; i < CM_DEVICES_MAX; i++)
        a->device[i] = (device){.step = -1, .time_ns = run->begin_ns, .epoch = 1};
    return a;
}

static bool change_share(above *a, const cm_change *c)
{
    const device *d = &a->device[c->block.device];
    size_t before = a->capacity;
    if (!cm_grow((void **)&a->share, &a->capacity, (size_t)c->block.origin + 1, sizeof *a->share))
        return false;
    memset(a->share + before, 0, (a->capacity - before) * sizeof *a->share);
    share *s = &a->share[c->block.origin];
    if (s->epoch != d->epoch) {
        s->peak_bytes = s->bytes;
        s->peak_count = s->count;
        s->epoch = d->epoch;
    }
    s->bytes += c->bytes;
    s->count += c->bytes > 0 ? 1 : UINT64_MAX;
    return true;
}

static bool change(void *part, const cm_change *c)
{
    above *a = part;
    device *d = &a->device[c->block.device];
    if (!c->block.made)
        return true;
    if (a->rows && !change_share(a, c))
        return false;
    d->live += c->bytes;
    if (d->live > d->peak) {
        d->peak = d->live;
        d->time_ns = c->time_ns;
        d->step = a->run->replay->step;
        d->epoch++;
    }
    return true;
}

static bool put(const above *a, uint16_t number, cm_table_kind kind, cm_table *out)
{
    const cm_replay *replay = a->run->replay;
    size_t capacity = 0;
    for (uint32_t i = 0; i < a->capacity && i < replay->origin_count; i++) {
        const share *s = &a->share[i];
        bool saved = kind == CM_TABLE_ABOVE && s->epoch == a->device[number].epoch;
        int64_t bytes = saved ? s->peak_bytes : s->bytes;
        uint64_t count = saved ? s->peak_count : s->count;
        if (replay->origin[i].device != number || bytes == 0)
            continue;
        if (!cm_grow((void **)&out->contributors, &capacity, out->contributor_count + 1,
                     sizeof *out->contributors))
            return false;
        out->contributors[out->contributor_count++] = cm_contributor_of(replay, i, bytes, count);
    }
    cm_contributors_sort(out->contributors, out->contributor_count);
    return true;
}

static bool list_blocks(const above *a, cm_analysis *out)
{
    const cm_replay *replay = a->run->replay;
    size_t capacity = 0;
    for (size_t i = 0; i < replay->blocks.slots && out->kept_block_count < CM_KEPT_BLOCKS; i++) {
        const cm_block *b = &replay->blocks.slot[i];
        if (!b->alive || !b->made)
            continue;
        if (!cm_grow((void **)&out->kept_blocks, &capacity, out->kept_block_count + 1,
                     sizeof *out->kept_blocks))
            return false;
        bool in_step = b->step < (int64_t)a->run->steps->count;
        out->kept_blocks[out->kept_block_count++] =
            (cm_kept_block){b->address, b->size, in_step ? b->step : -1, b->device,
                            replay->origin[b->origin].stack};
    }
    return true;
}

static bool finish(void *part, cm_analysis *out)
{
    const above *a = part;
    const cm_table_kind kinds[] = {CM_TABLE_ABOVE, CM_TABLE_KEPT};
    for (size_t i = 0; i < out->device_count; i++) {
        const device *d = &a->device[i];
        cm_device_report *r = &out->device[i];
        r->above = d->peak;
        r->above_time_ns = d->time_ns;
        r->above_step = d->step < (int64_t)a->run->steps->count ? d->step : -1;
        r->kept = d->live;
        for (size_t k = 0; k < 2; k++)
            if (a->run->options->tables & CM_TABLE(kinds[k]) &&
                !put(a, (uint16_t)i, kinds[k], &r->table[kinds[k]]))
                return false;
    }
    return !(a->run->options->tables & CM_TABLE(CM_TABLE_KEPT)) || list_blocks(a, out);
}

static void destroy(void *part)
{
    above *a = part;
    free(a->share);
    free(a);
}

const cm_part_kind cm_part_above = {
    .name = "above", .create = create, .change = change, .finish = finish, .destroy = destroy};
