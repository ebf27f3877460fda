/* Inside of the engine (analysis.h): a window's records, one by one, for analyze.c and extract.c.
 */
#ifndef CM_HEAP_ENGINE_H
#define CM_HEAP_ENGINE_H

#include "scan.h"

/* A window that was opened: the reader's next record and the replay are those at its first record,
 * and all that was alive there is in no step of it. */
typedef struct cm_window {
    cm_plan *plan;     /* the engine's; its steps may be taken out */
    cm_replay *replay; /* advanced by cm_engine_apply; its step is the caller's to set */
} cm_window;

/* Opens options->window (0: all of the trace). code: of the user's own (library.h). share: of the
 * whole, for progress. false with one line in error ("" if cancelled), as all below. */
bool cm_engine_open(cm_engine *engine, const cm_analysis_options *options, const char *code,
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
