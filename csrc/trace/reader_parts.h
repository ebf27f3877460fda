/* The reader's state, shared by its files. */
#ifndef CM_TRACE_READER_PARTS_H
#define CM_TRACE_READER_PARTS_H

#include "../base/bytes.h"
#include "chunks.h"
#include "decode.h"
#include "defs.h"
#include "format.h"
#include "reader.h"
#include "side_file.h"
#include "timeline.h"

typedef struct cm_reader_pair {
    char *key, *value;
} cm_reader_pair;

/* The number of definitions after a chunk. A second pass knows them all, but must resolve an
 * event's ids exactly as the first pass did. */
typedef struct cm_reader_horizon {
    uint64_t position;
    uint32_t stacks, names;
} cm_reader_horizon;

struct cm_reader {
    cm_chunks chunks;
    char *path;
    uint8_t front[CM_HEADER_SIZE + CM_CHUNK_HEADER_SIZE]; /* unique, for it has the checksum of the
                                                             first meta chunk */
    unsigned minor;                                       /* of the format version */
    uint64_t second_chunk; /* a second pass begins there: the first chunk is meta */
    uint64_t defined;      /* position of the last chunk with known definitions and meta */
    bool tail_known;       /* the ring file was read; only once, so that all passes are the same */
    uint64_t bad_chunk;    /* the chunk with damage that its checksum does not show, 0 = none */
    char bad_error[256];   /* its error; a second pass ends there, too */

    void (*before_definitions)(void *waiter); /* NULL, or called before defs or meta change */
    void *waiter;

    cm_defs *defs;
    cm_reader_horizon *horizons;
    size_t horizon_count, horizon_capacity, horizon_next;
    uint32_t stacks_seen, names_seen; /* at the current chunk */
    cm_reader_pair *meta;
    size_t meta_count, meta_capacity;
    uint64_t ahead; /* meta and lines of chunks up to this offset are known: they were read ahead */
    bool ahead_damaged; /* the chunk at that offset is damaged and not read ahead again */
    uint64_t *cover;
    size_t cover_count;
    uint64_t log_position;
    uint64_t side; /* the last side file batch that the trace contains; 0 = no side file */

    /* Of a reader that goes on past the bound (reader_tail.c): where the file was read up to, the
     * last batch that the file contains, and the last one that was read, of file or side file. */
    uint64_t file_next, file_side, side_last;
    cm_side_place side_place;

    cm_decoder *decoder;
    cm_timeline time, first_time; /* now; and after the first batch was begun */
    uint64_t first_batch;         /* its position, 0 = not seen yet */
    uint64_t lost_events, lost_stacks, unknown_references;
    cm_reader_place begun; /* before the current chunk */
    uint64_t decoded;      /* records, in earlier chunks */
    char *end_reason;
    bool ended, over, failed;
    cm_reader_state state;
    char error[256];
    char no_end[256]; /* the error if there is no end, repeated in later passes */
};

/* Sets the error, one line. Returns -1. */
__attribute__((format(printf, 2, 3))) int cm_reader_fail(cm_reader *reader, const char *format,
                                                         ...);
int cm_reader_out_of_memory(cm_reader *reader);

/* As cm_reader_next, several records of one chunk. *count: how many, 0 if it does not return 1. */
int cm_reader_next_few(cm_reader *reader, cm_record *records, size_t room, size_t *count);

/* reader_meta.c: reads the current chunk. 0, or -1 with an error, as all below. */
int cm_reader_read_meta(cm_reader *reader);
bool cm_reader_was_read_ahead(const cm_reader *reader);
int cm_reader_read_end(cm_reader *reader);
int cm_reader_read_lines(cm_reader *reader); /* reader_frames.c */

/* reader_batch.c: begins the current chunk. known: its definitions were read. */
int cm_reader_read_batch(cm_reader *reader, bool known);
/* Adds the positions up to which the trace contains each ring. */
int cm_reader_add_covers(cm_reader *reader, cm_cursor *c, uint64_t n);

/* reader_tail.c: without an end chunk, finds more chunks to read, of the file, its side file or the
 * ring. false: there are none. */
bool cm_reader_find_more(cm_reader *reader, bool partial);

#endif
