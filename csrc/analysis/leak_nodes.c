/* Leaks of autograd nodes. A kept graph holds nodes of every forward line of a model; its youngest
 * node identifies what keeps it: in each step, the last-made survivor that no backward ran. (`total
 * = total + loss` is never run, and is in another step than its forward if it follows the
 * optimizer's step.) If all ran, the last of all: an output, a loss. If the stack of another
 * survivor is the last in as many steps, that one. All survivors of the step are charged to that
 * node's stack. One row per such stack, and one per user line for the remaining stacks. */
#include <stdlib.h>

#include "../base/grow.h"
#include "leak_cases.h"

/* The survivor that a step ends with. */
typedef struct end {
    uint64_t sequence;
    uint32_t stack; /* canonical */
    bool known;
} end;

/* One census of nodes by what retains them. */
typedef struct view {
    cm_census births; /* by retaining stack and step */
    cm_census parts;  /* by retaining stack, `step`: the allocating one */
} view;

typedef struct member {
    uint32_t line, stack;
} member;

typedef struct judge {
    cm_leaks *leaks;
    uint32_t number;
    view kept, all;
    cm_leaks_births of_kept, of_all;
    cm_leak_part *part;
    size_t part_capacity;
    cm_census line_kept, line_all, line_parts;
} judge;

static void see_youngest(const cm_census *census, uint32_t steps, end *last)
{
    for (size_t i = 0; i < census->count; i++) {
        const cm_census_row *row = &census->row[i];
        if (row->step >= steps)
            continue;
        end *e = &last[row->step];
        if (!e->known || row->youngest > e->sequence)
            *e = (end){row->youngest, row->group, true};
    }
}

static uint32_t ends_of(const cm_idmap *ends, uint32_t stack)
{
    uint32_t count;
    return cm_idmap_get(ends, stack, &count) ? count : 0;
}

/* The mean of an epoch's kept losses is the youngest in one of its steps: that step ends with its
 * loss, as the others. */
static bool prefer_common(const cm_census *census, uint32_t steps, end *last)
{
    cm_idmap ends = {0};
    bool fine = true;
    for (uint32_t i = 0; fine && i < steps; i++)
        if (last[i].known)
            fine = cm_idmap_put(&ends, last[i].stack, ends_of(&ends, last[i].stack) + 1);
    for (size_t i = 0; fine && i < census->count; i++) {
        const cm_census_row *row = &census->row[i];
        if (row->step >= steps)
            continue;
        end *e = &last[row->step];
        uint32_t own = ends_of(&ends, row->group), others = ends_of(&ends, e->stack);
        bool as_unrun = (row->youngest ^ e->sequence) < CM_LEAKS_NEVER_RAN;
        if (as_unrun && own > 0 && (own > others || (own == others && row->youngest < e->sequence)))
            *e = (end){row->youngest, row->group, true};
    }
    cm_idmap_clear(&ends);
    return fine;
}

/* Nodes of steps from `steps` on are left out. */
static bool see(const cm_census *census, uint32_t steps, view *out)
{
    end *last = calloc((size_t)steps + 1, sizeof *last);
    bool fine = last != NULL;
    if (fine) {
        see_youngest(census, steps, last);
        fine = prefer_common(census, steps, last);
    }
    for (size_t i = 0; fine && i < census->count; i++) {
        cm_census_row row = census->row[i];
        if (row.step >= steps)
            continue;
        row.group = last[row.step].stack;
        fine = cm_census_add(&out->births, &row);
        row.step = census->row[i].group;
        fine = fine && cm_census_add(&out->parts, &row);
    }
    free(last);
    cm_census_sort(&out->births);
    cm_census_sort(&out->parts);
    return fine;
}

static bool collect(cm_census *into, const cm_census *from, const member *of, size_t count)
{
    into->count = 0;
    for (size_t i = 0; i < count; i++) {
        size_t rows;
        const cm_census_row *row = cm_census_find(from, of[i].stack, &rows);
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

/* Old deaths of the stacks that made these nodes. */
static void gather_deaths(const judge *j, const cm_census *parts, cm_growth_deaths *out)
{
    uint32_t at;
    for (size_t i = 0; i < parts->count; i++)
        if (cm_idmap_get(&j->leaks->node_deaths_at,
                         cm_leaks_node_key(j->number, parts->row[i].step), &at))
            cm_growth_add_deaths(out, &j->leaks->node_deaths[at]);
}

static uint32_t largest(const cm_census *births, const member *of, size_t count)
{
    uint32_t found = of[0].stack;
    uint64_t most = 0;
    for (size_t i = 0; i < count; i++) {
        size_t rows;
        uint64_t nodes = 0;
        const cm_census_row *row = cm_census_find(births, of[i].stack, &rows);
        for (size_t k = 0; k < rows; k++)
            nodes += row[k].count;
        if (nodes > most) {
            most = nodes;
            found = of[i].stack;
        }
    }
    return found;
}

/* with_dead: with the nodes that died in a collection after the loop. */
static bool report(judge *j, bool with_dead, const cm_leak *judged, const member *of, size_t count)
{
    cm_leaks *l = j->leaks;
    cm_verdict_row out = {.leak = *judged, .line = of[0].line};
    cm_leak *leak = &out.leak;
    const view *seen = with_dead ? &j->all : &j->kept;
    const cm_leaks_births *births = with_dead ? &j->of_all : &j->of_kept;
    const cm_loop *loop = &l->loops->loop[j->number];
    if (births->count == 0 || !collect(&j->line_parts, &seen->parts, of, count) ||
        !cm_grow((void **)&j->part, &j->part_capacity, j->line_parts.count, sizeof *j->part))
        return births->count == 0;
    int64_t size = cm_node_size_of(&l->node_size);
    uint64_t unrun = 0, all = 0;
    for (size_t i = 0; i < j->line_parts.count; i++) {
        const cm_census_row *row = &j->line_parts.row[i];
        bool ran = !(row->youngest & CM_LEAKS_NEVER_RAN);
        all += row->count;
        unrun += ran ? 0 : row->count;
        j->part[i] = (cm_leak_part){cm_stack_class_example(l->classes, row->step),
                                    row->bytes / CM_LEAKS_NODE_UNIT * size, row->count, !ran};
    }
    leak->bytes = leak->bytes / CM_LEAKS_NODE_UNIT * size;
    leak->bytes_per_step *= (double)size / CM_LEAKS_NODE_UNIT;
    out.holds_inputs = unrun * 2 > all;
    int cpu = cm_replay_find_device(l->run->replay, CM_DEVICE_CPU, -1);
    leak->kind = CM_LEAK_NODES;
    leak->device = cpu >= 0 ? (uint32_t)cpu : CM_LEAK_NO_DEVICE;
    leak->loop = loop->number;
    leak->retained_stack = cm_stack_class_example(l->classes, largest(&seen->births, of, count));
    leak->first_step = loop->global[births->birth[0].step];
    leak->last_step = loop->global[births->birth[births->count - 1].step];
    cm_leaks_spread_births(births, loop->steps, out.born);
    return cm_verdicts_add(&l->verdicts, &out, j->part, j->line_parts.count);
}

static bool had_names(const judge *j)
{
    uint32_t any;
    for (size_t i = 0; i < j->line_parts.count; i++)
        if (cm_idmap_get(&j->leaks->named, j->line_parts.row[i].step, &any)) /* the maker's stack */
            return true;
    return false;
}

/* One retaining stack, or the remaining ones of a line. */
static bool judge_members(judge *j, const member *of, size_t count, bool hints, bool *judged)
{
    cm_leaks *l = j->leaks;
    cm_growth_deaths deaths = {0};
    cm_leak leak = {0};
    if (!collect(&j->line_kept, &j->kept.births, of, count) ||
        !cm_leaks_births_of(&j->of_kept, j->line_kept.row, j->line_kept.count) ||
        !collect(&j->line_all, &j->all.births, of, count) ||
        !cm_leaks_births_of(&j->of_all, j->line_all.row, j->line_all.count) ||
        !collect(&j->line_parts, &j->all.parts, of, count))
        return false;
    gather_deaths(j, &j->line_parts, &deaths);
    bool reachable = !l->loop[j->number].nodes_collected && j->of_all.count > 0 &&
                     cm_leaks_were_swept(l, j->number, j->of_all.birth[0].step);
    const cm_leaks_births *kept = reachable ? &j->of_all : &j->of_kept;
    cm_verdict_case c = {
        .loop = &l->loops->loop[j->number],
        .collected = l->loop[j->number].collected,
        .swept = l->loop[j->number].swept,
        .pause = l->loop[j->number].pause,
        .proven = l->loop[j->number].proven || reachable,
        .late = !l->loop[j->number].in_frame && !l->loop[j->number].nodes_collected,
        .named = had_names(j),
        /* A list may be kept for its epoch, but a graph is useless after its optimizer's step. */
        .kept = {.birth = kept->birth,
                 .births = kept->count,
                 .deaths = &deaths,
                 .any_epoch = cm_loops_trains(l->loops, &l->loops->loop[j->number])},
        .all = j->of_all.birth,
        .all_births = j->of_all.count};
    cm_verdict_class class = cm_verdict_judge(&l->verdicts, &c, &leak);
    *judged = class >= CM_VERDICT_KEPT || (class == CM_VERDICT_HINT && hints);
    bool with_dead = class == CM_VERDICT_GARBAGE || reachable;
    return !*judged || report(j, with_dead, &leak, of, count);
}

static int by_line(const void *left, const void *right)
{
    const member *a = left, *b = right;
    if (a->line != b->line)
        return a->line < b->line ? -1 : 1;
    return a->stack < b->stack ? -1 : a->stack > b->stack;
}

/* Every stack of `from`; a duplicate from the other view does no harm. */
static bool list_members(const judge *j, const cm_census *from, member **list, size_t *count,
                         size_t *capacity)
{
    for (size_t i = 0; i < from->count; i++) {
        uint32_t stack = from->row[i].group;
        if (i > 0 && from->row[i - 1].group == stack)
            continue;
        if (!cm_grow((void **)list, capacity, *count + 1, sizeof **list))
            return false;
        (*list)[(*count)++] = (member){cm_stack_class_line(j->leaks->classes, stack), stack};
    }
    return true;
}

static size_t drop_doubles(member *list, size_t count)
{
    size_t kept = 0;
    for (size_t i = 0; i < count; i++)
        if (kept == 0 || list[kept - 1].stack != list[i].stack)
            list[kept++] = list[i];
    return kept;
}

static bool judge_all(judge *j)
{
    member *list = NULL;
    size_t count = 0, capacity = 0;
    bool judged = false;
    bool fine = list_members(j, &j->kept.births, &list, &count, &capacity) &&
                list_members(j, &j->all.births, &list, &count, &capacity);
    if (fine)
        cm_sort(list, count, sizeof *list, by_line);
    count = fine ? drop_doubles(list, count) : 0;
    for (size_t i = 0, stop; fine && i < count; i = stop) {
        size_t rest = i;
        for (stop = i; fine && stop < count && list[stop].line == list[i].line; stop++) {
            fine = judge_members(j, &list[stop], 1, false, &judged);
            if (!judged)
                list[rest++] = list[stop];
        }
        bool alone = rest - i == stop - i; /* no stack of the line has a row */
        if (fine && rest > i)
            fine = judge_members(j, &list[i], rest - i, alone, &judged);
    }
    free(list);
    return fine;
}

bool cm_leaks_judge_nodes(cm_leaks *leaks, uint32_t loop)
{
    cm_leaks_loop *here = &leaks->loop[loop];
    /* If graphs live into the next step, the last step's prove nothing. */
    uint32_t steps = leaks->loops->loop[loop].steps - here->fleeting_nodes;
    judge j = {.leaks = leaks, .number = loop};
    bool fine = see(&here->nodes, steps, &j.all);
    cm_census_subtract(&here->nodes, &here->dead_nodes);
    fine = fine && see(&here->nodes, steps, &j.kept) && judge_all(&j);
    view *both[] = {&j.kept, &j.all};
    for (size_t i = 0; i < 2; i++) {
        cm_census_clear(&both[i]->births);
        cm_census_clear(&both[i]->parts);
    }
    free(j.part);
    free(j.of_kept.birth);
    free(j.of_all.birth);
    cm_census_clear(&j.line_kept);
    cm_census_clear(&j.line_all);
    cm_census_clear(&j.line_parts);
    return fine;
}
