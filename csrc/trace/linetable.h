/* CPython 3.11+ location tables ("Objects/locations.md" there): from an instruction to its place in
 * the source, columns included. Pure functions, any thread; the table may be any bytes. */
#ifndef CM_TRACE_LINETABLE_H
#define CM_TRACE_LINETABLE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct cm_position {
    int line, end_line, column, end_column; /* -1 unknown; columns are 0-based UTF-8 bytes */
} cm_position;

/* The position of the instruction at `offset` (in code units of 2 bytes). false, all -1: the table
 * ends before it or is damaged. */
bool cm_linetable_find(const uint8_t *table, size_t length, int first_line, uint32_t offset,
                       cm_position *out);

#endif
