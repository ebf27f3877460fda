/* Shared by the replay's files: records (replay.c), devices, origins and labels by number
 * (replay_numbers.c), and cohorts (cohorts.c). */
#ifndef CM_HEAP_REPLAY_PARTS_H
#define CM_HEAP_REPLAY_PARTS_H

#include "replay.h"

extern const char cm_replay_out_of_memory[];

/* The number of an origin; -1: out of memory. */
int64_t cm_replay_find_origin(cm_replay *r, const cm_origin *wanted);
/* The label of a block that has one. put: false: error is set. */
bool cm_replay_put_label(cm_replay *r, const cm_block *block, const cm_label *label);
void cm_replay_drop_label(cm_replay *r, const cm_block *block);

/* All loose blocks without a label join cohorts. false: out of memory. */
bool cm_replay_group(cm_replay *r);
/* The block, in the table or just taken from it, becomes loose; it was in a cohort. */
void cm_replay_leave_cohort(cm_replay *r, cm_block *block);
/* A block in the table became loose. false: out of memory. */
bool cm_replay_list_loose(cm_replay *r, const cm_block *block);
/* As cm_replay_next_loose. */
cm_block *cm_replay_loose(const cm_replay *r, size_t *at);

#endif
