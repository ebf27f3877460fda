/* The interface of one analysis: it receives every change of the heap in the replay and adds its
 * numbers to the result. analyze.c runs all of its table over one pass. */
#ifndef CM_ANALYSIS_PARTS_H
#define CM_ANALYSIS_PARTS_H

#include "analysis.h"
#include "../heap/replay.h"

typedef struct cm_run {
    const cm_analysis_options *options;
    const cm_replay *replay;
    const cm_steps *steps;
    uint64_t begin_ns; /* of the window, or 0 */
    const cm_reader *reader;
    const struct cm_plan *plan; /* scan.h */
} cm_run;

#define CM_PART_EVENT(kind) (UINT64_C(1) << (kind))

/* All functions but destroy return false (NULL) when out of memory. finish moves its arrays to the
 * result, which frees them; destroy frees the rest, also without finish. */
typedef struct cm_part_kind {
    const char *name;
    void *(*create)(const cm_run *run); /* the replay stands at the window's start */
    bool (*change)(void *part, const cm_change *change); /* may be NULL */
    bool only_marked; /* ... only those of labelled blocks, and the highest (cm_change) */
    bool (*listens)(const cm_run *run); /* whether the options ask for changes; NULL: always */
    /* Records other than ALLOC and FREE, only of the kinds in `events`; NULL: none. */
    bool (*event)(void *part, const cm_record *record);
    uint64_t events; /* bits CM_PART_EVENT(kind) */
    /* The step ended here; -1: the time before the first. The tail has no end. May be NULL. */
    bool (*step)(void *part, int64_t step, cm_moment end);
    /* out->device and the losses are already filled in. */
    bool (*finish)(void *part, cm_analysis *out);
    void (*destroy)(void *part);
} cm_part_kind;

extern const cm_part_kind cm_part_peak, cm_part_above, cm_part_timeline, cm_part_survivors,
    cm_part_ooms, cm_part_leaks, cm_part_requested, cm_part_segments, cm_part_check,
    cm_part_host_reads, cm_part_ledger, cm_part_device_curve, cm_part_fragmentation,
    cm_part_kernels, cm_part_tables, cm_part_charts, cm_part_tensors, cm_part_holders,
    cm_part_garbage, cm_part_lives;

#endif
