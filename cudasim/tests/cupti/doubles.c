/* What the CUPTI surface asks of the rest of the simulator, and calls as an entry point makes them.
 */
#include "doubles.h"

#include <stdlib.h>
#include <string.h>

#include "objects/calls.h"
#include "driver/driver.h"
#include "objects/objects.h"
#include "objects/objects_stream.h"
#include "core/sim.h"

static cm_sim_config configuration = {
    .devices = 2,
    .device = {{.sms = 132, .threads_per_sm = 2048}, {.sms = 132, .threads_per_sm = 2048}}};
static char contexts[2], pools[2];
static cm_sim_stream a_default = {.id = 1}, streams[8];
static atomic_ullong launches, done;
enum { FIRST_ID = 2 * CM_SIM_DEVICES + 1 };
static atomic_uintptr_t addresses = 0x10000000;
static atomic_int notes;
static const char nothing[128]; /* parameters that nobody looks at */

const cm_sim_config *cm_sim_config_get(void)
{
    return &configuration;
}

int cm_sim_cuda_major(void)
{
    return 13;
}

void cm_sim_note(cm_sim_note_kind kind, const char *name, uint64_t bytes)
{
    (void)kind, (void)name, (void)bytes;
    atomic_fetch_add(&notes, 1);
}

int noted(void)
{
    return atomic_exchange(&notes, 0);
}

bool cm_sim_has_context(int device)
{
    return device < 2;
}

bool cm_sim_find(const void *address, cm_sim_block *block)
{
    block->kind = CM_SIM_DEVICE;
    return (uintptr_t)address >= 0x10000000 && (uintptr_t)address < 0x20000000;
}

bool cm_sim_host_find(const void *address, uintptr_t *start, size_t *bytes)
{
    *start = (uintptr_t)address;
    *bytes = 1;
    return (uintptr_t)address == 0x5000;
}

cm_cu_context *cm_cu_primary(int device)
{
    return (cm_cu_context *)&contexts[device];
}

cm_cu_context *cm_cu_context_on(int device)
{
    return cm_cu_primary(device);
}

int cm_cu_context_device(const cm_cu_context *context)
{
    for (int device = 0; device < 2; device++)
        if ((const char *)context == &contexts[device])
            return device;
    return -1;
}

cm_sim_stream *cm_sim_stream_find(cm_sim_stream *handle)
{
    if ((uintptr_t)handle <= 2)
        return &a_default;
    return handle >= streams && handle < streams + 8 ? handle : NULL;
}

uint64_t cm_sim_stream_id(const cm_sim_stream *stream)
{
    return stream == &a_default ? 1 : FIRST_ID + (uint64_t)(stream - streams);
}

uint64_t cm_sim_launches(int device)
{
    (void)device;
    return atomic_load(&launches);
}

uint64_t cm_sim_device_done(int device)
{
    (void)device;
    return atomic_load(&done);
}

void lag(unsigned count)
{
    configuration.event_lag = count;
}

void synchronize(void)
{
    atomic_store(&done, atomic_load(&launches));
}

void *a_stream(int i)
{
    return i ? &streams[i - 1] : NULL;
}

void *a_context(int device)
{
    return &contexts[device];
}

cm_sim_pool *cm_sim_pool_current(int device)
{
    return (cm_sim_pool *)&pools[device];
}

void *a_pool(int device)
{
    return &pools[device];
}

int cm_sim_pool_get(cm_sim_pool *pool, int attribute, void *value)
{
    (void)pool;
    uint64_t number = attribute == 4 ? 11 : attribute == 5 ? 32 << 20 : 4096;
    memcpy(value, &number, sizeof number);
    return 0;
}

/* --- Calls -------------------------------------------------------------------------------------
 */

enum { ALLOCATED = 1, RELEASED = 2, IN_DEVICE = 3 };
enum { CUDA_MALLOC = 20, CUDA_FREE = 22, CUDA_LAUNCH = 211 };

static void record_memory(const cm_sim_call *call, int operation, const void *address, size_t bytes)
{
    cm_sim_record_memory(call, &(cm_sim_memory_event){.operation = operation,
                                                      .kind = IN_DEVICE,
                                                      .device = call->device,
                                                      .address = address,
                                                      .bytes = bytes});
}

uintptr_t call_malloc(int device, size_t bytes)
{
    void *address = (void *)atomic_fetch_add(&addresses, bytes);
    if (!cm_sim_cupti_wanted())
        return (uintptr_t)address;
    void *given = NULL;
    uint64_t pointer = 0;
    struct {
        void **pointer;
        size_t bytes;
    } runtime = {&given, bytes};
    struct {
        uint64_t *pointer;
        size_t bytes;
    } driver = {&pointer, bytes};
    cm_sim_call call;
    cm_sim_runtime_enter(&call, device, CUDA_MALLOC, "cudaMalloc", &runtime, NULL);
    cm_sim_driver_enter(&call, device, CM_CBID_cuMemAlloc_v2, "cuMemAlloc_v2", &driver, NULL);
    pointer = (uintptr_t)address;
    given = address;
    record_memory(&call, ALLOCATED, address, bytes);
    cm_sim_driver_exit(&call, 0);
    cm_sim_runtime_exit(&call, 0);
    return (uintptr_t)address;
}

void call_free(int device, uintptr_t address, size_t bytes)
{
    if (!cm_sim_cupti_wanted())
        return;
    uintptr_t parameters = address;
    cm_sim_call call;
    cm_sim_runtime_enter(&call, device, CUDA_FREE, "cudaFree", &parameters, NULL);
    cm_sim_driver_enter(&call, device, CM_CBID_cuMemFree_v2, "cuMemFree_v2", &parameters, NULL);
    record_memory(&call, RELEASED, (void *)address, bytes);
    cm_sim_driver_exit(&call, 0);
    cm_sim_runtime_exit(&call, 0);
}

void call_launch(int device, int stream, const char *name)
{
    static const unsigned grid[3] = {8, 4, 2}, block[3] = {128, 2, 1};
    if (!cm_sim_cupti_wanted())
        return;
    cm_sim_call call;
    cm_sim_runtime_enter(&call, device, CUDA_LAUNCH, "cudaLaunchKernel", nothing, name);
    cm_sim_driver_enter(&call, device, CM_CBID_cuLaunchKernel, "cuLaunchKernel", nothing, name);
    atomic_fetch_add(&launches, 1);
    cm_sim_record_kernel(&call, name, grid, block, 1024, a_stream(stream));
    cm_sim_driver_exit(&call, 0);
    cm_sim_runtime_exit(&call, 0);
}

void call_copy(int device, int kind, uintptr_t to, uintptr_t from, size_t bytes)
{
    if (!cm_sim_cupti_wanted())
        return;
    cm_cudaMemcpyAsync_params parameters = {(void *)to, (void *)from, bytes, kind, NULL};
    cm_sim_call call;
    cm_sim_runtime_enter(&call, device, 41, "cudaMemcpyAsync", &parameters, NULL);
    cm_sim_record_copy(&call, kind, bytes, NULL);
    cm_sim_runtime_exit(&call, 0);
}

void call_set(int device, int value, size_t bytes)
{
    if (!cm_sim_cupti_wanted())
        return;
    cm_sim_call call;
    cm_sim_runtime_enter(&call, device, 49, "cudaMemset", nothing, NULL);
    cm_sim_record_set(&call, value, bytes, NULL);
    cm_sim_runtime_exit(&call, 0);
}

void call_malloc_async(int device, int stream, size_t bytes)
{
    if (!cm_sim_cupti_wanted())
        return;
    cm_sim_call call = {.runtime = false};
    cm_sim_driver_enter(&call, device, CM_CBID_cuMemAllocAsync, "cuMemAllocAsync", nothing, NULL);
    cm_sim_record_pool(1, a_pool(device), device, 0);
    cm_sim_record_memory(&call, &(cm_sim_memory_event){.operation = ALLOCATED,
                                                       .kind = IN_DEVICE,
                                                       .device = device,
                                                       .address = (void *)0x11000000,
                                                       .bytes = bytes,
                                                       .pool = a_pool(device),
                                                       .stream = a_stream(stream)});
    cm_sim_driver_exit(&call, 2);
}
