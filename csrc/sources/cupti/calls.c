#include "calls.h"

#include "../../base/event.h"

#define AT(structure, field) offsetof(cm_call_##structure, field)
#define NO_STREAM .stream = CM_CALL_ABSENT
#define NO_HANDLE .handle = CM_CALL_ABSENT
#define PLAIN NO_STREAM, NO_HANDLE

/* How to read each structure. */
#define SIZED(how, structure, field) .sized = CM_SIZED_##how, .size = AT(structure, field)
#define GIVES(structure, field) .does = CM_CALL_GIVES, .address = AT(structure, field)
#define TAKES(structure, field) .does = CM_CALL_TAKES, .address = AT(structure, field)

#define READ_take GIVES(take, address), SIZED(64, take, size), PLAIN
#define READ_take_v1 GIVES(take_v1, address), SIZED(32, take_v1, size), PLAIN, .narrow = true
#define READ_take_host_v1 GIVES(take_host_v1, address), SIZED(32, take_host_v1, size), PLAIN
#define READ_take_pitch GIVES(take_pitch, address), SIZED(PITCH, take_pitch, pitch), PLAIN
#define READ_take_pitch_v1                                                                         \
    GIVES(take_pitch_v1, address), SIZED(PITCH_V1, take_pitch_v1, pitch), PLAIN, .narrow = true
#define READ_take_async                                                                            \
    GIVES(take_async, address), SIZED(64, take_async, size), NO_HANDLE,                            \
        .stream = AT(take_async, stream)
#define READ_take_from_pool                                                                        \
    GIVES(take_from_pool, address), SIZED(64, take_from_pool, size),                               \
        .handle = AT(take_from_pool, pool), .stream = AT(take_from_pool, stream)
#define READ_give TAKES(give, address), PLAIN
#define READ_give_v1 TAKES(give_v1, address), PLAIN, .narrow = true
#define READ_give_async TAKES(give_async, address), NO_HANDLE, .stream = AT(give_async, stream)
#define READ_give_range TAKES(range, address), SIZED(64, range, size), PLAIN
#define READ_range GIVES(range, address), SIZED(64, range, size), PLAIN, .by_value = true
#define READ_create                                                                                \
    GIVES(create, handle), SIZED(64, create, size), PLAIN, .place = CM_PLACE_PROPERTIES,           \
                                                           .where = AT(create, properties)
#define READ_map                                                                                   \
    GIVES(map, address), SIZED(64, map, size), NO_STREAM, .handle = AT(map, handle),               \
                                                          .by_value = true
#define READ_retain GIVES(retain, handle), NO_STREAM, .handle = AT(retain, address)
#define READ_open GIVES(open, address), PLAIN
#define READ_part GIVES(part, address), NO_STREAM, .handle = AT(part, handle)
#define READ_mapped_buffer                                                                         \
    GIVES(mapped_buffer, address), SIZED(BUFFER, mapped_buffer, description), NO_STREAM,           \
        .handle = AT(mapped_buffer, handle)
#define READ_described GIVES(described, handle), PLAIN, .size = AT(described, description)
#define READ_mipmap GIVES(mipmap, handle), SIZED(MIPMAP, mipmap, description), PLAIN
#define READ_add_node                                                                              \
    .does = CM_CALL_GIVES, SIZED(NODE, add_node, parameters), PLAIN, .place = CM_PLACE_NODE
#define READ_add_any_node                                                                          \
    .does = CM_CALL_BUILDS, SIZED(NODE, add_node, parameters), PLAIN, .place = CM_PLACE_NODE,      \
    .generic = true
#define READ_add_any_node_v2                                                                       \
    .does = CM_CALL_BUILDS, SIZED(NODE, add_node_v2, parameters), PLAIN, .place = CM_PLACE_NODE,   \
    .generic = true
#define READ_add_free_node TAKES(add_free_node, address), PLAIN
#define READ_make_pool                                                                             \
    GIVES(described, handle), PLAIN, .place = CM_PLACE_PROPERTIES,                                 \
                                     .where = AT(described, description)
#define READ_make_context                                                                          \
    GIVES(make_context, context), PLAIN, .place = CM_PLACE_DEVICE, .where = AT(make_context, device)
#define READ_make_context_v3                                                                       \
    GIVES(make_context_v3, context), PLAIN, .place = CM_PLACE_DEVICE,                              \
                                            .where = AT(make_context_v3, device)
#define READ_make_context_v4                                                                       \
    GIVES(make_context_v4, context), PLAIN, .place = CM_PLACE_DEVICE,                              \
                                            .where = AT(make_context_v4, device)
#define READ_retain_context                                                                        \
    GIVES(retain_context, context), PLAIN, .place = CM_PLACE_DEVICE,                               \
                                           .where = AT(retain_context, device)
/* The destroyed context is the one recorded when it was made. */
#define READ_reset                                                                                 \
    .does = CM_CALL_TAKES, .address = CM_CALL_ABSENT, PLAIN, .place = CM_PLACE_DEVICE,             \
    .where = AT(reset, device)
#define READ_reset_current .does = CM_CALL_TAKES, .address = CM_CALL_ABSENT, PLAIN
#define READ_moves .does = CM_CALL_MOVES, PLAIN

#define READ_runtime_array                                                                         \
    GIVES(runtime_array, handle), SIZED(RUNTIME_ARRAY, runtime_array, format), PLAIN
#define READ_runtime_array_3d                                                                      \
    GIVES(runtime_array_3d, handle), SIZED(RUNTIME_ARRAY_3D, runtime_array_3d, format), PLAIN
#define READ_runtime_mipmap                                                                        \
    GIVES(runtime_mipmap, handle), SIZED(RUNTIME_MIPMAP, runtime_mipmap, format), PLAIN
#define READ_runtime_3d GIVES(runtime_3d, memory), SIZED(RUNTIME_3D, runtime_3d, memory), PLAIN

#define READ_launch_ex .does = CM_CALL_WORKS, PLAIN, .configured = true

#define D(function, number, structure, ...)                                                        \
    {                                                                                              \
        .name = #function, .id = number, .domain = CM_DOMAIN_DRIVER, READ_##structure, __VA_ARGS__ \
    }
#define R(function, number, structure, ...)                                                        \
    {                                                                                              \
        .name = #function, .id = number, .domain = CM_DOMAIN_RUNTIME, READ_##structure,            \
        __VA_ARGS__                                                                                \
    }
/* Work, and its twin for a default stream of the thread's own. at: the stream, in bytes. */
#define W(function, suffix, number, of_twin, work, at)                                             \
    {.name = #function,                                                                            \
     .id = number,                                                                                 \
     .domain = CM_DOMAIN_DRIVER,                                                                   \
     .does = CM_CALL_WORKS,                                                                        \
     .kind = CM_WORK_##work,                                                                       \
     NO_HANDLE,                                                                                    \
     .stream = at},                                                                                \
    {                                                                                              \
        .name = #function "_" #suffix, .id = of_twin, .domain = CM_DOMAIN_DRIVER,                  \
        .does = CM_CALL_WORKS, .kind = CM_WORK_##work, NO_HANDLE, .stream = at, .per_thread = true \
    }
#define ABSENT CM_CALL_ABSENT
#define KIND(name) .kind = CM_DRIVER_##name
#define WORK(name) .kind = CM_WORK_##name
/* The kind of a free is unknown: one function frees several kinds. */
#define ANY .kind = 0
#define RECORDED .recorded = true
#define HOST .place = CM_PLACE_HOST
#define OWN_DEFAULT .per_thread = true

const cm_call cm_calls[] = {
    D(cuMemAlloc_v2, 243, take, KIND(DEVICE), RECORDED),
    D(cuMemAlloc, 29, take_v1, KIND(DEVICE), RECORDED),
    D(cuMemAllocPitch_v2, 244, take_pitch, KIND(DEVICE), RECORDED),
    D(cuMemAllocPitch, 31, take_pitch_v1, KIND(DEVICE), RECORDED),
    D(cuMemFree_v2, 245, give, ANY, RECORDED),
    D(cuMemFree, 33, give_v1, ANY, RECORDED),
    D(cuMemAllocManaged, 371, take, KIND(MANAGED), RECORDED),

    D(cuMemAllocAsync, 598, take_async, KIND(ASYNC), RECORDED),
    D(cuMemAllocAsync_ptsz, 599, take_async, KIND(ASYNC), RECORDED, OWN_DEFAULT),
    D(cuMemAllocFromPoolAsync, 611, take_from_pool, KIND(ASYNC), RECORDED),
    D(cuMemAllocFromPoolAsync_ptsz, 612, take_from_pool, KIND(ASYNC), RECORDED, OWN_DEFAULT),
    D(cuMemFreeAsync, 600, give_async, ANY, RECORDED),
    D(cuMemFreeAsync_ptsz, 601, give_async, ANY, RECORDED, OWN_DEFAULT),
    D(cuMemPoolCreate, 607, make_pool, KIND(POOL), RECORDED),
    D(cuMemPoolDestroy, 608, give, KIND(POOL), RECORDED),
    D(cuMemPoolTrimTo, 602, moves),
    D(cuMemPoolImportFromShareableHandle, 614, open, KIND(POOL)),
    D(cuMemPoolImportPointer, 616, part, KIND(IPC)),

    D(cuMemHostAlloc, 39, take, KIND(HOST), HOST, RECORDED),
    D(cuMemAllocHost_v2, 294, take, KIND(HOST), HOST, RECORDED),
    D(cuMemAllocHost, 37, take_host_v1, KIND(HOST), HOST, RECORDED),
    D(cuMemFreeHost, 38, give, KIND(HOST), HOST, RECORDED),
    D(cuMemHostRegister_v2, 379, range, KIND(REGISTERED), HOST),
    D(cuMemHostRegister, 301, range, KIND(REGISTERED), HOST),
    D(cuMemHostUnregister, 302, give, KIND(REGISTERED), HOST),

    D(cuMemAddressReserve, 547, take, KIND(RESERVED)),
    D(cuMemAddressFree, 548, give_range, KIND(RESERVED)),
    D(cuMemCreate, 549, create, KIND(PHYSICAL)),
    D(cuMemRelease, 550, give, KIND(PHYSICAL)),
    D(cuMemMap, 551, map, KIND(MAPPED)),
    D(cuMemUnmap, 552, give_range, KIND(MAPPED)),
    D(cuMemRetainAllocationHandle, 565, retain, KIND(REFERENCE)),
    D(cuMemImportFromShareableHandle, 555, open, KIND(IMPORTED)),
    D(cuMulticastCreate, 706, described, KIND(MULTICAST), .sized = CM_SIZED_MULTICAST),

    D(cuArrayCreate_v2, 272, described, KIND(ARRAY), .sized = CM_SIZED_ARRAY),
    D(cuArray3DCreate_v2, 274, described, KIND(ARRAY), .sized = CM_SIZED_ARRAY_3D),
    D(cuArrayDestroy, 89, give, KIND(ARRAY)),
    D(cuMipmappedArrayCreate, 347, mipmap, KIND(ARRAY)),
    D(cuMipmappedArrayDestroy, 349, give, KIND(ARRAY)),

    D(cuIpcOpenMemHandle_v2, 567, open, KIND(IPC)),
    D(cuIpcOpenMemHandle, 329, open, KIND(IPC)),
    D(cuIpcCloseMemHandle, 330, give, KIND(IPC)),
    D(cuImportExternalMemory, 485, described, KIND(EXTERNAL), .sized = CM_SIZED_EXTERNAL),
    D(cuDestroyExternalMemory, 488, give, KIND(EXTERNAL)),
    /* Freed by cuMemFree, so it is identified by its address. */
    D(cuExternalMemoryGetMappedBuffer, 486, mapped_buffer, KIND(IPC)),
    D(cuExternalMemoryGetMappedMipmappedArray, 487, part, KIND(ARRAY)),

    D(cuGraphAddMemAllocNode, 638, add_node, KIND(GRAPH)),
    D(cuGraphAddMemFreeNode, 639, add_free_node, KIND(GRAPH)),
    D(cuGraphAddNode, 712, add_any_node, KIND(GRAPH)),
    D(cuGraphAddNode_v2, 723, add_any_node_v2, KIND(GRAPH)),
    D(cuDeviceGraphMemTrim, 640, moves),

    D(cuCtxCreate_v4, 757, make_context_v4, KIND(CONTEXT)),
    D(cuCtxCreate_v3, 645, make_context_v3, KIND(CONTEXT)),
    D(cuCtxCreate_v2, 235, make_context, KIND(CONTEXT)),
    D(cuCtxCreate, 10, make_context, KIND(CONTEXT)),
    D(cuCtxDestroy_v2, 322, give, KIND(CONTEXT)),
    D(cuCtxDestroy, 11, give, KIND(CONTEXT)),
    D(cuDevicePrimaryCtxRetain, 386, retain_context, KIND(CONTEXT), .primary = true),
    /* The resource callback reports whether this was the last reference. */
    D(cuDevicePrimaryCtxRelease_v2, 544, moves),
    D(cuDevicePrimaryCtxRelease, 387, moves),
    D(cuDevicePrimaryCtxReset_v2, 545, reset, KIND(CONTEXT)),
    D(cuDevicePrimaryCtxReset, 389, reset, KIND(CONTEXT)),

    /* The runtime's: recorded only if no driver call was seen inside. */
    R(cudaMalloc_v3020, 20, take, KIND(DEVICE)),
    R(cudaMallocPitch_v3020, 21, take_pitch, KIND(DEVICE)),
    R(cudaMalloc3D_v3020, 140, runtime_3d, KIND(DEVICE)),
    R(cudaFree_v3020, 22, give, ANY),
    R(cudaMallocManaged_v6000, 206, take, KIND(MANAGED)),
    R(cudaMallocAsync_v11020, 373, take_async, KIND(ASYNC)),
    R(cudaMallocAsync_ptsz_v11020, 374, take_async, KIND(ASYNC), OWN_DEFAULT),
    R(cudaMallocFromPoolAsync_v11020, 391, take_from_pool, KIND(ASYNC)),
    R(cudaMallocFromPoolAsync_ptsz_v11020, 392, take_from_pool, KIND(ASYNC), OWN_DEFAULT),
    R(cudaFreeAsync_v11020, 375, give_async, ANY),
    R(cudaFreeAsync_ptsz_v11020, 376, give_async, ANY, OWN_DEFAULT),
    R(cudaMemPoolCreate_v11020, 383, make_pool, KIND(POOL)),
    R(cudaMemPoolDestroy_v11020, 384, give, KIND(POOL)),
    R(cudaMemPoolImportFromShareableHandle_v11020, 388, open, KIND(POOL)),
    R(cudaMemPoolImportPointer_v11020, 390, part, KIND(IPC)),
    R(cudaMemPoolTrimTo_v11020, 377, moves),
    R(cudaMallocHost_v3020, 25, take, KIND(HOST), HOST),
    R(cudaHostAlloc_v3020, 27, take, KIND(HOST), HOST),
    R(cudaFreeHost_v3020, 26, give, KIND(HOST), HOST),
    R(cudaHostRegister_v4000, 152, range, KIND(REGISTERED), HOST),
    R(cudaHostUnregister_v4000, 153, give, KIND(REGISTERED), HOST),
    R(cudaMallocArray_v3020, 23, runtime_array, KIND(ARRAY)),
    R(cudaMalloc3DArray_v3020, 141, runtime_array_3d, KIND(ARRAY)),
    R(cudaFreeArray_v3020, 24, give, KIND(ARRAY)),
    R(cudaMallocMipmappedArray_v5000, 192, runtime_mipmap, KIND(ARRAY)),
    R(cudaFreeMipmappedArray_v5000, 194, give, KIND(ARRAY)),
    R(cudaIpcOpenMemHandle_v4010, 179, open, KIND(IPC)),
    R(cudaIpcCloseMemHandle_v4010, 180, give, KIND(IPC)),
    R(cudaImportExternalMemory_v10000, 274, described, KIND(EXTERNAL), .sized = CM_SIZED_EXTERNAL),
    R(cudaDestroyExternalMemory_v10000, 277, give, KIND(EXTERNAL)),
    R(cudaExternalMemoryGetMappedBuffer_v10000, 275, mapped_buffer, KIND(IPC)),
    R(cudaExternalMemoryGetMappedMipmappedArray_v10000, 276, part, KIND(ARRAY)),
    R(cudaGraphAddMemAllocNode_v11040, 419, add_node, KIND(GRAPH)),
    R(cudaGraphAddMemFreeNode_v11040, 421, add_free_node, KIND(GRAPH)),
    R(cudaDeviceReset_v3020, 164, reset_current, KIND(CONTEXT)),
    R(cudaThreadExit_v3020, 123, reset_current, KIND(CONTEXT)),

    W(cuLaunchKernel, ptsz, 307, 442, KERNEL, 40),
    W(cuLaunchCooperativeKernel, ptsz, 477, 478, KERNEL, 40),
    D(cuLaunchKernelEx, 652, launch_ex, WORK(KERNEL)),
    D(cuLaunchKernelEx_ptsz, 653, launch_ex, WORK(KERNEL), OWN_DEFAULT),
    W(cuGraphLaunch, ptsz, 514, 515, GRAPH, 8),

    W(cuMemcpy, ptds, 305, 408, COPY, ABSENT),
    W(cuMemcpyPeer, ptds, 318, 409, COPY, ABSENT),
    W(cuMemcpy3DPeer, ptds, 320, 410, COPY, ABSENT),
    W(cuMemcpyHtoD_v2, ptds, 276, 397, COPY, ABSENT),
    W(cuMemcpyDtoH_v2, ptds, 278, 398, COPY, ABSENT),
    W(cuMemcpyDtoD_v2, ptds, 280, 399, COPY, ABSENT),
    W(cuMemcpyDtoA_v2, ptds, 285, 400, COPY, ABSENT),
    W(cuMemcpyAtoD_v2, ptds, 284, 401, COPY, ABSENT),
    W(cuMemcpyHtoA_v2, ptds, 292, 402, COPY, ABSENT),
    W(cuMemcpyAtoH_v2, ptds, 282, 403, COPY, ABSENT),
    W(cuMemcpyAtoA_v2, ptds, 286, 404, COPY, ABSENT),
    W(cuMemcpy2D_v2, ptds, 287, 405, COPY, ABSENT),
    W(cuMemcpy2DUnaligned_v2, ptds, 288, 406, COPY, ABSENT),
    W(cuMemcpy3D_v2, ptds, 290, 407, COPY, ABSENT),
    W(cuMemcpyAsync, ptsz, 306, 418, COPY, 24),
    W(cuMemcpyPeerAsync, ptsz, 319, 426, COPY, 40),
    W(cuMemcpy3DPeerAsync, ptsz, 321, 427, COPY, 8),
    W(cuMemcpyHtoDAsync_v2, ptsz, 277, 421, COPY, 24),
    W(cuMemcpyDtoHAsync_v2, ptsz, 279, 422, COPY, 24),
    W(cuMemcpyDtoDAsync_v2, ptsz, 281, 423, COPY, 24),
    W(cuMemcpyHtoAAsync_v2, ptsz, 293, 419, COPY, 32),
    W(cuMemcpyAtoHAsync_v2, ptsz, 283, 420, COPY, 32),
    W(cuMemcpy2DAsync_v2, ptsz, 289, 424, COPY, 8),
    W(cuMemcpy3DAsync_v2, ptsz, 291, 425, COPY, 8),
    W(cuMemcpyBatchAsync, ptsz, 776, 777, COPY, 64),
    W(cuMemcpyBatchAsync_v2, ptsz, 796, 797, COPY, 56),
    W(cuMemcpy3DBatchAsync, ptsz, 778, 779, COPY, 32),
    W(cuMemcpy3DBatchAsync_v2, ptsz, 798, 799, COPY, 24),
    W(cuMemcpyWithAttributesAsync, ptsz, 837, 838, COPY, 32),
    W(cuMemcpy3DWithAttributesAsync, ptsz, 839, 840, COPY, 16),

    W(cuMemsetD8_v2, ptds, 249, 411, SET, ABSENT),
    W(cuMemsetD16_v2, ptds, 250, 412, SET, ABSENT),
    W(cuMemsetD32_v2, ptds, 251, 413, SET, ABSENT),
    W(cuMemsetD2D8_v2, ptds, 252, 414, SET, ABSENT),
    W(cuMemsetD2D16_v2, ptds, 253, 415, SET, ABSENT),
    W(cuMemsetD2D32_v2, ptds, 254, 416, SET, ABSENT),
    W(cuMemsetD8Async, ptsz, 216, 428, SET, 24),
    W(cuMemsetD16Async, ptsz, 218, 429, SET, 24),
    W(cuMemsetD32Async, ptsz, 220, 430, SET, 24),
    W(cuMemsetD2D8Async, ptsz, 222, 431, SET, 40),
    W(cuMemsetD2D16Async, ptsz, 224, 432, SET, 40),
    W(cuMemsetD2D32Async, ptsz, 226, 433, SET, 40),
};
const size_t cm_call_count = sizeof cm_calls / sizeof cm_calls[0];
_Static_assert(sizeof cm_calls / sizeof cm_calls[0] < 255, "a row's number is a byte");

/* --- sizes of arrays ----------------------------------------------------------------------------
 */

typedef struct format {
    uint8_t number;
    uint8_t bits;     /* of a channel, or of an element */
    bool per_channel; /* ... of a channel */
    bool block;
} format;

/* CUarray_format. Planes of fewer samples count for their share. */
static const format formats[] = {
    {0x01, 8, true, false},   {0x02, 16, true, false},  {0x03, 32, true, false},
    {0x08, 8, true, false},   {0x09, 16, true, false},  {0x0a, 32, true, false},
    {0x10, 16, true, false},  {0x20, 32, true, false},  {0x50, 32, false, false},
    {0x91, 4, false, true},   {0x92, 4, false, true},   {0x93, 8, false, true},
    {0x94, 8, false, true},   {0x95, 8, false, true},   {0x96, 8, false, true},
    {0x97, 4, false, true},   {0x98, 4, false, true},   {0x99, 8, false, true},
    {0x9a, 8, false, true},   {0x9b, 8, false, true},   {0x9c, 8, false, true},
    {0x9d, 8, false, true},   {0x9e, 8, false, true},   {0x9f, 24, false, false},
    {0xa1, 24, false, false}, {0xa2, 16, false, false}, {0xa3, 32, false, false},
    {0xa4, 32, false, false}, {0xa5, 16, false, false}, {0xa6, 32, false, false},
    {0xa7, 32, false, false}, {0xa8, 32, false, false}, {0xa9, 32, false, false},
    {0xb0, 12, false, false}, {0xb1, 64, false, false}, {0xb2, 24, false, false},
    {0xb3, 48, false, false}, {0xb4, 24, false, false}, {0xb5, 48, false, false},
    {0xc0, 8, false, false},  {0xc1, 16, false, false}, {0xc2, 32, false, false},
    {0xc3, 16, false, false}, {0xc4, 32, false, false}, {0xc5, 64, false, false},
    {0xc6, 8, false, false},  {0xc7, 16, false, false}, {0xc8, 32, false, false},
    {0xc9, 16, false, false}, {0xca, 32, false, false}, {0xcb, 64, false, false},
};

unsigned cm_array_bits(int number, unsigned channels, bool *block)
{
    for (size_t i = 0; i < sizeof formats / sizeof formats[0]; i++) {
        if (formats[i].number != number)
            continue;
        *block = formats[i].block;
        return formats[i].bits * (formats[i].per_channel ? channels : 1u);
    }
    *block = false;
    return 0;
}

unsigned cm_channel_bits(const cm_channel_format *format, bool *block)
{
    enum { NV12 = 4, BC1 = 17, BC1_SRGB = 18, BC4 = 23, BC4_SIGNED = 24, BC7_SRGB = 30 };
    int kind = format->kind;

    *block = kind >= BC1 && kind <= BC7_SRGB;
    if (*block)
        return kind == BC1 || kind == BC1_SRGB || kind == BC4 || kind == BC4_SIGNED ? 4 : 8;
    if (kind == NV12)
        return 12;
    return (unsigned)(format->bits[0] + format->bits[1] + format->bits[2] + format->bits[3]);
}

static size_t whole_blocks(size_t extent, bool block)
{
    return block ? (extent + 3) / 4 * 4 : extent;
}

static size_t halved(size_t extent, unsigned times)
{
    extent = times < 64 ? extent >> times : 0;
    return extent != 0 ? extent : 1;
}

int64_t cm_array_bytes(size_t width, size_t height, size_t depth, bool layers, unsigned levels,
                       unsigned bits, bool block)
{
    const size_t most = (size_t)1 << 20; /* in any dimension, far beyond what a device allows */
    unsigned __int128 bytes = 0;

    if (width > most || height > most || depth > most)
        return 0;
    for (unsigned level = 0; level < levels && level < 64; level++) {
        unsigned __int128 elements = whole_blocks(halved(width, level), block);
        elements *= height != 0 ? whole_blocks(halved(height, level), block) : 1;
        if (depth != 0)
            elements *= layers ? depth : halved(depth, level);
        bytes += (elements * bits + 7) / 8;
    }
    return bytes >> 62 != 0 ? 0 : (int64_t)bytes;
}
