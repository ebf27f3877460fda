/* What streams, events, captures and graphs know of each other. */
#ifndef CM_SIM_OBJECTS_STREAM_H
#define CM_SIM_OBJECTS_STREAM_H

#include "objects.h"
#include "table.h"

/* Nodes that the next one comes behind. */
typedef struct cm_sim_nodes {
    cm_sim_node **list;
    size_t count, room;
} cm_sim_nodes;

/* objects_graph_order.c */
bool cm_sim_nodes_set(cm_sim_nodes *list, cm_sim_node *const *from, size_t count);
bool cm_sim_nodes_add(cm_sim_nodes *list, cm_sim_node *const *from, size_t count); /* each once */
void cm_sim_nodes_clear(cm_sim_nodes *list);

/* A capture: the streams that record into one graph. */
typedef struct __attribute__((aligned(128))) cm_sim_capture {
    cm_sim_slot slot;
    uint64_t id;
    int mode;
    atomic_int status; /* CM_CUDA_CAPTURE_* */
    cm_sim_graph *graph;
    bool given; /* the graph was there before and stays if the capture fails */
    bool blocking;
    int device;
    const void *thread;
    cm_sim_stream *origin;
    cm_sim_stream *streams; /* by next_captured */
    struct cm_sim_capture *next;
} cm_sim_capture;

/* Polls that found work unfinished. A loop that only polls must end: every fourth poll without a
 * launch since the one before counts as a launch. Polls between launches, as PyTorch's allocators
 * make them, change nothing. */
typedef struct cm_sim_polls {
    atomic_ullong at; /* launches of the device at the last poll */
    atomic_uint idle;
} cm_sim_polls;

/* What unsuccessful polls count for, in launches. */
static inline uint64_t cm_sim_polls_worth(cm_sim_polls *polls)
{
    return atomic_load(&polls->idle) / 4;
}

struct __attribute__((aligned(128))) cm_sim_stream {
    cm_sim_slot slot;
    int device;
    unsigned flags;
    int priority;
    bool legacy;
    uint64_t id;
    /* In launches of the device: at the last one on this stream; all up to here is done. */
    atomic_ullong last, done;
    atomic_ullong asked_for; /* the `last` that the poll waits for */
    cm_sim_polls polls;
    _Atomic(cm_sim_capture *) capture;
    cm_sim_stream *next_captured;
    cm_sim_nodes after; /* while capturing */
};

struct __attribute__((aligned(128))) cm_sim_event {
    cm_sim_slot slot;
    int device;
    unsigned flags;
    /* One thread records it while another asks. */
    atomic_bool recorded, done;
    _Atomic(cm_sim_stream *) stream;
    atomic_ullong stream_id;
    atomic_ullong at;      /* launches of the device when it was recorded */
    atomic_ullong capture; /* the capture it was recorded in, 0: none */
    cm_sim_polls polls;
    cm_sim_nodes after; /* under the lock of captures */
};

bool cm_sim_event_live(const cm_sim_event *event);
/* All work of the device, or of a stream, up to `at` launches is done now. */
void cm_sim_stream_done(cm_sim_stream *stream, uint64_t at);
void cm_sim_polled_in_vain(cm_sim_polls *polls, int device);
void cm_sim_polls_reset(cm_sim_polls *polls);
uint64_t cm_sim_device_done(int device);

/* objects_capture.c */
int cm_sim_capture_join(cm_sim_stream *stream, cm_sim_event *event);
bool cm_sim_capture_unsafe_legacy(int device); /* a blocking stream of the device is capturing */
void cm_sim_capture_invalidate(cm_sim_capture *capture);
int cm_sim_capture_add(cm_sim_stream *stream, cm_cuda_node_params *params, cm_sim_node **node);
void cm_sim_capture_forget(cm_sim_stream *stream); /* it is being destroyed */

/* objects_graph_node.c */
bool cm_sim_node_in(const cm_sim_node *node, const cm_sim_graph *graph);
/* objects_graph_order.c */
/* Whether all of `nodes` are among `from` or what those come behind. */
bool cm_sim_graph_reaches(cm_sim_graph *graph, const cm_sim_nodes *from, const cm_sim_nodes *nodes);

#endif
