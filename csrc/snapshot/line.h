/* Texts of a pickle's first protocol, which are escaped in one line. Each writes UTF-8 of at most
 * twice the length, and returns its length. */
#ifndef CM_SNAPSHOT_LINE_H
#define CM_SNAPSHOT_LINE_H

#include <stddef.h>
#include <stdint.h>

/* Latin-1, and \uXXXX or \UXXXXXXXX. */
size_t cm_line_unicode(const uint8_t *text, size_t length, uint8_t *out);
/* As repr() of bytes, with its quotes. */
size_t cm_line_quoted(const uint8_t *text, size_t length, uint8_t *out);

#endif
