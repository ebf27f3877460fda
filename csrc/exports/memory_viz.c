#include "memory_viz.h"

#include <stdio.h>
#include <stdlib.h>

#include "../base/mapped.h"
#include "pickle.h"
#include "held_segments.h"

enum { MAPPED = 0 };                       /* in the place of a segment's address */
enum { SMALL = 2 << 20, CHUNK = 1 << 20 }; /* SMALL: the largest segment that PyTorch calls so */

const char *const cm_words[CM_WORDS] = {
    [CM_WORD_ALLOC] = "alloc",
    [CM_WORD_FREE_REQUESTED] = "free_requested",
    [CM_WORD_FREE_COMPLETED] = "free_completed",
    [CM_WORD_SEGMENT_ALLOC] = "segment_alloc",
    [CM_WORD_SEGMENT_FREE] = "segment_free",
    [CM_WORD_SEGMENT_MAP] = "segment_map",
    [CM_WORD_SEGMENT_UNMAP] = "segment_unmap",
    [CM_WORD_MOMENT] = "snapshot",
    [CM_WORD_OOM] = "oom",
    [CM_WORD_ACTION] = "action",
    [CM_WORD_ADDR] = "addr",
    [CM_WORD_SIZE] = "size",
    [CM_WORD_STREAM] = "stream",
    [CM_WORD_TIME_US] = "time_us",
    [CM_WORD_FRAMES] = "frames",
    [CM_WORD_USER_METADATA] = "user_metadata",
    [CM_WORD_DEVICE_FREE] = "device_free",
    [CM_WORD_DEVICE] = "device",
    [CM_WORD_ADDRESS] = "address",
    [CM_WORD_TOTAL_SIZE] = "total_size",
    [CM_WORD_ALLOCATED_SIZE] = "allocated_size",
    [CM_WORD_ACTIVE_SIZE] = "active_size",
    [CM_WORD_SEGMENT_TYPE] = "segment_type",
    [CM_WORD_IS_EXPANDABLE] = "is_expandable",
    [CM_WORD_LARGE] = "large",
    [CM_WORD_SMALL] = "small",
    [CM_WORD_BLOCKS] = "blocks",
    [CM_WORD_REQUESTED_SIZE] = "requested_size",
    [CM_WORD_STATE] = "state",
    [CM_WORD_ACTIVE_ALLOCATED] = "active_allocated",
    [CM_WORD_INACTIVE] = "inactive",
    [CM_WORD_ALONE] = "alone",
    [CM_WORD_BEFORE_START] = "before_start",
};

typedef struct entry {
    uint64_t time_ns, address;
    int64_t size;
    uint32_t about; /* an origin of blocks, or a stack */
    int32_t step;
    uint8_t action; /* cm_word */
    bool of_block, before_start;
    int64_t requested; /* -1: unknown, or as large as the block */
} entry;

/* Of a live block at the end. */
typedef struct place {
    uint64_t segment, address;
    uint32_t number;
} place;

struct cm_viz_device {
    uint16_t number; /* in the replay */
    cm_text text;
    uint64_t listed; /* entries in the file */
    cm_viz_name word[CM_WORDS];
    entry *kept; /* a ring of the newest ones */
    size_t kept_capacity;
    uint64_t kept_count, kept_next; /* next: to be written at the end */
    cm_held held;
    cm_mapped mapped;
    int64_t reserved; /* as a reader of the entries knows it */
    place *inside;    /* at the end: live blocks by segment and address */
    uint32_t *alone;  /* the others, by birth */
    size_t inside_count, inside_capacity, alone_count, alone_capacity, next_segment, next_alone;
    bool sorted;
};

static void clear_device(cm_viz_device *d)
{
    free(d->text.bytes);
    free(d->kept);
    free(d->held.segment);
    cm_mapped_clear(&d->mapped);
    free(d->inside);
    free(d->alone);
}

void cm_viz_clear(cm_viz *s)
{
    for (size_t i = 0; i < s->devices; i++)
        clear_device(&s->device[i]);
    free(s->device);
    free(s->origin);
    cm_live_clear(&s->live);
    s->device = NULL;
    s->origin = NULL;
    s->devices = s->origins = 0;
}

cm_text *cm_viz_text(cm_viz *s, size_t device)
{
    return &s->device[device].text;
}

uint16_t cm_viz_number(const cm_viz *s, size_t device)
{
    return s->device[device].number;
}

/* NULL: out of memory. */
static cm_viz_device *device_of(cm_viz *s, int16_t number)
{
    for (size_t i = 0; i < s->devices; i++)
        if (s->device[i].number == (uint16_t)number)
            return &s->device[i];
    if (!cm_grow_zeroed((void **)&s->device, &s->device_capacity, s->devices + 1,
                        sizeof *s->device))
        return NULL;
    s->device[s->devices].number = (uint16_t)number;
    return &s->device[s->devices++];
}

/* --- texts ---------------------------------------------------------------------------------- */

/* Writes a text, whole where it was not yet. */
static bool put_name(cm_viz *s, cm_viz_device *d, cm_viz_what what, uint32_t number,
                     cm_viz_name *name)
{
    if (name->later.bytes != NULL) {
        cm_text_piece(&d->text, name->later);
        return true;
    }
    if (!s->namer(s->context, d->number, what, number, name))
        return false;
    cm_text_piece(&d->text, name->first);
    return true;
}

static bool put_word(cm_viz *s, cm_viz_device *d, cm_word word)
{
    return put_name(s, d, CM_VIZ_WORD, word, &d->word[word]);
}

static bool put_number(cm_viz *s, cm_viz_device *d, cm_word key, int64_t value)
{
    bool fine = put_word(s, d, key);
    cm_pickle_signed(&d->text, value);
    return fine;
}

static bool put_address(cm_viz *s, cm_viz_device *d, cm_word key, uint64_t value)
{
    bool fine = put_word(s, d, key);
    cm_pickle_unsigned(&d->text, value);
    return fine;
}

/* name: receives that of an origin, which is valid until the next one. */
static bool put_frames(cm_viz *s, cm_viz_device *d, bool of_block, uint32_t about,
                       cm_viz_name **name)
{
    cm_viz_name ignored = {0};
    *name = NULL;
    if (!put_word(s, d, CM_WORD_FRAMES))
        return false;
    if (!of_block)
        return put_name(s, d, CM_VIZ_STACK, about, &ignored);
    if (!cm_grow_zeroed((void **)&s->origin, &s->origins, (size_t)about + 1, sizeof *s->origin))
        return false;
    *name = &s->origin[about];
    return put_name(s, d, CM_VIZ_ORIGIN, about, *name);
}

/* --- entries -------------------------------------------------------------------------------- */

static bool put_metadata(cm_viz *s, cm_viz_device *d, cm_piece about, int32_t step)
{
    char text[32] = "";
    int length = step >= 0 ? snprintf(text, sizeof text, ", step %d", step) : 0;
    if (!put_word(s, d, CM_WORD_USER_METADATA))
        return false;
    cm_pickle_string(&d->text, about.length + (size_t)length);
    cm_text_piece(&d->text, about);
    cm_text_put(&d->text, text, (size_t)length);
    return true;
}

static bool put_entry(cm_viz *s, cm_viz_device *d, const entry *e)
{
    cm_text *t = &d->text;
    cm_viz_name *name;
    cm_pickle_item(t, d->listed++);
    cm_text_byte(t, CM_PICKLE_DICT);
    cm_text_byte(t, CM_PICKLE_MARK);
    if (!put_word(s, d, CM_WORD_ACTION) || !put_word(s, d, e->action) ||
        !put_address(s, d, CM_WORD_ADDR, e->address) || !put_number(s, d, CM_WORD_SIZE, e->size) ||
        !put_number(s, d, CM_WORD_STREAM, 0) ||
        !put_address(s, d, CM_WORD_TIME_US, s->start_us + e->time_ns / 1000) ||
        !put_frames(s, d, e->of_block, e->about, &name))
        return false;
    if (e->action == CM_WORD_ALLOC && !put_metadata(s, d, name->about, e->step))
        return false;
    bool alone =
        e->of_block && (e->action == CM_WORD_SEGMENT_ALLOC || e->action == CM_WORD_SEGMENT_FREE);
    if (alone && !put_number(s, d, CM_WORD_ALONE, 1))
        return false;
    if (e->before_start && !put_number(s, d, CM_WORD_BEFORE_START, 1))
        return false;
    if (e->requested >= 0 && !put_number(s, d, CM_WORD_REQUESTED_SIZE, e->requested))
        return false;
    if (e->action == CM_WORD_OOM && !put_number(s, d, CM_WORD_DEVICE_FREE, 0))
        return false;
    cm_text_byte(t, CM_PICKLE_SETITEMS);
    return !t->failed;
}

static bool emit(cm_viz *s, cm_viz_device *d, const entry *e)
{
    s->entries++;
    if (s->newest == 0)
        return put_entry(s, d, e);
    if (d->kept_count < s->newest &&
        !cm_grow((void **)&d->kept, &d->kept_capacity, (size_t)d->kept_count + 1, sizeof *d->kept))
        return false;
    d->kept[d->kept_count++ % s->newest] = *e;
    return true;
}

static bool emit_block(cm_viz *s, cm_viz_device *d, cm_word action, const cm_item *item,
                       int64_t requested)
{
    const entry e = {.time_ns = item->time_ns,
                     .address = item->address,
                     .size = item->bytes,
                     .about = item->origin,
                     .step = item->step,
                     .action = (uint8_t)action,
                     .of_block = true,
                     .before_start = action == CM_WORD_ALLOC && item->kind == CM_ITEM_START,
                     .requested = requested};
    return emit(s, d, &e);
}

static bool emit_other(cm_viz *s, cm_viz_device *d, cm_word action, uint64_t time_ns,
                       uint64_t address, int64_t size, uint32_t stack)
{
    const entry e = {.time_ns = time_ns,
                     .address = address,
                     .size = size,
                     .about = stack,
                     .step = -1,
                     .action = (uint8_t)action,
                     .requested = -1};
    return emit(s, d, &e);
}

/* A segment, or a part of one, that comes or goes. */
static bool emit_segment(cm_viz *s, cm_viz_device *d, cm_word action, const cm_item *item)
{
    bool taken = action == CM_WORD_SEGMENT_ALLOC || action == CM_WORD_SEGMENT_MAP;
    uint64_t bytes = (uint64_t)item->bytes; /* of a damaged trace: it may wrap around */
    d->reserved = (int64_t)((uint64_t)d->reserved + (taken ? bytes : 0 - bytes));
    return emit_other(s, d, action, item->time_ns, item->address, item->bytes, item->stack);
}

static bool give_back(cm_viz *s, cm_viz_device *d, cm_held_segment *segment, uint64_t time_ns)
{
    const cm_held_segment was = *segment;
    const cm_item item = {
        .time_ns = time_ns, .address = was.address, .bytes = was.size, .stack = was.stack};
    cm_held_remove(&d->held, segment);
    return emit_segment(s, d, CM_WORD_SEGMENT_FREE, &item);
}

/* Whether it lies in an expandable segment. */
static bool is_mapped(const cm_viz_device *d, const cm_item *item)
{
    cm_mapped_run run;
    return cm_mapped_around(&d->mapped, item->address, &run) &&
           (uint64_t)item->bytes <= run.end - item->address;
}

static bool add_block(cm_viz *s, cm_viz_device *d, const cm_item *item, const cm_replay *replay)
{
    cm_held_segment *segment = cm_held_around(&d->held, item->address, item->bytes);
    bool mapped = segment == NULL && is_mapped(d, item);
    if (segment == NULL && !mapped && !emit_block(s, d, CM_WORD_SEGMENT_ALLOC, item, -1))
        return false;
    cm_live_block *block = cm_live_add(&s->live, item, replay);
    if (block == NULL)
        return false;
    if (segment != NULL) {
        segment->blocks++;
        block->inside = true;
        block->segment = segment->address;
    }
    if (mapped) {
        block->inside = true;
        block->segment = MAPPED;
    }
    return emit_block(s, d, CM_WORD_ALLOC, item, -1);
}

static bool free_block(cm_viz *s, cm_viz_device *d, const cm_item *item)
{
    cm_live_block block;
    if (!cm_live_take(&s->live, item->device, item->address, &block))
        return true;
    int64_t requested = block.requested_known ? block.requested : -1;
    if (!emit_block(s, d, CM_WORD_FREE_REQUESTED, item, requested) ||
        !emit_block(s, d, CM_WORD_FREE_COMPLETED, item, -1))
        return false;
    if (!block.inside)
        return emit_block(s, d, CM_WORD_SEGMENT_FREE, item, -1);
    if (block.segment == MAPPED)
        return true;
    cm_held_segment *segment = cm_held_at(&d->held, block.segment);
    if (segment == NULL || --segment->blocks > 0 || !segment->gone)
        return true;
    return give_back(s, d, segment, item->time_ns);
}

static bool add_segment(cm_viz *s, cm_viz_device *d, const cm_item *item)
{
    int added = cm_held_add(&d->held, item->address, item->bytes, item->stack);
    s->overlapping += added == 0;
    return added == 0 || (added > 0 && emit_segment(s, d, CM_WORD_SEGMENT_ALLOC, item));
}

static bool free_segment(cm_viz *s, cm_viz_device *d, const cm_item *item)
{
    cm_held_segment *segment = cm_held_at(&d->held, item->address);
    if (segment == NULL)
        return true;
    segment->gone = true;
    return segment->blocks > 0 || give_back(s, d, segment, item->time_ns);
}

static bool map(cm_viz *s, cm_viz_device *d, const cm_item *item)
{
    return cm_mapped_add(&d->mapped, item->address, (uint64_t)item->bytes, item->stack) &&
           emit_segment(s, d, CM_WORD_SEGMENT_MAP, item);
}

static bool unmap(cm_viz *s, cm_viz_device *d, const cm_item *item)
{
    return cm_mapped_remove(&d->mapped, item->address, (uint64_t)item->bytes) &&
           emit_segment(s, d, CM_WORD_SEGMENT_UNMAP, item);
}

/* The allocator's total, where segments do not add up to it: a snapshot's entry has the total. */
static bool note_reserved(cm_viz *s, cm_viz_device *d, const cm_item *item)
{
    if (item->bytes == d->reserved)
        return true;
    d->reserved = item->bytes;
    return emit_other(s, d, CM_WORD_MOMENT, item->time_ns, 0, item->bytes, CM_STACK_NONE);
}

static void note_request(cm_viz *s, const cm_item *item)
{
    cm_live_block *block = cm_live_find(&s->live, item->device, item->address);
    if (block != NULL) {
        block->requested = item->bytes;
        block->requested_known = true;
    }
}

bool cm_viz_add(cm_viz *s, const cm_item *item, const cm_replay *replay)
{
    bool concerned =
        item->kind <= CM_ITEM_OOM || item->kind == CM_ITEM_MAPPED || item->kind == CM_ITEM_UNMAPPED;
    if (!concerned)
        return true;
    cm_viz_device *d = device_of(s, item->device);
    if (d == NULL)
        return false;
    switch (item->kind) {
    case CM_ITEM_START:
    case CM_ITEM_ALLOC:
        return add_block(s, d, item, replay);
    case CM_ITEM_FREE:
        return free_block(s, d, item);
    case CM_ITEM_SEGMENT_NEW:
        return add_segment(s, d, item);
    case CM_ITEM_SEGMENT_FREE:
        return free_segment(s, d, item);
    case CM_ITEM_MAPPED:
        return map(s, d, item);
    case CM_ITEM_UNMAPPED:
        return unmap(s, d, item);
    case CM_ITEM_RESERVED:
        return note_reserved(s, d, item);
    case CM_ITEM_OOM:
        return emit_other(s, d, CM_WORD_OOM, item->time_ns, 0, item->bytes, item->stack);
    default:
        note_request(s, item);
        return true;
    }
}

bool cm_viz_end_entries(cm_viz *s, size_t device, size_t most, bool *over)
{
    cm_viz_device *d = &s->device[device];
    uint64_t first = d->kept_count > s->newest ? d->kept_count - s->newest : 0;
    for (size_t i = 0; i < most && first + d->kept_next < d->kept_count; i++)
        if (!put_entry(s, d, &d->kept[(first + d->kept_next++) % s->newest]))
            return false;
    *over = first + d->kept_next >= d->kept_count;
    if (*over)
        cm_viz_end_list(&d->text, d->listed);
    return !d->text.failed;
}

void cm_viz_end_list(cm_text *out, uint64_t listed)
{
    if (listed > 0)
        cm_text_byte(out, CM_PICKLE_APPENDS);
}

/* --- segments ------------------------------------------------------------------------------- */

static int by_order(const void *a, const void *b)
{
    const cm_held_segment *one = a, *other = b;
    return (one->order > other->order) - (one->order < other->order);
}

static int by_place(const void *a, const void *b)
{
    const place *one = a, *other = b;
    if (one->segment != other->segment)
        return one->segment < other->segment ? -1 : 1;
    return (one->address > other->address) - (one->address < other->address);
}

static bool add_inside(cm_viz_device *d, const cm_live_block *b, uint32_t number)
{
    if (!cm_grow((void **)&d->inside, &d->inside_capacity, d->inside_count + 1, sizeof *d->inside))
        return false;
    d->inside[d->inside_count++] = (place){b->segment, b->address, number};
    return true;
}

static bool add_alone(cm_viz_device *d, uint32_t number)
{
    if (!cm_grow((void **)&d->alone, &d->alone_capacity, d->alone_count + 1, sizeof *d->alone))
        return false;
    d->alone[d->alone_count++] = number;
    return true;
}

/* Mapped ranges are segments from here on. */
static bool add_mapped(cm_viz_device *d)
{
    cm_mapped_run run = {0};
    while (cm_mapped_next(&d->mapped, run.end, &run)) {
        int added = cm_held_add(&d->held, run.start, (int64_t)(run.end - run.start), run.stack);
        if (added < 0)
            return false;
        if (added > 0)
            cm_held_at(&d->held, run.start)->expandable = true;
    }
    return true;
}

/* Where a block lies that was made in an expandable segment: its memory may be unmapped, because
 * events are missing. */
static void find_segment(const cm_viz_device *d, cm_live_block *b)
{
    const cm_held_segment *segment = cm_held_around(&d->held, b->address, b->bytes);
    b->inside = segment != NULL;
    b->segment = segment != NULL ? segment->address : MAPPED;
}

/* From here on segments are by order, and no block comes or goes. */
static bool sort(cm_viz *s, cm_viz_device *d)
{
    if (!add_mapped(d))
        return false;
    for (uint32_t i = 0; (i = cm_live_next(&s->live, i)) != 0;) {
        cm_live_block *b = &s->live.block[i - 1];
        if (b->device == d->number && b->inside && b->segment == MAPPED)
            find_segment(d, b);
        if (b->device == d->number && !(b->inside ? add_inside(d, b, i) : add_alone(d, i)))
            return false;
    }
    if (d->inside_count > 0)
        qsort(d->inside, d->inside_count, sizeof *d->inside, by_place);
    if (d->held.count > 0)
        qsort(d->held.segment, d->held.count, sizeof *d->held.segment, by_order);
    d->sorted = true;
    return true;
}

/* Where the blocks of a segment begin. */
static size_t first_inside(const cm_viz_device *d, uint64_t segment)
{
    size_t low = 0, high = d->inside_count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (d->inside[middle].segment < segment)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

/* block: NULL for a gap. */
static bool put_block(cm_viz *s, cm_viz_device *d, uint64_t address, int64_t size,
                      const cm_live_block *block)
{
    cm_text *t = &d->text;
    cm_viz_name *ignored;
    int64_t asked = block == NULL ? 0 : block->requested_known ? block->requested : size;
    cm_text_byte(t, CM_PICKLE_DICT);
    cm_text_byte(t, CM_PICKLE_MARK);
    if (!put_number(s, d, CM_WORD_SIZE, size) || !put_number(s, d, CM_WORD_REQUESTED_SIZE, asked) ||
        !put_address(s, d, CM_WORD_ADDRESS, address) || !put_word(s, d, CM_WORD_STATE) ||
        !put_word(s, d, block != NULL ? CM_WORD_ACTIVE_ALLOCATED : CM_WORD_INACTIVE))
        return false;
    if (block != NULL) {
        if (!put_frames(s, d, true, block->origin, &ignored))
            return false;
    } else {
        if (!put_word(s, d, CM_WORD_FRAMES))
            return false;
        cm_text_byte(t, CM_PICKLE_LIST);
    }
    cm_text_byte(t, CM_PICKLE_SETITEMS);
    return true;
}

typedef struct outline {
    uint64_t address;
    int64_t size, active;
    uint32_t about; /* as of an entry */
    bool of_block, expandable;
} outline;

static bool put_outline(cm_viz *s, cm_viz_device *d, uint32_t number, const outline *o)
{
    cm_text *t = &d->text;
    cm_viz_name *ignored;
    cm_text_byte(t, CM_PICKLE_DICT);
    cm_text_byte(t, CM_PICKLE_MARK);
    if (!put_number(s, d, CM_WORD_DEVICE, number) ||
        !put_address(s, d, CM_WORD_ADDRESS, o->address) ||
        !put_number(s, d, CM_WORD_TOTAL_SIZE, o->size) ||
        !put_number(s, d, CM_WORD_ALLOCATED_SIZE, o->active) ||
        !put_number(s, d, CM_WORD_ACTIVE_SIZE, o->active) || !put_number(s, d, CM_WORD_STREAM, 0) ||
        !put_word(s, d, CM_WORD_SEGMENT_TYPE) ||
        !put_word(s, d, o->size > SMALL ? CM_WORD_LARGE : CM_WORD_SMALL) ||
        !put_frames(s, d, o->of_block, o->about, &ignored) ||
        (o->of_block && !put_number(s, d, CM_WORD_ALONE, 1)) ||
        (o->expandable && !put_number(s, d, CM_WORD_IS_EXPANDABLE, 1)) ||
        !put_word(s, d, CM_WORD_BLOCKS))
        return false;
    cm_text_byte(t, CM_PICKLE_LIST);
    return true;
}

/* Its blocks and the gaps between them. A block that overlaps the one before it cannot lie there,
 * because events are missing: it becomes a segment of its own. */
static bool put_segment(cm_viz *s, cm_viz_device *d, uint32_t number,
                        const cm_held_segment *segment)
{
    size_t first = first_inside(d, segment->address), end = first, kept = first;
    uint64_t at = 0, rows = 0, size = (uint64_t)segment->size; /* at: since its begin */
    outline o = {.address = segment->address,
                 .size = segment->size,
                 .about = segment->stack,
                 .expandable = segment->expandable};
    for (; end < d->inside_count && d->inside[end].segment == segment->address; end++) {
        const cm_live_block *b = &s->live.block[d->inside[end].number - 1];
        if (b->address - segment->address < at) {
            if (!add_alone(d, d->inside[end].number))
                return false;
            continue;
        }
        at = b->address - segment->address + (uint64_t)b->bytes;
        o.active += b->bytes;
        d->inside[kept++] = d->inside[end];
    }
    if (!put_outline(s, d, number, &o))
        return false;
    at = 0;
    for (size_t i = first; i < kept; i++) {
        const cm_live_block *b = &s->live.block[d->inside[i].number - 1];
        uint64_t from = b->address - segment->address;
        if (from > at) {
            cm_pickle_item(&d->text, rows++);
            if (!put_block(s, d, segment->address + at, (int64_t)(from - at), NULL))
                return false;
        }
        cm_pickle_item(&d->text, rows++);
        if (!put_block(s, d, b->address, b->bytes, b))
            return false;
        at = from + (uint64_t)b->bytes;
    }
    if (at < size) {
        cm_pickle_item(&d->text, rows++);
        if (!put_block(s, d, segment->address + at, (int64_t)(size - at), NULL))
            return false;
    }
    cm_viz_end_list(&d->text, rows);
    cm_text_byte(&d->text, CM_PICKLE_SETITEMS);
    return true;
}

static bool put_alone(cm_viz *s, cm_viz_device *d, uint32_t number, uint32_t live)
{
    const cm_live_block *b = &s->live.block[live - 1];
    const outline o = {.address = b->address,
                       .size = b->bytes,
                       .active = b->bytes,
                       .about = b->origin,
                       .of_block = true};
    if (!put_outline(s, d, number, &o))
        return false;
    cm_pickle_item(&d->text, 0);
    if (!put_block(s, d, b->address, b->bytes, b))
        return false;
    cm_viz_end_list(&d->text, 1);
    cm_text_byte(&d->text, CM_PICKLE_SETITEMS);
    return true;
}

bool cm_viz_segments(cm_viz *s, size_t device, uint32_t number, uint64_t *listed, bool *over)
{
    cm_viz_device *d = &s->device[device];
    if (!d->sorted && !sort(s, d))
        return false;
    while (d->text.length < CHUNK && d->next_segment < d->held.count) {
        cm_pickle_item(&d->text, (*listed)++);
        if (!put_segment(s, d, number, &d->held.segment[d->next_segment++]))
            return false;
    }
    while (d->text.length < CHUNK && d->next_alone < d->alone_count) {
        cm_pickle_item(&d->text, (*listed)++);
        if (!put_alone(s, d, number, d->alone[d->next_alone++]))
            return false;
    }
    *over = d->next_segment >= d->held.count && d->next_alone >= d->alone_count;
    return !d->text.failed;
}
