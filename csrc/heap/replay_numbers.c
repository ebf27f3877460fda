/* Devices, origins and labels: what blocks refer to by number. */
#include "replay_parts.h"

#include <stdio.h>

#include "../base/grow.h"
#include "../base/hash.h"
#include "../base/table.h"

static void name_device(cm_device *d)
{
    /* c10::DeviceType in its own order and spelling. */
    static const char *const names[] = {"cpu", "cuda", "mkldnn",       "opengl", "opencl", "ideep",
                                        "hip", "fpga", "maia",         "xla",    "vulkan", "metal",
                                        "xpu", "mps",  "meta",         "hpu",    "ve",     "lazy",
                                        "ipu", "mtia", "privateuseone"};
    char type[16];
    if (d->type < sizeof names / sizeof names[0])
        snprintf(type, sizeof type, "%s", names[d->type]);
    else if (d->type == CM_DEVICE_PINNED)
        snprintf(type, sizeof type, "pinned");
    else
        snprintf(type, sizeof type, "device%d", d->type);
    if (d->index < 0)
        snprintf(d->name, sizeof d->name, "%s", type);
    else
        snprintf(d->name, sizeof d->name, "%s:%d", type, d->index);
}

int64_t cm_replay_host_live(const cm_replay *r)
{
    int64_t sum = 0;
    for (size_t i = 0; i < r->device_count; i++)
        if (r->device[i].type == CM_DEVICE_CPU || r->device[i].type == CM_DEVICE_PINNED)
            sum += r->device[i].live;
    return sum;
}

int cm_replay_device(cm_replay *r, uint8_t type, int8_t index)
{
    uint16_t *number = &r->device_number[cm_replay_device_key(type, index)];
    if (*number != 0)
        return *number - 1;
    if (r->device_count >= CM_DEVICES_MAX) {
        r->error = "the trace is damaged: it names more than 256 devices";
        return -1;
    }
    if (!cm_grow((void **)&r->device, &r->device_capacity, r->device_count + 1,
                 sizeof *r->device)) {
        r->error = cm_replay_out_of_memory;
        return -1;
    }
    cm_device *d = &r->device[r->device_count++];
    *d = (cm_device){.type = type, .index = type == CM_DEVICE_CPU ? -1 : index, .reserved = -1};
    name_device(d);
    *number = (uint16_t)r->device_count;
    return *number - 1;
}

static bool same_origin(const cm_origin *a, const cm_origin *b)
{
    return a->stack == b->stack && a->own == b->own && a->name == b->name &&
           a->device == b->device && a->phase == b->phase && a->charge == b->charge &&
           a->module == b->module && a->saved_by == b->saved_by && a->category == b->category;
}

static uint64_t hash_origin(const cm_origin *o)
{
    uint64_t key = (uint64_t)o->stack << 32 | o->own;
    return cm_hash(
        cm_hash(key) +
        ((uint64_t)o->name << 24 | (uint64_t)o->device << 8 | o->phase << 3 | o->charge) +
        cm_hash((uint64_t)o->module << 32 ^ (uint64_t)o->saved_by << 8 ^ o->category));
}

static uint64_t hash_numbered(const void *replay, const void *entry)
{
    return hash_origin(&((const cm_replay *)replay)->origin[cm_table_index(entry)]);
}

static bool is_origin(const void *replay, const void *entry, const void *wanted)
{
    return same_origin(&((const cm_replay *)replay)->origin[cm_table_index(entry)], wanted);
}

static const cm_table_kind origins = {sizeof(uint32_t),   256,           2,
                                      cm_table_is_number, hash_numbered, is_origin};

static int64_t lookup_origin(cm_replay *r, const cm_origin *wanted)
{
    if (!cm_table_make_room(&origins, r, (void **)&r->origin_slot, &r->origin_slots,
                            r->origin_count))
        return -1;
    size_t slot =
        cm_table_find(&origins, r, r->origin_slot, r->origin_slots, hash_origin(wanted), wanted);
    if (r->origin_slot[slot] != 0)
        return r->origin_slot[slot] - 1;
    if (r->origin_count >= UINT32_MAX - 1 ||
        !cm_grow((void **)&r->origin, &r->origin_capacity, r->origin_count + 1, sizeof *r->origin))
        return -1;
    r->origin[r->origin_count++] = *wanted;
    r->origin_slot[slot] = (uint32_t)r->origin_count;
    return (int64_t)r->origin_count - 1;
}

/* Of equal stacks and names, the latest origin is mostly wanted again: without a look into the
 * table, whose hash is a dear one. */
static uint32_t *latest_of(cm_replay *r, const cm_origin *o)
{
    uint64_t key = (uint64_t)o->own << 32 ^ (uint64_t)o->stack << 16 ^ o->name;
    return &r->latest[cm_mix(key) % CM_REPLAY_LATEST];
}

int64_t cm_replay_find_origin(cm_replay *r, const cm_origin *wanted)
{
    uint32_t *latest = latest_of(r, wanted);
    if (*latest < r->origin_count && same_origin(&r->origin[*latest], wanted))
        return *latest;
    int64_t number = lookup_origin(r, wanted);
    if (number >= 0)
        *latest = (uint32_t)number;
    return number;
}

static uint64_t label_key(const cm_block *block)
{
    return (block->address ^ (uint64_t)block->device << 48) & (UINT64_MAX >> 1);
}

const cm_label *cm_replay_find_label(const cm_replay *r, const cm_block *block)
{
    uint32_t at;
    return cm_idmap_get(&r->label_of, label_key(block), &at) ? &r->label[at] : NULL;
}

static bool same_label(const cm_label *a, const cm_label *b)
{
    return a->owner == b->owner && a->text == b->text && a->module == b->module &&
           a->kind == b->kind;
}

/* Each step makes gradients with the labels of the first. */
static bool number_label(cm_replay *r, const cm_label *label, uint32_t *number)
{
    uint64_t key = cm_mix(cm_mix(cm_mix(label->owner) + label->text) + label->module) >> 1;
    key = (key << 3 | label->kind) & (UINT64_MAX >> 2);
    /* A duplicate number is harmless; a long search in a hostile trace is not. */
    for (int tries = 0; tries < 16 && cm_idmap_get(&r->label_known, key, number); tries++, key++)
        if (same_label(&r->label[*number], label))
            return true;
    *number = (uint32_t)r->label_count;
    if (r->label_count >= UINT32_MAX - 1 ||
        !cm_grow((void **)&r->label, &r->label_capacity, r->label_count + 1, sizeof *r->label) ||
        !cm_idmap_put(&r->label_known, key, *number))
        return false;
    r->label[r->label_count++] = *label;
    return true;
}

bool cm_replay_put_label(cm_replay *r, const cm_block *block, const cm_label *label)
{
    uint32_t number;
    if (number_label(r, label, &number) && cm_idmap_put(&r->label_of, label_key(block), number))
        return true;
    r->error = cm_replay_out_of_memory;
    return false;
}

void cm_replay_drop_label(cm_replay *r, const cm_block *block)
{
    cm_idmap_remove(&r->label_of, label_key(block));
}
