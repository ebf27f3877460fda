#include "errors.h"
#include "objects.h"
#include "../core/sim.h"

/* The error that a device died of; kernels do nothing, so only a replayed copy can kill it. */
static atomic_int broken[CM_SIM_DEVICES];
static atomic_bool ready[CM_SIM_DEVICES], held[CM_SIM_DEVICES];

void cm_sim_device_break(int device, int error)
{
    atomic_store(&broken[device], error);
}

int cm_sim_device_ready(int *device)
{
    *device = cm_sim_current_device();
    if (!cm_sim_config_get()->devices)
        return CM_CUDA_NO_DEVICE;
    int error = atomic_load_explicit(&broken[*device], memory_order_relaxed);
    if (error)
        return error;
    /* Every launch asks: contexts stay once they are there, so the lock is for the first time. */
    if (atomic_load_explicit(&ready[*device], memory_order_acquire) && !cm_sim_forked())
        return CM_CUDA_OK;
    error = cm_sim_device_hold(*device);
    if (!error && !cm_sim_current_context())
        atomic_store_explicit(&ready[*device], true, memory_order_release);
    return error;
}

int cm_sim_device_hold(int device)
{
    if (device == cm_sim_current_device() && cm_sim_current_context())
        return cm_sim_context(device);
    /* First: a listener may retain the context and release it at once. */
    bool before = atomic_exchange(&held[device], true);
    int error = cm_sim_context(device);
    if (error && !before)
        atomic_store(&held[device], false);
    return error;
}

/* --- peers ------------------------------------------------------------------------------------ */

/* Bit p of the entry of device d: d may use the memory of p. */
static atomic_uint peers[CM_SIM_DEVICES];
_Static_assert((int)CM_SIM_DEVICES <= 32, "a bit for each peer");

static bool is_device(int device)
{
    return device >= 0 && device < cm_sim_config_get()->devices;
}

bool cm_sim_peer_possible(int device, int peer)
{
    return is_device(device) && is_device(peer) && device != peer;
}

int cm_sim_peer_enable(int device, int peer)
{
    if (!is_device(device) || !is_device(peer) || device == peer)
        return CM_CUDA_INVALID_DEVICE;
    unsigned bit = 1u << peer;
    return atomic_fetch_or(&peers[device], bit) & bit ? CM_CUDA_PEER_ALREADY_ENABLED : CM_CUDA_OK;
}

int cm_sim_peer_disable(int device, int peer)
{
    if (!is_device(device) || !is_device(peer) || device == peer)
        return CM_CUDA_INVALID_DEVICE;
    unsigned bit = 1u << peer;
    return atomic_fetch_and(&peers[device], ~bit) & bit ? CM_CUDA_OK : CM_CUDA_PEER_NOT_ENABLED;
}

/* --- a context's end -------------------------------------------------------------------------- */

bool cm_sim_device_held(int device)
{
    return atomic_load(&held[device]);
}

void cm_sim_device_ends(int device, bool last)
{
    atomic_store(&ready[device], false);
    atomic_store(&held[device], false);
    if (!last)
        return;
    atomic_store(&broken[device], CM_CUDA_OK);
    atomic_store(&peers[device], 0);
}

/* --- errors ----------------------------------------------------------------------------------- */

static const struct error {
    int number;
    const char *name, *driver_name, *text;
} errors[] = {
#define ERROR(number, name, driver_name, text) {number, name, driver_name, text},
    CM_SIM_ERRORS(ERROR)
#undef ERROR
};

static const struct error *find(int number)
{
    for (size_t i = 0; i < sizeof errors / sizeof *errors; i++)
        if (errors[i].number == number)
            return &errors[i];
    return NULL;
}

const char *cm_sim_error_name(int error)
{
    const struct error *found = find(error);
    return found ? found->name : NULL;
}

const char *cm_sim_error_driver_name(int error)
{
    const struct error *found = find(error);
    return found ? found->driver_name : NULL;
}

const char *cm_sim_error_text(int error)
{
    const struct error *found = find(error);
    return found ? found->text : NULL;
}
