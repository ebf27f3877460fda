/* Frees that wait for a stream. When a block is freed for which record_stream was called, PyTorch
 * records a CUDA event on each stream that used it, and reuses the memory only after those events.
 *
 * PyTorch does not report this, so it is inferred. The function that frees the block records the
 * events, itself or through a function it calls, and then reports the free. The library records
 * other events, too (c10::Event, and blocks freed long ago). So both calls must come from the same
 * function at the same stack position. */
#include <stdatomic.h>
#include <unwind.h>

#include "cuda.h"
#include "emit.h"
#include "tables.h"

enum { OUR_FRAMES = 6 }; /* at most, between here and the caller searched for */

static atomic_bool watching;

/* The slots are patched at the first use and stay patched. */
void cm_cuda_watch_deferred(bool on)
{
    atomic_store(&watching, on);
    if (on && cm_slots_register(cm_cuda_event_symbols, cm_cuda_event_symbol_count))
        cm_slots_rescan();
}

bool cm_cuda_watches_deferred(void)
{
    return atomic_load_explicit(&watching, memory_order_relaxed);
}

typedef struct search {
    uintptr_t site;
    cm_cuda_frame *found;
    int count, wanted, passed;
} search;

static _Unwind_Reason_Code visit_frame_hook(struct _Unwind_Context *context, void *argument)
{
    search *s = argument;

    if (s->count == 0 && _Unwind_GetIP(context) != s->site)
        return ++s->passed > OUR_FRAMES ? _URC_END_OF_STACK : _URC_NO_REASON;
    s->found[s->count++] =
        (cm_cuda_frame){_Unwind_GetRegionStart(context), _Unwind_GetCFA(context)};
    return s->count == s->wanted ? _URC_END_OF_STACK : _URC_NO_REASON;
}

/* Finds the function with this return address, and its callers. */
static bool find_callers_hook(uintptr_t site, cm_cuda_frame *found, int wanted)
{
    search s = {.site = site, .found = found, .wanted = wanted};

    _Unwind_Backtrace(visit_frame_hook, &s);
    return s.count == wanted;
}

void cm_cuda_event_hook(const void *stream, uintptr_t site)
{
    cm_cuda_call *call = &cm_cuda_tls;
    cm_cuda_wait *wait = &call->wait[call->waits];

    if (call->waits == CM_CUDA_WAITS || !cm_is_recording())
        return;
    wait->stream = (uint64_t)(uintptr_t)stream;
    if (find_callers_hook(site, wait->by, 2))
        call->waits++;
}

static bool same(cm_cuda_frame a, cm_cuda_frame b)
{
    return a.function == b.function && a.stack == b.stack;
}

void cm_cuda_deferred_free_hook(cm_producer *t, int8_t device, uintptr_t site)
{
    cm_cuda_call *call = &cm_cuda_tls;
    cm_cuda_frame frees;
    bool known = t != NULL && find_callers_hook(site, &frees, 1);

    for (unsigned i = 0; known && i < call->waits; i++) {
        const cm_cuda_wait *wait = &call->wait[i];
        if (!same(wait->by[0], frees) && !same(wait->by[1], frees))
            continue;
        cm_emit_put_hook(t, (cm_event){
                                .address = wait->stream,
                                .kind = CM_EV_DEFERRED_FREE,
                                .device_type = CM_DEVICE_CUDA,
                                .device_index = device,
                            });
    }
    call->waits = 0;
}
