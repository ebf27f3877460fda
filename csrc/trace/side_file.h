/* The side file of a trace past its bound (format.h): preallocated, so that a full disk cannot stop
 * what goes there; its parts are used in turn. */
#ifndef CM_TRACE_SIDE_FILE_H
#define CM_TRACE_SIDE_FILE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "../base/clock.h"
#include "../base/bytes.h"

/* --- writing: one owner at a time, any thread but never in a hook. 0 or a negative errno. --- */

typedef struct cm_side cm_side;

enum { CM_SIDE_PARTS = 8, CM_SIDE_BYTES_MIN = 128 << 10, CM_SIDE_BYTES_MAX = 64 << 20 };

/* Makes the side file of the trace at this path. One that another trace left there is replaced, as
 * is an empty file; any other file is never touched (-EEXIST). -ENOSPC: there is no room for it. */
int cm_side_create(const char *trace_path, uint64_t ring_id, uint64_t bytes, cm_side **out);
/* Behind what is there. -ENOBUFS: its part would have to be reused first (oldest, release). */
int cm_side_append(cm_side *side, const void *chunk, size_t length);
/* The chunks of the oldest part, valid until the next call; length 0: there are none. */
int cm_side_oldest(cm_side *side, const uint8_t **chunks, size_t *length);
/* The trace has them now. */
void cm_side_release(cm_side *side);
uint64_t cm_side_used(const cm_side *side);     /* bytes */
size_t cm_side_part_bytes(const cm_side *side); /* the most a chunk may have */
void cm_side_close(cm_side *side, bool and_remove);
/* In a forked child: closes the file, and frees nothing. NULL is fine. */
void cm_side_forget(cm_side *side);

/* --- reading: any thread, any process ------------------------------------------------------- */

typedef enum cm_side_found {
    CM_SIDE_READ,    /* *chunks has all that follow `after`, perhaps none */
    CM_SIDE_MISSING, /* no such file, or another trace's */
    CM_SIDE_GAP,     /* some chunks right behind `after` are not there (any more) */
    CM_SIDE_MEMORY   /* out of memory */
} cm_side_found;

/* *chunks is malloc'ed, or NULL when there are none. `after` moves to the last one's serial. */
cm_side_found cm_side_read(const char *trace_path, uint64_t ring_id, uint64_t *after,
                           uint8_t **chunks, size_t *length);
/* Removes the side file if it is this trace's, or empty: killed before it had a header. */
void cm_side_remove(const char *trace_path, uint64_t ring_id);

/* What a batch's payload consists of; false: damaged. Nothing in it is checked further. */
typedef struct cm_batch_parts {
    cm_clock_anchor anchor;
    uint64_t events, cover_count, log_position, side;
    const uint8_t *section;
    size_t section_length;
    cm_cursor covers;
} cm_batch_parts;
bool cm_batch_parse(const uint8_t *payload, size_t length, cm_batch_parts *out);
/* The first of these batches, which the two then no longer have; false: none begins there. */
bool cm_batch_next(const uint8_t **chunks, size_t *length, cm_batch_parts *out);

#endif
