/* CUDA arrays under the runtime's names. What lies in them comes and goes by the driver's copies.
 */
#include "runtime.h"

#include "../objects/objects_array.h"

enum { NO_FORMAT = 0, SIGNED = 0, UNSIGNED = 1, FLOAT = 2, NORMALIZED = 5, COMPRESSED = 17 };
enum { LAST_COMPRESSED = 30, PACKED = 31 };

/* Kinds and formats that name their channels stand in the same order. */
static int format_of(const cm_cuda_channels *asked, unsigned *channels)
{
    static const unsigned char each[] = {1, 2, 4, 1, 2, 4};
    static const unsigned char compressed[] = {4, 4, 4, 4, 4, 4, 1, 1, 2, 2, 3, 3, 4, 4};
    enum { FIRST_NORMALIZED = 0xc0, FIRST_COMPRESSED = 0x91, FORMAT_PACKED = 0x50 };
    const int bits[] = {asked->x, asked->y, asked->z, asked->w};
    int kind = asked->f;

    *channels = 0;
    while (*channels < 4 && bits[*channels])
        ++*channels;
    if (kind >= NORMALIZED && kind < COMPRESSED) {
        *channels = each[(kind - NORMALIZED) % 6];
        return FIRST_NORMALIZED + kind - NORMALIZED;
    }
    if (kind >= COMPRESSED && kind <= LAST_COMPRESSED) {
        *channels = compressed[kind - COMPRESSED];
        return FIRST_COMPRESSED + kind - COMPRESSED;
    }
    if (kind == PACKED) {
        *channels = 4;
        return FORMAT_PACKED;
    }
    if (kind != SIGNED && kind != UNSIGNED && kind != FLOAT)
        return NO_FORMAT;
    for (unsigned i = 1; i < 4; i++)
        if (bits[i] != (i < *channels ? bits[0] : 0))
            return NO_FORMAT;
    switch (bits[0]) {
    case 8:
        return kind == SIGNED ? 0x08 : kind == UNSIGNED ? 0x01 : NO_FORMAT;
    case 16:
        return kind == SIGNED ? 0x09 : kind == UNSIGNED ? 0x02 : 0x10;
    case 32:
        return kind == SIGNED ? 0x0a : kind == UNSIGNED ? 0x03 : 0x20;
    default:
        return NO_FORMAT;
    }
}

static int describe(cm_sim_shape *shape, const cm_cuda_channels *format, cm_cuda_extent extent,
                    unsigned flags)
{
    int device;
    *shape = (cm_sim_shape){
        .width = extent.width, .height = extent.height, .depth = extent.depth, .flags = flags};
    if (!format || !(shape->format = format_of(format, &shape->channels)))
        return CM_CUDA_INVALID_VALUE;
    return cm_sim_device_ready(&device);
}

static int make(cm_sim_call *call, cm_sim_array **array, const cm_cuda_channels *format,
                cm_cuda_extent extent, unsigned flags)
{
    cm_sim_shape shape;
    int result = describe(&shape, format, extent, flags);
    if (result)
        return result;
    cm_cuArray3DCreate_v2_params parameters = {(void **)array, &shape};
    if (call->correlation)
        cm_sim_driver_enter(call, cm_sim_current_device(), CM_CBID_cuArray3DCreate_v2,
                            "cuArray3DCreate_v2", &parameters, NULL);
    result = cm_sim_array_new(call, &shape, 0, array);
    if (call->correlation)
        cm_sim_driver_exit(call, result);
    return result;
}

CM_SIM_EXPORT int cudaMallocArray(cm_sim_array **array, const cm_cuda_channels *format,
                                  size_t width, size_t height, unsigned flags)
{
    CM_RT_BEGIN(cudaMallocArray, array, format, width, height, flags);
    CM_RT_END(make(&cm_call, array, format, (cm_cuda_extent){width, height, 0}, flags));
}

CM_SIM_EXPORT int cudaMalloc3DArray(cm_sim_array **array, const cm_cuda_channels *format,
                                    cm_cuda_extent extent, unsigned flags)
{
    CM_RT_BEGIN(cudaMalloc3DArray, array, format, extent, flags);
    CM_RT_END(make(&cm_call, array, format, extent, flags));
}

CM_SIM_EXPORT int cudaMallocMipmappedArray(cm_sim_array **array, const cm_cuda_channels *format,
                                           cm_cuda_extent extent, unsigned levels, unsigned flags)
{
    CM_RT_BEGIN(cudaMallocMipmappedArray, array, format, extent, levels, flags);
    cm_sim_shape shape;
    int result = levels ? describe(&shape, format, extent, flags) : CM_CUDA_INVALID_VALUE;
    if (result)
        CM_RT_END(result);
    CM_RT_DRIVER(cuMipmappedArrayCreate, (void **)array, &shape, levels);
    result = cm_sim_array_new(&cm_call, &shape, levels, array);
    CM_RT_DRIVER_END(result);
    CM_RT_END(result);
}

CM_SIM_EXPORT int cudaGetMipmappedArrayLevel(cm_sim_array **array, cm_sim_array *mipmapped,
                                             unsigned level)
{
    CM_RT_BEGIN(cudaGetMipmappedArrayLevel, array, mipmapped, level);
    CM_RT_END(cm_sim_array_level(mipmapped, level, array));
}

/* Nothing is no error. */
CM_SIM_EXPORT int cudaFreeArray(cm_sim_array *array)
{
    CM_RT_BEGIN(cudaFreeArray, array);
    int device;
    int result = cm_sim_device_ready(&device);
    if (result || !array)
        CM_RT_END(result);
    CM_RT_DRIVER(cuArrayDestroy, array);
    result = cm_sim_array_delete(&cm_call, array, false);
    CM_RT_DRIVER_END(result);
    CM_RT_END(result);
}

CM_SIM_EXPORT int cudaFreeMipmappedArray(cm_sim_array *array)
{
    CM_RT_BEGIN(cudaFreeMipmappedArray, array);
    int device;
    int result = cm_sim_device_ready(&device);
    if (result || !array)
        CM_RT_END(result);
    CM_RT_DRIVER(cuMipmappedArrayDestroy, array);
    result = cm_sim_array_delete(&cm_call, array, true);
    CM_RT_DRIVER_END(result);
    CM_RT_END(result);
}
