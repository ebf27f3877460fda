/* The one thread that takes events out of the rings and writes them to the trace. It blocks all
 * signals and never takes the GIL. session.c owns it and calls its control functions under the
 * session's mutex. */
#ifndef CM_CAPTURE_COLLECTOR_H
#define CM_CAPTURE_COLLECTOR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "../trace/compactor.h"
#include "../trace/writer.h"

/* Before the first start: sets what writes past max_size. */
void cm_collector_set_compactor(const cm_compactor *compactor);

/* Prepares to write the rings into writer, and starts the thread. Once the trace at path has
 * max_size bytes it gets a side file (overflow.h) of side_bytes; 0: a share of max_size. cache_tag:
 * source_text.h. 0 or a negative errno. */
int cm_collector_start(cm_writer *writer, const char *path, uint64_t max_size, uint64_t side_bytes,
                       const char *cache_tag);

/* Ends the thread and waits until the kernel no longer counts it, or starts it again. Events stay
 * in their rings in between. 0 or a negative errno. */
int cm_collector_pause(void);
int cm_collector_resume(void);

/* 0: everything published before the call is in the file; -1: recording has ended by itself. */
int cm_collector_sync(void);

bool cm_collector_is_this_thread(void);
/* Calls work while the thread is stopped; not from that thread. Returns work's result or a negative
 * errno. */
int cm_collector_without_thread(int (*work)(void));

/* Appends meta to the trace, between two chunks; not from the collector's thread. 0, also once it
 * has failed, or a negative errno. */
int cm_collector_note(const char *const *notes);

/* With recording off and no thread inside a hook: ends the thread, writes the rest, the notes
 * (cm_session_stop) and the end chunk. 0, or a negative errno when that could not be written. */
int cm_collector_finish(const char *const *notes);

/* In a forked child. */
void cm_collector_forget(void);

/* Recording ended by itself (disk full, size bound): final. */
bool cm_collector_failed(void);

/* The line for the user about that, once the file's end is written; NULL before. */
const char *cm_collector_warning(void);

typedef struct cm_collector_counts {
    uint64_t events, lost_events, lost_stacks, bytes_written, rings, memory;
    uint64_t wakes; /* how often its thread has begun to work */
} cm_collector_counts;
cm_collector_counts cm_collector_get_counts(void);

void cm_collector_set_idle_callback(void (*callback)(void));

#endif
