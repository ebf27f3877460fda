/* From what leaks.c gathered to the report's leaks and suspects.
 *
 * Blocks are judged by folded stack, and those of one user line together where none of its stacks
 * is a leak alone. Nodes of the graph are judged by who retains them: a kept graph holds nodes of
 * every forward line, and the youngest of a step's survivors is the end that the program holds. */
#include <string.h>

#include "grow.h"
#include "leaks.h"

typedef struct results {
    cm_leak *row;
    size_t rows, capacity;
} results;

/* Survivors judged together. */
typedef struct group {
    const cm_leak_age **age; /* by step once sorted */
    size_t ages, capacity;
    uint32_t retaining; /* entry + 1; nodes only */
    bool ages_only;     /* its entries' levels are not its alone */
} group;

typedef struct judge {
    const cm_leak_data *d;
    cm_analysis *out;
    results leaks, suspects;
    cm_leak_part *part;
    size_t parts, part_capacity;
    size_t *begin; /* entry -> its first age; begin[entries] = all */
    cm_birth *birth;
    size_t birth_capacity;
    uint32_t *once, mark; /* once[entry] == mark: this group has it */
} judge;

static const cm_leak_entry *entry_of(const judge *j, const cm_leak_age *age)
{
    return &j->d->entry[age->entry];
}

static bool add(group *g, const cm_leak_age *age)
{
    if (!cm_grow((void **)&g->age, &g->capacity, g->ages + 1, sizeof *g->age))
        return false;
    g->age[g->ages++] = age;
    return true;
}

static int by_step(const void *left, const void *right)
{
    const cm_leak_age *a = *(const cm_leak_age *const *)left;
    const cm_leak_age *b = *(const cm_leak_age *const *)right;
    if (a->step != b->step)
        return a->step < b->step ? -1 : 1;
    return a->entry < b->entry ? -1 : a->entry > b->entry;
}

/* -- one group -------------------------------------------------------------------------------- */

static bool births_of(judge *j, const group *g, bool dead_too, size_t *count)
{
    if (!cm_grow((void **)&j->birth, &j->birth_capacity, g->ages, sizeof *j->birth))
        return false;
    *count = 0;
    for (size_t i = 0; i < g->ages; i++) {
        const cm_leak_age *a = g->age[i];
        int64_t bytes = a->bytes - (dead_too ? 0 : a->dead_bytes);
        uint64_t blocks = a->count - (dead_too ? 0 : a->dead);
        if (blocks == 0 || a->count < a->dead)
            continue;
        if (*count > 0 && j->birth[*count - 1].step == a->step) {
            j->birth[*count - 1].bytes += bytes;
            j->birth[*count - 1].count += blocks;
        } else {
            j->birth[(*count)++] = (cm_birth){a->step, bytes, blocks};
        }
    }
    return true;
}

/* Whether most of what the loop's steps allocate grew at least half as much as this. */
static bool workload_grows(const judge *j, uint32_t loop, uint16_t device, double factor)
{
    size_t all = 0, growing = 0;
    for (size_t i = 0; i < j->d->entries; i++) {
        const cm_leak_entry *e = &j->d->entry[i];
        bool here = e->device == device || device == CM_LEAK_GRAPH;
        if (e->loop != loop || !here || !e->working || e->early <= 0)
            continue;
        all++;
        growing += ((double)e->late / (double)e->early - 1) * 2 >= factor - 1;
    }
    return factor > 1 && growing * 2 > all;
}

typedef struct sum {
    int64_t level[CM_LEVELS], live, alive_bytes, dead_bytes, first;
    uint64_t count, alive, dead;
    bool any_level, evicted;
} sum;

static sum sum_of(judge *j, const group *g)
{
    sum s = {.first = INT64_MAX};
    j->mark++;
    for (size_t i = 0; i < g->ages; i++) {
        const cm_leak_age *a = g->age[i];
        const cm_leak_entry *e = entry_of(j, a);
        s.alive_bytes += a->bytes - a->dead_bytes;
        s.alive += a->count - a->dead;
        s.dead_bytes += a->dead_bytes;
        s.dead += a->dead;
        if (j->once[a->entry] == j->mark)
            continue;
        j->once[a->entry] = j->mark;
        s.live += e->live;
        s.count += e->count;
        s.evicted |= e->evicted;
        if (e->first >= 0 && e->first < s.first)
            s.first = e->first;
        for (size_t k = 0; e->level != NULL && k < CM_LEVELS; k++)
            s.level[k] =
                (s.any_level ? s.level[k] : 0) + (e->level[k] == INT64_MAX ? 0 : e->level[k]);
        s.any_level |= e->level != NULL;
    }
    return s;
}

static int by_part_size(const void *left, const void *right)
{
    const cm_leak_part *a = left, *b = right;
    if (a->bytes != b->bytes)
        return a->bytes < b->bytes ? 1 : -1;
    return a->stack < b->stack ? -1 : a->stack > b->stack;
}

/* What each entry has of the group, largest first. */
static bool parts_of(judge *j, const group *g, bool dead_too, cm_leak *row)
{
    row->first_part = j->parts;
    j->mark++;
    for (size_t i = 0; i < g->ages; i++) {
        const cm_leak_age *a = g->age[i];
        const cm_leak_entry *e = entry_of(j, a);
        int64_t bytes = a->bytes - (dead_too ? 0 : a->dead_bytes);
        uint64_t count = a->count - (dead_too ? 0 : a->dead);
        if (count == 0)
            continue;
        size_t at = j->parts;
        if (j->once[a->entry] == j->mark)
            for (at = row->first_part; at < j->parts && j->part[at].stack != e->stack;)
                at++;
        if (at == j->parts) {
            if (!cm_grow((void **)&j->part, &j->part_capacity, j->parts + 1, sizeof *j->part))
                return false;
            j->part[j->parts++] = (cm_leak_part){.stack = e->stack};
            j->once[a->entry] = j->mark;
        }
        j->part[at].bytes += bytes;
        j->part[at].count += count;
    }
    row->part_count = j->parts - row->first_part;
    if (row->part_count > 1)
        qsort(j->part + row->first_part, row->part_count, sizeof *j->part, by_part_size);
    return true;
}

static bool keep(results *r, const cm_leak *row)
{
    if (!cm_grow((void **)&r->row, &r->capacity, r->rows + 1, sizeof *r->row))
        return false;
    r->row[r->rows++] = *row;
    return true;
}

static bool write_row(judge *j, const group *g, cm_verdict v, bool dead_too, bool cycle)
{
    const cm_leak_entry *e = entry_of(j, g->age[0]);
    const cm_leak_loop *loop = &j->d->loop[e->loop];
    const uint32_t *order = j->d->order + loop->first_of_order;
    sum s = sum_of(j, g);
    cm_leak row = {.kind = e->device == CM_LEAK_GRAPH ? CM_LEAK_NODES : CM_LEAK_BYTES,
                   .signature = v.signature,
                   .confidence = v.confidence,
                   .reason = v.reason,
                   .cycle = cycle,
                   .device = e->device == CM_LEAK_GRAPH ? UINT32_MAX : e->device,
                   .loop = e->loop,
                   .bytes = s.alive_bytes + (dead_too ? s.dead_bytes : 0),
                   .count = s.alive + (dead_too ? s.dead : 0),
                   .bytes_per_step = v.bytes_per_step,
                   .count_per_step = v.count_per_step};
    row.first_step = INT64_MAX;
    row.last_step = -1;
    for (size_t i = 0; i < g->ages; i++) {
        if (!dead_too && g->age[i]->count == g->age[i]->dead)
            continue;
        if (g->age[i]->step < row.first_step)
            row.first_step = g->age[i]->step;
        if (g->age[i]->step > row.last_step)
            row.last_step = g->age[i]->step;
    }
    if (v.signature == CM_LEAK_GROWING && s.first < row.first_step)
        row.first_step = s.first; /* its blocks are young, it is not */
    row.first_step = order[row.first_step];
    row.last_step = order[row.last_step];
    if (!parts_of(j, g, dead_too, &row))
        return false;
    row.stack = j->part[row.first_part].stack;
    if (g->retaining != 0) {
        row.retained_stack = j->d->entry[g->retaining - 1].stack;
        /* Of equals the retaining line: it is the one to look at. */
        for (size_t i = 0; i < row.part_count; i++)
            if (j->part[row.first_part + i].stack == row.retained_stack &&
                j->part[row.first_part + i].bytes == j->part[row.first_part].bytes)
                row.stack = row.retained_stack;
    }
    /* A free that was lost looks like something that stays. */
    uint64_t missing = j->out->lost_events + j->out->replaced;
    if (row.reason == CM_SUSPECT_NOT && missing > 0 && missing >= row.count) {
        row.reason = CM_SUSPECT_LOST;
        row.confidence = CM_LEAK_LOW;
    }
    return keep(row.reason == CM_SUSPECT_NOT ? &j->leaks : &j->suspects, &row);
}

typedef enum wanted { LEAKS = 1, SUSPECTS = 2 } wanted;

/* The workload is looked at only where it matters: it takes a walk over all entries. */
static cm_verdict judge_growth(const judge *j, const group *g, const cm_leak_entry *e,
                               cm_growth *growth)
{
    growth->workload_grows = false;
    cm_verdict v = cm_growth_judge(growth);
    if (!v.found || v.signature != CM_LEAK_GROWING)
        return v;
    if (g->ages_only)
        return (cm_verdict){0};
    growth->workload_grows = workload_grows(j, e->loop, e->device, cm_growth_factor(growth));
    return cm_growth_judge(growth);
}

/* Judges a group and writes it down if it is of the wanted sort. *found: it is. */
static bool consider(judge *j, group *g, unsigned want, bool *found)
{
    *found = false;
    if (g->ages == 0)
        return true;
    if (g->ages > 1)
        qsort(g->age, g->ages, sizeof *g->age, by_step);
    const cm_leak_entry *e = entry_of(j, g->age[0]);
    const cm_leak_loop *loop = &j->d->loop[e->loop];
    sum s = sum_of(j, g);
    cm_growth growth = {.steps = loop->steps, .evicted = s.evicted, .epochs = loop->epochs};
    growth.level = s.any_level ? s.level : NULL;
    /* A level that is mostly garbage says nothing about what is held. */
    const int64_t *level = growth.level;
    if (s.dead_bytes * 2 >= s.live)
        growth.level = NULL;
    if (!births_of(j, g, false, &growth.births))
        return false;
    growth.birth = j->birth;
    cm_verdict v = judge_growth(j, g, e, &growth);
    bool dead_too = false, cycle = false;
    if (s.dead > 0 && !(v.found && v.reason == CM_SUSPECT_NOT)) {
        growth.level = level;
        if (!births_of(j, g, true, &growth.births))
            return false;
        cm_verdict all = judge_growth(j, g, e, &growth);
        if (all.found && all.reason == CM_SUSPECT_NOT) {
            v = all;
            dead_too = true;
            cycle = !j->d->final_automatic && !loop->collected_late;
            if (!cycle) {
                v.reason = CM_SUSPECT_GARBAGE;
                v.confidence = CM_LEAK_LOW;
            }
        }
    }
    if (!v.found || !(want & (v.reason == CM_SUSPECT_NOT ? LEAKS : SUSPECTS)))
        return true;
    *found = true;
    return write_row(j, g, v, dead_too, cycle);
}

/* -- blocks ----------------------------------------------------------------------------------- */

static bool add_entry(const judge *j, group *g, size_t entry)
{
    for (size_t i = j->begin[entry]; i < j->begin[entry + 1]; i++)
        if (!add(g, &j->d->age[i]))
            return false;
    return true;
}

typedef struct line_of {
    uint64_t key; /* loop, device, line */
    uint32_t entry;
} line_of;

static int by_key(const void *left, const void *right)
{
    const line_of *a = left, *b = right;
    if (a->key != b->key)
        return a->key < b->key ? -1 : 1;
    return a->entry < b->entry ? -1 : a->entry > b->entry;
}

/* The stacks of one user line together, where none is a leak alone; else its stacks' suspects. */
static bool judge_line(judge *j, const line_of *line, size_t count)
{
    bool found = false;
    group g = {0};
    bool fine = true;
    if (count > 1 && (uint32_t)line->key != 0) {
        for (size_t i = 0; fine && i < count; i++)
            fine = add_entry(j, &g, line[i].entry);
        fine = fine && consider(j, &g, LEAKS, &found);
    }
    for (size_t i = 0; fine && !found && i < count; i++) {
        bool suspect;
        g.ages = 0;
        fine = add_entry(j, &g, line[i].entry) && consider(j, &g, SUSPECTS, &suspect);
    }
    free(g.age);
    return fine;
}

static bool judge_blocks(judge *j)
{
    group g = {0};
    line_of *rest = NULL;
    size_t count = 0, capacity = 0;
    bool fine = true;
    for (size_t i = 0; fine && i < j->d->entries; i++) {
        const cm_leak_entry *e = &j->d->entry[i];
        bool found;
        if (e->device == CM_LEAK_GRAPH || j->begin[i] == j->begin[i + 1] || e->fold == CM_FOLD_LOST)
            continue;
        g.ages = 0;
        fine = add_entry(j, &g, i) && consider(j, &g, LEAKS, &found);
        if (!fine || found)
            continue;
        fine = cm_grow((void **)&rest, &capacity, count + 1, sizeof *rest);
        if (fine)
            rest[count++] = (line_of){(uint64_t)e->loop << 48 | (uint64_t)e->device << 32 |
                                          cm_folds_line(j->d->folds, e->fold),
                                      (uint32_t)i};
    }
    if (fine && count > 1)
        qsort(rest, count, sizeof *rest, by_key);
    for (size_t i = 0; fine && i < count;) {
        size_t end = i + 1;
        while (end < count && rest[end].key == rest[i].key)
            end++;
        fine = judge_line(j, rest + i, end - i);
        i = end;
    }
    free(rest);
    free(g.age);
    return fine;
}

/* -- nodes ------------------------------------------------------------------------------------ */

static bool is_node_of(const judge *j, const cm_leak_age *a, uint32_t loop)
{
    const cm_leak_entry *e = entry_of(j, a);
    return e->device == CM_LEAK_GRAPH && e->loop == loop && a->count > 0;
}

/* The entry with which an iteration's kept graph begins: of those that survive in at least half of
 * the steps that anything survives in, the one that came first; NO_ENTRY: nothing is regular. */
enum { NO_ENTRY = UINT32_MAX };

static uint32_t find_opening(const judge *j, uint32_t loop, const uint32_t *youngest)
{
    size_t alive = 0;
    for (int64_t s = 0; s < j->d->loop[loop].steps; s++)
        alive += youngest[s] != 0;
    uint32_t opening = NO_ENTRY;
    const cm_leak_age *first = NULL;
    for (size_t i = 0; i < j->d->entries; i++) {
        size_t begin = j->begin[i], steps = 0;
        const cm_leak_age *a = &j->d->age[begin];
        for (size_t k = begin; k < j->begin[i + 1]; k++)
            steps += is_node_of(j, &j->d->age[k], loop);
        if (steps * 2 < alive || steps < 2)
            continue;
        if (first == NULL || a->step < first->step ||
            (a->step == first->step && a->oldest < first->oldest)) {
            first = a;
            opening = (uint32_t)i;
        }
    }
    return opening;
}

/* Of each step of a loop the entry + 1 of the node that its survivors are held by: the last one
 * before the next iteration begins. Where a step ends is no matter: `total = total + loss` behind
 * the optimizer's step belongs to what came before it. NULL: out of memory. */
static uint32_t *retaining_of(const judge *j, uint32_t loop)
{
    int64_t steps = j->d->loop[loop].steps;
    uint32_t *youngest = calloc((size_t)steps + 1, sizeof *youngest);
    uint32_t *before = calloc((size_t)steps + 1, sizeof *before);
    uint64_t *mark = calloc((size_t)steps + 1, sizeof *mark);
    uint64_t *start = malloc(((size_t)steps + 1) * sizeof *start);
    if (youngest == NULL || before == NULL || mark == NULL || start == NULL)
        goto done;
    for (size_t i = 0; i < j->d->ages; i++) {
        const cm_leak_age *a = &j->d->age[i];
        if (is_node_of(j, a, loop) && (youngest[a->step] == 0 || a->youngest > mark[a->step])) {
            youngest[a->step] = a->entry + 1;
            mark[a->step] = a->youngest;
        }
    }
    uint32_t opening = find_opening(j, loop, youngest);
    if (opening == NO_ENTRY)
        goto done;
    memset(start, 0, ((size_t)steps + 1) * sizeof *start); /* 0: no iteration begins in the step */
    memset(mark, 0, ((size_t)steps + 1) * sizeof *mark);
    for (size_t k = j->begin[opening]; k < j->begin[opening + 1]; k++)
        start[j->d->age[k].step] = j->d->age[k].oldest + 1;
    /* In the step itself, but before the iteration begins. */
    for (size_t i = 0; i < j->d->ages; i++) {
        const cm_leak_age *a = &j->d->age[i];
        if (is_node_of(j, a, loop) && a->oldest + 1 < start[a->step] &&
            a->oldest + 1 > mark[a->step]) {
            before[a->step] = a->entry + 1;
            mark[a->step] = a->oldest + 1;
        }
    }
    uint32_t last = 0, holder = 0;
    for (int64_t s = 0; s < steps; s++) {
        if (start[s] != 0 && (before[s] != 0 || last != 0))
            holder = before[s] != 0 ? before[s] : last;
        if (youngest[s] == 0)
            continue;
        last = youngest[s];
        youngest[s] = holder != 0 ? holder : youngest[s];
        if (holder != 0 && s > 0 && before[0] == 0) {
            before[0] = holder; /* the first iteration's end is known by the second */
            for (int64_t t = 0; t < s; t++)
                youngest[t] = youngest[t] != 0 ? holder : 0;
        }
    }
done:
    free(before);
    free(mark);
    free(start);
    if (before == NULL || mark == NULL || start == NULL) {
        free(youngest);
        return NULL;
    }
    return youngest;
}

typedef struct retained {
    uint32_t key; /* the retaining entry's fold or user line */
    uint32_t age;
} retained;

static int by_retaining(const void *left, const void *right)
{
    const retained *a = left, *b = right;
    if (a->key != b->key)
        return a->key < b->key ? -1 : 1;
    return a->age < b->age ? -1 : a->age > b->age;
}

/* A kept graph by who retains it: by stack, or by user line. */
static bool judge_retained(judge *j, uint32_t loop, const uint32_t *who, bool by_line,
                           unsigned want, bool *any)
{
    retained *all = NULL;
    size_t count = 0, capacity = 0;
    group g = {.ages_only = true};
    bool fine = true;
    for (size_t i = 0; fine && i < j->d->ages; i++) {
        const cm_leak_age *a = &j->d->age[i];
        const cm_leak_entry *e = entry_of(j, a);
        if (e->device != CM_LEAK_GRAPH || e->loop != loop || who[a->step] == 0)
            continue;
        uint32_t fold = j->d->entry[who[a->step] - 1].fold;
        fine = cm_grow((void **)&all, &capacity, count + 1, sizeof *all);
        if (fine)
            all[count++] =
                (retained){by_line ? cm_folds_line(j->d->folds, fold) : fold, (uint32_t)i};
    }
    if (fine && count > 1)
        qsort(all, count, sizeof *all, by_retaining);
    for (size_t i = 0; fine && i < count;) {
        size_t end = i;
        g.ages = 0;
        for (; fine && end < count && all[end].key == all[i].key; end++)
            fine = add(&g, &j->d->age[all[end].age]);
        g.retaining = who[j->d->age[all[i].age].step];
        bool found = false;
        fine = fine && (by_line && all[i].key == 0 ? true : consider(j, &g, want, &found));
        *any |= found;
        i = end;
    }
    free(all);
    free(g.age);
    return fine;
}

/* A graph that is built anew in every step, larger each time: all of its lines as one. */
static bool judge_rebuilt(judge *j, uint32_t loop, const uint32_t *who)
{
    group g = {0};
    bool fine = true, found;
    for (size_t i = 0; fine && i < j->d->ages; i++) {
        const cm_leak_age *a = &j->d->age[i];
        const cm_leak_entry *e = entry_of(j, a);
        if (e->device == CM_LEAK_GRAPH && e->loop == loop)
            fine = add(&g, a);
        if (e->device == CM_LEAK_GRAPH && e->loop == loop && who[a->step] != 0)
            g.retaining = who[a->step];
    }
    fine = fine && consider(j, &g, LEAKS, &found);
    free(g.age);
    return fine;
}

static bool judge_nodes(judge *j)
{
    for (uint32_t loop = 0; loop < j->d->loops; loop++) {
        uint32_t *who = retaining_of(j, loop);
        bool any = false;
        bool fine = who != NULL && judge_retained(j, loop, who, false, LEAKS, &any) &&
                    (any || judge_retained(j, loop, who, true, LEAKS, &any)) &&
                    (any || judge_rebuilt(j, loop, who)) &&
                    (any || judge_retained(j, loop, who, false, SUSPECTS, &any));
        free(who);
        if (!fine)
            return false;
    }
    return true;
}

/* -- all -------------------------------------------------------------------------------------- */

static int by_entry(const void *left, const void *right)
{
    const cm_leak_age *a = left, *b = right;
    if (a->entry != b->entry)
        return a->entry < b->entry ? -1 : 1;
    return a->step < b->step ? -1 : a->step > b->step;
}

static int by_rate(const void *left, const void *right)
{
    const cm_leak *a = left, *b = right;
    if (a->bytes_per_step != b->bytes_per_step)
        return a->bytes_per_step < b->bytes_per_step ? 1 : -1;
    if (a->bytes != b->bytes)
        return a->bytes < b->bytes ? 1 : -1;
    return a->stack < b->stack ? -1 : a->stack > b->stack;
}

static bool index_ages(judge *j, cm_leak_data *d)
{
    if (d->ages > 1)
        qsort(d->age, d->ages, sizeof *d->age, by_entry);
    j->begin = calloc(d->entries + 2, sizeof *j->begin);
    j->once = calloc(d->entries + 1, sizeof *j->once);
    if (j->begin == NULL || j->once == NULL)
        return false;
    for (size_t i = 0; i < d->ages; i++)
        j->begin[d->age[i].entry + 1]++;
    for (size_t i = 0; i < d->entries; i++)
        j->begin[i + 1] += j->begin[i];
    return true;
}

bool cm_leaks_judge(cm_leak_data *d, cm_analysis *out)
{
    judge j = {.d = d, .out = out};
    bool fine = index_ages(&j, d) && judge_blocks(&j) && judge_nodes(&j);
    free(j.begin);
    free(j.once);
    free(j.birth);
    if (fine && j.leaks.rows > 1)
        qsort(j.leaks.row, j.leaks.rows, sizeof *j.leaks.row, by_rate);
    if (fine && j.suspects.rows > 1)
        qsort(j.suspects.row, j.suspects.rows, sizeof *j.suspects.row, by_rate);
    out->leaks = j.leaks.row;
    out->leak_count = j.leaks.rows;
    out->suspects = j.suspects.row;
    out->suspect_count = j.suspects.rows;
    out->leak_parts = j.part;
    return fine;
}
