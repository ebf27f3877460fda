#include "replay_parts.h"
#include "../base/own_frame.h"

#include <string.h>

/* A 256 TiB block is damage, not data; below it, sums cannot overflow before the check does. */
#define BLOCK_MAX ((int64_t)1 << 48)
#define COMPACTED_MAX ((int64_t)1 << 61) /* of all compacted blocks of a trace */

enum { DEVICE_NUMBERS = 1 << 16 };

const char cm_replay_out_of_memory[] = "out of memory";
static const char bad_size[] = "the trace is damaged: it has a block of an impossible size";

static cm_library *new_library(const cm_reader *reader, const char *code)
{
    return cm_library_new(code, cm_reader_meta(reader, "script"),
                          cm_reader_meta(reader, "directory"));
}

cm_replay *cm_replay_new(const cm_reader *reader, const char *code)
{
    cm_replay *r = calloc(1, sizeof *r);
    if (r == NULL)
        return NULL;
    r->step = -1;
    r->reader = reader;
    r->nodes = cm_nodes_new();
    r->cohorts = cm_cohorts_new();
    r->code = strdup(code);
    r->library = new_library(reader, code);
    r->attribution = cm_attribution_new(reader, r->library);
    r->modules = cm_modules_new(reader);
    r->device_number = calloc(DEVICE_NUMBERS, sizeof *r->device_number);
    if (r->nodes == NULL || r->cohorts == NULL || r->modules == NULL || r->code == NULL ||
        r->library == NULL || r->attribution == NULL || r->device_number == NULL) {
        cm_replay_free(r);
        return NULL;
    }
    cm_nodes_judge_by(r->nodes, cm_attribution_library_alone, r->attribution);
    return r;
}

cm_replay *cm_replay_copy(const cm_replay *r)
{
    cm_replay *copy = malloc(sizeof *copy);
    if (copy == NULL)
        return NULL;
    *copy = *r;
    copy->relabelled = NULL;
    copy->driver = NULL;
    copy->attribution = NULL;
    copy->fates = NULL; /* of the original's window */
    copy->label = NULL;
    copy->label_known = copy->label_of = (cm_idmap){0};
    copy->label_capacity = r->label_count;
    copy->blocks = (cm_blocks){0};
    copy->segments = (cm_segments){0};
    copy->device = NULL;
    copy->origin = NULL;
    copy->origin_slot = NULL;
    copy->device_number = NULL;
    copy->device_capacity = r->device_count;
    copy->origin_capacity = r->origin_count;
    copy->operators = (cm_operators){0};
    copy->nodes = cm_nodes_copy(r->nodes);
    copy->cohorts = cm_cohorts_copy(r->cohorts);
    copy->modules = cm_modules_copy(r->modules);
    copy->code = strdup(r->code);
    copy->library = new_library(r->reader, r->code);
    if (copy->library != NULL)
        copy->attribution = cm_attribution_copy(r->attribution, copy->library);
    if (copy->nodes == NULL || copy->cohorts == NULL || copy->modules == NULL ||
        copy->code == NULL || copy->attribution == NULL ||
        !cm_copy((void **)&copy->label, r->label, r->label_count, sizeof *r->label) ||
        !cm_idmap_copy(&copy->label_known, &r->label_known) ||
        !cm_idmap_copy(&copy->label_of, &r->label_of) ||
        !cm_operators_copy(&copy->operators, &r->operators) ||
        !cm_blocks_copy(&copy->blocks, &r->blocks) ||
        !cm_segments_copy(&copy->segments, &r->segments) ||
        !cm_copy((void **)&copy->device, r->device, r->device_count, sizeof *r->device) ||
        !cm_copy((void **)&copy->origin, r->origin, r->origin_count, sizeof *r->origin) ||
        !cm_copy((void **)&copy->origin_slot, r->origin_slot, r->origin_slots,
                 sizeof *r->origin_slot) ||
        !cm_copy((void **)&copy->device_number, r->device_number, DEVICE_NUMBERS,
                 sizeof *r->device_number) ||
        (r->driver != NULL && (copy->driver = cm_driver_map_copy(r->driver)) == NULL)) {
        cm_replay_free(copy);
        return NULL;
    }
    cm_nodes_judge_by(copy->nodes, cm_attribution_library_alone, copy->attribution);
    return copy;
}

bool cm_replay_begin(cm_replay *r)
{
    r->step = -1;
    cm_nodes_inherit(r->nodes);
    cm_attribution_forget_lines(r->attribution);
    return cm_replay_group(r);
}

void cm_replay_free(cm_replay *r)
{
    if (r == NULL)
        return;
    free(r->code);
    cm_nodes_free(r->nodes);
    cm_operators_clear(&r->operators);
    cm_attribution_free(r->attribution);
    cm_modules_free(r->modules);
    free(r->label);
    cm_idmap_clear(&r->label_known);
    cm_idmap_clear(&r->label_of);
    cm_library_free(r->library);
    cm_blocks_clear(&r->blocks);
    cm_cohorts_free(r->cohorts);
    cm_segments_clear(&r->segments);
    cm_driver_map_free(r->driver);
    free(r->device);
    free(r->origin);
    free(r->origin_slot);
    free(r->device_number);
    free(r);
}

static CM_OWN_FRAME bool add_to_driver(cm_replay *r, const cm_block *block)
{
    const cm_device *d = &r->device[block->device];
    if (d->type != CM_DEVICE_CUDA ||
        cm_driver_map_add_block(r->driver, d->index, block, cm_blocks_note(&r->blocks, block)))
        return true;
    r->error = r->driver->error;
    return false;
}

/* Notifies the driver map of a block in the table, and notes its enclosing allocation there. */
static inline bool notify_driver(cm_replay *r, const cm_block *block)
{
    return r->driver == NULL || add_to_driver(r, block);
}

/* The slot for a block, which may be alive: see cm_blocks_reserve. */
static cm_block *reserve(cm_replay *r, int device, uint64_t address)
{
    cm_block *slot = cm_blocks_reserve(&r->blocks, (uint16_t)device, address);
    if (slot == NULL)
        r->error = cm_replay_out_of_memory;
    return slot;
}

/* A block in the table is in no cohort. */
static inline bool make_loose(cm_replay *r, const cm_block *block)
{
    if (r->cohorts->unlisted || cm_replay_list_loose(r, block))
        return true;
    r->error = cm_replay_out_of_memory;
    return false;
}

static bool add_live(cm_replay *r, cm_block *slot, const cm_block *block, uint64_t time_ns,
                     bool event, cm_change *out)
{
    cm_device *d = &r->device[block->device];
    if (__builtin_add_overflow(d->live, block->size, &d->live)) {
        r->error = bad_size;
        return false;
    }
    cm_blocks_fill(&r->blocks, slot, block);
    d->blocks++;
    d->changed = r->position;
    d->slack += cm_block_slack(block);
    d->direct += block->direct ? block->size : 0;
    *out = (cm_change){*block, block->size, time_ns, d->live, d->blocks, event};
    out->label = cm_replay_label(r, block);
    return make_loose(r, slot) && notify_driver(r, slot);
}

/* enclosing: the block's note. */
static bool remove_live(cm_replay *r, cm_block *block, uint32_t enclosing, uint64_t time_ns,
                        bool event, cm_change *out)
{
    cm_device *d = &r->device[block->device];
    if (block->grouped)
        cm_replay_leave_cohort(r, block);
    d->live -= block->size;
    d->blocks--;
    d->changed = r->position;
    d->slack -= cm_block_slack(block);
    d->direct -= block->direct ? block->size : 0;
    *out = (cm_change){*block, -block->size, time_ns, d->live, d->blocks, event};
    out->label = cm_replay_label(r, block);
    if (block->labelled)
        cm_replay_drop_label(r, block);
    if (enclosing == 0 || cm_driver_map_remove_block(r->driver, block, enclosing))
        return true;
    r->error = r->driver->error;
    return false;
}

/* The fate of a block: from the window's first reading, or outside of a window by its place of
 * birth only. */
static cm_fate foresee(cm_replay *r, cm_phase phase, uint32_t stack, int64_t size)
{
    if (r->fates != NULL)
        return cm_fate_list_next(r->fates, stack, size);
    if (r->only_labels && phase != CM_PHASE_BEFORE_START)
        return (cm_fate){.category = CM_CATEGORY_UNKNOWN};
    switch (phase) {
    case CM_PHASE_BACKWARD:
        return (cm_fate){.category = CM_CATEGORY_GRADIENT};
    case CM_PHASE_OPTIMIZER:
        return (cm_fate){.category = CM_CATEGORY_OPTIMIZER_STATE};
    case CM_PHASE_BEFORE_START:
        return (cm_fate){.category = CM_CATEGORY_BEFORE_START};
    default:
        return (cm_fate){.category = CM_CATEGORY_UNKNOWN};
    }
}

/* The origin of a block of that fate; -1: out of memory. */
static int64_t assign_origin(cm_replay *r, cm_origin *origin, const cm_fate *fate)
{
    uint32_t owner = fate->label != NULL ? fate->label->module : 0;
    origin->category = (uint8_t)fate->category;
    origin->saved_by = fate->saved_by;
    if (fate->category == CM_CATEGORY_WORKSPACE) { /* a library's, whoever calls it first */
        origin->stack = CM_STACK_NONE;
        origin->name = 0;
        origin->phase = CM_PHASE_OTHER;
    }
    origin->module =
        owner != 0 ? owner : cm_modules_of_stack(r->modules, origin->stack, r->position);
    return cm_replay_find_origin(r, origin);
}

static bool make_seed(cm_replay *r, const cm_seed *seed, int device, uint64_t time_ns,
                      cm_change *out)
{
    cm_origin origin = {.device = (uint16_t)device, .phase = CM_PHASE_BEFORE_START};
    cm_fate fate = foresee(r, CM_PHASE_BEFORE_START, CM_STACK_NONE, seed->size);
    int64_t number = assign_origin(r, &origin, &fate);
    if (number < 0) {
        r->error = cm_replay_out_of_memory;
        return false;
    }
    cm_block block = {.address = seed->address,
                      .size = seed->size,
                      .origin = (uint32_t)number,
                      .step = -1,
                      .device = (uint16_t)device,
                      .direct = seed->direct,
                      .labelled = fate.label != NULL};
    if (fate.label != NULL && !cm_replay_put_label(r, &block, fate.label))
        return false;
    if (seed->slack > 0) {
        cm_block_set_slack(&block, seed->slack);
        r->device[device].slack_known = true;
    }
    cm_block *slot = reserve(r, device, block.address);
    return slot != NULL && add_live(r, slot, &block, time_ns, false, out);
}

bool cm_replay_seed(cm_replay *r, const cm_seed *seeds, size_t count)
{
    cm_change ignored;
    for (size_t i = 0; i < count; i++) {
        const cm_seed *seed = &seeds[i];
        if (seed->position + 1 > r->seeded)
            r->seeded = seed->position + 1;
        if (seed->dropped || seed->size == 0)
            continue;
        if (seed->size < 0 || seed->size > BLOCK_MAX) {
            r->error = bad_size;
            return false;
        }
        int device = cm_replay_device(r, seed->device_type, seed->device_index);
        if (device < 0)
            return false;
        if (cm_blocks_find(&r->blocks, (uint16_t)device, seed->address) == NULL &&
            !make_seed(r, seed, device, 0, &ignored))
            return false;
    }
    return true;
}

/* A block alive at the start of an extracted trace (extract.c). */
static bool is_inherited(const cm_event *e)
{
    return e->kind == CM_EV_ALLOC && e->flags & CM_EVF_BEFORE_START;
}

static void count_backward(cm_replay *r, cm_charge_kind kind, int64_t size)
{
    if (kind == CM_CHARGE_OWN)
        return;
    r->backward.bytes += size;
    if (kind == CM_CHARGE_RESOLVED)
        r->backward.resolved += size;
    else if (kind == CM_CHARGE_ACCUMULATION)
        r->backward.accumulation += size;
    else
        r->backward.unresolved += size;
}

/* A block that C++ made for a node has the node's name. All others, Python run by a node included,
 * have their operator's, if recorded. */
static void name_operator(const cm_replay *r, const cm_record *record, cm_origin *origin)
{
    bool of_node = origin->name != 0 &&
                   (record->event.flags & CM_EVF_NODE_STACK || origin->stack != origin->own);
    uint32_t name = of_node ? 0 : cm_operators_find(&r->operators, record->thread);
    if (name != 0)
        origin->name = name;
}

static CM_OWN_FRAME int allocate(cm_replay *r, const cm_record *record, cm_change *out)
{
    const cm_event *e = &record->event;
    int device = cm_replay_find_device(r, e->device_type, e->device_index);
    if (device < 0 && (device = cm_replay_device(r, e->device_type, e->device_index)) < 0)
        return -1;
    if (e->size < 0 || e->size > BLOCK_MAX || r->backward.bytes > INT64_MAX - BLOCK_MAX) {
        r->error = bad_size;
        return -1;
    }
    if (e->size == 0 || e->address == 0)
        return 0; /* no memory: there will be no free */
    cm_charge charge = cm_nodes_charge(r->nodes, record);
    cm_origin origin = {.stack = charge.stack,
                        .own = e->stack,
                        .name = charge.name,
                        .device = (uint16_t)device,
                        .charge = (uint8_t)charge.kind};
    name_operator(r, record, &origin);
    if (e->flags & CM_EVF_IN_NODE)
        origin.phase = CM_PHASE_BACKWARD;
    else
        origin.phase = (uint8_t)cm_attribution_phase(r->attribution, e->stack);
    cm_fate fate = foresee(r, (cm_phase)origin.phase, e->stack, e->size);
    int64_t number = assign_origin(r, &origin, &fate);
    if (number < 0) {
        r->error = cm_replay_out_of_memory;
        return -1;
    }
    cm_block *slot = reserve(r, device, e->address);
    if (slot == NULL)
        return -1;
    int changes = 0;
    if (slot->alive) {
        cm_block old = *slot;
        uint32_t enclosing = r->blocks.noted ? *cm_blocks_note(&r->blocks, slot) : 0;
        if (!remove_live(r, &old, enclosing, record->time_ns, false, &out[changes++]))
            return -1;
        r->replaced++;
    }
    bool inherited = is_inherited(e);
    cm_block block = {.address = e->address,
                      .size = e->size,
                      .origin = (uint32_t)number,
                      .step = inherited ? -1 : r->step,
                      .device = (uint16_t)device,
                      .direct = (e->flags & CM_EVF_DIRECT) != 0,
                      .made = !inherited,
                      .labelled = fate.label != NULL};
    if (fate.label != NULL && !cm_replay_put_label(r, &block, fate.label))
        return -1;
    if (!add_live(r, slot, &block, record->time_ns, !inherited, &out[changes++]))
        return -1;
    if (!inherited)
        count_backward(r, charge.kind, e->size);
    return changes;
}

/* The device of the block at this address, if the event lacks it; -1: no such block. */
static int owner_of(const cm_replay *r, const cm_event *e)
{
    for (size_t i = 0; i < r->device_count; i++)
        if (r->device[i].type == e->device_type &&
            cm_blocks_find(&r->blocks, (uint16_t)i, e->address) != NULL)
            return (int)i;
    return -1;
}

static int device_of(const cm_replay *r, const cm_event *e)
{
    int device = cm_replay_find_device(r, e->device_type, e->device_index);
    bool known = e->device_type != CM_DEVICE_CUDA || e->device_index != CM_DEVICE_UNKNOWN;
    return known || device >= 0 ? device : owner_of(r, e);
}

static CM_OWN_FRAME int deallocate(cm_replay *r, const cm_record *record, int device,
                                   cm_change *out)
{
    const cm_event *e = &record->event;
    cm_block block;
    uint32_t enclosing;
    if (e->address == 0)
        return 0;
    if (device < 0 ||
        !cm_blocks_take(&r->blocks, (uint16_t)device, e->address, &block, &enclosing)) {
        r->unknown_frees++;
        return 0;
    }
    return remove_live(r, &block, enclosing, record->time_ns, true, out) ? 1 : -1;
}

/* A later walk, after a pause of the recording: known blocks stay unchanged. */
static int find_alive(cm_replay *r, const cm_record *record, int device, cm_change *out)
{
    const cm_event *e = &record->event;
    if (r->position < r->seeded || e->size == 0 || e->address == 0 ||
        cm_blocks_find(&r->blocks, (uint16_t)device, e->address) != NULL)
        return 0;
    if (e->size < 0 || e->size > BLOCK_MAX) {
        r->error = bad_size;
        return -1;
    }
    const cm_seed seed = {
        .address = e->address, .size = e->size, .direct = (e->flags & CM_EVF_DIRECT) != 0};
    return make_seed(r, &seed, device, record->time_ns, out) ? 1 : -1;
}

/* The requested size of a known block. */
static void request(cm_replay *r, const cm_event *e, int device)
{
    if (e->flags & CM_EVF_BEFORE_START && !r->walked)
        return; /* a seed of the walk at the start: known from the first moment */
    cm_block *block = cm_blocks_at(&r->blocks, (uint16_t)device, e->address);
    if (block == NULL || e->size < 0 || e->size > block->size)
        return;
    cm_device *d = &r->device[device];
    int64_t before = cm_block_slack(block);
    cm_block_set_slack(block, block->size - e->size);
    d->slack += cm_block_slack(block) - before;
    d->slack_known = true;
    uint32_t enclosing = r->driver != NULL ? *cm_blocks_note(&r->blocks, block) : 0;
    if (enclosing != 0)
        cm_driver_map_add_slack(r->driver, enclosing, cm_block_slack(block) - before);
}

static void count_segment(cm_replay *r, const cm_segment *segment, int sign)
{
    if (segment->size == 0)
        return;
    r->device[segment->device].segmented += sign * segment->size;
    r->device[segment->device].segments += (uint64_t)sign;
}

static bool notify_driver_of_segment(cm_replay *r, const cm_segment *segment)
{
    const cm_device *d = &r->device[segment->device];
    if (r->driver == NULL || d->type != CM_DEVICE_CUDA ||
        cm_driver_map_add_segment(r->driver, d->index, segment->address, segment->size,
                                  segment->stack))
        return true;
    r->error = r->driver->error;
    return false;
}

static int take_segment(cm_replay *r, const cm_event *e, int device)
{
    cm_segment replaced, segment = {.address = e->address,
                                    .size = e->size,
                                    .stack = e->stack,
                                    .device = (uint16_t)device,
                                    .before_start = (e->flags & CM_EVF_BEFORE_START) != 0};
    if (e->size < 0 || e->size > BLOCK_MAX) {
        r->error = bad_size;
        return -1;
    }
    if (e->size == 0 || e->address == 0)
        return 0;
    int added = cm_segments_add(&r->segments, &segment, &replaced);
    if (added < 0) {
        r->error = cm_replay_out_of_memory;
        return -1;
    }
    if (added > 0) {
        count_segment(r, &replaced, -1);
        count_segment(r, &segment, 1);
        if (r->device[device].segmented >= COMPACTED_MAX) {
            r->error = bad_size;
            return -1;
        }
    }
    return added == 0 || notify_driver_of_segment(r, &segment) ? 0 : -1;
}

/* Frees a segment or a direct block. */
static int give_back(cm_replay *r, const cm_record *record, cm_change *out)
{
    const cm_event *e = &record->event;
    int device = owner_of(r, e);
    if (device >= 0 && cm_blocks_find(&r->blocks, (uint16_t)device, e->address)->direct)
        return deallocate(r, record, device, out);
    cm_segment segment;
    int taken = cm_segments_take(&r->segments, e->address, &segment);
    if (taken < 0) {
        r->error = cm_replay_out_of_memory;
        return -1;
    }
    if (taken > 0)
        count_segment(r, &segment, -1);
    if (r->driver != NULL && !cm_driver_map_remove_segment(r->driver, e->address)) {
        r->error = r->driver->error;
        return -1;
    }
    return 0;
}

/* Skips blocks that the map already has. */
static bool notify_driver_of_blocks(cm_replay *r)
{
    size_t at = 0;
    for (const cm_block *b; (b = cm_blocks_next(&r->blocks, &at)) != NULL;)
        if (!notify_driver(r, b))
            return false;
    return true;
}

/* The first driver event: notifies the new map of all segments and blocks. */
static bool begin_driver(cm_replay *r)
{
    r->driver = cm_driver_map_new(r->reader);
    if (r->driver == NULL || !cm_blocks_keep_notes(&r->blocks)) {
        r->error = cm_replay_out_of_memory;
        return false;
    }
    for (size_t i = 0; i < r->segments.count; i++)
        if (!notify_driver_of_segment(r, &r->segments.segment[i]))
            return false;
    return notify_driver_of_blocks(r);
}

/* Blocks from before are known from the beginning, their segments only now. */
static int end_walk(cm_replay *r)
{
    r->walked = true;
    return r->driver == NULL || notify_driver_of_blocks(r) ? 0 : -1;
}

/* Charge it as a tensor allocated here would be charged. Inherited events are already charged. */
static cm_record charge_driver(cm_replay *r, const cm_record *record)
{
    cm_record charged = *record;
    uint8_t flags = record->event.flags;
    if (record->event.kind != CM_EV_DRIVER_NEW || flags & CM_EVF_ALREADY)
        return charged;
    charged.event.flags = CM_EVF_IN_NODE;
    if (flags & CM_EVF_OF_NODE)
        charged.event.flags |= CM_EVF_NODE_STACK;
    cm_charge charge = cm_nodes_charge(r->nodes, &charged);
    charged.event.stack = charge.stack;
    charged.event.flags = flags | (charge.name != 0 ? CM_EVF_OF_NODE : 0);
    return charged;
}

static int apply_driver(cm_replay *r, const cm_record *record)
{
    const cm_event *e = &record->event;
    if (r->driver == NULL && !begin_driver(r))
        return -1;
    cm_record charged = charge_driver(r, record);
    if (!cm_driver_map_apply(r->driver, &charged)) {
        r->error = r->driver->error;
        return -1;
    }
    if (e->kind != CM_EV_DRIVER_NEW)
        return 0;
    /* Threads are merged by time: its block may precede it. */
    int device = cm_replay_find_device(r, CM_DEVICE_CUDA, e->device_index);
    const cm_block *block =
        device < 0 ? NULL : cm_blocks_find(&r->blocks, (uint16_t)device, e->address);
    return block == NULL || notify_driver(r, block) ? 0 : -1;
}

/* Compacted blocks were born and freed: they change no live bytes. */
static int count_compacted(cm_replay *r, const cm_event *e)
{
    if (e->size < 0 || e->size > COMPACTED_MAX - r->compacted_bytes ||
        e->address > (uint64_t)e->size || r->backward.bytes > INT64_MAX - e->size ||
        e->flags > CM_CHARGE_UNRESOLVED) {
        r->error = bad_size;
        return -1;
    }
    r->compacted_bytes += e->size;
    count_backward(r, (cm_charge_kind)e->flags, e->size);
    return 0;
}

static cm_label label_of(const cm_replay *r, const cm_event *e)
{
    uint32_t module = cm_modules_at(r->modules, (uint64_t)e->size, r->position);
    return (cm_label){(uint64_t)e->size, e->stack, module, e->flags};
}

/* Outside of a window: inside, labels of its walks apply from birth. */
static bool see_label(cm_replay *r, const cm_event *e)
{
    int device = device_of(r, e); /* a library is given its workspace by the address alone */
    cm_block *block = device < 0 ? NULL : cm_blocks_at(&r->blocks, (uint16_t)device, e->address);
    r->labelled = true;
    r->relabelled = NULL;
    if (r->fates != NULL || block == NULL || e->flags < CM_LABEL_PARAMETER ||
        e->flags >= CM_LABEL_END)
        return true;
    const cm_label *known = cm_replay_label(r, block);
    if (known != NULL && known->kind != CM_LABEL_TENSOR)
        return true;
    if (block->grouped) {
        cm_replay_leave_cohort(r, block);
        if (!make_loose(r, block))
            return false;
    }
    cm_label label = label_of(r, e);
    cm_origin origin = r->origin[block->origin];
    cm_fate fate = {cm_fate_category(&label, (cm_category)origin.category), &label,
                    origin.saved_by};
    int64_t number = assign_origin(r, &origin, &fate);
    if (number < 0) {
        r->error = cm_replay_out_of_memory;
        return false;
    }
    r->relabelled = block;
    r->relabelled_from = block->origin;
    block->origin = (uint32_t)number;
    block->labelled = true;
    return cm_replay_put_label(r, block, &label);
}

static bool assign_fate(cm_replay *r, cm_block *block, const cm_fate *fate)
{
    cm_origin origin = r->origin[block->origin];
    int64_t number = assign_origin(r, &origin, fate);
    if (number < 0)
        return false;
    block->origin = (uint32_t)number;
    block->labelled = fate->label != NULL;
    return fate->label == NULL || cm_replay_put_label(r, block, fate->label);
}

/* Takes a block out of its cohort, with a fate of its own. */
static bool single_out(cm_replay *r, cm_block *block, const cm_fate *fate)
{
    cm_replay_leave_cohort(r, block);
    return make_loose(r, block) && assign_fate(r, block, fate);
}

static bool single_out_all(cm_replay *r, const cm_fate_list *fates)
{
    for (size_t i = 0; i < fates->singles; i++) {
        const cm_fate_single *of = &fates->single[i];
        cm_block *block = cm_blocks_at(&r->blocks, of->device, of->address);
        uint32_t own = r->origin[cm_replay_origin(r, block)].own;
        cm_fate fate = cm_fate_list_at(fates, of->birth, own, block->size);
        if (!single_out(r, block, &fate))
            return false;
    }
    return true;
}

/* One of the labels that need no walk, for all blocks of these cohorts. */
static bool label_cohorts(cm_replay *r, const cm_fate_list *fates)
{
    size_t at = 0;
    for (cm_block *block; (block = (cm_block *)cm_blocks_next(&r->blocks, &at)) != NULL;) {
        if (!block->grouped || !r->cohorts->cohort[block->origin].labelled)
            continue;
        uint32_t own = r->origin[cm_replay_origin(r, block)].own;
        cm_fate fate = cm_fate_list_at(fates, block->origin, own, block->size);
        if (!single_out(r, block, &fate))
            return false;
    }
    return true;
}

static bool assign_fates(cm_replay *r, const cm_fate_list *fates)
{
    bool labels = false;
    for (uint32_t i = 0; i < r->cohorts->count; i++) {
        cm_cohort *of = &r->cohorts->cohort[i];
        if (of->count == 0)
            continue;
        cm_origin origin = r->origin[of->origin];
        cm_fate fate = cm_fate_list_at(fates, i, origin.own, of->size);
        of->labelled = fate.label != NULL;
        labels |= of->labelled;
        int64_t number = of->labelled ? of->origin : assign_origin(r, &origin, &fate);
        if (number < 0)
            return false;
        of->origin = (uint32_t)number;
    }
    return !labels || label_cohorts(r, fates);
}

bool cm_replay_foresee(cm_replay *r, cm_fate_list *fates)
{
    cm_block *block;
    uint32_t birth = (uint32_t)r->cohorts->count;
    for (size_t at = 0; (block = cm_replay_loose(r, &at)) != NULL; birth++) {
        cm_fate fate = cm_fate_list_at(fates, birth, r->origin[block->origin].own, block->size);
        if (!assign_fate(r, block, &fate))
            return false;
    }
    r->fates = fates;
    return single_out_all(r, fates) && assign_fates(r, fates);
}

static bool learn(cm_replay *r, const cm_record *record)
{
    if (cm_nodes_apply(r->nodes, record->thread, &record->event))
        return true;
    r->error = cm_replay_out_of_memory;
    return false;
}

/* Kinds other than those in cm_replay_apply. */
static CM_OWN_FRAME int apply_other(cm_replay *r, const cm_record *record, cm_change change[2])
{
    const cm_event *e = &record->event;
    const uint64_t of_device = UINT64_C(1) << CM_EV_SEED | UINT64_C(1) << CM_EV_RESERVED |
                               UINT64_C(1) << CM_EV_OOM | UINT64_C(1) << CM_EV_COMPACTED_BLOCKS |
                               UINT64_C(1) << CM_EV_SEGMENT_NEW | UINT64_C(1) << CM_EV_HOST_READ;
    int device = 0;
    if (!cm_nodes_apply(r->nodes, record->thread, e) ||
        !cm_modules_apply(r->modules, r->position, e) ||
        !cm_operators_apply(&r->operators, record)) {
        r->error = cm_replay_out_of_memory;
        return -1;
    }
    if (e->kind < 64 && of_device >> e->kind & 1) {
        device = cm_replay_device(r, e->device_type, e->device_index);
        if (device < 0)
            return -1;
    }
    switch (e->kind) {
    case CM_EV_SEED:
        return find_alive(r, record, device, change);
    case CM_EV_RESERVED:
        if (e->size >= 0)
            r->device[device].reserved = e->size;
        return 0;
    case CM_EV_COMPACTED_BLOCKS:
        return count_compacted(r, e);
    case CM_EV_REQUESTED:
        device = cm_replay_find_device(r, e->device_type, e->device_index);
        if (device >= 0)
            request(r, e, device);
        return 0;
    case CM_EV_SEGMENT_NEW:
        return take_segment(r, e, device);
    case CM_EV_SEGMENT_FREE:
        return give_back(r, record, change);
    case CM_EV_MARK:
        return e->size == CM_MARK_SEEDED ? end_walk(r) : 0;
    case CM_EV_LABEL:
        return see_label(r, e) ? 0 : -1;
    case CM_EV_DRIVER_NEW:
    case CM_EV_DRIVER_FREE:
    case CM_EV_DRIVER_MORE:
    case CM_EV_DRIVER_RECORD:
    case CM_EV_POOL:
    case CM_EV_DEVICE:
    case CM_EV_COMPACTED_DRIVER:
        return apply_driver(r, record);
    case CM_EV_NODE_NEW:
        if (!(e->flags & CM_EVF_IN_NODE))
            cm_attribution_made_node(r->attribution, e->stack);
        return 0;
    default:
        return 0;
    }
}

/* Of a free nodes learn no more than that there is such a thread. */
static bool learn_free(cm_replay *r, const cm_record *record)
{
    if (r->freed_by == (uint64_t)record->thread + 1)
        return true;
    r->freed_by = (uint64_t)record->thread + 1;
    return learn(r, record);
}

int cm_replay_apply(cm_replay *r, const cm_record *record, cm_change change[2])
{
    const cm_event *e = &record->event;
    int changes = -1;
    if (r->driver != NULL)
        r->driver->mappings = 0;
    switch (e->kind) {
    case CM_EV_FREE: /* of an unknown block: makes no device */
        if (learn_free(r, record))
            changes = deallocate(r, record, device_of(r, e), change);
        break;
    case CM_EV_ALLOC:
        if (learn(r, record))
            changes = allocate(r, record, change);
        break;
    case CM_EV_NODE_RUN:
    case CM_EV_NODE_DONE:
    case CM_EV_NODE_FREE:
        changes = learn(r, record) ? 0 : -1;
        break;
    default:
        changes = apply_other(r, record, change);
    }
    for (int i = 0; i < changes; i++)
        change[i].thread = record->thread;
    r->position++;
    return changes;
}
