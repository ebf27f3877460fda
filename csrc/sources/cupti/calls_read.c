#include "calls.h"

#include <string.h>

/* CU_STREAM_PER_THREAD */
enum { STREAM_PER_THREAD = 2 };

static uint64_t word(const void *parameters, unsigned offset)
{
    uint64_t value;

    memcpy(&value, (const char *)parameters + offset, sizeof value);
    return value;
}

static const void *pointer(const void *parameters, unsigned offset)
{
    return (const void *)(uintptr_t)word(parameters, offset);
}

static uint32_t narrow_word(const void *parameters, unsigned offset)
{
    uint32_t value;

    memcpy(&value, (const char *)parameters + offset, sizeof value);
    return value;
}

static const cm_alloc_node *node_of(const cm_call *c, const void *parameters)
{
    const void *node = pointer(parameters, c->size);

    return c->generic && node != NULL ? &((const cm_graph_node *)node)->alloc : node;
}

static cm_call_does node_does(const cm_call *c, const void *parameters)
{
    const cm_graph_node *node = pointer(parameters, c->size);

    if (node == NULL)
        return 0;
    return node->type == CM_NODE_ALLOC  ? CM_CALL_GIVES
           : node->type == CM_NODE_FREE ? CM_CALL_TAKES
                                        : 0;
}

uint64_t cm_call_given(const cm_call *c, const void *parameters)
{
    if (c->sized == CM_SIZED_NODE) {
        const cm_alloc_node *node = node_of(c, parameters);
        return node != NULL ? node->address : 0;
    }
    if (c->by_value)
        return word(parameters, c->address);
    const void *out = pointer(parameters, c->address);
    if (out == NULL)
        return 0;
    return c->narrow ? narrow_word(out, 0) : word(out, 0);
}

uint64_t cm_call_taken(const cm_call *c, const void *parameters)
{
    if (c->generic) {
        const cm_graph_node *node = pointer(parameters, c->size);
        return node != NULL ? node->free : 0;
    }
    return c->narrow ? narrow_word(parameters, c->address) : word(parameters, c->address);
}

static int64_t array_size(const cm_array_3d_description *d, unsigned levels, bool three)
{
    bool block, layers = three && (d->flags & (CM_ARRAY_LAYERED | CM_ARRAY_CUBEMAP)) != 0;
    unsigned bits = cm_array_bits(d->format, d->channels, &block);

    if (three && (d->flags & (CM_ARRAY_SPARSE | CM_ARRAY_DEFERRED)) != 0)
        return 0; /* it has no memory yet */
    return cm_array_bytes(d->width, d->height, d->depth, layers, levels, bits, block);
}

static int64_t runtime_array_size(const cm_channel_format *format, cm_cuda_extent extent,
                                  unsigned flags, unsigned levels)
{
    bool block, layers = (flags & (CM_ARRAY_LAYERED | CM_ARRAY_CUBEMAP)) != 0;
    unsigned bits = cm_channel_bits(format, &block);

    if ((flags & (CM_ARRAY_SPARSE | CM_ARRAY_DEFERRED)) != 0)
        return 0;
    return cm_array_bytes(extent.width, extent.height, extent.depth, layers, levels, bits, block);
}

/* The size given by the description that `size` points at. */
static int64_t described_size(const cm_call *c, const void *parameters, const void *what)
{
    switch ((cm_call_sized)c->sized) {
    case CM_SIZED_PITCH: {
        const cm_call_take_pitch *p = parameters;
        return (int64_t)(*p->pitch * p->height);
    }
    case CM_SIZED_PITCH_V1: {
        const cm_call_take_pitch_v1 *p = parameters;
        return (int64_t)*p->pitch * p->height;
    }
    case CM_SIZED_ARRAY: {
        const cm_array_description *d = what;
        const cm_array_3d_description same = {
            .width = d->width, .height = d->height, .format = d->format, .channels = d->channels};
        return array_size(&same, 1, false);
    }
    case CM_SIZED_ARRAY_3D:
        return array_size(what, 1, true);
    case CM_SIZED_MIPMAP:
        return array_size(what, ((const cm_call_mipmap *)parameters)->levels, true);
    case CM_SIZED_EXTERNAL:
        return (int64_t)((const cm_external_description *)what)->size;
    case CM_SIZED_BUFFER:
        return (int64_t)((const cm_buffer_description *)what)->size;
    case CM_SIZED_MULTICAST:
        return (int64_t)((const cm_multicast_properties *)what)->size;
    case CM_SIZED_NODE:
        return (int64_t)node_of(c, parameters)->size;
    case CM_SIZED_RUNTIME_ARRAY: {
        const cm_call_runtime_array *p = parameters;
        return runtime_array_size(p->format, (cm_cuda_extent){p->width, p->height, 0}, 0, 1);
    }
    case CM_SIZED_RUNTIME_ARRAY_3D: {
        const cm_call_runtime_array_3d *p = parameters;
        return runtime_array_size(p->format, p->extent, p->flags, 1);
    }
    case CM_SIZED_RUNTIME_MIPMAP: {
        const cm_call_runtime_mipmap *p = parameters;
        return runtime_array_size(p->format, p->extent, p->flags, p->levels);
    }
    case CM_SIZED_RUNTIME_3D: {
        const cm_call_runtime_3d *p = parameters;
        size_t depth = p->extent.depth != 0 ? p->extent.depth : 1;
        return (int64_t)(p->memory->pitch * p->extent.height * depth);
    }
    default:
        return 0;
    }
}

int64_t cm_call_bytes(const cm_call *c, const void *parameters)
{
    if (c->sized == CM_SIZED_NOT)
        return 0;
    if (c->sized == CM_SIZED_64)
        return (int64_t)word(parameters, c->size);
    if (c->sized == CM_SIZED_32)
        return narrow_word(parameters, c->size);
    const void *what = pointer(parameters, c->size);
    return what != NULL ? described_size(c, parameters, what) : 0;
}

cm_call_does cm_call_does_now(const cm_call *c, const void *parameters)
{
    return c->does == CM_CALL_BUILDS ? node_does(c, parameters) : c->does;
}

uint64_t cm_call_stream(const cm_call *c, const void *parameters)
{
    uint64_t stream = 0;

    if (c->stream != CM_CALL_ABSENT) {
        stream = word(parameters, c->stream);
    } else if (c->configured) {
        const cm_call_launch_ex *p = parameters;
        stream = p->config != NULL ? (uint64_t)(uintptr_t)p->config->stream : 0;
    }
    return stream == 0 && c->per_thread ? STREAM_PER_THREAD : stream;
}

uint64_t cm_call_handle(const cm_call *c, const void *parameters)
{
    return word(parameters, c->handle);
}

int cm_call_device(const cm_call *c, const void *parameters)
{
    const cm_memory_properties *where = NULL;

    if (c->place == CM_PLACE_DEVICE)
        return (int)narrow_word(parameters, c->where);
    if (c->place == CM_PLACE_PROPERTIES) {
        where = pointer(parameters, c->where);
    } else if (c->place == CM_PLACE_NODE) {
        const cm_alloc_node *node = node_of(c, parameters);
        where = node != NULL ? &node->pool : NULL;
    }
    return where != NULL && where->location.type == CM_LOCATION_DEVICE ? where->location.id : -1;
}
