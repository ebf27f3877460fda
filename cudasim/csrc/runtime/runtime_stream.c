#include "runtime.h"

/* --- streams ---------------------------------------------------------------------------------- */

static int create(cm_sim_stream **stream, unsigned flags, int priority)
{
    int device;
    int result = stream ? cm_sim_device_ready(&device) : CM_CUDA_INVALID_VALUE;
    return result ? result : cm_sim_stream_new(device, flags, priority, stream);
}

CM_SIM_EXPORT int cudaStreamCreate(cm_sim_stream **stream)
{
    CM_RT_BEGIN(cudaStreamCreate, stream);
    CM_RT_END(create(stream, 0, 0));
}

CM_SIM_EXPORT int cudaStreamCreateWithFlags(cm_sim_stream **stream, unsigned flags)
{
    CM_RT_BEGIN(cudaStreamCreateWithFlags, stream, flags);
    CM_RT_END(create(stream, flags, 0));
}

CM_SIM_EXPORT int cudaStreamCreateWithPriority(cm_sim_stream **stream, unsigned flags, int priority)
{
    CM_RT_BEGIN(cudaStreamCreateWithPriority, stream, flags, priority);
    CM_RT_END(create(stream, flags, priority));
}

CM_SIM_EXPORT int cudaStreamDestroy(cm_sim_stream *stream)
{
    CM_RT_BEGIN(cudaStreamDestroy, stream);
    CM_RT_END(cm_sim_stream_delete(stream));
}

/* NULL, with *result set: no such stream, or no device. */
static cm_sim_stream *find(cm_sim_stream *handle, int *result)
{
    int device;
    *result = cm_sim_device_ready(&device);
    cm_sim_stream *stream = *result ? NULL : cm_sim_stream_find(handle);
    if (!stream && !*result)
        *result = CM_CUDA_INVALID_HANDLE;
    return stream;
}

CM_SIM_EXPORT int cudaStreamSynchronize(cm_sim_stream *stream)
{
    CM_RT_BEGIN(cudaStreamSynchronize, stream);
    int result;
    CM_RT_END(find(stream, &result) ? cm_sim_stream_synchronize(stream) : result);
}
CM_SIM_ALIAS(cudaStreamSynchronize, cudaStreamSynchronize_ptsz);

CM_SIM_EXPORT int cudaStreamQuery(cm_sim_stream *stream)
{
    CM_RT_BEGIN(cudaStreamQuery, stream);
    int result;
    CM_RT_END(find(stream, &result) ? cm_sim_stream_query(stream) : result);
}
CM_SIM_ALIAS(cudaStreamQuery, cudaStreamQuery_ptsz);

CM_SIM_EXPORT int cudaStreamWaitEvent(cm_sim_stream *stream, cm_sim_event *event, unsigned flags)
{
    CM_RT_BEGIN(cudaStreamWaitEvent, stream, event, flags);
    int result;
    CM_RT_END(find(stream, &result) ? cm_sim_stream_wait(stream, event, flags) : result);
}
CM_SIM_ALIAS(cudaStreamWaitEvent, cudaStreamWaitEvent_ptsz);

CM_SIM_EXPORT int cudaStreamGetPriority(cm_sim_stream *handle, int *priority)
{
    CM_RT_BEGIN(cudaStreamGetPriority, handle, priority);
    int result;
    cm_sim_stream *stream = find(handle, &result);
    if (stream && priority)
        *priority = cm_sim_stream_priority(stream);
    CM_RT_END(stream && !priority ? CM_CUDA_INVALID_VALUE : result);
}
CM_SIM_ALIAS(cudaStreamGetPriority, cudaStreamGetPriority_ptsz);

CM_SIM_EXPORT int cudaStreamGetFlags(cm_sim_stream *handle, unsigned *flags)
{
    CM_RT_BEGIN(cudaStreamGetFlags, handle, flags);
    int result;
    cm_sim_stream *stream = find(handle, &result);
    if (stream && flags)
        *flags = cm_sim_stream_flags(stream);
    CM_RT_END(stream && !flags ? CM_CUDA_INVALID_VALUE : result);
}
CM_SIM_ALIAS(cudaStreamGetFlags, cudaStreamGetFlags_ptsz);

CM_SIM_EXPORT int cudaStreamGetDevice(cm_sim_stream *handle, int *device)
{
    CM_RT_BEGIN(cudaStreamGetDevice, handle, device);
    int result;
    cm_sim_stream *stream = find(handle, &result);
    if (stream && device)
        *device = cm_sim_stream_device(stream);
    CM_RT_END(stream && !device ? CM_CUDA_INVALID_VALUE : result);
}
CM_SIM_ALIAS(cudaStreamGetDevice, cudaStreamGetDevice_ptsz);

/* --- functions of the host -------------------------------------------------------------------- */

CM_SIM_EXPORT int cudaLaunchHostFunc(cm_sim_stream *stream, cm_cuda_host_function function,
                                     void *data)
{
    CM_RT_BEGIN(cudaLaunchHostFunc, stream, function, data);
    int result;
    CM_RT_END(find(stream, &result) ? cm_sim_stream_host(stream, function, data) : result);
}
CM_SIM_ALIAS(cudaLaunchHostFunc, cudaLaunchHostFunc_ptsz);

CM_SIM_EXPORT int cudaStreamAddCallback(cm_sim_stream *stream, cm_cuda_stream_callback callback,
                                        void *data, unsigned flags)
{
    CM_RT_BEGIN(cudaStreamAddCallback, stream, callback, data, flags);
    bool capturing;
    int result = callback && !flags ? CM_CUDA_OK : CM_CUDA_INVALID_VALUE;
    if (!result && find(stream, &result) && cm_sim_stream_work(stream, &capturing, &result)) {
        if (capturing) /* it cannot be part of a graph */
            result = CM_CUDA_CAPTURE_UNSUPPORTED;
        else
            callback(stream, CM_CUDA_OK, data);
    }
    CM_RT_END(result);
}
CM_SIM_ALIAS(cudaStreamAddCallback, cudaStreamAddCallback_ptsz);

/* --- events ----------------------------------------------------------------------------------- */

static int create_event(cm_sim_event **event, unsigned flags)
{
    int device;
    int result = event ? cm_sim_device_ready(&device) : CM_CUDA_INVALID_VALUE;
    return result ? result : cm_sim_event_new(device, flags, event);
}

CM_SIM_EXPORT int cudaEventCreate(cm_sim_event **event)
{
    CM_RT_BEGIN(cudaEventCreate, event);
    CM_RT_END(create_event(event, 0));
}

CM_SIM_EXPORT int cudaEventCreateWithFlags(cm_sim_event **event, unsigned flags)
{
    CM_RT_BEGIN(cudaEventCreateWithFlags, event, flags);
    CM_RT_END(create_event(event, flags));
}

CM_SIM_EXPORT int cudaEventDestroy(cm_sim_event *event)
{
    CM_RT_BEGIN(cudaEventDestroy, event);
    CM_RT_END(cm_sim_event_delete(event));
}

CM_SIM_EXPORT int cudaEventRecord(cm_sim_event *event, cm_sim_stream *stream)
{
    CM_RT_BEGIN(cudaEventRecord, event, stream);
    int result;
    CM_RT_END(find(stream, &result) ? cm_sim_event_record(event, stream, 0) : result);
}
CM_SIM_ALIAS(cudaEventRecord, cudaEventRecord_ptsz);

CM_SIM_EXPORT int cudaEventRecordWithFlags(cm_sim_event *event, cm_sim_stream *stream,
                                           unsigned flags)
{
    CM_RT_BEGIN(cudaEventRecordWithFlags, event, stream, flags);
    int result;
    CM_RT_END(find(stream, &result) ? cm_sim_event_record(event, stream, flags) : result);
}
CM_SIM_ALIAS(cudaEventRecordWithFlags, cudaEventRecordWithFlags_ptsz);

CM_SIM_EXPORT int cudaEventQuery(cm_sim_event *event)
{
    CM_RT_BEGIN(cudaEventQuery, event);
    CM_RT_END(cm_sim_event_query(event));
}

CM_SIM_EXPORT int cudaEventSynchronize(cm_sim_event *event)
{
    CM_RT_BEGIN(cudaEventSynchronize, event);
    CM_RT_END(cm_sim_event_synchronize(event));
}

CM_SIM_EXPORT int cudaEventElapsedTime(float *milliseconds, cm_sim_event *start, cm_sim_event *end)
{
    CM_RT_BEGIN(cudaEventElapsedTime, milliseconds, start, end);
    CM_RT_END(cm_sim_event_elapsed(start, end, milliseconds));
}
CM_SIM_ALIAS(cudaEventElapsedTime, cudaEventElapsedTime_v2); /* of 12.8 */

/* --- capture ---------------------------------------------------------------------------------- */

CM_SIM_EXPORT int cudaStreamBeginCapture(cm_sim_stream *stream, int mode)
{
    CM_RT_BEGIN(cudaStreamBeginCapture, stream, mode);
    int result;
    CM_RT_END(find(stream, &result) ? cm_sim_capture_begin(stream, NULL, NULL, 0, mode) : result);
}
CM_SIM_ALIAS(cudaStreamBeginCapture, cudaStreamBeginCapture_ptsz);

CM_SIM_EXPORT int cudaStreamBeginCaptureToGraph(cm_sim_stream *stream, cm_sim_graph *graph,
                                                cm_sim_node *const *after,
                                                const cm_cuda_edge *edges, size_t count, int mode)
{
    CM_RT_BEGIN(cudaStreamBeginCaptureToGraph, stream, graph, after, edges, count, mode);
    int result;
    if (!graph)
        CM_RT_END(CM_CUDA_INVALID_VALUE);
    CM_RT_END(find(stream, &result) ? cm_sim_capture_begin(stream, graph, after, count, mode)
                                    : result);
}
CM_SIM_ALIAS(cudaStreamBeginCaptureToGraph, cudaStreamBeginCaptureToGraph_ptsz);

CM_SIM_EXPORT int cudaStreamEndCapture(cm_sim_stream *stream, cm_sim_graph **graph)
{
    CM_RT_BEGIN(cudaStreamEndCapture, stream, graph);
    if (!graph)
        CM_RT_END(CM_CUDA_INVALID_VALUE);
    CM_RT_END(cm_sim_capture_end(stream, graph));
}
CM_SIM_ALIAS(cudaStreamEndCapture, cudaStreamEndCapture_ptsz);

CM_SIM_EXPORT int cudaStreamIsCapturing(cm_sim_stream *stream, int *status)
{
    CM_RT_BEGIN(cudaStreamIsCapturing, stream, status);
    if (!status)
        CM_RT_END(CM_CUDA_INVALID_VALUE);
    CM_RT_END(cm_sim_capture_info(stream, status, NULL, NULL, NULL, NULL, NULL));
}
CM_SIM_ALIAS(cudaStreamIsCapturing, cudaStreamIsCapturing_ptsz);

CM_SIM_EXPORT int cudaStreamGetCaptureInfo(cm_sim_stream *stream, int *status,
                                           unsigned long long *id, cm_sim_graph **graph,
                                           cm_sim_node *const **after, const cm_cuda_edge **edges,
                                           size_t *count)
{
    CM_RT_BEGIN(cudaStreamGetCaptureInfo, stream, status, id, graph, after, edges, count);
    if (!status)
        CM_RT_END(CM_CUDA_INVALID_VALUE);
    CM_RT_END(cm_sim_capture_info(stream, status, id, graph, after, edges, count));
}
CM_SIM_ALIAS(cudaStreamGetCaptureInfo, cudaStreamGetCaptureInfo_ptsz);
CM_SIM_ALIAS(cudaStreamGetCaptureInfo, cudaStreamGetCaptureInfo_v3); /* as CUDA 12 calls it */
CM_SIM_ALIAS(cudaStreamGetCaptureInfo, cudaStreamGetCaptureInfo_v3_ptsz);

/* CUDA 12's, which knows no data of edges. */
CM_SIM_EXPORT int cudaStreamGetCaptureInfo_v2(cm_sim_stream *stream, int *status,
                                              unsigned long long *id, cm_sim_graph **graph,
                                              cm_sim_node *const **after, size_t *count)
{
    CM_RT_BEGIN(cudaStreamGetCaptureInfo_v2, stream, status, id, graph, after, count);
    if (!status)
        CM_RT_END(CM_CUDA_INVALID_VALUE);
    CM_RT_END(cm_sim_capture_info(stream, status, id, graph, after, NULL, count));
}
CM_SIM_ALIAS(cudaStreamGetCaptureInfo_v2, cudaStreamGetCaptureInfo_v2_ptsz);

CM_SIM_EXPORT int cudaStreamUpdateCaptureDependencies(cm_sim_stream *stream, cm_sim_node **after,
                                                      const cm_cuda_edge *edges, size_t count,
                                                      unsigned flags)
{
    CM_RT_BEGIN(cudaStreamUpdateCaptureDependencies, stream, after, edges, count, flags);
    if (cm_sim_cuda_major() == 12) { /* which has no edges here */
        flags = (unsigned)count;
        count = (size_t)edges;
    }
    CM_RT_END(cm_sim_capture_set_after(stream, after, count, flags));
}
CM_SIM_ALIAS(cudaStreamUpdateCaptureDependencies, cudaStreamUpdateCaptureDependencies_ptsz);

CM_SIM_EXPORT int cudaThreadExchangeStreamCaptureMode(int *mode)
{
    CM_RT_BEGIN(cudaThreadExchangeStreamCaptureMode, mode);
    CM_RT_END(cm_sim_capture_exchange_mode(mode));
}
