/* Allocations that lead to ticks: where what belongs to a tick begins (step_clock_leads.c). The
 * step clock uses it, and compaction, which keeps what the clock needs. One owner. */
#ifndef CM_HEAP_STEP_CLOCK_LEADS_H
#define CM_HEAP_STEP_CLOCK_LEADS_H

#include "step_clock.h"

/* Where what belongs to a tick begins: at the tick, or at an allocation before it. */
typedef struct cm_clock_lead {
    cm_moment at;
    cm_moment behind; /* of batches and calls: where what trails the tick before ends */
    uint32_t site;    /* number of the tick's stack */
    bool first;       /* the site's first tick: cm_clock_leads_begin and _behind know */
    bool trailed;     /* ... if something does */
} cm_clock_lead;

/* false: out of memory. */
typedef struct cm_clock_leads cm_clock_leads;
cm_clock_leads *cm_clock_leads_new(void);
void cm_clock_leads_free(cm_clock_leads *leads);
bool cm_clock_leads_block(cm_clock_leads *leads, uint32_t stack, uint32_t thread, cm_moment at);
void cm_clock_leads_compacted(cm_clock_leads *leads);
/* A reader may begin here without what came before: learn every lead again. */
void cm_clock_leads_relearn(cm_clock_leads *leads);
/* Whether a step may begin with an allocation that comes next, whatever ticks after it: nothing was
 * made there before, or it would be the first to lead to some site. */
bool cm_clock_leads_may_begin(cm_clock_leads *leads, uint32_t stack, uint32_t thread);
/* Calls keep for each allocation since the last tick that may decide where a step begins or ends,
 * if `next` is the next tick of all; NULL: it is not known. */
void cm_clock_leads_needed(const cm_clock_leads *leads, const cm_tick *next,
                           void (*keep)(void *context, cm_moment at), void *context);
size_t cm_clock_leads_bytes(const cm_clock_leads *leads); /* of memory */
bool cm_clock_leads_tick(cm_clock_leads *leads, const cm_tick *tick, cm_clock_lead *lead);
void cm_clock_leads_close(cm_clock_leads *leads, cm_moment at);
size_t cm_clock_leads_sites(const cm_clock_leads *leads);
/* Where it begins, by all ticks so far. */
cm_moment cm_clock_leads_begin(const cm_clock_leads *leads, const cm_clock_lead *lead);
/* Where what trails the tick before it ends, by all ticks so far. false: nothing does. */
bool cm_clock_leads_behind(const cm_clock_leads *leads, const cm_clock_lead *lead, cm_moment *end);
/* The same behind the last tick: right behind the last allocation that trails it. */
bool cm_clock_leads_last(const cm_clock_leads *leads, cm_moment *end);
/* Where something new begins after the last tick. false: nowhere. */
bool cm_clock_leads_trail(const cm_clock_leads *leads, cm_moment *trail);

#endif
