/* The collector's side of each ring: what is in the trace already, which blocks hold the rest, and
 * how blocks and thread states return. Only the collector calls these, except for the counts. */
#ifndef CM_CAPTURE_RING_CONSUMER_H
#define CM_CAPTURE_RING_CONSUMER_H

#include <stdbool.h>
#include <stdint.h>

#include "merge.h"

/* A new capture. */
void cm_ring_consumer_begin(void);

/* Reads how far every thread has published; returns the waiting events. */
uint64_t cm_ring_consumer_poll(void);
/* Events published in all rings up to the last poll. */
uint64_t cm_ring_consumer_published(void);
/* Puts every ring with waiting events into the merge. */
void cm_ring_consumer_begin_merge(cm_merge *merge);
bool cm_ring_consumer_refill(cm_merge *merge, cm_merge_source *source);
/* Adds the covers of what was merged since the last commit. */
bool cm_ring_consumer_add_covers(cm_batch *batch);
/* Events taken from all rings once what was merged is committed. */
uint64_t cm_ring_consumer_taken(void);
/* The merged events are in the file: moves the tails, frees the blocks before them. */
void cm_ring_consumer_commit(void);

/* mark: remembers how far every thread has published now; reached: all of that is in the file. */
void cm_ring_consumer_mark(void);
bool cm_ring_consumer_reached_mark(void);

/* Takes back the blocks of idle threads when blocks get scarce, and the states of ended threads. */
void cm_ring_consumer_reclaim(uint64_t now_ns);
/* Takes back the blocks of all idle threads, so that the next event takes one. */
void cm_ring_consumer_release_idle(void);
/* With recording off for good: publishes in their rings the losses that threads had no room to
 * report. False: not all found room; collect, then call again. */
bool cm_ring_consumer_report_losses(void);

/* Any thread while the rings exist: inside a hook, or with the session's lock. */
uint64_t cm_ring_consumer_pending(void);
uint64_t cm_ring_consumer_lost(void);
uint64_t cm_ring_consumer_bytes(void);

#endif
