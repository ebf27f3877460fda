/* Verdicts: what keeps growing, judged at the last step boundary of each loop (never at the end of
 * the trace: what dies when a function returns was alive). Here is gathered; leakbytes.c and
 * leaknodes.c make cases of it, verdict.c and growth.c judge them. */
#include "leaks.h"

#include <stdlib.h>
#include <string.h>

#include "grow.h"

static void destroy(void *part)
{
    cm_leaks *l = part;
    for (size_t i = 0; i < CM_LOOPS_MAX; i++) {
        cm_census_clear(&l->loop[i].blocks);
        cm_census_clear(&l->loop[i].dead_blocks);
        cm_census_clear(&l->loop[i].nodes);
        cm_census_clear(&l->loop[i].dead_nodes);
    }
    cm_idmap_clear(&l->node_deaths_at);
    free(l->node_deaths);
    cm_verdicts_clear(&l->verdicts);
    cm_track_free(l->track);
    cm_samestack_free(l->fold);
    cm_loops_free(l->loops);
    free(l);
}

static void *create(const cm_run *run)
{
    cm_leaks *l = calloc(1, sizeof *l);
    if (l == NULL)
        return NULL;
    l->run = run;
    l->loops = cm_loops_new(run->steps);
    l->fold = cm_samestack_new(run->reader, run->replay->library);
    if (l->loops != NULL && l->fold != NULL)
        l->track = cm_track_new(l->loops, l->fold, run->replay);
    if (l->track == NULL) {
        destroy(l);
        return NULL;
    }
    return l;
}

/* Before the sequence number in a row's order, see leaknodes.c. */
#define NEVER_RAN ((uint64_t)1 << 63)

static bool is_over(const cm_loop *loop)
{
    return loop->passed == loop->steps;
}

/* Whether what was born in that step and dies now was garbage at the loop's end. */
static bool was_garbage(const cm_leaks *l, const cm_loop *loop, uint32_t step)
{
    return l->collecting > 0 && step >= l->loop[loop - l->loops->loop].collected;
}

static bool change(void *part, const cm_change *c)
{
    cm_leaks *l = part;
    uint32_t step;
    if (c->bytes >= 0)
        return cm_track_birth(l->track, &c->block);
    cm_loop *loop = cm_loops_find(l->loops, c->block.step, &step);
    if (loop == NULL) {
        loop = c->block.step < 0 ? cm_loops_find(l->loops, l->track->replay->step, &step) : NULL;
        return loop == NULL || is_over(loop) ||
               cm_track_setup_death(l->track, &c->block, (uint32_t)(loop - l->loops->loop));
    }
    if (!is_over(loop))
        return cm_track_death(l->track, &c->block);
    if (!was_garbage(l, loop, step))
        return true;
    uint32_t number = (uint32_t)(loop - l->loops->loop);
    cm_census_row row = {.group = cm_track_group_of(l->track, number, c->block.origin),
                         .step = step,
                         .bytes = c->block.size,
                         .count = 1};
    return cm_census_add(&l->loop[number].dead_blocks, &row);
}

/* --- nodes --------------------------------------------------------------------------------- */

static bool node_row(cm_leaks *l, const cm_node_life *life, uint32_t step, cm_census_row *row)
{
    uint32_t stack = life->stack >= CM_NODE_ACCUMULATION ? CM_STACK_NONE : life->stack;
    *row = (cm_census_row){.step = step,
                           .bytes = CM_NODE_BYTES,
                           .count = 1,
                           .youngest =
                               (life->ran ? 0 : NEVER_RAN) | (life->sequence & (NEVER_RAN - 1))};
    return cm_samestack_stack(l->fold, stack, &row->group);
}

static bool node_died(cm_leaks *l, const cm_node_life *life)
{
    uint32_t step, at;
    cm_census_row row;
    cm_loop *loop = cm_loops_find(l->loops, life->step, &step);
    if (loop == NULL)
        return true;
    uint32_t number = (uint32_t)(loop - l->loops->loop);
    cm_leaks_loop *here = &l->loop[number];
    if (is_over(loop))
        return !was_garbage(l, loop, step) ||
               (node_row(l, life, step, &row) && cm_census_add(&here->dead_nodes, &row));
    uint32_t age = loop->passed - step;
    if (age < CM_GROWTH_OLD) {
        here->fleeting_nodes |= age > 0;
        return true;
    }
    if (!node_row(l, life, step, &row))
        return false;
    uint64_t key = cm_leaks_node_key(number, row.group);
    if (!cm_idmap_get(&l->node_deaths_at, key, &at)) {
        if (!cm_grow((void **)&l->node_deaths, &l->node_death_capacity, l->node_death_count + 1,
                     sizeof *l->node_deaths) ||
            !cm_idmap_put(&l->node_deaths_at, key, (uint32_t)l->node_death_count))
            return false;
        at = (uint32_t)l->node_death_count++;
        l->node_deaths[at] = (cm_growth_deaths){0};
    }
    cm_growth_die(&l->node_deaths[at], loop->steps, step, loop->passed, CM_NODE_BYTES);
    return true;
}

typedef struct gatherer {
    cm_leaks *leaks;
    const cm_loop *loop;
} gatherer;

static bool gather_node(void *context, const cm_node_life *life)
{
    gatherer *g = context;
    uint32_t step;
    cm_census_row row;
    cm_loop *loop = cm_loops_find(g->leaks->loops, life->step, &step);
    if (loop == NULL || loop != g->loop)
        return true;
    return node_row(g->leaks, life, step, &row) &&
           cm_census_add(&g->leaks->loop[loop - g->leaks->loops->loop].nodes, &row);
}

/* --- events and boundaries ----------------------------------------------------------------- */

static void collected(cm_leaks *l, bool full)
{
    for (size_t i = 0; i < l->loops->count; i++) {
        cm_leaks_loop *here = &l->loop[i];
        uint32_t passed = l->loops->loop[i].passed;
        if (is_over(&l->loops->loop[i]))
            continue;
        if (passed - here->swept > here->pause)
            here->pause = passed - here->swept;
        here->swept = passed;
        if (full)
            here->collected = passed;
    }
}

static void see_mark(cm_leaks *l, const cm_event *e)
{
    switch (e->size) {
    case CM_MARK_FINAL_COLLECT_BEGIN:
        l->final = true;
        l->final_disabled = e->address == 0;
        l->collecting++;
        break;
    case CM_MARK_COLLECT_BEGIN:
        l->collecting++;
        break;
    case CM_MARK_COLLECT_END:
        collected(l, e->address >= CM_FULL_COLLECTION);
        l->collecting -= l->collecting > 0;
        break;
    case CM_MARK_FINAL_COLLECT_END:
        l->collecting = 0;
        break;
    default:
        break;
    }
}

static bool event(void *part, const cm_record *record)
{
    cm_leaks *l = part;
    cm_node_life life;
    switch (record->event.kind) {
    case CM_EV_NODE_FREE:
        return !cm_nodes_destroyed(l->run->replay->nodes, &life) || node_died(l, &life);
    case CM_EV_MARK:
        see_mark(l, &record->event);
        return true;
    case CM_EV_OBJECT_NEW:
    case CM_EV_TICK:
        return cm_loops_event(l->loops, record, l->run->replay->step, l->run->replay->places);
    default:
        return true;
    }
}

static bool gather(cm_leaks *l, const cm_loop *loop)
{
    uint32_t number = (uint32_t)(loop - l->loops->loop);
    const cm_replay *replay = l->run->replay;
    cm_leaks_loop *here = &l->loop[number];
    for (size_t i = 0; i < replay->blocks.slots; i++) {
        const cm_block *block = &replay->blocks.slot[i];
        cm_census_row row = {.bytes = block->size, .count = 1};
        if (!block->alive || cm_loops_find(l->loops, block->step, &row.step) != loop)
            continue;
        row.group = cm_track_group_of(l->track, number, block->origin);
        if (!cm_census_add(&here->blocks, &row))
            return false;
    }
    gatherer g = {l, loop};
    cm_census_sort(&here->blocks);
    if (!cm_nodes_each(replay->nodes, gather_node, &g))
        return false;
    cm_census_sort(&here->nodes);
    return true;
}

static bool step(void *part, int64_t number, cm_moment end)
{
    cm_leaks *l = part;
    uint32_t index;
    if (number >= 0 && (size_t)number + 1 == l->run->steps->count) {
        l->live_nodes = cm_nodes_alive(l->run->replay->nodes);
        l->stepped = true;
    }
    cm_loop *loop = cm_loops_find(l->loops, number, &index);
    if (loop == NULL)
        return true;
    uint32_t at = (uint32_t)(loop - l->loops->loop);
    if (!cm_track_boundary(l->track, at))
        return false;
    loop->passed++;
    if (!is_over(loop))
        return true;
    cm_track_end(l->track, at);
    return gather(l, loop);
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

/* --- the end ------------------------------------------------------------------------------- */

/* Where a version of PyTorch does not let us see nodes die, all of them seem to live. The recorder
 * says whether it does; where it says nothing, a node that died proves it. */
static bool nodes_are_counted(const cm_leaks *l)
{
    const char *said = cm_reader_meta(l->run->reader, "nodes");
    return said != NULL ? strcmp(said, "counted") == 0
                        : cm_nodes_are_destroyed(l->run->replay->nodes);
}

static bool finish(void *part, cm_analysis *out)
{
    cm_leaks *l = part;
    cm_verdicts *v = &l->verdicts;
    v->lost = out->lost_events + out->replaced;
    v->collector_disabled = l->final && l->final_disabled;
    if (!cm_loops_finish(l->loops))
        return false;
    for (uint32_t i = 0; i < l->loops->count; i++) {
        if (!is_over(&l->loops->loop[i]))
            continue;
        cm_census_sort(&l->loop[i].dead_blocks);
        cm_census_sort(&l->loop[i].dead_nodes);
        if (!cm_leaks_judge_blocks(l, i) || (nodes_are_counted(l) && !cm_leaks_judge_nodes(l, i)))
            return false;
    }
    cm_verdicts_sort(v);
    out->leaks = v->leak;
    out->leak_count = v->leaks;
    out->suspects = v->suspect;
    out->suspect_count = v->suspects;
    out->leak_parts = v->part;
    *v = (cm_verdicts){0};
    out->live_nodes = l->stepped ? l->live_nodes : cm_nodes_alive(l->run->replay->nodes);
    return true;
}

const cm_part_kind cm_part_leaks = {.name = "leaks",
                                    .create = create,
                                    .change = change,
                                    .event = event,
                                    .events =
                                        CM_PART_EVENT(CM_EV_NODE_FREE) | CM_PART_EVENT(CM_EV_MARK) |
                                        CM_PART_EVENT(CM_EV_OBJECT_NEW) | CM_PART_EVENT(CM_EV_TICK),
                                    .step = step,
                                    .finish = finish,
                                    .destroy = destroy};
