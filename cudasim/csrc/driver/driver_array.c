/* CUDA arrays under the driver's names. */
#include "../objects/objects_array.h"

#include "driver.h"

/* CUDA_ARRAY_DESCRIPTOR */
typedef struct shape {
    size_t width, height;
    int format;
    unsigned channels;
} shape;

static int create(const cm_sim_call *call, const cm_sim_shape *asked, unsigned levels,
                  cm_sim_array **array)
{
    if (cm_cu_device() < 0)
        return CM_SIM_INVALID_CONTEXT;
    return asked ? cm_sim_array_new(call, asked, levels, array) : CM_SIM_INVALID_VALUE;
}

CM_SIM_EXPORT int cuArrayCreate_v2(cm_sim_array **array, const shape *asked)
{
    CM_CU_BEGIN(cuArrayCreate_v2, (void **)array, asked);
    int result = CM_SIM_INVALID_VALUE;
    if (asked)
        result = create(&cm_call,
                        &(cm_sim_shape){.width = asked->width,
                                        .height = asked->height,
                                        .format = asked->format,
                                        .channels = asked->channels},
                        0, array);
    CM_CU_END(result);
}

CM_SIM_EXPORT int cuArray3DCreate_v2(cm_sim_array **array, const cm_sim_shape *asked)
{
    CM_CU_BEGIN(cuArray3DCreate_v2, (void **)array, asked);
    CM_CU_END(create(&cm_call, asked, 0, array));
}

CM_SIM_EXPORT int cuArrayDestroy(cm_sim_array *array)
{
    CM_CU_BEGIN(cuArrayDestroy, array);
    CM_CU_END(cm_sim_array_delete(&cm_call, array, false));
}

CM_SIM_EXPORT int cuMipmappedArrayCreate(cm_sim_array **array, const cm_sim_shape *asked,
                                         unsigned levels)
{
    CM_CU_BEGIN(cuMipmappedArrayCreate, (void **)array, asked, levels);
    CM_CU_END(levels ? create(&cm_call, asked, levels, array) : CM_SIM_INVALID_VALUE);
}

CM_SIM_EXPORT int cuMipmappedArrayDestroy(cm_sim_array *array)
{
    CM_CU_BEGIN(cuMipmappedArrayDestroy, array);
    CM_CU_END(cm_sim_array_delete(&cm_call, array, true));
}
