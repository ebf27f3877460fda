/* Rows as text, for csv and json: numbers are written here; the texts between them come once for
 * all blocks of one origin. One owner, any thread. */
#ifndef CM_EXPORTS_ROW_TEXT_H
#define CM_EXPORTS_ROW_TEXT_H

#include "rows.h"
#include "text.h"

/* The numbers behind a row's first, its bytes. */
enum { CM_ROW_GAPS = 7 }; /* requested, count, address, time, time of free, step, step of free */

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

/* Gives the texts of an origin; may write to out what must come before the first row that has it.
 * They are asked for once, except those of counted blocks. false: the export fails. */
typedef bool (*cm_row_namer)(void *context, cm_text *out, uint16_t device, uint32_t origin,
                             cm_row_name *name);

typedef struct cm_row_text {
    const cm_row_format *format;
    cm_row_namer namer;
    void *context;
    cm_text out;
    cm_row_name *name; /* by origin */
    size_t names;
} cm_row_text;

/* With format, namer and context set and the rest zero, it is at the start. */
void cm_row_text_clear(cm_row_text *text);
/* A cm_row_sink, of a cm_row_text. */
bool cm_row_text_put(void *text, const cm_row *row);

#endif
