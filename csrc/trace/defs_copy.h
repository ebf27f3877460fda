/* Definitions of one trace for another: what the reader of the first resolves becomes definition
 * records of the second, under new ids, each when it is first asked for. A code becomes one code
 * per position that occurs, with a location table of that one entry. One owner. */
#ifndef CM_TRACE_DEFS_COPY_H
#define CM_TRACE_DEFS_COPY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "reader.h"

typedef struct cm_redefine cm_redefine;

cm_redefine *cm_redefine_new(const cm_reader *reader); /* NULL: out of memory */
void cm_redefine_free(cm_redefine *definitions);

/* The id in the new trace. false: out of memory. */
bool cm_redefine_stack(cm_redefine *definitions, uint32_t stack, uint32_t *id);
bool cm_redefine_name(cm_redefine *definitions, uint32_t name, uint32_t *id);

/* The records since the last call, to be written before what refers to them. */
const void *cm_redefine_take(cm_redefine *definitions, size_t *length);

/* The text of their lines, as a chunk to be written behind them, valid until the next call; false:
 * there is none. */
bool cm_redefine_take_lines(cm_redefine *definitions, const void **chunk, size_t *length);

#endif
