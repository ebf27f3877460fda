/* What blocks of one folded stack do over the steps of one loop: how much is alive at its
 * boundaries, what dies old, what is allocated early and late. Followed while the trace is
 * replayed; an event costs two look-ups in arrays. One owner. */
#ifndef CM_ANALYSIS_TRACK_H
#define CM_ANALYSIS_TRACK_H

#include "../heap/stack_class.h"
#include "growth.h"
#include "loops.h"
#include "../base/idmap.h"
#include "../heap/replay.h"

/* Live bytes at the boundaries of a loop. */
typedef struct cm_track_series {
    int64_t live;
    int64_t seen;   /* at the last boundary that was compared, */
    uint32_t next;  /* the one behind that */
    uint32_t since; /* the first of those with `seen`, while there is no `low` */
    int64_t *low;   /* by bucket; NULL while it has only ever been one number behind zero */
    bool touched;
} cm_track_series;

typedef struct cm_track_group {
    cm_track_series series;
    uint32_t loop;      /* index into loops */
    uint32_t stack;     /* folded */
    uint32_t line;      /* index of cm_track_line */
    uint32_t first;     /* step of the first birth */
    uint64_t position;  /* its record */
    int64_t first_live; /* bytes at the first boundary at which it had any */
    int64_t filling;    /* bytes in containers that had room, when they were last checked, */
    int64_t filling_of; /* of so many live bytes */
    bool filling_seen;  /* this time */
    uint16_t device;
    bool forward;       /* made in forward, for data, or in no phase that is known */
    bool fleeting;      /* blocks died in the step after their own */
    bool collected;     /* blocks died in a collection while the loop ran */
    double early, late; /* bytes allocated in the first and the last third behind the warm-up */
    uint64_t early_count;
    cm_growth_deaths *deaths; /* NULL: none */
} cm_track_group;

/* All groups of a loop and device that have one innermost line of the user's code. */
typedef struct cm_track_line {
    cm_track_series series;
    uint32_t loop;
    uint32_t groups;    /* how many */
    double setup_freed; /* bytes made before the first step that went while the loop ran */
} cm_track_line;

typedef struct cm_track {
    cm_loops *loops;
    cm_stack_classes *classes;
    const cm_replay *replay;
    cm_track_group *group;
    cm_track_line *line;
    size_t groups, group_capacity, lines, line_capacity;
    cm_idmap by_stack, by_line; /* (loop, device, folded stack or line) -> index */
    struct cm_track_loop {
        uint32_t *of_origin; /* index of group + 1 */
        size_t origin_capacity;
        uint32_t *touched; /* groups since the loop's last boundary */
        size_t touched_count, touched_capacity;
        uint32_t *line; /* lines of those */
        size_t line_capacity;
        uint32_t warm, early_end, late_begin;
    } loop[CM_LOOPS_MAX];
} cm_track;

cm_track *cm_track_new(cm_loops *loops, cm_stack_classes *classes,
                       const cm_replay *replay); /* NULL: no memory */
void cm_track_free(cm_track *track);

/* A block came or went before its loop was over. false: out of memory. */
bool cm_track_birth(cm_track *track, const cm_block *block);
bool cm_track_death(cm_track *track, const cm_block *block);
/* One that was made before the first step went while a loop runs: what its line makes now may only
 * take its place. false: out of memory. */
bool cm_track_setup_death(cm_track *track, const cm_block *block, uint32_t loop);
/* The group of a block, after cm_track_birth. */
uint32_t cm_track_group_of(const cm_track *track, uint32_t loop, uint32_t origin);
/* Containers that have room are checked: each block in one of them comes between two calls of
 * the other. What is known of a group stays while it has no live bytes, or none that are known. */
void cm_track_forget_filling(cm_track *track);
void cm_track_filling(cm_track *track, const cm_block *block);
/* A boundary of a loop, before loop->passed counts it. false: out of memory. */
bool cm_track_boundary(cm_track *track, uint32_t loop);
/* Behind a loop's last boundary: low is filled to the end, or stays NULL. */
void cm_track_end(cm_track *track, uint32_t loop);

/* Whether a growing live set is what its loop does anyway: most other forward lines allocate more
 * and more in the same measure (a curriculum). */
bool cm_track_is_curriculum(const cm_track *track, const uint32_t *group, size_t groups);

#endif
