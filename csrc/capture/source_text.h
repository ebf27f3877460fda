/* Finds the text of the source lines in stacks. The collector hands over every definition that it
 * has written, and gets chunks of lines to write after it.
 *
 * A text is what was compiled, or there is none. A file counts as compiled if it has not changed
 * since the process began. One that Python's compiled file (.pyc) was made of counts too, where the
 * line fits the columns of its instruction. It is checked when its first code is seen; later codes
 * use only the file as it was then. The program's own files are kept in memory, so that they may be
 * edited while it runs.
 *
 * Python is asked for text in no file (a notebook's cell, code of exec, a module in a zip file) or
 * in another encoding than UTF-8: cm_sourcetext_take_asked, cm_sourcetext_answer.
 *
 * All but those two: one thread at a time, the collector's or the one that ends the capture. */
#ifndef CM_CAPTURE_SOURCE_TEXT_H
#define CM_CAPTURE_SOURCE_TEXT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "../trace/line_table.h"

enum {
    CM_SOURCE_LINE_MAX = 512,       /* bytes of a line; a longer one is cut at a character */
    CM_SOURCE_FILE_MAX = 128 << 10, /* text of one file */
    CM_SOURCE_ALL_MAX = 2 << 20,    /* text in a trace; at most a 32nd of max_size */
    CM_SOURCE_READ_MAX = 4 << 20    /* a larger file is not read */
};

/* cache_tag: of Python's compiled files ("cpython-311"), or NULL. began_ns: of the process, 0
 * unknown. */
void cm_sourcetext_begin(uint64_t max_size, const char *cache_tag, int64_t began_ns);
void cm_sourcetext_end(void);
void cm_sourcetext_forget(void); /* in a forked child */

/* Definitions that the trace has now: whole records, each once, in their order. */
void cm_sourcetext_add(const void *records, size_t length);

/* Reads wanted lines: all, or as many as take a moment. Gives a chunk to write, valid until the
 * next call; false: there is nothing (more). */
bool cm_sourcetext_next(bool all, const void **chunk, size_t *length);

uint64_t cm_sourcetext_memory(void); /* any thread: bytes kept */

/* A line that Python may know. bytes: the line, where only its encoding is unknown here. */
typedef struct cm_asked {
    uint32_t capture, code;
    cm_position at;
    bool
        ambiguous; /* other code has the same file name: only a line that fits the columns counts */
    char *file, *bytes; /* to be freed; bytes may be NULL */
    size_t length;
    char encoding[32];
} cm_asked;

/* Any thread, but not inside a hook. */
bool cm_sourcetext_asks(void);
size_t cm_sourcetext_take_asked(cm_asked **list); /* to be freed with its content */
/* Text in UTF-8, one line or more: the first is taken. False: out of memory. */
bool cm_sourcetext_answer(const cm_asked *asked, const char *text, size_t length);
bool cm_sourcetext_is_answered(void); /* there are answers that are not in the trace yet */

#endif
