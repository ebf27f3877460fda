/* The devices that can be simulated.
 *
 * Memory is what cudaGetDeviceProperties calls totalGlobalMem, which is less than the data sheet's
 * number and than nvidia-smi's: the driver and ECC keep a part. It differs by some MiB between
 * driver versions; the values here are of CUDA 12.4 to 13.0 drivers, copied from published outputs:
 *
 *   H100      deviceQuery, driver 13.0: 85017755648 (12.7: 85045477376, 12.8: 85028896768)
 *   H200      torch.cuda.get_device_properties: 150110011392 (shown as 143156MB, 139.80 GiB)
 *   A100 40   deviceQuery, driver 13.0: 42405855232 (12.2: 42298834944)
 *   A100 80   deviceQuery, driver 12.5: 85100068864 (12.2: 84987740160)
 *   L4        deviceQuery, driver 12.0: 23612293120
 *   RTX 4090  deviceQuery, driver 13.0: 25250627584
 *   RTX 3090  torch total_memory: 25438126080 (deviceQuery, driver 11.8: 25443893248)
 *   T4        cudaGetDeviceProperties, CUDA 12.4: 15828320256 (11.2: 15843721216)
 *
 * Multiprocessors, clocks, bus widths and level-2 caches are from the same outputs. Shared memory,
 * threads and blocks of a multiprocessor are those of the compute capability (CUDA programming
 * guide, table of technical specifications); a block may opt in to 1 KiB less than a multiprocessor
 * has, from 8.0 on.
 *
 * The context is an allowance, not a measurement: published numbers for it go from 300 to 700 MiB
 * with device, driver and how many kernels were loaded. CUPTIMEM_SIM_CONTEXT sets another. */
#include "sim.h"

#define MIB ((size_t)1 << 20)
#define CONTEXT (512 * MIB)

/* Shared memory, threads and blocks of a multiprocessor, by compute capability. */
#define SM_75 .major = 7, .minor = 5, SM(64, 64, 1024, 16)
#define SM_80 .major = 8, .minor = 0, SM(164, 163, 2048, 32)
#define SM_86 .major = 8, .minor = 6, SM(100, 99, 1536, 16)
#define SM_89 .major = 8, .minor = 9, SM(100, 99, 1536, 24)
#define SM_90 .major = 9, .minor = 0, SM(228, 227, 2048, 32)
#define SM(shared, optin, threads, blocks)                                                         \
    .shared_per_sm = (shared) << 10, .shared_per_block_optin = (optin) << 10,                      \
    .threads_per_sm = threads, .blocks_per_sm = blocks

const cm_sim_profile cm_sim_profiles[] = {
    {
        .name = "NVIDIA A100-SXM4-40GB",
        .key = "a100-40gb",
        .memory = 42405855232,
        .context = CONTEXT,
        SM_80,
        .sms = 108,
        .l2 = 41943040,
        .clock = 1410000,
        .memory_clock = 1215000,
        .bus_width = 5120,
    },
    {
        .name = "NVIDIA A100-SXM4-80GB",
        .key = "a100-80gb",
        .memory = 85100068864,
        .context = CONTEXT,
        SM_80,
        .sms = 108,
        .l2 = 41943040,
        .clock = 1410000,
        .memory_clock = 1593000,
        .bus_width = 5120,
    },
    {
        .name = "NVIDIA GeForce RTX 3090",
        .key = "rtx3090",
        .memory = 25438126080,
        .context = CONTEXT,
        SM_86,
        .sms = 82,
        .l2 = 6291456,
        .clock = 1695000,
        .memory_clock = 9751000,
        .bus_width = 384,
    },
    {
        .name = "NVIDIA GeForce RTX 4090",
        .key = "rtx4090",
        .memory = 25250627584,
        .context = CONTEXT,
        SM_89,
        .sms = 128,
        .l2 = 75497472,
        .clock = 2520000,
        .memory_clock = 10501000,
        .bus_width = 384,
    },
    {
        .name = "NVIDIA H100 80GB HBM3",
        .key = "h100",
        .memory = 85017755648,
        .context = CONTEXT,
        SM_90,
        .sms = 132,
        .l2 = 52428800,
        .clock = 1980000,
        .memory_clock = 2619000,
        .bus_width = 5120,
    },
    {
        .name = "NVIDIA H200",
        .key = "h200",
        .memory = 150110011392,
        .context = CONTEXT,
        SM_90,
        .sms = 132,
        .l2 = 62914560,
        .clock = 1980000,
        .memory_clock = 3201000,
        .bus_width = 6144,
    },
    {
        .name = "NVIDIA L4",
        .key = "l4",
        .memory = 23612293120,
        .context = CONTEXT,
        SM_89,
        .sms = 58,
        .l2 = 50331648,
        .clock = 2040000,
        .memory_clock = 6251000,
        .bus_width = 192,
    },
    {
        .name = "Tesla T4",
        .key = "t4",
        .memory = 15828320256,
        .context = CONTEXT,
        SM_75,
        .sms = 40,
        .l2 = 4194304,
        .clock = 1590000,
        .memory_clock = 5001000,
        .bus_width = 256,
    },
    {.name = NULL},
};
