/* CPython 3.11+ location tables ("Objects/locations.md" there): from an instruction to its place in
 * the source, columns included. Pure functions, any thread; the table may be any bytes. */
#ifndef CM_TRACE_LINE_TABLE_H
#define CM_TRACE_LINE_TABLE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct cm_position {
    int line, end_line, column, end_column; /* -1 unknown; columns are 0-based UTF-8 bytes */
} cm_position;

/* A place between two entries of a table: so many bytes and code units lie before it, and `line` is
 * what the next entry's line is counted from. All zero but the line: the table's begin. */
typedef struct cm_linetable_mark {
    uint32_t byte, offset, line;
} cm_linetable_mark;

/* The position of the instruction at `offset` (in code units of 2 bytes), searched from a mark that
 * lies at or before it. false, all -1: the table ends before it or is damaged. */
bool cm_linetable_find_from(const uint8_t *table, size_t length, cm_linetable_mark mark,
                            uint32_t offset, cm_position *out);
/* From the table's begin. */
bool cm_linetable_find(const uint8_t *table, size_t length, int first_line, uint32_t offset,
                       cm_position *out);

/* Passes `entries` entries. false: the table ends before that or is damaged. */
bool cm_linetable_pass(const uint8_t *table, size_t length, int entries, cm_linetable_mark *mark);

#endif
