/* Where definitions (strings, codes, stacks, names) go the first time they are needed: a byte log
 * in the shared mapping, so that a killed process leaves them behind with its events. frames/ calls
 * it, capture/ implements it (and tests have a plain one in memory).
 *
 * The bytes are exactly the definition records of csrc/trace/format.h: the collector copies them
 * into the trace unread. */
#ifndef CM_FRAMES_DEFLOG_H
#define CM_FRAMES_DEFLOG_H

#include <stdbool.h>
#include <stddef.h>

/* Appends one or more whole records, all or nothing. false: no room now (the caller must not
 * assign the ids; it may try again later). Called with the intern mutex held, which makes it the
 * only producer; never blocks. The records are visible to the collector before any event that the
 * caller emits afterwards. */
bool cm_deflog_append_hook(const void *records, size_t length);

#endif
