/* NVML: what monitors, PyTorch's out-of-memory message and launchers ask of the installed devices.
 *
 * Devices count as installed, whatever CUDA_VISIBLE_DEVICES is. A simulated device has no sensors:
 * temperatures, power and clocks now are not supported (tables/nvml.txt). Only this process uses
 * it: other simulated processes have devices of their own. */
#include "../objects/devices.h"
#include "../core/sim.h"

#include <stdio.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

enum {
    OK = 0,
    UNINITIALIZED = 1,
    INVALID_ARGUMENT = 2,
    NOT_SUPPORTED = 3,
    NOT_FOUND = 6,
    INSUFFICIENT_SIZE = 7,
    VERSION_MISMATCH = 25
};

static const char driver_version[] = "580.65.06"; /* the first of CUDA 13.0 */
static const char nvml_version[] = "13.580.65.06";

static atomic_int users;

/* nvmlDevice_t: the address of its number. */
typedef struct device {
    char unused;
} device;
static device devices[CM_SIM_DEVICES];

static const cm_sim_profile *profile_of(const device *handle, int *result)
{
    const cm_sim_config *config = cm_sim_config_get();
    *result = atomic_load(&users) ? INVALID_ARGUMENT : UNINITIALIZED;
    if (*result == UNINITIALIZED || handle < devices || handle >= devices + config->installed)
        return NULL;
    *result = OK;
    return &config->all[handle - devices];
}

/* The number that the program knows it by; -1: it may not see it. */
static int visible(const device *handle)
{
    const cm_sim_config *config = cm_sim_config_get();
    for (int i = 0; i < config->devices; i++)
        if (config->ordinal[i] == handle - devices)
            return i;
    return -1;
}

static size_t used(const device *handle)
{
    size_t now = 0, peak = 0;
    int number = visible(handle);
    if (number >= 0)
        cm_sim_used(number, &now, &peak);
    return now;
}

static int text(char *out, unsigned room, const char *what)
{
    if (!out)
        return INVALID_ARGUMENT;
    if (strlen(what) >= room)
        return INSUFFICIENT_SIZE;
    strcpy(out, what);
    return OK;
}

/* --- beginning -------------------------------------------------------------------------------- */

CM_SIM_EXPORT int nvmlInit_v2(void)
{
    CM_SIM_ENTRY;
    atomic_fetch_add(&users, 1);
    return OK;
}
CM_SIM_ALIAS(nvmlInit_v2, nvmlInit);

CM_SIM_EXPORT int nvmlInitWithFlags(unsigned flags)
{
    (void)flags; /* whether no device, or none to attach, is an error: there are some */
    return nvmlInit_v2();
}

CM_SIM_EXPORT int nvmlShutdown(void)
{
    CM_SIM_ENTRY;
    int now = atomic_load(&users);
    do {
        if (!now)
            return UNINITIALIZED;
    } while (!atomic_compare_exchange_weak(&users, &now, now - 1));
    return OK;
}

CM_SIM_EXPORT const char *nvmlErrorString(int result)
{
    static const char *const texts[] = {[OK] = "Success",
                                        [UNINITIALIZED] = "Uninitialized",
                                        [INVALID_ARGUMENT] = "Invalid Argument",
                                        [NOT_SUPPORTED] = "Not Supported",
                                        [4] = "Insufficient Permissions",
                                        [5] = "Already Initialized",
                                        [NOT_FOUND] = "Not Found",
                                        [INSUFFICIENT_SIZE] = "Insufficient Size",
                                        [9] = "Driver Not Loaded",
                                        [10] = "Timeout",
                                        [13] = "Function Not Found",
                                        [VERSION_MISMATCH] = "Argument Version Mismatch"};
    bool known = result >= 0 && result < (int)(sizeof texts / sizeof *texts) && texts[result];
    return known ? texts[result] : "Unknown Error";
}

CM_SIM_EXPORT int nvmlSystemGetDriverVersion(char *out, unsigned room)
{
    CM_SIM_ENTRY;
    return atomic_load(&users) ? text(out, room, driver_version) : UNINITIALIZED;
}

CM_SIM_EXPORT int nvmlSystemGetNVMLVersion(char *out, unsigned room)
{
    CM_SIM_ENTRY;
    return text(out, room, nvml_version);
}

CM_SIM_EXPORT int nvmlSystemGetCudaDriverVersion_v2(int *version)
{
    CM_SIM_ENTRY;
    if (!version)
        return INVALID_ARGUMENT;
    *version = cm_sim_config_get()->driver_version;
    return OK;
}
CM_SIM_ALIAS(nvmlSystemGetCudaDriverVersion_v2, nvmlSystemGetCudaDriverVersion);

/* --- finding devices -------------------------------------------------------------------------- */

CM_SIM_EXPORT int nvmlDeviceGetCount_v2(unsigned *count)
{
    CM_SIM_ENTRY;
    if (!atomic_load(&users))
        return UNINITIALIZED;
    if (!count)
        return INVALID_ARGUMENT;
    *count = (unsigned)cm_sim_config_get()->installed;
    return OK;
}
CM_SIM_ALIAS(nvmlDeviceGetCount_v2, nvmlDeviceGetCount);

static int give(int installed, int otherwise, device **out)
{
    if (!atomic_load(&users))
        return UNINITIALIZED;
    if (!out)
        return INVALID_ARGUMENT;
    if (installed < 0 || installed >= cm_sim_config_get()->installed)
        return otherwise;
    *out = &devices[installed];
    return OK;
}

CM_SIM_EXPORT int nvmlDeviceGetHandleByIndex_v2(unsigned index, device **out)
{
    CM_SIM_ENTRY;
    return give(index < CM_SIM_DEVICES ? (int)index : -1, INVALID_ARGUMENT, out);
}
CM_SIM_ALIAS(nvmlDeviceGetHandleByIndex_v2, nvmlDeviceGetHandleByIndex);

enum { UUID_TEXT = 41 };

static void uuid_text(int installed, char out[UUID_TEXT])
{
    uint8_t b[16];
    cm_sim_installed_uuid(installed, b);
    snprintf(out, UUID_TEXT,
             "GPU-%02x%02x%02x%02x-%02x%02x-%02x%02x-%02x%02x-%02x%02x%02x%02x%02x%02x", b[0], b[1],
             b[2], b[3], b[4], b[5], b[6], b[7], b[8], b[9], b[10], b[11], b[12], b[13], b[14],
             b[15]);
}

CM_SIM_EXPORT int nvmlDeviceGetHandleByUUID(const char *uuid, device **out)
{
    CM_SIM_ENTRY;
    int found = -1;
    if (!uuid)
        return INVALID_ARGUMENT;
    for (int i = 0; found < 0 && i < cm_sim_config_get()->installed; i++) {
        char known[UUID_TEXT];
        uuid_text(i, known);
        found = strcasecmp(known, uuid) ? -1 : i;
    }
    return give(found, NOT_FOUND, out);
}

CM_SIM_EXPORT int nvmlDeviceGetHandleByPciBusId_v2(const char *bus, device **out)
{
    CM_SIM_ENTRY;
    return bus ? give(cm_sim_pci_find(bus), NOT_FOUND, out) : INVALID_ARGUMENT;
}
CM_SIM_ALIAS(nvmlDeviceGetHandleByPciBusId_v2, nvmlDeviceGetHandleByPciBusId);

/* --- what a device is ------------------------------------------------------------------------- */

CM_SIM_EXPORT int nvmlDeviceGetName(device *handle, char *out, unsigned room)
{
    CM_SIM_ENTRY;
    int result;
    const cm_sim_profile *profile = profile_of(handle, &result);
    return profile ? text(out, room, profile->name) : result;
}

CM_SIM_EXPORT int nvmlDeviceGetUUID(device *handle, char *out, unsigned room)
{
    CM_SIM_ENTRY;
    int result;
    if (!profile_of(handle, &result))
        return result;
    char uuid[UUID_TEXT];
    uuid_text((int)(handle - devices), uuid);
    return text(out, room, uuid);
}

static int number(device *handle, unsigned *out, unsigned value)
{
    int result;
    if (!profile_of(handle, &result))
        return result;
    if (!out)
        return INVALID_ARGUMENT;
    *out = value;
    return OK;
}

CM_SIM_EXPORT int nvmlDeviceGetIndex(device *handle, unsigned *index)
{
    CM_SIM_ENTRY;
    return number(handle, index, (unsigned)(handle - devices));
}

CM_SIM_EXPORT int nvmlDeviceGetMinorNumber(device *handle, unsigned *minor)
{
    CM_SIM_ENTRY;
    return number(handle, minor, (unsigned)(handle - devices));
}

/* nvmlPciInfo_t since CUDA 10 */
typedef struct pci {
    char old_bus[16];
    unsigned domain, bus, device, vendor_and_device, subsystem;
    char bus_text[32];
} pci;

CM_SIM_EXPORT int nvmlDeviceGetPciInfo_v3(device *handle, pci *out)
{
    enum { VENDOR = 0x10de };
    CM_SIM_ENTRY;
    int result;
    if (!profile_of(handle, &result))
        return result;
    if (!out)
        return INVALID_ARGUMENT;
    unsigned bus = (unsigned)cm_sim_pci_bus((int)(handle - devices));
    *out = (pci){.domain = CM_SIM_PCI_DOMAIN,
                 .bus = bus,
                 .device = CM_SIM_PCI_DEVICE,
                 .vendor_and_device = VENDOR};
    snprintf(out->old_bus, sizeof out->old_bus, "%04x:%02x:%02x.0", CM_SIM_PCI_DOMAIN, bus & 0xff,
             CM_SIM_PCI_DEVICE);
    snprintf(out->bus_text, sizeof out->bus_text, "%08x:%02x:%02x.0", CM_SIM_PCI_DOMAIN, bus,
             CM_SIM_PCI_DEVICE);
    return OK;
}

CM_SIM_EXPORT int nvmlDeviceGetCudaComputeCapability(device *handle, int *major, int *minor)
{
    CM_SIM_ENTRY;
    int result;
    const cm_sim_profile *profile = profile_of(handle, &result);
    if (!profile)
        return result;
    if (!major || !minor)
        return INVALID_ARGUMENT;
    *major = profile->major;
    *minor = profile->minor;
    return OK;
}

/* nvmlDeviceArchitecture_t: generations by compute capability. */
CM_SIM_EXPORT int nvmlDeviceGetArchitecture(device *handle, unsigned *out)
{
    enum { VOLTA = 5, TURING = 6, AMPERE = 7, ADA = 8, HOPPER = 9, BLACKWELL = 10 };
    CM_SIM_ENTRY;
    int result;
    const cm_sim_profile *profile = profile_of(handle, &result);
    if (!profile)
        return result;
    unsigned is = BLACKWELL;
    if (profile->major == 7)
        is = profile->minor >= 5 ? TURING : VOLTA;
    else if (profile->major == 8)
        is = profile->minor == 9 ? ADA : AMPERE;
    else if (profile->major == 9)
        is = HOPPER;
    return number(handle, out, is);
}

CM_SIM_EXPORT int nvmlDeviceGetMemoryBusWidth(device *handle, unsigned *bits)
{
    CM_SIM_ENTRY;
    int result;
    const cm_sim_profile *profile = profile_of(handle, &result);
    return profile ? number(handle, bits, (unsigned)profile->bus_width) : result;
}

CM_SIM_EXPORT int nvmlDeviceGetMaxClockInfo(device *handle, int type, unsigned *megahertz)
{
    enum { GRAPHICS, MULTIPROCESSOR, MEMORY, VIDEO, TYPES, KILO = 1000 };
    CM_SIM_ENTRY;
    int result;
    const cm_sim_profile *profile = profile_of(handle, &result);
    if (!profile)
        return result;
    if (type < GRAPHICS || type >= TYPES)
        return INVALID_ARGUMENT;
    int clock = type == MEMORY ? profile->memory_clock : profile->clock;
    return number(handle, megahertz, (unsigned)(clock / KILO));
}

CM_SIM_EXPORT int nvmlDeviceGetComputeMode(device *handle, unsigned *mode)
{
    CM_SIM_ENTRY;
    return number(handle, mode, 0); /* any number of processes */
}

CM_SIM_EXPORT int nvmlDeviceGetPersistenceMode(device *handle, unsigned *mode)
{
    CM_SIM_ENTRY;
    return number(handle, mode, 1);
}

/* --- how it is used --------------------------------------------------------------------------- */

typedef struct memory {
    unsigned long long total, free, used;
} memory;

CM_SIM_EXPORT int nvmlDeviceGetMemoryInfo(device *handle, memory *out)
{
    CM_SIM_ENTRY;
    int result;
    const cm_sim_profile *profile = profile_of(handle, &result);
    if (!profile)
        return result;
    if (!out)
        return INVALID_ARGUMENT;
    if (profile->integrated)
        return NOT_SUPPORTED;
    size_t now = used(handle);
    *out = (memory){profile->memory, profile->memory - now, now};
    return OK;
}

typedef struct memory_v2 {
    unsigned version;
    unsigned long long total, reserved, free, used;
} memory_v2;

CM_SIM_EXPORT int nvmlDeviceGetMemoryInfo_v2(device *handle, memory_v2 *out)
{
    enum { VERSION = (int)(sizeof(memory_v2) | 2u << 24) };
    CM_SIM_ENTRY;
    memory now;
    if (out && out->version != VERSION)
        return VERSION_MISMATCH;
    int result = nvmlDeviceGetMemoryInfo(handle, out ? &now : NULL);
    if (!result)
        *out = (memory_v2){VERSION, now.total, 0, now.free, now.used};
    return result;
}

CM_SIM_EXPORT int nvmlDeviceGetUtilizationRates(device *handle, unsigned percent[2])
{
    CM_SIM_ENTRY;
    int result;
    if (!profile_of(handle, &result))
        return result;
    if (!percent)
        return INVALID_ARGUMENT;
    percent[0] = percent[1] = 0; /* kernels take no time */
    return OK;
}

typedef struct process {
    unsigned pid;
    unsigned long long bytes;
} process;

typedef struct process_v2 {
    unsigned pid;
    unsigned long long bytes;
    unsigned instance, compute_instance;
} process_v2;

/* Whether this process is to be written to the list; *result: what to return else. */
static bool listed(device *handle, unsigned *count, const void *list, int *result)
{
    if (!profile_of(handle, result))
        return false;
    if (!count || (*count && !list)) {
        *result = INVALID_ARGUMENT;
        return false;
    }
    int number = visible(handle);
    unsigned room = *count;
    *count = number >= 0 && cm_sim_has_context(number);
    *result = room < *count ? INSUFFICIENT_SIZE : OK;
    return *count && !*result;
}

CM_SIM_EXPORT int nvmlDeviceGetComputeRunningProcesses(device *handle, unsigned *count,
                                                       process *list)
{
    CM_SIM_ENTRY;
    int result;
    if (listed(handle, count, list, &result))
        list[0] = (process){(unsigned)getpid(), used(handle)};
    return result;
}

CM_SIM_EXPORT int nvmlDeviceGetComputeRunningProcesses_v3(device *handle, unsigned *count,
                                                          process_v2 *list)
{
    enum { NO_INSTANCE = -1 };
    CM_SIM_ENTRY;
    int result;
    if (listed(handle, count, list, &result))
        list[0] = (process_v2){(unsigned)getpid(), used(handle), (unsigned)NO_INSTANCE,
                               (unsigned)NO_INSTANCE};
    return result;
}
CM_SIM_ALIAS(nvmlDeviceGetComputeRunningProcesses_v3, nvmlDeviceGetComputeRunningProcesses_v2);

static int no_processes(device *handle, unsigned *count)
{
    int result;
    if (!profile_of(handle, &result))
        return result;
    if (!count)
        return INVALID_ARGUMENT;
    *count = 0;
    return OK;
}

CM_SIM_EXPORT int nvmlDeviceGetGraphicsRunningProcesses(device *handle, unsigned *count, void *list)
{
    CM_SIM_ENTRY;
    (void)list;
    return no_processes(handle, count);
}
CM_SIM_ALIAS(nvmlDeviceGetGraphicsRunningProcesses, nvmlDeviceGetGraphicsRunningProcesses_v2);
CM_SIM_ALIAS(nvmlDeviceGetGraphicsRunningProcesses, nvmlDeviceGetGraphicsRunningProcesses_v3);
CM_SIM_ALIAS(nvmlDeviceGetGraphicsRunningProcesses, nvmlDeviceGetMPSComputeRunningProcesses_v2);
CM_SIM_ALIAS(nvmlDeviceGetGraphicsRunningProcesses, nvmlDeviceGetMPSComputeRunningProcesses_v3);

/* Asked by PyTorch before it makes memory that other machines can see. An error would be a warning
 * to the user; that there is no fabric is an answer. */
CM_SIM_EXPORT int nvmlDeviceGetGpuFabricInfoV(device *handle, void *out)
{
    enum { V2 = 2, V3 = 3, VERSION_SHIFT = 24, SIZE_MASK = 0xffffff };
    CM_SIM_ENTRY;
    int result;
    unsigned version;
    if (!profile_of(handle, &result))
        return result;
    if (!out)
        return INVALID_ARGUMENT;
    memcpy(&version, out, sizeof version);
    size_t size = version & SIZE_MASK;
    unsigned layout = version >> VERSION_SHIFT;
    if ((layout != V2 && layout != V3) || size < sizeof version || size > 64)
        return VERSION_MISMATCH;
    memset((char *)out + sizeof version, 0, size - sizeof version); /* state 0: not supported */
    return OK;
}
