/* Tables by contributor (the others are in peak_above_start.c): blocks alive at both ends of the
 * recording or of one step, allocated, freed in their own step. Only on request. */
#include "contributors.h"
#include "parts.h"

typedef struct table {
    cm_amounts of_origin;
    cm_amount compacted[CM_DEVICES_MAX]; /* by device: compacted blocks, of unknown stacks */
} table;

typedef struct tables {
    const cm_run *run;
    uint32_t wanted;
    table table[CM_TABLES];
} tables;

static bool is_wanted(const tables *t, cm_contents_kind kind)
{
    return t->wanted & CM_TABLE(kind);
}

static bool add_live(tables *t, cm_contents_kind kind)
{
    return !is_wanted(t, kind) ||
           cm_amounts_add_live(&t->table[kind].of_origin, t->run->replay, -1);
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

/* Whether the current record is in a step that ended, or in the one that is asked for. */
static bool in_step(const tables *t)
{
    int64_t step = t->run->replay->step;
    return step >= 0 && (step < (int64_t)t->run->steps->count || t->run->options->of_step);
}

static bool is_asked(const tables *t)
{
    return !t->run->options->of_step || t->run->replay->step == t->run->options->step;
}

static bool born(tables *t, const cm_change *c)
{
    static const cm_contents_kind kinds[] = {CM_TABLE_ALLOCATED, CM_TABLE_STEPPED};
    for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++)
        if (is_wanted(t, kinds[i]) && (kinds[i] == CM_TABLE_ALLOCATED || in_step(t)) &&
            !cm_amounts_add(&t->table[kinds[i]].of_origin, c->block.origin,
                            (cm_amount){c->bytes, c->event}))
            return false;
    return true;
}

/* A block that a walk found has no step: it is from before. */
static bool died(tables *t, const cm_change *c)
{
    if (!is_wanted(t, CM_TABLE_TEMPORARY) || !in_step(t) || c->block.step != t->run->replay->step)
        return true;
    return cm_amounts_add(&t->table[CM_TABLE_TEMPORARY].of_origin, c->block.origin,
                          (cm_amount){-c->bytes, 1});
}

static bool change(void *part, const cm_change *c)
{
    tables *t = part;
    if (!is_asked(t))
        return true;
    return c->bytes > 0 ? born(t, c) : died(t, c);
}

/* Compacted blocks lived between two possible step bounds, so within one step. */
static bool event(void *part, const cm_record *record)
{
    tables *t = part;
    const cm_event *e = &record->event;
    int device = cm_replay_find_device(t->run->replay, e->device_type, e->device_index);
    if (device < 0 || !is_asked(t))
        return true;
    for (size_t kind = CM_TABLE_ALLOCATED; kind < CM_TABLES; kind++)
        if (is_wanted(t, (cm_contents_kind)kind) && (kind == CM_TABLE_ALLOCATED || in_step(t))) {
            t->table[kind].compacted[device].bytes += e->size;
            t->table[kind].compacted[device].count += e->address;
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

static bool put(const tables *t, cm_contents_kind kind, uint16_t device, cm_table *out)
{
    const table *from = &t->table[kind];
    const cm_replay *replay = t->run->replay;
    cm_contributors list = {0};
    bool fine = true;
    for (uint32_t i = 0; fine && i < from->of_origin.capacity && i < replay->origin_count; i++) {
        cm_amount sum = from->of_origin.of[i];
        if (replay->origin[i].device == device && (sum.bytes != 0 || sum.count != 0))
            fine = cm_contributors_add(&list, replay, i, sum);
    }
    cm_contributors_sort(list.contributor, list.count);
    out->contributors = list.contributor;
    out->contributor_count = list.count;
    out->rest_bytes = from->compacted[device].bytes;
    out->rest_count = from->compacted[device].count;
    return fine;
}

static bool finish(void *part, cm_analysis *out)
{
    tables *t = part;
    const cm_analysis_options *options = t->run->options;
    bool to_end = !options->of_step || options->step == (int64_t)t->run->steps->count;
    if (to_end && !add_live(t, CM_TABLE_END))
        return false;
    for (size_t i = 0; i < out->device_count; i++)
        for (size_t kind = 0; kind < CM_TABLES; kind++)
            if (is_wanted(t, (cm_contents_kind)kind) && kind != CM_TABLE_ABOVE &&
                kind != CM_TABLE_KEPT && /* peak_above_start.c */
                !put(t, (cm_contents_kind)kind, (uint16_t)i, &out->device[i].table[kind]))
                return false;
    return true;
}

static void destroy(void *part)
{
    tables *t = part;
    for (size_t kind = 0; kind < CM_TABLES; kind++)
        free(t->table[kind].of_origin.of);
    free(t);
}

static bool listens(const cm_run *run)
{
    return run->options->tables != 0;
}

const cm_part_kind cm_part_tables = {.name = "tables",
                                     .create = create,
                                     .change = change,
                                     .listens = listens,
                                     .event = event,
                                     .events = CM_PART_EVENT(CM_EV_COMPACTED_BLOCKS),
                                     .step = end_step,
                                     .finish = finish,
                                     .destroy = destroy};
