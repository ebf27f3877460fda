/* Building chunks of source lines (CM_CHUNK_LINES in format.h). Each text is written once. One
 * owner. */
#ifndef CM_TRACE_LINES_H
#define CM_TRACE_LINES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct cm_lines cm_lines;

cm_lines *cm_lines_new(void); /* NULL: out of memory */
void cm_lines_free(cm_lines *lines);

/* Adds a whole line, in UTF-8, of a code that is defined before this chunk. Returns the bytes that
 * this adds to the trace; 0: out of memory. */
size_t cm_lines_add(cm_lines *lines, uint32_t code, uint32_t line, const char *text, size_t length);

/* The chunk with the lines added since the last one, valid until the next add; false: none were. */
bool cm_lines_finish(cm_lines *lines, const void **chunk, size_t *length);

#endif
