/* Hooks on the functions through which PyTorch's allocators report allocations and frees.
 *
 * The CPU allocator always calls its reporter (New, Delete, OutOfMemory), which forwards to
 * reportMemoryUsageToProfiler only under torch.profiler. Device allocators and mapped CPU storages
 * call the latter directly, some with the device's mutex held. The thread stays "inside a hook"
 * while the original runs, for a forwarded report is about the same block.
 *
 * A block is recorded from the end of its allocation to the beginning of its free, so that an
 * address is free before it is given out again, and recorded live bytes never exceed the true ones.
 * An earlier time of an allocation, before the walk, costs four instructions, and brings the peak
 * of racing threads no nearer. */
#include <stddef.h>

#include "cuda.h"
#include "emit.h"
#include "operators.h"
#include "tables.h"

enum { CPU_NEW, CPU_DELETE, CPU_OOM, REPORT, REPORT_OOM, SYMBOLS };

typedef struct device { /* c10::Device, passed by value in one register */
    int8_t type, index;
} device;

typedef void (*cpu_new_fn)(void *self, void *block, size_t size);
typedef void (*cpu_delete_fn)(void *self, void *block);
typedef void (*cpu_oom_fn)(void *self, size_t size);
typedef void (*report_fn)(void *block, int64_t size, size_t allocated, size_t reserved, device on);
typedef void (*report_oom_fn)(int64_t size, size_t allocated, size_t reserved, device on);

#define ENTERED cm_producer *t __attribute__((cleanup(cm_emit_leave_hook)))
#define FORWARD(symbol, variant, type) CM_SLOT_ORIGINAL(cm_allocator_symbols[symbol], variant, type)

/* All CPU memory is one device, whatever index the caller gives. */
static inline int8_t index_of(device on)
{
    return on.type == CM_DEVICE_CPU ? -1 : on.index;
}

static inline __attribute__((always_inline)) void
record_alloc_hook(cm_producer *t, const void *block, int64_t size, device on)
{
    cm_operators_hook(t);
    uint32_t stack = cm_walk_capture_hook(cm_producer_walk(t));
    uint8_t flags = cm_emit_node_flags_hook(t, stack);
    cm_event *e = cm_emit_reserve_hook(t);

    if (e == NULL)
        return;
    *e = (cm_event){
        .time = cm_clock_now(),
        .address = (uint64_t)(uintptr_t)block,
        .size = size,
        .stack = stack,
        .kind = CM_EV_ALLOC,
        .flags = flags,
        .device_type = (uint8_t)on.type,
        .device_index = index_of(on),
    };
    cm_commit_hook(t);
}

static inline void record_free_hook(cm_producer *t, const void *block, int64_t size, device on)
{
    cm_event *e = cm_emit_reserve_hook(t);

    if (e == NULL)
        return;
    *e = (cm_event){
        .time = cm_clock_after_loads(),
        .address = (uint64_t)(uintptr_t)block,
        .size = size,
        .kind = CM_EV_FREE,
        .device_type = (uint8_t)on.type,
        .device_index = index_of(on),
    };
    cm_commit_hook(t);
}

static void record_oom_hook(cm_producer *t, int64_t size, uint64_t allocated, device on)
{
    uint32_t stack = cm_walk_capture_hook(cm_producer_walk(t));
    uint8_t flags = cm_emit_node_flags_hook(t, stack);
    cm_event *e = cm_emit_reserve_hook(t);

    if (e == NULL)
        return;
    *e = (cm_event){
        .time = cm_clock_now(),
        .address = allocated,
        .size = size,
        .stack = stack,
        .kind = CM_EV_OOM,
        .flags = flags,
        .device_type = (uint8_t)on.type,
        .device_index = index_of(on),
    };
    cm_commit_hook(t);
}

/* --- totals of a device allocator ---------------------------------------------------------- */

enum { DEVICE_TYPES = 32, DEVICES = 64, REPORTS_BETWEEN = 256 };

/* Last totals emitted, per device. They are emitted again after a change, and now and then without
 * one: the reader checks the recorded heap against the allocated bytes. Reports of one device are
 * serialized by its mutex. */
static struct {
    _Atomic uint64_t reserved;
    _Atomic uint32_t capture; /* in which it was emitted */
    _Atomic uint32_t reports;
} totals[DEVICE_TYPES][DEVICES];

static void record_totals_hook(cm_producer *t, size_t allocated, size_t reserved, device on)
{
    if (on.type <= CM_DEVICE_CPU || on.type >= DEVICE_TYPES || on.index < 0 || on.index >= DEVICES)
        return; /* mapped CPU storages report no totals */
    uint32_t capture = atomic_load_explicit(cm_recording, memory_order_relaxed);
    uint32_t reports =
        atomic_load_explicit(&totals[on.type][on.index].reports, memory_order_relaxed) + 1;

    atomic_store_explicit(&totals[on.type][on.index].reports, reports, memory_order_relaxed);
    if (atomic_load_explicit(&totals[on.type][on.index].reserved, memory_order_relaxed) ==
            reserved &&
        atomic_load_explicit(&totals[on.type][on.index].capture, memory_order_relaxed) == capture &&
        reports % REPORTS_BETWEEN != 0)
        return;
    cm_event *e = cm_emit_reserve_hook(t);
    if (e == NULL)
        return;
    *e = (cm_event){
        .time = cm_clock_now(),
        .address = allocated,
        .size = (int64_t)reserved,
        .kind = CM_EV_RESERVED,
        .device_type = (uint8_t)on.type,
        .device_index = on.index,
    };
    cm_commit_hook(t);
    atomic_store_explicit(&totals[on.type][on.index].reserved, reserved, memory_order_relaxed);
    atomic_store_explicit(&totals[on.type][on.index].capture, capture, memory_order_relaxed);
}

static void (*_Atomic listener)(void);
static atomic_size_t listens_at = SIZE_MAX;

void cm_allocator_set_listener(void (*called)(void), size_t bytes)
{
    atomic_store(&listener, called);
    atomic_store(&listens_at, called == NULL ? SIZE_MAX : bytes);
}

static __attribute__((noinline, cold)) void notify(void)
{
    void (*called)(void) = atomic_load(&listener);

    if (atomic_exchange(&listens_at, SIZE_MAX) != SIZE_MAX && called != NULL)
        called();
}

/* --- the hooks ----------------------------------------------------------------------------- */

static const device cpu = {CM_DEVICE_CPU, -1};

static inline __attribute__((always_inline)) void cpu_new_hook(int variant, void *self, void *block,
                                                               size_t size)
{
    ENTERED = cm_enter_hook();

    if (t != NULL && block != NULL) /* torch.empty(0) reports a block at no address */
        record_alloc_hook(t, block, (int64_t)size, cpu);
    FORWARD(CPU_NEW, variant, cpu_new_fn)(self, block, size);
}

static inline __attribute__((always_inline)) void cpu_delete_hook(int variant, void *self,
                                                                  void *block)
{
    ENTERED = cm_enter_hook();

    if (t != NULL && block != NULL)
        record_free_hook(t, block, 0, cpu);
    FORWARD(CPU_DELETE, variant, cpu_delete_fn)(self, block);
}

static inline __attribute__((always_inline)) void cpu_oom_hook(int variant, void *self, size_t size)
{
    ENTERED = cm_enter_hook();

    if (t != NULL)
        record_oom_hook(t, (int64_t)size, CM_OOM_UNKNOWN, cpu); /* its allocator keeps no total */
    FORWARD(CPU_OOM, variant, cpu_oom_fn)(self, size);
}

static inline __attribute__((always_inline)) void
report_hook(int variant, void *block, int64_t size, size_t allocated, size_t reserved, device on)
{
    uintptr_t site = (uintptr_t)__builtin_return_address(0);
    ENTERED = cm_enter_hook();
    cm_cuda_call *call = size > 0 && on.type == CM_DEVICE_CUDA ? &cm_cuda_tls : NULL;

    if (call != NULL && __builtin_expect(call->taken != 0, 0))
        cm_cuda_segment_hook(t, block, on.index);
    if (t != NULL && block != NULL && size > 0)
        record_alloc_hook(t, block, size, on);
    if (__builtin_expect(cm_cuda_tls.waits != 0, 0)) {
        if (size < 0 && on.type == CM_DEVICE_CUDA)
            cm_cuda_deferred_free_hook(t, on.index, site);
        else if (on.type == CM_DEVICE_CUDA)
            cm_cuda_tls.waits = 0; /* of blocks whose free was reported before */
    }
    if (t != NULL && block != NULL && size < 0)
        record_free_hook(t, block, -size, on);
    if (call != NULL) {
        if (t != NULL && call->requested != 0 && call->requested < (size_t)size)
            cm_cuda_requested_hook(t, block, on.index);
        call->requested = 0;
        call->device = on.index;
    }
    if (t != NULL)
        record_totals_hook(t, allocated, reserved, on);
    size_t mark = atomic_load_explicit(&listens_at, memory_order_relaxed);
    if (__builtin_expect(allocated >= mark, 0))
        notify();
    FORWARD(REPORT, variant, report_fn)(block, size, allocated, reserved, on);
}

static inline __attribute__((always_inline)) void
report_oom_hook(int variant, int64_t size, size_t allocated, size_t reserved, device on)
{
    ENTERED = cm_enter_hook();

    if (t != NULL)
        record_oom_hook(t, size, allocated, on);
    cm_cuda_tls.refused = 0;
    FORWARD(REPORT_OOM, variant, report_oom_fn)(size, allocated, reserved, on);
}

#define VARIANT(n)                                                                                 \
    static void cpu_new_##n(void *self, void *block, size_t size)                                  \
    {                                                                                              \
        cpu_new_hook(n, self, block, size);                                                        \
    }                                                                                              \
    static void cpu_delete_##n(void *self, void *block)                                            \
    {                                                                                              \
        cpu_delete_hook(n, self, block);                                                           \
    }                                                                                              \
    static void cpu_oom_##n(void *self, size_t size)                                               \
    {                                                                                              \
        cpu_oom_hook(n, self, size);                                                               \
    }                                                                                              \
    static void report_##n(void *block, int64_t size, size_t allocated, size_t reserved,           \
                           device on)                                                              \
    {                                                                                              \
        report_hook(n, block, size, allocated, reserved, on);                                      \
    }                                                                                              \
    static void report_oom_##n(int64_t size, size_t allocated, size_t reserved, device on)         \
    {                                                                                              \
        report_oom_hook(n, size, allocated, reserved, on);                                         \
    }
VARIANT(0)
VARIANT(1)
_Static_assert(CM_SLOT_VARIANTS == 2, "one set of hooks for each variant");

#define HOOKS(name) .hooks = {name##_0, name##_1}

cm_slot_symbol cm_allocator_symbols[SYMBOLS] = {
    [CPU_NEW] = {"allocator",
                 "CPU allocation",
                 {"_ZN3c1025ProfiledCPUMemoryReporter3NewEPvm"},
                 HOOKS(cpu_new)},
    [CPU_DELETE] = {"allocator",
                    "CPU free",
                    {"_ZN3c1025ProfiledCPUMemoryReporter6DeleteEPv"},
                    HOOKS(cpu_delete)},
    [CPU_OOM] = {"allocator",
                 "CPU out of memory",
                 {"_ZN3c1025ProfiledCPUMemoryReporter11OutOfMemoryEm"},
                 HOOKS(cpu_oom)},
    [REPORT] = {"allocator",
                "device allocation and free, mapped storages",
                {"_ZN3c1027reportMemoryUsageToProfilerEPvlmmNS_6DeviceE",
                 "_ZN3c1027reportMemoryUsageToProfilerEPvlllNS_6DeviceE",
                 "_ZN3c1027reportMemoryUsageToProfilerEPvmmmNS_6DeviceE"},
                HOOKS(report)},
    [REPORT_OOM] = {"allocator",
                    "device out of memory",
                    {"_ZN3c1027reportOutOfMemoryToProfilerElmmNS_6DeviceE",
                     "_ZN3c1027reportOutOfMemoryToProfilerElllNS_6DeviceE",
                     "_ZN3c1027reportOutOfMemoryToProfilerEmmmNS_6DeviceE"},
                    HOOKS(report_oom)},
};
const size_t cm_allocator_symbol_count = SYMBOLS;
