/* Building definition records (base/definition.h) and appending them to the log. The process has
 * one record under construction, guarded by the intern mutex. Hooks may call this. */
#ifndef CM_FRAMES_RECORD_H
#define CM_FRAMES_RECORD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "../base/definition.h"
#include "text.h"

void cm_record_start(void);
void cm_record_put(uint64_t value);                             /* a varint, also for kinds */
void cm_record_put_bytes(const void *bytes, size_t length);     /* preceded by their length */
void cm_record_put_text(cm_def_kind kind, const cm_text *text); /* a whole STRING or NAME */

/* false: the log had no room; nothing was appended. */
bool cm_record_append(void);

/* How many bytes of a line table, cut at an entry, fit into a record beside two texts. */
size_t cm_record_line_table_length(const unsigned char *table, size_t length);

#endif
