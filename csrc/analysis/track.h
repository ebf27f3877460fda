/* The blocks of one canonical stack over the steps of one loop: how much is alive at its
 * boundaries, what dies old, what is allocated early and late. Runs during the replay; an event
 * costs two array accesses. One owner. */
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
    int64_t seen;   /* at the last compared boundary */
    uint32_t next;  /* the boundary after that */
    uint32_t since; /* the first of those with `seen`, while there is no `low` */
    int64_t *low;   /* by bucket; NULL until a second value other than 0 */
    bool touched;
} cm_track_series;

typedef struct cm_track_group {
    cm_track_series series;
    uint32_t loop;      /* index into loops */
    uint32_t stack;     /* canonical */
    uint32_t line;      /* index of cm_track_line */
    uint32_t first;     /* step of the first birth */
    uint64_t position;  /* its record */
    int64_t first_live; /* bytes at the first boundary at which it had any */
    int64_t filling;    /* bytes in containers with room, at the last check */
    int64_t filling_of; /* ... of so many live bytes */
    bool filling_seen;  /* in the current check */
    uint16_t device;
    bool backward;                   /* made in backward */
    bool forward;                    /* made in forward, for data, or in an unknown phase */
    int64_t alive;                   /* bytes at the end of the program, whenever they were made */
    uint64_t died;                   /* records before the last death behind the loop */
    int64_t freed;                   /* bytes that the program freed behind the loop */
    uint32_t freed_until, left_from; /* steps of birth: of those the last, + 1; of what is alive at
                                        the end the first, + 1 (0: nothing is) */
    bool fleeting;                   /* blocks died in the step after their own */
    bool collected;                  /* blocks died in a collection while the loop ran */
    double early, late; /* bytes allocated in the first and the last third after the warm-up */
    uint64_t early_count;
    cm_growth_deaths *deaths; /* NULL: none */
} cm_track_group;

/* All groups of a loop and device with one innermost user line. */
typedef struct cm_track_line {
    cm_track_series series;
    uint32_t loop;
    uint32_t groups;    /* how many */
    double setup_freed; /* bytes from before the first step, freed while the loop ran */
} cm_track_line;

typedef struct cm_track {
    cm_loops *loops;
    cm_stack_classes *classes;
    const cm_replay *replay;
    cm_track_group *group;
    cm_track_line *line;
    size_t groups, group_capacity, lines, line_capacity;
    cm_idmap by_stack, by_line; /* (loop, device, canonical stack or line) -> index */
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

/* A block was born or died before its loop was over. false: out of memory. */
bool cm_track_birth(cm_track *track, const cm_block *block);
bool cm_track_death(cm_track *track, const cm_block *block, uint32_t thread);
/* A block from before the first step died while a loop runs: new blocks of its line may only
 * replace it. false: out of memory. */
bool cm_track_setup_death(cm_track *track, const cm_block *block, uint32_t loop);
/* The group of the block's stack and device; NULL: none in this loop. false: out of memory. */
bool cm_track_find(const cm_track *track, const cm_block *block, uint32_t loop,
                   cm_track_group **group);
/* The group of a block, after cm_track_birth. */
uint32_t cm_track_group_of(const cm_track *track, uint32_t loop, uint32_t origin);
/* forget begins a list of containers with room, filling reports each block in one. A group without
 * live bytes, or without known ones, keeps its last result. */
void cm_track_forget_filling(cm_track *track);
void cm_track_filling(cm_track *track, const cm_block *block);
/* A boundary of a loop, before loop->passed counts it. false: out of memory. */
bool cm_track_boundary(cm_track *track, uint32_t loop);
/* After a loop's last boundary: fills `low` to the end, or leaves it NULL. */
void cm_track_end(cm_track *track, uint32_t loop);

/* Whether most other forward lines of the loop allocate more and more at the same rate (a
 * curriculum), so that a growing live set is expected. */
bool cm_track_is_curriculum(const cm_track *track, const uint32_t *group, size_t groups);

#endif
