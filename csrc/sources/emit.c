#include "emit.h"

__thread cm_emit_thread cm_emit_tls __attribute__((tls_model("initial-exec")));

void cm_emit_pay_hook(cm_producer *t)
{
    cm_emit_thread *me = &cm_emit_tls;

    for (; me->owed != 0 && me->owed_since == cm_producer_generation(t); me->owed--) {
        cm_event *e = cm_reserve_hook(t);
        if (e == NULL)
            continue; /* counted as lost */
        *e = (cm_event){.time = cm_clock_now(), .kind = CM_EV_NODE_DONE, .device_index = -1};
        cm_commit_hook(t);
    }
    me->owed = 0;
}

void cm_emit_put_hook(cm_producer *t, cm_event event)
{
    cm_event *e = cm_emit_reserve_hook(t);

    if (e == NULL)
        return;
    *e = event;
    e->time = cm_clock_after_loads();
    cm_commit_hook(t);
}

void cm_emit_put_stack_hook(cm_producer *t, cm_event event)
{
    event.stack = cm_walk_capture_hook(cm_producer_walk(t));
    event.flags |= cm_emit_node_flags_hook(t, event.stack);
    cm_emit_put_hook(t, event);
}
