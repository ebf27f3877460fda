#include "stream.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../base/library.h"

/* The most items of one record: two changes, a segment replaced by another one. */
enum { PENDING = 8, RECORDS_A_READ = 1 << 16 };

struct cm_stream {
    cm_engine *engine;
    cm_window window;
    char *code;
    uint64_t position;
    bool started, listed, over;
    size_t segment, device, slot; /* the next ones of the start's list */
    uint64_t mapping;             /* as these: from which address on */
    bool mapped;                  /* all of these are listed */
    cm_record newest;             /* whose mappings are to be listed */
    size_t next_mapping;
    int64_t bounds; /* step bounds passed: the first is the begin of step 0 */
    cm_item pending[PENDING];
    size_t pending_count, pending_next;
};

double cm_stream_progress(const cm_stream *s)
{
    return cm_engine_progress(s->engine);
}

const cm_plan *cm_stream_plan(const cm_stream *s)
{
    return s->window.plan;
}

const cm_replay *cm_stream_replay(const cm_stream *s)
{
    return s->window.replay;
}

const char *cm_stream_code(const cm_stream *s)
{
    return s->code;
}

cm_stream *cm_stream_open(cm_reader *reader, const cm_analysis_options *options, char *error,
                          size_t error_size)
{
    const cm_window_options opened = cm_analysis_window(options);
    cm_stream *s = calloc(1, sizeof *s);
    const char *code =
        options->code != NULL ? options->code : cm_library_names(cm_reader_meta(reader, "code"));
    if (s != NULL) {
        s->code = strdup(code);
        s->engine = cm_engine_new(reader);
    }
    if (s == NULL || s->code == NULL || s->engine == NULL) {
        snprintf(error, error_size, "out of memory");
        cm_stream_close(s);
        return NULL;
    }
    if (!cm_engine_open(s->engine, &opened, s->code, 1, &s->window, error, error_size)) {
        cm_stream_close(s);
        return NULL;
    }
    if (s->window.plan->steps.count > INT32_MAX) {
        snprintf(error, error_size, "the trace has too many steps");
        cm_stream_close(s);
        return NULL;
    }
    s->position = s->window.replay->position;
    return s;
}

void cm_stream_close(cm_stream *s)
{
    if (s == NULL)
        return;
    cm_engine_free(s->engine);
    free(s->code);
    free(s);
}

/* --- items ---------------------------------------------------------------------------------- */

/* Threads are merged, so a time may be a little before the window's mark. */
static uint64_t since_begin(const cm_stream *s, uint64_t time_ns)
{
    uint64_t begin = s->window.plan->begin_ns;
    return time_ns > begin ? time_ns - begin : 0;
}

static cm_item *add(cm_stream *s, cm_item_kind kind, const cm_record *record)
{
    cm_item *item = &s->pending[s->pending_count++];
    *item = (cm_item){.kind = kind,
                      .thread = record->thread,
                      .time_ns = since_begin(s, record->time_ns),
                      .step = -1,
                      .device = -1};
    return item;
}

/* The tail is in no step. */
static int32_t step_of(const cm_stream *s, int32_t step)
{
    return step >= 0 && (uint64_t)step < s->window.plan->steps.count ? step : -1;
}

static void fill_block(const cm_stream *s, cm_item *item, const cm_block *block)
{
    item->address = block->address;
    item->bytes = block->size;
    item->step = step_of(s, block->step);
    item->origin = cm_replay_origin(s->window.replay, block);
    item->slack = cm_block_slack(block);
    item->device = (int16_t)block->device;
}

static void add_change(cm_stream *s, const cm_record *record, const cm_change *change)
{
    cm_item *item = add(s, change->bytes > 0 ? CM_ITEM_ALLOC : CM_ITEM_FREE, record);
    fill_block(s, item, &change->block);
    item->live = change->live;
    item->reported = change->event;
}

static void add_segment(cm_stream *s, const cm_record *record, cm_item_kind kind,
                        const cm_segment *segment)
{
    cm_item *item = add(s, kind, record);
    item->address = segment->address;
    item->bytes = segment->size;
    item->stack = segment->stack;
    item->device = (int16_t)segment->device;
    item->reported = !segment->before_start;
}

static bool find_segment(const cm_stream *s, uint64_t address, cm_segment *out)
{
    const cm_segments *all = &s->window.replay->segments;
    uint32_t at;
    if (!cm_idmap_get(&all->at, address & (UINT64_MAX >> 1), &at) || at >= all->count ||
        all->segment[at].address != address)
        return false;
    *out = all->segment[at];
    return true;
}

static bool same_segment(const cm_segment *a, const cm_segment *b)
{
    return a->size == b->size && a->device == b->device && a->stack == b->stack &&
           a->before_start == b->before_start;
}

static void add_sum(cm_stream *s, const cm_record *record, cm_item_kind kind)
{
    cm_item *item = add(s, kind, record);
    item->address = record->event.address;
    item->bytes = record->event.size;
    item->stack = record->event.stack;
    item->flags = record->event.flags;
}

static int16_t device_of(const cm_stream *s, const cm_event *e)
{
    return (int16_t)cm_replay_find_device(s->window.replay, e->device_type, e->device_index);
}

/* Neither a block nor a segment. */
static void add_other(cm_stream *s, const cm_record *record)
{
    const cm_event *e = &record->event;
    switch (e->kind) {
    case CM_EV_REQUESTED:
        if (e->flags & CM_EVF_BEFORE_START)
            return;
        add_sum(s, record, CM_ITEM_REQUESTED);
        break;
    case CM_EV_RESERVED:
        if (e->size < 0)
            return;
        add_sum(s, record, CM_ITEM_RESERVED);
        break;
    case CM_EV_COMPACTED_BLOCKS:
        add_sum(s, record, CM_ITEM_COMPACTED);
        break;
    case CM_EV_OOM:
        add_sum(s, record, CM_ITEM_OOM);
        break;
    case CM_EV_LAUNCH:
    case CM_EV_WORK:
        if (!(e->flags & CM_EVF_SUMMED)) {
            add_sum(s, record, e->kind == CM_EV_WORK ? CM_ITEM_WORK : CM_ITEM_LAUNCH);
            s->pending[s->pending_count - 1].device = e->device_index;
        }
        return;
    case CM_EV_SAMPLE:
        if (e->address == CM_SAMPLE_RSS)
            add_sum(s, record, CM_ITEM_RESIDENT);
        return;
    case CM_EV_COMPACTED:
        add_sum(s, record, CM_ITEM_LEFT_OUT);
        return;
    case CM_EV_LOST:
        add_sum(s, record, CM_ITEM_LOST);
        return;
    default:
        return;
    }
    cm_item *item = &s->pending[s->pending_count - 1];
    item->device = device_of(s, e);
    if (item->device < 0)
        s->pending_count--;
    else if (item->kind == CM_ITEM_OOM) {
        item->step = step_of(s, s->window.replay->step);
        item->live = cm_oom_is_known(e->address) && e->address <= INT64_MAX
                         ? (int64_t)e->address
                         : s->window.replay->device[item->device].live;
    }
}

/* The device may have no event yet: PyTorch maps memory before it gives out blocks. */
static bool fill_mapping(const cm_stream *s, cm_item *item, uint64_t time_ns,
                         const cm_driver_mapping *m)
{
    int device = cm_replay_device(s->window.replay, CM_DEVICE_CUDA, m->device);
    *item = (cm_item){.kind = m->gone ? CM_ITEM_UNMAPPED : CM_ITEM_MAPPED,
                      .thread = s->newest.thread,
                      .time_ns = time_ns,
                      .address = m->address,
                      .bytes = m->size,
                      .stack = m->stack,
                      .step = -1,
                      .device = (int16_t)device,
                      .reported = s->started};
    return device >= 0;
}

static bool read_record(cm_stream *s, char *error, size_t error_size)
{
    const cm_record *record = cm_engine_next(s->engine, error, error_size);
    cm_change change[2];
    cm_segment before, after;
    if (record == NULL)
        return false;
    const cm_event *e = &record->event;
    bool about_segment = e->kind == CM_EV_SEGMENT_NEW || e->kind == CM_EV_SEGMENT_FREE;
    bool was = about_segment && find_segment(s, e->address, &before);
    int changes = cm_engine_apply(s->engine, s->window.replay, record, change, error, error_size);
    if (changes < 0)
        return false;
    s->position++;
    if (!s->started)
        return true;
    s->newest = *record;
    s->next_mapping = 0;
    for (int i = 0; i < changes; i++)
        add_change(s, record, &change[i]);
    if (!about_segment) {
        add_other(s, record);
        return true;
    }
    bool is = find_segment(s, e->address, &after);
    if (was && is && same_segment(&before, &after))
        return true;
    if (was)
        add_segment(s, record, CM_ITEM_SEGMENT_FREE, &before);
    if (is)
        add_segment(s, record, CM_ITEM_SEGMENT_NEW, &after);
    return true;
}

/* The next step bound, if at or before this record. */
static bool pass_bound(cm_stream *s, cm_item *item)
{
    const cm_steps *steps = &s->window.plan->steps;
    cm_replay *replay = s->window.replay;
    if (steps->kind == 0 || s->bounds > (int64_t)steps->count)
        return false;
    cm_moment bound = s->bounds ? steps->step[s->bounds - 1].end : steps->begin;
    if (bound.position > s->position)
        return false;
    int64_t ended = s->bounds++ - 1;
    replay->step = (int32_t)(ended + 1);
    cm_nodes_begin_step(replay->nodes, replay->step);
    *item = (cm_item){.kind = CM_ITEM_STEP,
                      .time_ns = since_begin(s, bound.time_ns),
                      .step = (int32_t)ended,
                      .device = -1};
    return true;
}

/* The state at the start: segments, the allocators' totals, blocks. */
static bool list_start(cm_stream *s, cm_item *item)
{
    const cm_replay *replay = s->window.replay;
    const cm_record begin = {.time_ns = s->window.plan->begin_ns};
    if (s->segment < replay->segments.count) {
        cm_segment segment = replay->segments.segment[s->segment++];
        segment.before_start = true;
        add_segment(s, &begin, CM_ITEM_SEGMENT_NEW, &segment);
        *item = s->pending[--s->pending_count];
        return true;
    }
    while (!s->mapped) {
        cm_driver_mapping m;
        s->mapped = replay->driver == NULL ||
                    !cm_driver_map_next_mapping(replay->driver, s->mapping, &m) ||
                    m.address == UINT64_MAX;
        if (s->mapped)
            break;
        s->mapping = m.address + 1;
        if (fill_mapping(s, item, 0, &m))
            return true;
    }
    while (s->device < replay->device_count) {
        const cm_device *device = &replay->device[s->device++];
        if (device->reserved < 0)
            continue;
        *item = (cm_item){.kind = CM_ITEM_RESERVED,
                          .bytes = device->reserved,
                          .device = (int16_t)(s->device - 1)};
        return true;
    }
    const cm_block *block = cm_blocks_next(&replay->blocks, &s->slot);
    if (block == NULL)
        return false;
    *item = (cm_item){.kind = CM_ITEM_START};
    fill_block(s, item, block);
    item->step = -1;
    return true;
}

/* Before the records: the state at the start, then the step bounds up to here. */
static bool next_without_record(cm_stream *s, cm_item *item)
{
    const cm_driver_map *driver = s->window.replay->driver;
    while (s->started && s->listed && driver != NULL && s->next_mapping < driver->mappings)
        if (fill_mapping(s, item, since_begin(s, s->newest.time_ns),
                         &driver->mapping[s->next_mapping++]))
            return true;
    if (s->pending_next < s->pending_count) {
        *item = s->pending[s->pending_next++];
        return true;
    }
    s->pending_next = s->pending_count = 0;
    const cm_plan *plan = s->window.plan;
    if (!s->started && (s->position >= plan->begin || s->position >= plan->end)) {
        s->started = true;
        s->next_mapping = s->window.replay->driver != NULL ? s->window.replay->driver->mappings : 0;
        cm_nodes_begin_step(s->window.replay->nodes, s->window.replay->step);
    }
    if (!s->started)
        return false;
    if (!s->listed && list_start(s, item))
        return true;
    s->listed = true;
    return pass_bound(s, item);
}

bool cm_stream_read(cm_stream *s, cm_item *item, size_t room, size_t *count, bool *over,
                    char *error, size_t error_size)
{
    size_t records = 0;
    *count = 0;
    while (*count < room && !s->over && records < RECORDS_A_READ) {
        if (next_without_record(s, &item[*count])) {
            (*count)++;
        } else if (s->position >= s->window.plan->end) {
            s->over = true;
        } else {
            if (!read_record(s, error, error_size))
                return false;
            records++;
        }
    }
    *over = s->over;
    return true;
}
