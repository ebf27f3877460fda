/* What happens to a recording past its bound (max_size): whole events go to the side file; when
 * that is full, its oldest part is folded (compact.h) into the trace. The collector's own: whoever
 * is the collector at the time, never in a hook. Functions return 0 or a negative errno.
 *
 * Before the bound cm_overflow_see keeps track of what is alive, because frees of it will come. */
#ifndef CM_COMPACT_OVERFLOW_H
#define CM_COMPACT_OVERFLOW_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "../trace/writer.h"
#include "../base/event.h"

/* A new recording; path is copied. */
int cm_overflow_begin(const char *trace_path, uint64_t ring_id, uint64_t side_bytes);
/* For cm_merge.see: events that go to the trace whole. false: out of memory. */
bool cm_overflow_see(uint32_t thread, const cm_event *events, size_t count);

/* Makes the side file: from now on the recording is past its bound. The caller then writes a batch
 * with serial 1 to the trace. */
int cm_overflow_enter(void);
bool cm_overflow_entered(void);
/* The serial of the newest batch, or 0 before enter. */
uint64_t cm_overflow_serial(void);
/* The most bytes that a batch should have. */
size_t cm_overflow_batch_bytes(void);
/* Puts the next batch (its serial was cm_overflow_serial() + 1) into the side file, and folds until
 * there is room for it. log_position: up to which the trace has the definitions. */
int cm_overflow_put(cm_writer *writer, const void *chunk, size_t length, uint64_t log_position);

/* Moves what the side file holds to the trace's end, whole. What was moved stays moved when it
 * fails. */
int cm_overflow_settle(cm_writer *writer);

/* Frees everything; the side file is removed if the trace has what was in it. */
void cm_overflow_finish(bool remove);
/* In a forked child: nothing is freed, the parent may have been inside the allocator. */
void cm_overflow_forget(void);

/* After each batch; the other two tell any thread what it found. */
void cm_overflow_note_memory(void);
uint64_t cm_overflow_side_used(void); /* bytes of the side file with events in them */
uint64_t cm_overflow_memory(void);    /* bytes */

#endif
