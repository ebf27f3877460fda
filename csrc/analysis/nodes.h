/* The backward join: which forward line an allocation inside an autograd node is charged to.
 *
 *   CM_EVF_IN_NODE alone       Python frames are newer than the node's start (a hook, a backward in
 *                              Python, a recomputation): its own stack is the line
 *   with CM_EVF_NODE_STACK     the stack that made the running node; a node made inside a backward
 *                              stands for the one that was running then
 *   AccumulateGrad             has no number: the line of the node that ran before it on that
 *                              thread, in the same backward; if none did, CM_CHARGE_ACCUMULATION
 *   not to be found out        its own stack, CM_CHARGE_UNRESOLVED: the node is older than the
 *                              recording, or was made by a thread without Python frames
 *
 * Nodes are kept until CM_EV_NODE_FREE. A trace without those does not grow for ever: a thread's
 * newest nodes stay at hand (up to a million), of older ones the first million. One owner. */
#ifndef CM_ANALYSIS_NODES_H
#define CM_ANALYSIS_NODES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "../trace/reader.h"

enum { CM_NODE_UNRESOLVED = UINT32_MAX, CM_NODE_ACCUMULATION = UINT32_MAX - 1 };

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

typedef struct cm_nodes cm_nodes;

cm_nodes *cm_nodes_new(void); /* NULL: out of memory */
void cm_nodes_free(cm_nodes *nodes);

/* Every record of the trace, in order. step: what the nodes it makes were born in. false: out of
 * memory. */
bool cm_nodes_apply(cm_nodes *nodes, const cm_record *record, int32_t step);

/* A node that is kept: alive, as far as the trace tells. */
typedef struct cm_node {
    uint64_t sequence; /* of its thread */
    uint32_t stack;    /* the forward line, or CM_NODE_UNRESOLVED */
    int32_t step;
} cm_node;
/* The one that the last applied NODE_NEW made or NODE_FREE took; NULL: none (an unknown one). */
const cm_node *cm_nodes_last(const cm_nodes *nodes);
/* Those that are alive. visit returns false to stop, which is then returned. */
bool cm_nodes_alive(const cm_nodes *nodes, bool (*visit)(void *context, const cm_node *node),
                    void *context);
/* Whom an ALLOC is charged to: after cm_nodes_apply of the same record. */
cm_charge cm_nodes_charge(cm_nodes *nodes, const cm_record *record);

/* For a trace that starts here (extract.c): what a reader of it must be told. The callbacks return
 * false to stop, which is then returned. */
typedef struct cm_nodes_state {
    bool (*thread)(void *context, uint32_t thread, uint64_t kernel_id, uint64_t autograd_id);
    bool (*node)(void *context, uint32_t thread, uint64_t sequence, uint32_t stack);
    bool (*running)(void *context, uint32_t thread, uint32_t stack,
                    uint32_t name); /* outer first */
} cm_nodes_state;
bool cm_nodes_visit(const cm_nodes *nodes, const cm_nodes_state *visitor, void *context);

#endif
