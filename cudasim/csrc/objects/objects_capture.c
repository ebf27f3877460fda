/* Streams that record into a graph instead of doing.
 *
 * CUDA's rules, because programs stand on them: a stream that waits for an event of a capturing one
 * joins its capture; all that joined must be joined back before the end; to wait on the host for
 * what is only recorded, or to call what might wait (cudaMalloc, cudaEventQuery), is an error that
 * spoils the capture, by the mode of the thread that asks. */
#include "objects_graph.h"
#include "../core/sim.h"

#include <pthread.h>

static cm_sim_table captures = CM_SIM_TABLE(cm_sim_capture);
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static cm_sim_capture *running; /* under the lock */
static atomic_int running_count, running_global, running_blocking[CM_SIM_DEVICES];
static atomic_ullong ids;

static __thread struct {
    int mode;        /* cudaThreadExchangeStreamCaptureMode; 0: global */
    int not_relaxed; /* captures that this thread began and has not ended */
} mine;

void cm_sim_captures_lock(void)
{
    pthread_mutex_lock(&lock);
}

void cm_sim_captures_unlock(void)
{
    pthread_mutex_unlock(&lock);
}

bool cm_sim_capture_unsafe_legacy(int device)
{
    return __builtin_expect(
        atomic_load_explicit(&running_blocking[device], memory_order_relaxed) != 0, 0);
}

void cm_sim_capture_invalidate(cm_sim_capture *capture)
{
    atomic_store(&capture->status, CM_CUDA_CAPTURE_IS_INVALIDATED);
}

int cm_sim_capture_exchange_mode(int *mode)
{
    if (!mode || *mode < CM_CUDA_CAPTURE_GLOBAL || *mode > CM_CUDA_CAPTURE_RELAXED)
        return CM_CUDA_INVALID_VALUE;
    int before = mine.mode;
    mine.mode = *mode;
    *mode = before;
    return CM_CUDA_OK;
}

int cm_sim_capture_permits(void)
{
    if (__builtin_expect(!atomic_load_explicit(&running_count, memory_order_relaxed), 1))
        return CM_CUDA_OK;
    bool others = mine.mode == CM_CUDA_CAPTURE_GLOBAL && atomic_load(&running_global) > 0;
    if (mine.mode == CM_CUDA_CAPTURE_RELAXED || (!mine.not_relaxed && !others))
        return CM_CUDA_OK;
    pthread_mutex_lock(&lock);
    for (cm_sim_capture *capture = running; capture; capture = capture->next)
        if (capture->mode != CM_CUDA_CAPTURE_RELAXED &&
            (capture->thread == &mine || (others && capture->mode == CM_CUDA_CAPTURE_GLOBAL)))
            cm_sim_capture_invalidate(capture);
    pthread_mutex_unlock(&lock);
    return CM_CUDA_CAPTURE_UNSUPPORTED;
}

/* Under the lock. */
static void enter(cm_sim_capture *capture, cm_sim_stream *stream)
{
    stream->next_captured = capture->streams;
    capture->streams = stream;
    atomic_store_explicit(&stream->capture, capture, memory_order_release);
}

static void count(const cm_sim_capture *capture, int step)
{
    atomic_fetch_add(&running_count, step);
    if (capture->mode == CM_CUDA_CAPTURE_GLOBAL)
        atomic_fetch_add(&running_global, step);
    if (capture->blocking)
        atomic_fetch_add(&running_blocking[capture->device], step);
}

int cm_sim_capture_begin(cm_sim_stream *handle, cm_sim_graph *into, cm_sim_node *const *after,
                         size_t behind, int mode)
{
    cm_sim_stream *stream = cm_sim_stream_find(handle);
    if (!stream)
        return CM_CUDA_INVALID_HANDLE;
    if (mode < CM_CUDA_CAPTURE_GLOBAL || mode > CM_CUDA_CAPTURE_RELAXED || (behind && !after))
        return CM_CUDA_INVALID_VALUE;
    if (stream->legacy)
        return CM_CUDA_CAPTURE_UNSUPPORTED;
    if (atomic_load(&stream->capture))
        return CM_CUDA_ILLEGAL_STATE;
    for (size_t i = 0; i < behind; i++)
        if (!into || !cm_sim_node_in(after[i], into))
            return CM_CUDA_INVALID_VALUE;
    cm_sim_capture *capture = cm_sim_table_take(&captures);
    if (!capture)
        return CM_CUDA_OUT_OF_MEMORY;
    int result = CM_CUDA_OK;
    capture->given = into != NULL;
    capture->graph = into;
    if (!into)
        result = cm_sim_graph_new(&capture->graph);
    if (!result && !cm_sim_nodes_set(&stream->after, after, behind)) {
        result = CM_CUDA_OUT_OF_MEMORY;
        if (!into)
            (void)cm_sim_graph_delete(capture->graph);
    }
    if (result) {
        cm_sim_table_drop(&captures, capture);
        return result;
    }
    capture->id = atomic_fetch_add(&ids, 1) + 1;
    capture->mode = mode;
    capture->thread = &mine;
    capture->device = stream->device;
    capture->blocking = !(stream->flags & CM_CUDA_STREAM_NON_BLOCKING);
    capture->origin = stream;
    atomic_store(&capture->status, CM_CUDA_CAPTURE_ACTIVE);
    mine.not_relaxed += mode != CM_CUDA_CAPTURE_RELAXED;
    pthread_mutex_lock(&lock);
    enter(capture, stream);
    capture->next = running;
    running = capture;
    count(capture, 1);
    pthread_mutex_unlock(&lock);
    return CM_CUDA_OK;
}

/* Under the lock: whether the origin comes behind all that joined. */
static bool joined(const cm_sim_capture *capture)
{
    for (const cm_sim_stream *stream = capture->streams; stream; stream = stream->next_captured)
        if (stream != capture->origin &&
            !cm_sim_graph_reaches(capture->graph, &capture->origin->after, &stream->after))
            return false;
    return true;
}

static void finish(cm_sim_capture *capture)
{
    cm_sim_stream *next;
    for (cm_sim_stream *stream = capture->streams; stream; stream = next) {
        next = stream->next_captured;
        stream->next_captured = NULL;
        cm_sim_nodes_clear(&stream->after);
        atomic_store_explicit(&stream->capture, NULL, memory_order_release);
    }
    cm_sim_capture **at = &running;
    while (*at != capture)
        at = &(*at)->next;
    *at = capture->next;
    count(capture, -1);
}

/* The libraries' calls launch nothing here. So a graph without nodes need not be an empty one, as
 * which PyTorch would warn of it: a node that does nothing stands for what they would have done. */
static int stand_in(cm_sim_graph *graph)
{
    size_t nodes = 0;
    cm_cuda_node_params params = {.type = CM_CUDA_NODE_EMPTY};
    int result = cm_sim_graph_nodes(graph, NULL, &nodes);
    return result || nodes ? result : cm_sim_graph_add(graph, NULL, 0, &params, NULL);
}

int cm_sim_capture_end(cm_sim_stream *handle, cm_sim_graph **graph)
{
    cm_sim_stream *stream = cm_sim_stream_find(handle);
    if (!stream)
        return CM_CUDA_INVALID_HANDLE;
    cm_sim_capture *capture = atomic_load(&stream->capture);
    if (!capture)
        return CM_CUDA_ILLEGAL_STATE;
    if (capture->origin != stream) {
        cm_sim_capture_invalidate(capture);
        return CM_CUDA_CAPTURE_UNMATCHED;
    }
    if (capture->mode != CM_CUDA_CAPTURE_RELAXED && capture->thread != &mine)
        return CM_CUDA_CAPTURE_WRONG_THREAD;
    int result = CM_CUDA_OK;
    pthread_mutex_lock(&lock);
    if (atomic_load(&capture->status) != CM_CUDA_CAPTURE_ACTIVE)
        result = CM_CUDA_CAPTURE_INVALIDATED;
    else if (!joined(capture))
        result = CM_CUDA_CAPTURE_UNJOINED;
    else
        result = stand_in(capture->graph);
    finish(capture);
    pthread_mutex_unlock(&lock);
    mine.not_relaxed -= capture->mode != CM_CUDA_CAPTURE_RELAXED;
    if (result && !capture->given)
        (void)cm_sim_graph_delete(capture->graph);
    if (graph)
        *graph = result ? NULL : capture->graph;
    cm_sim_table_drop(&captures, capture);
    return result;
}

void cm_sim_capture_forget(cm_sim_stream *stream)
{
    cm_sim_graph *orphan = NULL;
    pthread_mutex_lock(&lock);
    cm_sim_capture *capture = atomic_load(&stream->capture);
    if (capture && capture->origin == stream) { /* no stream is left that could end it */
        mine.not_relaxed -= capture->mode != CM_CUDA_CAPTURE_RELAXED && capture->thread == &mine;
        orphan = capture->given ? NULL : capture->graph;
        finish(capture);
        cm_sim_table_drop(&captures, capture);
    } else if (capture) {
        cm_sim_capture_invalidate(capture);
        cm_sim_stream **at = &capture->streams;
        while (*at != stream)
            at = &(*at)->next_captured;
        *at = stream->next_captured;
        atomic_store(&stream->capture, NULL);
    }
    pthread_mutex_unlock(&lock);
    if (orphan)
        (void)cm_sim_graph_delete(orphan);
}

/* Under the lock; NULL: it is over. */
static cm_sim_capture *find(uint64_t id)
{
    cm_sim_capture *capture = running;
    while (capture && capture->id != id)
        capture = capture->next;
    return capture;
}

int cm_sim_capture_join(cm_sim_stream *stream, cm_sim_event *event)
{
    int result = CM_CUDA_OK;
    pthread_mutex_lock(&lock);
    cm_sim_capture *own = atomic_load(&stream->capture);
    uint64_t id = atomic_load(&event->capture);
    cm_sim_capture *other = id ? find(id) : NULL;
    if (!id) {
        if (atomic_load(&event->recorded)) { /* what happened outside cannot be waited for inside */
            cm_sim_capture_invalidate(own);
            result = CM_CUDA_CAPTURE_ISOLATION;
        }
    } else if (!other) {
        result = CM_CUDA_CAPTURED_EVENT;
    } else if (atomic_load(&other->status) != CM_CUDA_CAPTURE_ACTIVE) {
        result = CM_CUDA_CAPTURE_INVALIDATED;
    } else if (own && own != other) {
        cm_sim_capture_invalidate(own);
        cm_sim_capture_invalidate(other);
        result = CM_CUDA_CAPTURE_MERGE;
    } else if (stream->legacy) {
        cm_sim_capture_invalidate(other);
        result = CM_CUDA_CAPTURE_IMPLICIT;
    } else if (!cm_sim_nodes_add(&stream->after, event->after.list, event->after.count)) {
        result = CM_CUDA_OUT_OF_MEMORY;
    } else if (!own) {
        enter(other, stream);
    }
    pthread_mutex_unlock(&lock);
    return result;
}

int cm_sim_capture_info(cm_sim_stream *handle, int *status, unsigned long long *id,
                        cm_sim_graph **graph, cm_sim_node *const **after,
                        const cm_cuda_edge **edges, size_t *behind)
{
    cm_sim_stream *stream = cm_sim_stream_find(handle);
    if (!stream)
        return CM_CUDA_INVALID_HANDLE;
    if (stream->legacy && cm_sim_capture_unsafe_legacy(stream->device))
        return CM_CUDA_CAPTURE_IMPLICIT;
    const cm_sim_capture *capture = atomic_load_explicit(&stream->capture, memory_order_acquire);
    int now = capture ? atomic_load(&capture->status) : CM_CUDA_CAPTURE_NONE;
    if (status)
        *status = now;
    if (now != CM_CUDA_CAPTURE_ACTIVE)
        return CM_CUDA_OK; /* the other outputs have no meaning */
    if (id)
        *id = capture->id;
    if (graph)
        *graph = capture->graph;
    if (after)
        *after = stream->after.list;
    if (edges)
        *edges = NULL;
    if (behind)
        *behind = stream->after.count;
    return CM_CUDA_OK;
}

int cm_sim_capture_set_after(cm_sim_stream *handle, cm_sim_node *const *after, size_t behind,
                             unsigned flags)
{
    cm_sim_stream *stream = cm_sim_stream_find(handle);
    if (!stream)
        return CM_CUDA_INVALID_HANDLE;
    cm_sim_capture *capture = atomic_load(&stream->capture);
    if (!capture)
        return CM_CUDA_ILLEGAL_STATE;
    if (atomic_load(&capture->status) != CM_CUDA_CAPTURE_ACTIVE)
        return CM_CUDA_CAPTURE_INVALIDATED;
    if (flags > 1 || (behind && !after))
        return CM_CUDA_INVALID_VALUE;
    for (size_t i = 0; i < behind; i++)
        if (!cm_sim_node_in(after[i], capture->graph))
            return CM_CUDA_INVALID_VALUE;
    bool done = flags ? cm_sim_nodes_set(&stream->after, after, behind)
                      : cm_sim_nodes_add(&stream->after, after, behind);
    return done ? CM_CUDA_OK : CM_CUDA_OUT_OF_MEMORY;
}

/* --- what is recorded ------------------------------------------------------------------------- */

int cm_sim_capture_add(cm_sim_stream *stream, cm_cuda_node_params *params, cm_sim_node **node)
{
    cm_sim_capture *capture = atomic_load(&stream->capture);
    if (!capture)
        return CM_CUDA_ILLEGAL_STATE;
    cm_sim_node *made;
    /* Under the lock: several threads may feed streams of one capture. */
    pthread_mutex_lock(&lock);
    int result =
        cm_sim_graph_add(capture->graph, stream->after.list, stream->after.count, params, &made);
    if (!result && !cm_sim_nodes_set(&stream->after, &made, 1))
        result = CM_CUDA_OUT_OF_MEMORY;
    pthread_mutex_unlock(&lock);
    if (result)
        cm_sim_capture_invalidate(capture);
    else if (node)
        *node = made;
    return result;
}

int cm_sim_capture_kernel(cm_sim_stream *stream, const cm_cuda_kernel_node *node)
{
    cm_cuda_node_params params = {.type = CM_CUDA_NODE_KERNEL, .kernel = *node};
    return cm_sim_capture_add(stream, &params, NULL);
}

int cm_sim_capture_copy(cm_sim_stream *stream, const cm_cuda_copy3d *copy)
{
    cm_cuda_node_params params = {.type = CM_CUDA_NODE_COPY, .memcpy = {.copyParams = *copy}};
    return cm_sim_capture_add(stream, &params, NULL);
}

int cm_sim_capture_set(cm_sim_stream *stream, const cm_cuda_set_node *set)
{
    cm_cuda_node_params params = {.type = CM_CUDA_NODE_SET, .memset = *set};
    return cm_sim_capture_add(stream, &params, NULL);
}

int cm_sim_capture_host(cm_sim_stream *stream, cm_cuda_host_function function, void *data)
{
    cm_cuda_node_params params = {.type = CM_CUDA_NODE_HOST, .host = {function, data}};
    return cm_sim_capture_add(stream, &params, NULL);
}

int cm_sim_capture_alloc(cm_sim_stream *stream, size_t bytes, void **address)
{
    cm_cuda_node_params params = {
        .type = CM_CUDA_NODE_ALLOC,
        .alloc = {.poolProps.location = {CM_CUDA_LOCATION_DEVICE, stream->device},
                  .bytesize = bytes},
    };
    int result = cm_sim_capture_add(stream, &params, NULL);
    if (!result)
        *address = params.alloc.dptr;
    return result;
}

int cm_sim_capture_free(cm_sim_stream *stream, void *address)
{
    cm_cuda_node_params params = {.type = CM_CUDA_NODE_FREE, .free = {address}};
    return cm_sim_capture_add(stream, &params, NULL);
}
