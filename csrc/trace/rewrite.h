/* Copying a trace with its texts replaced. Chunks keep their order; all numbers and events are
 * copied byte for byte, including those that a killed process left in its side file and ring. A
 * trace without an end gets one with the reason, and its copy needs no ring. Memory: the reader's,
 * and one chunk. */
#ifndef CM_TRACE_REWRITE_H
#define CM_TRACE_REWRITE_H

#include <stdbool.h>
#include <stddef.h>

#include "reader.h"

typedef enum cm_text {
    CM_TEXT_META,   /* the value of `key` */
    CM_TEXT_STRING, /* file, function or class of a definition */
    CM_TEXT_NAME,   /* of a type, a label, a holder, a kernel */
    CM_TEXT_LINE,   /* a line of source */
    CM_TEXT_END     /* the reason in the end chunk */
} cm_text;

typedef enum cm_rewritten {
    CM_REWRITTEN_FAILED = -1, /* stop; the caller knows the reason */
    CM_REWRITTEN_DROP = 0,    /* CM_TEXT_META only: drop key and value */
    CM_REWRITTEN_TEXT = 1
} cm_rewritten;

typedef struct cm_rewriter {
    /* Replaces a text by another one, which is copied before the next call. */
    cm_rewritten (*replace)(void *context, cm_text kind, const char *key, size_t key_length,
                            const char **text, size_t *length);
    void *context;
    bool lines; /* false: the copy has no source lines */
} cm_rewriter;

/* Reads the trace to its end and writes the copy, which must not exist. target NULL: only calls
 * `replace`. false: there is no copy, and the error is one line (empty if `replace` failed).
 * Refused are damage that the checksum does not show, a trace that is being recorded, and one of a
 * newer minor version, which may have text in unknown places. */
bool cm_rewrite(cm_reader *reader, const char *target, const cm_rewriter *rewriter, char *error,
                size_t error_size);

#endif
