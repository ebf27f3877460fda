/* The labelled blocks of each device's peak. Blocks freed since the highest moment so far are kept
 * if they were alive then, until a higher moment. */
#include <string.h>

#include "../base/grow.h"
#include "../base/idmap.h"
#include "live_tensors.h"
#include "parts.h"

typedef struct tensor {
    cm_tensor is;
    uint64_t key, born; /* of device and address; records up to its own */
    uint16_t device;
} tensor;

typedef struct list {
    tensor *tensor;
    size_t count, capacity;
} list;

typedef struct device {
    uint64_t most_at; /* records up to the one that reached the highest moment */
    list gone;
} device;

typedef struct tensors {
    const cm_run *run;
    device device[CM_DEVICES_MAX];
    list alive;
    cm_idmap place; /* key -> index in alive */
} tensors;

static uint64_t key_of(const cm_block *block)
{
    return (block->address ^ (uint64_t)block->device << 48) & (UINT64_MAX >> 1);
}

static bool add(list *l, const tensor *t)
{
    if (!cm_grow((void **)&l->tensor, &l->capacity, l->count + 1, sizeof *l->tensor))
        return false;
    l->tensor[l->count++] = *t;
    return true;
}

static bool add_live(tensors *t, const cm_block *block, const cm_label *label)
{
    const tensor fresh = {cm_live_tensor(t->run->replay, block, label), key_of(block),
                          t->run->replay->position, block->device};
    return cm_idmap_put(&t->place, fresh.key, (uint32_t)t->alive.count) && add(&t->alive, &fresh);
}

/* The last one takes its place. */
static bool remove_live(tensors *t, const cm_block *block)
{
    uint32_t at;
    uint64_t key = key_of(block);
    device *d = &t->device[block->device];
    if (!cm_idmap_get(&t->place, key, &at))
        return true;
    cm_idmap_remove(&t->place, key);
    if (t->alive.tensor[at].born <= d->most_at && !add(&d->gone, &t->alive.tensor[at]))
        return false;
    t->alive.tensor[at] = t->alive.tensor[--t->alive.count];
    return at == t->alive.count || cm_idmap_put(&t->place, t->alive.tensor[at].key, at);
}

static bool change(void *part, const cm_change *c)
{
    tensors *t = part;
    device *d = &t->device[c->block.device];
    if (c->label != NULL &&
        !(c->bytes > 0 ? add_live(t, &c->block, c->label) : remove_live(t, &c->block)))
        return false;
    if (c->highest) {
        d->most_at = t->run->replay->position;
        d->gone.count = 0;
    }
    return true;
}

static void *create(const cm_run *run)
{
    tensors *t = calloc(1, sizeof *t);
    const cm_replay *replay = run->replay;
    if (t == NULL)
        return NULL;
    t->run = run;
    for (size_t i = 0; i < replay->device_count; i++)
        t->device[i].most_at = replay->position;
    const cm_block *block;
    for (size_t at = 0; (block = cm_replay_next_loose(replay, &at)) != NULL;) {
        const cm_label *label = cm_replay_label(replay, block);
        if (label != NULL && !add_live(t, block, label)) {
            cm_part_tensors.destroy(t);
            return NULL;
        }
    }
    return t;
}

static bool gather(const list *l, uint16_t number, uint64_t most_at, cm_device_report *out,
                   size_t *capacity)
{
    for (size_t i = 0; i < l->count; i++) {
        if (l->tensor[i].device != number || l->tensor[i].born > most_at)
            continue;
        if (!cm_grow((void **)&out->tensors, capacity, out->tensor_count + 1, sizeof *out->tensors))
            return false;
        out->tensors[out->tensor_count++] = l->tensor[i].is;
    }
    return true;
}

static bool finish(void *part, cm_analysis *out)
{
    const tensors *t = part;
    for (size_t i = 0; i < out->device_count; i++) {
        const device *d = &t->device[i];
        cm_device_report *r = &out->device[i];
        size_t capacity = 0;
        if (t->run->options->of_step)
            continue; /* there is another peak */
        if (!gather(&t->alive, (uint16_t)i, d->most_at, r, &capacity) ||
            !gather(&d->gone, (uint16_t)i, d->most_at, r, &capacity))
            return false;
        cm_live_tensors_sort(r->tensors, r->tensor_count);
    }
    return true;
}

static void destroy(void *part)
{
    tensors *t = part;
    for (size_t i = 0; i < CM_DEVICES_MAX; i++)
        free(t->device[i].gone.tensor);
    free(t->alive.tensor);
    cm_idmap_clear(&t->place);
    free(t);
}

const cm_part_kind cm_part_tensors = {.name = "tensors",
                                      .create = create,
                                      .change = change,
                                      .only_marked = true,
                                      .finish = finish,
                                      .destroy = destroy};
