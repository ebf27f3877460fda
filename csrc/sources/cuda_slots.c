#define _GNU_SOURCE /* RTLD_NOLOAD */
#include "cuda_slots.h"

#include <dlfcn.h>
#include <string.h>

#include "cuda.h"
#include "cupti/callbacks.h"
#include "cupti/calls.h"
#include "driver_events.h"
#include "emit.h"
#include "inflight.h"
#include "libraries.h"
#include "tables.h"

/* The most arguments of any of these functions. Forwarding more registers than used is harmless. */
#define WORDS uintptr_t a, uintptr_t b, uintptr_t c, uintptr_t d, uintptr_t e, uintptr_t f
typedef int (*words_fn)(WORDS);

atomic_bool cm_cuda_slots_on;

/* Rows of cupti/calls.c. They describe CUPTI's structures and also a call's arguments, which are
 * the same words in the same order. Filled in before slots are on. */
static const cm_call *rows[CM_SLOTS];
/* Of threads that were not seen choosing one. */
static _Atomic int8_t default_device = CM_DEVICE_UNKNOWN;

/* --- events --------------------------------------------------------------------------------------
 */

#define ENTERED cm_producer *t __attribute__((cleanup(cm_emit_leave_hook)))

static int8_t thread_device(void)
{
    return cm_cuda_tls.device_seen ? cm_cuda_tls.device
                                   : atomic_load_explicit(&default_device, memory_order_relaxed);
}

static void describe(cm_driver_piece *piece, const cm_call *row, const uint64_t *words)
{
    int device = row->place == CM_PLACE_CONTEXT ? thread_device() : cm_call_device(row, words);

    piece->kind = row->kind;
    piece->flags = CM_EVF_BY_SLOT;
    piece->device_type =
        device < 0 && row->place != CM_PLACE_CONTEXT ? CM_DEVICE_CPU : CM_DEVICE_CUDA;
    piece->device_index = device > INT8_MAX ? CM_DEVICE_UNKNOWN : (int8_t)device;
    if (row->stream != CM_CALL_ABSENT)
        piece->stream = cm_call_stream(row, words);
    if (row->handle != CM_CALL_ABSENT) {
        piece->has_handle = true;
        piece->handle = cm_call_handle(row, words);
    }
}

void cm_cuda_slot_enter_hook(cm_slot_call *call)
{
    const cm_call *row = rows[call->slot];

    call->outer = cm_driver_tls.in_slot++ == 0 && !cm_cupti_own_thread;
    call->session = cm_inflight_begin_hook();
    if (call->outer)
        cm_driver_tls.site = call->site;
    if (!call->outer || row->does != CM_CALL_TAKES)
        return;
    cm_driver_piece piece = {.address = cm_call_taken(row, call->words)};
    if (piece.address == 0)
        return;
    describe(&piece, row, call->words);
    piece.size = cm_call_bytes(row, call->words);
    ENTERED = cm_enter_hook();
    if (t == NULL)
        return;
    cm_driver_free_hook(t, &piece);
    call->generation = cm_producer_generation(t);
    call->events = cm_driver_tls.events;
}

static void record_new_hook(const cm_slot_call *call, const cm_call *row)
{
    cm_driver_piece piece = {.address = cm_call_given(row, call->words)};

    if (piece.address == 0)
        return;
    describe(&piece, row, call->words);
    piece.size = cm_call_bytes(row, call->words);
    ENTERED = cm_enter_hook();
    if (t == NULL)
        return;
    piece.library = cm_library_of_site_hook(call->site - 1);
    cm_driver_new_hook(t, &piece);
}

static void record_failed_hook(const cm_slot_call *call, int status)
{
    ENTERED = cm_enter_hook();

    if (t != NULL && cm_producer_generation(t) == call->generation &&
        cm_driver_tls.events == call->events)
        cm_driver_failed_hook(t, status);
}

void cm_cuda_slot_exit_hook(cm_slot_call *call, int status)
{
    const cm_call *row = rows[call->slot];

    if (call->outer && row->does == CM_CALL_GIVES && status == 0)
        record_new_hook(call, row);
    else if (call->generation != 0 && status != 0)
        record_failed_hook(call, status);
}

void cm_cuda_slot_leave_hook(cm_slot_call *call)
{
    cm_driver_tls.in_slot--;
    cm_inflight_end_hook(call->session);
    if (call->outer)
        cm_driver_tls.site = 0;
}

/* --- the hooks -----------------------------------------------------------------------------------
 */

/* Function, its row in cupti/calls.c, its meaning. */
#define EACH(X)                                                                                    \
    X(cudaMalloc, "cudaMalloc_v3020", "memory taken from CUDA")                                    \
    X(cudaFree, "cudaFree_v3020", "memory given back")                                             \
    X(cudaMallocAsync, "cudaMallocAsync_v11020", "memory taken in a stream's order")               \
    X(cudaFreeAsync, "cudaFreeAsync_v11020", "memory given back in a stream's order")              \
    X(cudaMallocAsync_ptsz, "cudaMallocAsync_ptsz_v11020", "memory taken in a stream's order")     \
    X(cudaFreeAsync_ptsz, "cudaFreeAsync_ptsz_v11020", "memory given back in a stream's order")    \
    X(cudaMallocFromPoolAsync, "cudaMallocFromPoolAsync_v11020", "memory taken from a pool")       \
    X(cudaMallocFromPoolAsync_ptsz, "cudaMallocFromPoolAsync_ptsz_v11020",                         \
      "memory taken from a pool")                                                                  \
    X(cudaMallocManaged, "cudaMallocManaged_v6000", "managed memory taken")                        \
    X(cudaMallocPitch, "cudaMallocPitch_v3020", "memory taken from CUDA")                          \
    X(cudaMallocHost, "cudaMallocHost_v3020", "page-locked memory taken")                          \
    X(cudaHostAlloc, "cudaHostAlloc_v3020", "page-locked memory taken")                            \
    X(cudaFreeHost, "cudaFreeHost_v3020", "page-locked memory given back")                         \
    X(cudaHostRegister, "cudaHostRegister_v4000", "memory page-locked")                            \
    X(cudaHostUnregister, "cudaHostUnregister_v4000", "memory no longer page-locked")              \
    X(cuMemAlloc_v2, "cuMemAlloc_v2", "memory taken from the driver")                              \
    X(cuMemFree_v2, "cuMemFree_v2", "memory given back to the driver")                             \
    X(cuMemAllocPitch_v2, "cuMemAllocPitch_v2", "memory taken from the driver")                    \
    X(cuMemAllocManaged, "cuMemAllocManaged", "managed memory taken")                              \
    X(cuMemAllocAsync, "cuMemAllocAsync", "memory taken in a stream's order")                      \
    X(cuMemAllocAsync_ptsz, "cuMemAllocAsync_ptsz", "memory taken in a stream's order")            \
    X(cuMemFreeAsync, "cuMemFreeAsync", "memory given back in a stream's order")                   \
    X(cuMemFreeAsync_ptsz, "cuMemFreeAsync_ptsz", "memory given back in a stream's order")         \
    X(cuMemHostAlloc, "cuMemHostAlloc", "page-locked memory taken")                                \
    X(cuMemAllocHost_v2, "cuMemAllocHost_v2", "page-locked memory taken")                          \
    X(cuMemFreeHost, "cuMemFreeHost", "page-locked memory given back")                             \
    X(cuMemHostRegister_v2, "cuMemHostRegister_v2", "memory page-locked")                          \
    X(cuMemHostUnregister, "cuMemHostUnregister", "memory no longer page-locked")                  \
    X(cuMemCreate, "cuMemCreate", "physical memory made")                                          \
    X(cuMemRelease, "cuMemRelease", "physical memory released")                                    \
    X(cuMemMap, "cuMemMap", "physical memory mapped")                                              \
    X(cuMemUnmap, "cuMemUnmap", "physical memory unmapped")                                        \
    X(cuMemAddressReserve, "cuMemAddressReserve", "addresses reserved")                            \
    X(cuMemAddressFree, "cuMemAddressFree", "addresses given back")

static __attribute__((noinline)) int forward_hook(cm_cuda_slot slot, words_fn original,
                                                  uintptr_t site, const uint64_t *words)
{
    cm_slot_call call __attribute__((cleanup(cm_cuda_slot_cleanup))) = {
        .on = true, .slot = (uint8_t)slot, .site = site, .words = words};

    cm_cuda_slot_enter_hook(&call);
    int status = original(words[0], words[1], words[2], words[3], words[4], words[5]);
    cm_cuda_slot_exit_hook(&call, status);
    return status;
}

/* While off this is a jump, so that CUPTI's records see the true return address. */
#define HOOK(name, variant)                                                                        \
    static int name##_##variant(WORDS)                                                             \
    {                                                                                              \
        words_fn original =                                                                        \
            CM_SLOT_ORIGINAL(cm_cuda_slot_symbols[CM_SLOT_##name], variant, words_fn);             \
                                                                                                   \
        if (!cm_cuda_slots_are_on())                                                               \
            return original(a, b, c, d, e, f);                                                     \
        return name##_recorded(original, (uintptr_t)__builtin_return_address(0), a, b, c, d, e,    \
                               f);                                                                 \
    }
#define HOOKS(name, row, meaning)                                                                  \
    static __attribute__((noinline)) int name##_recorded(words_fn original, uintptr_t site, WORDS) \
    {                                                                                              \
        const uint64_t words[] = {a, b, c, d, e, f};                                               \
                                                                                                   \
        return forward_hook(CM_SLOT_##name, original, site, words);                                \
    }                                                                                              \
    HOOK(name, 0)                                                                                  \
    HOOK(name, 1)
EACH(HOOKS)
_Static_assert(CM_SLOT_VARIANTS == 2, "one hook for each variant");

#define SYMBOL(name, row, what)                                                                    \
    [CM_SLOT_##name] = {.source = "driver",                                                        \
                        .meaning = what,                                                           \
                        .names = {#name},                                                          \
                        .hooks = {(void *)name##_0, (void *)name##_1}},
cm_slot_symbol cm_cuda_slot_symbols[CM_SLOTS] = {EACH(SYMBOL)};
const size_t cm_cuda_slot_symbol_count = CM_SLOTS;

/* --- on and off ----------------------------------------------------------------------------------
 */

#define ROW(name, row, meaning) [CM_SLOT_##name] = row,
static const char *const row_names[CM_SLOTS] = {EACH(ROW)};

static bool find_rows(void)
{
    for (size_t slot = 0; slot < CM_SLOTS; slot++) {
        for (size_t i = 0; i < cm_call_count && rows[slot] == NULL; i++)
            if (strcmp(cm_calls[i].name, row_names[slot]) == 0)
                rows[slot] = &cm_calls[i];
        if (rows[slot] == NULL)
            return false;
    }
    return true;
}

/* A thread that was not seen choosing a device is on device 0 if slots were on before CUDA's first
 * use, or if there is only one device. */
static void learn_default_device(void)
{
    enum { SUCCESS = 0, NOT_INITIALIZED = 3 };
    void *driver = dlopen("libcuda.so.1", RTLD_LAZY | RTLD_NOLOAD);
    int (*count_devices)(int *) = NULL;
    int count = 0, status = NOT_INITIALIZED;

    if (driver != NULL)
        count_devices = (int (*)(int *))dlsym(driver, "cuDeviceGetCount");
    if (count_devices != NULL)
        status = count_devices(&count); /* does not initialize CUDA */
    if (driver != NULL)
        dlclose(driver);
    bool sure = status == NOT_INITIALIZED || (status == SUCCESS && count == 1);
    atomic_store(&default_device, sure ? 0 : CM_DEVICE_UNKNOWN);
}

void cm_cuda_slots_record(bool on)
{
    if (on && !find_rows())
        return;
    if (on && !atomic_load(&cm_cuda_slots_on)) {
        cm_libraries_refresh();
        learn_default_device();
        cm_slots_register(cm_cuda_device_symbols, cm_cuda_device_symbol_count);
    }
    atomic_store_explicit(&cm_cuda_slots_on, on, memory_order_release);
}
