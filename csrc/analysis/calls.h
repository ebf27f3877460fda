/* Calls of the outermost modules, told by what they allocate: the clock of a trace in which nothing
 * ticked. (A module's calls tick by themselves only after a second without a better clock: short
 * programs that infer are over by then.)
 *
 * A module is outermost where no other one's call is further out on the stack. Of the first stacks
 * on which it is seen to allocate, the first that is there in most of its calls stands for the
 * beginning of a call; allocations that follow each other on that stack are one. A call that begins
 * with no allocation of its own is not seen, so this is for the lack of anything better only. One
 * owner. */
#ifndef CM_ANALYSIS_CALLS_H
#define CM_ANALYSIS_CALLS_H

#include <stdbool.h>

#include "../trace/reader.h"
#include "clock.h"
#include "places.h"

typedef struct cm_calls cm_calls;

cm_calls *cm_calls_new(const cm_reader *reader); /* NULL: out of memory */
void cm_calls_free(cm_calls *calls);

/* An ALLOC of the window. false: out of memory. */
bool cm_calls_see(cm_calls *calls, const cm_record *record, cm_moment at);
/* Something ticks: nothing is looked at from now on, and nothing will be told. */
void cm_calls_stop(cm_calls *calls);
/* Gives the clock a tick for each call. false: out of memory. */
bool cm_calls_tell(const cm_calls *calls, cm_places *places, cm_clock *clock);

#endif
