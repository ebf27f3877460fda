/* Shared by the collector's files: rounds and the thread (collector.c), chunks and the trace's end
 * (collector_chunk.c). All of it is the collector's thread's, but atomics. */
#ifndef CM_CAPTURE_COLLECTOR_PARTS_H
#define CM_CAPTURE_COLLECTOR_PARTS_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include "../base/event.h"
#include "../trace/encode.h"
#include "collector.h"
#include "merge.h"

enum { CM_COLLECTOR_OWN = 64 };

/* Of the collector itself. */
typedef struct cm_own_event {
    uint32_t thread;
    cm_event event;
} cm_own_event;

typedef struct cm_collector_state {
    cm_writer *writer;
    uint64_t max_size;
    cm_batch *batch;
    cm_merge merge;
    pthread_t thread;
    int32_t tid;
    bool running;
    _Atomic uint32_t quit;
    _Atomic uint32_t asked, answered; /* futex answered: sync requests */
    _Atomic bool failed, explained; /* explained: the file's end is written, warning may be read */
    bool past_bound;                /* the compactor has a side file */
    bool ended;                     /* the end chunk is written */
    char warning[512];
    void (*_Atomic idle)(void);
    cm_own_event own[CM_COLLECTOR_OWN];
    uint32_t own_count;
    uint64_t unowned_reported, lost_stacks;
    int64_t sampled_bytes;
    uint64_t chunk_ns, sample_ns, lock_ns, round_ns, last_heads;
    uint64_t fresh_ns; /* when published events were last found */
    int wait_ms;
    _Atomic uint64_t wakes;
    unsigned chunk_number;
    _Atomic uint64_t events, bytes, seen_lost_stacks, largest_chunk;
} cm_collector_state;

extern cm_collector_state cm_collector;
extern const cm_compactor *cm_collector_compactor;

uint64_t cm_collector_lost(void);
/* Detects what others did to the trace. False: recording has ended over it. */
bool cm_collector_check_trace(void);
/* Detects what others did to the ring's file. False: recording has ended over it. Events read since
 * the last check are then lost, like all that the rings hold. */
bool cm_collector_check_ring(void);
/* Of what the rings hold, merged up to the watermark. Returns whether there is more to take. */
bool cm_collector_write_chunk(uint64_t log_end);
/* After the definitions that they belong to. */
void cm_collector_write_source_lines(bool all);
/* A chunk of tree_sample.h. Without it the trace is complete. */
void cm_collector_write_tree(const void *chunk, size_t length);
int cm_collector_write_end(const char *reason, uint64_t also_lost);

#endif
