#include "encode.h"

#include <stdlib.h>

#include "../base/bytes.h"
#include "codec.h"
#include "crc32c.h"
#include "format.h"

enum { FINDER_SIZE = 1 << 15 };

/* When an address was last allocated and freed, as counts of the model. A cache: a lost entry only
 * costs bytes. */
typedef struct finder {
    uint64_t address;
    uint32_t alloc, free; /* low halves of count + 1 of that event */
} finder;

typedef struct buffer {
    uint8_t *bytes;
    size_t length, capacity;
} buffer;

struct cm_batch {
    cm_clock_anchor anchor, first_anchor;
    bool began;
    uint64_t events, covers, log_position, side;
    buffer definition_bytes, event_bytes, cover_bytes, chunk;
    codec_model model;
    finder finders[FINDER_SIZE];
};

/* --- buffers ------------------------------------------------------------------------------- */

static bool grow(buffer *b, size_t more)
{
    size_t capacity = b->capacity ? b->capacity : 4096;
    while (capacity - b->length < more)
        capacity *= 2;
    uint8_t *bytes = realloc(b->bytes, capacity);
    if (bytes == NULL)
        return false;
    b->bytes = bytes;
    b->capacity = capacity;
    return true;
}

static inline bool reserve(buffer *b, size_t more)
{
    return __builtin_expect(b->capacity - b->length >= more, 1) || grow(b, more);
}

static inline uint8_t *put_svarint(uint8_t *p, int64_t value)
{
    return cm_put_varint(p, codec_zigzag(value));
}

/* --- fields -------------------------------------------------------------------------------- */

static inline uint8_t *put_time(codec_model *model, uint8_t *p, uint64_t ticks)
{
    uint64_t time = ticks >> model->shift;
    uint64_t delta = time - model->time;
    model->time = time;
    if (__builtin_expect(delta < TIME_DIRECT, 1)) {
        *p++ = (uint8_t)delta;
    } else if (delta - TIME_DIRECT < TIME_PAIR_MAX) {
        delta -= TIME_DIRECT;
        *p++ = (uint8_t)(TIME_DIRECT + (delta >> 8));
        *p++ = (uint8_t)delta;
    } else {
        *p++ = TIME_LONG;
        p = put_svarint(p, (int64_t)delta);
    }
    return p;
}

static inline uint8_t *put_attributes(uint8_t *p, uint32_t attributes)
{
    return cm_put_fixed(p, attributes, 3);
}

static inline uint8_t *put_stack(uint8_t *p, uint32_t stack, uint32_t predicted)
{
    return put_svarint(p, (int64_t)stack - (int64_t)predicted);
}

/* Most sizes are multiples of 64: they take six bits less, others one more. */
static inline uint8_t *put_size(uint8_t *p, int64_t size)
{
    if (size % 64 == 0)
        return cm_put_varint(p, codec_zigzag(size / 64) << 1 | 1);
    return cm_put_varint(p, codec_zigzag(size) << 1);
}

static inline bool size_fits(int64_t size)
{
    return size < INT64_C(1) << 61 && size > -(INT64_C(1) << 61);
}

static inline finder *find(cm_batch *batch, uint64_t address)
{
    uint64_t hash = (address >> 4) * UINT64_C(0x9e3779b97f4a7c15);
    finder *f = &batch->finders[(hash >> 32) % FINDER_SIZE];
    if (f->address != address) {
        f->address = address;
        f->alloc = f->free = 0;
    }
    return f;
}

/* How many events ago (0 = the last) a finder's count was; false: unknown or out of reach. */
static inline bool recall(uint32_t seen, uint64_t count, uint64_t first, uint64_t *age)
{
    if (seen == 0)
        return false;
    *age = (uint32_t)((uint32_t)count - seen);
    return *age < CODEC_RING && *age < count - first;
}

/* --- kinds --------------------------------------------------------------------------------- */

static inline uint8_t *put_alloc(cm_batch *batch, uint8_t *p, const cm_event *event)
{
    codec_model *model = &batch->model;
    uint32_t attributes = codec_attributes(event);
    uint32_t predicted = codec_predict_stack(model);
    uint8_t *tag = p++;
    uint8_t bits = TAG_ALLOC;

    p = put_time(model, p, event->time);
    if (event->stack != predicted) {
        bits |= ALLOC_STACK;
        p = put_stack(p, event->stack, predicted);
    }
    codec_context *context = codec_enter_context(model, event->stack, 0);
    if (attributes != context->attributes) {
        bits |= ALLOC_ATTRIBUTES;
        p = put_attributes(p, attributes);
    }
    if (event->size != context->size) {
        bits |= ALLOC_SIZE;
        p = put_size(p, event->size);
    }
    finder *f = find(batch, event->address);
    uint64_t age;
    if (event->address == context->address) {
        bits |= ALLOC_AGAIN;
    } else if (recall(f->free, model->frees, model->first_free, &age)) {
        bits |= ALLOC_REUSED;
        p = cm_put_varint(p, age);
    } else {
        int64_t delta = (int64_t)(event->address - model->last_alloc);
        bits |= delta % 64 == 0 ? ALLOC_DELTA : ALLOC_DELTA_RAW;
        p = put_svarint(p, delta % 64 == 0 ? delta / 64 : delta);
    }
    codec_learn_alloc(model, context, event->address, event->size, attributes);
    f->alloc = (uint32_t)model->allocs;
    *tag = bits;
    return p;
}

static inline uint8_t *put_free(cm_batch *batch, uint8_t *p, const cm_event *event)
{
    codec_model *model = &batch->model;
    uint32_t attributes = codec_attributes(event);
    codec_context *context = codec_enter_free(model);
    uint32_t predicted = model->thread->free_attributes;
    int64_t size = 0;
    uint8_t *tag = p++;
    uint8_t bits = TAG_FREE;

    p = put_time(model, p, event->time);
    finder *f = find(batch, event->address);
    uint64_t age;
    if (event->address == context->address) {
        bits |= FREE_NEXT;
        predicted = context->attributes;
        size = context->size;
    } else if (recall(f->alloc, model->allocs, model->first_alloc, &age)) {
        const codec_block *block = &model->alloc_ring[(model->allocs - 1 - age) % CODEC_RING];
        bits |= FREE_AGE;
        p = cm_put_varint(p, age);
        predicted = codec_predict_free(model, block->attributes);
        size = block->size;
    } else {
        int64_t delta = (int64_t)(event->address - model->last_free);
        bits |= delta % 64 == 0 ? FREE_DELTA : FREE_DELTA_RAW;
        p = put_svarint(p, delta % 64 == 0 ? delta / 64 : delta);
    }
    if (event->size != 0) {
        if (event->size == size) {
            bits |= FREE_SIZE_SAME;
        } else {
            bits |= FREE_SIZE;
            p = put_size(p, event->size);
        }
    }
    if (attributes != predicted) {
        bits |= FREE_ATTRIBUTES;
        p = put_attributes(p, attributes);
    }
    codec_learn_free(model, context, event->address, event->size, attributes);
    f->free = (uint32_t)model->frees;
    *tag = bits;
    return p;
}

static inline uint8_t *put_node_new(cm_batch *batch, uint8_t *p, const cm_event *event)
{
    codec_model *model = &batch->model;
    codec_thread *thread = model->thread;
    uint32_t attributes = codec_attributes(event);
    uint32_t predicted = codec_predict_stack(model);
    uint8_t *tag = p++;
    uint8_t bits = TAG_NODE_NEW;

    p = put_time(model, p, event->time);
    if (event->stack != predicted) {
        bits |= NEW_STACK;
        p = put_stack(p, event->stack, predicted);
    }
    codec_enter_context(model, event->stack, 1);
    if (attributes != thread->new_attributes) {
        bits |= NEW_ATTRIBUTES;
        p = put_attributes(p, attributes);
        thread->new_attributes = attributes;
    }
    if (event->address != thread->new_sequence + 1) {
        bits |= NEW_SEQUENCE;
        p = put_svarint(p, (int64_t)(event->address - thread->new_sequence));
    }
    thread->new_sequence = event->address;
    *tag = bits;
    return p;
}

static inline uint8_t *put_sequence(uint8_t *p, uint8_t *bits, uint64_t sequence, uint64_t *last)
{
    if (sequence == CM_NODE_NO_SEQUENCE) {
        *bits |= NODE_SEQUENCE_NONE;
        return p;
    }
    if (sequence == *last - 1) {
        *bits |= NODE_SEQUENCE_NEXT;
    } else {
        *bits |= NODE_SEQUENCE_DELTA;
        p = put_svarint(p, (int64_t)(sequence - *last));
    }
    *last = sequence;
    return p;
}

static inline uint8_t *put_node_thread(uint8_t *p, uint8_t *bits, int64_t creator, int64_t *last)
{
    if (creator != *last) {
        *bits |= NODE_THREAD;
        p = put_svarint(p, creator);
        *last = creator;
    }
    return p;
}

static inline uint8_t *put_node_run(cm_batch *batch, uint8_t *p, const cm_event *event)
{
    codec_model *model = &batch->model;
    codec_thread *thread = model->thread;
    uint32_t attributes = codec_attributes(event);
    uint8_t *tag = p++;
    uint8_t bits = TAG_NODE_RUN;

    p = put_time(model, p, event->time);
    p = put_sequence(p, &bits, event->address, &thread->run_sequence);
    p = put_node_thread(p, &bits, event->size,
                        &thread->run_thread[event->address == CM_NODE_NO_SEQUENCE]);
    if (event->stack != codec_predict_name(model)) {
        bits |= NODE_NAME;
        p = cm_put_varint(p, event->stack);
    }
    codec_learn_name(model, event->stack);
    if (attributes != thread->run_attributes) {
        bits |= NODE_ATTRIBUTES;
        p = put_attributes(p, attributes);
        thread->run_attributes = attributes;
    }
    *tag = bits;
    return p;
}

static inline uint8_t *put_node_done(cm_batch *batch, uint8_t *p, const cm_event *event)
{
    codec_thread *thread = batch->model.thread;
    uint32_t attributes = codec_attributes(event);
    uint8_t *tag = p++;

    *tag = TAG_NODE_DONE;
    p = put_time(&batch->model, p, event->time);
    if (attributes != thread->done_attributes) {
        *tag |= NODE_ATTRIBUTES;
        p = put_attributes(p, attributes);
        thread->done_attributes = attributes;
    }
    thread->node = 0;
    return p;
}

static inline uint8_t *put_node_free(cm_batch *batch, uint8_t *p, const cm_event *event)
{
    codec_model *model = &batch->model;
    codec_thread *thread = model->thread;
    uint32_t attributes = codec_attributes(event);
    uint8_t *tag = p++;
    uint8_t bits = TAG_NODE_FREE;

    p = put_time(model, p, event->time);
    p = put_sequence(p, &bits, event->address, &thread->gone_sequence);
    p = put_node_thread(p, &bits, event->size,
                        &thread->gone_thread[event->address == CM_NODE_NO_SEQUENCE]);
    if (attributes != thread->gone_attributes) {
        bits |= NODE_ATTRIBUTES;
        p = put_attributes(p, attributes);
        thread->gone_attributes = attributes;
    }
    *tag = bits;
    return p;
}

static uint8_t *put_other(cm_batch *batch, uint8_t *p, const cm_event *event)
{
    codec_model *model = &batch->model;
    unsigned slot = event->kind % CODEC_KINDS;
    uint32_t attributes = codec_attributes(event);

    codec_expect_other(model, event->kind);
    if (event->kind < OTHER_KIND_BYTE) {
        *p++ = (uint8_t)(TAG_OTHER | event->kind << 3);
    } else {
        *p++ = TAG_OTHER | OTHER_KIND_BYTE << 3;
        *p++ = event->kind;
    }
    p = put_time(model, p, event->time);
    uint8_t *fields = p++;
    *fields = 0;
    if (attributes != model->other[slot].attributes) {
        *fields |= OTHER_ATTRIBUTES;
        p = put_attributes(p, attributes);
        model->other[slot].attributes = attributes;
    }
    if (event->address != model->other[slot].address) {
        *fields |= OTHER_ADDRESS;
        p = put_svarint(p, (int64_t)(event->address - model->other[slot].address));
        model->other[slot].address = event->address;
    }
    if (event->size != model->other[slot].size) {
        *fields |= OTHER_SIZE;
        p = put_svarint(p, (int64_t)((uint64_t)event->size - (uint64_t)model->other[slot].size));
        model->other[slot].size = event->size;
    }
    if (event->stack != model->other[slot].stack) {
        *fields |= OTHER_STACK;
        p = put_svarint(p, (int64_t)event->stack - (int64_t)model->other[slot].stack);
        model->other[slot].stack = event->stack;
    }
    return p;
}

static inline uint8_t *put_thread(codec_model *model, uint8_t *p, uint32_t thread)
{
    if (thread == model->previous_thread) {
        *p++ = TAG_THREAD | THREAD_PREVIOUS;
    } else {
        *p++ = TAG_THREAD;
        p = cm_put_varint(p, thread);
    }
    codec_switch_thread(model, thread);
    return p;
}

/* --- the batch ----------------------------------------------------------------------------- */

cm_batch *cm_batch_new(void)
{
    return calloc(1, sizeof(cm_batch));
}

void cm_batch_free(cm_batch *batch)
{
    if (batch == NULL)
        return;
    free(batch->definition_bytes.bytes);
    free(batch->event_bytes.bytes);
    free(batch->cover_bytes.bytes);
    free(batch->chunk.bytes);
    free(batch);
}

/* The coarsest time unit of at most 32 ns, with which most gaps between events fit one byte. Two
 * anchors give a tick's length; before the second one, an architecture's usual value is used. */
static unsigned time_shift(const cm_clock_anchor *first, const cm_clock_anchor *now)
{
    uint64_t ns = now->monotonic_ns - first->monotonic_ns;
    uint64_t ticks = now->ticks - first->ticks;
    if (now->monotonic_ns <= first->monotonic_ns || now->ticks <= first->ticks || ns < 1000000) {
        uint64_t apart = now->ticks - now->monotonic_ns;
        bool is_nanoseconds = apart + 1000000 < 2000000;
#if defined(__x86_64__)
        return is_nanoseconds ? 5 : 6;
#else
        return is_nanoseconds ? 5 : 0;
#endif
    }
    unsigned shift = 0;
    while (shift < 10 && (double)ns / (double)ticks * (double)(UINT64_C(2) << shift) <= 32)
        shift++;
    return shift;
}

void cm_batch_begin(cm_batch *batch, cm_clock_anchor anchor)
{
    if (!batch->began) {
        batch->first_anchor = anchor;
        batch->began = true;
    }
    batch->anchor = anchor;
    batch->events = batch->covers = batch->log_position = batch->side = 0;
    batch->definition_bytes.length = batch->event_bytes.length = batch->cover_bytes.length = 0;
    /* Finders hold the low halves of the counts: restart long before an old one could seem recent.
     */
    if (batch->model.allocs > UINT32_MAX / 2 || batch->model.frees > UINT32_MAX / 2) {
        memset(batch->finders, 0, sizeof batch->finders);
        batch->model.allocs = batch->model.frees = 0;
    }
    codec_begin(&batch->model, time_shift(&batch->first_anchor, &anchor), anchor.ticks);
}

size_t cm_batch_size(const cm_batch *batch)
{
    return CM_CHUNK_HEADER_SIZE + 24 + 64 + batch->definition_bytes.length +
           batch->event_bytes.length + batch->cover_bytes.length;
}

uint64_t cm_batch_events(const cm_batch *batch)
{
    return batch->events;
}

/* Uses the general form if the kind's short form lacks a field that is set. */
static inline uint8_t *put_event(cm_batch *batch, uint8_t *p, const cm_event *event)
{
    switch (event->kind) {
    case CM_EV_ALLOC:
        if (__builtin_expect(size_fits(event->size), 1))
            return put_alloc(batch, p, event);
        break;
    case CM_EV_FREE:
        if (__builtin_expect(event->stack == 0 && size_fits(event->size), 1))
            return put_free(batch, p, event);
        break;
    case CM_EV_NODE_NEW:
        if (event->size == 0)
            return put_node_new(batch, p, event);
        break;
    case CM_EV_NODE_RUN:
        return put_node_run(batch, p, event);
    case CM_EV_NODE_DONE:
        if (event->address == 0 && event->size == 0 && event->stack == 0)
            return put_node_done(batch, p, event);
        break;
    case CM_EV_NODE_FREE:
        if (event->stack == 0)
            return put_node_free(batch, p, event);
        break;
    default:
        break;
    }
    return put_other(batch, p, event);
}

bool cm_batch_add_events(cm_batch *batch, uint32_t thread, const cm_event *events, size_t count)
{
    size_t most = count * CODEC_EVENT_MAX;

    if (count == 0)
        return true;
    if (most > CM_CHUNK_MAX || cm_batch_size(batch) > CM_CHUNK_MAX - most ||
        !reserve(&batch->event_bytes, most))
        return false;
    uint8_t *p = batch->event_bytes.bytes + batch->event_bytes.length;
    if (batch->events == 0)
        *p++ = (uint8_t)batch->model.shift;
    if (thread != batch->model.thread->number)
        p = put_thread(&batch->model, p, thread);
    for (size_t i = 0; i < count; i++)
        p = put_event(batch, p, &events[i]);
    batch->events += count;
    batch->event_bytes.length = (size_t)(p - batch->event_bytes.bytes);
    return true;
}

bool cm_batch_add_event(cm_batch *batch, uint32_t thread, const cm_event *event)
{
    return cm_batch_add_events(batch, thread, event, 1);
}

bool cm_batch_add_definitions(cm_batch *batch, const void *records, size_t length)
{
    if (length > CM_CHUNK_MAX || cm_batch_size(batch) + length > CM_CHUNK_MAX ||
        !reserve(&batch->definition_bytes, length))
        return false;
    if (length > 0)
        memcpy(batch->definition_bytes.bytes + batch->definition_bytes.length, records, length);
    batch->definition_bytes.length += length;
    return true;
}

const void *cm_batch_definitions(const cm_batch *batch, size_t *length)
{
    *length = batch->definition_bytes.length;
    return batch->definition_bytes.bytes;
}

bool cm_batch_add_cover(cm_batch *batch, uint32_t ring, uint64_t position)
{
    if (ring > CM_COVER_RING_MAX || cm_batch_size(batch) > CM_CHUNK_MAX - 20 ||
        !reserve(&batch->cover_bytes, 20))
        return false;
    uint8_t *p = batch->cover_bytes.bytes + batch->cover_bytes.length;
    p = cm_put_varint(cm_put_varint(p, ring), position);
    batch->cover_bytes.length = (size_t)(p - batch->cover_bytes.bytes);
    batch->covers++;
    return true;
}

void cm_batch_set_log_position(cm_batch *batch, uint64_t position)
{
    batch->log_position = position;
}

void cm_batch_set_side(cm_batch *batch, uint64_t serial)
{
    batch->side = serial;
}

bool cm_batch_finish(cm_batch *batch, const void **bytes, size_t *length)
{
    size_t room = cm_batch_size(batch) + 64;
    batch->chunk.length = 0;
    if (!reserve(&batch->chunk, room))
        return false;
    uint8_t *start = batch->chunk.bytes;
    uint8_t *p = start + CM_CHUNK_HEADER_SIZE;

    p = cm_put_fixed(p, batch->anchor.ticks, 8);
    p = cm_put_fixed(p, batch->anchor.monotonic_ns, 8);
    p = cm_put_fixed(p, batch->anchor.realtime_ns, 8);
    p = cm_put_bytes(p, batch->definition_bytes.bytes, batch->definition_bytes.length);
    p = cm_put_varint(p, batch->events);
    p = cm_put_bytes(p, batch->event_bytes.bytes, batch->event_bytes.length);
    p = cm_put_varint(p, batch->covers);
    if (batch->cover_bytes.length > 0)
        memcpy(p, batch->cover_bytes.bytes, batch->cover_bytes.length);
    p += batch->cover_bytes.length;
    p = cm_put_varint(p, batch->log_position);
    if (batch->side != 0)
        p = cm_put_varint(p, batch->side);

    cm_chunk_seal(start, CM_CHUNK_BATCH, (size_t)(p - start) - CM_CHUNK_HEADER_SIZE);
    *bytes = start;
    *length = (size_t)(p - start);
    return true;
}
