/* Shared by the step clock's files: ticks and loops (step_clock.c, rules 2, 4 and 6), groups of
 * ticks (step_clock_groups.c, rules 1 and 3), silences of the clock (step_clock_silence.c, rule 5).
 */
#ifndef CM_HEAP_STEP_CLOCK_PARTS_H
#define CM_HEAP_STEP_CLOCK_PARTS_H

#include "../base/event.h"
#include "step_clock.h"
#include "step_clock_leads.h"

enum {
    CM_CLOCK_KINDS = CM_TICK_BACKWARD + 1,
    CM_CLOCK_NEIGHBOURS = 16,
    CM_CLOCK_ENOUGH = 8, /* steps of a clock */
    CM_CLOCK_JOINED = 10 /* iterations made of joined steps: enough for a verdict (growth.h) */
};

/* The ticks of one step, of one kind (rule 1). */
typedef struct cm_clock_group {
    cm_moment first, last;
    uint64_t leader;   /* key of the object that ticked first */
    uint64_t backward; /* nodes started before the step's bound */
    uint64_t newest;   /* ... before its last tick */
    uint64_t calls;    /* of modules, before its last tick */
    cm_clock_lead first_lead, last_lead;
    uint32_t first_line, last_line;
    bool inside;    /* its first tick came from inside an optimizer's step */
    bool no_grad;   /* all of its ticks */
    bool eval_mode; /* ... of modules in that mode */
    bool sanity;    /* its last one */
} cm_clock_group;

/* The object and the group of a tick. */
typedef struct cm_clock_ticked {
    uint32_t object, group;
} cm_clock_ticked;

typedef struct cm_clock_stream {
    cm_clock_group *group;
    size_t count, capacity;
    cm_clock_ticked *tick; /* of optimizers and backward passes only */
    size_t ticks, tick_capacity;
} cm_clock_stream;

/* Steps that are parts of an iteration: `updates` of them per tick of the line. */
typedef struct cm_clock_rate {
    uint32_t updates; /* 0: none */
    uint32_t object, line;
    size_t iterations;
} cm_clock_rate;

/* A step before its loop is known. */
typedef struct cm_clock_draft {
    cm_moment end;
    uint64_t backward; /* nodes started by its end */
    uint32_t kind, line;
    bool sanity, trailed; /* of a trainer's check; it ends behind its last tick */
} cm_clock_draft;

typedef struct cm_clock_drafts {
    cm_clock_draft *step;
    size_t count, capacity;
    cm_moment begin;
    uint64_t backward; /* nodes started by begin */
} cm_clock_drafts;

static inline bool cm_clock_ends_a_step(uint32_t kind)
{
    return kind == CM_TICK_STEP || kind == CM_TICK_OPTIMIZER || kind == CM_TICK_BACKWARD;
}

/* The end of the step that ends with the group, or the beginning of the one that begins with it. */
static inline cm_moment cm_clock_bound(const cm_clock_leads *leads, const cm_clock_group *g,
                                       uint32_t kind)
{
    if (!cm_clock_ends_a_step(kind))
        return cm_clock_leads_begin(leads, &g->first_lead);
    return (cm_moment){g->last.position + 1, g->last.time_ns};
}

/* Better clocks first. */
extern const uint32_t cm_clock_order[CM_CLOCK_KINDS - 1];

/* Puts ticks into groups (rule 1). false: out of memory. */
typedef struct cm_clock_objects cm_clock_objects;
cm_clock_objects *cm_clock_objects_new(void);
void cm_clock_objects_free(cm_clock_objects *objects);
bool cm_clock_objects_made(cm_clock_objects *objects, uint64_t address, uint64_t position);
bool cm_clock_objects_renew(cm_clock_objects *objects, uint64_t address);
/* Whether it was called in training mode, with gradients. key: of a group's leader. */
bool cm_clock_objects_trained(const cm_clock_objects *objects, uint64_t key);
/* calls: of modules so far. */
bool cm_clock_add_tick(cm_clock_objects *objects, cm_clock_stream *s, const cm_tick *tick,
                       const cm_clock_lead *lead, uint64_t calls);

/* Rule 3: the rates at which the objects of a stream tick. false: out of memory. */
bool cm_clock_find_rate(const cm_clock_stream *s, size_t least, cm_clock_rate *rate);
/* The stream's groups, joined to one per iteration. left: groups at the end that belong to an
 * unfinished iteration. NULL: out of memory. */
cm_clock_group *cm_clock_join(const cm_clock_stream *s, const cm_clock_rate *rate, size_t *count,
                              size_t *left);

/* Rule 5. */
typedef struct cm_clock_silences cm_clock_silences;
typedef struct cm_clock_view {
    const cm_clock_stream *stream; /* by kind */
    const cm_clock_leads *leads;
    const cm_clock_objects *objects;
    uint32_t kind; /* of the clock, and its groups */
    const cm_clock_group *group;
    size_t count;
    cm_moment begin, end;
    uint64_t unfinished; /* where the ticks of an unfinished step begin */
    uint64_t calls;      /* of modules, in all */
} cm_clock_view;
/* The view is to outlive it. NULL: out of memory. */
cm_clock_silences *cm_clock_silences_new(const cm_clock_view *view);
void cm_clock_silences_free(cm_clock_silences *silences);
/* Adds the steps of another clock before group i (i == count: after the last). */
bool cm_clock_fill(const cm_clock_silences *silences, size_t i, cm_clock_drafts *out);
bool cm_clock_add_draft(cm_clock_drafts *d, const cm_clock_draft *draft);
/* The end of the clock's step that ends with g, with what trails it; else g's bound. */
cm_moment cm_clock_end(const cm_clock_silences *silences, const cm_clock_group *g);
/* Where the clock's step continues after `position`, before the end of group i. false: nothing of
 * it ticks. */
bool cm_clock_resumes(const cm_clock_silences *silences, size_t i, uint64_t position,
                      cm_moment *at);
/* Whether the next step begins at or after `position`: a module is called at a usual site. */
bool cm_clock_begins(const cm_clock_silences *silences, uint64_t position);
/* Whether the last group of batches or calls is a step, although none follows, and its end. */
bool cm_clock_last_step(const cm_clock_view *view, uint32_t kind, cm_moment *end);

#endif
