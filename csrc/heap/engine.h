/* One trace, replayed window by window. A window's records are read twice, because its steps are
 * known only after the first reading. Records between two windows are read once, those of an
 * earlier window never again: windows opened in their order cost one reading of the trace together.
 * The engine keeps the heap at the opening of windows that open inside another one, or that are not
 * yet closed. Any other order starts again at the trace's beginning. One owner, any thread. */
#ifndef CM_HEAP_ENGINE_H
#define CM_HEAP_ENGINE_H

#include "scan.h"
#include "../trace/decode_thread.h"

typedef struct cm_engine cm_engine;

/* The reader stays the caller's, but only the engine may move it. NULL: out of memory. */
cm_engine *cm_engine_new(cm_reader *reader);
void cm_engine_free(cm_engine *engine);
const cm_reader *cm_engine_reader(const cm_engine *engine);
/* Checks whether the trace has grown; earlier readings stay valid. false: open it again. */
bool cm_engine_follow(cm_engine *engine);

/* Writes window number `window` as a trace of its own: definitions, the blocks alive at its start
 * with their origins, its events. code: the packages that the new trace names as user code ("" for
 * none); title: what views call it ("": its script). The target must not exist. false with one line
 * in error, and no file. */
bool cm_engine_extract(cm_engine *engine, const char *target, uint64_t window, const char *code,
                       const char *title, char *error, size_t error_size);

/* An open window: the reader and the replay stand at its first record, and all blocks alive there
 * are in no step of it. */
typedef struct cm_window {
    cm_plan *plan;     /* the engine's; the caller may take its steps */
    cm_replay *replay; /* advanced by cm_engine_apply; the caller sets its step */
} cm_window;

/* Opens options->window (0: the whole trace). code: user code (library.h). share: of the whole, for
 * progress. false with one line in error ("" if cancelled), as all below. */
bool cm_engine_open(cm_engine *engine, const cm_window_options *options, const char *code,
                    double share, cm_window *window, char *error, size_t error_size);
/* For cm_engine_next: no record is at hand. */
const cm_record *cm_engine_more(cm_engine *engine, char *error, size_t error_size);
/* The next record of the window, up to plan->end, valid until the next call. NULL: error is set. */
static inline const cm_record *cm_engine_next(cm_engine *engine, char *error, size_t error_size)
{
    cm_decoded *at = *(cm_decoded **)engine; /* an engine's first member: the records at hand */
    const cm_record *record = cm_decoded_next(at);
    return record != NULL ? record : cm_engine_more(engine, error, error_size);
}
/* Whether the next record comes from the file, and then the share of it that was used. */
bool cm_engine_reads(const cm_engine *engine);
double cm_engine_progress(const cm_engine *engine);
/* For cm_engine_apply: the replay failed, or the record is of a kind that the engine notes. */
int cm_engine_note(cm_engine *engine, const cm_record *record, int changes, char *error,
                   size_t error_size);
/* Applies the record just returned to the window's replay. The number of changes; -1: error is set.
 */
static inline int cm_engine_apply(cm_engine *engine, cm_replay *replay, const cm_record *record,
                                  cm_change change[2], char *error, size_t error_size)
{
    int changes = cm_replay_apply(replay, record, change);
    uint8_t kind = record->event.kind;
    if (changes >= 0 && kind != CM_EV_MARK && kind != CM_EV_OBJECT_NEW)
        return changes;
    return cm_engine_note(engine, record, changes, error, error_size);
}
/* Objects created before the next record: the newest at each address. */
const cm_event *cm_engine_objects(const cm_engine *engine, size_t *count);

typedef enum cm_engine_left {
    CM_ENGINE_GONE_ON, /* all of its records were applied */
    CM_ENGINE_STAYED,  /* none was: it may be opened again */
    CM_ENGINE_BROKEN   /* something failed in between: the trace must be read from its start */
} cm_engine_left;
void cm_engine_close(cm_engine *engine, cm_engine_left left);

#endif
