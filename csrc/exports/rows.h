/* Every allocation as one row, for csv and json: written when the block is freed, or at the end.
 * The numbers of a row are written here; the texts between them come once for all blocks of one
 * origin. One owner, any thread. */
#ifndef CM_EXPORTS_ROWS_H
#define CM_EXPORTS_ROWS_H

#include "live.h"
#include "text.h"

/* The numbers behind a row's first, its bytes. */
enum { CM_ROW_GAPS = 7 }; /* requested, count, address, time, time of free, step, step of free */
typedef enum cm_row_when {
    CM_ROW_ALLOCATED = 0,
    CM_ROW_FOUND,        /* alive at a later start of the recording */
    CM_ROW_BEFORE_START, /* of the window */
    CM_ROW_FOLDED,       /* only counted */
    CM_ROW_WHENS
} cm_row_when;

/* The same for all rows. */
typedef struct cm_row_format {
    cm_piece gap[CM_ROW_GAPS]; /* before each number */
    cm_piece none;             /* in the place of one that is not known */
    cm_piece end[CM_ROW_WHENS];
} cm_row_format;

/* Of one origin: before the bytes, and between the step of the free and the thread. */
typedef struct cm_row_name {
    cm_piece head, about;
} cm_row_name;

enum { CM_ROW_COUNTED = UINT32_MAX }; /* in the place of an origin: blocks that are only counted */

/* Gives the texts of an origin; may write to out what must come before the first row that has it.
 * They are asked for once, except those of counted blocks. false: the export fails. */
typedef bool (*cm_row_namer)(void *context, cm_text *out, uint16_t device, uint32_t origin,
                             cm_row_name *name);

typedef struct cm_rows {
    const cm_row_format *format;
    cm_row_namer namer;
    void *context;
    cm_live live;
    cm_row_name *name; /* by origin */
    size_t names;
    int32_t step;  /* -1: none */
    uint32_t last; /* of the live blocks, of those written at the end */
    uint64_t count;
} cm_rows;

/* With format, namer and context set, step -1 and the rest zero, it is at the start. */
void cm_rows_clear(cm_rows *rows);
/* The rows that an item ends. next_step: what begins with a STEP, -1: none. false: the namer
 * failed, or out of memory. */
bool cm_rows_add(cm_rows *rows, cm_text *out, const cm_item *item, const cm_replay *replay,
                 int32_t next_step);
/* After the last item: rows of live blocks, up to `most`. *over: no more follow. */
bool cm_rows_end(cm_rows *rows, cm_text *out, size_t most, bool *over);

#endif
