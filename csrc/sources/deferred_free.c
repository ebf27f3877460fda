/* A block that record_stream was called for is not free when the program frees it: PyTorch records
 * an event on each stream that used it, and gives its memory to nobody before they have come.
 *
 * Nothing reports that. It is seen in the calls: the function that frees, or one that it calls,
 * records the events, and then it reports the free. The same library records events for others,
 * too (c10::Event), and for blocks whose free was reported long ago, so the calls must come from
 * one and the same call of that function: where the stack is tells. */
#include <stdatomic.h>
#include <unwind.h>

#include "cuda.h"
#include "emit.h"
#include "tables.h"

enum { OUR_FRAMES = 6 }; /* at most, between here and the caller that is looked for */

static atomic_bool watching;

/* The slots are looked for the first time that somebody wants to know, and stay ours. */
void cm_cuda_watch_held(bool on)
{
    atomic_store(&watching, on);
    if (on && cm_slots_register(cm_cuda_event_symbols, cm_cuda_event_symbol_count))
        cm_slots_rescan();
}

bool cm_cuda_watches_held(void)
{
    return atomic_load_explicit(&watching, memory_order_relaxed);
}

typedef struct search {
    uintptr_t site;
    cm_cuda_frame *found;
    int count, wanted, passed;
} search;

static _Unwind_Reason_Code look_at_hook(struct _Unwind_Context *context, void *argument)
{
    search *s = argument;

    if (s->count == 0 && _Unwind_GetIP(context) != s->site)
        return ++s->passed > OUR_FRAMES ? _URC_END_OF_STACK : _URC_NO_REASON;
    s->found[s->count++] =
        (cm_cuda_frame){_Unwind_GetRegionStart(context), _Unwind_GetCFA(context)};
    return s->count == s->wanted ? _URC_END_OF_STACK : _URC_NO_REASON;
}

/* The function that holds this return address, and its callers. */
static bool find_callers_hook(uintptr_t site, cm_cuda_frame *found, int wanted)
{
    search s = {.site = site, .found = found, .wanted = wanted};

    _Unwind_Backtrace(look_at_hook, &s);
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

void cm_cuda_held_hook(cm_thread *t, int8_t device, uintptr_t site)
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
                                .kind = CM_EV_HELD,
                                .device_type = CM_DEVICE_CUDA,
                                .device_index = device,
                            });
    }
    call->waits = 0;
}
