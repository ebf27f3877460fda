/* The backward join: which forward line an allocation inside an autograd node is charged to.
 *
 *   CM_EVF_IN_NODE alone       Python frames are newer than the node's start. If one of them is
 *                              user code (a hook, a backward in Python, a recomputation): its own
 *                              stack. If all are a library's (an operator that PyTorch routes
 *                              through Python): as with CM_EVF_NODE_STACK
 *   with CM_EVF_NODE_STACK     the stack that made the running node; a node made inside a backward
 *                              stands for the one running then
 *   AccumulateGrad             has no number: the line of the previous node on that thread, in the
 *                              same backward; without one, CM_CHARGE_ACCUMULATION
 *   unresolved                 its own stack, CM_CHARGE_UNRESOLVED: the node is older than the
 *                              recording, or was made by a thread without Python frames
 *
 * Nodes are kept until CM_EV_NODE_FREE, each with its step of birth. Memory is bounded in traces
 * without that event: a thread's newest nodes are kept (up to a million), and of older ones the
 * first million (16 million after the first CM_EV_NODE_FREE). One owner. */
#ifndef CM_HEAP_NODES_H
#define CM_HEAP_NODES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "../trace/reader.h"

enum { CM_NODE_UNRESOLVED = UINT32_MAX, CM_NODE_ACCUMULATION = UINT32_MAX - 1 };
/* The name of a running AccumulateGrad without a previous node; no definition has this id. */
enum { CM_NAME_ACCUMULATION = UINT32_MAX - 1 };
enum { CM_NODE_INHERITED = -2 }; /* the step of nodes made before the trace or window began */

typedef enum cm_charge_kind {
    CM_CHARGE_OWN = 0, /* no node was running */
    CM_CHARGE_RESOLVED,
    CM_CHARGE_ACCUMULATION,
    CM_CHARGE_UNRESOLVED
} cm_charge_kind;

typedef struct cm_charge {
    cm_charge_kind kind;
    uint32_t stack, name; /* name id of the running node, 0 = none */
} cm_charge;

/* Bytes that nodes allocated. */
typedef struct cm_backward_bytes {
    int64_t bytes, resolved, accumulation, unresolved; /* the first is the sum of the others */
} cm_backward_bytes;

typedef struct cm_nodes cm_nodes;

cm_nodes *cm_nodes_new(void); /* NULL: out of memory */
/* A copy, without the judge. NULL: out of memory. */
cm_nodes *cm_nodes_copy(const cm_nodes *nodes);
void cm_nodes_free(cm_nodes *nodes);

/* Whether all frames newer than the running node are a library's (attribution.h). Without a judge
 * the answer is always no: compaction needs only the kinds of charges. */
typedef bool (*cm_nodes_judge)(void *context, uint32_t stack);
void cm_nodes_judge_by(cm_nodes *nodes, cm_nodes_judge library_alone, void *context);

/* The step of nodes made from now on: -1 = before the first. CM_NODE_INHERITED until this is
 * called. */
void cm_nodes_begin_step(cm_nodes *nodes, int32_t step);
/* A window begins: all nodes so far are from before it. */
void cm_nodes_inherit(cm_nodes *nodes);
/* Every record of the trace, in order. false: out of memory. */
bool cm_nodes_apply(cm_nodes *nodes, uint32_t thread, const cm_event *event);
/* The charge of an ALLOC, after cm_nodes_apply of the same record. */
cm_charge cm_nodes_charge(cm_nodes *nodes, const cm_record *record);

/* One node's life. */
typedef struct cm_node_life {
    uint64_t sequence; /* per thread, rising */
    uint32_t stack;    /* as for charges; CM_NODE_UNRESOLVED and CM_NODE_ACCUMULATION: none */
    int32_t step;      /* of birth */
    bool ran;          /* in a backward */
} cm_node_life;

/* The node that the last record destroyed; false: none, or unknown. */
bool cm_nodes_destroyed(const cm_nodes *nodes, cm_node_life *out);
/* Whether any record so far was a node's end: without one all seem alive. */
bool cm_nodes_are_destroyed(const cm_nodes *nodes);
/* Nodes alive, without inherited ones. */
uint64_t cm_nodes_alive(const cm_nodes *nodes);
/* All of them, inherited ones included. false as soon as the callback returns it. */
bool cm_nodes_each(const cm_nodes *nodes, bool (*visit)(void *context, const cm_node_life *life),
                   void *context);

/* The state that a trace starting here must contain (extract.c). The callbacks return false to
 * stop, which is then returned. */
typedef struct cm_nodes_state {
    bool (*thread)(void *context, uint32_t thread, uint64_t kernel_id, uint64_t autograd_id);
    bool (*node)(void *context, uint32_t thread, uint64_t sequence, uint32_t stack);
    bool (*running)(void *context, uint32_t thread, uint32_t stack,
                    uint32_t name); /* outer first */
} cm_nodes_state;
bool cm_nodes_visit(const cm_nodes *nodes, const cm_nodes_state *visitor, void *context);

#endif
