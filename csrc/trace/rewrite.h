/* A copy of a trace with other text. Every chunk is copied in its order, and in it every number and
 * every event byte for byte; what a killed process left in its side file and its ring is part of
 * the copy. A trace without its end gets one that says why, and its copy is read without a ring.
 * Memory: that of the reader, and one chunk. */
#ifndef CM_TRACE_REWRITE_H
#define CM_TRACE_REWRITE_H

#include <stdbool.h>
#include <stddef.h>

#include "reader.h"

typedef enum cm_text {
    CM_TEXT_META,   /* a value; key says of what */
    CM_TEXT_STRING, /* file, function or class of a definition */
    CM_TEXT_NAME,   /* of a type, a label, a holder, a kernel */
    CM_TEXT_LINE,   /* a line of source */
    CM_TEXT_END     /* the reason in the end chunk */
} cm_text;

typedef enum cm_rewritten {
    CM_REWRITTEN_FAILED = -1, /* the caller knows why: nothing more is asked */
    CM_REWRITTEN_DROP = 0,    /* of CM_TEXT_META only: the key goes as well */
    CM_REWRITTEN_TEXT = 1
} cm_rewritten;

typedef struct cm_rewriter {
    /* Puts another text in the place of this one; it is copied before the next call. */
    cm_rewritten (*replace)(void *context, cm_text kind, const char *key, size_t key_length,
                            const char **text, size_t *length);
    void *context;
    bool lines; /* false: no line of source is in the copy */
} cm_rewriter;

/* Reads the trace to its end and writes the copy, which must not exist; NULL: nothing is written,
 * and `replace` is only shown what there is. False with one line in error (empty if `replace`
 * failed), and there is no copy: damage behind a right checksum, a trace that is being recorded or
 * that a newer minor version wrote, which may have text where this one does not search. */
bool cm_rewrite(cm_reader *reader, const char *target, const cm_rewriter *rewriter, char *error,
                size_t error_size);

#endif
