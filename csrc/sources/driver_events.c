#include "driver_events.h"

#include "emit.h"

__thread cm_driver_thread cm_driver_tls __attribute__((tls_model("initial-exec")));

static void put_hook(cm_producer *t, cm_event event)
{
    cm_event *e = cm_emit_reserve_hook(t);

    if (e == NULL)
        return; /* counted as lost */
    *e = event;
    cm_commit_hook(t);
}

static void more_hook(cm_producer *t, cm_driver_more what, uint64_t value, uint32_t name,
                      uint64_t time)
{
    put_hook(t, (cm_event){.time = time,
                           .kind = CM_EV_DRIVER_MORE,
                           .size = what,
                           .address = value,
                           .stack = name,
                           .device_index = CM_DEVICE_UNKNOWN});
}

/* Emits one event and its DRIVER_MORE events, all with one time. */
static void piece_hook(cm_producer *t, cm_event_kind kind, const cm_driver_piece *piece,
                       uint32_t stack)
{
    uint64_t time = piece->time != 0 ? piece->time : cm_clock_after_loads();
    uint8_t of_node = 0;

    if (kind == CM_EV_DRIVER_NEW && (cm_emit_node_flags_hook(t, stack) & CM_EVF_NODE_STACK) != 0)
        of_node = CM_EVF_OF_NODE;
    cm_driver_tls.events++;
    put_hook(t, (cm_event){.time = time,
                           .address = piece->address,
                           .size = piece->size,
                           .stack = stack,
                           .kind = (uint8_t)kind,
                           .flags = (uint8_t)(piece->kind | piece->flags | of_node),
                           .device_type = piece->device_type,
                           .device_index = piece->device_index});
    if (piece->has_correlation)
        more_hook(t, CM_DRIVER_MORE_CORRELATION, piece->correlation, 0, time);
    if (piece->stream != 0)
        more_hook(t, CM_DRIVER_MORE_STREAM, piece->stream, 0, time);
    if (piece->has_handle)
        more_hook(t, CM_DRIVER_MORE_HANDLE, piece->handle, 0, time);
    if (piece->library != 0)
        more_hook(t, CM_DRIVER_MORE_LIBRARY, 0, piece->library, time);
}

void cm_driver_new_hook(cm_producer *t, const cm_driver_piece *piece)
{
    piece_hook(t, CM_EV_DRIVER_NEW, piece, cm_walk_capture_hook(cm_producer_walk(t)));
}

void cm_driver_free_hook(cm_producer *t, const cm_driver_piece *piece)
{
    piece_hook(t, CM_EV_DRIVER_FREE, piece, CM_STACK_NONE);
}

void cm_driver_failed_hook(cm_producer *t, int error)
{
    more_hook(t, CM_DRIVER_MORE_FAILED, (uint64_t)(uint32_t)error, 0, cm_clock_now());
}
