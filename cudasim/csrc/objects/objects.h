/* Objects that the runtime and the driver hand out alike, and what a thread has made current.
 *
 * A CUstream is a cudaStream_t, a CUfunction is a cudaFunction_t: a handle that one surface made
 * must work on the other. So both are thin over what is declared here. Handles live in tables whose
 * memory is never given back (table.h): one that was destroyed is recognized, not followed.
 * Functions return a CUDA error number. */
#ifndef CM_SIM_OBJECTS_H
#define CM_SIM_OBJECTS_H

#include "cuda_types.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* --- objects_device.c (identity and attributes: devices.h) ------------------------------------ */

/* As every runtime call that needs a context does: the current device, its context created.
 * CM_CUDA_NO_DEVICE where there is none. */
int cm_sim_device_ready(int *device);

/* Makes a device's context as the runtime does, which then holds it. */
int cm_sim_device_hold(int device);
/* Whether the runtime has used the device's primary context since that was made: it holds it, too.
 */
bool cm_sim_device_held(int device);
/* A context of it ends: nothing is known to be ready. `last`: nor is there anything left of what it
 * died of. */
void cm_sim_device_ends(int device, bool last);
/* The last context of a device ends, and with it the memory of pools and graphs. */
void cm_sim_pools_end(int device);
void cm_sim_graphs_end(int device);

/* A fault on the device: what needs its context fails with this error from now on. */
void cm_sim_device_break(int device, int error);

/* Peer access, from `device` to the memory of `peer`. */
bool cm_sim_peer_possible(int device, int peer);
int cm_sim_peer_enable(int device, int peer);
int cm_sim_peer_disable(int device, int peer);

/* Names and texts of errors; NULL for a number that does not exist. */
const char *cm_sim_error_name(int error);        /* "cudaErrorInvalidValue" */
const char *cm_sim_error_driver_name(int error); /* "CUDA_ERROR_INVALID_VALUE" */
const char *cm_sim_error_text(int error);

/* --- objects_stream.c ------------------------------------------------------------------------- */

/* Takes any stream a program may pass (also 0, 1, 2: the current device's default stream).
 * NULL: no such stream. */
cm_sim_stream *cm_sim_stream_find(cm_sim_stream *handle);
int cm_sim_stream_new(int device, unsigned flags, int priority, cm_sim_stream **handle);
int cm_sim_stream_delete(cm_sim_stream *handle);
int cm_sim_stream_device(const cm_sim_stream *stream); /* of a found one, as those below */
unsigned cm_sim_stream_flags(const cm_sim_stream *stream);
int cm_sim_stream_priority(const cm_sim_stream *stream);
uint64_t cm_sim_stream_id(const cm_sim_stream *stream); /* unique in this process, never 0 */
enum { CM_SIM_PRIORITY_LEAST = 0, CM_SIM_PRIORITY_GREATEST = -5 };

/* What has been launched there is done when these return. Not permitted while capturing. */
int cm_sim_stream_synchronize(cm_sim_stream *handle);
int cm_sim_stream_query(cm_sim_stream *handle);
int cm_sim_device_synchronize(int device);
int cm_sim_stream_wait(cm_sim_stream *handle, cm_sim_event *event, unsigned flags);

/* Work arrives on a stream: the one step that every launch takes. Returns the stream, NULL with
 * *result set where the handle is none or its capture is invalid. *capturing: it was not done but
 * is to be added to the stream's graph (cm_sim_capture_*). */
cm_sim_stream *cm_sim_stream_work(cm_sim_stream *handle, bool *capturing, int *result);
/* A kernel was launched on it: counts it, for events that lag behind. */
void cm_sim_stream_launched(cm_sim_stream *stream);
uint64_t cm_sim_launches(int device);

/* cudaLaunchHostFunc: runs at once (all work before it is done). */
int cm_sim_stream_host(cm_sim_stream *handle, cm_cuda_host_function function, void *data);

/* --- objects_event.c -------------------------------------------------------------------------- */

int cm_sim_event_new(int device, unsigned flags, cm_sim_event **event);
int cm_sim_event_delete(cm_sim_event *event);
int cm_sim_event_record(cm_sim_event *event, cm_sim_stream *stream, unsigned flags);
int cm_sim_event_query(cm_sim_event *event);
int cm_sim_event_synchronize(cm_sim_event *event);
int cm_sim_event_elapsed(cm_sim_event *start, cm_sim_event *end, float *milliseconds);

/* --- objects_capture.c: streams that record instead of doing ---------------------------------- */

int cm_sim_capture_begin(cm_sim_stream *handle, cm_sim_graph *into, cm_sim_node *const *after,
                         size_t count, int mode);
int cm_sim_capture_end(cm_sim_stream *handle, cm_sim_graph **graph);
/* NULL outputs are left alone. */
int cm_sim_capture_info(cm_sim_stream *handle, int *status, unsigned long long *id,
                        cm_sim_graph **graph, cm_sim_node *const **after,
                        const cm_cuda_edge **edges, size_t *count);
int cm_sim_capture_set_after(cm_sim_stream *handle, cm_sim_node *const *after, size_t count,
                             unsigned flags);
int cm_sim_capture_exchange_mode(int *mode);
/* Stands before calls that CUDA calls potentially unsafe (cudaMalloc, cudaEventQuery, ...): not
 * permitted in this thread while a capture is under way, which it also invalidates. */
int cm_sim_capture_permits(void);

/* Adds a node to the graph of a capturing stream, behind what the stream did last. */
int cm_sim_capture_kernel(cm_sim_stream *stream, const cm_cuda_kernel_node *node);
int cm_sim_capture_copy(cm_sim_stream *stream, const cm_cuda_copy3d *copy);
int cm_sim_capture_set(cm_sim_stream *stream, const cm_cuda_set_node *set);
int cm_sim_capture_host(cm_sim_stream *stream, cm_cuda_host_function function, void *data);
int cm_sim_capture_alloc(cm_sim_stream *stream, size_t bytes, void **address);
int cm_sim_capture_free(cm_sim_stream *stream, void *address);

/* --- objects_graph.c, objects_graph_exec.c ---------------------------------------------------- */

int cm_sim_graph_new(cm_sim_graph **graph);
int cm_sim_graph_delete(cm_sim_graph *graph);
int cm_sim_graph_add(cm_sim_graph *graph, cm_sim_node *const *after, size_t count,
                     cm_cuda_node_params *params, cm_sim_node **node);
int cm_sim_graph_instantiate(cm_sim_graph *graph, unsigned long long flags, cm_sim_exec **exec);
int cm_sim_exec_delete(cm_sim_exec *exec);
/* Launches its kernels, makes its copies, calls its host functions. call: where CUPTI listens to
 * its kernels, else NULL. */
struct cm_sim_call;
int cm_sim_exec_launch(cm_sim_exec *exec, cm_sim_stream *stream, const struct cm_sim_call *call);

/* --- objects_copy.c: moving bytes, after the checks that a real device makes ------------------ */

/* Whether it is no device memory, or device memory that is there from end to end. */
bool cm_sim_range_valid(const void *address, size_t bytes);
/* A copy between pointers: what kind it really is (CM_CUDA_COPY_*), or an error: memory that is not
 * there, or a kind that does not fit the pointers. */
int cm_sim_copy_kind(void *to, const void *from, size_t bytes, int asked, int *kind);
int cm_sim_copy3d(const cm_cuda_copy3d *copy); /* without arrays */
int cm_sim_set2d(const cm_cuda_set_node *set);

/* --- objects_function.c: kernels -------------------------------------------------------------- */

/* What a launch names: the host stub that __cudaRegisterFunction named, or a function's handle.
 * NULL: unknown. Only where the name is needed: a launch does not look it up. */
const char *cm_sim_function_name(const void *function);
/* The handle of a stub, or the function itself; NULL: neither. */
cm_sim_function *cm_sim_function_find(const void *function);
/* One that a module or library gave by name (copied). */
cm_sim_function *cm_sim_function_new(const char *name);
void cm_sim_function_delete(cm_sim_function *function);
/* Attributes as cudaFuncSetAttribute and cuFuncSetAttribute number them. */
int cm_sim_function_set(cm_sim_function *function, int attribute, int value);
int cm_sim_function_attributes(const cm_sim_function *function, int device,
                               cm_cuda_func_attributes *attributes);

/* --- objects_pool.c: memory in stream order --------------------------------------------------- */

cm_sim_pool *cm_sim_pool_default(int device);
int cm_sim_pool_new(int device, size_t maximum, cm_sim_pool **pool);
int cm_sim_pool_delete(cm_sim_pool *pool);
int cm_sim_pool_device(const cm_sim_pool *pool); /* -1: no pool */
/* The pool of the memory at this address; NULL: no pool's. */
cm_sim_pool *cm_sim_pool_of(const void *address);
int cm_sim_pool_get(cm_sim_pool *pool, int attribute, void *value);
int cm_sim_pool_set(cm_sim_pool *pool, int attribute, const void *value);
/* The host has waited for the device: pools give back what they keep above their thresholds. */
void cm_sim_pools_settle(int device);
int cm_sim_pool_trim(cm_sim_pool *pool, size_t keep);
/* pool NULL: the current one of the stream's device. */
int cm_sim_pool_alloc(cm_sim_pool *pool, cm_sim_stream *stream, size_t bytes, void **address);
int cm_sim_pool_free(cm_sim_stream *stream, void *address);
/* Any device memory: of a pool back to it, else to the device. block as in cm_sim_free. */
struct cm_sim_block;
int cm_sim_free_any(void *address, struct cm_sim_block *block);

#endif
