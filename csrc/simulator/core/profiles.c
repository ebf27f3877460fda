/* The devices that can be simulated.
 *
 * Memory is what cudaGetDeviceProperties calls totalGlobalMem, which is less than the data sheet's
 * number and than nvidia-smi's: the driver and ECC keep a part. It differs by some MiB between
 * driver versions, and newer drivers mostly report less. The values here are of CUDA 12.4 to 13.0
 * drivers, copied from published outputs:
 *
 *   A100 40   deviceQuery, driver 13.0: 42405855232 (12.2: 42298834944)
 *   A100 80   deviceQuery, driver 12.5: 85100068864 (12.2: 84987740160)
 *   A10G      torch 2.15 (CUDA 13.0), get_device_properties: 22587 MB, so to a MiB
 *   A40       deviceQuery, driver 12.4: 47608692736
 *   B200      torch 2.8, get_device_properties: 182631 MB, so to a MiB (another one: 182642 MB)
 *   GH200 96  deviceQuery, driver 12.9: 101468602368 (12.2: 102005473280)
 *   RTX 3060  deviceQuery, driver 13.0: 11901 MBytes, so to a MiB (12.4: 12587106304). 12 GB
 *   RTX 3090  torch total_memory: 25438126080 (deviceQuery, driver 11.8: 25443893248)
 *   RTX 4090  deviceQuery, driver 13.0: 25250627584
 *   RTX 5090  deviceQuery, driver 13.0: 33660534784 (another one: 33668857856)
 *   H100      deviceQuery, driver 13.0: 85017755648 (12.7: 85045477376, 12.8: 85028896768)
 *   H200      torch.cuda.get_device_properties: 150110011392 (shown as 143156MB, 139.80 GiB)
 *   L4        deviceQuery, driver 12.0: 23612293120
 *   L40S      deviceQuery, driver 12.4: 47576711168 (messages of PyTorch: 44.39 and 44.52 GiB)
 *   A6000     messages of PyTorch: 47.40 to 47.54 GiB; the lowest, rounded down to a MiB, is the
 *             safe one (deviceQuery, driver 12.7: 51160023040)
 *   T4        cudaGetDeviceProperties, CUDA 12.4: 15828320256 (11.2: 15843721216)
 *   V100 16   deviceQuery, driver 12.4: 16928342016 (11.0: 16911433728)
 *   V100 32   deviceQuery, driver 12.9: 34072559616
 *
 * Multiprocessors, clocks, bus widths and level-2 caches are from the same outputs where these have
 * them, else from NVIDIA's tables (B200: bus width from its bandwidth of 7.7 TB/s). Shared memory,
 * threads and blocks of a multiprocessor are those of the compute capability (CUDA programming
 * guide, table of technical specifications); a block may opt in to 1 KiB less than a multiprocessor
 * has, from 8.0 on.
 *
 * The context is an allowance, not a measurement, and the same for all: cuptimem's
 * simulation/cards.py has what is published for each card, and sets it by CUPTIMEM_SIM_CONTEXT. */
#include "sim.h"

#define MIB ((size_t)1 << 20)
#define CONTEXT (512 * MIB)

/* Shared memory, threads and blocks of a multiprocessor, by compute capability. */
#define SM_70 .major = 7, .minor = 0, SM(96, 96, 2048, 32)
#define SM_75 .major = 7, .minor = 5, SM(64, 64, 1024, 16)
#define SM_80 .major = 8, .minor = 0, SM(164, 163, 2048, 32)
#define SM_86 .major = 8, .minor = 6, SM(100, 99, 1536, 16)
#define SM_89 .major = 8, .minor = 9, SM(100, 99, 1536, 24)
#define SM_90 .major = 9, .minor = 0, SM(228, 227, 2048, 32)
#define SM_100 .major = 10, .minor = 0, SM(228, 227, 2048, 32)
#define SM_120 .major = 12, .minor = 0, SM(100, 99, 1536, 24)
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
        .name = "NVIDIA A10G",
        .key = "a10g",
        .memory = 23684186112,
        .context = CONTEXT,
        SM_86,
        .sms = 80,
        .l2 = 6291456,
        .clock = 1710000,
        .memory_clock = 6251000,
        .bus_width = 384,
    },
    {
        .name = "NVIDIA A40",
        .key = "a40",
        .memory = 47608692736,
        .context = CONTEXT,
        SM_86,
        .sms = 84,
        .l2 = 6291456,
        .clock = 1740000,
        .memory_clock = 7251000,
        .bus_width = 384,
    },
    {
        .name = "NVIDIA B200",
        .key = "b200",
        .memory = 191502483456,
        .context = CONTEXT,
        SM_100,
        .sms = 148,
        .l2 = 132644864,
        .clock = 1965000,
        .memory_clock = 3996000,
        .bus_width = 7680,
    },
    {
        .name = "NVIDIA GH200 120GB",
        .key = "gh200",
        .memory = 101468602368,
        .context = CONTEXT,
        SM_90,
        .sms = 132,
        .l2 = 62914560,
        .clock = 1980000,
        .memory_clock = 2619000,
        .bus_width = 6144,
    },
    {
        .name = "NVIDIA GeForce RTX 3060",
        .key = "rtx3060",
        .memory = 12479102976,
        .context = CONTEXT,
        SM_86,
        .sms = 28,
        .l2 = 2359296,
        .clock = 1777000,
        .memory_clock = 7501000,
        .bus_width = 192,
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
        .name = "NVIDIA GeForce RTX 5090",
        .key = "rtx5090",
        .memory = 33660534784,
        .context = CONTEXT,
        SM_120,
        .sms = 170,
        .l2 = 100663296,
        .clock = 2407000,
        .memory_clock = 14001000,
        .bus_width = 512,
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
        .name = "NVIDIA L40S",
        .key = "l40s",
        .memory = 47576711168,
        .context = CONTEXT,
        SM_89,
        .sms = 142,
        .l2 = 100663296,
        .clock = 2520000,
        .memory_clock = 9001000,
        .bus_width = 384,
    },
    {
        .name = "NVIDIA RTX A6000",
        .key = "a6000",
        .memory = 50894733312,
        .context = CONTEXT,
        SM_86,
        .sms = 84,
        .l2 = 6291456,
        .clock = 1800000,
        .memory_clock = 8001000,
        .bus_width = 384,
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
    {
        .name = "Tesla V100-SXM2-16GB",
        .key = "v100-16gb",
        .memory = 16928342016,
        .context = CONTEXT,
        SM_70,
        .sms = 80,
        .l2 = 6291456,
        .clock = 1530000,
        .memory_clock = 877000,
        .bus_width = 4096,
    },
    {
        .name = "Tesla V100-SXM2-32GB",
        .key = "v100-32gb",
        .memory = 34072559616,
        .context = CONTEXT,
        SM_70,
        .sms = 80,
        .l2 = 6291456,
        .clock = 1530000,
        .memory_clock = 877000,
        .bus_width = 4096,
    },
    {.name = NULL},
};
