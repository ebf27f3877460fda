/* The events of one batch, back from the bytes that encode.h documents. Hostile input: what does
 * not decode is an error, never an access outside the section. One owner, any thread. */
#ifndef CM_TRACE_DECODE_H
#define CM_TRACE_DECODE_H

#include <stddef.h>
#include <stdint.h>

#include "../base/event.h"

/* Readable bytes (of any value) that must lie behind a section: varints are read without a check
 * each, and the end is looked at once per event. */
enum { CM_DECODE_PADDING = 64 };

typedef struct cm_decoder cm_decoder;

cm_decoder *cm_decoder_new(void); /* NULL: out of memory */
void cm_decoder_free(cm_decoder *decoder);

/* Starts a batch. The section must stay until its end. 0, or -1: it cannot be one. */
int cm_decoder_begin(cm_decoder *decoder, uint64_t anchor_ticks, const uint8_t *section,
                     size_t length, uint64_t events);
/* 1: *event and *thread filled; 0: all events were read; -1: damaged. */
int cm_decoder_next(cm_decoder *decoder, cm_event *event, uint32_t *thread);

#endif
