#include "snapshot.h"

#include <string.h>

#include "../base/grow.h"
#include "builder.h"

#define BIT(word) (UINT64_C(1) << CM_SAYS_##word)

static bool add_word(cm_snap *s, const char *text)
{
    uint32_t id;
    return cm_intern_add(&s->texts, text, strlen(text), &id);
}

static bool add_words(cm_snap *s)
{
    char filler[] = "\0.";
    bool fine = true;
#define ADD(name, text) fine = fine && s->texts.count == CM_SAYS_##name && add_word(s, text);
    CM_SNAP_KEYS(ADD)
    while (fine && s->texts.count <= CM_SAYS_VALUE_FIRST) { /* nothing has these as a key */
        uint32_t id;
        fine = cm_intern_add(&s->texts, filler, 2, &id);
        filler[1]++;
    }
    CM_SNAP_VALUES(ADD)
#undef ADD
    return fine;
}

bool cm_snap_init(cm_snap *s)
{
    const cm_snap_frame no_frame = {0};
    uint32_t id;
    *s = (cm_snap){0};
    return add_words(s) && cm_intern_add(&s->frames, &no_frame, sizeof no_frame, &id) &&
           cm_intern_add(&s->stacks, NULL, 0, &id);
}

void cm_snap_clear(cm_snap *s)
{
    cm_intern_clear(&s->texts);
    cm_intern_clear(&s->frames);
    cm_intern_clear(&s->stacks);
    free(s->event);
    free(s->block);
    free(s->segment);
    free(s->note);
    free(s->trace);
    free(s->open);
    *s = (cm_snap){0};
}

/* Without a character that is cut in two. */
static size_t whole_characters(const uint8_t *bytes, size_t length)
{
    size_t end = length;
    while (end > 0 && length - end < 3 && (bytes[end - 1] & 0xc0) == 0x80)
        end--;
    return end > 0 && bytes[end - 1] >= 0xc0 ? end - 1 : length;
}

bool cm_snap_add_text(cm_snap *s, const uint8_t *bytes, size_t length, uint32_t *id)
{
    if (length == CM_SNAP_TEXT_MAX) {
        length = whole_characters(bytes, length);
        s->cut_texts++;
    }
    return cm_intern_add(&s->texts, bytes, length, id);
}

/* --- lists ---------------------------------------------------------------------------------- */

static bool intern_stack(cm_snap *s, const uint32_t *frames, size_t count, cm_value *out)
{
    uint32_t id;
    if (!cm_intern_add(&s->stacks, frames, count * sizeof *frames, &id))
        return false;
    out->kind = CM_VALUE_STACK;
    out->number = id;
    return true;
}

bool cm_snap_close_list(cm_snap *s, cm_value *list)
{
    if (list->kind != CM_VALUE_FRAMES)
        return true;
    size_t first = list->number >> 32, count = (uint32_t)list->number;
    s->opened = first;
    return intern_stack(s, s->open + first, count, list);
}

bool cm_snap_stack(cm_snap *s, cm_value *list, const cm_value *items, size_t count, bool *is)
{
    uint32_t frames[CM_SNAP_DEPTH];
    size_t kept = count < CM_SNAP_DEPTH ? count : CM_SNAP_DEPTH;
    unsigned other = 0;
    for (size_t i = 0; i < kept; i++) {
        other |= items[i].kind ^ CM_VALUE_FRAME;
        frames[i] = (uint32_t)items[i].number;
    }
    for (size_t i = kept; i < count; i++)
        other |= items[i].kind ^ CM_VALUE_FRAME;
    *is = other == 0 && count > 0;
    if (!*is)
        return true;
    s->cut_stacks += kept < count;
    return intern_stack(s, frames, kept, list);
}

static bool add_frame(cm_snap *s, cm_value *list, uint32_t frame)
{
    size_t first = list->number >> 32, count = (uint32_t)list->number;
    if (list->kind == CM_VALUE_LIST) {
        first = s->opened;
        count = 0;
    }
    if (count >= CM_SNAP_DEPTH) {
        s->cut_stacks += count == CM_SNAP_DEPTH;
        return true;
    }
    if (first + count != s->opened || first > UINT32_MAX - CM_SNAP_DEPTH ||
        !cm_grow((void **)&s->open, &s->open_capacity, s->opened + 1, sizeof *s->open))
        return false;
    s->open[s->opened++] = frame;
    list->kind = CM_VALUE_FRAMES;
    list->number = (uint64_t)first << 32 | (count + 1);
    return true;
}

/* Ranges go up: an item that comes again, or was made before others of the list, is passed over, as
 * is one of another kind. */
static void add_to_range(cm_value *list, cm_value_kind kind, uint32_t number)
{
    if (list->kind == CM_VALUE_LIST) {
        list->kind = (uint8_t)kind;
        list->number = (uint64_t)number << 32 | (number + 1);
    } else if (list->kind == kind && number >= (uint32_t)list->number) {
        list->number = (list->number & ~UINT64_C(0xffffffff)) | (number + 1);
    }
}

static bool add_trace(cm_snap *s, cm_value *list, const cm_value *item)
{
    cm_snap_range range = {0};
    if (item->kind == CM_VALUE_EVENTS)
        range = (cm_snap_range){(uint32_t)(item->number >> 32), (uint32_t)item->number};
    if (s->traces >= CM_INTERN_MAX ||
        !cm_grow((void **)&s->trace, &s->trace_capacity, s->traces + 1, sizeof *s->trace))
        return false;
    if (range.first <
        s->traced) /* events are of one device: a list in a list would be read for both */
        range.first = s->traced < range.end ? s->traced : range.end;
    if (range.end > s->traced)
        s->traced = range.end;
    s->trace[s->traces] = range;
    add_to_range(list, CM_VALUE_TRACES, (uint32_t)s->traces++);
    return true;
}

static bool add_item(cm_snap *s, cm_value *list, const cm_value *item)
{
    switch (item->kind) {
    case CM_VALUE_FRAME:
        if (list->kind == CM_VALUE_LIST || list->kind == CM_VALUE_FRAMES)
            return add_frame(s, list, (uint32_t)item->number);
        break;
    case CM_VALUE_EVENT:
    case CM_VALUE_BLOCK:
    case CM_VALUE_SEGMENT:
    case CM_VALUE_NOTE:
        add_to_range(list, item->kind - CM_VALUE_EVENT + CM_VALUE_EVENTS, (uint32_t)item->number);
        return true;
    case CM_VALUE_EVENTS:
    case CM_VALUE_LIST:
        if (list->kind == CM_VALUE_LIST || list->kind == CM_VALUE_TRACES)
            return add_trace(s, list, item);
        break;
    default:
        break;
    }
    if (list->kind == CM_VALUE_LIST)
        list->kind = CM_VALUE_OTHER;
    return true;
}

bool cm_snap_extend(cm_snap *s, cm_value *list, const cm_value *items, size_t count)
{
    if (list->kind == CM_VALUE_MARK)
        return true;
    for (size_t i = 0; i < count; i++)
        if (!add_item(s, list, &items[i]))
            return false;
    return true;
}

/* --- dicts ---------------------------------------------------------------------------------- */

/* The values of a dict by their keys. */
typedef struct fields {
    uint64_t has; /* bits */
    const cm_value *at[CM_SNAP_KEY_MAX];
    uint32_t unknown; /* a key that is no word, 0: none */
} fields;

static inline uint64_t number_of(const fields *f, cm_snap_word key)
{
    bool is = (f->has >> key & 1) != 0 && f->at[key]->kind == CM_VALUE_NUMBER;
    return is ? f->at[key]->number : 0;
}

/* No device has more: what is larger says nothing, and sums of it would overflow. */
static int64_t size_of(const fields *f, cm_snap_word key)
{
    uint64_t number = number_of(f, key);
    return number < UINT64_C(1) << 48 ? (int64_t)number : 0;
}

static inline uint32_t text_of(const fields *f, cm_snap_word key)
{
    bool is = (f->has >> key & 1) != 0 && f->at[key]->kind == CM_VALUE_TEXT;
    return is ? (uint32_t)f->at[key]->number : 0;
}

/* One of the words that are values. */
static inline uint8_t word_of(const fields *f, cm_snap_word key)
{
    uint32_t text = text_of(f, key);
    return text > CM_SAYS_VALUE_FIRST && text < CM_SAYS_END_OF_WORDS ? (uint8_t)text : 0;
}

static inline uint32_t stack_of(const fields *f)
{
    bool is = (f->has & BIT(FRAMES)) != 0 && f->at[CM_SAYS_FRAMES]->kind == CM_VALUE_STACK;
    return is ? (uint32_t)f->at[CM_SAYS_FRAMES]->number : 0;
}

static cm_snap_range range_of(const fields *f, cm_snap_word key, cm_value_kind kind)
{
    if ((f->has >> key & 1) == 0 || f->at[key]->kind != kind)
        return (cm_snap_range){0};
    return (cm_snap_range){(uint32_t)(f->at[key]->number >> 32), (uint32_t)f->at[key]->number};
}

/* Notes a key that a later PyTorch has added. */
static void note_unknown(cm_snap *s, const fields *f)
{
    if (f->unknown == 0 || s->unknown_count == CM_SNAP_UNKNOWN)
        return;
    for (size_t i = 0; i < s->unknown_count; i++)
        if (s->unknown[i] == f->unknown)
            return;
    s->unknown[s->unknown_count++] = f->unknown;
}

static bool add_frame_dict(cm_snap *s, const fields *f, cm_value *out)
{
    const cm_snap_frame frame = {.file = text_of(f, CM_SAYS_FILENAME),
                                 .name = text_of(f, CM_SAYS_NAME),
                                 .line = (int32_t)number_of(f, CM_SAYS_LINE)};
    uint32_t id;
    if (!cm_intern_add(&s->frames, &frame, sizeof frame, &id))
        return false;
    out->kind = CM_VALUE_FRAME;
    out->number = id;
    return true;
}

/* Room for one more in an array whose places are numbers of 32 bits. */
static inline bool make_room(void **array, size_t *capacity, size_t count, size_t size)
{
    return count < UINT32_MAX - 1 && cm_grow(array, capacity, count + 1, size);
}

static int64_t requested_of(const fields *f)
{
    return f->has & BIT(REQUESTED_SIZE) ? size_of(f, CM_SAYS_REQUESTED_SIZE) : -1;
}

static bool add_event(cm_snap *s, const fields *f, cm_value *out)
{
    if (!make_room((void **)&s->event, &s->event_capacity, s->events, sizeof *s->event))
        return false;
    bool oom = (f->has & BIT(ADDR)) == 0;
    uint8_t action = word_of(f, CM_SAYS_ACTION);
    if (action == CM_SAYS_ALLOC && f->has & BIT(BEFORE_START))
        action = CM_SAYS_ALIVE;
    if (f->has & BIT(ALONE)) /* no segment of the allocator's */
        action = 0;
    s->event[s->events] =
        (cm_snap_event){.address = number_of(f, oom ? CM_SAYS_DEVICE_FREE : CM_SAYS_ADDR),
                        .size = size_of(f, CM_SAYS_SIZE),
                        .time_us = number_of(f, CM_SAYS_TIME_US),
                        .requested = requested_of(f),
                        .stack = stack_of(f),
                        .metadata = text_of(f, CM_SAYS_USER_METADATA),
                        .action = action};
    *out = (cm_value){.number = s->events++, .memo = out->memo, .kind = CM_VALUE_EVENT};
    return true;
}

static bool add_block(cm_snap *s, const fields *f, cm_value *out)
{
    if (!make_room((void **)&s->block, &s->block_capacity, s->blocks, sizeof *s->block))
        return false;
    s->block[s->blocks] = (cm_snap_block){.address = number_of(f, CM_SAYS_ADDRESS),
                                          .size = size_of(f, CM_SAYS_SIZE),
                                          .requested = requested_of(f),
                                          .stack = stack_of(f),
                                          .state = word_of(f, CM_SAYS_STATE)};
    *out = (cm_value){.number = s->blocks++, .memo = out->memo, .kind = CM_VALUE_BLOCK};
    return true;
}

/* Blocks of older snapshots have no address: they follow each other. */
static void place_blocks(cm_snap *s, uint64_t address, cm_snap_range blocks)
{
    for (uint32_t i = blocks.first; i < blocks.end; i++) {
        cm_snap_block *block = &s->block[i];
        if (block->address == 0)
            block->address = address;
        address = block->address + (uint64_t)block->size;
    }
}

static bool add_segment(cm_snap *s, const fields *f, cm_value *out)
{
    if (!make_room((void **)&s->segment, &s->segment_capacity, s->segments, sizeof *s->segment))
        return false;
    cm_snap_range blocks = range_of(f, CM_SAYS_BLOCKS, CM_VALUE_BLOCKS);
    if (blocks.first <
        s->placed) /* blocks are of one segment: else time would grow with the square */
        blocks.first = s->placed < blocks.end ? s->placed : blocks.end;
    if (blocks.end > s->placed)
        s->placed = blocks.end;
    s->segment[s->segments] =
        (cm_snap_segment){.address = number_of(f, CM_SAYS_ADDRESS),
                          .size = size_of(f, CM_SAYS_TOTAL_SIZE),
                          .stack = stack_of(f),
                          .first_block = blocks.first,
                          .end_block = blocks.end,
                          .device = (int32_t)number_of(f, CM_SAYS_DEVICE),
                          .type = word_of(f, CM_SAYS_SEGMENT_TYPE),
                          .expandable = number_of(f, CM_SAYS_IS_EXPANDABLE) != 0,
                          .alone = (f->has & BIT(ALONE)) != 0};
    place_blocks(s, s->segment[s->segments].address, blocks);
    *out = (cm_value){.number = s->segments++, .memo = out->memo, .kind = CM_VALUE_SEGMENT};
    return true;
}

static bool add_note(cm_snap *s, const fields *f, cm_value *out)
{
    if (!make_room((void **)&s->note, &s->note_capacity, s->notes, sizeof *s->note))
        return false;
    s->note[s->notes] = (cm_snap_note){.time_us = number_of(f, CM_SAYS_TIME_US),
                                       .name = text_of(f, CM_SAYS_NAME),
                                       .device = (int32_t)number_of(f, CM_SAYS_DEVICE),
                                       .stage = word_of(f, CM_SAYS_STAGE)};
    *out = (cm_value){.number = s->notes++, .memo = out->memo, .kind = CM_VALUE_NOTE};
    return true;
}

static void take_rounding(cm_snap *s, const fields *f)
{
    for (int i = 0; i < CM_SNAP_POWERS; i++)
        s->divisions[i] = (uint8_t)number_of(f, CM_SAYS_POWER_1 + i);
}

static void take_settings(cm_snap *s, const fields *f)
{
    int64_t most = (int64_t)number_of(f, CM_SAYS_MAX_SPLIT_SIZE);
    s->settings_known = true;
    s->max_split = most > 0 ? most : 0;
    s->settings = text_of(f, CM_SAYS_CONF);
    if ((f->has & BIT(CONF)) == 0)
        s->settings = text_of(f, f->has & BIT(XPU_CONF) ? CM_SAYS_XPU_CONF : CM_SAYS_CUDA_CONF);
    s->from_xpu = (f->has & BIT(XPU_CONF)) != 0;
}

static void take_all(cm_snap *s, const fields *f)
{
    s->all_segments = range_of(f, CM_SAYS_SEGMENTS, CM_VALUE_SEGMENTS);
    s->device_traces = range_of(f, CM_SAYS_DEVICE_TRACES, CM_VALUE_TRACES);
    s->host_segments = range_of(f, CM_SAYS_HOST_SEGMENTS, CM_VALUE_SEGMENTS);
    s->host_events = range_of(f, CM_SAYS_HOST_TRACES, CM_VALUE_EVENTS);
    s->annotations = range_of(f, CM_SAYS_EXTERNAL_ANNOTATIONS, CM_VALUE_NOTES);
    s->has_traces = (f->has & BIT(DEVICE_TRACES)) != 0;
}

/* What a dict is follows from its keys. */
static bool judge(cm_snap *s, const fields *f, cm_value *out)
{
    uint8_t kind = CM_VALUE_OTHER;
    const uint64_t frame = BIT(FILENAME) | BIT(LINE) | BIT(NAME);
    if (f->has & BIT(ACTION) && f->has & (BIT(ADDR) | BIT(DEVICE_FREE) | BIT(TIME_US))) {
        note_unknown(s, f);
        return add_event(s, f, out);
    }
    if ((f->has & frame) == frame)
        return add_frame_dict(s, f, out);
    if (f->has & BIT(STATE) && f->has & BIT(SIZE)) {
        note_unknown(s, f);
        return add_block(s, f, out);
    }
    if (f->has & BIT(TOTAL_SIZE) && f->has & BIT(ADDRESS)) {
        note_unknown(s, f);
        return add_segment(s, f, out);
    }
    if (f->has & BIT(STAGE) && f->has & BIT(NAME))
        return add_note(s, f, out);
    if (f->has & (BIT(SEGMENTS) | BIT(DEVICE_TRACES))) {
        note_unknown(s, f);
        take_all(s, f);
        kind = CM_VALUE_SNAPSHOT;
    } else if (f->has & (BIT(CUDA_CONF) | BIT(XPU_CONF) | BIT(CONF))) {
        take_settings(s, f);
    } else if (f->has & BIT(POWER_1) && f->has & BIT(POWER_32768)) {
        take_rounding(s, f);
    } else if (f->has & BIT(EXPORTER) && f->has & BIT(DEVICES)) {
        s->exporter = text_of(f, CM_SAYS_EXPORTER);
        s->devices = text_of(f, CM_SAYS_DEVICES);
        s->missing = text_of(f, CM_SAYS_MISSING);
        s->unreported = text_of(f, CM_SAYS_UNREPORTED);
    }
    *out = (cm_value){.memo = out->memo, .kind = kind};
    return true;
}

bool cm_snap_add_dict(cm_snap *s, const cm_value *pairs, size_t count, cm_value *out)
{
    fields f;
    f.has = 0;
    f.unknown = 0;
    for (size_t i = 0; i + 1 < count; i += 2) {
        if (pairs[i].kind != CM_VALUE_TEXT)
            continue;
        if (pairs[i].number < CM_SAYS_KEYS) {
            f.has |= UINT64_C(1) << pairs[i].number;
            f.at[pairs[i].number] = &pairs[i + 1];
        } else {
            f.unknown = (uint32_t)pairs[i].number;
        }
    }
    return judge(s, &f, out);
}

bool cm_snap_finish(cm_snap *s, const cm_value *value)
{
    if (value->kind == CM_VALUE_SEGMENTS) /* torch.cuda.memory_snapshot() alone */
        s->all_segments = (cm_snap_range){(uint32_t)(value->number >> 32), (uint32_t)value->number};
    return value->kind == CM_VALUE_SEGMENTS || value->kind == CM_VALUE_SNAPSHOT;
}
