/* Emitting events with the calling thread's place in the autograd engine. Everything here runs
 * inside a hook. */
#ifndef CM_SOURCES_EMIT_H
#define CM_SOURCES_EMIT_H

#include <stdbool.h>
#include <stdint.h>

#include "../base/clock.h"
#include "../capture/ring_producer.h"

typedef struct cm_emit_thread {
    uint32_t numbered;    /* generation whose ring knows autograd's id for this thread */
    uint32_t running;     /* generation in which the innermost running node was recorded, 0: none */
    uint32_t owed;        /* NODE_DONE events not emitted, for recording was off */
    uint32_t owed_since;  /* the generation they belong to */
    cm_walk_top top;      /* where Python stood when that node started */
    const void *dying;    /* node whose destruction is already recorded */
    bool own_nodes;       /* this thread's nodes are calibration's, not the program's */
    uint32_t made, ended; /* how many of those were created and destroyed */
} cm_emit_thread;

/* Initial-exec: any other model may call malloc at a thread's first access. */
extern __thread cm_emit_thread cm_emit_tls __attribute__((tls_model("initial-exec")));

/* Emits the NODE_DONE events owed since recording was off. */
void cm_emit_pay_hook(cm_producer *t);

static inline cm_event *cm_emit_reserve_hook(cm_producer *t)
{
    if (__builtin_expect(cm_emit_tls.owed != 0, 0))
        cm_emit_pay_hook(t);
    return cm_reserve_hook(t);
}

/* Emits an event with the current time. */
void cm_emit_put_hook(cm_producer *t, cm_event event);
/* The same, with this thread's stack and node flags. */
void cm_emit_put_stack_hook(cm_producer *t, cm_event event);

/* The current CM_EVF_IN_NODE and CM_EVF_NODE_STACK, after this stack was captured. */
static inline uint8_t cm_emit_node_flags_hook(const cm_producer *t, uint32_t stack)
{
    const cm_emit_thread *me = &cm_emit_tls;

    if (__builtin_expect(me->running == 0, 1) || me->running != cm_producer_generation(t))
        return 0;
    cm_walk_top top = cm_walk_captured_top_hook(&t->walk, stack);
    return CM_EVF_IN_NODE |
           (top.frame == me->top.frame && top.ip == me->top.ip ? CM_EVF_NODE_STACK : 0);
}

/* For __attribute__((cleanup)): leaves the hook on every way out, C++ exceptions included. */
static inline void cm_emit_leave_hook(cm_producer *const *t)
{
    if (*t != NULL)
        cm_leave_hook(*t);
}

#endif
