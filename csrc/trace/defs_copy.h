/* Copying definitions from one trace to another, under new ids, each when it is first needed. A
 * code becomes one code per position that occurs, with a location table of one entry. One owner. */
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

/* The records made since the last call, to be written before any reference to them. */
const void *cm_redefine_take(cm_redefine *definitions, size_t *length);

/* A chunk with the source lines of these records, to be written after them; valid until the next
 * call. false: there are none. */
bool cm_redefine_take_lines(cm_redefine *definitions, const void **chunk, size_t *length);

#endif
