#include "runtime.h"

/* CUPTI's words for a copy. */
static int cupti_kind(int kind)
{
    enum { HTOD = 1, DTOH = 2, DTOD = 8, HTOH = 9 };
    static const int words[] = {HTOH, HTOD, DTOH, DTOD};
    return words[kind];
}

/* The driver call that a real runtime makes for this copy. */
static void report_enter(cm_sim_call *call, int kind, bool async, void *to, const void *from,
                         size_t bytes, cm_sim_stream *stream, cm_cuMemcpyAsync_params *room)
{
    struct {
        uint32_t id;
        const char *name;
    } calls[2][4] = {
        {{CM_CBID_cuMemcpy, "cuMemcpy"},
         {CM_CBID_cuMemcpyHtoD_v2, "cuMemcpyHtoD_v2"},
         {CM_CBID_cuMemcpyDtoH_v2, "cuMemcpyDtoH_v2"},
         {CM_CBID_cuMemcpyDtoD_v2, "cuMemcpyDtoD_v2"}},
        {{CM_CBID_cuMemcpyAsync, "cuMemcpyAsync"},
         {CM_CBID_cuMemcpyHtoDAsync_v2, "cuMemcpyHtoDAsync_v2"},
         {CM_CBID_cuMemcpyDtoHAsync_v2, "cuMemcpyDtoHAsync_v2"},
         {CM_CBID_cuMemcpyDtoDAsync_v2, "cuMemcpyDtoDAsync_v2"}},
    };
    /* All of them are two addresses, a size and, if they do not wait, a stream. */
    _Static_assert(sizeof(cm_cuMemcpyAsync_params) == sizeof(cm_cuMemcpyDtoHAsync_v2_params) &&
                       offsetof(cm_cuMemcpyAsync_params, hStream) ==
                           offsetof(cm_cuMemcpyHtoDAsync_v2_params, hStream),
                   "one layout");
    *room = (cm_cuMemcpyAsync_params){(uintptr_t)to, (uintptr_t)from, bytes, stream};
    cm_sim_driver_enter(call, cm_sim_current_device(), calls[async][kind].id,
                        calls[async][kind].name, room, NULL);
}

/* A copy that the host waits for uses the legacy stream; what has been launched is done then. */
static int wait_for(cm_sim_stream *stream)
{
    int result = cm_sim_capture_permits();
    return result ? result : cm_sim_stream_synchronize(stream);
}

static int plain(cm_sim_call *call, void *to, const void *from, size_t bytes, int asked, bool async,
                 cm_sim_stream *handle)
{
    int device, kind;
    bool capturing;
    int result = cm_sim_device_ready(&device);
    if (result)
        return result;
    cm_sim_stream *stream = cm_sim_stream_work(handle, &capturing, &result);
    if (!stream)
        return result;
    result = cm_sim_copy_kind(to, from, bytes, asked, &kind);
    if (!result && !async)
        result = wait_for(stream);
    if (result || !bytes)
        return result;
    cm_cuMemcpyAsync_params room;
    bool reported = call->correlation != 0;
    if (reported)
        report_enter(call, kind, async, to, from, bytes, handle, &room);
    if (capturing)
        result = cm_sim_capture_copy(
            stream, &(cm_cuda_copy3d){.srcPtr = {(void *)(uintptr_t)from, bytes, bytes, 1},
                                      .dstPtr = {to, bytes, bytes, 1},
                                      .extent = {bytes, 1, 1},
                                      .kind = kind});
    else
        cm_sim_copy(to, from, bytes);
    if (reported) {
        if (!capturing)
            cm_sim_record_copy(call, cupti_kind(kind), bytes, stream);
        cm_sim_driver_exit(call, result);
    }
    return result;
}

CM_SIM_EXPORT int cudaMemcpy(void *to, const void *from, size_t bytes, int kind)
{
    CM_RT_BEGIN(cudaMemcpy, to, from, bytes, kind);
    CM_RT_END(plain(&cm_call, to, from, bytes, kind, false, NULL));
}
CM_SIM_ALIAS(cudaMemcpy, cudaMemcpy_ptds);

CM_SIM_EXPORT int cudaMemcpyAsync(void *to, const void *from, size_t bytes, int kind,
                                  cm_sim_stream *stream)
{
    CM_RT_BEGIN(cudaMemcpyAsync, to, from, bytes, kind, stream);
    CM_RT_END(plain(&cm_call, to, from, bytes, kind, true, stream));
}
CM_SIM_ALIAS(cudaMemcpyAsync, cudaMemcpyAsync_ptsz);

/* Each of the copies by itself: their order is not promised, and nothing else is either. */
CM_SIM_EXPORT int cudaMemcpyBatchAsync(void *const *to, const void *const *from,
                                       const size_t *bytes, size_t count,
                                       cm_cuda_copy_attributes *attributes, size_t *indices,
                                       size_t attribute_count, cm_sim_stream *stream)
{
    CM_RT_BEGIN(cudaMemcpyBatchAsync, to, from, bytes, count, attributes, indices, attribute_count,
                stream);
    if (cm_sim_cuda_major() == 12) /* which has a parameter before the stream */
        CM_RT_END(cm_rt_refuse("cudaMemcpyBatchAsync of CUDA 12"));
    /* The legacy stream cannot carry a batch. */
    if (!to || !from || !bytes || !count || !attributes || !indices || !attribute_count ||
        attribute_count > count || (uintptr_t)stream <= CM_CUDA_STREAM_LEGACY)
        CM_RT_END(CM_CUDA_INVALID_VALUE);
    int result = CM_CUDA_OK;
    for (size_t i = 0; !result && i < count; i++)
        result = plain(&cm_call, to[i], from[i], bytes[i], CM_CUDA_COPY_DEFAULT, true, stream);
    CM_RT_END(result);
}
CM_SIM_ALIAS(cudaMemcpyBatchAsync, cudaMemcpyBatchAsync_ptsz);

/* --- between devices -------------------------------------------------------------------------- */

static bool is_device(int device)
{
    return device >= 0 && device < cm_sim_config_get()->devices;
}

static int peer(cm_sim_call *call, void *to, int to_device, const void *from, int from_device,
                size_t bytes, bool async, cm_sim_stream *stream)
{
    if (!is_device(to_device) || !is_device(from_device))
        return CM_CUDA_INVALID_DEVICE;
    return plain(call, to, from, bytes, CM_CUDA_COPY_DEVICE_TO_DEVICE, async, stream);
}

CM_SIM_EXPORT int cudaMemcpyPeer(void *to, int to_device, const void *from, int from_device,
                                 size_t bytes)
{
    CM_RT_BEGIN(cudaMemcpyPeer, to, to_device, from, from_device, bytes);
    CM_RT_END(peer(&cm_call, to, to_device, from, from_device, bytes, false, NULL));
}

CM_SIM_EXPORT int cudaMemcpyPeerAsync(void *to, int to_device, const void *from, int from_device,
                                      size_t bytes, cm_sim_stream *stream)
{
    CM_RT_BEGIN(cudaMemcpyPeerAsync, to, to_device, from, from_device, bytes, stream);
    CM_RT_END(peer(&cm_call, to, to_device, from, from_device, bytes, true, stream));
}

/* --- rows ------------------------------------------------------------------------------------- */

static int rows(cm_sim_call *call, void *to, size_t to_pitch, const void *from, size_t from_pitch,
                size_t width, size_t height, int asked, bool async, cm_sim_stream *handle)
{
    int device, kind;
    bool capturing;
    if (width > to_pitch || width > from_pitch)
        return CM_CUDA_INVALID_PITCH;
    int result = cm_sim_device_ready(&device);
    if (result)
        return result;
    cm_sim_stream *stream = cm_sim_stream_work(handle, &capturing, &result);
    if (!stream)
        return result;
    result = cm_sim_copy_kind(to, from, width, asked, &kind);
    if (!result && !async)
        result = wait_for(stream);
    if (result)
        return result;
    cm_cuda_copy3d copy = {.srcPtr = {(void *)(uintptr_t)from, from_pitch, width, height},
                           .dstPtr = {to, to_pitch, width, height},
                           .extent = {width, height, 1},
                           .kind = asked};
    result = capturing ? cm_sim_capture_copy(stream, &copy) : cm_sim_copy3d(&copy);
    if (!result && !capturing && call->correlation)
        cm_sim_record_copy(call, cupti_kind(kind), width * height, stream);
    return result;
}

CM_SIM_EXPORT int cudaMemcpy2D(void *to, size_t to_pitch, const void *from, size_t from_pitch,
                               size_t width, size_t height, int kind)
{
    CM_RT_BEGIN(cudaMemcpy2D, to, to_pitch, from, from_pitch, width, height, kind);
    CM_RT_END(rows(&cm_call, to, to_pitch, from, from_pitch, width, height, kind, false, NULL));
}
CM_SIM_ALIAS(cudaMemcpy2D, cudaMemcpy2D_ptds);

CM_SIM_EXPORT int cudaMemcpy2DAsync(void *to, size_t to_pitch, const void *from, size_t from_pitch,
                                    size_t width, size_t height, int kind, cm_sim_stream *stream)
{
    CM_RT_BEGIN(cudaMemcpy2DAsync, to, to_pitch, from, from_pitch, width, height, kind, stream);
    CM_RT_END(rows(&cm_call, to, to_pitch, from, from_pitch, width, height, kind, true, stream));
}
CM_SIM_ALIAS(cudaMemcpy2DAsync, cudaMemcpy2DAsync_ptsz);

/* --- variables of the device ------------------------------------------------------------------ */

static int symbol(cm_sim_call *call, const void *name, const void *from, void *to, size_t bytes,
                  size_t offset, int kind, bool async, cm_sim_stream *stream)
{
    void *address;
    size_t room, end;
    int result = cm_rt_symbol(name, &address, &room);
    if (result)
        return result;
    if (__builtin_add_overflow(offset, bytes, &end) || end > room)
        return CM_CUDA_INVALID_VALUE;
    bool into = to == NULL;
    if (kind == (into ? CM_CUDA_COPY_DEVICE_TO_HOST : CM_CUDA_COPY_HOST_TO_DEVICE))
        return CM_CUDA_INVALID_DIRECTION;
    char *variable = (char *)address + offset;
    return plain(call, into ? variable : to, into ? from : variable, bytes, kind, async, stream);
}

CM_SIM_EXPORT int cudaMemcpyToSymbol(const void *name, const void *from, size_t bytes,
                                     size_t offset, int kind)
{
    CM_RT_BEGIN(cudaMemcpyToSymbol, name, from, bytes, offset, kind);
    CM_RT_END(symbol(&cm_call, name, from, NULL, bytes, offset, kind, false, NULL));
}
CM_SIM_ALIAS(cudaMemcpyToSymbol, cudaMemcpyToSymbol_ptds);

CM_SIM_EXPORT int cudaMemcpyToSymbolAsync(const void *name, const void *from, size_t bytes,
                                          size_t offset, int kind, cm_sim_stream *stream)
{
    CM_RT_BEGIN(cudaMemcpyToSymbolAsync, name, from, bytes, offset, kind, stream);
    CM_RT_END(symbol(&cm_call, name, from, NULL, bytes, offset, kind, true, stream));
}
CM_SIM_ALIAS(cudaMemcpyToSymbolAsync, cudaMemcpyToSymbolAsync_ptsz);

CM_SIM_EXPORT int cudaMemcpyFromSymbol(void *to, const void *name, size_t bytes, size_t offset,
                                       int kind)
{
    CM_RT_BEGIN(cudaMemcpyFromSymbol, to, name, bytes, offset, kind);
    if (!to)
        CM_RT_END(CM_CUDA_INVALID_VALUE);
    CM_RT_END(symbol(&cm_call, name, NULL, to, bytes, offset, kind, false, NULL));
}
CM_SIM_ALIAS(cudaMemcpyFromSymbol, cudaMemcpyFromSymbol_ptds);

/* --- filling ---------------------------------------------------------------------------------- */

/* `set` in bytes. */
static int fill(cm_sim_call *call, const cm_cuda_set_node *set, cm_sim_stream *handle)
{
    int device;
    bool capturing;
    int result = cm_sim_device_ready(&device);
    if (result)
        return result;
    cm_sim_stream *stream = cm_sim_stream_work(handle, &capturing, &result);
    if (!stream)
        return result;
    result = capturing ? cm_sim_capture_set(stream, set) : cm_sim_set2d(set);
    if (!result && !capturing && call->correlation)
        cm_sim_record_set(call, (int)set->value, set->width * set->height, stream);
    return result;
}

static int fill_row(cm_sim_call *call, void *to, int value, size_t bytes, bool async,
                    cm_sim_stream *stream)
{
    cm_cuMemsetD8Async_params parameters = {(uintptr_t)to, (unsigned char)value, bytes, stream};
    bool reported = call->correlation != 0;
    if (reported)
        cm_sim_driver_enter(call, cm_sim_current_device(),
                            async ? CM_CBID_cuMemsetD8Async : CM_CBID_cuMemsetD8_v2,
                            async ? "cuMemsetD8Async" : "cuMemsetD8_v2", &parameters, NULL);
    int result =
        fill(call, &(cm_cuda_set_node){to, bytes, (unsigned char)value, 1, bytes, 1}, stream);
    if (reported)
        cm_sim_driver_exit(call, result);
    return result;
}

CM_SIM_EXPORT int cudaMemset(void *to, int value, size_t bytes)
{
    CM_RT_BEGIN(cudaMemset, to, value, bytes);
    CM_RT_END(fill_row(&cm_call, to, value, bytes, false, NULL));
}
CM_SIM_ALIAS(cudaMemset, cudaMemset_ptds);

CM_SIM_EXPORT int cudaMemsetAsync(void *to, int value, size_t bytes, cm_sim_stream *stream)
{
    CM_RT_BEGIN(cudaMemsetAsync, to, value, bytes, stream);
    CM_RT_END(fill_row(&cm_call, to, value, bytes, true, stream));
}
CM_SIM_ALIAS(cudaMemsetAsync, cudaMemsetAsync_ptsz);

CM_SIM_EXPORT int cudaMemset2DAsync(void *to, size_t pitch, int value, size_t width, size_t height,
                                    cm_sim_stream *stream)
{
    CM_RT_BEGIN(cudaMemset2DAsync, to, pitch, value, width, height, stream);
    CM_RT_END(fill(&cm_call, &(cm_cuda_set_node){to, pitch, (unsigned char)value, 1, width, height},
                   stream));
}
CM_SIM_ALIAS(cudaMemset2DAsync, cudaMemset2DAsync_ptsz);
