/* The predictors of the event encoder and decoder. Both call the same functions in the same order,
 * so that they cannot disagree. encode.h documents the bytes.
 *
 * Tables are not cleared between batches, for they take half a megabyte and a batch may have a
 * dozen events. An entry with an older batch's number counts as empty. */
#ifndef CM_TRACE_CODEC_H
#define CM_TRACE_CODEC_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "../base/event.h"

enum {
    TAG_ALLOC = 0,
    TAG_FREE = 1,
    TAG_NODE_NEW = 2,
    TAG_NODE_RUN = 3,
    TAG_NODE_DONE = 4,
    TAG_NODE_FREE = 5,
    TAG_OTHER = 6,
    TAG_THREAD = 7,
    TAG_CLASS = 7
};

/* ALLOC and NODE_NEW share STACK and ATTRIBUTES, so that their common part is one path. */
enum {
    ALLOC_STACK = 0x08,
    ALLOC_ATTRIBUTES = 0x10,
    ALLOC_SIZE = 0x20,
    ALLOC_AGAIN = 0x00,     /* the context's last address */
    ALLOC_REUSED = 0x40,    /* freed a number of frees ago */
    ALLOC_DELTA = 0x80,     /* from the last allocation's, in 64 bytes */
    ALLOC_DELTA_RAW = 0xc0, /* ... in bytes */
    ADDRESS_MODE = 0xc0,

    FREE_ATTRIBUTES = 0x10,
    FREE_SIZE_ZERO = 0x00,
    FREE_SIZE_SAME = 0x08, /* with FREE_AGE: the allocation's; with FREE_NEXT: that free's */
    FREE_SIZE = 0x20,
    FREE_SIZE_MODE = 0x28,
    FREE_NEXT = 0x00,  /* the address freed after the same one the last time */
    FREE_AGE = 0x40,   /* allocated a number of allocations ago */
    FREE_DELTA = 0x80, /* from the last free's, in 64 bytes */
    FREE_DELTA_RAW = 0xc0,

    NEW_STACK = 0x08,
    NEW_ATTRIBUTES = 0x10,
    NEW_SEQUENCE = 0x20,

    NODE_ATTRIBUTES = 0x10,
    NODE_SEQUENCE_NEXT = 0x00,
    NODE_SEQUENCE_DELTA = 0x40,
    NODE_SEQUENCE_NONE = 0x80,
    NODE_SEQUENCE_MODE = 0xc0,
    NODE_THREAD = 0x20,
    NODE_NAME = 0x08,

    OTHER_KIND_BYTE = 31, /* the kind does not fit into the tag: a byte follows the tag */
    OTHER_ATTRIBUTES = 0x01,
    OTHER_ADDRESS = 0x02,
    OTHER_SIZE = 0x04,
    OTHER_STACK = 0x08,
    OTHER_FIELDS = 0x0f,

    THREAD_PREVIOUS = 0x08
};

enum { TIME_DIRECT = 224, TIME_LONG = 255, TIME_PAIR_MAX = (TIME_LONG - TIME_DIRECT) * 256 };

enum {
    CODEC_RING = 1 << 14,
    CODEC_CONTEXTS = 1 << 13,
    CODEC_FREES = 1 << 12,
    CODEC_NAMES = 1 << 10,
    CODEC_THREADS = 256,
    CODEC_KINDS = 32,
    /* The longest event: tag, kind byte, time 11, fields byte, attributes 3, three varints of 10,
     * and a thread switch. A decoder's input has as many readable bytes after its end. */
    CODEC_EVENT_MAX = 64,
    CODEC_SHIFT_MAX = 20
};

#define CODEC_NO_STACK UINT32_MAX

typedef struct codec_context { /* the last event in the same context, and the stack after it */
    uint64_t address;
    int64_t size;
    uint32_t attributes, next_stack;
    uint32_t batch;
} codec_context;

typedef struct codec_block {
    uint64_t address;
    int64_t size;
    uint32_t attributes;
} codec_block;

typedef struct codec_thread {
    uint32_t batch, number;
    uint32_t stack;   /* of the last event that had one */
    uint32_t node;    /* name of the running node, 0 = none or unknown */
    uint32_t context; /* index of the last one used, UINT32_MAX = none */
    uint32_t name, name_before;
    uint32_t alloc_attributes, free_attributes, new_attributes, run_attributes, done_attributes,
        gone_attributes;
    int64_t size;
    uint64_t new_sequence, run_sequence, gone_sequence;
    int64_t run_thread[2], gone_thread[2]; /* [1]: of nodes without a sequence number */
} codec_thread;

typedef struct codec_model {
    uint32_t batch;
    uint64_t time;
    unsigned shift;
    codec_thread *thread;
    uint32_t previous_thread;
    uint64_t last_alloc, last_free;
    uint64_t allocs, frees; /* counts that never restart; a batch begins at these: */
    uint64_t first_alloc, first_free;
    struct {
        uint64_t address;
        int64_t size;
        uint32_t stack, attributes;
    } other[CODEC_KINDS];
    struct {
        uint32_t name, batch;
    } names[CODEC_NAMES];
    codec_thread threads[CODEC_THREADS];
    codec_context contexts[CODEC_CONTEXTS], free_contexts[CODEC_FREES];
    codec_block alloc_ring[CODEC_RING];
    uint64_t free_ring[CODEC_RING];
} codec_model;

static inline uint32_t codec_attributes(const cm_event *event)
{
    return event->flags | (uint32_t)event->device_type << 8 |
           (uint32_t)(uint8_t)event->device_index << 16;
}

static inline uint64_t codec_zigzag(int64_t value)
{
    return (uint64_t)value << 1 ^ (0 - (uint64_t)(value < 0));
}

static inline int64_t codec_unzigzag(uint64_t value)
{
    return (int64_t)(value >> 1 ^ (0 - (value & 1)));
}

static inline codec_thread *codec_use_thread(codec_model *model, uint32_t number)
{
    codec_thread *thread = &model->threads[number % CODEC_THREADS];
    if (thread->batch != model->batch || thread->number != number) {
        memset(thread, 0, sizeof *thread);
        thread->batch = model->batch;
        thread->number = number;
        thread->context = UINT32_MAX;
    }
    return thread;
}

static inline void codec_switch_thread(codec_model *model, uint32_t number)
{
    model->previous_thread = model->thread->number;
    model->thread = codec_use_thread(model, number);
}

/* The model must be all zero before its first batch. */
static inline void codec_begin(codec_model *model, unsigned shift, uint64_t ticks)
{
    if (++model->batch == 0) { /* after 2^32 batches numbers repeat: clear the tables */
        memset(model, 0, sizeof *model);
        model->batch = 1;
    }
    model->shift = shift;
    model->time = ticks >> shift;
    model->last_alloc = model->last_free = 0;
    model->first_alloc = model->allocs;
    model->first_free = model->frees;
    memset(model->other, 0, sizeof model->other);
    model->thread = codec_use_thread(model, 0);
    model->previous_thread = 0;
}

/* --- stacks, and the contexts of allocations ---------------------------------------------- */

static inline uint32_t codec_predict_stack(const codec_model *model)
{
    const codec_thread *thread = model->thread;
    if (thread->context != UINT32_MAX) {
        const codec_context *last = &model->contexts[thread->context];
        if (last->next_stack != CODEC_NO_STACK && last->batch == model->batch)
            return last->next_stack;
    }
    return thread->stack;
}

/* The context of an event with this stack on this thread; `salt` distinguishes kinds. */
static inline codec_context *codec_enter_context(codec_model *model, uint32_t stack, uint32_t salt)
{
    codec_thread *thread = model->thread;
    uint64_t hash = stack * UINT64_C(0x9e3779b97f4a7c15) ^
                    (uint64_t)thread->size * UINT64_C(0xc2b2ae3d27d4eb4f) ^
                    (thread->node * UINT64_C(2) + salt) * UINT64_C(0x165667b19e3779f9);
    hash = (hash ^ hash >> 32) * UINT64_C(0xd6e8feb86659fd93);
    uint32_t index = (uint32_t)(hash >> 40) % CODEC_CONTEXTS;

    if (thread->context != UINT32_MAX)
        model->contexts[thread->context].next_stack = stack;
    codec_context *context = &model->contexts[index];
    if (context->batch != model->batch) {
        context->batch = model->batch;
        context->address = 0;
        context->size = 0;
        context->attributes = thread->alloc_attributes;
        context->next_stack = CODEC_NO_STACK;
    }
    thread->context = index;
    thread->stack = stack;
    return context;
}

static inline void codec_learn_alloc(codec_model *model, codec_context *context, uint64_t address,
                                     int64_t size, uint32_t attributes)
{
    codec_block *block = &model->alloc_ring[model->allocs++ % CODEC_RING];
    block->address = context->address = model->last_alloc = address;
    block->size = context->size = model->thread->size = size;
    block->attributes = context->attributes = model->thread->alloc_attributes = attributes;
}

/* The context of the free that followed the same free at the same place the last time. */
static inline codec_context *codec_enter_free(codec_model *model)
{
    uint64_t hash = (model->last_free >> 4) * UINT64_C(0x9e3779b97f4a7c15) ^
                    model->thread->context * UINT64_C(0xc2b2ae3d27d4eb4f);
    codec_context *context = &model->free_contexts[(hash >> 40) % CODEC_FREES];
    if (context->batch != model->batch) {
        context->batch = model->batch;
        context->address = 0;
        context->size = 0;
        context->attributes = model->thread->free_attributes;
    }
    return context;
}

static inline void codec_learn_free(codec_model *model, codec_context *context, uint64_t address,
                                    int64_t size, uint32_t attributes)
{
    model->free_ring[model->frees++ % CODEC_RING] = model->last_free = address;
    model->thread->free_attributes = attributes;
    context->address = address;
    context->size = size;
    context->attributes = attributes;
}

/* The device of the allocation, and the flags of this thread's last free. */
static inline uint32_t codec_predict_free(const codec_model *model, uint32_t alloc_attributes)
{
    return (alloc_attributes & ~UINT32_C(0xff)) | (model->thread->free_attributes & 0xff);
}

/* An OTHER event is encoded as a difference from the last one of its kind, but a requested size
 * from the block before it. */
static inline void codec_expect_other(codec_model *model, uint8_t kind)
{
    if (kind != CM_EV_REQUESTED)
        return;
    model->other[kind].address = model->last_alloc;
    model->other[kind].size = model->thread->size;
    model->other[kind].attributes = model->thread->alloc_attributes & ~UINT32_C(0xff);
}

/* --- nodes --------------------------------------------------------------------------------- */

static inline uint32_t codec_name_slot(const codec_thread *thread)
{
    uint32_t hash = thread->name * 0x9e3779b1u ^ thread->name_before * 0x85ebca77u;
    return (hash >> 16) % CODEC_NAMES;
}

static inline uint32_t codec_predict_name(const codec_model *model)
{
    uint32_t slot = codec_name_slot(model->thread);
    return model->names[slot].batch == model->batch ? model->names[slot].name : 0;
}

static inline void codec_learn_name(codec_model *model, uint32_t name)
{
    codec_thread *thread = model->thread;
    uint32_t slot = codec_name_slot(thread);
    model->names[slot].name = name;
    model->names[slot].batch = model->batch;
    thread->name_before = thread->name;
    thread->name = thread->node = name;
}

#endif
