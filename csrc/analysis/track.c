#include "track.h"

#include <stdlib.h>
#include <string.h>

#include "../base/grow.h"
#include "../base/idmap.h"
#include "../base/own_frame.h"

enum { SCALAR_BYTES = 64 }; /* smaller blocks do not depend on the batch size */

cm_track *cm_track_new(cm_loops *loops, cm_stack_classes *classes, const cm_replay *replay)
{
    cm_track *t = calloc(1, sizeof *t);
    if (t == NULL)
        return NULL;
    t->loops = loops;
    t->classes = classes;
    t->replay = replay;
    for (size_t i = 0; i < loops->count; i++) {
        uint32_t steps = loops->loop[i].steps, warm = cm_growth_warm(steps);
        uint32_t span = steps > warm ? steps - warm : 0;
        t->loop[i].warm = warm;
        t->loop[i].early_end = warm + span / 3;
        t->loop[i].late_begin = steps - span / 3;
    }
    return t;
}

void cm_track_free(cm_track *t)
{
    if (t == NULL)
        return;
    for (size_t i = 0; i < t->groups; i++) {
        free(t->group[i].series.low);
        free(t->group[i].deaths);
    }
    for (size_t i = 0; i < t->lines; i++)
        free(t->line[i].series.low);
    free(t->group);
    free(t->line);
    cm_idmap_clear(&t->by_stack);
    cm_idmap_clear(&t->by_line);
    for (size_t i = 0; i < CM_LOOPS_MAX; i++) {
        free(t->loop[i].of_origin);
        free(t->loop[i].touched);
        free(t->loop[i].line);
    }
    free(t);
}

/* --- groups -------------------------------------------------------------------------------- */

static uint64_t key_of(uint32_t loop, uint16_t device, uint32_t number)
{
    return (uint64_t)loop << 48 | (uint64_t)device << 32 | number;
}

/* What backward allocates is charged to its forward line. It is a group of its own: gradients do
 * not grow because the line's outputs do. */
static uint64_t group_key(uint32_t loop, const cm_origin *o, uint32_t stack)
{
    return key_of(2 * loop + (o->phase == CM_PHASE_BACKWARD), o->device, stack);
}

static bool find_line(cm_track *t, uint32_t loop, uint16_t device, uint32_t stack, uint32_t *out)
{
    uint64_t key = key_of(loop, device, cm_stack_class_line(t->classes, stack));
    if (!cm_idmap_get(&t->by_line, key, out)) {
        if (t->lines >= UINT32_MAX ||
            !cm_grow((void **)&t->line, &t->line_capacity, t->lines + 1, sizeof *t->line) ||
            !cm_idmap_put(&t->by_line, key, (uint32_t)t->lines))
            return false;
        *out = (uint32_t)t->lines;
        t->line[t->lines++] = (cm_track_line){.loop = loop};
    }
    t->line[*out].groups++;
    return true;
}

static bool find_group(cm_track *t, uint32_t loop, uint32_t step, const cm_origin *o, uint32_t *out)
{
    uint32_t stack;
    if (!cm_stack_class_of(t->classes, o->stack, &stack))
        return false;
    uint64_t key = group_key(loop, o, stack);
    if (cm_idmap_get(&t->by_stack, key, out))
        return true;
    cm_track_group made = {.loop = loop,
                           .stack = stack,
                           .first = step,
                           .position = t->replay->position,
                           .device = o->device,
                           .backward = o->phase == CM_PHASE_BACKWARD};
    made.forward =
        o->phase == CM_PHASE_FORWARD || o->phase == CM_PHASE_DATA || o->phase == CM_PHASE_OTHER;
    if (t->groups >= UINT32_MAX - 1 || !find_line(t, loop, o->device, stack, &made.line) ||
        !cm_grow((void **)&t->group, &t->group_capacity, t->groups + 1, sizeof *t->group) ||
        !cm_idmap_put(&t->by_stack, key, (uint32_t)t->groups))
        return false;
    *out = (uint32_t)t->groups;
    t->group[t->groups++] = made;
    return true;
}

bool cm_track_find(const cm_track *t, const cm_block *block, uint32_t loop, cm_track_group **group)
{
    const cm_origin *o = &t->replay->origin[block->origin];
    uint32_t stack, found;
    *group = NULL;
    if (!cm_stack_class_of(t->classes, o->stack, &stack))
        return false;
    if (cm_idmap_get(&t->by_stack, group_key(loop, o, stack), &found))
        *group = &t->group[found];
    return true;
}

uint32_t cm_track_group_of(const cm_track *t, uint32_t loop, uint32_t origin)
{
    return t->loop[loop].of_origin[origin] - 1;
}

static CM_OWN_FRAME bool touch_first(cm_track *t, cm_track_group *g)
{
    struct cm_track_loop *l = &t->loop[g->loop];
    g->series.touched = true;
    if (!cm_grow((void **)&l->touched, &l->touched_capacity, l->touched_count + 1,
                 sizeof *l->touched))
        return false;
    l->touched[l->touched_count++] = (uint32_t)(g - t->group);
    return true;
}

static inline bool touch(cm_track *t, cm_track_group *g)
{
    return g->series.touched || touch_first(t, g);
}

/* Gives the origin a group in this loop. false: out of memory. */
static CM_OWN_FRAME bool know_origin(cm_track *t, uint32_t loop, uint32_t step, uint32_t origin)
{
    struct cm_track_loop *l = &t->loop[loop];
    uint32_t found;
    if (!cm_grow_zeroed((void **)&l->of_origin, &l->origin_capacity, t->replay->origin_count,
                        sizeof *l->of_origin) ||
        !find_group(t, loop, step, &t->replay->origin[origin], &found))
        return false;
    l->of_origin[origin] = found + 1;
    return true;
}

bool cm_track_birth(cm_track *t, const cm_block *block)
{
    uint32_t step;
    cm_loop *loop = cm_loops_find(t->loops, block->step, &step);
    if (loop == NULL)
        return true;
    uint32_t number = (uint32_t)(loop - t->loops->loop);
    struct cm_track_loop *l = &t->loop[number];
    if ((block->origin >= l->origin_capacity || l->of_origin[block->origin] == 0) &&
        !know_origin(t, number, step, block->origin))
        return false;
    cm_track_group *g = &t->group[l->of_origin[block->origin] - 1];
    g->series.live += block->size;
    if (step >= l->warm && step < l->early_end) {
        g->early += (double)block->size;
        g->early_count++;
    } else if (step >= l->late_begin) {
        g->late += (double)block->size;
    }
    return touch(t, g);
}

bool cm_track_death(cm_track *t, const cm_block *block, uint32_t thread)
{
    uint32_t step;
    cm_loop *loop = cm_loops_find(t->loops, block->step, &step);
    if (loop == NULL)
        return true;
    cm_track_group *g =
        &t->group[cm_track_group_of(t, (uint32_t)(loop - t->loops->loop), block->origin)];
    g->series.live -= block->size;
    if (!cm_loops_is_old(t->loops, loop, step, thread)) {
        g->fleeting |= loop->passed > step;
    } else {
        if (g->deaths == NULL && (g->deaths = calloc(1, sizeof *g->deaths)) == NULL)
            return false;
        cm_growth_die(g->deaths, loop->steps, step, loop->passed, block->size);
    }
    return touch(t, g);
}

bool cm_track_setup_death(cm_track *t, const cm_block *block, uint32_t loop)
{
    const cm_origin *o = &t->replay->origin[block->origin];
    uint32_t stack, line;
    if (o->stack < CM_STACK_FIRST)
        return true; /* found alive at the start: its line is unknown */
    if (!cm_stack_class_of(t->classes, o->stack, &stack))
        return false;
    if (cm_idmap_get(&t->by_line, key_of(loop, o->device, cm_stack_class_line(t->classes, stack)),
                     &line))
        t->line[line].setup_freed += (double)block->size;
    return true;
}

void cm_track_forget_filling(cm_track *t)
{
    for (size_t i = 0; i < t->groups; i++) {
        cm_track_group *g = &t->group[i];
        const cm_loop *loop = &t->loops->loop[g->loop];
        /* After its loop the container may be gone, and its blocks with it. */
        if (loop->passed < loop->steps && g->series.live > 0)
            g->filling = 0;
        g->filling_seen = false;
    }
}

void cm_track_filling(cm_track *t, const cm_block *block)
{
    uint32_t step;
    const cm_loop *loop = cm_loops_find(t->loops, block->step, &step);
    if (loop == NULL)
        return;
    uint32_t number = (uint32_t)(loop - t->loops->loop);
    cm_track_group *g = &t->group[cm_track_group_of(t, number, block->origin)];
    if (!g->filling_seen)
        g->filling = 0;
    g->filling_seen = true;
    g->filling += block->size;
    g->filling_of = g->series.live;
}

/* --- series -------------------------------------------------------------------------------- */

static void lower(cm_track_series *s, uint32_t width, uint32_t from, uint32_t until, int64_t value)
{
    while (from < until) {
        uint32_t bucket = from / width;
        if (from % width == 0 || value < s->low[bucket])
            s->low[bucket] = value;
        from = (bucket + 1) * width;
    }
}

/* Notes the live bytes at boundary `now`, unchanged since the last call's boundary. */
static bool pass_boundary(cm_track_series *s, uint32_t width, uint32_t now)
{
    if (s->low == NULL && s->live == s->seen) {
        s->next = now + 1;
        return true;
    }
    if (s->low == NULL && s->seen == 0 && s->since == 0) {
        s->seen = s->live; /* zero so far */
        s->since = now;
        s->next = now + 1;
        return true;
    }
    if (s->low == NULL) {
        s->low = calloc(CM_GROWTH_BUCKETS, sizeof *s->low);
        if (s->low == NULL)
            return false;
        lower(s, width, 0, s->since, 0);
        lower(s, width, s->since, s->next, s->seen);
    }
    lower(s, width, s->next, now, s->seen);
    lower(s, width, now, now + 1, s->live);
    s->seen = s->live;
    s->next = now + 1;
    return true;
}

bool cm_track_boundary(cm_track *t, uint32_t number)
{
    struct cm_track_loop *l = &t->loop[number];
    const cm_loop *loop = &t->loops->loop[number];
    uint32_t width = cm_growth_width(loop->steps);
    size_t lines = 0;
    if (!cm_grow((void **)&l->line, &l->line_capacity, l->touched_count, sizeof *l->line))
        return false;
    for (size_t i = 0; i < l->touched_count; i++) {
        cm_track_group *g = &t->group[l->touched[i]];
        g->series.touched = false;
        if (g->first_live == 0)
            g->first_live = g->series.live;
        if (g->series.live == g->series.seen && g->series.low == NULL)
            continue; /* everything made in between was freed */
        cm_track_series *line = &t->line[g->line].series;
        line->live += g->series.live - g->series.seen;
        if (!line->touched)
            l->line[lines++] = g->line;
        line->touched = true;
        if (!pass_boundary(&g->series, width, loop->passed))
            return false;
    }
    for (size_t i = 0; i < lines; i++) {
        cm_track_series *line = &t->line[l->line[i]].series;
        line->touched = false;
        if (!pass_boundary(line, width, loop->passed))
            return false;
    }
    l->touched_count = 0;
    return true;
}

static void fill(cm_track_series *s, const cm_loop *loop)
{
    if (s->low != NULL)
        lower(s, cm_growth_width(loop->steps), s->next, loop->steps, s->seen);
}

void cm_track_end(cm_track *t, uint32_t number)
{
    for (size_t i = 0; i < t->groups; i++)
        if (t->group[i].loop == number)
            fill(&t->group[i].series, &t->loops->loop[number]);
    for (size_t i = 0; i < t->lines; i++)
        if (t->line[i].loop == number)
            fill(&t->line[i].series, &t->loops->loop[number]);
}

/* --- curriculum ---------------------------------------------------------------------------- */

bool cm_track_is_curriculum(const cm_track *t, const uint32_t *group, size_t groups)
{
    const cm_track_group *self = &t->group[group[0]];
    double early = 0, late = 0;
    size_t alike = 0, others = 0;
    for (size_t i = 0; i < groups; i++) {
        early += t->group[group[i]].early;
        late += t->group[group[i]].late;
    }
    if (early <= 0 || late <= early)
        return false;
    double growth = late / early - 1;
    for (size_t i = 0; i < t->groups; i++) {
        const cm_track_group *g = &t->group[i];
        if (g->loop != self->loop || g->line == self->line || !g->forward || g->early_count == 0 ||
            g->early <= (double)SCALAR_BYTES * (double)g->early_count)
            continue;
        others++;
        alike += (g->late / g->early - 1) * 100 >= growth * CM_GROWTH_ALIKE_PERCENT;
    }
    return alike > 0 && alike * 100 >= others * CM_GROWTH_ALIKE_LINES;
}
