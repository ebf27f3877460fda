/* The file itself: whole chunks, appended. Every function returns 0 or a negative errno; after a
 * failure the file ends at the last whole chunk (a partly written one is cut off). Any thread, one
 * at a time; no Python, never inside a hook. */
#ifndef CM_TRACE_WRITER_H
#define CM_TRACE_WRITER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

typedef struct cm_writer cm_writer;

/* What others have done to the file. Once it is not CM_WRITER_SOUND every function below returns
 * -ESTALE, for what is written would go nowhere, or into what is theirs. */
typedef enum cm_writer_state {
    CM_WRITER_SOUND = 0,
    CM_WRITER_REMOVED,   /* it has no name any more */
    CM_WRITER_REPLACED,  /* its path leads to another file; if it has another name, it can be ended
                          */
    CM_WRITER_TRUNCATED, /* it has lost what was written */
    CM_WRITER_SHARED     /* another one writes to it */
} cm_writer_state;

/* Looks at the file, the last chunk in it and its path. An append does that too, but for the path.
 */
cm_writer_state cm_writer_check(cm_writer *writer);

/* Modes of a new trace. */
enum {
    CM_WRITER_NAMED = 0666,  /* the umask decides, as for any output file */
    CM_WRITER_PRIVATE = 0600 /* in a folder that other users share */
};

/* Creates the file (O_EXCL unless overwrite), writes the header. *out is set on success only.
 * -EINVAL: the path is there and is no regular file. */
int cm_writer_create(const char *path, bool overwrite, mode_t mode, cm_writer **out);
/* Opens an existing trace to append to it (recovery); cuts a partial last chunk off. -EALREADY: it
 * has its end chunk, there is nothing to recover; -EBADMSG: no trace, or damaged before its last
 * chunk; -ENOTSUP: another version's. The file is untouched then. */
int cm_writer_append_to(const char *path, cm_writer **out);
int cm_writer_meta(cm_writer *writer, const char *const *pairs); /* key, value, ..., NULL */
int cm_writer_chunk(cm_writer *writer, const void *bytes, size_t length); /* from cm_batch_finish */
/* reason: "" after stop(), CM_END_RECOVERED (format.h) from whoever appended what a killed process
 * left behind, else one line that says why recording ended (1 KiB of it is kept). */
int cm_writer_end(cm_writer *writer, uint64_t events, uint64_t lost_events, uint64_t lost_stacks,
                  const char *reason);
uint64_t cm_writer_size(const cm_writer *writer);
const char *cm_writer_path(const cm_writer *writer);
int cm_writer_close(cm_writer *writer); /* frees it in any case; NULL is fine */

#endif
