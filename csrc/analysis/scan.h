/* The first reading of a trace: what the replay must know beforehand. Where the window lies, which
 * ticks are steps, and which blocks were alive before the recording. */
#ifndef CM_ANALYSIS_SCAN_H
#define CM_ANALYSIS_SCAN_H

#include "analysis.h"
#include "clock.h"
#include "places.h"
#include "replay.h"

typedef struct cm_plan {
    uint64_t begin, end; /* the records looked at: positions begin .. end - 1 */
    uint64_t begin_ns, end_ns;
    bool closed; /* the window's end was seen */
    uint64_t seeds_skipped, lost_events, lost_stacks;
    cm_reader_state state; /* of a closed window: complete */
    char reason[256];      /* why recording ended by itself, or what the file lacks; else "" */
    cm_seed *seed;         /* of the walk at the start, those that count and those dropped */
    size_t seeds, seed_capacity;
    cm_steps steps;
    /* Of CUDA's devices, by index + 128: where reserved bytes are first at their highest. */
    struct cm_plan_reserved {
        bool known;
        int64_t most;
        uint64_t position;
    } reserved[256];
} cm_plan;

/* false with one line in error ("" if cancelled); the plan is then empty. The reader is rewound
 * before and after. share: of the whole analysis, for progress. */
bool cm_scan(cm_reader *reader, cm_places *places, const cm_analysis_options *options, double share,
             cm_plan *plan, char *error, size_t error_size);
void cm_plan_free(cm_plan *plan);

/* Calls options->progress now and then; false: it cancelled. */
static inline bool cm_scan_goes_on(const cm_analysis_options *options, uint64_t records,
                                   const cm_reader *reader, double from, double share)
{
    if ((records & 0xffff) != 0 || options->progress == NULL)
        return true;
    return options->progress(from + share * cm_reader_progress(reader), options->progress_context);
}

#endif
