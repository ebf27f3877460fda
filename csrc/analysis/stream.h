/* The contents of a window, item by item in the order of the trace, for exports: first the blocks
 * alive at its start, then its events. Memory grows with live blocks, stacks and steps, not with
 * events. One owner, any thread. */
#ifndef CM_ANALYSIS_STREAM_H
#define CM_ANALYSIS_STREAM_H

#include "analysis.h"

typedef enum cm_item_kind {
    CM_ITEM_START = 0, /* a block that was alive when the window began */
    CM_ITEM_ALLOC,
    CM_ITEM_FREE,
    CM_ITEM_REQUESTED,   /* the requested size of a block, after its ALLOC: bytes */
    CM_ITEM_RESERVED,    /* the allocator's total: bytes */
    CM_ITEM_SEGMENT_NEW, /* the allocator took memory from the device */
    CM_ITEM_SEGMENT_FREE,
    CM_ITEM_OOM,       /* bytes: requested; live: allocated then */
    CM_ITEM_STEP,      /* step ended (-1: the time before the first); the next one begins */
    CM_ITEM_LAUNCH,    /* bytes: correlation id; address: stream; flags: cm_work_kind */
    CM_ITEM_WORK,      /* bytes: nanoseconds; address: correlation id; flags: cm_work_kind */
    CM_ITEM_RESIDENT,  /* bytes */
    CM_ITEM_COMPACTED, /* compacted blocks, born and freed: bytes, count in address */
    CM_ITEM_LEFT_OUT,  /* compacted events: count in address */
    CM_ITEM_LOST,      /* events that a thread could not store: bytes */
    CM_ITEM_MAPPED,    /* memory of an expandable segment, before the blocks in it */
    CM_ITEM_UNMAPPED
} cm_item_kind;

typedef struct cm_item {
    cm_item_kind kind;
    uint32_t thread;
    uint64_t time_ns; /* since the window began */
    uint64_t address;
    int64_t bytes, live;
    int32_t step;    /* blocks: of birth; STEP: ended; OOM: current; -1: none */
    uint32_t origin; /* blocks: cm_origin */
    uint32_t stack;  /* SEGMENT, MAPPED, OOM, LAUNCH; WORK: a name */
    int64_t slack;   /* blocks: bytes beyond the request, as far as reported */
    int16_t device;  /* number in the replay; -1: none; LAUNCH, WORK: CUDA's index */
    uint8_t flags;
    bool reported; /* blocks: the program's own event, not a correction; SEGMENT: not from before */
} cm_item;

typedef struct cm_stream cm_stream;

/* Opens the window and reads it once. The reader stays the caller's. NULL with one line in error
 * ("" if progress cancelled). */
cm_stream *cm_stream_open(cm_reader *reader, const cm_analysis_options *options, char *error,
                          size_t error_size);
void cm_stream_close(cm_stream *stream);
/* Up to `room` items of a bounded number of records. false: error is set. *over: no more follow. */
bool cm_stream_read(cm_stream *stream, cm_item *item, size_t room, size_t *count, bool *over,
                    char *error, size_t error_size);
double cm_stream_progress(const cm_stream *stream); /* 0 to 1, of what was returned */
const cm_plan *cm_stream_plan(const cm_stream *stream);
const cm_replay *cm_stream_replay(const cm_stream *stream);
const char *cm_stream_code(const cm_stream *stream); /* packages that count as user code */

#endif
