#include "driver.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Numbers of attributes that depend on the device; the others are in `fixed`. */
enum {
    CLOCK_RATE = 13,
    INTEGRATED = 18,
    PAGEABLE_ACCESS = 88,
    HOST_PAGE_TABLES = 100,
    MULTIPROCESSORS = 16,
    BUS_ID = 33,
    MEMORY_CLOCK_RATE = 36,
    BUS_WIDTH = 37,
    L2 = 38,
    THREADS_PER_MULTIPROCESSOR = 39,
    MAJOR = 75,
    MINOR = 76,
    SHARED_PER_MULTIPROCESSOR = 81,
    DOUBLE_RATIO = 87,
    SHARED_OPTIN = 97,
    BLOCKS_PER_MULTIPROCESSOR = 106,
    COMPRESSION = 107,
    PERSISTING_L2 = 108,
    SHARED_RESERVED = 111,
    CLUSTERS = 120,
    TENSOR_MAPS = 127,
    ATTRIBUTES = 148
};

/* What all devices of these generations have in common. 0 where nothing stands: among them all that
 * is not simulated (handles for other processes, fabric, multicast, graphics), so that programs
 * which ask first choose another way. */
static const int fixed[ATTRIBUTES] = {
    [1] = 1024,                                              /* threads of a block, */
    [2] = 1024,                                              /* its sides */
    [3] = 1024,        [4] = 64,           [5] = 2147483647, /* sides of a grid */
    [6] = 65535,       [7] = 65535,        [8] = 49152,      /* shared memory of a block */
    [9] = 65536,                                             /* constant memory */
    [10] = 32,                                               /* warp */
    [11] = 2147483647,                                       /* pitch */
    [12] = 65536,                                            /* registers of a block */
    [14] = 512,                                              /* texture alignment */
    [15] = 1,                                                /* copies beside kernels */
    [19] = 1,                                                /* maps host memory */
    [21] = 131072,                                           /* texture sizes */
    [22] = 131072,     [23] = 65536,       [24] = 16384,     [25] = 16384,     [26] = 16384,
    [27] = 32768,      [28] = 32768,       [29] = 2048,      [30] = 512, /* surface alignment */
    [31] = 1,                                                            /* concurrent kernels */
    [40] = 3,                                                            /* copy engines */
    [41] = 1, /* one address space with the host */
    [42] = 32768,      [43] = 2048,        [44] = 1,         [45] = 32768,     [46] = 32768,
    [47] = 8192,       [48] = 8192,        [49] = 32768,     [51] = 32, /* texture pitch alignment
                                                                         */
    [52] = 32768,      [53] = 32768,       [54] = 2046,      [55] = 32768, /* surface sizes */
    [56] = 131072,     [57] = 65536,       [58] = 16384,     [59] = 16384,     [60] = 16384,
    [61] = 32768,      [62] = 2048,        [63] = 32768,     [64] = 32768,     [65] = 2048,
    [66] = 32768,      [67] = 32768,       [68] = 2046,      [69] = 268435456, /* linear textures */
    [70] = 131072,     [71] = 65000,       [72] = 2097120,   [73] = 32768,     [74] = 32768,
    [77] = 32768,      [78] = 1,                     /* stream priorities */
    [79] = 1,                                        /* L1 caches */
    [80] = 1,          [82] = 65536,                 /* registers of a multiprocessor */
    [83] = 1,                                        /* managed memory, */
    [89] = 1,                                        /* also while kernels run */
    [90] = 1,                                        /* preemption */
    [91] = 1,                                        /* registered memory keeps its address */
    [92] = 1,                                        /* values written by streams */
    [93] = 1,          [94] = 1,           [95] = 1, /* cooperative launch */
    [98] = 1,          [99] = 1,                     /* host memory can be registered */
    [102] = 1,                                       /* virtual memory */
    [103] = 1,         /* asked for by PyTorch's segments; the export itself is refused */
    [109] = 134213632, /* access policy window */
    [113] = 1,         /* host memory registered read-only */
    [115] = 1,         /* memory pools */
    [122] = 1,         [123] = 1,          [126] = 1, /* memory synchronization domains */
    [129] = 1,                                        /* unified function pointers */
    [131] = -1,                                       /* no NUMA node of its own */
    [134] = 0,         [139] = 0x233010de,            /* PCI vendor and device */
};

static const cm_sim_profile *profile_of(int device)
{
    const cm_sim_config *config = cm_sim_config_get();
    return device >= 0 && device < config->devices ? &config->device[device] : NULL;
}

void cm_sim_installed_uuid(int installed, uint8_t bytes[16])
{
    /* From nothing that changes between processes or runs: FNV-1a over name and number. */
    const cm_sim_config *config = cm_sim_config_get();
    bool known = installed >= 0 && installed < config->installed;
    char text[128];
    snprintf(text, sizeof text, "cuptimem simulated %s %d",
             known ? config->all[installed].name : "", installed);
    uint64_t hash = 0xcbf29ce484222325u;
    for (int half = 0; half < 2; half++) {
        for (const char *at = text; *at; at++)
            hash = (hash ^ (uint8_t)*at) * 0x100000001b3u;
        memcpy(bytes + 8 * half, &hash, 8);
    }
    /* The bits for "made from a name", and the number, so that no two are equal. */
    bytes[6] = (uint8_t)((bytes[6] & 0x0f) | 0x50);
    bytes[8] = (uint8_t)((bytes[8] & 0x3f) | 0x80);
    bytes[15] = (uint8_t)installed;
}

void cm_sim_uuid(int device, uint8_t bytes[16])
{
    cm_sim_installed_uuid(profile_of(device) ? cm_sim_config_get()->ordinal[device] : -1, bytes);
}

int cm_sim_pci_find(const char *text)
{
    unsigned domain = CM_SIM_PCI_DOMAIN, bus, device, function = 0;
    char rest;
    if (!text)
        return -1;
    if (sscanf(text, "%x:%x:%x.%x%c", &domain, &bus, &device, &function, &rest) != 4 &&
        sscanf(text, "%x:%x:%x%c", &domain, &bus, &device, &rest) != 3) {
        domain = CM_SIM_PCI_DOMAIN;
        if (sscanf(text, "%x:%x.%x%c", &bus, &device, &function, &rest) != 3)
            return -1;
    }
    if (domain != CM_SIM_PCI_DOMAIN || device != CM_SIM_PCI_DEVICE || function != 0)
        return -1;
    return bus >= 1 && bus <= (unsigned)cm_sim_config_get()->installed ? (int)bus - 1 : -1;
}

static int of_profile(const cm_sim_profile *profile, int device, int attribute)
{
    switch (attribute) {
    case INTEGRATED:
    case PAGEABLE_ACCESS:
    case HOST_PAGE_TABLES:
        return profile->integrated;
    case CLOCK_RATE:
        return profile->clock;
    case MULTIPROCESSORS:
        return profile->sms;
    case BUS_ID:
        return cm_sim_pci_bus(cm_sim_config_get()->ordinal[device]);
    case MEMORY_CLOCK_RATE:
        return profile->memory_clock;
    case BUS_WIDTH:
        return profile->bus_width;
    case L2:
        return profile->l2;
    case THREADS_PER_MULTIPROCESSOR:
        return profile->threads_per_sm;
    case MAJOR:
        return profile->major;
    case MINOR:
        return profile->minor;
    case SHARED_PER_MULTIPROCESSOR:
        return profile->shared_per_sm;
    case SHARED_OPTIN:
        return profile->shared_per_block_optin;
    case BLOCKS_PER_MULTIPROCESSOR:
        return profile->blocks_per_sm;
    case DOUBLE_RATIO: /* data centre parts have half rate, the others a small fraction */
        return profile->minor == 0 && profile->major <= 10 ? 2 : profile->major == 7 ? 32 : 64;
    case COMPRESSION:
        return profile->major >= 8;
    case PERSISTING_L2: /* since 8.0, a part of the cache */
        return profile->major >= 8 ? profile->l2 / 4 * 3 : 0;
    case SHARED_RESERVED:
        return profile->major >= 8 ? 1024 : 0;
    case CLUSTERS:
    case TENSOR_MAPS:
        return profile->major >= 9;
    default:
        return fixed[attribute];
    }
}

int cm_sim_device_attribute(int device, int attribute, int *value)
{
    const cm_sim_profile *profile = profile_of(device);
    if (!profile)
        return CM_SIM_INVALID_DEVICE;
    if (attribute < 1 || attribute >= ATTRIBUTES)
        return CM_SIM_INVALID_VALUE;
    if (value)
        *value = of_profile(profile, device, attribute);
    return CM_SIM_OK;
}

/* --- the entry points ------------------------------------------------------------------------- */

CM_SIM_EXPORT int cuDeviceGet(int *device, int ordinal)
{
    CM_SIM_ENTRY;
    if (!profile_of(ordinal))
        return CM_SIM_INVALID_DEVICE;
    if (device)
        *device = ordinal;
    return CM_SIM_OK;
}

CM_SIM_EXPORT int cuDeviceGetCount(int *count)
{
    CM_SIM_ENTRY;
    if (count)
        *count = cm_sim_config_get()->devices;
    return CM_SIM_OK;
}

CM_SIM_EXPORT int cuDeviceGetName(char *name, int length, int device)
{
    CM_SIM_ENTRY;
    const cm_sim_profile *profile = profile_of(device);
    if (!profile)
        return CM_SIM_INVALID_DEVICE;
    if (!name || length <= 0)
        return CM_SIM_INVALID_VALUE;
    snprintf(name, (size_t)length, "%s", profile->name);
    return CM_SIM_OK;
}

CM_SIM_EXPORT int cuDeviceGetUuid_v2(uint8_t bytes[16], int device)
{
    CM_SIM_ENTRY;
    if (!profile_of(device))
        return CM_SIM_INVALID_DEVICE;
    if (bytes)
        cm_sim_uuid(device, bytes);
    return CM_SIM_OK;
}
CM_SIM_ALIAS(cuDeviceGetUuid_v2, cuDeviceGetUuid);

CM_SIM_EXPORT int cuDeviceTotalMem_v2(size_t *bytes, int device)
{
    CM_SIM_ENTRY;
    const cm_sim_profile *profile = profile_of(device);
    if (!profile)
        return CM_SIM_INVALID_DEVICE;
    if (bytes)
        *bytes = profile->memory;
    return CM_SIM_OK;
}

CM_SIM_EXPORT int cuDeviceGetAttribute(int *value, int attribute, int device)
{
    CM_SIM_ENTRY;
    return cm_sim_device_attribute(device, attribute, value);
}

typedef struct properties {
    int threads, block[3], grid[3], shared, constants, warp, pitch, registers, clock, texture;
} properties;

CM_SIM_EXPORT int cuDeviceGetPCIBusId(char *text, int length, int device)
{
    CM_SIM_ENTRY;
    if (!profile_of(device))
        return CM_SIM_INVALID_DEVICE;
    if (!text || length < 13)
        return CM_SIM_INVALID_VALUE;
    snprintf(text, (size_t)length, "%04x:%02x:%02x.0", CM_SIM_PCI_DOMAIN,
             cm_sim_pci_bus(cm_sim_config_get()->ordinal[device]), CM_SIM_PCI_DEVICE);
    return CM_SIM_OK;
}

CM_SIM_EXPORT int cuDeviceGetByPCIBusId(int *device, const char *text)
{
    CM_SIM_ENTRY;
    const cm_sim_config *config = cm_sim_config_get();
    if (!text)
        return CM_SIM_INVALID_VALUE;
    int installed = cm_sim_pci_find(text);
    for (int i = 0; installed >= 0 && i < config->devices; i++)
        if (config->ordinal[i] == installed) {
            if (device)
                *device = i;
            return CM_SIM_OK;
        }
    return CM_SIM_INVALID_DEVICE;
}

CM_SIM_EXPORT int cuDeviceCanAccessPeer(int *can, int device, int peer)
{
    CM_SIM_ENTRY;
    if (!profile_of(device) || !profile_of(peer))
        return CM_SIM_INVALID_DEVICE;
    if (can)
        *can = cm_sim_peer_possible(device, peer);
    return CM_SIM_OK;
}
