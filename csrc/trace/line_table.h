/* Reading CPython's location tables (3.11+, "Objects/locations.md" there), which give an
 * instruction's line and columns. Pure functions, any thread; the table may be any bytes. */
#ifndef CM_TRACE_LINE_TABLE_H
#define CM_TRACE_LINE_TABLE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct cm_position {
    int line, end_line, column, end_column; /* -1 unknown; columns are 0-based UTF-8 bytes */
} cm_position;

/* A place between two entries of a table: the bytes and code units before it, and the line that the
 * next entry is relative to. At the table's beginning all but the line are zero. */
typedef struct cm_linetable_mark {
    uint32_t byte, offset, line;
} cm_linetable_mark;

/* The position of the instruction at `offset` (in code units of 2 bytes), searched from a mark at
 * or before it. false, with -1 in all fields: the table ends before it or is damaged. */
bool cm_linetable_find_from(const uint8_t *table, size_t length, cm_linetable_mark mark,
                            uint32_t offset, cm_position *out);
/* The same, from the table's beginning. */
bool cm_linetable_find(const uint8_t *table, size_t length, int first_line, uint32_t offset,
                       cm_position *out);

/* Moves the mark by `entries` entries. false: the table ends before that or is damaged. */
bool cm_linetable_pass(const uint8_t *table, size_t length, int entries, cm_linetable_mark *mark);

#endif
