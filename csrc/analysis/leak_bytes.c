/* Leaks of blocks: one case per canonical stack, and one per user line for the remaining stacks. */
#include <stdlib.h>
#include <string.h>

#include "../base/grow.h"
#include "leak_cases.h"

typedef struct judge {
    cm_leaks *leaks;
    uint32_t number; /* of the loop */
    const cm_census *all;
    const cm_census *kept; /* without deaths in a later collection */
    cm_leaks_births of_kept, of_all;
    cm_leak_part *part;
    size_t part_capacity;
    bool *line_judged; /* by line: one of its stacks has its own row */
    bool reachable;    /* of the current case */
    cm_census line_kept, line_all;
} judge;

static bool copy_census(const cm_census *from, cm_census *to)
{
    for (size_t i = 0; i < from->count; i++)
        if (!cm_census_add(to, &from->row[i]))
            return false;
    return true;
}

/* Whether all of it survived collections in the loop, so that none was garbage. */
static bool was_reachable(const judge *j, const uint32_t *group, size_t groups)
{
    const cm_leaks *l = j->leaks;
    for (size_t i = 0; i < groups; i++)
        if (l->track->group[group[i]].collected)
            return false;
    return j->of_all.count > 0 && cm_leaks_were_swept(l, j->number, j->of_all.birth[0].step);
}

static bool found_garbage(const judge *j, const uint32_t *group, size_t groups)
{
    bool found = j->leaks->loop[j->number].in_frame;
    for (size_t i = 0; i < groups && !found; i++)
        found = j->leaks->track->group[group[i]].collected;
    return found;
}

static bool had_names(const judge *j, const uint32_t *group, size_t groups)
{
    uint32_t any;
    for (size_t i = 0; i < groups; i++)
        if (cm_idmap_get(&j->leaks->named, j->leaks->track->group[group[i]].stack, &any))
            return true;
    return false;
}

static cm_verdict_class judge_growth(judge *j, const cm_growth_case *growth, const uint32_t *group,
                                     size_t groups, cm_leak *leak)
{
    cm_leaks *l = j->leaks;
    j->reachable = was_reachable(j, group, groups);
    cm_verdict_case c = {.loop = &l->loops->loop[j->number],
                         .collected = l->loop[j->number].collected,
                         .swept = l->loop[j->number].swept,
                         .pause = l->loop[j->number].pause,
                         .proven = l->loop[j->number].proven || j->reachable,
                         .late = !found_garbage(j, group, groups),
                         .named = had_names(j, group, groups),
                         .kept = *growth,
                         .all = j->of_all.birth,
                         .all_births = j->of_all.count};
    c.kept.birth = j->reachable ? j->of_all.birth : j->of_kept.birth;
    c.kept.births = j->reachable ? j->of_all.count : j->of_kept.count;
    return cm_verdict_judge(&l->verdicts, &c, leak);
}

/* Adds a row for these groups of one line. */
static bool report(judge *j, cm_verdict_class class, const cm_leak *judged, const uint32_t *group,
                   size_t groups)
{
    cm_leaks *l = j->leaks;
    cm_verdict_row out = {.leak = *judged, .first_position = UINT64_MAX};
    cm_leak *leak = &out.leak;
    bool all = class == CM_VERDICT_GARBAGE || j->reachable;
    const cm_leaks_births *births = all ? &j->of_all : &j->of_kept;
    const cm_census *census = all ? j->all : j->kept;
    const cm_loop *loop = &l->loops->loop[j->number];
    bool proven = leak->signature == CM_LEAK_SURVIVORS;
    uint32_t first = UINT32_MAX, last = 0;
    int64_t largest = 0;
    size_t parts = 0;
    if (!cm_grow((void **)&j->part, &j->part_capacity, groups, sizeof *j->part))
        return false;
    for (size_t i = 0; i < groups; i++) {
        const cm_track_group *g = &l->track->group[group[i]];
        size_t rows;
        const cm_census_row *row = cm_census_find(census, group[i], &rows);
        if (proven && g->fleeting && rows > 0 && row[rows - 1].step + 1 == loop->steps)
            rows--; /* they may die in the next step, like others of the group */
        if (rows == 0)
            continue;
        cm_leak_part *part = &j->part[parts++];
        *part = (cm_leak_part){.stack = cm_stack_class_example(l->classes, g->stack)};
        for (size_t k = 0; k < rows; k++) {
            part->bytes += row[k].bytes;
            part->count += row[k].count;
        }
        /* A live set of young blocks began long before these. */
        uint32_t begin = leak->signature == CM_LEAK_GROWING ? g->first : row[0].step;
        first = begin < first ? begin : first;
        last = row[rows - 1].step > last ? row[rows - 1].step : last;
        leak->device = g->device;
        if (part->bytes > largest)
            out.first_live = g->first_live;
        largest = part->bytes > largest ? part->bytes : largest;
        if (g->position < out.first_position)
            out.first_position = g->position;
    }
    if (parts == 0)
        return true;
    leak->backward = true;
    for (size_t i = 0; i < groups; i++)
        leak->backward &= l->track->group[group[i]].backward;
    leak->kind = CM_LEAK_BYTES;
    leak->loop = loop->number;
    leak->first_step = loop->global[first];
    leak->last_step = loop->global[last];
    out.line = cm_stack_class_line(l->classes, l->track->group[group[0]].stack);
    cm_leaks_spread_births(births, loop->steps, out.born);
    return cm_verdicts_add(&l->verdicts, &out, j->part, parts);
}

static bool is_curriculum(judge *j, const cm_leak *leak, const uint32_t *group, size_t groups)
{
    return leak->signature == CM_LEAK_GROWING &&
           cm_track_is_curriculum(j->leaks->track, group, groups);
}

/* Whether the line refills a buffer filled before the first step: new blocks replace the old ones,
 * and are not replaced yet. */
static bool refills(const judge *j, uint32_t line)
{
    double freed = j->leaks->track->line[line].setup_freed, alive = 0;
    for (size_t i = 0; i < j->of_all.count; i++)
        alive += (double)j->of_all.birth[i].bytes;
    return freed > 0 && freed * 2 >= alive;
}

/* Whether most of it is in containers with room. */
static bool is_filling(const judge *j, const uint32_t *group, size_t groups)
{
    int64_t inside = 0, all = 0;
    for (size_t i = 0; i < groups; i++) {
        inside += j->leaks->track->group[group[i]].filling;
        all += j->leaks->track->group[group[i]].filling_of;
    }
    return inside * 2 > all;
}

static void doubt_by_bound(const judge *j, const uint32_t *group, size_t groups, cm_leak *leak)
{
    if (leak->reason != CM_SUSPECT_NOT || !is_filling(j, group, groups))
        return;
    leak->reason = CM_SUSPECT_FILLING;
    leak->confidence = CM_LEAK_LOW;
}

/* Whether the program freed nearly all of it behind the loop and went on: other memory is still
 * there, or more was allocated. Otherwise the function that has everything may have returned. */
static bool has_ended(const judge *j, const uint32_t *group, size_t groups)
{
    const cm_leaks_loop *here = &j->leaks->loop[j->number];
    int64_t before = 0, alive = 0;
    bool goes_on = here->older > 0 && here->older_left * 2 >= here->older;
    for (size_t i = 0; i < groups; i++) {
        const cm_track_group *g = &j->leaks->track->group[group[i]];
        before += g->series.live;
        alive += g->alive;
        goes_on |= g->died < j->leaks->born;
    }
    return goes_on && alive * 10 <= before;
}

/* Whether one of its runs begins in these steps: the program did something else before, or the data
 * began anew. */
static bool runs_again(const cm_loop *loop, uint32_t from, uint32_t until)
{
    for (uint32_t i = from; i <= until; i++)
        if (loop->global[i] != loop->global[i - 1] + 1)
            return true;
    for (size_t i = 0; i < loop->epochs; i++)
        if (loop->epoch[i] >= from && loop->epoch[i] <= until)
            return true;
    return false;
}

/* What the program freed behind the loop, if all of it is older than all that is left: a result
 * that the same evaluation, run once more, has replaced. Within one run a list may be trimmed so.
 */
static cm_suspect_reason is_replaced(const judge *j, const uint32_t *group, size_t groups)
{
    const cm_loop *loop = &j->leaks->loops->loop[j->number];
    int64_t before = 0, freed = 0;
    uint32_t until = 0, from = UINT32_MAX;
    for (size_t i = 0; i < groups; i++) {
        const cm_track_group *g = &j->leaks->track->group[group[i]];
        before += g->series.live;
        freed += g->freed;
        until = g->freed_until > until ? g->freed_until : until;
        from = g->left_from > 0 && g->left_from < from ? g->left_from : from;
    }
    if (from == UINT32_MAX || until == 0 || until >= from || freed * CM_LEAKS_REPLACED < before)
        return CM_SUSPECT_NOT;
    if (runs_again(loop, from, loop->steps - 1))
        return CM_SUSPECT_NOT; /* several runs are kept */
    if (runs_again(loop, until, from - 1))
        return CM_SUSPECT_STOPPED;
    return runs_again(loop, 1, loop->steps - 1) ? CM_SUSPECT_NOT : CM_SUSPECT_PASSED;
}

/* Whether the loop ran once, without a break, and others went on: an index or features that a data
 * set's one pass made, or a list that the next pass would add to. */
static bool has_passed(const judge *j)
{
    const cm_loops *loops = j->leaks->loops;
    const cm_loop *loop = &loops->loop[j->number];
    uint32_t first = loop->global[0], last = loop->global[loop->steps - 1];
    return last - first + 1 == loop->steps && loops->steps->count - last > CM_LOOP_STEPS_MIN;
}

static bool is_carried(const judge *j, const uint32_t *group, size_t groups)
{
    bool carried = false;
    for (size_t i = 0; i < groups; i++) {
        uint32_t by_variable, stack = j->leaks->track->group[group[i]].stack;
        if (!cm_idmap_get(&j->leaks->held_by, stack, &by_variable))
            continue;
        if (!by_variable)
            return false;
        carried = true;
    }
    return carried;
}

/* What grows while one answer is generated (a cache of keys and values) belongs to that answer. */
static void doubt_by_call(const judge *j, const uint32_t *group, size_t groups, cm_leak *leak)
{
    const cm_loops *loops = j->leaks->loops;
    if (leak->reason != CM_SUSPECT_NOT || cm_loops_trains(loops, &loops->loop[j->number]))
        return;
    cm_suspect_reason replaced = is_replaced(j, group, groups);
    if (has_ended(j, group, groups))
        leak->reason = CM_SUSPECT_ENDED;
    else if (replaced != CM_SUSPECT_NOT || has_passed(j))
        leak->reason = replaced != CM_SUSPECT_NOT ? replaced : CM_SUSPECT_PASSED;
    else if (leak->signature == CM_LEAK_GROWING && is_carried(j, group, groups))
        leak->reason = CM_SUSPECT_CARRIED;
    else
        return;
    leak->confidence = CM_LEAK_LOW;
}

static bool judge_stack(judge *j, uint32_t group, bool *judged)
{
    const cm_track_group *g = &j->leaks->track->group[group];
    cm_growth_case growth = {.deaths = g->deaths, .fleeting = g->fleeting, .low = g->series.low};
    cm_leak leak = {0};
    size_t rows;
    const cm_census_row *row = cm_census_find(j->kept, group, &rows);
    if (!cm_leaks_births_of(&j->of_kept, row, rows))
        return false;
    row = cm_census_find(j->all, group, &rows);
    if (!cm_leaks_births_of(&j->of_all, row, rows))
        return false;
    cm_verdict_class class = judge_growth(j, &growth, &group, 1, &leak);
    *judged = class >= CM_VERDICT_KEPT;
    if (!*judged || is_curriculum(j, &leak, &group, 1) || refills(j, g->line))
        return true;
    j->line_judged[g->line] = true;
    doubt_by_bound(j, &group, 1, &leak);
    doubt_by_call(j, &group, 1, &leak);
    return report(j, class, &leak, &group, 1);
}

static bool gather_line(cm_census *into, const cm_census *from, const uint32_t *group,
                        size_t groups)
{
    into->count = 0;
    for (size_t i = 0; i < groups; i++) {
        size_t rows;
        const cm_census_row *row = cm_census_find(from, group[i], &rows);
        for (size_t k = 0; k < rows; k++) {
            cm_census_row copy = row[k];
            copy.group = 0;
            if (!cm_census_add(into, &copy))
                return false;
        }
    }
    cm_census_sort(into);
    return true;
}

/* The stacks of one line without a row. */
static bool judge_line(judge *j, const uint32_t *group, size_t groups)
{
    const cm_track *track = j->leaks->track;
    uint32_t line = track->group[group[0]].line;
    cm_growth_deaths deaths = {0};
    cm_growth_case growth = {.deaths = &deaths};
    cm_leak leak = {0};
    for (size_t i = 0; i < groups; i++) {
        const cm_track_group *g = &track->group[group[i]];
        growth.fleeting |= g->fleeting;
        if (g->deaths != NULL)
            cm_growth_add_deaths(&deaths, g->deaths);
    }
    if (!j->line_judged[line])
        growth.low = track->line[line].series.low;
    if (!gather_line(&j->line_kept, j->kept, group, groups) ||
        !cm_leaks_births_of(&j->of_kept, j->line_kept.row, j->line_kept.count) ||
        !gather_line(&j->line_all, j->all, group, groups) ||
        !cm_leaks_births_of(&j->of_all, j->line_all.row, j->line_all.count))
        return false;
    cm_verdict_class class = judge_growth(j, &growth, group, groups, &leak);
    /* Beside a row of the same line a hint adds nothing. */
    if (class == CM_VERDICT_NOTHING || (class == CM_VERDICT_HINT && j->line_judged[line]) ||
        is_curriculum(j, &leak, group, groups) || refills(j, line))
        return true;
    doubt_by_bound(j, group, groups, &leak);
    doubt_by_call(j, group, groups, &leak);
    return report(j, class, &leak, group, groups);
}

typedef struct member {
    uint32_t line, group;
} member;

static int by_line(const void *left, const void *right)
{
    const member *a = left, *b = right;
    if (a->line != b->line)
        return a->line < b->line ? -1 : 1;
    return a->group < b->group ? -1 : a->group > b->group;
}

static bool judge_all(judge *j)
{
    member *rest = NULL;
    uint32_t *group = NULL;
    size_t count = 0, capacity = 0, group_capacity = 0;
    bool fine = true, judged;
    for (size_t i = 0; fine && i < j->all->count; i++) {
        uint32_t now = j->all->row[i].group;
        if (i > 0 && j->all->row[i - 1].group == now)
            continue;
        fine = judge_stack(j, now, &judged);
        if (!fine || judged)
            continue;
        fine = cm_grow((void **)&rest, &capacity, count + 1, sizeof *rest);
        if (fine)
            rest[count++] = (member){j->leaks->track->group[now].line, now};
    }
    if (fine)
        cm_sort(rest, count, sizeof *rest, by_line);
    for (size_t i = 0, end; fine && i < count; i = end) {
        size_t groups = 0;
        for (end = i; fine && end < count && rest[end].line == rest[i].line; end++) {
            fine = cm_grow((void **)&group, &group_capacity, groups + 1, sizeof *group);
            if (fine)
                group[groups++] = rest[end].group;
        }
        fine = fine && judge_line(j, group, groups);
    }
    free(rest);
    free(group);
    return fine;
}

bool cm_leaks_judge_blocks(cm_leaks *leaks, uint32_t loop)
{
    cm_leaks_loop *here = &leaks->loop[loop];
    cm_census kept = {0};
    judge j = {.leaks = leaks, .number = loop, .all = &here->blocks, .kept = &here->blocks};
    bool fine = true;
    if (here->dead_blocks.count > 0) {
        fine = copy_census(&here->blocks, &kept);
        if (fine)
            cm_census_subtract(&kept, &here->dead_blocks);
        j.kept = &kept;
    }
    j.line_judged = calloc(leaks->track->lines + 1, sizeof *j.line_judged);
    fine = fine && j.line_judged != NULL && judge_all(&j);
    free(j.line_judged);
    free(j.part);
    free(j.of_kept.birth);
    free(j.of_all.birth);
    cm_census_clear(&kept);
    cm_census_clear(&j.line_kept);
    cm_census_clear(&j.line_all);
    return fine;
}
