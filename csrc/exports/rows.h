/* Every allocation as one row: given when the block is freed, or at the end. One owner, any
 * thread. */
#ifndef CM_EXPORTS_ROWS_H
#define CM_EXPORTS_ROWS_H

#include "live.h"

typedef enum cm_row_when {
    CM_ROW_ALLOCATED = 0,
    CM_ROW_FOUND,        /* alive at a later start of the recording */
    CM_ROW_BEFORE_START, /* of the window */
    CM_ROW_FOLDED,       /* only counted */
    CM_ROW_WHENS
} cm_row_when;

enum { CM_ROW_COUNTED = UINT32_MAX }; /* in the place of an origin: blocks that are only counted */

typedef struct cm_row {
    uint16_t device;
    uint32_t origin, thread;
    int64_t bytes, requested;
    uint64_t count, address, time_ns, freed_ns;
    int32_t step, freed_step; /* -1: none */
    bool has_requested, has_address, has_time, has_free;
    cm_row_when when;
} cm_row;

/* Takes a row. false: the export fails. */
typedef bool (*cm_row_sink)(void *context, const cm_row *row);

typedef struct cm_rows {
    cm_row_sink put;
    void *context;
    cm_live live;
    int32_t step;  /* -1: none */
    uint32_t last; /* of the live blocks, of those given at the end */
    uint64_t count;
} cm_rows;

/* With put and context set, step -1 and the rest zero, it is at the start. */
void cm_rows_clear(cm_rows *rows);
/* Gives the rows that an item ends. next_step: what begins with a STEP, -1: none. false: the sink
 * failed, or out of memory. */
bool cm_rows_add(cm_rows *rows, const cm_item *item, const cm_replay *replay, int32_t next_step);
/* After the last item: rows of live blocks, up to `most`. *over: no more follow. */
bool cm_rows_end(cm_rows *rows, size_t most, bool *over);

#endif
