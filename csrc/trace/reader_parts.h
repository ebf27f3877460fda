/* What the files of the reader know of each other. */
#ifndef CM_TRACE_READER_PARTS_H
#define CM_TRACE_READER_PARTS_H

#include "../base/bytes.h"
#include "chunks.h"
#include "decode.h"
#include "defs.h"
#include "format.h"
#include "reader.h"
#include "timeline.h"

typedef struct cm_reader_pair {
    char *key, *value;
} cm_reader_pair;

/* How many definitions there were behind a chunk that had some. A second pass knows them all, and
 * must not make more of an event than the first one did. */
typedef struct cm_reader_horizon {
    uint64_t position;
    uint32_t stacks, names;
} cm_reader_horizon;

struct cm_reader {
    cm_chunks chunks;
    char *path;
    uint8_t front[CM_HEADER_SIZE + CM_CHUNK_HEADER_SIZE]; /* with the checksum of its first meta:
                                                             no other trace begins so */
    unsigned minor;                                       /* of the format that it was written in */
    uint64_t second_chunk; /* where a second pass begins: the first chunk is meta, and known */
    uint64_t defined;      /* position of the last chunk whose definitions and meta are known */
    bool tail_known; /* the ring file was asked: never again, so that a second pass sees the same */
    uint64_t bad_chunk;  /* the one that is damaged behind its checksum, 0 = none: a second */
    char bad_error[256]; /* pass ends there too, though it skips what it knows */

    cm_defs *defs;
    cm_reader_horizon *horizons;
    size_t horizon_count, horizon_capacity, horizon_next;
    uint32_t stacks_seen, names_seen; /* by the present chunk */
    cm_reader_pair *meta;
    size_t meta_count, meta_capacity;
    uint64_t
        ahead; /* meta and lines of chunks that end up to here are known: they were read ahead */
    bool ahead_damaged; /* the chunk behind is, and not looked at again */
    uint64_t *cover;
    size_t cover_count;
    uint64_t log_position;
    uint64_t side; /* up to which batch of the side file the trace is complete; 0 = it has none */

    cm_decoder *decoder;
    cm_timeline time, first_time; /* now; and after the first batch was begun */
    uint64_t first_batch;         /* its position, 0 = not seen yet */
    uint64_t lost_events, lost_stacks, unknown_references;
    cm_reader_place begun; /* before the present chunk */
    uint64_t decoded;      /* records, in the chunks before */
    char *end_reason;
    bool ended, over, failed;
    cm_reader_state state;
    char error[256];
    char no_end[256]; /* why there is no end, for the passes after the one that found out */
};

/* -1, with one line in reader->error. */
__attribute__((format(printf, 2, 3))) int cm_reader_say(cm_reader *reader, const char *format, ...);
int cm_reader_out_of_memory(cm_reader *reader);

/* reader_meta.c: the present chunk. 0, or -1 with an error, as all below. */
int cm_reader_read_meta(cm_reader *reader);
bool cm_reader_was_read_ahead(const cm_reader *reader);
int cm_reader_read_end(cm_reader *reader);
int cm_reader_read_lines(cm_reader *reader); /* reader_frames.c */

/* reader_batch.c: begins the present chunk. known: its definitions are. */
int cm_reader_read_batch(cm_reader *reader, bool known);
/* Up to where of each ring the trace has told. */
int cm_reader_add_covers(cm_reader *reader, cm_cursor *c, uint64_t n);

/* reader_tail.c: there is no end chunk. True: there are more chunks to read, of the file, its side
 * file or the ring. */
bool cm_reader_find_more(cm_reader *reader, bool partial);

#endif
