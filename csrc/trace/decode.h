/* Decoding the events of a batch from the bytes that encode.h documents. Input may be hostile: it
 * leads to an error, never to an access outside the section. One owner, any thread. */
#ifndef CM_TRACE_DECODE_H
#define CM_TRACE_DECODE_H

#include <stddef.h>
#include <stdint.h>

#include "../base/event.h"

/* Readable bytes (of any value) that must follow a section: the end is checked once per event, not
 * once per varint. */
enum { CM_DECODE_PADDING = 64 };

typedef struct cm_decoder cm_decoder;

cm_decoder *cm_decoder_new(void); /* NULL: out of memory */
void cm_decoder_free(cm_decoder *decoder);

/* Starts a batch. The section must stay valid until its end. 0, or -1: it is damaged. */
int cm_decoder_begin(cm_decoder *decoder, uint64_t anchor_ticks, const uint8_t *section,
                     size_t length, uint64_t events);
/* 1: *event and *thread filled; 0: all events were read; -1: damaged. */
int cm_decoder_next(cm_decoder *decoder, cm_event *event, uint32_t *thread);

#endif
