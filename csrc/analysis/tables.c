/* A line's whole life (but for peak_above_start.c): what was alive at both ends of the recording or
 * of one step, what was allocated, what was freed in the step that made it. Each by contributor,
 * and only where asked. */
#include <string.h>

#include "contributors.h"
#include "../base/grow.h"
#include "parts.h"

typedef struct sum {
    int64_t bytes;
    uint64_t count;
} sum;

typedef struct table {
    sum *of_origin;
    size_t capacity;
    sum folded[CM_DEVICES_MAX]; /* by device: only counted, of unknown stacks */
} table;

typedef struct tables {
    const cm_run *run;
    uint32_t wanted;
    table table[CM_TABLES];
} tables;

static bool is_wanted(const tables *t, cm_table_kind kind)
{
    return t->wanted & CM_TABLE(kind);
}

static bool add(table *t, uint32_t origin, int64_t bytes, uint64_t count)
{
    size_t before = t->capacity;
    if (!cm_grow((void **)&t->of_origin, &t->capacity, (size_t)origin + 1, sizeof *t->of_origin))
        return false;
    memset(t->of_origin + before, 0, (t->capacity - before) * sizeof *t->of_origin);
    t->of_origin[origin].bytes += bytes;
    t->of_origin[origin].count += count;
    return true;
}

static bool add_live(tables *t, cm_table_kind kind)
{
    const cm_blocks *blocks = &t->run->replay->blocks;
    if (!is_wanted(t, kind))
        return true;
    for (size_t i = 0; i < blocks->slots; i++)
        if (blocks->slot[i].alive &&
            !add(&t->table[kind], blocks->slot[i].origin, blocks->slot[i].size, 1))
            return false;
    return true;
}

static void *create(const cm_run *run)
{
    tables *t = calloc(1, sizeof *t);
    if (t == NULL)
        return NULL;
    t->run = run;
    t->wanted = run->options->tables;
    if (!run->options->of_step && !add_live(t, CM_TABLE_START)) {
        cm_part_tables.destroy(t);
        return NULL;
    }
    return t;
}

/* Whether what happens now is in a step; what follows the last one is in none. */
static bool in_step(const tables *t)
{
    return t->run->replay->step >= 0 && (uint64_t)t->run->replay->step < t->run->steps->count;
}

static bool is_asked(const tables *t)
{
    return !t->run->options->of_step || t->run->replay->step == t->run->options->step;
}

static bool born(tables *t, const cm_change *c)
{
    static const cm_table_kind kinds[] = {CM_TABLE_ALLOCATED, CM_TABLE_STEPPED};
    for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++)
        if (is_wanted(t, kinds[i]) && (kinds[i] == CM_TABLE_ALLOCATED || in_step(t)) &&
            !add(&t->table[kinds[i]], c->block.origin, c->bytes, c->event))
            return false;
    return true;
}

/* A block that a walk found has no step: it was made before, whenever it was seen. */
static bool died(tables *t, const cm_change *c)
{
    if (!is_wanted(t, CM_TABLE_TEMPORARY) || !in_step(t) || c->block.step != t->run->replay->step)
        return true;
    return add(&t->table[CM_TABLE_TEMPORARY], c->block.origin, -c->bytes, 1);
}

static bool change(void *part, const cm_change *c)
{
    tables *t = part;
    if (t->wanted == 0 || !is_asked(t))
        return true;
    return c->bytes > 0 ? born(t, c) : died(t, c);
}

/* They came and went between two possible bounds of steps, so within one step. */
static bool event(void *part, const cm_record *record)
{
    tables *t = part;
    const cm_event *e = &record->event;
    int device = cm_replay_find_device(t->run->replay, e->device_type, e->device_index);
    if (device < 0 || !is_asked(t))
        return true;
    for (size_t kind = CM_TABLE_ALLOCATED; kind < CM_TABLES; kind++)
        if (is_wanted(t, (cm_table_kind)kind) && (kind == CM_TABLE_ALLOCATED || in_step(t))) {
            t->table[kind].folded[device].bytes += e->size;
            t->table[kind].folded[device].count += e->address;
        }
    return true;
}

static bool end_step(void *part, int64_t step, cm_moment end)
{
    tables *t = part;
    const cm_analysis_options *options = t->run->options;
    (void)end;
    if (options->of_step && step == options->step - 1)
        return add_live(t, CM_TABLE_START);
    if (options->of_step && step == options->step)
        return add_live(t, CM_TABLE_END);
    return true;
}

static bool put(const tables *t, cm_table_kind kind, uint16_t device, cm_table *out)
{
    const table *from = &t->table[kind];
    const cm_replay *replay = t->run->replay;
    size_t capacity = 0;
    for (uint32_t i = 0; i < from->capacity && i < replay->origin_count; i++) {
        const sum *s = &from->of_origin[i];
        if (replay->origin[i].device != device || (s->bytes == 0 && s->count == 0))
            continue;
        if (!cm_grow((void **)&out->contributors, &capacity, out->contributor_count + 1,
                     sizeof *out->contributors))
            return false;
        out->contributors[out->contributor_count++] =
            cm_contributor_of(replay, i, s->bytes, s->count);
    }
    cm_contributors_sort(out->contributors, out->contributor_count);
    out->rest_bytes = from->folded[device].bytes;
    out->rest_count = from->folded[device].count;
    return true;
}

static bool finish(void *part, cm_analysis *out)
{
    tables *t = part;
    if (!t->run->options->of_step && !add_live(t, CM_TABLE_END))
        return false;
    for (size_t i = 0; i < out->device_count; i++)
        for (size_t kind = 0; kind < CM_TABLES; kind++)
            if (is_wanted(t, (cm_table_kind)kind) && kind != CM_TABLE_ABOVE &&
                kind != CM_TABLE_KEPT && /* peak_above_start.c */
                !put(t, (cm_table_kind)kind, (uint16_t)i, &out->device[i].table[kind]))
                return false;
    return true;
}

static void destroy(void *part)
{
    tables *t = part;
    for (size_t kind = 0; kind < CM_TABLES; kind++)
        free(t->table[kind].of_origin);
    free(t);
}

const cm_part_kind cm_part_tables = {.name = "tables",
                                     .create = create,
                                     .change = change,
                                     .event = event,
                                     .events = CM_PART_EVENT(CM_EV_FOLDED),
                                     .step = end_step,
                                     .finish = finish,
                                     .destroy = destroy};
