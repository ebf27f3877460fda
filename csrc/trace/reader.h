/* A trace, read once from front to back. The file is hostile until proved otherwise: every length
 * is checked against what is there, and no allocation is sized by an unchecked number.
 *
 * Memory: the definitions (strings, codes, stacks, names) and one chunk. */
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
    CM_TRACE_RECORDING = 1, /* its process is still alive: whole chunks so far */
    CM_TRACE_RECOVERED = 2, /* the process was killed, but its ring file was there (now, or when its
                               tail was appended to the trace): nothing published is lost */
    CM_TRACE_CUT = 3        /* no end chunk and no ring file, or the file is damaged behind the last
                               whole chunk: its tail is missing; cm_reader_error says why */
} cm_reader_state;

/* NULL with one line in error: unreadable, foreign, newer major, corrupt header. */
cm_reader *cm_reader_open(const char *path, char *error, size_t error_size);
void cm_reader_close(cm_reader *reader);
/* Between two readings its file is closed: a program that closes all descriptors gives their
 * numbers to files of its own. Definitions and meta stay. */
void cm_reader_let_go(cm_reader *reader);
/* Opens it again. false: it is not there any more, or another one is. */
bool cm_reader_take_up(cm_reader *reader);
/* Back to the first record. What a pass found out stays: definitions, meta, the ring file's tail. A
 * pass after a finished one gives exactly the same records (a trace that grows does not grow for
 * this reader any more). */
void cm_reader_rewind(cm_reader *reader);

/* A place between two records: the chunk that it is in, and how many of its records lie before. */
typedef struct cm_reader_place {
    uint64_t offset, tail_offset, chunk; /* of file and tail; chunks before */
    cm_timeline time;
    uint64_t lost_events, lost_stacks, unknown_references;
    size_t horizon;
    uint32_t stacks, names; /* defined by then */
    uint64_t records;
} cm_reader_place;
cm_reader_place cm_reader_tell(const cm_reader *reader);
/* To a place that cm_reader_tell has given. As cm_reader_next: 1, or the reason why it is not
 * there. */
int cm_reader_seek(cm_reader *reader, const cm_reader_place *place);
/* Looks whether the trace has grown since its end was reached. What was read is not read again: the
 * next record is the first of the new ones. false: what followed the file was in its side file or
 * its ring, and may have come into it in another form; a reader that is opened then sees it. */
bool cm_reader_follow(cm_reader *reader, bool *grew);

/* 1: *record filled; 0: end; -1: damaged definitions or events inside a chunk whose checksum is
 * right (error text by cm_reader_error). The state is final once this has returned 0 or -1. */
int cm_reader_next(cm_reader *reader, cm_record *record);
const char *cm_reader_error(const cm_reader *reader); /* one line without the path; "" = nothing */
cm_reader_state cm_reader_get_state(const cm_reader *reader);
const char *cm_reader_end_reason(const cm_reader *reader); /* "" unless the end chunk gives one */
/* Records that were decoded in all passes. */
uint64_t cm_reader_decoded(const cm_reader *reader);
/* Share of the file consumed, 0..1, for progress. */
double cm_reader_progress(const cm_reader *reader);

/* Meta and text of lines that stand in chunks further on in the file become known, too. */
void cm_reader_look_ahead(cm_reader *reader);
/* Meta of the header and of later META chunks; NULL if absent. Key order is file order. */
const char *cm_reader_meta(const cm_reader *reader, const char *key);
size_t cm_reader_meta_count(const cm_reader *reader);
void cm_reader_meta_at(const cm_reader *reader, size_t i, const char **key, const char **value);

/* Wall clock in nanoseconds (CLOCK_REALTIME) at time_ns 0; known once a record was read. */
uint64_t cm_reader_start_realtime_ns(const cm_reader *reader);

/* Totals said by the trace: END chunk where there is one, else the sum of LOST events so far. An
 * event whose stack (name) has no definition comes out with CM_STACK_LOST (0) and counts as a lost
 * stack: ids in records can be used as indices. */
uint64_t cm_reader_lost_events(const cm_reader *reader);
uint64_t cm_reader_lost_stacks(const cm_reader *reader);

/* Definitions read so far. Ids that do not exist give NULL / zeros, never a crash. Strings are
 * valid as long as the reader. */
typedef struct cm_frame {
    const char *file, *function; /* function is the qualified name */
    int line, end_line;          /* 1-based, -1 unknown */
    int column, end_column;      /* 0-based UTF-8 bytes, -1 unknown */
    int first_line;              /* of the function */
    uint32_t code;               /* code id */
    uint64_t module;             /* address of the nn.Module whose call this frame is, else 0 */
    const char *module_class;    /* its class, else NULL */
    bool truncated;              /* stands for outer frames that were not kept */
    const char *text;            /* the source line, whole, as far as read; NULL unknown */
} cm_frame;
/* Their ids are CM_STACK_FIRST to CM_STACK_FIRST + count - 1. */
uint32_t cm_reader_stack_count(const cm_reader *reader);
uint32_t cm_reader_stack_parent(const cm_reader *reader, uint32_t stack);
/* The innermost frame of a stack; false for reserved and unknown ids. */
bool cm_reader_stack_frame(const cm_reader *reader, uint32_t stack, cm_frame *out);
/* Bytes that the frames of a stack take where they are written out, about. */
uint32_t cm_reader_stack_cost(const cm_reader *reader, uint32_t stack);
/* Of the definitions: stacks and texts that were longer than a trace may hold (defs.h). */
uint64_t cm_reader_cut_stacks(const cm_reader *reader);
uint64_t cm_reader_cut_texts(const cm_reader *reader);
/* Of the file, and of what a side file or a ring adds to it. */
uint64_t cm_reader_bytes(const cm_reader *reader);
const char *cm_reader_name(const cm_reader *reader, uint32_t name);

#endif
