/* Hooks on libc10_cuda's calls of the CUDA runtime. They only forward: some run with the
 * allocator's mutex held, so they make no CUDA calls of their own. cuda.h explains what is
 * concluded. */
#include <stdatomic.h>
#include <string.h>

#include "cuda.h"
#include "cuda_slots.h"
#include "driver_events.h"
#include "emit.h"
#include "operators.h"
#include "tables.h"

enum { TAKE, GIVE_BACK, TAKE_ASYNC, GIVE_BACK_ASYNC, SYMBOLS };
enum { EVENT, EVENT_FLAGS, EVENT_SYMBOLS };
enum { GET_DEVICE, SET_DEVICE, SET_DEVICE_ELSEWHERE, DEVICE_SYMBOLS };
enum { SUCCESS = 0, OUT_OF_MEMORY = 2 }; /* cudaError_t */

typedef int (*take_fn)(void **memory, size_t size);
typedef int (*give_back_fn)(void *memory);
typedef int (*take_async_fn)(void **memory, size_t size, void *stream);
typedef int (*give_back_async_fn)(void *memory, void *stream);
typedef int (*event_fn)(void *event, void *stream);
typedef int (*event_flags_fn)(void *event, void *stream, unsigned flags);
typedef int (*get_device_fn)(int *device);
typedef int (*set_device_fn)(int device);

#define ENTERED cm_producer *t __attribute__((cleanup(cm_emit_leave_hook)))
#define FORWARD(symbol, variant, type) CM_SLOT_ORIGINAL(cm_cuda_symbols[symbol], variant, type)
#define FORWARD_DEVICE(symbol, variant, type)                                                      \
    CM_SLOT_ORIGINAL(cm_cuda_device_symbols[symbol], variant, type)

#define FORWARD_EVENT(symbol, variant, type)                                                       \
    CM_SLOT_ORIGINAL(cm_cuda_event_symbols[symbol], variant, type)

static atomic_ullong unseen, untraced;

/* The place in libc10_cuda that calls cudaMalloc for uncached blocks, learned from such a call in
 * `allocate`. It identifies these blocks in other functions (raw_alloc), where no report follows.
 */
static atomic_uintptr_t direct_site;
static atomic_bool met_direct;

static cm_event event_of(cm_event_kind kind, uint64_t address, size_t size, int8_t device)
{
    return (cm_event){
        .address = address,
        .size = (int64_t)size,
        .kind = (uint8_t)kind,
        .device_type = CM_DEVICE_CUDA,
        .device_index = device,
    };
}

/* --- memory from cudaMalloc --------------------------------------------------------------------
 */

void cm_cuda_segment_hook(cm_producer *t, const void *block, int8_t device)
{
    cm_cuda_call *call = &cm_cuda_tls;
    uint64_t taken = call->taken;
    bool its_own = (uint64_t)(uintptr_t)block - taken < call->taken_size;

    call->taken = 0;
    if (t == NULL)
        return;
    if (its_own)
        cm_emit_put_stack_hook(t, event_of(CM_EV_SEGMENT_NEW, taken, call->taken_size, device));
    else
        atomic_fetch_add(&untraced, 1);
}

void cm_cuda_requested_hook(cm_producer *t, const void *block, int8_t device)
{
    cm_emit_put_hook(
        t, event_of(CM_EV_REQUESTED, (uint64_t)(uintptr_t)block, cm_cuda_tls.requested, device));
}

static void put_direct_hook(cm_producer *t, const void *block, size_t size, int8_t device)
{
    cm_event e = event_of(CM_EV_ALLOC, (uint64_t)(uintptr_t)block, size, device);

    e.flags = CM_EVF_DIRECT;
    cm_operators_hook(t);
    cm_emit_put_stack_hook(t, e);
}

void cm_cuda_unreported_hook(const void *block, size_t size, int8_t device)
{
    cm_cuda_call *call = &cm_cuda_tls;
    bool direct = call->taken != 0 && call->taken == (uint64_t)(uintptr_t)block;
    uintptr_t site = call->site;
    ENTERED = cm_enter_hook();

    call->device = device;
    if (direct) {
        call->taken = 0;
        atomic_store_explicit(&direct_site, site, memory_order_relaxed);
        atomic_store_explicit(&met_direct, true, memory_order_relaxed);
    }
    if (t == NULL || block == NULL)
        return;
    if (direct)
        put_direct_hook(t, block, size, device);
    else
        atomic_fetch_add(&unseen, 1);
}

bool cm_cuda_met_direct(void)
{
    return atomic_load_explicit(&met_direct, memory_order_relaxed);
}

static void record_refused_hook(size_t size, int8_t device)
{
    ENTERED = cm_enter_hook();

    if (t != NULL)
        cm_emit_put_stack_hook(t, event_of(CM_EV_OOM, CM_OOM_UNKNOWN, size, device));
}

void cm_cuda_refused_hook(void)
{
    cm_cuda_call *call = &cm_cuda_tls;

    record_refused_hook(call->refused, call->device);
    call->refused = 0;
}

void cm_cuda_counts(cm_cuda_state *state)
{
    state->unseen = atomic_load(&unseen);
    state->untraced = atomic_load(&untraced);
}

void cm_cuda_begin_counts(void)
{
    atomic_store(&unseen, 0);
    atomic_store(&untraced, 0);
}

/* --- the hooks -----------------------------------------------------------------------------------
 */

/* Counts memory that was taken and never explained by a report. */
static void drop_taken_hook(cm_cuda_call *call)
{
    if (call->taken != 0 && cm_is_recording())
        atomic_fetch_add(&untraced, 1);
    call->taken = 0;
}

static void record_direct_hook(const void *block, size_t size, int8_t device)
{
    ENTERED = cm_enter_hook();

    if (t != NULL)
        put_direct_hook(t, block, size, device);
}

/* A forwarded call as the driver level sees it. It needs the caller and, if slots record driver
 * events, the call itself, for a slot has room for one hook only. */
typedef struct passing {
    cm_slot_call slot;
    bool outer;
} passing;

static inline void leave_passing(passing *p)
{
    if (p->outer)
        cm_driver_tls.site = 0;
    cm_cuda_slot_cleanup(&p->slot);
}

static inline void enter_passing(passing *p, cm_cuda_slot slot, uintptr_t site,
                                 const uint64_t *words)
{
    p->outer = cm_driver_tls.site == 0;
    if (p->outer)
        cm_driver_tls.site = site;
    if (cm_cuda_slots_are_on()) {
        p->slot = (cm_slot_call){.on = true, .slot = (uint8_t)slot, .site = site, .words = words};
        cm_cuda_slot_enter_hook(&p->slot);
    }
}

#define PASSING(function, ...)                                                                     \
    const uint64_t words[] = {__VA_ARGS__};                                                        \
    passing pass __attribute__((cleanup(leave_passing))) = {.slot.on = false};                     \
    enter_passing(&pass, CM_SLOT_##function, (uintptr_t)__builtin_return_address(0), words)
#define PASSED(status)                                                                             \
    if (__builtin_expect(pass.slot.on, 0))                                                         \
    cm_cuda_slot_exit_hook(&pass.slot, status)

static inline __attribute__((always_inline)) int take_hook(int variant, void **memory, size_t size)
{
    cm_cuda_call *call = &cm_cuda_tls;
    uintptr_t site = (uintptr_t)__builtin_return_address(0);
    PASSING(cudaMalloc, (uintptr_t)memory, size);
    int status = FORWARD(TAKE, variant, take_fn)(memory, size);
    PASSED(status);

    if (status == OUT_OF_MEMORY && call->inside)
        call->refused = size;
    if (status != SUCCESS)
        return status;
    drop_taken_hook(call);
    if (!call->inside && site == atomic_load_explicit(&direct_site, memory_order_relaxed)) {
        record_direct_hook(*memory, size, call->device);
        return status;
    }
    call->taken = (uint64_t)(uintptr_t)*memory;
    call->taken_size = size;
    call->site = site;
    return status;
}

/* Recorded before the memory is freed, for another thread may get it at once. */
static void record_back_hook(cm_event_kind kind, const void *memory)
{
    ENTERED = memory != NULL ? cm_enter_hook() : NULL;

    if (t != NULL)
        cm_emit_put_hook(t, event_of(kind, (uint64_t)(uintptr_t)memory, 0, CM_DEVICE_UNKNOWN));
}

static inline __attribute__((always_inline)) int give_back_hook(int variant, void *memory)
{
    cm_cuda_call *call = &cm_cuda_tls;

    if (call->taken != 0 && call->taken == (uint64_t)(uintptr_t)memory)
        drop_taken_hook(call);
    else
        record_back_hook(CM_EV_SEGMENT_FREE, memory);
    PASSING(cudaFree, (uintptr_t)memory);
    int status = FORWARD(GIVE_BACK, variant, give_back_fn)(memory);
    PASSED(status);
    return status;
}

static void record_async_hook(const void *memory, size_t size, int8_t device)
{
    ENTERED = memory != NULL ? cm_enter_hook() : NULL;

    if (t == NULL)
        return;
    cm_operators_hook(t);
    cm_emit_put_stack_hook(t, event_of(CM_EV_ALLOC, (uint64_t)(uintptr_t)memory, size, device));
}

static inline __attribute__((always_inline)) int take_async_hook(int variant, void **memory,
                                                                 size_t size, void *stream)
{
    cm_cuda_call *call = &cm_cuda_tls;
    PASSING(cudaMallocAsync, (uintptr_t)memory, size, (uintptr_t)stream);
    int status = FORWARD(TAKE_ASYNC, variant, take_async_fn)(memory, size, stream);
    PASSED(status);

    if (status == SUCCESS) {
        call->requested = 0; /* this event reports it */
        record_async_hook(*memory, size, call->device);
    } else if (status == OUT_OF_MEMORY) {
        if (call->inside) /* the allocator may try again */
            call->refused = size;
        else
            record_refused_hook(size, call->device);
    }
    return status;
}

static inline __attribute__((always_inline)) int give_back_async_hook(int variant, void *memory,
                                                                      void *stream)
{
    record_back_hook(CM_EV_FREE, memory);
    PASSING(cudaFreeAsync, (uintptr_t)memory, (uintptr_t)stream);
    int status = FORWARD(GIVE_BACK_ASYNC, variant, give_back_async_fn)(memory, stream);
    PASSED(status);
    return status;
}

static void note_device(int device)
{
    cm_cuda_tls.device = (int8_t)device;
    cm_cuda_tls.device_seen = true;
}

static inline __attribute__((always_inline)) int event_hook(int variant, void *event, void *stream)
{
    if (__builtin_expect(cm_cuda_watches_deferred(), 0))
        cm_cuda_event_hook(stream, (uintptr_t)__builtin_return_address(0));
    return FORWARD_EVENT(EVENT, variant, event_fn)(event, stream);
}

static inline __attribute__((always_inline)) int event_flags_hook(int variant, void *event,
                                                                  void *stream, unsigned flags)
{
    if (__builtin_expect(cm_cuda_watches_deferred(), 0))
        cm_cuda_event_hook(stream, (uintptr_t)__builtin_return_address(0));
    return FORWARD_EVENT(EVENT_FLAGS, variant, event_flags_fn)(event, stream, flags);
}

static inline __attribute__((always_inline)) int get_device_hook(int variant, int *device)
{
    int status = FORWARD_DEVICE(GET_DEVICE, variant, get_device_fn)(device);

    if (status == SUCCESS)
        note_device(*device);
    return status;
}

static inline __attribute__((always_inline)) int set_device_hook(int symbol, int variant,
                                                                 int device)
{
    int status = FORWARD_DEVICE(symbol, variant, set_device_fn)(device);

    if (status == SUCCESS)
        note_device(device);
    return status;
}

#define VARIANT(n)                                                                                 \
    static int take_##n(void **memory, size_t size)                                                \
    {                                                                                              \
        return take_hook(n, memory, size);                                                         \
    }                                                                                              \
    static int give_back_##n(void *memory)                                                         \
    {                                                                                              \
        return give_back_hook(n, memory);                                                          \
    }                                                                                              \
    static int take_async_##n(void **memory, size_t size, void *stream)                            \
    {                                                                                              \
        return take_async_hook(n, memory, size, stream);                                           \
    }                                                                                              \
    static int give_back_async_##n(void *memory, void *stream)                                     \
    {                                                                                              \
        return give_back_async_hook(n, memory, stream);                                            \
    }                                                                                              \
    static int event_##n(void *event, void *stream)                                                \
    {                                                                                              \
        return event_hook(n, event, stream);                                                       \
    }                                                                                              \
    static int event_flags_##n(void *event, void *stream, unsigned flags)                          \
    {                                                                                              \
        return event_flags_hook(n, event, stream, flags);                                          \
    }                                                                                              \
    static int get_device_##n(int *device)                                                         \
    {                                                                                              \
        return get_device_hook(n, device);                                                         \
    }                                                                                              \
    static int set_device_##n(int device)                                                          \
    {                                                                                              \
        return set_device_hook(SET_DEVICE, n, device);                                             \
    }                                                                                              \
    static int set_device_elsewhere_##n(int device)                                                \
    {                                                                                              \
        return set_device_hook(SET_DEVICE_ELSEWHERE, n, device);                                   \
    }
VARIANT(0)
VARIANT(1)
_Static_assert(CM_SLOT_VARIANTS == 2, "one set of hooks for each variant");

/* Only calls of libc10_cuda: memory that others take from CUDA is not PyTorch's. */
#define SYMBOL(function, what, name, others)                                                       \
    {                                                                                              \
        .source = "cuda", .meaning = what, .names = {function}, .hooks = {name##_0, name##_1},     \
        .library = "libc10_cuda.", .elsewhere = others                                             \
    }
#define ELSEWHERE(function) &cm_cuda_slot_symbols[CM_SLOT_##function]

cm_slot_symbol cm_cuda_symbols[SYMBOLS] = {
    [TAKE] = SYMBOL("cudaMalloc", "memory that the allocator takes from CUDA", take,
                    ELSEWHERE(cudaMalloc)),
    [GIVE_BACK] = SYMBOL("cudaFree", "memory that it gives back", give_back, ELSEWHERE(cudaFree)),
    [TAKE_ASYNC] = SYMBOL("cudaMallocAsync", "blocks of the cudaMallocAsync back end", take_async,
                          ELSEWHERE(cudaMallocAsync)),
    [GIVE_BACK_ASYNC] =
        SYMBOL("cudaFreeAsync", "their frees", give_back_async, ELSEWHERE(cudaFreeAsync)),
};
const size_t cm_cuda_symbol_count = SYMBOLS;

cm_slot_symbol cm_cuda_device_symbols[DEVICE_SYMBOLS] = {
    [GET_DEVICE] = SYMBOL("cudaGetDevice", "the device of its blocks", get_device, NULL),
    [SET_DEVICE] = SYMBOL("cudaSetDevice", "the same", set_device,
                          &cm_cuda_device_symbols[SET_DEVICE_ELSEWHERE]),
    [SET_DEVICE_ELSEWHERE] = {.source = "driver",
                              .meaning = "the device of a thread",
                              .names = {"cudaSetDevice"},
                              .hooks = {set_device_elsewhere_0, set_device_elsewhere_1}},
};
const size_t cm_cuda_device_symbol_count = DEVICE_SYMBOLS;

cm_slot_symbol cm_cuda_event_symbols[EVENT_SYMBOLS] = {
    [EVENT] = SYMBOL("cudaEventRecord", "streams that freed blocks wait for", event, NULL),
    [EVENT_FLAGS] = SYMBOL("cudaEventRecordWithFlags", "the same", event_flags, NULL),
};
const size_t cm_cuda_event_symbol_count = EVENT_SYMBOLS;
