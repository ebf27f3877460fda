/* Puts definition records (base/definition.h) together and appends them to the log. There is one
 * record under construction in the process: the intern mutex guards it. Hooks may call this. */
#ifndef CM_FRAMES_RECORD_H
#define CM_FRAMES_RECORD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "../base/definition.h"
#include "text.h"

void cm_record_start(void);
void cm_record_put(uint64_t value);                             /* a varint: kinds too */
void cm_record_put_bytes(const void *bytes, size_t length);     /* with their length */
void cm_record_put_text(cm_def_kind kind, const cm_text *text); /* a whole STRING or NAME */

/* false: the log had no room; nothing was appended. */
bool cm_record_append(void);

/* How many bytes of a line table fit into a record beside two texts: cut at an entry. */
size_t cm_record_line_table_length(const unsigned char *table, size_t length);

#endif
