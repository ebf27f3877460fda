/* What cupti_buffers.c (filling) and cupti_delivery.c (asking for buffers, handing them back)
 * share. */
#ifndef CM_SIM_CUPTI_DELIVERY_H
#define CM_SIM_CUPTI_DELIVERY_H

#include "cupti.h"

/* A record of work that was not done when it was written. */
typedef struct cm_cupti_unfinished {
    size_t offset;
    cm_cupti_work work;
} cm_cupti_unfinished;

typedef struct cm_cupti_buffer {
    uint8_t *data; /* NULL: there is none */
    size_t size, used, records, max_records;
    unsigned client;
    uint32_t thread; /* that asked for it */
    cm_cupti_unfinished *unfinished;
    size_t unfinished_count, unfinished_room;
} cm_cupti_buffer;

/* Whether this thread is in a client's function. */
bool cm_sim_cupti_in_client(void);
/* An empty buffer of the client's. false: it gave none. */
bool cm_sim_cupti_request(unsigned client, cm_cupti_buffer *fresh);
/* To its client: now, in this thread; or later. */
void cm_sim_cupti_hand_back(cm_cupti_buffer *what);
void cm_sim_cupti_enqueue(const cm_cupti_buffer *what);
/* Whether all records are complete. Forgets what has been done since. */
bool cm_sim_cupti_finished(cm_cupti_buffer *what);
/* Returns when everything complete (forced: everything) of these clients that waits now has been
 * handed back. */
void cm_sim_cupti_drain(uint32_t clients, bool forced);
bool cm_sim_cupti_takes(unsigned client); /* registered */
bool cm_sim_cupti_anybody_takes(void);
/* It is not asked any more; and then not even handed anything. */
void cm_sim_cupti_no_more(unsigned client);
void cm_sim_cupti_forget_client(unsigned client);
void cm_sim_cupti_delivery_stop(void);
void cm_sim_cupti_delivery_forked(void);

#endif
