/* A thread that decodes a reader's records ahead of their use, so that decoding and replay take two
 * cores. It waits with definitions and meta until all earlier records are used, so both are safe to
 * read in between. */
#ifndef CM_TRACE_DECODE_THREAD_H
#define CM_TRACE_DECODE_THREAD_H

#include "reader.h"

/* Records of one chunk. */
typedef struct cm_decoded {
    const cm_record *next, *end; /* not yet taken */
    const cm_record *first;
    cm_reader_place place; /* before the first */
    double progress;       /* of the reader */
} cm_decoded;

/* Takes the next one; NULL: all are taken. */
static inline const cm_record *cm_decoded_next(cm_decoded *decoded)
{
    return decoded->next != decoded->end ? decoded->next++ : NULL;
}

typedef struct cm_decode_thread cm_decode_thread;

/* Reads on from where the reader stands, `limit` records at most. Until the end only definitions
 * and meta of the reader may be used. NULL: the process has one core, or there is no thread or
 * memory: read without it. */
cm_decode_thread *cm_decode_thread_begin(cm_reader *reader, uint64_t limit);
/* Ends it; the reader stands after the last record taken. As cm_reader_seek. NULL: 1. */
int cm_decode_thread_end(cm_decode_thread *thread);

/* The records now at hand. */
cm_decoded *cm_decode_thread_at(cm_decode_thread *thread);
/* Gets more, after all at hand were used. As cm_reader_next; 0 also at the limit. */
int cm_decode_thread_more(cm_decode_thread *thread);
/* After the last record taken. */
cm_reader_place cm_decode_thread_tell(const cm_decode_thread *thread);

#endif
