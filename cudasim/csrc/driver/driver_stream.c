/* Streams, events and captures: the runtime's own objects under the driver's names. */
#include "driver.h"

static int create(cm_sim_stream **stream, unsigned flags, int priority)
{
    int device = cm_cu_device();
    if (device < 0)
        return CM_SIM_INVALID_CONTEXT;
    if (!stream || flags > CM_CUDA_STREAM_NON_BLOCKING)
        return CM_SIM_INVALID_VALUE;
    return cm_sim_stream_new(device, flags, priority, stream);
}

CM_SIM_EXPORT int cuStreamCreate(cm_sim_stream **stream, unsigned flags)
{
    CM_CU_BEGIN(cuStreamCreate, (void **)stream, flags);
    CM_CU_END(create(stream, flags, CM_SIM_PRIORITY_LEAST));
}

CM_SIM_EXPORT int cuStreamCreateWithPriority(cm_sim_stream **stream, unsigned flags, int priority)
{
    CM_CU_BEGIN(cuStreamCreateWithPriority, (void **)stream, flags, priority);
    CM_CU_END(create(stream, flags, priority));
}

CM_SIM_EXPORT int cuStreamDestroy_v2(cm_sim_stream *stream)
{
    CM_CU_BEGIN(cuStreamDestroy_v2, stream);
    CM_CU_END(cm_sim_stream_delete(stream));
}
CM_SIM_ALIAS(cuStreamDestroy_v2, cuStreamDestroy);

CM_SIM_EXPORT int cuStreamSynchronize(cm_sim_stream *stream)
{
    CM_CU_BEGIN(cuStreamSynchronize, stream);
    CM_CU_END(cm_sim_stream_synchronize(stream));
}
CM_SIM_ALIAS(cuStreamSynchronize, cuStreamSynchronize_ptsz);

CM_SIM_EXPORT int cuStreamQuery(cm_sim_stream *stream)
{
    CM_SIM_ENTRY;
    return cm_sim_stream_query(stream);
}
CM_SIM_ALIAS(cuStreamQuery, cuStreamQuery_ptsz);

CM_SIM_EXPORT int cuStreamWaitEvent(cm_sim_stream *stream, cm_sim_event *event, unsigned flags)
{
    CM_CU_BEGIN(cuStreamWaitEvent, stream, event, flags);
    CM_CU_END(cm_sim_stream_wait(stream, event, flags));
}
CM_SIM_ALIAS(cuStreamWaitEvent, cuStreamWaitEvent_ptsz);

/* Streams belong to devices: asked for their context, the device's primary one is named. */
CM_SIM_EXPORT int cuStreamGetCtx(cm_sim_stream *handle, cm_cu_context **context)
{
    CM_SIM_ENTRY;
    cm_sim_stream *stream = cm_sim_stream_find(handle);
    if (!stream)
        return CM_SIM_INVALID_HANDLE;
    if (context)
        *context = cm_cu_primary(cm_sim_stream_device(stream));
    return CM_SIM_OK;
}
CM_SIM_ALIAS(cuStreamGetCtx, cuStreamGetCtx_ptsz);

CM_SIM_EXPORT int cuStreamGetCtx_v2(cm_sim_stream *handle, cm_cu_context **context, void **green)
{
    int result = cuStreamGetCtx(handle, context);
    if (!result && green)
        *green = NULL;
    return result;
}
CM_SIM_ALIAS(cuStreamGetCtx_v2, cuStreamGetCtx_v2_ptsz);

typedef struct callback {
    cm_cuda_stream_callback function;
    cm_sim_stream *stream;
    void *data;
} callback;

static void call_back(void *context)
{
    callback *of = context;
    of->function(of->stream, CM_SIM_OK, of->data);
}

/* All work before it is done, so it is called at once; the stream that is being recorded cannot
 * keep one, as with a real driver. */
CM_SIM_EXPORT int cuStreamAddCallback(cm_sim_stream *handle, cm_cuda_stream_callback function,
                                      void *data, unsigned flags)
{
    CM_SIM_ENTRY;
    int status = CM_CUDA_CAPTURE_NONE;
    if (!function || flags)
        return CM_SIM_INVALID_VALUE;
    int result = cm_sim_capture_info(handle, &status, NULL, NULL, NULL, NULL, NULL);
    if (!result && status != CM_CUDA_CAPTURE_NONE)
        result = CM_CUDA_CAPTURE_UNSUPPORTED;
    callback of = {function, handle, data};
    return result ? result : cm_sim_stream_host(handle, call_back, &of);
}
CM_SIM_ALIAS(cuStreamAddCallback, cuStreamAddCallback_ptsz);

/* --- values written and waited for in stream order -------------------------------------------- */

static int write_value(cm_sim_stream *handle, uint64_t address, const void *value, size_t bytes)
{
    int result = CM_SIM_OK;
    bool capturing = false;
    if (address % bytes || !cm_cu_known(address, bytes))
        return CM_SIM_INVALID_VALUE;
    cm_sim_stream *stream = cm_sim_stream_work(handle, &capturing, &result);
    if (!stream)
        return result;
    if (capturing) {
        cm_sim_note(CM_SIM_NOTE_REFUSED, "cuStreamWriteValue in a capture", 0);
        return CM_SIM_NOT_SUPPORTED;
    }
    cm_sim_copy((void *)address, value, bytes);
    return CM_SIM_OK;
}

CM_SIM_EXPORT int cuStreamWriteValue32_v2(cm_sim_stream *stream, uint64_t address, uint32_t value,
                                          unsigned flags)
{
    CM_SIM_ENTRY;
    (void)flags;
    return write_value(stream, address, &value, sizeof value);
}
CM_SIM_ALIAS(cuStreamWriteValue32_v2, cuStreamWriteValue32_v2_ptsz);
CM_SIM_ALIAS(cuStreamWriteValue32_v2, cuStreamWriteValue32);
CM_SIM_ALIAS(cuStreamWriteValue32_v2, cuStreamWriteValue32_ptsz);

/* --- events ----------------------------------------------------------------------------------- */

CM_SIM_EXPORT int cuEventCreate(cm_sim_event **event, unsigned flags)
{
    CM_CU_BEGIN(cuEventCreate, (void **)event, flags);
    int device = cm_cu_device();
    int result = device < 0 ? CM_SIM_INVALID_CONTEXT : CM_SIM_OK;
    if (!result)
        result = event ? cm_sim_event_new(device, flags, event) : CM_SIM_INVALID_VALUE;
    CM_CU_END(result);
}

CM_SIM_EXPORT int cuEventDestroy_v2(cm_sim_event *event)
{
    CM_CU_BEGIN(cuEventDestroy_v2, event);
    CM_CU_END(cm_sim_event_delete(event));
}
CM_SIM_ALIAS(cuEventDestroy_v2, cuEventDestroy);

CM_SIM_EXPORT int cuEventRecord(cm_sim_event *event, cm_sim_stream *stream)
{
    CM_CU_BEGIN(cuEventRecord, event, stream);
    CM_CU_END(cm_sim_event_record(event, stream, 0));
}
CM_SIM_ALIAS(cuEventRecord, cuEventRecord_ptsz);

CM_SIM_EXPORT int cuEventQuery(cm_sim_event *event)
{
    CM_SIM_ENTRY;
    return cm_sim_event_query(event);
}

CM_SIM_EXPORT int cuEventSynchronize(cm_sim_event *event)
{
    CM_CU_BEGIN(cuEventSynchronize, event);
    CM_CU_END(cm_sim_event_synchronize(event));
}

CM_SIM_EXPORT int cuEventElapsedTime_v2(float *milliseconds, cm_sim_event *start, cm_sim_event *end)
{
    CM_SIM_ENTRY;
    float unused;
    return cm_sim_event_elapsed(start, end, milliseconds ? milliseconds : &unused);
}
CM_SIM_ALIAS(cuEventElapsedTime_v2, cuEventElapsedTime);

/* --- captures --------------------------------------------------------------------------------- */

CM_SIM_EXPORT int cuStreamBeginCapture_v2(cm_sim_stream *stream, int mode)
{
    CM_CU_BEGIN(cuStreamBeginCapture_v2, stream, mode);
    CM_CU_END(cm_sim_capture_begin(stream, NULL, NULL, 0, mode));
}
CM_SIM_ALIAS(cuStreamBeginCapture_v2, cuStreamBeginCapture_v2_ptsz);

CM_SIM_EXPORT int cuStreamEndCapture(cm_sim_stream *stream, cm_sim_graph **graph)
{
    CM_CU_BEGIN(cuStreamEndCapture, stream, (void **)graph);
    CM_CU_END(cm_sim_capture_end(stream, graph));
}
CM_SIM_ALIAS(cuStreamEndCapture, cuStreamEndCapture_ptsz);

CM_SIM_EXPORT int cuStreamIsCapturing(cm_sim_stream *stream, int *status)
{
    CM_SIM_ENTRY;
    return cm_sim_capture_info(stream, status, NULL, NULL, NULL, NULL, NULL);
}
CM_SIM_ALIAS(cuStreamIsCapturing, cuStreamIsCapturing_ptsz);

CM_SIM_EXPORT int cuStreamGetCaptureInfo_v3(cm_sim_stream *stream, int *status,
                                            unsigned long long *id, cm_sim_graph **graph,
                                            cm_sim_node *const **after, const cm_cuda_edge **edges,
                                            size_t *count)
{
    CM_SIM_ENTRY;
    return cm_sim_capture_info(stream, status, id, graph, after, edges, count);
}
CM_SIM_ALIAS(cuStreamGetCaptureInfo_v3, cuStreamGetCaptureInfo_v3_ptsz);

CM_SIM_EXPORT int cuStreamGetCaptureInfo_v2(cm_sim_stream *stream, int *status,
                                            unsigned long long *id, cm_sim_graph **graph,
                                            cm_sim_node *const **after, size_t *count)
{
    CM_SIM_ENTRY;
    return cm_sim_capture_info(stream, status, id, graph, after, NULL, count);
}
CM_SIM_ALIAS(cuStreamGetCaptureInfo_v2, cuStreamGetCaptureInfo_v2_ptsz);

CM_SIM_EXPORT int cuThreadExchangeStreamCaptureMode(int *mode)
{
    CM_SIM_ENTRY;
    return mode ? cm_sim_capture_exchange_mode(mode) : CM_SIM_INVALID_VALUE;
}

/* --- graphs: those that were captured; nodes are added by the runtime's functions only -------- */

CM_SIM_EXPORT int cuGraphCreate(cm_sim_graph **graph, unsigned flags)
{
    CM_SIM_ENTRY;
    return graph && !flags ? cm_sim_graph_new(graph) : CM_SIM_INVALID_VALUE;
}

CM_SIM_EXPORT int cuGraphDestroy(cm_sim_graph *graph)
{
    CM_CU_BEGIN(cuGraphDestroy, graph);
    CM_CU_END(cm_sim_graph_delete(graph));
}

CM_SIM_EXPORT int cuGraphInstantiateWithFlags(cm_sim_exec **exec, cm_sim_graph *graph,
                                              unsigned long long flags)
{
    CM_CU_BEGIN(cuGraphInstantiateWithFlags, (void **)exec, graph, flags);
    CM_CU_END(exec ? cm_sim_graph_instantiate(graph, flags, exec) : CM_SIM_INVALID_VALUE);
}

CM_SIM_EXPORT int cuGraphExecDestroy(cm_sim_exec *exec)
{
    CM_CU_BEGIN(cuGraphExecDestroy, exec);
    CM_CU_END(cm_sim_exec_delete(exec));
}

CM_SIM_EXPORT int cuGraphLaunch(cm_sim_exec *exec, cm_sim_stream *handle)
{
    CM_CU_BEGIN(cuGraphLaunch, exec, handle);
    cm_sim_stream *stream = cm_sim_stream_find(handle);
    CM_CU_END(stream ? cm_sim_exec_launch(exec, stream, CM_CU_REPORTED ? &cm_call : NULL)
                     : CM_SIM_INVALID_HANDLE);
}
CM_SIM_ALIAS(cuGraphLaunch, cuGraphLaunch_ptsz);
