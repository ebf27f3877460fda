#define _GNU_SOURCE /* RTLD_DEFAULT */
#include "simulated_reads.h"

#include <dlfcn.h>
#include <stddef.h>

#include "emit.h"

/* As in cudasim/csrc/core/sim.h. */
typedef void (*read_hook)(const void *address, size_t bytes, int device, bool written);
typedef void (*set_read_hook_fn)(read_hook hook);

static void host_read_hook(const void *address, size_t bytes, int device, bool written)
{
    cm_producer *t __attribute__((cleanup(cm_emit_leave_hook))) = cm_enter_hook();

    if (t == NULL)
        return;
    cm_event e = {.address = (uint64_t)(uintptr_t)address,
                  .size = (int64_t)bytes,
                  .kind = CM_EV_HOST_READ,
                  .flags = written ? CM_EVF_WRITTEN : 0,
                  .device_type = CM_DEVICE_CUDA,
                  .device_index = (int8_t)device};
    cm_emit_put_stack_hook(t, e);
}

static void set(read_hook hook)
{
    set_read_hook_fn set_hook = (set_read_hook_fn)dlsym(RTLD_DEFAULT, "cm_sim_set_read_hook");

    if (set_hook != NULL)
        set_hook(hook);
}

void cm_simulated_install(void)
{
    set(host_read_hook);
}

void cm_simulated_remove(void)
{
    set(NULL);
}
