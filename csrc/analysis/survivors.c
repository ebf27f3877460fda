/* Live blocks by charged line, at the end of the trace and of the last step. Only the latter are
 * judged, because blocks of a returning function die at the trace's end. */
#include <string.h>

#include "../base/grow.h"
#include "../base/idmap.h"
#include "parts.h"

typedef struct survivors {
    const cm_run *run;
    cm_survivor *at_step;
    size_t at_step_count;
    bool stepped;
} survivors;

static void *create(const cm_run *run)
{
    survivors *s = calloc(1, sizeof *s);
    if (s != NULL)
        s->run = run;
    return s;
}

static int by_size(const void *left, const void *right)
{
    const cm_survivor *a = left, *b = right;
    if (a->bytes != b->bytes)
        return a->bytes < b->bytes ? 1 : -1;
    if (a->device != b->device)
        return a->device > b->device ? 1 : -1;
    return a->stack < b->stack ? -1 : a->stack > b->stack;
}

/* *out is NULL when nothing is alive. */
static bool gather(const cm_replay *replay, cm_survivor **out, size_t *count)
{
    cm_survivor *found = NULL;
    size_t capacity = 0;
    cm_idmap index = {0}; /* device, stack -> index of found */
    uint32_t *known = calloc(replay->origin_count + 1, sizeof *known); /* the same + 1, by origin */
    bool fine = known != NULL;
    *count = 0;
    for (const cm_block *block = NULL;
         fine && (block = cm_blocks_next(&replay->blocks, block)) != NULL;) {
        uint32_t at = known[block->origin] - 1, stack = replay->origin[block->origin].stack;
        uint64_t key = (uint64_t)block->device << 32 | stack;
        if (at == UINT32_MAX && !cm_idmap_get(&index, key, &at)) {
            at = (uint32_t)*count;
            fine = cm_grow((void **)&found, &capacity, *count + 1, sizeof *found) &&
                   cm_idmap_put(&index, key, at);
            if (!fine)
                break;
            found[(*count)++] = (cm_survivor){.device = block->device,
                                              .stack = stack,
                                              .first_step = block->step,
                                              .last_step = block->step};
        }
        known[block->origin] = at + 1;
        cm_survivor *s = &found[at];
        s->bytes += block->size;
        s->count++;
        if (block->step < s->first_step)
            s->first_step = block->step;
        if (block->step > s->last_step)
            s->last_step = block->step;
    }
    cm_idmap_clear(&index);
    free(known);
    if (!fine) {
        free(found);
        return false;
    }
    cm_sort(found, *count, sizeof *found, by_size);
    *out = found;
    return true;
}

static bool step(void *part, int64_t number, cm_moment end)
{
    survivors *s = part;
    if (number < 0 || number != (int64_t)s->run->steps->count - 1)
        return true;
    s->stepped = true;
    return gather(s->run->replay, &s->at_step, &s->at_step_count);
}

static bool finish(void *part, cm_analysis *out)
{
    survivors *s = part;
    if (!gather(s->run->replay, &out->survivors_end, &out->survivor_end_count))
        return false;
    if (!s->stepped) { /* the same */
        s->at_step_count = out->survivor_end_count;
        if (!cm_copy((void **)&s->at_step, out->survivors_end, s->at_step_count,
                     sizeof *s->at_step))
            return false;
    }
    out->survivors = s->at_step;
    out->survivor_count = s->at_step_count;
    s->at_step = NULL;
    return true;
}

static void destroy(void *part)
{
    survivors *s = part;
    free(s->at_step);
    free(s);
}

const cm_part_kind cm_part_survivors = {
    .name = "survivors", .create = create, .step = step, .finish = finish, .destroy = destroy};
