/* Driver allocations without CUPTI: calls of CUDA that pass through relocation slots.
 *
 * Not seen are calls by addresses that the program looked up itself (dlsym, ctypes,
 * cuGetProcAddress: PyTorch's expandable segments), and calls of libraries that contain a copy of
 * the CUDA runtime (NCCL, cuBLASLt). The device is the one that the thread chose last; if that was
 * not seen, the only device, and with several devices it is unknown. */
#ifndef CM_SOURCES_CUDA_SLOTS_H
#define CM_SOURCES_CUDA_SLOTS_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

extern atomic_bool cm_cuda_slots_on;

/* Switches these events on or off. The slots themselves are patched with all others (tables.h). */
void cm_cuda_slots_record(bool on);

/* The function that a slot belongs to. */
typedef enum cm_cuda_slot {
    CM_SLOT_cudaMalloc,
    CM_SLOT_cudaFree,
    CM_SLOT_cudaMallocAsync,
    CM_SLOT_cudaFreeAsync,
    CM_SLOT_cudaMallocAsync_ptsz,
    CM_SLOT_cudaFreeAsync_ptsz,
    CM_SLOT_cudaMallocFromPoolAsync,
    CM_SLOT_cudaMallocFromPoolAsync_ptsz,
    CM_SLOT_cudaMallocManaged,
    CM_SLOT_cudaMallocPitch,
    CM_SLOT_cudaMallocHost,
    CM_SLOT_cudaHostAlloc,
    CM_SLOT_cudaFreeHost,
    CM_SLOT_cudaHostRegister,
    CM_SLOT_cudaHostUnregister,
    CM_SLOT_cuMemAlloc_v2,
    CM_SLOT_cuMemFree_v2,
    CM_SLOT_cuMemAllocPitch_v2,
    CM_SLOT_cuMemAllocManaged,
    CM_SLOT_cuMemAllocAsync,
    CM_SLOT_cuMemAllocAsync_ptsz,
    CM_SLOT_cuMemFreeAsync,
    CM_SLOT_cuMemFreeAsync_ptsz,
    CM_SLOT_cuMemHostAlloc,
    CM_SLOT_cuMemAllocHost_v2,
    CM_SLOT_cuMemFreeHost,
    CM_SLOT_cuMemHostRegister_v2,
    CM_SLOT_cuMemHostUnregister,
    CM_SLOT_cuMemCreate,
    CM_SLOT_cuMemRelease,
    CM_SLOT_cuMemMap,
    CM_SLOT_cuMemUnmap,
    CM_SLOT_cuMemAddressReserve,
    CM_SLOT_cuMemAddressFree,
    CM_SLOTS
} cm_cuda_slot;

/* A call that passes through a slot. */
typedef struct cm_slot_call {
    bool on, outer; /* slots were on when it began; it is not nested in another such call */
    uint8_t slot;
    uint32_t generation, events, session;
    uintptr_t site;        /* return address */
    const uint64_t *words; /* its arguments */
} cm_slot_call;

/* To be called around every call, on its thread. The words must live until the end. Hooks. */
void cm_cuda_slot_enter_hook(cm_slot_call *call);
void cm_cuda_slot_exit_hook(cm_slot_call *call, int status);
void cm_cuda_slot_leave_hook(cm_slot_call *call);

/* For __attribute__((cleanup)), which also runs when an exception passes. */
static inline void cm_cuda_slot_cleanup(cm_slot_call *call)
{
    if (__builtin_expect(call->on, 0))
        cm_cuda_slot_leave_hook(call);
}

static inline bool cm_cuda_slots_are_on(void)
{
    return __builtin_expect(atomic_load_explicit(&cm_cuda_slots_on, memory_order_acquire), 0);
}

#endif
