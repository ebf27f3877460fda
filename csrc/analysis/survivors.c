/* Live blocks by charged line, at the end of the trace and of the last step. Only the latter are
 * judged, because blocks of a returning function die at the trace's end. */
#include <string.h>

#include "../base/grow.h"
#include "../base/idmap.h"
#include "../heap/snapshot.h"
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

typedef struct gathered {
    const cm_replay *replay;
    cm_survivor *found;
    size_t count, capacity;
    cm_idmap index;  /* device, stack -> index of found */
    uint32_t *known; /* the same + 1, by origin */
} gathered;

/* Blocks of one origin and step. */
static bool add(gathered *g, uint32_t origin, int64_t step, cm_amount more)
{
    const cm_origin *o = &g->replay->origin[origin];
    uint32_t at = g->known[origin] - 1;
    uint64_t key = (uint64_t)o->device << 32 | o->stack;
    if (at == UINT32_MAX && !cm_idmap_get(&g->index, key, &at)) {
        at = (uint32_t)g->count;
        if (!cm_grow((void **)&g->found, &g->capacity, g->count + 1, sizeof *g->found) ||
            !cm_idmap_put(&g->index, key, at))
            return false;
        g->found[g->count++] = (cm_survivor){
            .device = o->device, .stack = o->stack, .first_step = step, .last_step = step};
    }
    g->known[origin] = at + 1;
    cm_survivor *s = &g->found[at];
    s->bytes += more.bytes;
    s->count += more.count;
    if (step < s->first_step)
        s->first_step = step;
    if (step > s->last_step)
        s->last_step = step;
    return true;
}

static bool add_all(gathered *g)
{
    const cm_cohorts *c = g->replay->cohorts;
    const cm_block *block;
    for (size_t i = 0; i < c->count; i++) {
        const cm_cohort *of = &c->cohort[i];
        const cm_amount all = {of->size * (int64_t)of->count, of->count};
        if (of->count > 0 && !add(g, of->origin, -1, all))
            return false;
    }
    for (size_t at = 0; (block = cm_replay_next_loose(g->replay, &at)) != NULL;)
        if (!add(g, block->origin, block->step, (cm_amount){block->size, 1}))
            return false;
    return true;
}

/* *out is NULL when nothing is alive. */
static bool gather(const cm_replay *replay, cm_survivor **out, size_t *count)
{
    gathered g = {.replay = replay};
    g.known = calloc(replay->origin_count + 1, sizeof *g.known);
    bool fine = g.known != NULL && add_all(&g);
    cm_idmap_clear(&g.index);
    free(g.known);
    if (!fine) {
        free(g.found);
        return false;
    }
    cm_sort(g.found, g.count, sizeof *g.found, by_size);
    *out = g.found;
    *count = g.count;
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
