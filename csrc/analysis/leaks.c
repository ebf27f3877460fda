/* Gathers what the leak verdicts are made of (leaks.h) and has them judged. */
#include "leaks.h"

#include <string.h>

#include "grow.h"

/* The data that one line of a loop iterates over. */
typedef struct reading {
    uint16_t loop;
    uint32_t line;
    uint32_t serial; /* of the iterator that ticked last */
    uint64_t ticks, epochs;
} reading;

typedef struct leaks {
    cm_leak_data d;
    const cm_run *run;
    uint32_t *by_origin, *by_stack; /* [origin * loops + loop] -> entry + 1 */
    size_t origins, stacks;         /* capacities of these, in elements */
    cm_idmap by_fold;               /* device, loop, fold -> entry */
    cm_idmap age_of;                /* entry, step -> age */
    cm_idmap iterator;              /* object -> serial */
    uint32_t serials;
    reading *reading;
    size_t readings, reading_capacity;
    int64_t collected; /* step of the trace in which a collection ran last; -1: none yet */
    bool collecting;   /* the final collection is running */
} leaks;

static void destroy(void *part)
{
    leaks *l = part;
    for (size_t i = 0; i < l->d.entries; i++)
        free(l->d.entry[i].level);
    free(l->d.entry);
    free(l->d.age);
    free(l->d.loop);
    free(l->d.order);
    free(l->d.relative);
    cm_folds_free(l->d.folds);
    free(l->by_origin);
    free(l->by_stack);
    cm_idmap_clear(&l->by_fold);
    cm_idmap_clear(&l->age_of);
    cm_idmap_clear(&l->iterator);
    free(l->reading);
    free(l);
}

/* Which steps each loop has: known beforehand. */
static bool lay_out(leaks *l)
{
    const cm_steps *steps = l->run->steps;
    l->d.steps = steps;
    l->d.loops = steps->loop_count < CM_LEAK_LOOPS ? steps->loop_count : CM_LEAK_LOOPS;
    l->d.loop = calloc(l->d.loops + 1, sizeof *l->d.loop);
    l->d.order = calloc(steps->count + 1, sizeof *l->d.order);
    l->d.relative = calloc(steps->count + 1, sizeof *l->d.relative);
    if (l->d.loop == NULL || l->d.order == NULL || l->d.relative == NULL)
        return false;
    for (size_t i = 0; i < steps->count; i++)
        if (steps->step[i].loop < l->d.loops) {
            cm_leak_loop *loop = &l->d.loop[steps->step[i].loop];
            l->d.relative[i] = (uint32_t)loop->steps++;
            loop->last = (uint32_t)i;
        }
    for (size_t i = 1; i < l->d.loops; i++)
        l->d.loop[i].first_of_order =
            l->d.loop[i - 1].first_of_order + (size_t)l->d.loop[i - 1].steps;
    for (size_t i = 0; i < steps->count; i++)
        if (steps->step[i].loop < l->d.loops)
            l->d.order[l->d.loop[steps->step[i].loop].first_of_order + l->d.relative[i]] =
                (uint32_t)i;
    return true;
}

static void *create(const cm_run *run)
{
    leaks *l = calloc(1, sizeof *l);
    if (l == NULL)
        return NULL;
    l->run = run;
    l->collected = -1;
    l->d.folds = cm_folds_new(run->replay->reader);
    if (l->d.folds == NULL || !lay_out(l)) {
        destroy(l);
        return NULL;
    }
    return l;
}

/* The loop of a step; NULL: not one that is judged. */
static cm_leak_loop *loop_of(const leaks *l, int64_t step)
{
    if (step < 0 || step >= (int64_t)l->d.steps->count)
        return NULL;
    uint32_t loop = l->d.steps->step[step].loop;
    return loop < l->d.loops ? &l->d.loop[loop] : NULL;
}

/* -- entries ---------------------------------------------------------------------------------- */

static bool find_entry(leaks *l, uint32_t stack, uint16_t device, uint16_t loop, bool working,
                       uint32_t *out)
{
    uint32_t fold;
    if (!cm_folds_of(l->d.folds, stack, &fold))
        return false;
    uint64_t key = (uint64_t)device << 48 | (uint64_t)loop << 40 | fold;
    if (cm_idmap_get(&l->by_fold, key, out))
        return true;
    if (!cm_grow((void **)&l->d.entry, &l->d.entry_capacity, l->d.entries + 1,
                 sizeof *l->d.entry) ||
        !cm_idmap_put(&l->by_fold, key, (uint32_t)l->d.entries))
        return false;
    *out = (uint32_t)l->d.entries++;
    l->d.entry[*out] = (cm_leak_entry){.fold = fold,
                                       .stack = stack,
                                       .device = device,
                                       .loop = loop,
                                       .working = working,
                                       .first = -1};
    return true;
}

/* The entry by a number that is at hand: of the origin for blocks, of the stack for nodes. */
static bool entry_by(leaks *l, uint32_t **table, size_t *capacity, uint32_t number, uint32_t stack,
                     uint16_t device, uint16_t loop, bool working, uint32_t *out)
{
    size_t at = (size_t)number * l->d.loops + loop, before = *capacity;
    if (at >= before) {
        if (!cm_grow((void **)table, capacity, at + 1, sizeof **table))
            return false;
        memset(*table + before, 0, (*capacity - before) * sizeof **table);
    }
    if ((*table)[at] == 0) {
        if (!find_entry(l, stack, device, loop, working, out))
            return false;
        (*table)[at] = *out + 1;
    }
    *out = (*table)[at] - 1;
    return true;
}

static bool entry_of_block(leaks *l, const cm_block *block, uint16_t loop, uint32_t *out)
{
    const cm_origin *origin = &l->run->replay->origin[block->origin];
    bool working = origin->phase != CM_PHASE_OPTIMIZER && origin->phase != CM_PHASE_BACKWARD;
    return entry_by(l, &l->by_origin, &l->origins, block->origin, origin->stack, block->device,
                    loop, working, out);
}

static bool entry_of_node(leaks *l, const cm_node *node, uint16_t loop, uint32_t *out)
{
    return entry_by(l, &l->by_stack, &l->stacks, node->stack, node->stack, CM_LEAK_GRAPH, loop,
                    false, out);
}

/* Up to the boundaries that its loop has passed the level was what it is now. */
static bool catch_up(leaks *l, cm_leak_entry *e)
{
    const cm_leak_loop *loop = &l->d.loop[e->loop];
    if (e->filled >= loop->done)
        return true;
    size_t from = cm_growth_bucket(loop->steps, e->filled);
    size_t to = cm_growth_bucket(loop->steps, loop->done - 1);
    if (e->level == NULL) {
        if (e->live == 0) {
            e->filled = loop->done;
            return true;
        }
        e->level = malloc(CM_LEVELS * sizeof *e->level);
        if (e->level == NULL)
            return false;
        bool begun = e->filled > 0 && cm_growth_bucket(loop->steps, e->filled - 1) == from;
        for (size_t i = 0; i < CM_LEVELS; i++)
            e->level[i] = i < from || (i == from && begun) ? 0 : INT64_MAX;
    }
    for (size_t i = from; i <= to; i++)
        if (e->live < e->level[i])
            e->level[i] = e->live;
    e->filled = loop->done;
    return true;
}

/* Something born in `born` came (went, if not) while the replay stands in its present step. */
static bool move(leaks *l, cm_leak_entry *e, int64_t born, int64_t bytes, bool came)
{
    const cm_leak_loop *loop = &l->d.loop[e->loop];
    if (!catch_up(l, e))
        return false;
    e->live += bytes;
    if (!came) {
        e->count--;
        if (loop->done - born >= 2 && loop->done > cm_growth_warmup(loop->steps))
            e->evicted = true;
        return true;
    }
    e->count++;
    if (e->first < 0)
        e->first = born;
    if (born * 3 < loop->steps)
        e->early += bytes;
    else if (born * 3 >= loop->steps * 2)
        e->late += bytes;
    return true;
}

/* -- survivors -------------------------------------------------------------------------------- */

static cm_leak_age *find_age(leaks *l, uint32_t entry, int64_t step)
{
    uint64_t key = (uint64_t)entry << 32 | (uint64_t)step;
    uint32_t at;
    if (!cm_idmap_get(&l->age_of, key, &at)) {
        if (!cm_grow((void **)&l->d.age, &l->d.age_capacity, l->d.ages + 1, sizeof *l->d.age) ||
            !cm_idmap_put(&l->age_of, key, (uint32_t)l->d.ages))
            return NULL;
        at = (uint32_t)l->d.ages++;
        l->d.age[at] = (cm_leak_age){.entry = entry, .step = step, .oldest = UINT64_MAX};
    }
    return &l->d.age[at];
}

/* What the final collection frees was alive at the last boundary: it was born before it. */
static bool bury(leaks *l, uint32_t entry, int64_t step, int64_t bytes)
{
    cm_leak_age *age = find_age(l, entry, step);
    if (age == NULL)
        return false;
    age->dead_bytes += bytes;
    age->dead++;
    return true;
}

typedef struct gathering {
    leaks *l;
    uint32_t loop;
} gathering;

static bool gather_node(void *context, const cm_node *node)
{
    gathering *g = context;
    leaks *l = g->l;
    const cm_leak_loop *loop = loop_of(l, node->step);
    uint32_t entry;
    if (loop != &l->d.loop[g->loop] || node->stack == CM_NODE_UNRESOLVED)
        return true;
    if (!entry_of_node(l, node, (uint16_t)g->loop, &entry))
        return false;
    cm_leak_age *age = find_age(l, entry, l->d.relative[node->step]);
    if (age == NULL)
        return false;
    age->bytes += CM_NODE_BYTES;
    age->count++;
    if (node->sequence < age->oldest)
        age->oldest = node->sequence;
    if (node->sequence > age->youngest)
        age->youngest = node->sequence;
    return true;
}

static bool gather(leaks *l, uint32_t number)
{
    const cm_blocks *blocks = &l->run->replay->blocks;
    for (size_t i = 0; i < blocks->slots; i++) {
        const cm_block *block = &blocks->slot[i];
        uint32_t entry;
        if (!block->alive || loop_of(l, block->step) != &l->d.loop[number])
            continue;
        if (!entry_of_block(l, block, (uint16_t)number, &entry))
            return false;
        cm_leak_age *age = find_age(l, entry, l->d.relative[block->step]);
        if (age == NULL)
            return false;
        age->bytes += block->size;
        age->count++;
    }
    return cm_nodes_alive(l->run->replay->nodes, gather_node, &(gathering){l, number});
}

static bool count_node(void *context, const cm_node *node)
{
    uint64_t *count = context;
    (*count) += node->sequence != CM_NODE_NO_SEQUENCE;
    return true;
}

static bool step(void *part, int64_t number, cm_moment end)
{
    leaks *l = part;
    (void)end;
    cm_leak_loop *loop = loop_of(l, number);
    if (number >= 0 && number == (int64_t)l->d.steps->count - 1)
        cm_nodes_alive(l->run->replay->nodes, count_node, &l->d.live_nodes);
    if (loop == NULL)
        return true;
    loop->done = (int64_t)l->d.relative[number] + 1;
    if (number != loop->last)
        return true;
    uint32_t index = (uint32_t)(loop - l->d.loop);
    for (size_t i = 0; i < l->d.entries; i++)
        if (l->d.entry[i].loop == index && !catch_up(l, &l->d.entry[i]))
            return false;
    loop->closed = true;
    int64_t late = l->d.order[loop->first_of_order + (size_t)(loop->steps * 2 / 3)];
    loop->collected_late = l->collected >= late;
    return gather(l, index);
}

/* -- the trace -------------------------------------------------------------------------------- */

static bool change(void *part, const cm_change *c)
{
    leaks *l = part;
    const cm_leak_loop *loop = loop_of(l, c->block.step);
    uint32_t entry;
    if (loop == NULL || (loop->closed && !l->collecting))
        return true;
    if (!entry_of_block(l, &c->block, (uint16_t)(loop - l->d.loop), &entry))
        return false;
    int64_t born = l->d.relative[c->block.step];
    if (!loop->closed)
        return move(l, &l->d.entry[entry], born, c->bytes, c->bytes > 0);
    return c->bytes > 0 || bury(l, entry, born, -c->bytes);
}

static bool change_node(leaks *l, bool came)
{
    const cm_node *node = cm_nodes_last(l->run->replay->nodes);
    if (node == NULL || node->stack == CM_NODE_UNRESOLVED)
        return true;
    const cm_leak_loop *loop = loop_of(l, node->step);
    uint32_t entry;
    if (loop == NULL || (loop->closed && !l->collecting))
        return true;
    if (!entry_of_node(l, node, (uint16_t)(loop - l->d.loop), &entry))
        return false;
    int64_t born = l->d.relative[node->step];
    if (!loop->closed)
        return move(l, &l->d.entry[entry], born, came ? CM_NODE_BYTES : -CM_NODE_BYTES, came);
    return came || bury(l, entry, born, CM_NODE_BYTES);
}

/* Epochs are counted by the line that asks for batches: the training's iterators and those of a
 * validation in between have lines of their own. */
static bool see_batch(leaks *l, const cm_event *e)
{
    const cm_leak_loop *loop = loop_of(l, l->run->replay->step);
    uint32_t line, serial = 0;
    if (loop == NULL)
        return true;
    if (!cm_places_line(l->run->replay->places, e->stack, &line))
        return false;
    cm_idmap_get(&l->iterator, e->address >> 1, &serial);
    uint16_t number = (uint16_t)(loop - l->d.loop);
    size_t i = 0;
    while (i < l->readings && (l->reading[i].loop != number || l->reading[i].line != line))
        i++;
    if (i == l->readings) {
        if (!cm_grow((void **)&l->reading, &l->reading_capacity, l->readings + 1,
                     sizeof *l->reading))
            return false;
        l->reading[l->readings++] = (reading){.loop = number, .line = line, .serial = ~serial};
    }
    reading *r = &l->reading[i];
    r->ticks++;
    r->epochs += r->serial != serial;
    r->serial = serial;
    return true;
}

static bool event(void *part, const cm_record *record)
{
    leaks *l = part;
    const cm_event *e = &record->event;
    switch (e->kind) {
    case CM_EV_NODE_NEW:
    case CM_EV_NODE_FREE:
        return change_node(l, e->kind == CM_EV_NODE_NEW);
    case CM_EV_OBJECT_NEW:
        return e->size != CM_OBJECT_ITERATOR ||
               cm_idmap_put(&l->iterator, e->address >> 1, ++l->serials);
    case CM_EV_TICK:
        return e->size != CM_TICK_DATA || see_batch(l, e);
    case CM_EV_MARK:
        if (e->size == CM_MARK_COLLECT_BEGIN && !l->collecting) {
            l->collected = l->run->replay->step;
        } else if (e->size == CM_MARK_FINAL_COLLECT_BEGIN) {
            l->collecting = l->d.final = true;
            l->d.final_automatic = e->address != 0;
        } else if (e->size == CM_MARK_FINAL_COLLECT_END) {
            l->collecting = false;
        }
        return true;
    default:
        return true;
    }
}

static bool finish(void *part, cm_analysis *out)
{
    leaks *l = part;
    uint64_t most[CM_LEAK_LOOPS] = {0};
    for (size_t i = 0; i < l->readings; i++) {
        const reading *r = &l->reading[i];
        if (r->ticks <= most[r->loop])
            continue;
        most[r->loop] = r->ticks;
        l->d.loop[r->loop].epochs = r->epochs;
    }
    out->live_nodes = l->d.live_nodes;
    return cm_leaks_judge(&l->d, out);
}

const cm_part_kind cm_part_leaks = {.name = "leaks",
                                    .create = create,
                                    .change = change,
                                    .event = event,
                                    .step = step,
                                    .finish = finish,
                                    .destroy = destroy};
