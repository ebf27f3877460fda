/* Where definitions (strings, codes, stacks, names) go the first time they are needed: a byte log
 * in the shared mapping, so that a killed process leaves them behind with its events. frames/ calls
 * it, capture/ implements it (and tests have a plain one in memory).
 *
 * The bytes are exactly the definition records of base/definition.h: the collector copies them
 * into the trace unread. */
#ifndef CM_FRAMES_DEFLOG_H
#define CM_FRAMES_DEFLOG_H

#include <stdbool.h>
#include <stddef.h>

/* No single append is longer: a line table that would not fit is cut at an entry (the lines of the
 * last part of a huge generated function are then unknown). A log with less room than this would
 * lose such a function's stacks for ever. */
enum { CM_DEFLOG_APPEND_MAX = 128 * 1024 };

/* Appends one or more whole records, all or nothing. false: no room now (the caller must not
 * assign the ids; it may try again later). Called with the intern mutex held, which makes it the
 * only producer; never blocks. The records are visible to the collector before any event that the
 * caller emits afterwards. */
bool cm_deflog_append_hook(const void *records, size_t length);

#endif
