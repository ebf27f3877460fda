/* CUPTI at its worst: see cupti_hostile.c. */
#ifndef CM_SIM_CUPTI_HOSTILE_H
#define CM_SIM_CUPTI_HOSTILE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct cm_cupti_hostile {
    unsigned drop, slow_ms, timebase; /* 0: not */
    int refuse;                       /* 0: not */
    bool reorder, wrap, foreign, late, nodriver, olddriver, nullbuffer, crash, arrays;
    const char *taken; /* the other tool's name; NULL: not taken */
} cm_cupti_hostile;

/* What CUPTIMEM_SIM_HOSTILE asks for. Never NULL. */
const cm_cupti_hostile *cm_sim_cupti_hostile(void);

/* Whether this record is one that is lost. */
bool cm_sim_cupti_lose(void);
/* Records of a full buffer change places. */
void cm_sim_cupti_disorder(uint8_t *data, size_t used);
/* A buffer that the client never gave, to be handed back in between; NULL: none now. */
uint8_t *cm_sim_cupti_foreign(size_t *bytes);
/* A client gave no buffer. */
void cm_sim_cupti_no_buffer(void);
/* A buffer is walked through without a subscriber. */
void cm_sim_cupti_walk_alone(void);
/* Waits as long as subscribing takes. */
void cm_sim_cupti_subscribe_slowly(void);
/* Ticks of a processor clock instead of a time, once the base has changed. false: not yet. */
bool cm_sim_cupti_ticks(uint64_t *now);

#endif
