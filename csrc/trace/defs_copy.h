/* Copying definitions from one trace to another, under new ids, each when it is first needed. A
 * code becomes one code per position that occurs, with a location table of one entry. One owner. */
#ifndef CM_TRACE_DEFS_COPY_H
#define CM_TRACE_DEFS_COPY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "reader.h"

typedef struct cm_defs_copy cm_defs_copy;

cm_defs_copy *cm_defs_copy_new(const cm_reader *reader); /* NULL: out of memory */
void cm_defs_copy_free(cm_defs_copy *definitions);

/* The id in the new trace. false: out of memory. */
bool cm_defs_copy_stack(cm_defs_copy *definitions, uint32_t stack, uint32_t *id);
bool cm_defs_copy_name(cm_defs_copy *definitions, uint32_t name, uint32_t *id);

/* The records made since the last call, to be written before any reference to them. */
const void *cm_defs_copy_take(cm_defs_copy *definitions, size_t *length);

/* A chunk with the source lines of these records, to be written after them; valid until the next
 * call. false: there are none. */
bool cm_defs_copy_take_lines(cm_defs_copy *definitions, const void **chunk, size_t *length);

#endif
