/* The devices that can be simulated: the rows are generated of cudasim/cards.py,
 * where the sources of the figures are.
 *
 * Shared memory, threads and blocks of a multiprocessor are those of the compute capability (CUDA
 * programming guide, table of technical specifications). From 8.0 on, a block may opt in to 1 KiB
 * less than a multiprocessor has.
 *
 * The context is an allowance, not a measurement, and the same for all: the Python side has what is
 * published for each card, and sets it by CUPTIMEM_SIM_CONTEXT. */
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
#define SM_121 .major = 12, .minor = 1, .integrated = true, SM(100, 99, 1536, 24)
#define SM(shared, optin, threads, blocks)                                                         \
    .shared_per_sm = (shared) << 10, .shared_per_block_optin = (optin) << 10,                      \
    .threads_per_sm = threads, .blocks_per_sm = blocks
#define CARD(card, asked, bytes, capability, multiprocessors, cache, khz, memory_khz, bits)        \
    {.name = card,                                                                                 \
     .key = asked,                                                                                 \
     .memory = bytes,                                                                              \
     .context = CONTEXT,                                                                           \
     capability,                                                                                   \
     .sms = multiprocessors,                                                                       \
     .l2 = cache,                                                                                  \
     .clock = khz,                                                                                 \
     .memory_clock = memory_khz,                                                                   \
     .bus_width = bits},

const cm_sim_profile cm_sim_profiles[] = {
#include "generated/cards.h"
    {.name = NULL},
};
