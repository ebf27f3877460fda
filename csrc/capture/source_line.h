/* Lines in the bytes of a Python file. Pure functions, any thread. */
#ifndef CM_CAPTURE_SOURCE_LINE_H
#define CM_CAPTURE_SOURCE_LINE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "../trace/line_table.h"

enum { CM_SOURCE_ENCODING = 32 };

/* Goes through lines from the first on; `at` and `line` are where it is. */
typedef struct cm_source_lines {
    const uint8_t *bytes;
    size_t length, at;
    uint32_t line; /* that begins at `at`, from 1 */
} cm_source_lines;

cm_source_lines cm_source_lines_of(const uint8_t *bytes, size_t length);
/* Moves on to a line at or after `line`; without its end. NULL: there are fewer. */
const uint8_t *cm_source_lines_find(cm_source_lines *lines, uint32_t line, size_t *length);

/* The encoding in the first two lines (PEP 263), else "utf-8"; in lower case, with "-" for "_", cut
 * to fit. */
void cm_source_encoding(const uint8_t *bytes, size_t length, char out[CM_SOURCE_ENCODING]);
bool cm_source_is_utf8(const char *encoding);

/* Copies at most `room` bytes as valid UTF-8: invalid bytes become U+FFFD, a cut text ends with an
 * ellipsis. Returns its length. */
size_t cm_source_copy(const uint8_t *bytes, size_t length, char *out, size_t room);

/* Whether an expression may lie at these columns of the line. */
bool cm_source_fits(const uint8_t *text, size_t length, const cm_position *at);

#endif
