/* Leaks: gathers the evidence for what keeps growing. Judged at the last step boundary of each
 * loop, never at the end of the trace, because blocks of a returning function die there. The layers
 * below are leak_bytes.c and leak_nodes.c (leak_cases.h), verdict.c, growth.c and causes.c. All of
 * them read leak_evidence.h, track.h and loops.h. */
#include <stdlib.h>
#include <string.h>

#include "causes.h"
#include "../base/grow.h"
#include "leak_cases.h"

enum { WARM_UP = 10 }; /* one in so many steps */

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
    cm_idmap_clear(&l->held_by);
    cm_idmap_clear(&l->named);
    free(l->node_deaths);
    free(l->ghost);
    cm_verdicts_clear(&l->verdicts);
    cm_track_free(l->track);
    cm_stack_classes_free(l->classes);
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
    l->classes = cm_stack_classes_new(run->reader, run->replay->library);
    if (l->loops != NULL && l->classes != NULL)
        l->track = cm_track_new(l->loops, l->classes, run->replay);
    if (l->track == NULL) {
        destroy(l);
        return NULL;
    }
    return l;
}

static bool is_over(const cm_loop *loop)
{
    return loop->passed == loop->steps;
}

static bool is_collected(const cm_leaks *l, uint32_t thread)
{
    return l->collecting && thread == l->collector;
}

/* Whether a block born in that step and dying now was garbage at the loop's end. */
static bool was_garbage(const cm_leaks *l, const cm_loop *loop, uint32_t step, uint32_t thread)
{
    return is_collected(l, thread) && step >= l->loop[loop - l->loops->loop].collected;
}

static bool add_ghost(cm_leaks *l, const cm_leaks_ghost *ghost)
{
    if (!cm_grow((void **)&l->ghost, &l->ghost_capacity, l->ghosts + 1, sizeof *l->ghost))
        return false;
    l->ghost[l->ghosts++] = *ghost;
    return true;
}

static cm_census_row block_row(const cm_leaks *l, uint32_t loop, const cm_block *block,
                               uint32_t step)
{
    return (cm_census_row){.group = cm_track_group_of(l->track, loop, block->origin),
                           .step = step,
                           .bytes = block->size,
                           .count = 1};
}

/* A block died behind a loop that makes such blocks, if only in an unfinished step. */
static bool died_behind(cm_leaks *l, const cm_block *block, uint32_t thread)
{
    uint32_t step = 0;
    const cm_loop *own = cm_loops_find(l->loops, block->step, &step);
    for (uint32_t i = 0; i < l->loops->count; i++) {
        cm_track_group *g;
        const cm_loop *loop = &l->loops->loop[i];
        if (!is_over(loop) || cm_loops_trains(l->loops, loop) ||
            block->step < (int64_t)loop->global[0])
            continue;
        if (!cm_track_find(l->track, block, i, &g))
            return false;
        if (g == NULL)
            continue;
        g->died = l->run->replay->position;
        if (loop != own || is_collected(l, thread))
            continue;
        g->freed += block->size;
        g->freed_until = step + 1 > g->freed_until ? step + 1 : g->freed_until;
    }
    return true;
}

static bool change(void *part, const cm_change *c)
{
    cm_leaks *l = part;
    uint32_t step;
    if (c->bytes >= 0) {
        l->born = l->run->replay->position;
        return cm_track_birth(l->track, &c->block);
    }
    /* Some programs do all their work in an exit handler. */
    l->exiting &= l->track->replay->step == l->exit_step;
    if (l->evaluated && !l->exiting && !died_behind(l, &c->block, c->thread))
        return false;
    cm_loop *loop = cm_loops_find(l->loops, c->block.step, &step);
    if (loop == NULL) {
        loop = c->block.step < 0 ? cm_loops_find(l->loops, l->track->replay->step, &step) : NULL;
        return loop == NULL || is_over(loop) || (l->asked && is_collected(l, c->thread)) ||
               cm_track_setup_death(l->track, &c->block, (uint32_t)(loop - l->loops->loop));
    }
    if (!is_over(loop) && l->asked && is_collected(l, c->thread))
        return add_ghost(l, &(cm_leaks_ghost){.block = c->block});
    if (!is_over(loop)) {
        uint32_t number = (uint32_t)(loop - l->loops->loop);
        if (is_collected(l, c->thread))
            l->track->group[cm_track_group_of(l->track, number, c->block.origin)].collected = true;
        return cm_track_death(l->track, &c->block, c->thread);
    }
    if (!was_garbage(l, loop, step, c->thread))
        return true;
    uint32_t number = (uint32_t)(loop - l->loops->loop);
    cm_census_row row = block_row(l, number, &c->block, step);
    return cm_census_add(&l->loop[number].dead_blocks, &row);
}

/* --- nodes --------------------------------------------------------------------------------- */

static bool node_row(cm_leaks *l, const cm_node_life *life, uint32_t step, cm_census_row *row)
{
    uint32_t stack = life->stack >= CM_NODE_ACCUMULATION ? CM_STACK_NONE : life->stack;
    *row = (cm_census_row){.step = step,
                           .bytes = CM_LEAKS_NODE_UNIT,
                           .count = 1,
                           .youngest = (life->ran ? 0 : CM_LEAKS_NEVER_RAN) |
                                       (life->sequence & (CM_LEAKS_NEVER_RAN - 1))};
    return cm_stack_class_of(l->classes, stack, &row->group);
}

static bool node_died_in_loop(cm_leaks *l, const cm_loop *loop, const cm_node_life *life,
                              uint32_t step, uint32_t thread)
{
    uint32_t at, number = (uint32_t)(loop - l->loops->loop);
    cm_census_row row;
    if (!cm_loops_is_old(l->loops, loop, step, thread)) {
        l->loop[number].fleeting_nodes |= loop->passed > step;
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
    cm_growth_die(&l->node_deaths[at], loop->steps, step, loop->passed, CM_LEAKS_NODE_UNIT);
    return true;
}

static bool node_died(cm_leaks *l, const cm_node_life *life, uint32_t thread)
{
    uint32_t step;
    cm_census_row row;
    cm_loop *loop = cm_loops_find(l->loops, life->step, &step);
    if (loop == NULL)
        return true;
    uint32_t number = (uint32_t)(loop - l->loops->loop);
    cm_leaks_loop *here = &l->loop[number];
    if (is_over(loop))
        return !was_garbage(l, loop, step, thread) ||
               (node_row(l, life, step, &row) && cm_census_add(&here->dead_nodes, &row));
    if (l->asked && is_collected(l, thread))
        return add_ghost(l, &(cm_leaks_ghost){.is_node = true, .node = *life});
    here->nodes_collected |= is_collected(l, thread);
    return node_died_in_loop(l, loop, life, step, thread);
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

/* A collection by the program itself would have found earlier garbage. */
static bool end_ghosts(cm_leaks *l)
{
    size_t left = 0;
    for (size_t i = 0; i < l->ghosts; i++) {
        const cm_leaks_ghost *ghost = &l->ghost[i];
        int32_t born = ghost->is_node ? ghost->node.step : ghost->block.step;
        uint32_t step;
        const cm_loop *loop = cm_loops_find(l->loops, born, &step);
        if (is_over(loop)) {
            l->ghost[left++] = *ghost;
            continue;
        }
        if (ghost->is_node ? !node_died_in_loop(l, loop, &ghost->node, step, l->collector)
                           : !cm_track_death(l->track, &ghost->block, l->collector))
            return false;
    }
    l->ghosts = left;
    return true;
}

static void count_sweep(cm_leaks_loop *here, const cm_loop *loop, bool young)
{
    uint32_t bucket = loop->passed / cm_growth_width(loop->steps);
    here->old_sweeps[bucket] += !young;
    if (here->swept_in != loop->passed + 1)
        here->sweeps[bucket]++;
    here->swept_in = loop->passed + 1;
}

/* A frame of a damaged trace may have neither. */
static bool is_text(const char *a, const char *b)
{
    return a != NULL && b != NULL && strcmp(a, b) == 0;
}

/* Whether the code of the loop's clock still runs on that stack; module globals stay alive. */
static bool is_in_frame(const cm_leaks *l, const cm_loop *loop, uint32_t stack)
{
    const cm_reader *reader = l->run->reader;
    uint32_t line = l->run->steps->loop[loop->number].line;
    cm_attribution *attribution = l->run->replay->attribution;
    uint32_t clock =
        cm_attribution_outside(attribution, cm_attribution_line_stack(attribution, line));
    cm_frame own, frame;
    if (!cm_reader_stack_frame(reader, clock, &own))
        return false;
    if (is_text(own.function, "<module>"))
        return true;
    for (; cm_reader_stack_frame(reader, stack, &frame);
         stack = cm_reader_stack_parent(reader, stack))
        if (is_text(frame.file, own.file) && is_text(frame.function, own.function))
            return true;
    return false;
}

static bool collected(cm_leaks *l, uint64_t generation)
{
    bool full = generation >= CM_FULL_COLLECTION;
    for (size_t i = 0; i < l->loops->count; i++) {
        cm_leaks_loop *here = &l->loop[i];
        uint32_t passed = l->loops->loop[i].passed;
        if (is_over(&l->loops->loop[i])) {
            here->proven |= full;
            continue;
        }
        count_sweep(here, &l->loops->loop[i], generation == 0);
        if (passed - here->swept > here->pause)
            here->pause = passed - here->swept;
        here->swept = passed;
        if (full)
            here->collected = passed;
    }
    return !full || end_ghosts(l);
}

/* A block in a filling container, on any device; 0: the list of all of them begins. */
static void see_filling(cm_leaks *l, uint64_t address)
{
    const cm_replay *replay = l->run->replay;
    for (size_t device = 0; device < replay->device_count && address != 0; device++) {
        const cm_block *block = cm_blocks_find(&replay->blocks, (uint16_t)device, address);
        if (block != NULL && !block->grouped)
            cm_track_filling(l->track, block);
    }
    if (address == 0)
        cm_track_forget_filling(l->track);
}

static bool see_held(cm_leaks *l, uint64_t argument)
{
    uint32_t stack;
    return argument / 2 > UINT32_MAX ||
           (cm_stack_class_of(l->classes, (uint32_t)(argument / 2), &stack) &&
            cm_idmap_put(&l->held_by, stack, argument % 2));
}

static bool see_named(cm_leaks *l, uint64_t argument)
{
    uint32_t stack;
    return argument > UINT32_MAX || (cm_stack_class_of(l->classes, (uint32_t)argument, &stack) &&
                                     cm_idmap_put(&l->named, stack, 1));
}

static int64_t older_than(const cm_leaks *l, const cm_loop *loop)
{
    const cm_cohorts *c = l->run->replay->cohorts;
    const cm_block *block;
    int64_t bytes = 0;
    for (size_t i = 0; i < c->count; i++)
        bytes += c->cohort[i].size * (int64_t)c->cohort[i].count;
    for (size_t at = 0; (block = cm_replay_next_loose(l->run->replay, &at)) != NULL;)
        if (block->step < (int64_t)loop->global[0])
            bytes += block->size;
    return bytes;
}

/* What each group has at the end of the program, before exit handlers free it. */
static bool count_alive(cm_leaks *l)
{
    for (uint32_t i = 0; i < l->loops->count; i++) {
        const cm_block *block;
        const cm_loop *loop = &l->loops->loop[i];
        cm_track_group *g;
        if (!is_over(loop) || cm_loops_trains(l->loops, loop) || l->loop[i].counted)
            continue;
        l->loop[i].counted = true;
        l->loop[i].older_left = older_than(l, loop);
        for (size_t at = 0; (block = cm_replay_next_loose(l->run->replay, &at)) != NULL;) {
            if (block->step < (int64_t)loop->global[0])
                continue;
            if (!cm_track_find(l->track, block, i, &g))
                return false;
            if (g == NULL)
                continue;
            g->alive += block->size;
            uint32_t step = 0;
            if (cm_loops_find(l->loops, block->step, &step) == loop &&
                (g->left_from == 0 || step + 1 < g->left_from))
                g->left_from = step + 1;
        }
    }
    return true;
}

static bool see_mark(cm_leaks *l, const cm_record *record)
{
    const cm_event *e = &record->event;
    switch (e->size) {
    case CM_MARK_FINAL_COLLECT_BEGIN:
        l->asked = true;
        l->final_disabled = e->address == 0;
        l->collecting = true;
        l->collector = record->thread;
        for (size_t i = 0; i < l->loops->count; i++)
            l->loop[i].in_frame |=
                is_over(&l->loops->loop[i]) && is_in_frame(l, &l->loops->loop[i], e->stack);
        return true;
    case CM_MARK_COLLECT_BEGIN:
        l->collecting = true;
        l->collector = record->thread;
        return true;
    case CM_MARK_COLLECT_END:
        l->collecting = l->asked;
        return l->asked || collected(l, e->address);
    case CM_MARK_FINAL_COLLECT_END:
        l->collecting = false;
        l->asked = false;
        for (size_t i = 0; i < l->loops->count; i++)
            l->loop[i].proven |= is_over(&l->loops->loop[i]);
        return true;
    case CM_MARK_FILLING:
        see_filling(l, e->address);
        return true;
    case CM_MARK_HELD:
        return see_held(l, e->address);
    case CM_MARK_NAMED:
        return see_named(l, e->address);
    case CM_MARK_EXIT:
        l->exiting = true;
        l->exit_step = l->track->replay->step;
        return count_alive(l);
    default:
        return true;
    }
}

/* Behind the warm-up, which loads libraries and builds state. */
static void see_sample(cm_leaks *l, const cm_event *e)
{
    const cm_replay *replay = l->run->replay;
    if (e->address == CM_SAMPLE_MALLOC && e->size >= 0 &&
        replay->step >= (int64_t)l->run->steps->count / WARM_UP)
        cm_node_size_see(&l->node_size, cm_nodes_alive(replay->nodes),
                         e->size - cm_replay_host_live(replay));
}

static bool event(void *part, const cm_record *record)
{
    cm_leaks *l = part;
    cm_node_life life;
    switch (record->event.kind) {
    case CM_EV_NODE_FREE:
        return !cm_nodes_destroyed(l->run->replay->nodes, &life) ||
               node_died(l, &life, record->thread);
    case CM_EV_MARK:
        return see_mark(l, record);
    case CM_EV_SAMPLE:
        see_sample(l, &record->event);
        return true;
    case CM_EV_OBJECT_NEW:
    case CM_EV_TICK:
        return cm_loops_event(l->loops, record, l->run->replay->step, l->run->replay->attribution);
    default:
        return true;
    }
}

/* Garbage that would have been alive at the loop's end without cuptimem's collection. */
static bool gather_ghosts(cm_leaks *l, const cm_loop *loop)
{
    uint32_t number = (uint32_t)(loop - l->loops->loop), step;
    cm_leaks_loop *here = &l->loop[number];
    for (size_t i = 0; i < l->ghosts; i++) {
        const cm_leaks_ghost *ghost = &l->ghost[i];
        int32_t born = ghost->is_node ? ghost->node.step : ghost->block.step;
        cm_census_row row;
        if (cm_loops_find(l->loops, born, &step) != loop)
            continue;
        if (!ghost->is_node)
            row = block_row(l, number, &ghost->block, step);
        else if (!node_row(l, &ghost->node, step, &row))
            return false;
        if (!cm_census_add(ghost->is_node ? &here->nodes : &here->blocks, &row) ||
            !cm_census_add(ghost->is_node ? &here->dead_nodes : &here->dead_blocks, &row))
            return false;
    }
    return true;
}

static bool gather(cm_leaks *l, const cm_loop *loop)
{
    uint32_t number = (uint32_t)(loop - l->loops->loop);
    const cm_replay *replay = l->run->replay;
    cm_leaks_loop *here = &l->loop[number];
    const cm_block *block;
    for (size_t at = 0; (block = cm_replay_next_loose(replay, &at)) != NULL;) {
        uint32_t step;
        if (cm_loops_find(l->loops, block->step, &step) != loop)
            continue;
        cm_census_row row = block_row(l, number, block, step);
        if (!cm_census_add(&here->blocks, &row))
            return false;
    }
    here->older = older_than(l, loop);
    gatherer g = {l, loop};
    if (!gather_ghosts(l, loop))
        return false;
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
    l->evaluated |= !cm_loops_trains(l->loops, loop);
    return gather(l, loop);
}

/* --- the end ------------------------------------------------------------------------------- */

/* In versions of PyTorch that do not report the end of nodes, all seem alive. The recorder writes
 * whether they are reported; otherwise a dead node proves it. */
static bool nodes_are_counted(const cm_leaks *l)
{
    const char *nodes = cm_reader_meta(l->run->reader, "nodes");
    return nodes != NULL ? strcmp(nodes, "counted") == 0
                         : cm_nodes_are_destroyed(l->run->replay->nodes);
}

static bool finish(void *part, cm_analysis *out)
{
    cm_leaks *l = part;
    cm_verdicts *v = &l->verdicts;
    v->lost = out->lost_events + out->replaced;
    v->collector_disabled = l->final_disabled;
    if (!cm_loops_finish(l->loops) || !count_alive(l))
        return false;
    for (uint32_t i = 0; i < l->loops->count; i++) {
        if (!is_over(&l->loops->loop[i]))
            continue;
        cm_census_sort(&l->loop[i].dead_blocks);
        cm_census_sort(&l->loop[i].dead_nodes);
        if (!cm_leaks_judge_blocks(l, i) || (nodes_are_counted(l) && !cm_leaks_judge_nodes(l, i)))
            return false;
    }
    if (!cm_causes_find(v, l->classes, l->run->options, out))
        return false;
    out->live_nodes = l->stepped ? l->live_nodes : cm_nodes_alive(l->run->replay->nodes);
    return true;
}

const cm_part_kind cm_part_leaks = {.name = "leaks",
                                    .create = create,
                                    .change = change,
                                    .event = event,
                                    .events =
                                        CM_PART_EVENT(CM_EV_NODE_FREE) | CM_PART_EVENT(CM_EV_MARK) |
                                        CM_PART_EVENT(CM_EV_OBJECT_NEW) |
                                        CM_PART_EVENT(CM_EV_TICK) | CM_PART_EVENT(CM_EV_SAMPLE),
                                    .step = step,
                                    .finish = finish,
                                    .destroy = destroy};
