/* The log of definitions (strings, codes, stacks, names), written when each is first needed. It
 * lies in the shared mapping, so that a killed process leaves it behind with its events. frames/
 * calls it, capture/ implements it; tests have one in memory.
 *
 * The bytes are the definition records of base/definition.h, which the collector copies into the
 * trace without parsing them. */
#ifndef CM_FRAMES_DEFLOG_H
#define CM_FRAMES_DEFLOG_H

#include <stdbool.h>
#include <stddef.h>

/* The longest append. A larger line table is cut at an entry, which loses the lines at the end of a
 * huge generated function. A log with less room than this could never define such a function. */
enum { CM_DEFLOG_APPEND_MAX = 128 * 1024 };

/* Appends whole records, all or none. false: no room now; the caller must not assign the ids and
 * may try again later. The caller holds the intern mutex, so there is one producer; never blocks.
 * The collector sees the records before any event that the caller emits afterwards. */
bool cm_deflog_append_hook(const void *records, size_t length);

#endif
