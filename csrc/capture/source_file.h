/* Reads the program's source files, unnoticed by the program. A thread with its own descriptor
 * table reads, so that the program loses no descriptor number and no file lock. Closing a file's
 * descriptor would drop its locks. It opens only regular files. Where the system refuses such a
 * table nothing is read. */
#ifndef CM_CAPTURE_SOURCE_FILE_H
#define CM_CAPTURE_SOURCE_FILE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* A file, and its state at some moment. */
typedef struct cm_source_identity {
    uint64_t device, inode, bytes;
    int64_t modified_ns, changed_ns; /* since 1970: content; content or anything else */
} cm_source_identity;

typedef enum cm_source_found {
    CM_SOURCE_FILE,
    CM_SOURCE_MISSING, /* nothing has this path */
    CM_SOURCE_OTHER    /* no regular file, or stat failed */
} cm_source_found;

/* Opens nothing. */
cm_source_found cm_source_stat(const char *path, cm_source_identity *is);
bool cm_source_same(const cm_source_identity *a, const cm_source_identity *b);

typedef struct cm_source_job {
    const char *path;
    cm_source_identity is;
    uint8_t *bytes; /* the caller's */
    size_t length;  /* how many to read, from the start */
    bool done;      /* read, from this very file, which has not changed meanwhile */
} cm_source_job;

/* Any thread outside a hook. Allocates nothing on the thread that reads. */
void cm_source_read(cm_source_job *jobs, size_t count);

#endif
