/* Settings of memory: by bytes, by pairs and by words, in rows or not. */
#include "driver.h"

#include <stdlib.h>
#include <string.h>

static bool is_byte_pattern(unsigned value, size_t element)
{
    unsigned byte = value & 0xff;
    unsigned repeated = byte * (element == 4 ? 0x01010101u : element == 2 ? 0x0101u : 1u);
    return value == repeated;
}

/* A pattern of more than bytes is written as a copy from the host would be: kept where copies are
 * kept. Where they are not, what was there is gone and the new contents are unknown. */
static void fill(char *to, unsigned value, size_t element, size_t bytes)
{
    if (is_byte_pattern(value, element)) {
        cm_sim_set(to, (int)(value & 0xff), bytes);
        return;
    }
    char *pattern = bytes <= cm_sim_config_get()->copy_max ? malloc(bytes) : NULL;
    if (!pattern) {
        cm_sim_fresh(to, bytes);
        return;
    }
    for (size_t i = 0; i < bytes; i += element)
        memcpy(pattern + i, &value, element);
    cm_sim_copy(to, pattern, bytes);
    free(pattern);
}

/* Rows of whole elements; one row has no pitch. */
static int set(const cm_sim_call *call, uint64_t to, size_t pitch, unsigned value, size_t element,
               size_t width, size_t height, cm_sim_stream *handle)
{
    if (cm_cu_device() < 0)
        return CM_SIM_INVALID_CONTEXT;
    bool capturing = false;
    int result = CM_SIM_OK;
    size_t row, all;
    if (__builtin_mul_overflow(width, element, &row) || to % element ||
        (height > 1 && (pitch < row || pitch % element)))
        return CM_SIM_INVALID_VALUE;
    if (!row || !height)
        return cm_sim_stream_find(handle) ? CM_SIM_OK : CM_SIM_INVALID_HANDLE;
    if (__builtin_mul_overflow(pitch, height - 1, &all) || __builtin_add_overflow(all, row, &all) ||
        !cm_cu_known(to, all))
        return CM_SIM_INVALID_VALUE;
    cm_sim_stream *stream = cm_sim_stream_work(handle, &capturing, &result);
    if (!stream)
        return result;
    if (capturing) {
        cm_cuda_set_node node = {(void *)to, pitch, value, (unsigned)element, width, height};
        return cm_sim_capture_set(stream, &node);
    }
    for (size_t y = 0; y < height; y++)
        fill((char *)to + y * pitch, value, element, row);
    if (call->correlation)
        cm_sim_record_set(call, (int)value, row * height, handle);
    return CM_SIM_OK;
}

CM_SIM_EXPORT int cuMemsetD8_v2(uint64_t to, unsigned char value, size_t count)
{
    CM_CU_BEGIN(cuMemsetD8_v2, to, value, count);
    CM_CU_END(set(&cm_call, to, 0, value, 1, count, 1, NULL));
}
CM_SIM_ALIAS(cuMemsetD8_v2, cuMemsetD8_v2_ptds);

CM_SIM_EXPORT int cuMemsetD16_v2(uint64_t to, unsigned short value, size_t count)
{
    CM_CU_BEGIN(cuMemsetD16_v2, to, value, count);
    CM_CU_END(set(&cm_call, to, 0, value, 2, count, 1, NULL));
}
CM_SIM_ALIAS(cuMemsetD16_v2, cuMemsetD16_v2_ptds);

CM_SIM_EXPORT int cuMemsetD32_v2(uint64_t to, unsigned value, size_t count)
{
    CM_CU_BEGIN(cuMemsetD32_v2, to, value, count);
    CM_CU_END(set(&cm_call, to, 0, value, 4, count, 1, NULL));
}
CM_SIM_ALIAS(cuMemsetD32_v2, cuMemsetD32_v2_ptds);

CM_SIM_EXPORT int cuMemsetD8Async(uint64_t to, unsigned char value, size_t count,
                                  cm_sim_stream *stream)
{
    CM_CU_BEGIN(cuMemsetD8Async, to, value, count, stream);
    CM_CU_END(set(&cm_call, to, 0, value, 1, count, 1, stream));
}
CM_SIM_ALIAS(cuMemsetD8Async, cuMemsetD8Async_ptsz);

CM_SIM_EXPORT int cuMemsetD16Async(uint64_t to, unsigned short value, size_t count,
                                   cm_sim_stream *stream)
{
    CM_CU_BEGIN(cuMemsetD16Async, to, value, count, stream);
    CM_CU_END(set(&cm_call, to, 0, value, 2, count, 1, stream));
}
CM_SIM_ALIAS(cuMemsetD16Async, cuMemsetD16Async_ptsz);

CM_SIM_EXPORT int cuMemsetD32Async(uint64_t to, unsigned value, size_t count, cm_sim_stream *stream)
{
    CM_CU_BEGIN(cuMemsetD32Async, to, value, count, stream);
    CM_CU_END(set(&cm_call, to, 0, value, 4, count, 1, stream));
}
CM_SIM_ALIAS(cuMemsetD32Async, cuMemsetD32Async_ptsz);

CM_SIM_EXPORT int cuMemsetD2D32Async(uint64_t to, size_t pitch, unsigned value, size_t width,
                                     size_t height, cm_sim_stream *stream)
{
    CM_CU_BEGIN(cuMemsetD2D32Async, to, pitch, value, width, height, stream);
    CM_CU_END(set(&cm_call, to, pitch, value, 4, width, height, stream));
}
CM_SIM_ALIAS(cuMemsetD2D32Async, cuMemsetD2D32Async_ptsz);
