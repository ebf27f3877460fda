/* Reading a trace from front to back. The file may be hostile: every length is checked against the
 * file's, and no allocation is sized by an unchecked number. Memory: the definitions (strings,
 * codes, stacks, names) and one chunk. */
#ifndef CM_TRACE_READER_H
#define CM_TRACE_READER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "../base/event.h"
#include "timeline.h"

typedef struct cm_reader cm_reader;

typedef struct cm_record {
    cm_event event;
    uint32_t thread;  /* capture's thread number */
    uint64_t time_ns; /* nanoseconds since the trace's start (its first anchor, or the earliest
                         event of its first batch); may step back a little */
} cm_record;

typedef enum cm_reader_state {
    CM_TRACE_COMPLETE = 0,  /* it has its end chunk, or its process ended by exec (meta "exec") */
    CM_TRACE_RECORDING = 1, /* its process is alive: the chunks written so far */
    CM_TRACE_RECOVERED = 2, /* the process was killed, and its ring file was read or its contents
                               were appended to the trace: nothing published is lost */
    CM_TRACE_CUT = 3        /* its tail is missing: no end chunk and no ring file, or damage after
                               the last whole chunk. cm_reader_error gives the reason */
} cm_reader_state;

/* NULL with one line in error: unreadable, foreign, newer major, corrupt header. */
cm_reader *cm_reader_open(const char *path, char *error, size_t error_size);
void cm_reader_close(cm_reader *reader);
/* Closes the file between two readings: a program that closes all descriptors may reuse their
 * numbers. Definitions and meta stay. */
void cm_reader_close_file(cm_reader *reader);
/* Opens it again. false: it was removed or replaced. */
bool cm_reader_reopen(cm_reader *reader);
/* Goes back to the first record. Definitions, meta and the ring file's tail stay known. A pass
 * after a finished one gives exactly the same records, even if the trace has grown. */
void cm_reader_rewind(cm_reader *reader);

/* A place between two records: its chunk, and how many of the chunk's records precede it. */
typedef struct cm_reader_place {
    uint64_t offset, tail_offset, chunk; /* of file and tail; chunks before */
    cm_timeline time;
    uint64_t lost_events, lost_stacks, unknown_references;
    size_t horizon;
    uint32_t stacks, names; /* defined by then */
    uint64_t records;
} cm_reader_place;
cm_reader_place cm_reader_tell(const cm_reader *reader);
/* Goes to a place that cm_reader_tell returned. Returns 1, or else as cm_reader_next. */
int cm_reader_seek(cm_reader *reader, const cm_reader_place *place);
/* Checks whether the trace has grown since its end was reached; the next record is then the first
 * new one. false: events read from the side file or ring may since have been written to the file in
 * another form, so a new reader is needed. */
bool cm_reader_follow(cm_reader *reader, bool *grew);

/* The same for a reader that is never rewound: it follows a trace past its bound, too, batch by
 * batch of the side file. false: what has come cannot be joined to what was read, so a new reader
 * is needed. */
bool cm_reader_go_on(cm_reader *reader);

/* 1: *record filled; 0: end; -1: damaged definitions or events inside a chunk whose checksum is
 * right (error text by cm_reader_error). The state is final once this has returned 0 or -1. */
int cm_reader_next(cm_reader *reader, cm_record *record);
const char *cm_reader_error(const cm_reader *reader); /* one line without the path; "" = nothing */
cm_reader_state cm_reader_get_state(const cm_reader *reader);
const char *cm_reader_end_reason(const cm_reader *reader); /* "" unless the end chunk gives one */
/* Records decoded in all passes. */
uint64_t cm_reader_decoded(const cm_reader *reader);
/* Share of the file consumed, 0 to 1. */
double cm_reader_progress(const cm_reader *reader);

/* Also reads the meta and source lines of later chunks. */
void cm_reader_read_ahead(cm_reader *reader);
/* Meta of the header and of later META chunks; NULL if absent. Key order is file order. */
const char *cm_reader_meta(const cm_reader *reader, const char *key);
size_t cm_reader_meta_count(const cm_reader *reader);
void cm_reader_meta_at(const cm_reader *reader, size_t i, const char **key, const char **value);

/* Wall clock in nanoseconds (CLOCK_REALTIME) at time_ns 0; known once a record was read. */
uint64_t cm_reader_start_realtime_ns(const cm_reader *reader);

/* Totals of the END chunk, or else the sum of LOST events so far. An event with an undefined stack
 * (name) gets CM_STACK_LOST (0) and counts as a lost stack, so ids in records can be used as
 * indices. */
uint64_t cm_reader_lost_events(const cm_reader *reader);
uint64_t cm_reader_lost_stacks(const cm_reader *reader);

/* Definitions read so far. Undefined ids give NULL or zeros. Strings are valid as long as the
 * reader. */
typedef struct cm_frame {
    const char *file, *function; /* function is the qualified name */
    int line, end_line;          /* 1-based, -1 unknown */
    int column, end_column;      /* 0-based UTF-8 bytes, -1 unknown */
    int first_line;              /* of the function */
    uint32_t code;               /* code id */
    uint64_t module;             /* address of the nn.Module that this frame calls, else 0 */
    const char *module_class;    /* its class, else NULL */
    bool truncated;              /* replaces outer frames that were dropped */
    const char *text;            /* the whole source line, NULL unknown so far */
} cm_frame;
/* Their ids are CM_STACK_FIRST to CM_STACK_FIRST + count - 1. */
uint32_t cm_reader_stack_count(const cm_reader *reader);
uint32_t cm_reader_stack_parent(const cm_reader *reader, uint32_t stack);
/* The innermost frame of a stack; false for reserved and unknown ids. */
bool cm_reader_stack_frame(const cm_reader *reader, uint32_t stack, cm_frame *out);
/* Bytes of a stack's frames when written out, roughly. */
uint32_t cm_reader_stack_cost(const cm_reader *reader, uint32_t stack);
/* Stacks and texts beyond the limits of defs.h. */
uint64_t cm_reader_cut_stacks(const cm_reader *reader);
uint64_t cm_reader_cut_texts(const cm_reader *reader);
/* Bytes of the file, side file and ring that were read. */
uint64_t cm_reader_bytes(const cm_reader *reader);
const char *cm_reader_name(const cm_reader *reader, uint32_t name);

#endif
