/* Appending whole chunks to the trace file. Functions return 0 or a negative errno. After a failure
 * a partly written chunk is cut off. Any thread, one at a time; no Python, never inside a hook. */
#ifndef CM_TRACE_WRITER_H
#define CM_TRACE_WRITER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

typedef struct cm_writer cm_writer;

/* Whether the file is still ours. Once it is not CM_WRITER_SOUND, every function below returns
 * -ESTALE: writes would be lost or would damage another's data. */
typedef enum cm_writer_state {
    CM_WRITER_SOUND = 0,
    CM_WRITER_REMOVED,   /* it has no name any more */
    CM_WRITER_REPLACED,  /* its path is another file; if it was renamed, it can still be ended */
    CM_WRITER_TRUNCATED, /* it has lost written data */
    CM_WRITER_SHARED     /* another process writes to it */
} cm_writer_state;

/* Checks the file, its last chunk and its path. Every append checks all but the path. */
cm_writer_state cm_writer_check(cm_writer *writer);

/* Modes of a new trace. */
enum {
    CM_WRITER_NAMED = 0666,  /* reduced by the umask, as for any output file */
    CM_WRITER_PRIVATE = 0600 /* for a folder shared with other users */
};

/* Creates the file (O_EXCL unless overwrite) and writes the header. *out is set on success only.
 * -EINVAL: the path exists and is no regular file. */
int cm_writer_create(const char *path, bool overwrite, mode_t mode, cm_writer **out);
/* Opens an existing trace to append to it (recovery), and cuts a partial last chunk off. Leaves the
 * file untouched on failure. -EALREADY: it has its end chunk; -EBADMSG: no trace, or damaged before
 * its last chunk; -ENOTSUP: of another version. */
int cm_writer_append_to(const char *path, cm_writer **out);
int cm_writer_meta(cm_writer *writer, const char *const *pairs); /* key, value, ..., NULL */
int cm_writer_chunk(cm_writer *writer, const void *bytes, size_t length); /* from cm_batch_finish */
/* reason: "" after stop(), CM_END_RECOVERED (format.h) after a recovery, else one line with the
 * reason why recording ended (cut to 1 KiB). */
int cm_writer_end(cm_writer *writer, uint64_t events, uint64_t lost_events, uint64_t lost_stacks,
                  const char *reason);
uint64_t cm_writer_size(const cm_writer *writer);
const char *cm_writer_path(const cm_writer *writer);
int cm_writer_close(cm_writer *writer); /* always frees it; NULL is allowed */

#endif
