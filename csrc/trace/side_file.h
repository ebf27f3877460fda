/* The side file of a trace that has reached its size limit (format.h). It is preallocated, so that
 * a full disk cannot stop recording; its parts are used in turn. */
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

/* Creates the side file of the trace at this path. It replaces another trace's side file and an
 * empty file, but no other file (-EEXIST). -ENOSPC: the disk has no room. */
int cm_side_create(const char *trace_path, uint64_t ring_id, uint64_t bytes, cm_side **out);
/* Appends a chunk. -ENOBUFS: the oldest part must be released first. */
int cm_side_append(cm_side *side, const void *chunk, size_t length);
/* The chunks of the oldest part, valid until the next call; length 0: there are none. */
int cm_side_oldest(cm_side *side, const uint8_t **chunks, size_t *length);
/* Frees the oldest part, whose chunks were written to the trace. */
void cm_side_release(cm_side *side);
uint64_t cm_side_used(const cm_side *side);     /* bytes */
size_t cm_side_part_bytes(const cm_side *side); /* the most a chunk may have */
void cm_side_close(cm_side *side, bool and_remove);
/* In a forked child: closes the file and frees nothing. NULL is allowed. */
void cm_side_forget(cm_side *side);

/* --- reading: any thread, any process ------------------------------------------------------- */

typedef enum cm_side_found {
    CM_SIDE_READ,    /* *chunks has all chunks after `after`, perhaps none */
    CM_SIDE_MISSING, /* no such file, or another trace's */
    CM_SIDE_GAP,     /* some chunks right after `after` are missing */
    CM_SIDE_MEMORY   /* out of memory */
} cm_side_found;

/* *chunks is malloc'ed, or NULL if there are none. `after` becomes the last one's serial. */
cm_side_found cm_side_read(const char *trace_path, uint64_t ring_id, uint64_t *after,
                           uint8_t **chunks, size_t *length);
/* The same for a reader that goes on: reads what was written behind the last chunk alone. place:
 * all zero at first, then the file's as it was left. */
typedef struct cm_side_place {
    bool known;
    unsigned part;
    uint64_t offset; /* in the part: behind the chunk with the number `after` */
    int64_t seconds,
        nanoseconds; /* when the file was last written to, when nothing new was found */
} cm_side_place;
cm_side_found cm_side_read_on(const char *trace_path, uint64_t ring_id, cm_side_place *place,
                              uint64_t *after, uint8_t **chunks, size_t *length);
/* Removes the side file if it is this trace's, or empty because the process was killed early. */
void cm_side_remove(const char *trace_path, uint64_t ring_id);

/* Finds the parts of a batch's payload, whose contents are not checked; false: damaged. */
typedef struct cm_batch_parts {
    cm_clock_anchor anchor;
    uint64_t events, cover_count, log_position, side;
    const uint8_t *section;
    size_t section_length;
    cm_cursor covers;
} cm_batch_parts;
bool cm_batch_parse(const uint8_t *payload, size_t length, cm_batch_parts *out);
/* Takes the first batch off the chunks; false: none begins there. */
bool cm_batch_next(const uint8_t **chunks, size_t *length, cm_batch_parts *out);

#endif
