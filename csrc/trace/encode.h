/* Turns events into the bytes of one chunk. No Python, no locks; one owner (the collector, or the
 * recovery of an orphan). Memory is taken once in cm_batch_new and by growing there, never in a
 * hook. */
#ifndef CM_TRACE_ENCODE_H
#define CM_TRACE_ENCODE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "../capture/clock.h"
#include "../capture/event.h"

typedef struct cm_batch cm_batch;

cm_batch *cm_batch_new(void); /* NULL: out of memory */
void cm_batch_free(cm_batch *batch);

void cm_batch_begin(cm_batch *batch, cm_clock_anchor anchor);
/* false: out of memory; what was added before is still whole. `thread` is the number the capture
 * gave the thread (it is never used again for another), order is the order of the file. */
bool cm_batch_add_event(cm_batch *batch, uint32_t thread, const cm_event *event);
bool cm_batch_add_definitions(cm_batch *batch, const void *records, size_t length);
bool cm_batch_add_cover(cm_batch *batch, uint32_t ring, uint64_t position);
void cm_batch_set_log_position(cm_batch *batch, uint64_t position);
size_t cm_batch_size(const cm_batch *batch);     /* bytes so far, about */
uint64_t cm_batch_events(const cm_batch *batch);
/* The whole chunk with its header, valid until the next begin. false: out of memory. */
bool cm_batch_finish(cm_batch *batch, const void **bytes, size_t *length);

#endif
