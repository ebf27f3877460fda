/* One trace, replayed window by window. A window's records are read twice (what its steps are is
 * known when it has been read once), what lies between two windows once, and what was read for an
 * earlier one not at all: windows that are asked for in their order cost one reading of the trace
 * together. Of windows that open while another one is read, or that are asked for before they
 * close, the heap at their opening is kept. For any other order the trace is read from its start
 * again. One owner, any thread. */
#ifndef CM_HEAP_ENGINE_H
#define CM_HEAP_ENGINE_H

#include "scan.h"

typedef struct cm_engine cm_engine;

/* The reader stays the caller's, but only the engine moves it from now on. NULL: out of memory. */
cm_engine *cm_engine_new(cm_reader *reader);
void cm_engine_free(cm_engine *engine);
const cm_reader *cm_engine_reader(const cm_engine *engine);
/* Checks whether the trace has grown; what was read of it stays known. false: open it again. */
bool cm_engine_follow(cm_engine *engine);

/* Writes what window number `window` of the trace saw as a trace of its own: definitions, what was
 * alive at its start with its origin, its events. code: what the new trace names as the user's own
 * code ("" for none). The target must not exist. false with one line in error; no file is left
 * then. */
bool cm_engine_extract(cm_engine *engine, const char *target, uint64_t window, const char *code,
                       char *error, size_t error_size);

/* A window that was opened: the reader's next record and the replay are those at its first record,
 * and all that was alive there is in no step of it. */
typedef struct cm_window {
    cm_plan *plan;     /* the engine's; its steps may be taken out */
    cm_replay *replay; /* advanced by cm_engine_apply; its step is the caller's to set */
} cm_window;

/* Opens options->window (0: all of the trace). code: of the user's own (library.h). share: of the
 * whole, for progress. false with one line in error ("" if cancelled), as all below. */
bool cm_engine_open(cm_engine *engine, const cm_window_options *options, const char *code,
                    double share, cm_window *window, char *error, size_t error_size);
/* The next record of the window, up to plan->end. */
bool cm_engine_next(cm_engine *engine, cm_record *record, char *error, size_t error_size);
/* Whether they come from the file by now: only then the reader's progress is theirs. */
bool cm_engine_reads(const cm_engine *engine);
/* The record that was just given happens to the replay: the number of changes; -1: error is set. */
int cm_engine_apply(cm_engine *engine, const cm_record *record, cm_change change[2], char *error,
                    size_t error_size);
/* What was created before the next record: the newest at each address. */
const cm_event *cm_engine_objects(const cm_engine *engine, size_t *count);

typedef enum cm_engine_left {
    CM_ENGINE_GONE_ON, /* all of its records were applied */
    CM_ENGINE_STAYED,  /* none was: it may be opened again */
    CM_ENGINE_BROKEN   /* something failed in between: the trace will be read from its start */
} cm_engine_left;
void cm_engine_close(cm_engine *engine, cm_engine_left left);

#endif
