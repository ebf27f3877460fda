/* The peak above the start: the highest sum of live blocks allocated in the window. Earlier blocks
 * never count. The blocks alive then, and those alive at the end, only on request. */
#include "contributors.h"
#include "../base/grow.h"
#include "../base/own_frame.h"
#include "parts.h"

typedef struct share { /* of one origin */
    cm_amount now;
    cm_snapshot peak;
} share;

typedef struct device {
    int64_t live, peak, step;
    uint64_t time_ns, moment;
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
        a->device[i] = (device){.step = -1, .time_ns = run->begin_ns, .moment = 1};
    return a;
}

static CM_OWN_FRAME bool change_share(above *a, const cm_change *c)
{
    const device *d = &a->device[c->block.device];
    if (!cm_grow_zeroed((void **)&a->share, &a->capacity, (size_t)c->block.origin + 1,
                        sizeof *a->share))
        return false;
    share *s = &a->share[c->block.origin];
    cm_snapshot_save(&s->peak, d->moment, s->now);
    s->now.bytes += c->bytes;
    s->now.count += c->bytes > 0 ? 1 : UINT64_MAX;
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
        d->moment++;
    }
    return true;
}

static bool put(const above *a, uint16_t number, cm_contents_kind kind, cm_table *out)
{
    const cm_replay *replay = a->run->replay;
    cm_contributors list = {0};
    bool fine = true;
    for (uint32_t i = 0; fine && i < a->capacity && i < replay->origin_count; i++) {
        const share *s = &a->share[i];
        cm_amount sum = kind == CM_TABLE_ABOVE
                            ? cm_snapshot_at(&s->peak, a->device[number].moment, s->now)
                            : s->now;
        if (replay->origin[i].device == number && sum.bytes != 0)
            fine = cm_contributors_add(&list, replay, i, sum);
    }
    cm_contributors_sort(list.contributor, list.count);
    out->contributors = list.contributor;
    out->contributor_count = list.count;
    return fine;
}

static bool list_blocks(const above *a, cm_analysis *out)
{
    const cm_replay *replay = a->run->replay;
    size_t capacity = 0;
    const cm_block *b;
    for (size_t at = 0; out->kept_block_count < CM_KEPT_BLOCKS &&
                        (b = cm_replay_next_loose(replay, &at)) != NULL;) {
        if (!b->made)
            continue;
        if (!cm_grow((void **)&out->kept_blocks, &capacity, out->kept_block_count + 1,
                     sizeof *out->kept_blocks))
            return false;
        out->kept_blocks[out->kept_block_count++] =
            (cm_kept_block){b->address,
                            b->size,
                            cm_steps_number(a->run->steps, b->step),
                            b->device,
                            replay->origin[b->origin].stack,
                            replay->origin[b->origin].phase == CM_PHASE_BACKWARD};
    }
    return true;
}

static bool finish(void *part, cm_analysis *out)
{
    const above *a = part;
    const cm_contents_kind kinds[] = {CM_TABLE_ABOVE, CM_TABLE_KEPT};
    for (size_t i = 0; i < out->device_count; i++) {
        const device *d = &a->device[i];
        cm_device_report *r = &out->device[i];
        r->above = d->peak;
        r->above_time_ns = d->time_ns;
        r->above_step = cm_steps_number(a->run->steps, d->step);
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
