/* Which CUPTI is imitated: see cupti_generation.c. */
#ifndef CM_SIM_CUPTI_GENERATION_H
#define CM_SIM_CUPTI_GENERATION_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* CUpti_CallbackDomain. */
enum {
    CM_CUPTI_DRIVER_API = 1,
    CM_CUPTI_RUNTIME_API = 2,
    CM_CUPTI_RESOURCE = 3,
    CM_CUPTI_SYNCHRONIZE = 4,
    CM_CUPTI_NVTX = 5,
    CM_CUPTI_STATE = 6,
    CM_CUPTI_DOMAINS
};

typedef struct cm_cupti_generation {
    const char *name; /* "13.0", as people ask for it */
    uint32_t version; /* what cuptiGetVersion returns */
    uint16_t number;  /* major * 100 + minor, to compare: versions are not ordered (12.1 has 18) */
    uint16_t ids[CM_CUPTI_DOMAINS]; /* callback ids of a domain are below this */
} cm_cupti_generation;

/* The one that CUPTIMEM_SIM_CUPTI asks for, else the default. Never NULL. */
const cm_cupti_generation *cm_sim_cupti_generation(void);

/* Bytes of a record of this kind in the generation; 0: it has no such kind. */
size_t cm_sim_cupti_record_size(uint32_t kind);

/* The same of the release with this number (as in cm_cupti_generation). */
size_t cm_sim_cupti_record_size_of(uint32_t kind, unsigned number);

/* Every generation, ended by one without a name, for tests. */
extern const cm_cupti_generation cm_sim_cupti_generations[];

#endif
