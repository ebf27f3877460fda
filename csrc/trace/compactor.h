/* How a recording goes on past its bound (max_size): whole events go to a side file (side_file.h),
 * and its oldest part is compacted into the trace when it is full. capture/ calls this through
 * pointers; compact/ implements it. One thread at a time, never in a hook. Functions return 0 or a
 * negative errno. */
#ifndef CM_TRACE_COMPACTOR_H
#define CM_TRACE_COMPACTOR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "../base/event.h"
#include "writer.h"

typedef struct cm_compactor {
    /* A new recording; the path of its trace is copied. */
    int (*begin)(const char *trace_path, uint64_t ring_id, uint64_t side_bytes);
    /* Before the bound: events that go to the trace whole, because frees of what they allocate will
     * come. False: out of memory. */
    bool (*see)(uint32_t thread, const cm_event *events, size_t count);
    /* Makes the side file: from now on the recording is past its bound. The caller then writes a
     * batch with serial 1 to the trace. */
    int (*enter)(void);
    /* The serial of the newest batch, or 0 before enter. */
    uint64_t (*serial)(void);
    /* The most bytes that a batch should have. */
    size_t (*batch_bytes)(void);
    /* Puts the next batch (with serial() + 1) into the side file, and compacts until there is room
     * for it. log_position: up to which the trace has the definitions. */
    int (*put)(cm_writer *writer, const void *chunk, size_t length, uint64_t log_position);
    /* Moves what the side file holds to the trace's end, whole. What was moved stays moved when it
     * fails. */
    int (*flush)(cm_writer *writer);
    /* Frees everything. remove: the trace has all that was in the side file. */
    void (*finish)(bool remove);
    /* In a forked child: frees nothing, the parent may have been inside the allocator. */
    void (*forget)(void);
    /* After each batch; the next two report what it found, on any thread. */
    void (*update_counts)(void);
    uint64_t (*side_used)(void); /* bytes of the side file with events in them */
    uint64_t (*memory)(void);    /* bytes */
} cm_compactor;

#endif
