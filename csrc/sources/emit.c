#define _GNU_SOURCE /* syscall */
#include "emit.h"

#include <sys/syscall.h>
#include <unistd.h>

__thread cm_emit_thread cm_emit_tls __attribute__((tls_model("initial-exec")));

void cm_emit_announce_hook(cm_thread *t, uint64_t autograd_id)
{
    cm_emit_thread *me = &cm_emit_tls;
    uint32_t generation = cm_thread_generation(t);

    for (; me->owed != 0 && me->owed_since == generation; me->owed--) {
        cm_event *e = cm_reserve_hook(t);
        if (e != NULL) {
            *e = (cm_event){.time = cm_clock_now(), .kind = CM_EV_NODE_DONE, .device_index = -1};
            cm_commit_hook(t);
        }
    }
    me->owed = 0;
    if (me->numbered == generation && autograd_id == 0) {
        me->announced = generation; /* it was out, only nodes were owed */
        return;
    }
    cm_event *e = cm_reserve_hook(t);
    if (e == NULL)
        return; /* the next event tries again */
    *e = (cm_event){
        .time = cm_clock_now(),
        .address = (uint64_t)syscall(SYS_gettid),
        .size = (int64_t)autograd_id,
        .kind = CM_EV_THREAD,
    };
    cm_commit_hook(t);
    me->announced = generation;
    if (autograd_id != 0)
        me->numbered = generation;
}
