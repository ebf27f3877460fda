/* The checks before bytes are moved. A wrong pointer that a real device answers with an error must
 * not become a crash of the program here, where device memory is host memory. */
#include "objects.h"
#include "../core/sim.h"

enum place { HOST, DEVICE, BOTH };

static enum place place_of(const void *address)
{
    cm_sim_block block;
    if (cm_sim_is_device(address) && cm_sim_find(address, &block))
        return block.kind == CM_SIM_MANAGED ? BOTH : DEVICE;
    uintptr_t start;
    size_t bytes;
    return cm_sim_host_find(address, &start, &bytes) ? BOTH : HOST; /* pinned: mapped as well */
}

bool cm_sim_range_valid(const void *address, size_t bytes)
{
    cm_sim_block first, last;
    if (!bytes || !cm_sim_is_device(address))
        return true;
    if (!cm_sim_find(address, &first))
        return false;
    uintptr_t end = (uintptr_t)address + bytes;
    if (end <= first.address + first.bytes)
        return true;
    /* A range of virtual memory may be made of several blocks. */
    return first.kind == CM_SIM_MAPPED && cm_sim_find((const void *)(end - 1), &last) &&
           last.kind == CM_SIM_MAPPED;
}

int cm_sim_copy_kind(void *to, const void *from, size_t bytes, int asked, int *kind)
{
    if (asked < CM_CUDA_COPY_HOST_TO_HOST || asked > CM_CUDA_COPY_DEFAULT)
        return CM_CUDA_INVALID_DIRECTION;
    if (bytes &&
        (!to || !from || !cm_sim_range_valid(to, bytes) || !cm_sim_range_valid(from, bytes)))
        return CM_CUDA_INVALID_VALUE;
    enum place target = place_of(to), source = place_of(from);
    if (asked == CM_CUDA_COPY_DEFAULT) {
        *kind = (target == DEVICE ? 1 : 0) | (source == DEVICE ? 2 : 0);
        return CM_CUDA_OK;
    }
    bool to_device = asked & 1, from_device = asked & 2;
    *kind = asked;
    if (bytes && ((target != BOTH && (target == DEVICE) != to_device) ||
                  (source != BOTH && (source == DEVICE) != from_device)))
        return CM_CUDA_INVALID_VALUE;
    return CM_CUDA_OK;
}

/* Bytes from the first row's start to the last row's end. */
static size_t extent(size_t pitch, size_t width, size_t height)
{
    return height ? pitch * (height - 1) + width : 0;
}

int cm_sim_copy3d(const cm_cuda_copy3d *copy)
{
    const cm_cuda_extent *size = &copy->extent;
    const cm_cuda_pitched *to = &copy->dstPtr, *from = &copy->srcPtr;
    if (!size->width || !size->height || !size->depth)
        return CM_CUDA_OK;
    if (!to->ptr || !from->ptr)
        return CM_CUDA_INVALID_VALUE;
    size_t to_rows = to->ysize ? to->ysize : size->height;
    size_t from_rows = from->ysize ? from->ysize : size->height;
    if (size->height * size->depth > 1 && (size->width > to->pitch || size->width > from->pitch))
        return CM_CUDA_INVALID_PITCH;
    char *target = (char *)to->ptr + copy->dstPos.x + copy->dstPos.y * to->pitch +
                   copy->dstPos.z * to->pitch * to_rows;
    const char *source = (const char *)from->ptr + copy->srcPos.x + copy->srcPos.y * from->pitch +
                         copy->srcPos.z * from->pitch * from_rows;
    for (size_t z = 0; z < size->depth; z++) {
        int kind;
        int result = cm_sim_copy_kind(target, source, extent(to->pitch, size->width, size->height),
                                      copy->kind, &kind);
        if (!result && !cm_sim_range_valid(source, extent(from->pitch, size->width, size->height)))
            result = CM_CUDA_INVALID_VALUE;
        if (result)
            return result;
        if (size->height == 1)
            cm_sim_copy(target, source, size->width);
        else
            cm_sim_copy_2d(target, to->pitch, source, from->pitch, size->width, size->height);
        target += to->pitch * to_rows;
        source += from->pitch * from_rows;
    }
    return CM_CUDA_OK;
}

/* Elements of 1, 2 or 4 bytes. */
static void fill(char *to, unsigned value, size_t element, size_t count)
{
    unsigned char first = (unsigned char)value;
    bool same = true; /* all bytes of an element */
    for (size_t i = 1; i < element; i++)
        same &= (unsigned char)(value >> (8 * i)) == first;
    if (same) {
        cm_sim_set(to, first, element * count);
        return;
    }
    /* The host chose these bytes: they go the way of a copy, a piece at a time. */
    enum { PIECE = 1024 };
    unsigned char piece[PIECE];
    for (size_t i = 0; i < PIECE; i++)
        piece[i] = (unsigned char)(value >> (8 * (i % element)));
    for (size_t left = element * count; left;) {
        size_t now = left < PIECE ? left : PIECE;
        cm_sim_copy(to, piece, now);
        to += now;
        left -= now;
    }
}

int cm_sim_set2d(const cm_cuda_set_node *set)
{
    size_t element = set->elementSize, width = set->width * element;
    if (element != 1 && element != 2 && element != 4)
        return CM_CUDA_INVALID_VALUE;
    if (!width || !set->height)
        return CM_CUDA_OK;
    if (set->height > 1 && width > set->pitch)
        return CM_CUDA_INVALID_PITCH;
    if (!set->dst || !cm_sim_range_valid(set->dst, extent(set->pitch, width, set->height)) ||
        place_of(set->dst) == HOST)
        return CM_CUDA_INVALID_VALUE;
    if (set->height == 1 || set->pitch == width) {
        fill(set->dst, set->value, element, set->width * set->height);
        return CM_CUDA_OK;
    }
    for (size_t y = 0; y < set->height; y++)
        fill((char *)set->dst + y * set->pitch, set->value, element, set->width);
    return CM_CUDA_OK;
}
