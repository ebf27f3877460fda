/* What the runtime, the driver, NVML and CUPTI share of devices: identity, attributes, contexts. */
#ifndef CM_SIM_DEVICES_H
#define CM_SIM_DEVICES_H

#include <stddef.h>
#include <stdint.h>

/* --- driver_device.c -------------------------------------------------------------------------- */

/* Devices have two numbers: `device` counts what the program sees (CUDA_VISIBLE_DEVICES),
 * `installed` what NVML sees; cm_sim_config.ordinal leads from the first to the second. */

/* The same for a device in every process and every surface, another for every device. */
void cm_sim_uuid(int device, uint8_t bytes[16]);
void cm_sim_installed_uuid(int installed, uint8_t bytes[16]);

/* The devices sit alone on buses 1, 2, ... of domain 0. */
enum { CM_SIM_PCI_DOMAIN = 0, CM_SIM_PCI_DEVICE = 0 };
static inline int cm_sim_pci_bus(int installed)
{
    return installed + 1;
}
/* The installed device at any of "0000:01:00.0", "00000000:01:00.0", "01:00.0". -1: none is. */
int cm_sim_pci_find(const char *text);

/* Attributes have the same numbers in the runtime and in the driver. 101: no such device, 1: no
 * such attribute. `value` may be NULL. */
int cm_sim_device_attribute(int device, int attribute, int *value);

/* --- driver_context.c ------------------------------------------------------------------------- */

/* The context that a call on a device is made in; NULL: there is none yet, or any more. */
struct cm_cu_context *cm_cu_context_on(int device);
/* The device of a context; -1: no context, or destroyed. */
int cm_cu_context_device(const struct cm_cu_context *context);
/* Ends the device's primary context with all that lives in it; without one it is nothing. */
void cm_sim_primary_reset(int device);

/* --- runtime_symbol.c ------------------------------------------------------------------------- */

/* The memory of variables that lives in a context is about to be given back. */
void cm_sim_symbols_end(int device, unsigned context);

/* --- driver_launch.c -------------------------------------------------------------------------- */

/* Blocks of a kernel that fit one multiprocessor of the device at once; 0: none does. */
int cm_sim_occupancy(int device, int threads, int registers, size_t shared);

#endif
