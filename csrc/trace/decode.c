#include "decode.h"

#include <stdlib.h>

#include "codec.h"

_Static_assert((int)CM_DECODE_PADDING >= (int)CODEC_EVENT_MAX, "an event may end in the padding");

struct cm_decoder {
    const uint8_t *at, *end;
    uint64_t left;
    bool bad; /* sticky; checked once after each event */
    codec_model model;
};

static uint64_t get_long_varint(cm_decoder *d, const uint8_t **pp, uint64_t value)
{
    const uint8_t *p = *pp;
    for (int shift = 7; shift < 70; shift += 7) {
        uint64_t byte = *p++;
        value |= (byte & 0x7f) << shift;
        if (byte < 0x80) {
            if (shift == 63 && byte > 1)
                d->bad = true;
            *pp = p;
            return value;
        }
    }
    d->bad = true;
    *pp = p;
    return 0;
}

static inline uint64_t get_varint(cm_decoder *d, const uint8_t **pp)
{
    uint64_t value = *(*pp)++;
    if (__builtin_expect(value < 0x80, 1))
        return value;
    return get_long_varint(d, pp, value & 0x7f);
}

static inline int64_t get_svarint(cm_decoder *d, const uint8_t **pp)
{
    return codec_unzigzag(get_varint(d, pp));
}

static inline uint64_t get_time(cm_decoder *d, const uint8_t **pp)
{
    codec_model *model = &d->model;
    uint64_t delta = *(*pp)++;
    if (__builtin_expect(delta >= TIME_DIRECT, 0)) {
        if (delta == TIME_LONG)
            delta = (uint64_t)get_svarint(d, pp);
        else
            delta = ((delta - TIME_DIRECT) << 8 | *(*pp)++) + TIME_DIRECT;
    }
    model->time += delta;
    return model->time << model->shift;
}

static inline uint32_t get_attributes(const uint8_t **pp)
{
    const uint8_t *p = *pp;
    *pp += 3;
    return p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16;
}

static inline int64_t get_size(cm_decoder *d, const uint8_t **pp)
{
    uint64_t value = get_varint(d, pp);
    int64_t size = codec_unzigzag(value >> 1);
    return (value & 1) ? (int64_t)((uint64_t)size * 64) : size;
}

static inline void set_attributes(cm_event *event, uint32_t attributes)
{
    event->flags = (uint8_t)attributes;
    event->device_type = (uint8_t)(attributes >> 8);
    event->device_index = (int8_t)(uint8_t)(attributes >> 16);
}

static inline const uint8_t *get_alloc(cm_decoder *d, const uint8_t *p, uint8_t tag,
                                       cm_event *event)
{
    codec_model *model = &d->model;
    uint32_t stack = codec_predict_stack(model);
    if (tag & ALLOC_STACK)
        stack += (uint32_t)get_svarint(d, &p);
    codec_context *context = codec_enter_context(model, stack, 0);
    uint32_t attributes = context->attributes;
    int64_t size = context->size;
    uint64_t address;

    if (tag & ALLOC_ATTRIBUTES)
        attributes = get_attributes(&p);
    if (tag & ALLOC_SIZE)
        size = get_size(d, &p);
    switch (tag & ADDRESS_MODE) {
    case ALLOC_AGAIN:
        address = context->address;
        break;
    case ALLOC_REUSED: {
        uint64_t age = get_varint(d, &p);
        d->bad |= age >= CODEC_RING || age >= model->frees - model->first_free;
        address = model->free_ring[(model->frees - 1 - age) % CODEC_RING];
        break;
    }
    case ALLOC_DELTA:
        address = model->last_alloc + (uint64_t)get_svarint(d, &p) * 64;
        break;
    default:
        address = model->last_alloc + (uint64_t)get_svarint(d, &p);
    }
    codec_learn_alloc(model, context, address, size, attributes);
    event->kind = CM_EV_ALLOC;
    event->address = address;
    event->size = size;
    event->stack = stack;
    set_attributes(event, attributes);
    return p;
}

static inline const uint8_t *get_free(cm_decoder *d, const uint8_t *p, uint8_t tag, cm_event *event)
{
    codec_model *model = &d->model;
    codec_context *context = codec_enter_free(model);
    uint32_t attributes = model->thread->free_attributes;
    int64_t size = 0;
    uint64_t address;

    switch (tag & ADDRESS_MODE) {
    case FREE_NEXT:
        address = context->address;
        size = context->size;
        attributes = context->attributes;
        break;
    case FREE_AGE: {
        uint64_t age = get_varint(d, &p);
        d->bad |= age >= CODEC_RING || age >= model->allocs - model->first_alloc;
        const codec_block *block = &model->alloc_ring[(model->allocs - 1 - age) % CODEC_RING];
        address = block->address;
        size = block->size;
        attributes = codec_predict_free(model, block->attributes);
        break;
    }
    case FREE_DELTA:
        address = model->last_free + (uint64_t)get_svarint(d, &p) * 64;
        break;
    default:
        address = model->last_free + (uint64_t)get_svarint(d, &p);
    }
    switch (tag & FREE_SIZE_MODE) {
    case FREE_SIZE_ZERO:
        size = 0;
        break;
    case FREE_SIZE_SAME:
        break;
    case FREE_SIZE:
        size = get_size(d, &p);
        break;
    default:
        d->bad = true;
    }
    if (tag & FREE_ATTRIBUTES)
        attributes = get_attributes(&p);
    codec_learn_free(model, context, address, size, attributes);
    event->kind = CM_EV_FREE;
    event->address = address;
    event->size = size;
    event->stack = 0;
    set_attributes(event, attributes);
    return p;
}

static inline const uint8_t *get_node_new(cm_decoder *d, const uint8_t *p, uint8_t tag,
                                          cm_event *event)
{
    codec_model *model = &d->model;
    codec_thread *thread = model->thread;
    uint32_t stack = codec_predict_stack(model);

    if (tag & NEW_STACK)
        stack += (uint32_t)get_svarint(d, &p);
    codec_enter_context(model, stack, 1);
    if (tag & NEW_ATTRIBUTES)
        thread->new_attributes = get_attributes(&p);
    thread->new_sequence += (tag & NEW_SEQUENCE) ? (uint64_t)get_svarint(d, &p) : 1;
    event->kind = CM_EV_NODE_NEW;
    event->address = thread->new_sequence;
    event->size = 0;
    event->stack = stack;
    set_attributes(event, thread->new_attributes);
    return p;
}

static inline uint64_t get_sequence(cm_decoder *d, const uint8_t **pp, uint8_t tag, uint64_t *last)
{
    switch (tag & NODE_SEQUENCE_MODE) {
    case NODE_SEQUENCE_NEXT:
        *last -= 1;
        break;
    case NODE_SEQUENCE_DELTA:
        *last += (uint64_t)get_svarint(d, pp);
        break;
    case NODE_SEQUENCE_NONE:
        return CM_NODE_NO_SEQUENCE;
    default:
        d->bad = true;
    }
    return *last;
}

static inline const uint8_t *get_node_run(cm_decoder *d, const uint8_t *p, uint8_t tag,
                                          cm_event *event)
{
    codec_model *model = &d->model;
    codec_thread *thread = model->thread;

    event->kind = CM_EV_NODE_RUN;
    event->address = get_sequence(d, &p, tag, &thread->run_sequence);
    int64_t *creator = &thread->run_thread[event->address == CM_NODE_NO_SEQUENCE];
    if (tag & NODE_THREAD)
        *creator = get_svarint(d, &p);
    event->size = *creator;
    event->stack = codec_predict_name(model);
    if (tag & NODE_NAME) {
        uint64_t name = get_varint(d, &p);
        d->bad |= name > UINT32_MAX;
        event->stack = (uint32_t)name;
    }
    codec_learn_name(model, event->stack);
    if (tag & NODE_ATTRIBUTES)
        thread->run_attributes = get_attributes(&p);
    set_attributes(event, thread->run_attributes);
    return p;
}

static inline const uint8_t *get_node_done(cm_decoder *d, const uint8_t *p, uint8_t tag,
                                           cm_event *event)
{
    codec_thread *thread = d->model.thread;

    if (tag & NODE_ATTRIBUTES)
        thread->done_attributes = get_attributes(&p);
    thread->node = 0;
    event->kind = CM_EV_NODE_DONE;
    event->address = 0;
    event->size = 0;
    event->stack = 0;
    set_attributes(event, thread->done_attributes);
    return p;
}

static inline const uint8_t *get_node_free(cm_decoder *d, const uint8_t *p, uint8_t tag,
                                           cm_event *event)
{
    codec_thread *thread = d->model.thread;

    event->kind = CM_EV_NODE_FREE;
    event->address = get_sequence(d, &p, tag, &thread->gone_sequence);
    int64_t *creator = &thread->gone_thread[event->address == CM_NODE_NO_SEQUENCE];
    if (tag & NODE_THREAD)
        *creator = get_svarint(d, &p);
    event->size = *creator;
    event->stack = 0;
    if (tag & NODE_ATTRIBUTES)
        thread->gone_attributes = get_attributes(&p);
    set_attributes(event, thread->gone_attributes);
    return p;
}

static const uint8_t *get_other(cm_decoder *d, const uint8_t *p, uint8_t kind, cm_event *event)
{
    codec_model *model = &d->model;
    unsigned slot = kind % CODEC_KINDS;
    uint8_t fields = *p++;

    d->bad |= (fields & ~OTHER_FIELDS) != 0;
    codec_expect_other(model, kind);
    if (fields & OTHER_ATTRIBUTES)
        model->other[slot].attributes = get_attributes(&p);
    if (fields & OTHER_ADDRESS)
        model->other[slot].address += (uint64_t)get_svarint(d, &p);
    if (fields & OTHER_SIZE)
        model->other[slot].size =
            (int64_t)((uint64_t)model->other[slot].size + (uint64_t)get_svarint(d, &p));
    if (fields & OTHER_STACK)
        model->other[slot].stack += (uint32_t)get_svarint(d, &p);
    event->kind = kind;
    event->address = model->other[slot].address;
    event->size = model->other[slot].size;
    event->stack = model->other[slot].stack;
    set_attributes(event, model->other[slot].attributes);
    return p;
}

cm_decoder *cm_decoder_new(void)
{
    return calloc(1, sizeof(cm_decoder));
}

void cm_decoder_free(cm_decoder *decoder)
{
    free(decoder);
}

int cm_decoder_begin(cm_decoder *d, uint64_t anchor_ticks, const uint8_t *section, size_t length,
                     uint64_t events)
{
    d->left = 0;
    d->at = d->end = section;
    if (events == 0)
        return length == 0 ? 0 : -1;
    /* An event has at least two bytes. */
    if (length < 1 || section[0] > CODEC_SHIFT_MAX || events > (length - 1) / 2)
        return -1;
    codec_begin(&d->model, section[0], anchor_ticks);
    d->at = section + 1;
    d->end = section + length;
    d->left = events;
    d->bad = false;
    return 0;
}

int cm_decoder_next(cm_decoder *d, cm_event *event, uint32_t *thread)
{
    if (d->left == 0)
        return d->at == d->end ? 0 : -1;
    const uint8_t *p = d->at;
    uint8_t tag = *p++;

    if (__builtin_expect((tag & TAG_CLASS) == TAG_THREAD, 0)) {
        uint64_t number = d->model.previous_thread;
        if (tag == TAG_THREAD)
            number = get_varint(d, &p);
        else if (tag != (TAG_THREAD | THREAD_PREVIOUS))
            d->bad = true;
        d->bad |= number > UINT32_MAX;
        codec_switch_thread(&d->model, (uint32_t)number);
        tag = *p++;
    }
    uint8_t kind = tag >> 3;
    if (tag == (TAG_OTHER | OTHER_KIND_BYTE << 3))
        kind = *p++;
    event->time = get_time(d, &p);
    *thread = d->model.thread->number;
    switch (tag & TAG_CLASS) {
    case TAG_ALLOC:
        p = get_alloc(d, p, tag, event);
        break;
    case TAG_FREE:
        p = get_free(d, p, tag, event);
        break;
    case TAG_NODE_NEW:
        d->bad |= (tag & 0xc0) != 0;
        p = get_node_new(d, p, tag, event);
        break;
    case TAG_NODE_RUN:
        p = get_node_run(d, p, tag, event);
        break;
    case TAG_NODE_DONE:
        d->bad |= (tag & 0xe8) != 0;
        p = get_node_done(d, p, tag, event);
        break;
    case TAG_NODE_FREE:
        d->bad |= (tag & 0x08) != 0;
        p = get_node_free(d, p, tag, event);
        break;
    case TAG_OTHER:
        p = get_other(d, p, kind, event);
        break;
    default: /* two switches in a row */
        d->bad = true;
    }
    if (__builtin_expect(p > d->end || d->bad, 0)) {
        /* Stop here: the decoder returns -1 until the next begin. */
        d->left = 0;
        d->at = d->end - 1;
        return -1;
    }
    d->at = p;
    d->left--;
    return 1;
}
