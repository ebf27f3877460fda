/* Copies and settings: done at once, in whatever stream, unless the stream is being recorded. */
#include "driver.h"
#include "../objects/objects_array.h"

#include <stdlib.h>
#include <string.h>

/* CUpti_ActivityMemcpyKind */
enum {
    TO_DEVICE = 1,
    FROM_DEVICE = 2,
    HOST_TO_ARRAY = 3,
    ARRAY_TO_HOST = 4,
    ARRAY_TO_ARRAY = 5,
    ARRAY_TO_DEVICE = 6,
    DEVICE_TO_ARRAY = 7,
    ON_DEVICE = 8,
    ON_HOST = 9,
    BETWEEN_DEVICES = 10
};

bool cm_cu_known(uint64_t address, size_t bytes)
{
    uint64_t end;
    if (!address || __builtin_add_overflow(address, bytes, &end))
        return false;
    cm_sim_block block;
    uintptr_t start;
    size_t size;
    if (cm_sim_find((void *)address, &block)) {
        /* What lies behind an allocation is another's, but mappings may be one range's. */
        while (block.kind == CM_SIM_MAPPED && block.address + block.bytes < end)
            if (!cm_sim_find((void *)(block.address + block.bytes), &block))
                return false;
        return end <= block.address + block.bytes;
    }
    return cm_sim_host_find((void *)address, &start, &size) && end <= start + size;
}

/* Any memory will do where the program promises nothing: what is not CUDA's is the host's. */
static bool usable(uint64_t address, size_t bytes)
{
    return cm_sim_is_device((void *)address) ? cm_cu_known(address, bytes) : address != 0;
}

static int plain(void *to, const void *from, size_t bytes, cm_sim_stream *handle)
{
    bool capturing = false;
    int result = CM_SIM_OK;
    cm_sim_stream *stream = cm_sim_stream_work(handle, &capturing, &result);
    if (!stream)
        return result;
    if (capturing) {
        cm_cuda_copy3d copy = {.srcPtr = {(void *)from, bytes, bytes, 1},
                               .dstPtr = {to, bytes, bytes, 1},
                               .extent = {bytes, 1, 1},
                               .kind = CM_CUDA_COPY_DEFAULT};
        return cm_sim_capture_copy(stream, &copy);
    }
    cm_sim_copy(to, from, bytes);
    return CM_SIM_OK;
}

static int copy(const cm_sim_call *call, int kind, uint64_t to, bool to_any, uint64_t from,
                bool from_any, size_t bytes, cm_sim_stream *stream)
{
    if (cm_cu_device() < 0)
        return CM_SIM_INVALID_CONTEXT;
    if (!bytes)
        return cm_sim_stream_find(stream) ? CM_SIM_OK : CM_SIM_INVALID_HANDLE;
    if (!(to_any ? usable(to, bytes) : cm_cu_known(to, bytes)) ||
        !(from_any ? usable(from, bytes) : cm_cu_known(from, bytes)))
        return CM_SIM_INVALID_VALUE;
    int result = plain((void *)to, (const void *)from, bytes, stream);
    if (call->correlation && !result)
        cm_sim_record_copy(call, kind, bytes, stream);
    return result;
}

/* What a copy between any two addresses is. */
static int kind_of(uint64_t to, uint64_t from)
{
    bool to_device = cm_sim_is_device((void *)to), from_device = cm_sim_is_device((void *)from);
    if (to_device)
        return from_device ? ON_DEVICE : TO_DEVICE;
    return from_device ? FROM_DEVICE : ON_HOST;
}

CM_SIM_EXPORT int cuMemcpy(uint64_t to, uint64_t from, size_t bytes)
{
    CM_CU_BEGIN(cuMemcpy, to, from, bytes);
    CM_CU_END(copy(&cm_call, kind_of(to, from), to, true, from, true, bytes, NULL));
}
CM_SIM_ALIAS(cuMemcpy, cuMemcpy_ptds);

CM_SIM_EXPORT int cuMemcpyAsync(uint64_t to, uint64_t from, size_t bytes, cm_sim_stream *stream)
{
    CM_CU_BEGIN(cuMemcpyAsync, to, from, bytes, stream);
    CM_CU_END(copy(&cm_call, kind_of(to, from), to, true, from, true, bytes, stream));
}
CM_SIM_ALIAS(cuMemcpyAsync, cuMemcpyAsync_ptsz);

CM_SIM_EXPORT int cuMemcpyHtoD_v2(uint64_t to, const void *from, size_t bytes)
{
    CM_CU_BEGIN(cuMemcpyHtoD_v2, to, from, bytes);
    CM_CU_END(copy(&cm_call, TO_DEVICE, to, false, (uintptr_t)from, true, bytes, NULL));
}
CM_SIM_ALIAS(cuMemcpyHtoD_v2, cuMemcpyHtoD_v2_ptds);

CM_SIM_EXPORT int cuMemcpyDtoH_v2(void *to, uint64_t from, size_t bytes)
{
    CM_CU_BEGIN(cuMemcpyDtoH_v2, to, from, bytes);
    CM_CU_END(copy(&cm_call, FROM_DEVICE, (uintptr_t)to, true, from, false, bytes, NULL));
}
CM_SIM_ALIAS(cuMemcpyDtoH_v2, cuMemcpyDtoH_v2_ptds);

CM_SIM_EXPORT int cuMemcpyDtoD_v2(uint64_t to, uint64_t from, size_t bytes)
{
    CM_CU_BEGIN(cuMemcpyDtoD_v2, to, from, bytes);
    CM_CU_END(copy(&cm_call, ON_DEVICE, to, false, from, false, bytes, NULL));
}
CM_SIM_ALIAS(cuMemcpyDtoD_v2, cuMemcpyDtoD_v2_ptds);

CM_SIM_EXPORT int cuMemcpyHtoDAsync_v2(uint64_t to, const void *from, size_t bytes,
                                       cm_sim_stream *stream)
{
    CM_CU_BEGIN(cuMemcpyHtoDAsync_v2, to, from, bytes, stream);
    CM_CU_END(copy(&cm_call, TO_DEVICE, to, false, (uintptr_t)from, true, bytes, stream));
}
CM_SIM_ALIAS(cuMemcpyHtoDAsync_v2, cuMemcpyHtoDAsync_v2_ptsz);

CM_SIM_EXPORT int cuMemcpyDtoHAsync_v2(void *to, uint64_t from, size_t bytes, cm_sim_stream *stream)
{
    CM_CU_BEGIN(cuMemcpyDtoHAsync_v2, to, from, bytes, stream);
    CM_CU_END(copy(&cm_call, FROM_DEVICE, (uintptr_t)to, true, from, false, bytes, stream));
}
CM_SIM_ALIAS(cuMemcpyDtoHAsync_v2, cuMemcpyDtoHAsync_v2_ptsz);

CM_SIM_EXPORT int cuMemcpyDtoDAsync_v2(uint64_t to, uint64_t from, size_t bytes,
                                       cm_sim_stream *stream)
{
    CM_CU_BEGIN(cuMemcpyDtoDAsync_v2, to, from, bytes, stream);
    CM_CU_END(copy(&cm_call, ON_DEVICE, to, false, from, false, bytes, stream));
}
CM_SIM_ALIAS(cuMemcpyDtoDAsync_v2, cuMemcpyDtoDAsync_v2_ptsz);

static bool contexts(const cm_cu_context *to, const cm_cu_context *from)
{
    return cm_cu_context_device(to) >= 0 && cm_cu_context_device(from) >= 0;
}

CM_SIM_EXPORT int cuMemcpyPeerAsync(uint64_t to, cm_cu_context *to_context, uint64_t from,
                                    cm_cu_context *from_context, size_t bytes,
                                    cm_sim_stream *stream)
{
    CM_CU_BEGIN(cuMemcpyPeerAsync, to, to_context, from, from_context, bytes, stream);
    CM_CU_END(contexts(to_context, from_context)
                  ? copy(&cm_call, BETWEEN_DEVICES, to, false, from, false, bytes, stream)
                  : CM_SIM_INVALID_CONTEXT);
}
CM_SIM_ALIAS(cuMemcpyPeerAsync, cuMemcpyPeerAsync_ptsz);

/* --- boxes: copies in two and three dimensions, and of arrays --------------------------------- */

/* One end of a copy: as CUDA_MEMCPY2D and CUDA_MEMCPY3D describe it, with the fields of both. */
typedef struct end {
    size_t x, y, z;
    int type;
    uint64_t host, device;
    cm_sim_array *array;
    size_t pitch, height;
} end;

/* Where it begins, with its pitch and height made whole. NULL: it leaves its memory. */
static char *begin(end *of, size_t width, size_t height, size_t depth)
{
    uint64_t base = of->type == CM_CU_HOST ? of->host : of->device;
    if (of->type == CM_CU_ARRAY) {
        size_t rows, planes;
        base = (uintptr_t)cm_sim_array_memory(of->array, &of->pitch, &rows, &planes);
        of->height = rows;
        if (!base || of->x + width > of->pitch || of->y + height > rows || of->z + depth > planes)
            return NULL;
    } else {
        of->pitch = of->pitch ? of->pitch : of->x + width;
        of->height = of->height ? of->height : of->y + height;
        if (of->x + width > of->pitch)
            return NULL;
    }
    size_t plane, last;
    if (__builtin_mul_overflow(of->pitch, of->height, &plane) ||
        __builtin_mul_overflow(plane, of->z + depth - 1, &last))
        return NULL;
    size_t first = of->z * plane + of->y * of->pitch + of->x;
    size_t bytes = last + (of->y + height - 1) * of->pitch + of->x + width - first;
    bool sound =
        of->type == CM_CU_DEVICE ? cm_cu_known(base + first, bytes) : usable(base + first, bytes);
    return base && sound ? (char *)base + first : NULL;
}

static int box_kind(const end *to, const end *from, const void *start, const void *origin)
{
    bool host = from->type == CM_CU_HOST, to_host = to->type == CM_CU_HOST;
    if (to->type == CM_CU_ARRAY)
        return from->type == CM_CU_ARRAY ? ARRAY_TO_ARRAY : host ? HOST_TO_ARRAY : DEVICE_TO_ARRAY;
    if (from->type == CM_CU_ARRAY)
        return to_host ? ARRAY_TO_HOST : ARRAY_TO_DEVICE;
    return kind_of((uintptr_t)start, (uintptr_t)origin);
}

static int box(const cm_sim_call *call, end *to, end *from, size_t width, size_t height,
               size_t depth, cm_sim_stream *handle)
{
    bool capturing = false;
    int result = CM_SIM_OK;
    if (cm_cu_device() < 0)
        return CM_SIM_INVALID_CONTEXT;
    if (!width || !height || !depth)
        return CM_SIM_OK;
    char *start = begin(to, width, height, depth), *origin = begin(from, width, height, depth);
    if (!start || !origin)
        return CM_SIM_INVALID_VALUE;
    cm_sim_stream *stream = cm_sim_stream_work(handle, &capturing, &result);
    if (!stream)
        return result;
    if (capturing) {
        cm_cuda_copy3d copy = {.srcPtr = {origin, from->pitch, from->pitch, from->height},
                               .dstPtr = {start, to->pitch, to->pitch, to->height},
                               .extent = {width, height, depth},
                               .kind = CM_CUDA_COPY_DEFAULT};
        return cm_sim_capture_copy(stream, &copy);
    }
    for (size_t z = 0; z < depth; z++)
        cm_sim_copy_2d(start + z * to->pitch * to->height, to->pitch,
                       origin + z * from->pitch * from->height, from->pitch, width, height);
    if (call->correlation)
        cm_sim_record_copy(call, box_kind(to, from, start, origin), width * height * depth, handle);
    return CM_SIM_OK;
}

/* CUDA_MEMCPY2D */
typedef struct copy2d {
    size_t src_x, src_y;
    int src_type;
    const void *src_host;
    uint64_t src_device;
    cm_sim_array *src_array;
    size_t src_pitch;
    size_t dst_x, dst_y;
    int dst_type;
    void *dst_host;
    uint64_t dst_device;
    cm_sim_array *dst_array;
    size_t dst_pitch;
    size_t width, height;
} copy2d;

static int copy_2d(const cm_sim_call *call, const copy2d *asked, cm_sim_stream *stream)
{
    if (!asked)
        return CM_SIM_INVALID_VALUE;
    end from = {.x = asked->src_x,
                .y = asked->src_y,
                .type = asked->src_type,
                .host = (uintptr_t)asked->src_host,
                .device = asked->src_device,
                .array = asked->src_array,
                .pitch = asked->src_pitch};
    end to = {.x = asked->dst_x,
              .y = asked->dst_y,
              .type = asked->dst_type,
              .host = (uintptr_t)asked->dst_host,
              .device = asked->dst_device,
              .array = asked->dst_array,
              .pitch = asked->dst_pitch};
    return box(call, &to, &from, asked->width, asked->height, 1, stream);
}

CM_SIM_EXPORT int cuMemcpy2D_v2(const copy2d *asked)
{
    CM_CU_BEGIN(cuMemcpy2D_v2, asked);
    CM_CU_END(copy_2d(&cm_call, asked, NULL));
}
CM_SIM_ALIAS(cuMemcpy2D_v2, cuMemcpy2D_v2_ptds);

CM_SIM_EXPORT int cuMemcpy2DAsync_v2(const copy2d *asked, cm_sim_stream *stream)
{
    CM_CU_BEGIN(cuMemcpy2DAsync_v2, asked, stream);
    CM_CU_END(copy_2d(&cm_call, asked, stream));
}
CM_SIM_ALIAS(cuMemcpy2DAsync_v2, cuMemcpy2DAsync_v2_ptsz);

/* CUDA_MEMCPY3D, with padding where CUDA_MEMCPY3D_PEER has contexts. */
typedef struct copy3d {
    size_t src_x, src_y, src_z, src_level;
    int src_type;
    const void *src_host;
    uint64_t src_device;
    cm_sim_array *src_array;
    void *src_context;
    size_t src_pitch, src_height;
    size_t dst_x, dst_y, dst_z, dst_level;
    int dst_type;
    void *dst_host;
    uint64_t dst_device;
    cm_sim_array *dst_array;
    void *dst_context;
    size_t dst_pitch, dst_height;
    size_t width, height, depth;
} copy3d;

static int copy_3d(const cm_sim_call *call, const copy3d *asked, cm_sim_stream *stream)
{
    if (!asked || asked->src_level || asked->dst_level)
        return CM_SIM_INVALID_VALUE;
    end from = {.x = asked->src_x,
                .y = asked->src_y,
                .z = asked->src_z,
                .type = asked->src_type,
                .host = (uintptr_t)asked->src_host,
                .device = asked->src_device,
                .array = asked->src_array,
                .pitch = asked->src_pitch,
                .height = asked->src_height};
    end to = {.x = asked->dst_x,
              .y = asked->dst_y,
              .z = asked->dst_z,
              .type = asked->dst_type,
              .host = (uintptr_t)asked->dst_host,
              .device = asked->dst_device,
              .array = asked->dst_array,
              .pitch = asked->dst_pitch,
              .height = asked->dst_height};
    return box(call, &to, &from, asked->width, asked->height, asked->depth, stream);
}

CM_SIM_EXPORT int cuMemcpy3D_v2(const copy3d *asked)
{
    CM_CU_BEGIN(cuMemcpy3D_v2, asked);
    CM_CU_END(copy_3d(&cm_call, asked, NULL));
}
CM_SIM_ALIAS(cuMemcpy3D_v2, cuMemcpy3D_v2_ptds);
