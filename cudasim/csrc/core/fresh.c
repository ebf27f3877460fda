/* Blocks that PyTorch's allocator hands out again.
 *
 * A cached block still holds what the host wrote into it when it was another tensor's, and PyTorch
 * reads sizes from device memory. The allocator reports every block that it hands out (size > 0) or
 * takes back (size < 0) to c10::reportMemoryUsageToProfiler. That is in another library, so the
 * call can be intercepted. */
#include <dlfcn.h>
#include <pthread.h>

#include "sim.h"

enum { C10_CUDA = 1 };

/* c10::Device: two int8_t, which travel in one register. */
typedef struct c10_device {
    int8_t type, index;
} c10_device;

typedef void report_function(void *address, int64_t size, size_t allocated, size_t reserved,
                             c10_device device);

static report_function *next;

/* RTLD_NEXT would not find it: Python opens PyTorch's libraries RTLD_LOCAL. */
static void look_up(void)
{
    void *library = dlopen("libc10.so", RTLD_NOW | RTLD_NOLOAD);

    if (library != NULL)
        next = (report_function *)dlsym(library,
                                        "_ZN3c1027reportMemoryUsageToProfilerEPvlmmNS_6DeviceE");
    if (next == NULL)
        cm_sim_note(CM_SIM_NOTE_UNDESCRIBED, "c10::reportMemoryUsageToProfiler of libc10.so", 0);
}

CM_SIM_EXPORT report_function _ZN3c1027reportMemoryUsageToProfilerEPvlmmNS_6DeviceE;
void _ZN3c1027reportMemoryUsageToProfilerEPvlmmNS_6DeviceE(void *address, int64_t size,
                                                           size_t allocated, size_t reserved,
                                                           c10_device device)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;

    pthread_once(&once, look_up);
    if (device.type == C10_CUDA && size > 0)
        cm_sim_fresh(address, (size_t)size);
    if (next != NULL)
        next(address, size, allocated, reserved, device);
}
