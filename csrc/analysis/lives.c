/* Lives of single blocks around the peaks (lives.h).
 *
 * At each step's end what can no longer be wanted goes, once it is more than half: memory grows
 * with live blocks, loops and the blocks of a step. */
#include "lives.h"

#include "contributors.h"
#include "parts.h"
#include "../base/grow.h"
#include "../base/idmap.h"

enum {
    PRUNE_LEAST = 4096,
    LOOPS_APART = 16, /* the loops beyond are judged as one: a bound of time and memory */
    TAIL = -2,        /* the time behind the last step, until the end */
    STEPS_MOST = 3 * (LOOPS_APART + 3) + 2
};

typedef struct device {
    cm_life *life;
    size_t count, capacity, kept; /* kept: after the last pruning */
    cm_idmap of;                  /* address -> index of the live one */
    uint32_t *origin;             /* of each life */
    size_t origin_capacity;
    int64_t last;     /* index of the life that ended last, or -1 */
    int64_t position; /* of the newest change */
    int64_t high;     /* since the stretch began */
    bool cut;
    cm_life_step *step; /* stretches that may be wanted, by step */
    size_t steps, step_capacity;
    int64_t begin; /* of the current stretch */
} device;

typedef struct lives {
    const cm_run *run;
    device device[CM_DEVICES_MAX];
    size_t devices;
    int64_t nodes_made, nodes_run; /* since the stretch began */
} lives;

static uint64_t key(uint64_t address)
{
    return address == UINT64_MAX ? 0 : address;
}

static bool add(lives *l, const cm_block *block, int64_t birth)
{
    device *d = &l->device[block->device];
    if (d->count >= CM_LIVES_MAX) {
        d->cut = true;
        return true;
    }
    if (!cm_grow((void **)&d->life, &d->capacity, d->count + 1, sizeof *d->life) ||
        !cm_grow((void **)&d->origin, &d->origin_capacity, d->count + 1, sizeof *d->origin))
        return false;
    d->origin[d->count] = cm_replay_origin(l->run->replay, block);
    d->life[d->count] = (cm_life){.address = block->address,
                                  .birth = birth,
                                  .end = -1,
                                  .bytes = block->size,
                                  .requested = block->size - cm_block_slack(block),
                                  .step = birth > 0 ? l->run->replay->step : -1,
                                  .end_step = -1};
    return cm_idmap_put(&d->of, key(block->address), (uint32_t)d->count++);
}

/* What is known of a block grows until its end. */
static void describe(const lives *l, device *d, size_t index, const cm_block *block)
{
    d->origin[index] = cm_replay_origin(l->run->replay, block);
    d->life[index].requested = block->size - cm_block_slack(block);
}

/* A device that is new in the window has no blocks from before. */
static void know_devices(lives *l)
{
    for (; l->devices < l->run->replay->device_count; l->devices++)
        l->device[l->devices].last = -1;
}

static void *create(const cm_run *run)
{
    lives *l = calloc(1, sizeof *l);
    if (l == NULL)
        return NULL;
    l->run = run;
    know_devices(l);
    if (!run->options->lives)
        return l;
    size_t at = 0;
    for (const cm_block *b; (b = cm_blocks_next(&run->replay->blocks, &at)) != NULL;)
        if (!add(l, b, 0)) {
            cm_part_lives.destroy(l);
            return NULL;
        }
    for (size_t i = 0; i < l->devices; i++)
        l->device[i].high = run->replay->device[i].live;
    return l;
}

static bool change(void *part, const cm_change *c)
{
    lives *l = part;
    know_devices(l);
    device *d = &l->device[c->block.device];
    uint32_t index;
    d->position += CM_LIFE_GAP;
    if (c->live > d->high)
        d->high = c->live;
    if (c->bytes > 0) {
        int64_t last = d->last;
        d->last = -1;
        if (c->event || last < 0 || d->life[last].address != c->block.address ||
            d->life[last].bytes != c->block.size)
            return add(l, &c->block, d->position);
        d->life[last].end = -1; /* a correction of what is known, no end */
        describe(l, d, (size_t)last, &c->block);
        return cm_idmap_put(&d->of, key(c->block.address), (uint32_t)last);
    }
    d->last = -1;
    if (!cm_idmap_get(&d->of, key(c->block.address), &index))
        return true;
    cm_idmap_remove(&d->of, key(c->block.address));
    describe(l, d, index, &c->block);
    d->life[index].end = d->position;
    d->life[index].end_step = l->run->replay->step;
    d->last = c->event ? -1 : (int64_t)index;
    return true;
}

static int64_t apart(const cm_life_step *step)
{
    return step->loop < LOOPS_APART ? step->loop : LOOPS_APART;
}

/* Whether a stretch is the highest of its loop, or next to such a one. */
static bool is_near_best(const device *d, size_t at)
{
    for (size_t i = at > 0 ? at - 1 : 0; i < d->steps && i <= at + 1; i++) {
        const cm_life_step *one = &d->step[i];
        if (one->step < d->step[at].step - 1 || one->step > d->step[at].step + 1)
            continue;
        bool best = true;
        for (size_t j = 0; best && j < d->steps; j++)
            best = apart(&d->step[j]) != apart(one) || d->step[j].peak < one->peak ||
                   (d->step[j].peak == one->peak && j >= i);
        if (best)
            return true;
    }
    return false;
}

/* Drops stretches that nothing needs; the newest one may yet be a neighbour. */
static void prune_steps(device *d, bool all)
{
    bool keep[STEPS_MOST];
    size_t count = d->steps, kept = 0;
    for (size_t i = 0; i < count; i++)
        keep[i] = is_near_best(d, i) || (!all && i + 1 == count);
    for (size_t i = 0; i < count; i++)
        if (keep[i])
            d->step[kept++] = d->step[i];
    d->steps = kept;
}

static bool is_wanted(const device *d, const cm_life *life)
{
    if (life->end < 0 || life->end > d->begin)
        return true;
    for (size_t i = 0; i < d->steps; i++)
        if (life->birth <= d->step[i].end && life->end > d->step[i].begin)
            return true;
    return false;
}

static bool prune(device *d)
{
    size_t kept = 0;
    for (size_t i = 0; i < d->count; i++) {
        if (!is_wanted(d, &d->life[i]))
            continue;
        d->origin[kept] = d->origin[i];
        d->life[kept] = d->life[i];
        if (d->life[kept].end < 0 && kept != i &&
            !cm_idmap_put(&d->of, key(d->life[kept].address), (uint32_t)kept))
            return false;
        kept++;
    }
    d->count = d->kept = kept;
    d->last = -1;
    return true;
}

static bool end_stretch(lives *l, device *d, int64_t live, int64_t ended)
{
    const cm_steps *steps = l->run->steps;
    bool is_step = ended >= 0 && ended < (int64_t)steps->count;
    if (!cm_grow((void **)&d->step, &d->step_capacity, d->steps + 1, sizeof *d->step))
        return false;
    /* The times around the steps belong to no loop: each is the only one of its own. */
    int64_t loop = is_step ? (int64_t)steps->step[ended].loop : ended < 0 ? -1 : TAIL;
    d->step[d->steps++] =
        (cm_life_step){ended, loop, d->begin, d->position, d->high, l->nodes_made, l->nodes_run};
    d->begin = d->position;
    d->high = live;
    return true;
}

static bool event(void *part, const cm_record *record)
{
    lives *l = part;
    if (record->event.kind == CM_EV_NODE_NEW)
        l->nodes_made++;
    else if (record->event.address != CM_NODE_NO_SEQUENCE)
        l->nodes_run++;
    return true;
}

static bool step(void *part, int64_t ended, cm_moment end)
{
    (void)end;
    lives *l = part;
    if (!l->run->options->lives)
        return true;
    know_devices(l);
    for (size_t i = 0; i < l->devices; i++) {
        device *d = &l->device[i];
        if (!end_stretch(l, d, l->run->replay->device[i].live, ended))
            return false;
        prune_steps(d, false);
        if (d->count > 2 * d->kept + PRUNE_LEAST && !prune(d))
            return false;
    }
    l->nodes_made = l->nodes_run = 0;
    return true;
}

/* Numbers the contributors in the order of their first block. */
static bool number_contributors(const lives *l, const device *d, cm_lives *out)
{
    const cm_replay *replay = l->run->replay;
    cm_contributors list = {0};
    uint32_t *number = calloc(replay->origin_count + 1, sizeof *number);
    bool fine = number != NULL;
    for (size_t i = 0; fine && i < d->count; i++) {
        uint32_t origin = d->origin[i];
        if (number[origin] == 0) {
            fine = cm_contributors_add(&list, replay, origin, (cm_amount){0, 0});
            number[origin] = (uint32_t)list.count;
        }
        cm_contributor *c = fine ? &list.contributor[number[origin] - 1] : NULL;
        if (c != NULL) {
            c->bytes += d->life[i].bytes;
            c->count++;
            d->life[i].contributor = number[origin] - 1;
        }
    }
    free(number);
    out->contributor = list.contributor;
    out->contributor_count = list.count;
    return fine;
}

static bool put(lives *l, size_t number, cm_lives *out)
{
    device *d = &l->device[number];
    const cm_replay *replay = l->run->replay;
    for (size_t i = 0; i < d->count; i++) {
        const cm_block *block =
            d->life[i].end < 0
                ? cm_blocks_find(&replay->blocks, (uint16_t)number, d->life[i].address)
                : NULL;
        if (block != NULL)
            describe(l, d, i, block);
    }
    if (!end_stretch(l, d, replay->device[number].live, replay->step))
        return false;
    prune_steps(d, true);
    d->begin = d->position;
    *out = (cm_lives){.device = (uint32_t)number, .cut = d->cut};
    if (!prune(d) || !number_contributors(l, d, out))
        return false;
    for (size_t i = 0; i < d->steps; i++)
        if (d->step[i].loop == TAIL)
            d->step[i].loop = -1;
    out->life = d->life;
    out->count = d->count;
    out->step = d->step;
    out->step_count = d->steps;
    d->life = NULL;
    d->step = NULL;
    return true;
}

static bool finish(void *part, cm_analysis *out)
{
    lives *l = part;
    if (!l->run->options->lives)
        return true;
    know_devices(l);
    out->lives = calloc(l->devices + 1, sizeof *out->lives);
    if (out->lives == NULL)
        return false;
    for (size_t i = 0; i < l->devices; i++)
        if (!put(l, i, &out->lives[out->lives_count++]))
            return false;
    return true;
}

static void destroy(void *part)
{
    lives *l = part;
    for (size_t i = 0; i < CM_DEVICES_MAX; i++) {
        free(l->device[i].life);
        free(l->device[i].origin);
        free(l->device[i].step);
        cm_idmap_clear(&l->device[i].of);
    }
    free(l);
}

static bool listens(const cm_run *run)
{
    return run->options->lives;
}

const cm_part_kind cm_part_lives = {.name = "lives",
                                    .create = create,
                                    .change = change,
                                    .listens = listens,
                                    .event = event,
                                    .events = CM_PART_EVENT(CM_EV_NODE_NEW) |
                                              CM_PART_EVENT(CM_EV_NODE_RUN),
                                    .step = step,
                                    .finish = finish,
                                    .destroy = destroy};
