/* Makes chunks of source lines (CM_CHUNK_LINES in format.h). Each text goes into the trace once.
 * One owner. */
#ifndef CM_TRACE_LINES_H
#define CM_TRACE_LINES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct cm_lines cm_lines;

cm_lines *cm_lines_new(void); /* NULL: out of memory */
void cm_lines_free(cm_lines *lines);

/* The line of a code that is defined before this chunk, whole, in UTF-8. Returns the bytes that it
 * adds to the trace; 0: out of memory, and nothing was added. */
size_t cm_lines_add(cm_lines *lines, uint32_t code, uint32_t line, const char *text, size_t length);

/* The chunk with all that was added since the last one, valid until the next add; false: nothing
 * was. */
bool cm_lines_finish(cm_lines *lines, const void **chunk, size_t *length);

#endif
