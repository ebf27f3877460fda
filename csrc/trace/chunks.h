/* Reading whole, checked chunks in order: those of a file, then those of a tail in memory. No
 * memory is allocated for a length that was not checked. */
#ifndef CM_TRACE_CHUNKS_H
#define CM_TRACE_CHUNKS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct cm_chunks {
    int fd;
    uint64_t size, offset; /* of the file: its known size, and what was read */
    unsigned char *tail;   /* malloc'ed; read after the file's chunks */
    size_t tail_size, tail_offset;

    /* The current chunk; CM_DECODE_PADDING zeros follow its payload. */
    int kind;
    const uint8_t *payload;
    size_t length;
    uint64_t position; /* number of chunks begun, this one included */

    uint8_t *memory;
    size_t capacity;
    char error[256]; /* the reason why there is no next chunk; one line */
} cm_chunks;

typedef enum cm_fetch {
    CM_FETCH_CHUNK,
    CM_FETCH_END,     /* exactly between two chunks */
    CM_FETCH_PARTIAL, /* inside one: cut off, or not yet written */
    CM_FETCH_DAMAGED, /* no chunk, a wrong checksum, or the file system's error */
    CM_FETCH_MEMORY   /* out of memory */
} cm_fetch;

cm_fetch cm_chunks_next(cm_chunks *chunks);
void cm_chunks_free(cm_chunks *chunks); /* closes the file, too */

/* 1: read all bytes; 0: the file is shorter; -1: errno. */
int cm_chunks_read_at(cm_chunks *chunks, uint64_t offset, void *bytes, size_t length);

/* Updates the file's size. Returns whether it has grown. */
bool cm_chunks_grown(cm_chunks *chunks);

typedef struct cm_chunk_head {
    uint32_t kind, checksum;
    uint64_t length;
} cm_chunk_head;

/* false: these 16 bytes do not begin a chunk. */
bool cm_chunk_parse_head(const uint8_t *bytes, cm_chunk_head *head);

#endif
