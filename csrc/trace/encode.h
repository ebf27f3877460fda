/* Encoding events into the bytes of one chunk. No Python, no locks; one owner (the collector, or
 * the recovery of an orphan). It allocates about 1.5 MiB and the batch itself, never in a hook.
 * Each batch costs a few hundred bytes and starts with empty predictors, so write large ones (0.25
 * to 1 MiB) when busy.
 *
 * The events section of a batch (empty when it has no events):
 *
 *   section    = u8 shift, then per event: [thread switch] event
 *   switch     = 0x07 varint thread | 0x0f                  0x0f: back to the thread before
 *   event      = tag, time, fields; the low three bits of the tag are its class
 *   time       = d < 224: u8 d
 *                d < 8160: u8 224 + ((d - 224) >> 8), u8 (d - 224) & 255
 *                else: u8 255, svarint d
 *                where d = (ticks >> shift) - (ticks >> shift of the event before; of the batch's
 *                anchor for the first). This is the only loss: a time is rounded down to a
 *                multiple of 2^shift ticks, at most 32 ns with the clocks of x86-64.
 *   attributes = u8 flags, u8 device type, i8 device index
 *   size       = varint 2 * zigzag(size / 64) + 1; not a multiple of 64: 2 * zigzag(size)
 *
 *   class and tag bits: a set bit = the field follows, in this order; clear = as predicted
 *
 *   0 ALLOC      08 svarint stack - predicted
 *                10 attributes
 *                20 size
 *                c0 address: 00 as predicted; 40 varint n: freed n frees before the last;
 *                   80 svarint (address - last allocation's) / 64; c0 svarint of the difference
 *   1 FREE       c0 address: 00 as predicted; 40 varint n: allocated n allocations before the last;
 *                   80 svarint (address - last free's) / 64; c0 svarint of the difference
 *                28 size: 00 zero; 08 as predicted (address modes 00 and 40); 20 size follows
 *                10 attributes
 *   2 NODE_NEW   08 svarint stack - predicted
 *                10 attributes
 *                20 svarint sequence - last (predicted: last + 1)
 *   3 NODE_RUN   c0 sequence: 00 last - 1; 40 svarint sequence - last; 80 none (NO_SEQUENCE)
 *                20 svarint creating thread
 *                08 varint name
 *                10 attributes
 *   4 NODE_DONE  10 attributes
 *   5 NODE_FREE  c0 sequence, 20 creating thread, 10 attributes, as in NODE_RUN
 *   6 OTHER      f8 the kind; 31: u8 kind follows the tag. After the time, u8 of the fields that
 *                differ from the last event of this kind: 01 attributes, 02 svarint address -
 *                last, 04 svarint size - last, 08 svarint stack - last
 *
 * Bits that a class does not name are 0. An event that uses a field which its class lacks is
 * written as OTHER. codec.h and docs/trace-format.md define the predictions. */
#ifndef CM_TRACE_ENCODE_H
#define CM_TRACE_ENCODE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "../base/clock.h"
#include "../base/event.h"

typedef struct cm_batch cm_batch;

cm_batch *cm_batch_new(void); /* NULL: out of memory */
void cm_batch_free(cm_batch *batch);

void cm_batch_begin(cm_batch *batch, cm_clock_anchor anchor);
/* false: out of memory, or the chunk is full (CM_CHUNK_MAX); earlier events are unaffected.
 * `thread` is the capture's number of the thread, which is never reused. The order is that of the
 * file. */
bool cm_batch_add_event(cm_batch *batch, uint32_t thread, const cm_event *event);
/* Adds successive events of one thread: all of them or, with false, none. */
bool cm_batch_add_events(cm_batch *batch, uint32_t thread, const cm_event *events, size_t count);
bool cm_batch_add_definitions(cm_batch *batch, const void *records, size_t length);
/* All definitions added since begin; valid until the next add. */
const void *cm_batch_definitions(const cm_batch *batch, size_t *length);
bool cm_batch_add_cover(cm_batch *batch, uint32_t ring, uint64_t position);
void cm_batch_set_log_position(cm_batch *batch, uint64_t position);
/* Sets the number of the last side file batch that the trace contains with this one (format.h). 0:
 * it has no side file. */
void cm_batch_set_side(cm_batch *batch, uint64_t serial);
size_t cm_batch_size(const cm_batch *batch); /* bytes so far, roughly */
uint64_t cm_batch_events(const cm_batch *batch);
/* The whole chunk with its header, valid until the next begin. false: out of memory. */
bool cm_batch_finish(cm_batch *batch, const void **bytes, size_t *length);

#endif
