/* Generations of CUPTI: what each release writes, from the headers that its wheel ships.
 *
 *   CUPTIMEM_SIM_CUPTI=11.8 | 12.0 ... 12.9 | 13.0 ... 13.5     (default 13.0,
 * with a PyTorch for CUDA 12: 12.8)
 *
 * A generation is a row of the first table and, where it changed a record, an entry of the second:
 * the length of a record is that of its kind's last entry which is not younger than the
 * generation. */
#define _GNU_SOURCE /* secure_getenv */
#include "cupti_generation.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "cupti_records.h"
#include "../core/sim.h"

#define NUMBER(major, minor) ((major)*100 + (minor))
#define ROW(major, minor, version, driver, runtime, resource)                                      \
    {                                                                                              \
#major "." #minor, version, NUMBER(major, minor),                                          \
        {                                                                                          \
            0, driver, runtime, resource, 3, 50, NUMBER(major, minor) >= 1202 ? 4 : 0              \
        }                                                                                          \
    }

const cm_cupti_generation cm_sim_cupti_generations[] = {
    ROW(11, 8, 18, 677, 434, 21),
    ROW(12, 0, 18, 701, 445, 21),
    ROW(12, 1, 18, 712, 445, 21),
    ROW(12, 2, 20, 718, 451, 22),
    ROW(12, 3, 21, 733, 465, 22),
    ROW(12, 4, 22, 754, 468, 22),
    ROW(12, 5, 23, 761, 470, 22),
    ROW(12, 6, 24, 763, 480, 22),
    ROW(12, 8, 26, 782, 487, 22),
    ROW(12, 9, 28, 784, 487, 22),
    ROW(13, 0, 130001, 807, 523, 24),
    ROW(13, 1, 130101, 846, 550, 24),
    ROW(13, 2, 130202, 846, 559, 24),
    ROW(13, 3, 130301, 860, 559, 24),
    ROW(13, 4, 130401, 868, 566, 24),
    ROW(13, 5, 130500, 877, 567, 26),
    {NULL, 0, 0, {0}},
};

/* By kind, then ascending by the generation since when; 0 bytes: no longer. Kinds that are written
 * here come with their layout in cupti_records.h; of the others only the length matters, to clients
 * that walk. */
static const struct {
    uint8_t kind;
    uint16_t since, bytes;
} sizes[] = {
    {CM_CUPTI_MEMCPY, 0, 88},
    {CM_CUPTI_MEMCPY, 1208, 96},
    {CM_CUPTI_MEMCPY, 1304, 112},
    {CM_CUPTI_MEMSET, 0, 88},
    {CM_CUPTI_MEMSET, 1304, 104},
    {CM_CUPTI_KERNEL, 0, 200},
    {CM_CUPTI_KERNEL, 1200, 208},
    {CM_CUPTI_KERNEL, 1300, 216},
    {CM_CUPTI_KERNEL, 1301, 224},
    {CM_CUPTI_KERNEL, 1303, 232},
    {CM_CUPTI_KERNEL, 1304, 248},
    {CM_CUPTI_DRIVER, 0, 40},
    {CM_CUPTI_RUNTIME, 0, 40},
    {CM_CUPTI_DEVICE, 0, 176},
    {CM_CUPTI_DEVICE, 1202, 184},
    {CM_CUPTI_DEVICE, 1302, 192},
    {CM_CUPTI_CONTEXT, 0, 16},
    {CM_CUPTI_CONTEXT, 1204, 24},
    {CM_CUPTI_CONTEXT, 1205, 32},
    {CM_CUPTI_CONTEXT, 1301, 40},
    {CM_CUPTI_CONCURRENT_KERNEL, 0, 200},
    {CM_CUPTI_CONCURRENT_KERNEL, 1200, 208},
    {CM_CUPTI_CONCURRENT_KERNEL, 1300, 216},
    {CM_CUPTI_CONCURRENT_KERNEL, 1301, 224},
    {CM_CUPTI_CONCURRENT_KERNEL, 1303, 232},
    {CM_CUPTI_CONCURRENT_KERNEL, 1304, 248},
    {11, 0, 32},    /* NAME */
    {12, 0, 56},    /* MARKER */
    {13, 0, 32},    /* MARKER_DATA */
    {13, 1300, 40}, /**/
    {CM_CUPTI_OVERHEAD, 0, 40},
    {CM_CUPTI_OVERHEAD, 1203, 48},
    {CM_CUPTI_OVERHEAD, 1204, 56},
    {18, 0, 144}, /* CDP_KERNEL */
    {19, 0, 40},  /* PREEMPTION */
    {20, 0, 40},  /* ENVIRONMENT */
    {CM_CUPTI_MEMCPY2, 0, 96},
    {CM_CUPTI_UNIFIED_MEMORY_COUNTER, 0, 64},
    {CM_CUPTI_UNIFIED_MEMORY_COUNTER, 1208, 104},
    {26, 0, 32},  /* FUNCTION */
    {27, 0, 24},  /* MODULE */
    {28, 0, 24},  /* DEVICE_ATTRIBUTE */
    {33, 0, 152}, /* OPENACC_DATA */
    {34, 0, 152}, /* OPENACC_LAUNCH */
    {35, 0, 120}, /* OPENACC_OTHER */
    {CM_CUPTI_CUDA_EVENT, 0, 24},
    {CM_CUPTI_CUDA_EVENT, 1208, 56},
    {CM_CUPTI_CUDA_EVENT, 1305, 80},
    {CM_CUPTI_STREAM, 0, 24},
    {CM_CUPTI_SYNCHRONIZATION, 0, 40},
    {CM_CUPTI_SYNCHRONIZATION, 1208, 56},
    {CM_CUPTI_EXTERNAL_CORRELATION, 0, 24},
    {40, 0, 136},   /* NVLINK */
    {40, 1302, 88}, /**/
    {CM_CUPTI_MEMORY, 0, 80},
    {46, 0, 168}, /* PCIE */
    {47, 0, 40},  /* OPENMP */
    {48, 0, 40},  /* INTERNAL_LAUNCH_API */
    {CM_CUPTI_MEMORY2, 0, 120},
    {CM_CUPTI_MEMORY2, 1206, 128},
    {CM_CUPTI_MEMORY_POOL, 0, 72},
    {CM_CUPTI_MEMORY_POOL, 1300, 80},
    {CM_CUPTI_GRAPH_TRACE, 0, 48},
    {CM_CUPTI_GRAPH_TRACE, 1203, 56},
    {52, 0, 64},     /* JIT */
    {52, 1204, 72},  /**/
    {53, 1208, 56},  /* DEVICE_GRAPH_TRACE */
    {54, 1208, 64},  /* MEM_DECOMPRESS */
    {55, 1209, 32},  /* CONFIDENTIAL_COMPUTE_ROTATION */
    {56, 1301, 56},  /* GRAPH_HOST_NODE */
    {57, 1301, 24},  /* COMPUTE_ENGINE_CTX_SWITCH */
    {58, 1301, 48},  /* HOST_LAUNCH */
    {59, 1302, 168}, /* GREEN_CONTEXT */
    {59, 1304, 304}, /**/
    /* Of the profiling interfaces that 13.0 dropped. */
    {6, 0, 24},    /* EVENT */
    {6, 1300, 0},  /**/
    {7, 0, 24},    /* METRIC */
    {7, 1300, 0},  /**/
    {14, 0, 24},   /* SOURCE_LOCATOR */
    {14, 1300, 0}, /**/
    {15, 0, 56},   /* GLOBAL_ACCESS */
    {15, 1300, 0}, /**/
    {16, 0, 40},   /* BRANCH */
    {16, 1300, 0}, /**/
    {21, 0, 32},   /* EVENT_INSTANCE */
    {21, 1300, 0}, /**/
    {23, 0, 32},   /* METRIC_INSTANCE */
    {23, 1300, 0}, /**/
    {24, 0, 48},   /* INSTRUCTION_EXECUTION */
    {24, 1300, 0}, /**/
    {29, 0, 56},   /* SHARED_ACCESS */
    {29, 1300, 0}, /**/
    {30, 0, 40},   /* PC_SAMPLING */
    {30, 1300, 0}, /**/
    {31, 0, 32},   /* PC_SAMPLING_RECORD_INFO */
    {31, 1300, 0}, /**/
    {32, 0, 24},   /* INSTRUCTION_CORRELATION */
    {32, 1300, 0}, /**/
    {41, 0, 32},   /* INSTANTANEOUS_EVENT */
    {41, 1300, 0}, /**/
    {42, 0, 32},   /* INSTANTANEOUS_EVENT_INSTANCE */
    {42, 1300, 0}, /**/
    {43, 0, 32},   /* INSTANTANEOUS_METRIC */
    {43, 1300, 0}, /**/
    {44, 0, 32},   /* INSTANTANEOUS_METRIC_INSTANCE */
    {44, 1300, 0}, /**/
};

static pthread_once_t once = PTHREAD_ONCE_INIT;
static const cm_cupti_generation *chosen;
static uint16_t bytes_of[CM_CUPTI_KINDS];

static const cm_cupti_generation *named(const char *name)
{
    for (const cm_cupti_generation *g = cm_sim_cupti_generations; g->name; g++)
        if (!strcmp(g->name, name))
            return g;
    return NULL;
}

static void choose(void)
{
    const char *wanted = secure_getenv("CUPTIMEM_SIM_CUPTI");
    const char *usual = cm_sim_cuda_major() == 12 ? "12.8" : "13.0";

    chosen = named(wanted && *wanted ? wanted : usual);
    if (!chosen) {
        cm_sim_note(CM_SIM_NOTE_REFUSED, "CUPTIMEM_SIM_CUPTI: no such generation", 0);
        chosen = named(usual);
    }
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++)
        if (sizes[i].since <= chosen->number)
            bytes_of[sizes[i].kind] = sizes[i].bytes;
}

const cm_cupti_generation *cm_sim_cupti_generation(void)
{
    pthread_once(&once, choose);
    return chosen;
}

size_t cm_sim_cupti_record_size_of(uint32_t kind, unsigned number)
{
    size_t bytes = 0;

    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++)
        if (sizes[i].kind == kind && sizes[i].since <= number)
            bytes = sizes[i].bytes;
    return bytes;
}

size_t cm_sim_cupti_record_size(uint32_t kind)
{
    pthread_once(&once, choose);
    return kind < CM_CUPTI_KINDS ? bytes_of[kind] : 0;
}
